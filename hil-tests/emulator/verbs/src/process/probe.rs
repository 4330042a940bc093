//! Functions for tests of programs: they make calls fail on purpose, and report the objects that the device
//! still holds.
//!
//! The functions are exported by name, since a test is itself a program that preloads this library. Programs
//! that do not call them are unaffected.
#![allow(unsafe_code)]

use crate::ground::errno::Errno;
use crate::ground::fault::{self, Place, Plan};
use crate::ground::owner;
use crate::process::{calls, schedule};
use crate::state::Counts;
use mlx5_softdev::{Device, Faults};
use std::ffi::{CStr, c_char, c_int};

/// Makes the `nth` destruction of an object from now on fail with EBUSY. The count begins at 1. The number 0
/// cancels an earlier call.
// SAFETY: no other symbol has this name.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn mlx5_uverbs_keep(nth: u32) {
    fault::set_one(Place::End, nth, Errno::BUSY, 0);
}

/// Makes the `nth` call from now on fail. The count begins at 1. The call fails with `errno`. If `status` is
/// not 0 and the call is a command to the device, the command's reply has this status instead. All later
/// calls of the same method fail too, since libraries try again. Opening the device's file counts as a call.
/// Destroying an object does not count. The number 0 cancels an earlier call of this function. The function
/// replaces any other plan of faults.
// SAFETY: no other symbol has this name.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn mlx5_uverbs_fail(nth: u32, errno: c_int, status: u8) {
    fault::set_one(Place::Call, nth, Errno(errno), status);
}

/// Returns the number of calls until the planned failure, or 0 after the failure.
// SAFETY: no other symbol has this name.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn mlx5_uverbs_left() -> u32 {
    u32::try_from(fault::left(Place::Call)).unwrap_or(u32::MAX)
}

/// Makes all crypto logins invalid, as when a crypto officer deletes their credential.
// SAFETY: no other symbol has this name.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn mlx5_uverbs_revoke() {
    owner::as_device(calls::revoke);
}

/// Makes the device reuse the numbers of destroyed objects at once.
// SAFETY: no other symbol has this name.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn mlx5_uverbs_reuse_numbers() {
    owner::as_device(|| calls::with_devices(Device::reuse_numbers));
}

/// Makes the completion queue `number` overrun with its next entry.
// SAFETY: no other symbol has this name.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn mlx5_uverbs_overrun(number: u32) {
    owner::as_device(|| calls::with_devices(|device| device.fill(number)));
}

/// Plants the named fault in the device (`mlx5_softdev::Faults`). Returns 0, or -1 for an unknown name.
///
/// # Safety
/// The caller ensures that `name` is a C string.
// SAFETY: no other symbol has this name.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn mlx5_uverbs_break(name: *const c_char) -> c_int {
    // SAFETY: the caller keeps this function's contract for the pointer.
    let name = unsafe { CStr::from_ptr(name) }.to_string_lossy();
    let Some(faults) = Faults::named(&name) else { return -1 };
    owner::as_device(|| calls::with_devices(|device| device.set_faults(faults)));
    0
}

/// Returns one of the counts of this process. `what` selects the count: 0 contexts, 1 objects, 2 channels, 3
/// refused destructions so far.
// SAFETY: no other symbol has this name.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn mlx5_uverbs_count(what: u32) -> u64 {
    let Counts { contexts, objects, channels, refused } = owner::as_device(calls::counts);
    [contexts, objects, channels, refused].get(what as usize).copied().unwrap_or(0)
}

/// Adds words to the plan of faults. The function carries out incidents of these words before it returns, if
/// the device is open. Returns 0, or -1 for invalid words, which change nothing.
///
/// # Safety
/// The caller ensures that `words` is a C string.
// SAFETY: no other symbol has this name.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn mlx5_uverbs_add_faults(words: *const c_char) -> c_int {
    // SAFETY: the caller keeps this function's contract for the pointer.
    let words = unsafe { CStr::from_ptr(words) }.to_string_lossy();
    match fault::add(&words) {
        Ok(()) => {
            owner::as_device(calls::happen);
            0
        }
        Err(_) => -1,
    }
}

/// Replaces the plan of faults. `words` has the syntax of `mlx5-emulate --faults`; an empty string ends all
/// faults. Returns 0, or -1 for invalid words.
///
/// # Safety
/// The caller ensures that `words` is a C string.
// SAFETY: no other symbol has this name.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn mlx5_uverbs_faults(words: *const c_char) -> c_int {
    // SAFETY: the caller keeps this function's contract for the pointer.
    let words = unsafe { CStr::from_ptr(words) }.to_string_lossy();
    match Plan::parse(&words) {
        Ok(plan) => {
            fault::set((!words.is_empty()).then_some(plan));
            owner::as_device(calls::happen);
            0
        }
        Err(_) => -1,
    }
}

/// Writes the trace of past faults as text that ends with a zero, and returns the whole text's length. Text
/// that does not fit is cut off.
///
/// # Safety
/// The caller ensures that `buffer` has `room` bytes.
// SAFETY: no other symbol has this name.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn mlx5_uverbs_trace(buffer: *mut u8, room: usize) -> usize {
    // SAFETY: the caller keeps this function's contract for the pointer.
    unsafe { write_out(&fault::trace(), buffer, room) }
}

/// Writes the last completions of the device as text that ends with a zero. Each line has one completion. A
/// completion with an error also has its cause. Returns the whole text's length. Text that does not fit is
/// cut off.
///
/// # Safety
/// The caller ensures that `buffer` has `room` bytes.
// SAFETY: no other symbol has this name.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn mlx5_uverbs_completions(buffer: *mut u8, room: usize) -> usize {
    let words = owner::as_device(|| {
        let mut words = String::new();
        calls::with_devices(|device| {
            words.extend(device.kept_completions().map(|written| format!("completion: {written}\n")));
        });
        words
    });
    // SAFETY: the caller keeps this function's contract for the pointer.
    unsafe { write_out(&words, buffer, room) }
}

/// Writes text that ends with a zero, cut off if it does not fit, and returns the whole text's length.
///
/// # Safety
/// The caller ensures that `buffer` has `room` bytes.
unsafe fn write_out(words: &str, buffer: *mut u8, room: usize) -> usize {
    if let Some(most) = room.checked_sub(1) {
        let length = words.len().min(most);
        // SAFETY: by contract, `buffer` has room for these bytes and a zero.
        unsafe {
            buffer.copy_from_nonoverlapping(words.as_ptr(), length);
            buffer.add(length).write(0);
        }
    }
    words.len()
}

/// Keeps all threads from doing the device's work, so that only [`mlx5_uverbs_work`] does it. With 0 for
/// `on`, the threads do the work again as usual.
// SAFETY: no other symbol has this name.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn mlx5_uverbs_by_hand(on: c_int) {
    schedule::set_by_hand(on != 0);
}

/// Does the device's work once. Returns whether there was any work.
// SAFETY: no other symbol has this name.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn mlx5_uverbs_work() -> c_int {
    c_int::from(owner::as_device(schedule::work_by_hand))
}
