//! Replacements for the functions of spin locks. libmlx5 takes a spin lock when a program posts or polls. A
//! thread that releases one therefore does the device's work for a moment.
#![allow(unsafe_code)]

use super::next::next;
use crate::process::schedule;
use std::cell::Cell;
use std::ffi::c_int;

thread_local! {
    /// Number of spin locks that this thread holds.
    static SPIN_LOCKS: Cell<u32> = const { Cell::new(0) };
}

/// Takes a spin lock. libmlx5 takes one whenever a program posts or polls.
// SAFETY: the function deliberately has the name of the C library's function that it replaces.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn pthread_spin_lock(lock: *mut libc::pthread_spinlock_t) -> c_int {
    let next = next!(pthread_spin_lock(*mut libc::pthread_spinlock_t) -> c_int);
    let _ = SPIN_LOCKS.try_with(|count| count.set(count.get().saturating_add(1)));
    // SAFETY: the caller keeps the contract of the replaced function, with the same arguments.
    unsafe { next(lock) }
}

/// Releases a spin lock. A thread that releases its last spin lock may have rung a doorbell or may wait for
/// an answer, so the thread does the device's work for a moment.
// SAFETY: the function deliberately has the name of the C library's function that it replaces.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn pthread_spin_unlock(lock: *mut libc::pthread_spinlock_t) -> c_int {
    let next = next!(pthread_spin_unlock(*mut libc::pthread_spinlock_t) -> c_int);
    // SAFETY: the caller keeps the contract of the replaced function, with the same arguments.
    let result = unsafe { next(lock) };
    let left = SPIN_LOCKS.try_with(|count| {
        count.set(count.get().saturating_sub(1));
        count.get()
    });
    if left == Ok(0) {
        schedule::look(lock.addr());
    }
    result
}
