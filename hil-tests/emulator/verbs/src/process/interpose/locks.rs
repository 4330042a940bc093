//! Spin locks: whoever gives one back has posted or polled, and is the device for a moment.
#![allow(unsafe_code)]

use super::next::next;
use crate::process::schedule;
use std::cell::Cell;
use std::ffi::c_int;

thread_local! {
    /// Spin locks that this thread has taken and not given back.
    static SPIN_LOCKS: Cell<u32> = const { Cell::new(0) };
}

/// Takes a lock, as libmlx5 does for all that a program posts and polls.
///
/// # Safety
/// As the function of the C library.
// SAFETY: the name is that of the function that it stands before.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn pthread_spin_lock(lock: *mut libc::pthread_spinlock_t) -> c_int {
    let next = next!(pthread_spin_lock(*mut libc::pthread_spinlock_t) -> c_int);
    let _ = SPIN_LOCKS.try_with(|count| count.set(count.get().saturating_add(1)));
    // SAFETY: handed on from the caller.
    unsafe { next(lock) }
}

/// Gives a lock back. Whoever gives the last one back may have rung a doorbell, or is waiting for an answer,
/// so this thread is the device for a moment.
///
/// # Safety
/// As the function of the C library.
// SAFETY: the name is that of the function that it stands before.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn pthread_spin_unlock(lock: *mut libc::pthread_spinlock_t) -> c_int {
    let next = next!(pthread_spin_unlock(*mut libc::pthread_spinlock_t) -> c_int);
    // SAFETY: handed on from the caller.
    let result = unsafe { next(lock) };
    let left = SPIN_LOCKS.try_with(|count| {
        count.set(count.get().saturating_sub(1));
        count.get()
    });
    if left == Ok(0) {
        schedule::look();
    }
    result
}
