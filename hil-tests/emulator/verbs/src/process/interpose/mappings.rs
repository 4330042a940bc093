//! Mappings of the device's file: pages of the clock show the clock, and doorbell pages are memory of the
//! program that the device never reads.
#![allow(unsafe_code)]

use super::next::{Next, fail, guarded};
use crate::ground::{descriptors, sys};
use crate::process::calls;
use crate::state::pages::PageRequest;
use libc::{c_int, c_void, off64_t, size_t};

type Map = unsafe extern "C" fn(*mut c_void, size_t, c_int, c_int, c_int, off64_t) -> *mut c_void;

/// The C library's `mmap`. UCX patches the code of `mmap` to learn of all mappings, so a system call in its
/// place would hide mappings from UCX.
static NEXT: Next = Next::new(c"mmap");

/// Looks up the C library's `mmap`. The loader calls this function before the program runs: a search on the
/// first use might call `mmap` itself, through an allocator, and not end. Calls of `mmap` before the search
/// go directly to the kernel.
pub(super) fn prepare() {
    NEXT.find();
}

/// Maps a file. The device's file can be mapped at the offsets and with the rights that Linux allows.
// SAFETY: the function deliberately has the name of the C library's function that it replaces.
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
    if descriptors::OURS.contains(descriptor) {
        let asked = PageRequest {
            offset,
            length: length as u64,
            writes: rights & libc::PROT_WRITE != 0,
            executes: rights & libc::PROT_EXEC != 0,
            is_shared: kind & libc::MAP_TYPE != libc::MAP_PRIVATE,
        };
        let mut page = None;
        if let Err(errno) = guarded(|| calls::page(descriptor, &asked).map(|found| page = found)) {
            fail::<*mut c_void>(errno);
            return libc::MAP_FAILED;
        }
        (file, from) = page.unwrap_or((descriptor, offset));
    }
    let next = NEXT.known();
    if next.is_null() {
        // SAFETY: the caller keeps the contract of the replaced function; the file is the caller's or the
        // clock's.
        return unsafe { sys::map(wanted, length, rights, kind, file, from) };
    }
    // SAFETY: the C library's function of this name takes the same arguments.
    let next = unsafe { std::mem::transmute::<*mut c_void, Map>(next) };
    // SAFETY: the caller keeps the contract of the replaced function; the file is the caller's or the
    // clock's.
    unsafe { next(wanted, length, rights, kind, file, from) }
}

/// Works like `mmap`.
// SAFETY: the function deliberately has the name of the C library's function that it replaces.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn mmap64(
    wanted: *mut c_void,
    length: size_t,
    rights: c_int,
    kind: c_int,
    descriptor: c_int,
    offset: off64_t,
) -> *mut c_void {
    // SAFETY: the caller keeps the contract of the replaced function, with the same arguments.
    unsafe { mmap(wanted, length, rights, kind, descriptor, offset) }
}
