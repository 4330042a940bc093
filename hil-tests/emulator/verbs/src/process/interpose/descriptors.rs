//! Functions on descriptors: calls to the device, duplication of a descriptor, and closing of one or many.
#![allow(unsafe_code)]

use super::next::{fail, guarded, next, noted};
use super::signals;
use crate::command::request::VERBS_IOCTL;
use crate::ground::errno::Errno;
use crate::ground::{descriptors, owner};
use crate::process::calls;
use std::ffi::{c_int, c_uint, c_ulong, c_void};

/// Opens a device on `descriptor`, which is open on the file that replaces the device's file. Returns the
/// descriptor. If the device cannot be opened, closes the descriptor and returns -1.
///
/// # Safety
/// The caller ensures that nobody else has the descriptor.
pub(super) unsafe fn adopt(device: usize, descriptor: c_int) -> c_int {
    if descriptor < 0 {
        return descriptor;
    }
    let refused = if owner::is_borrowed() {
        Err(Errno::IO)
    } else if descriptors::is_too_high(descriptor) {
        Err(Errno(libc::EMFILE))
    } else {
        signals::catch();
        guarded(|| calls::open(descriptor, device))
    };
    match refused {
        Ok(()) => descriptor,
        Err(errno) => {
            // SAFETY: by contract nobody else has the descriptor.
            unsafe { libc::close(descriptor) };
            fail(errno)
        }
    }
}

/// Makes a call to a device. Verbs calls on a descriptor of the device go to the software device.
// SAFETY: the function deliberately has the name of the C library's function that it replaces.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ioctl(descriptor: c_int, request: c_ulong, argument: *mut c_void) -> c_int {
    if request == VERBS_IOCTL as c_ulong && descriptors::OURS.contains(descriptor) {
        if owner::is_borrowed() {
            return fail(Errno::IO);
        }
        let address = argument.expose_provenance() as u64;
        return match guarded(|| calls::ioctl(descriptor, address)) {
            Ok(()) => 0,
            Err(errno) => fail(errno),
        };
    }
    let next = next!(ioctl(c_int, c_ulong, *mut c_void) -> c_int);
    // SAFETY: the caller keeps the contract of the replaced function, with the same arguments.
    unsafe { next(descriptor, request, argument) }
}

/// Returns whether the caller of `close` may close a descriptor. The program may not close the descriptors
/// that this library keeps for itself. The library's own code may close all descriptors.
fn may_close(descriptor: c_int) -> bool {
    if !descriptors::KEPT.contains(descriptor) {
        return true;
    }
    let is_own = owner::is_inside();
    if is_own && !owner::is_borrowed() {
        descriptors::KEPT.remove(descriptor);
    }
    is_own
}

/// Records that a descriptor is no netlink socket and no rdma_cm file any more.
fn release(descriptor: c_int) {
    descriptors::NETLINK.remove(descriptor);
    if descriptors::CONNECTIONS.contains(descriptor) && !owner::is_borrowed() && !owner::is_inside() {
        noted(|| calls::close_connections(descriptor));
    }
}

/// Closes a descriptor. If it is the last descriptor of a context (an opened device), all objects of the
/// context are destroyed.
// SAFETY: the function deliberately has the name of the C library's function that it replaces.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn close(descriptor: c_int) -> c_int {
    if !may_close(descriptor) {
        return fail(Errno::BADF);
    }
    if descriptors::OURS.contains(descriptor) && !owner::is_borrowed() && !owner::is_inside() {
        noted(|| calls::close(descriptor));
    }
    release(descriptor);
    let next = next!(close(c_int) -> c_int);
    // SAFETY: the caller keeps the contract of the replaced function, with the same arguments.
    unsafe { next(descriptor) }
}

/// Closes a range of descriptors, each as `close` does. A call with any flag but `CLOSE_RANGE_UNSHARE` goes
/// only to the kernel: the kernel refuses the flag, or leaves the descriptors open until the process
/// executes another program.
// SAFETY: the function deliberately has the name of the C library's function that it replaces.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn close_range(first: c_uint, last: c_uint, flags: c_int) -> c_int {
    let next = next!(close_range(c_uint, c_uint, c_int) -> c_int);
    // The kernel refuses invalid arguments, and handles the other flags.
    if first > last || flags & !(libc::CLOSE_RANGE_UNSHARE as c_int) != 0 {
        // SAFETY: the caller keeps the contract of the replaced function, with the same arguments.
        return unsafe { next(first, last, flags) };
    }
    let one = |descriptor| {
        // SAFETY: the caller asks to close these descriptors; this closes one of them.
        unsafe { close(descriptor) };
    };
    // SAFETY: the caller keeps the contract of the replaced function, for a range with all these parts.
    let part = |first, last| unsafe { next(first, last, flags) };
    descriptors::close_range(first, last, one, part)
}

/// Closes all descriptors from `low` up, each as `close` does.
// SAFETY: the function deliberately has the name of the C library's function that it replaces.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn closefrom(low: c_int) {
    let low = low.max(0);
    // SAFETY: the caller keeps the contract of the replaced function, with the same arguments.
    if unsafe { close_range(low.unsigned_abs(), c_uint::MAX, 0) } < 0 {
        // An old kernel lacks the call. The loop closes all descriptors below a limit, and the kernel gives
        // out higher numbers only on request.
        for descriptor in low..descriptors::DESCRIPTORS as c_int {
            // SAFETY: the caller asks to close these descriptors; this closes one of them.
            unsafe { close(descriptor) };
        }
    }
}

/// Records that `new` is a duplicate of `old`, unless the call failed, and returns `new`.
///
/// # Safety
/// The caller ensures that `new` is the result of a call that duplicates `old`, and that nobody else uses
/// `new` yet.
unsafe fn duplicated(old: c_int, new: c_int) -> c_int {
    if old != new {
        // The number may have belonged to another file, which `dup2` has closed.
        release(new);
    }
    let known = descriptors::OURS.contains(old) || descriptors::OURS.contains(new);
    if new < 0 || old == new || !known || owner::is_borrowed() || owner::is_inside() {
        return new;
    }
    if descriptors::is_too_high(new) {
        // SAFETY: by contract nobody else has the descriptor.
        unsafe { libc::close(new) };
        return fail(Errno(libc::EMFILE));
    }
    noted(|| calls::duplicate(old, new));
    new
}

/// Duplicates a descriptor. A duplicate of the device's descriptor is a descriptor of the device too.
// SAFETY: the function deliberately has the name of the C library's function that it replaces.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn dup(descriptor: c_int) -> c_int {
    let next = next!(dup(c_int) -> c_int);
    // SAFETY: the caller keeps the contract of the replaced function, with the same arguments.
    unsafe { duplicated(descriptor, next(descriptor)) }
}

/// Works like `dup`, but the duplicate gets the number `new`. The former file of this number is closed.
// SAFETY: the function deliberately has the name of the C library's function that it replaces.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn dup2(old: c_int, new: c_int) -> c_int {
    if old != new && !may_close(new) {
        return fail(Errno::BUSY);
    }
    let next = next!(dup2(c_int, c_int) -> c_int);
    // SAFETY: the caller keeps the contract of the replaced function, with the same arguments.
    unsafe { duplicated(old, next(old, new)) }
}

/// Works like `dup2`, with flags for the duplicate.
// SAFETY: the function deliberately has the name of the C library's function that it replaces.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn dup3(old: c_int, new: c_int, flags: c_int) -> c_int {
    if old != new && !may_close(new) {
        return fail(Errno::BUSY);
    }
    let next = next!(dup3(c_int, c_int, c_int) -> c_int);
    // SAFETY: the caller keeps the contract of the replaced function, with the same arguments.
    unsafe { duplicated(old, next(old, new, flags)) }
}

macro_rules! controls {
    ($($(#[$doc:meta])* $name:ident;)*) => {
        $(
            $(#[$doc])*
            // SAFETY: the function deliberately has the name of the C library's function that it replaces.
            #[unsafe(no_mangle)]
            pub(crate) unsafe extern "C" fn $name(
                descriptor: c_int, command: c_int, argument: *mut c_void
            ) -> c_int {
                let next = next!($name(c_int, c_int, *mut c_void) -> c_int);
                // SAFETY: the caller keeps the contract of the replaced function, with the same arguments.
                let result = unsafe { next(descriptor, command, argument) };
                match command {
                    // SAFETY: the result is a new descriptor.
                    libc::F_DUPFD | libc::F_DUPFD_CLOEXEC => unsafe { duplicated(descriptor, result) },
                    _ => result,
                }
            }
        )*
    };
}

controls! {
    /// Controls a file. Some commands duplicate its descriptor.
    fcntl;
    /// Works like `fcntl`.
    fcntl64;
}
