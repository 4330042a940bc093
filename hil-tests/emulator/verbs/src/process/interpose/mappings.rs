//! Mappings of the device: its clock is there, and the rest is memory of the program's own.
#![allow(unsafe_code)]

use super::next::{fail, guarded};
use crate::ground::{descriptors, sys};
use crate::process::calls;
use libc::{c_int, c_void, off64_t, size_t};

/// Maps a file; of the device, the pages of its clock are those of the clock.
///
/// # Safety
/// As the function of the C library.
// SAFETY: the name is that of the function that it stands before.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn mmap(
    wanted: *mut c_void,
    length: size_t,
    rights: c_int,
    kind: c_int,
    descriptor: c_int,
    offset: off64_t,
) -> *mut c_void {
    let (mut file, mut from) = (descriptor, offset);
    if descriptors::is_ours(descriptor) {
        let mut page = None;
        if let Err(errno) = guarded(|| calls::clock_page(descriptor, offset).map(|found| page = found)) {
            fail::<*mut c_void>(errno);
            return libc::MAP_FAILED;
        }
        (file, from) = page.unwrap_or((descriptor, offset));
    }
    // SAFETY: handed on from the caller; the file is the caller's or the clock's.
    unsafe { sys::map(wanted, length, rights, kind, file, from) }
}

/// As `mmap`.
///
/// # Safety
/// As the function of the C library.
// SAFETY: the name is that of the function that it stands before.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn mmap64(
    wanted: *mut c_void,
    length: size_t,
    rights: c_int,
    kind: c_int,
    descriptor: c_int,
    offset: off64_t,
) -> *mut c_void {
    // SAFETY: handed on from the caller.
    unsafe { mmap(wanted, length, rights, kind, descriptor, offset) }
}
