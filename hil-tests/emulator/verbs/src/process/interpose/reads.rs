//! Reads of events, which a plan of faults may cut short.
#![allow(unsafe_code)]

use super::next::{fail, next};
use crate::ground::errno::Errno;
use crate::ground::fault::{self, Fault, Place};
use crate::ground::{descriptors, owner};

use std::ffi::{c_int, c_void};

/// The number of bytes of an event that a short read returns.
const SHORT: usize = 4;

/// Reads a file. A read of an event returns fewer bytes if a plan of faults says so.
///
/// # Safety
/// The caller keeps the contract of the C library's function.
// SAFETY: the name is deliberately that of the C library's function, which this one replaces.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn read(descriptor: c_int, buffer: *mut c_void, count: usize) -> isize {
    let next = next!(read(c_int, *mut c_void, usize) -> isize);
    let is_event = descriptors::is_ours(descriptor) && !owner::is_inside() && !owner::is_borrowed();
    let fault = if is_event { fault::at(Place::Read) } else { None };
    match fault {
        Some(Fault::Fails { errno, .. }) => fail(Errno(errno)),
        // SAFETY: the caller keeps the contract of the replaced function. The call has at most as much room.
        Some(_) => unsafe { next(descriptor, buffer, count.min(SHORT)) },
        // SAFETY: the caller keeps the contract of the replaced function, with the same arguments.
        None => unsafe { next(descriptor, buffer, count) },
    }
}
