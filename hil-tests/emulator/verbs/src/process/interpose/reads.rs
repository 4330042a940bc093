//! The replacement of `read`: a read of an event returns the whole event or fails, as on Linux. A plan of
//! faults may cut a read short.
#![allow(unsafe_code)]

use super::next::{fail, next};
use crate::ground::errno::Errno;
use crate::ground::fault::{self, Fault, Place};
use crate::ground::{descriptors, owner, sys};
use crate::process::calls;

use std::ffi::{c_int, c_void};

/// The number of bytes of an event that a short read returns.
const SHORT: usize = 4;

/// Reads a file. A read of an event fails if the buffer is shorter than the event, or if the device has
/// ended. If a plan of faults says so, the read returns fewer bytes than the event has.
// SAFETY: the function deliberately has the name of the C library's function that it replaces.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn read(descriptor: c_int, buffer: *mut c_void, count: usize) -> isize {
    let next = next!(read(c_int, *mut c_void, usize) -> isize);
    let is_event = descriptors::OURS.contains(descriptor) && !owner::is_inside() && !owner::is_borrowed();
    let fault = if is_event { fault::at(Place::Read) } else { None };
    match fault {
        Some(Fault::Fails { errno, .. }) => fail(Errno(errno)),
        // SAFETY: the caller keeps the contract of the replaced function. The call has at most as much room.
        Some(_) => unsafe { next(descriptor, buffer, count.min(SHORT)) },
        None => {
            if is_event && let Err(errno) = check_room(descriptor, count) {
                return fail(errno);
            }
            // SAFETY: the caller keeps the contract of the replaced function, with the same arguments.
            unsafe { next(descriptor, buffer, count) }
        }
    }
}

/// Waits for an event of a channel, and checks that `count` bytes are enough for the event.
fn check_room(descriptor: c_int, count: usize) -> Result<(), Errno> {
    match sys::next_message(descriptor) {
        Ok(length) if length > count => owner::as_device(|| Err(calls::too_little_room(descriptor))),
        Ok(length) if length > 0 => Ok(()),
        Err(errno) if errno.0 != libc::ENOTSOCK => Err(errno),
        _ => owner::as_device(|| calls::end_of_events(descriptor)).map_or(Ok(()), Err),
    }
}
