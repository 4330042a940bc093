//! Functions that find files by name: the device's file opens the device, and files of `/sys` that describe
//! the device exist.
//!
//! The list holds functions that take a path and their variants: the 64-bit variants, the ones that a C
//! compiler inserts to check lengths (`__open_2`, `__realpath_chk`), and the ones of programs built against
//! an older C library (`__xstat`).
#![allow(unsafe_code)]

use super::descriptors::adopt;
use super::next::next;
use super::paths::{is_connections, is_device, placed};
use crate::ground::sysfs;
use libc::{DIR, FILE, mode_t};
use std::ffi::{c_char, c_int, c_uint, c_void};

/// Opens the file of connection management with the flags that a function takes.
macro_rules! open_connections {
    ($flags:ident $(, $mode:ident)?) => {
        super::cm::open($flags)
    };
}

/// Functions that open files. Opening the device's file opens the device. `[path]` marks the position of the
/// path.
macro_rules! opens {
    ($(
        $(#[$doc:meta])*
        $name:ident($($before:ident: $first:ty,)* [path] $(, $after:ident: $last:ty)*);
    )*) => {
        $(
            $(#[$doc])*
            ///
            /// # Safety
            /// As the function of the C library.
            // SAFETY: the name is deliberately that of the C library's function, which this one replaces.
            #[unsafe(no_mangle)]
            pub(crate) unsafe extern "C" fn $name(
                $($before: $first,)* path: *const c_char $(, $after: $last)*
            ) -> c_int {
                let next = next!($name($($first,)* *const c_char $(, $last)*) -> c_int);
                // SAFETY: handed on from the caller.
                unsafe {
                    if is_connections(path) {
                        open_connections!($($after),*)
                    } else if is_device(path) {
                        adopt(next($($before,)* sysfs::STAND_IN.as_ptr() $(, $after)*))
                    } else {
                        placed(path, |path| next($($before,)* path $(, $after)*))
                    }
                }
            }
        )*
    };
}

opens! {
    /// Opens a file. Opening the device's file opens the device.
    open([path], flags: c_int, mode: mode_t);
    /// As `open`.
    open64([path], flags: c_int, mode: mode_t);
    /// As `open`, relative to a directory.
    openat(directory: c_int, [path], flags: c_int, mode: mode_t);
    /// As `openat`.
    openat64(directory: c_int, [path], flags: c_int, mode: mode_t);
    /// As `open`, without creating a file.
    __open_2([path], flags: c_int);
    /// As `__open_2`.
    __open64_2([path], flags: c_int);
    /// As `__open_2`, relative to a directory.
    __openat_2(directory: c_int, [path], flags: c_int);
    /// As `__openat_2`.
    __openat64_2(directory: c_int, [path], flags: c_int);
}

/// Functions that do something else than open a file.
macro_rules! looks {
    ($(
        $(#[$doc:meta])*
        $name:ident($($before:ident: $first:ty,)* [path] $(, $after:ident: $last:ty)*) -> $result:ty;
    )*) => {
        $(
            $(#[$doc])*
            ///
            /// # Safety
            /// As the function of the C library.
            // SAFETY: the name is deliberately that of the C library's function, which this one replaces.
            #[unsafe(no_mangle)]
            pub(crate) unsafe extern "C" fn $name(
                $($before: $first,)* path: *const c_char $(, $after: $last)*
            ) -> $result {
                let next = next!($name($($first,)* *const c_char $(, $last)*) -> $result);
                // SAFETY: handed on from the caller.
                unsafe { placed(path, |path| next($($before,)* path $(, $after)*)) }
            }
        )*
    };
}

looks! {
    /// Opens a stream.
    fopen([path], mode: *const c_char) -> *mut FILE;
    /// As `fopen`.
    fopen64([path], mode: *const c_char) -> *mut FILE;
    /// Reads the status of a file.
    stat([path], out: *mut c_void) -> c_int;
    /// As `stat`.
    stat64([path], out: *mut c_void) -> c_int;
    /// As `stat`, of a link itself.
    lstat([path], out: *mut c_void) -> c_int;
    /// As `lstat`.
    lstat64([path], out: *mut c_void) -> c_int;
    /// As `stat`, relative to a directory.
    fstatat(directory: c_int, [path], out: *mut c_void, flags: c_int) -> c_int;
    /// As `fstatat`.
    fstatat64(directory: c_int, [path], out: *mut c_void, flags: c_int) -> c_int;
    /// As `fstatat`.
    statx(directory: c_int, [path], flags: c_int, mask: c_uint, out: *mut c_void) -> c_int;
    /// As `stat`.
    __xstat(version: c_int, [path], out: *mut c_void) -> c_int;
    /// As `stat`.
    __xstat64(version: c_int, [path], out: *mut c_void) -> c_int;
    /// As `lstat`.
    __lxstat(version: c_int, [path], out: *mut c_void) -> c_int;
    /// As `lstat`.
    __lxstat64(version: c_int, [path], out: *mut c_void) -> c_int;
    /// As `fstatat`.
    __fxstatat(version: c_int, directory: c_int, [path], out: *mut c_void, flags: c_int) -> c_int;
    /// As `fstatat`.
    __fxstatat64(version: c_int, directory: c_int, [path], out: *mut c_void, flags: c_int) -> c_int;
    /// Checks the permissions for a file.
    access([path], mode: c_int) -> c_int;
    /// As `access`, with the effective user of the process.
    eaccess([path], mode: c_int) -> c_int;
    /// As `eaccess`.
    euidaccess([path], mode: c_int) -> c_int;
    /// As `access`, relative to a directory.
    faccessat(directory: c_int, [path], mode: c_int, flags: c_int) -> c_int;
    /// Changes the working directory.
    chdir([path]) -> c_int;
    /// Opens a directory.
    opendir([path]) -> *mut DIR;
    /// Lists a directory.
    scandir([path], out: *mut c_void, select: *const c_void, order: *const c_void) -> c_int;
    /// As `scandir`.
    scandir64([path], out: *mut c_void, select: *const c_void, order: *const c_void) -> c_int;
    /// Reads an attribute of a file.
    getxattr([path], name: *const c_char, out: *mut c_void, room: usize) -> isize;
    /// As `getxattr`, of a link itself.
    lgetxattr([path], name: *const c_char, out: *mut c_void, room: usize) -> isize;
    /// Reads a link.
    readlink([path], out: *mut c_char, room: usize) -> isize;
    /// As `readlink`.
    __readlink_chk([path], out: *mut c_char, room: usize, known: usize) -> isize;
    /// As `readlink`, relative to a directory.
    readlinkat(directory: c_int, [path], out: *mut c_char, room: usize) -> isize;
    /// As `readlinkat`.
    __readlinkat_chk(directory: c_int, [path], out: *mut c_char, room: usize, known: usize) -> isize;
    /// Resolves all links in a path. For files that stand for others, the result is their real path.
    realpath([path], out: *mut c_char) -> *mut c_char;
    /// As `realpath`.
    __realpath_chk([path], out: *mut c_char, known: usize) -> *mut c_char;
    /// As `realpath`.
    canonicalize_file_name([path]) -> *mut c_char;
}
