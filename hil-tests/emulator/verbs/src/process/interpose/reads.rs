//! Reads of events, which may go wrong on purpose.
#![allow(unsafe_code)]

use super::next::{fail, next};
use crate::ground::errno::Errno;
use crate::ground::fault::{self, Fault, Place};
use crate::ground::{descriptors, owner};

use std::ffi::{c_int, c_void};

/// What a short read returns of an event.
const SHORT: usize = 4;

/// Reads a file; of events, less than there is where a plan says so.
///
/// # Safety
/// As the function of the C library.
// SAFETY: the name is that of the function that it stands before.
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
