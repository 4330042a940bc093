//! Reads of events, which a plan of faults may cut short.
#![allow(unsafe_code)]

use super::next::{fail, next};
use crate::ground::errno::Errno;
use crate::ground::fault::{self, Fault, Place};
use crate::ground::{descriptors, owner};

use std::ffi::{c_int, c_void};

/// The bytes that a short read returns of an event.
const SHORT: usize = 4;

/// Reads a file. A read of an event returns fewer bytes if a plan of faults says so.
///
/// # Safety
/// As the function of the C library.
// SAFETY: the name is deliberately that of the C library's function, which this one replaces.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn read(descriptor: c_int, buffer: *mut c_void, count: usize) -> isize {
    let next = next!(read(c_int, *mut c_void, usize) -> isize);
    let is_event = descriptors::is_ours(descriptor) && !owner::is_inside() && !owner::is_borrowed();
    let fault = if is_event { fault::at(Place::Read) } else { None };
    match fault {
        Some(Fault::Fails { errno, .. }) => fail(Errno(errno)),
        // SAFETY: handed on from the caller, with less room.
        Some(_) => unsafe { next(descriptor, buffer, count.min(SHORT)) },
        // SAFETY: handed on from the caller.
        None => unsafe { next(descriptor, buffer, count) },
    }
}
