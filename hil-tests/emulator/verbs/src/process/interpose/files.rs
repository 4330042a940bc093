//! Replacements for functions that find files by name. With them, a program that opens the device's file
//! opens the device, and finds the files of `/sys` that describe the device.
//!
//! The lists hold functions that take a path and their variants: the 64-bit variants, the variants that a C
//! compiler inserts to check lengths (`__open_2`, `__realpath_chk`), and the variants of programs built
//! against an older C library (`__xstat`).
#![allow(unsafe_code)]

use super::descriptors::adopt;
use super::next::next;
use super::paths::{device, is_connections, placed, resolved};
use crate::ground::sysfs;
use libc::{DIR, FILE, mode_t};
use std::ffi::{c_char, c_int, c_uint, c_void};

/// Opens the rdma_cm file with the flags that a function takes.
macro_rules! open_connections {
    ($flags:ident $(, $mode:ident)?) => {
        super::cm::open($flags)
    };
}

/// The directory that a function's path is relative to, from the arguments before the path.
macro_rules! directory {
    () => {
        libc::AT_FDCWD
    };
    (version) => {
        libc::AT_FDCWD
    };
    ($directory:ident) => {
        $directory
    };
    ($version:ident $directory:ident) => {
        $directory
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
            // SAFETY: the function deliberately has the name of the C library's function that it replaces.
            #[unsafe(no_mangle)]
            pub(crate) unsafe extern "C" fn $name(
                $($before: $first,)* path: *const c_char $(, $after: $last)*
            ) -> c_int {
                let next = next!($name($($first,)* *const c_char $(, $last)*) -> c_int);
                // SAFETY: the caller keeps the contract of the replaced function, with the same arguments.
                unsafe {
                    resolved(directory!($($before)*), path, |path| {
                        if is_connections(path) {
                            open_connections!($($after),*)
                        } else if let Some(index) = device(path) {
                            adopt(index, next($($before,)* sysfs::STAND_IN.as_ptr() $(, $after)*))
                        } else {
                            placed(path, |path| next($($before,)* path $(, $after)*))
                        }
                    })
                }
            }
        )*
    };
}

opens! {
    /// Opens a file. Opening the device's file opens the device.
    open([path], flags: c_int, mode: mode_t);
    /// Works like `open`.
    open64([path], flags: c_int, mode: mode_t);
    /// Works like `open`, relative to a directory.
    openat(directory: c_int, [path], flags: c_int, mode: mode_t);
    /// Works like `openat`.
    openat64(directory: c_int, [path], flags: c_int, mode: mode_t);
    /// Works like `open`, but creates no file.
    __open_2([path], flags: c_int);
    /// Works like `__open_2`.
    __open64_2([path], flags: c_int);
    /// Works like `__open_2`, relative to a directory.
    __openat_2(directory: c_int, [path], flags: c_int);
    /// Works like `__openat_2`.
    __openat64_2(directory: c_int, [path], flags: c_int);
}

/// Functions that take a path and return no descriptor. A path of the device is replaced by the path of this
/// library's own file.
macro_rules! looks {
    ($(
        $(#[$doc:meta])*
        $name:ident($($before:ident: $first:ty,)* [path] $(, $after:ident: $last:ty)*) -> $result:ty;
    )*) => {
        $(
            $(#[$doc])*
            // SAFETY: the function deliberately has the name of the C library's function that it replaces.
            #[unsafe(no_mangle)]
            pub(crate) unsafe extern "C" fn $name(
                $($before: $first,)* path: *const c_char $(, $after: $last)*
            ) -> $result {
                let next = next!($name($($first,)* *const c_char $(, $last)*) -> $result);
                // SAFETY: the caller keeps the contract of the replaced function, with the same arguments.
                unsafe {
                    resolved(directory!($($before)*), path, |path| {
                        placed(path, |path| next($($before,)* path $(, $after)*))
                    })
                }
            }
        )*
    };
}

looks! {
    /// Opens a stream.
    fopen([path], mode: *const c_char) -> *mut FILE;
    /// Works like `fopen`.
    fopen64([path], mode: *const c_char) -> *mut FILE;
    /// Reads the status of a file.
    stat([path], out: *mut c_void) -> c_int;
    /// Works like `stat`.
    stat64([path], out: *mut c_void) -> c_int;
    /// Works like `stat`, but does not follow a link.
    lstat([path], out: *mut c_void) -> c_int;
    /// Works like `lstat`.
    lstat64([path], out: *mut c_void) -> c_int;
    /// Works like `stat`, relative to a directory.
    fstatat(directory: c_int, [path], out: *mut c_void, flags: c_int) -> c_int;
    /// Works like `fstatat`.
    fstatat64(directory: c_int, [path], out: *mut c_void, flags: c_int) -> c_int;
    /// Works like `fstatat`.
    statx(directory: c_int, [path], flags: c_int, mask: c_uint, out: *mut c_void) -> c_int;
    /// Works like `stat`.
    __xstat(version: c_int, [path], out: *mut c_void) -> c_int;
    /// Works like `stat`.
    __xstat64(version: c_int, [path], out: *mut c_void) -> c_int;
    /// Works like `lstat`.
    __lxstat(version: c_int, [path], out: *mut c_void) -> c_int;
    /// Works like `lstat`.
    __lxstat64(version: c_int, [path], out: *mut c_void) -> c_int;
    /// Works like `fstatat`.
    __fxstatat(version: c_int, directory: c_int, [path], out: *mut c_void, flags: c_int) -> c_int;
    /// Works like `fstatat`.
    __fxstatat64(version: c_int, directory: c_int, [path], out: *mut c_void, flags: c_int) -> c_int;
    /// Checks the permissions for a file.
    access([path], mode: c_int) -> c_int;
    /// Works like `access`, with the effective user of the process.
    eaccess([path], mode: c_int) -> c_int;
    /// Works like `eaccess`.
    euidaccess([path], mode: c_int) -> c_int;
    /// Works like `access`, relative to a directory.
    faccessat(directory: c_int, [path], mode: c_int, flags: c_int) -> c_int;
    /// Changes the working directory.
    chdir([path]) -> c_int;
    /// Opens a directory.
    opendir([path]) -> *mut DIR;
    /// Lists a directory.
    scandir([path], out: *mut c_void, select: *const c_void, order: *const c_void) -> c_int;
    /// Works like `scandir`.
    scandir64([path], out: *mut c_void, select: *const c_void, order: *const c_void) -> c_int;
    /// Reads an attribute of a file.
    getxattr([path], name: *const c_char, out: *mut c_void, room: usize) -> isize;
    /// Works like `getxattr`, but does not follow a link.
    lgetxattr([path], name: *const c_char, out: *mut c_void, room: usize) -> isize;
    /// Reads a link.
    readlink([path], out: *mut c_char, room: usize) -> isize;
    /// Works like `readlink`.
    __readlink_chk([path], out: *mut c_char, room: usize, known: usize) -> isize;
    /// Works like `readlink`, relative to a directory.
    readlinkat(directory: c_int, [path], out: *mut c_char, room: usize) -> isize;
    /// Works like `readlinkat`.
    __readlinkat_chk(directory: c_int, [path], out: *mut c_char, room: usize, known: usize) -> isize;
    /// Resolves all links in a path. If a file of this library replaces the named one, the result is the path
    /// of this library's file.
    realpath([path], out: *mut c_char) -> *mut c_char;
    /// Works like `realpath`.
    __realpath_chk([path], out: *mut c_char, known: usize) -> *mut c_char;
    /// Works like `realpath`.
    canonicalize_file_name([path]) -> *mut c_char;
}
