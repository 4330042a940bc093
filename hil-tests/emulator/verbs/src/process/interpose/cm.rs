//! The rdma_cm file (`/dev/infiniband/rdma_cm`).
//!
//! The program gets an eventfd that counts its events, so the kernel itself provides polling and non-blocking
//! mode. librdmacm writes commands to the eventfd, and asks whether the file is a character device.
#![allow(unsafe_code)]

use super::next::{fail, guarded, next};
use super::paths;
use crate::ground::errno::Errno;
use crate::ground::{descriptors, owner, sys, sysfs};
use crate::process::calls;
use rustix::event::EventfdFlags;
use std::ffi::{c_int, c_void};
use std::os::fd::{AsRawFd, IntoRawFd};

/// Opens the rdma_cm file.
pub(super) fn open(flags: c_int) -> c_int {
    paths::looked_for();
    if owner::is_borrowed() || !paths::is_device_there() {
        return fail(Errno::IO);
    }
    // Both flags have the same value for `open` and `eventfd`.
    let flags = EventfdFlags::from_bits_retain(flags.cast_unsigned());
    let descriptor = match sys::event_counter(flags & (EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC)) {
        Ok(descriptor) => descriptor,
        Err(errno) => return fail(errno),
    };
    let number = descriptor.as_raw_fd();
    let opened = match descriptors::is_too_high(number) {
        true => Err(Errno(libc::EMFILE)),
        false => guarded(|| calls::open_connections(number)),
    };
    match opened {
        Ok(()) => descriptor.into_raw_fd(),
        Err(errno) => {
            drop(descriptor);
            fail(errno)
        }
    }
}

/// Writes to a file. A write to the rdma_cm file is a command.
// SAFETY: the function deliberately has the name of the C library's function that it replaces.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn write(descriptor: c_int, buffer: *const c_void, count: usize) -> isize {
    if !descriptors::CONNECTIONS.contains(descriptor) || owner::is_inside() {
        let next = next!(write(c_int, *const c_void, usize) -> isize);
        // SAFETY: the caller keeps the contract of the replaced function, with the same arguments.
        return unsafe { next(descriptor, buffer, count) };
    }
    if owner::is_borrowed() {
        return fail(Errno::IO);
    }
    // The bytes are read as the kernel reads them, so that an unmapped address fails with EFAULT.
    let address = buffer.expose_provenance() as u64;
    match guarded(|| calls::write_command(descriptor, address, count)) {
        Ok(()) => count as isize,
        Err(errno) => fail(errno),
    }
}

macro_rules! statuses {
    ($($(#[$doc:meta])* $name:ident;)*) => {
        $(
            $(#[$doc])*
            // SAFETY: the function deliberately has the name of the C library's function that it replaces.
            #[unsafe(no_mangle)]
            pub(crate) unsafe extern "C" fn $name(descriptor: c_int, out: *mut c_void) -> c_int {
                if descriptors::CONNECTIONS.contains(descriptor) && !owner::is_inside() {
                    // SAFETY: the name is a string; `out` has room for a status.
                    return unsafe { libc::stat(sysfs::STAND_IN.as_ptr(), out.cast()) };
                }
                let next = next!($name(c_int, *mut c_void) -> c_int);
                // SAFETY: the caller keeps the contract of the replaced function, with the same arguments.
                unsafe { next(descriptor, out) }
            }
        )*
    };
}

statuses! {
    /// Reads the status of an open file. An rdma_cm file has the status of a character device.
    fstat;
    /// Works like `fstat`.
    fstat64;
}
