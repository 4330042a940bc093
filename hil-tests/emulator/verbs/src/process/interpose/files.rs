//! Files by their names: the device's is the device, and what names it in `/sys` is there.
//!
//! Functions that take a path, and what else: the 64-bit twins, those that a C compiler puts in place of
//! others where it checks lengths (`__open_2`, `__realpath_chk`), and those of programs that were built
//! against an older C library (`__xstat`).
#![allow(unsafe_code)]

use super::descriptors::adopt;
use super::next::next;
use super::paths::{is_device, placed};
use crate::ground::sysfs;
use libc::{DIR, FILE, mode_t};
use std::ffi::{c_char, c_int, c_uint, c_void};

/// Functions that open files: those of the device are devices. `[path]` is where they take the path.
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
            // SAFETY: the name is that of the function that it stands before.
            #[unsafe(no_mangle)]
            pub(crate) unsafe extern "C" fn $name(
                $($before: $first,)* path: *const c_char $(, $after: $last)*
            ) -> c_int {
                let next = next!($name($($first,)* *const c_char $(, $last)*) -> c_int);
                // SAFETY: handed on from the caller.
                unsafe {
                    if is_device(path) {
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
    /// Opens a file; the device's is the device.
    open([path], flags: c_int, mode: mode_t);
    /// As `open`.
    open64([path], flags: c_int, mode: mode_t);
    /// As `open`, of a directory.
    openat(directory: c_int, [path], flags: c_int, mode: mode_t);
    /// As `openat`.
    openat64(directory: c_int, [path], flags: c_int, mode: mode_t);
    /// As `open`, where no file is made.
    __open_2([path], flags: c_int);
    /// As `__open_2`.
    __open64_2([path], flags: c_int);
    /// As `__open_2`, of a directory.
    __openat_2(directory: c_int, [path], flags: c_int);
    /// As `__openat_2`.
    __openat64_2(directory: c_int, [path], flags: c_int);
}

/// Functions that do something else with a file.
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
            // SAFETY: the name is that of the function that it stands before.
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
    /// Looks at a file.
    stat([path], out: *mut c_void) -> c_int;
    /// As `stat`.
    stat64([path], out: *mut c_void) -> c_int;
    /// As `stat`, at a link itself.
    lstat([path], out: *mut c_void) -> c_int;
    /// As `lstat`.
    lstat64([path], out: *mut c_void) -> c_int;
    /// As `stat`, of a directory.
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
    /// Asks what one may do with a file.
    access([path], mode: c_int) -> c_int;
    /// As `access`, as whom the process runs.
    eaccess([path], mode: c_int) -> c_int;
    /// As `eaccess`.
    euidaccess([path], mode: c_int) -> c_int;
    /// As `access`, of a directory.
    faccessat(directory: c_int, [path], mode: c_int, flags: c_int) -> c_int;
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
    /// As `readlink`, of a directory.
    readlinkat(directory: c_int, [path], out: *mut c_char, room: usize) -> isize;
    /// As `readlinkat`.
    __readlinkat_chk(directory: c_int, [path], out: *mut c_char, room: usize, known: usize) -> isize;
    /// Finds where links lead to: where the stand-in has what the path names.
    realpath([path], out: *mut c_char) -> *mut c_char;
    /// As `realpath`.
    __realpath_chk([path], out: *mut c_char, known: usize) -> *mut c_char;
    /// As `realpath`.
    canonicalize_file_name([path]) -> *mut c_char;
}
