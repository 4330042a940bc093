//! For tests of programs: has a call fail that would not, and tells what the device still holds.
//!
//! Exported by name, since a test is the very program that this library stands before. Who does not call this
//! notices nothing of it.
#![allow(unsafe_code)]

use crate::ground::errno::Errno;
use crate::ground::fault::{self, Place, Plan};
use crate::ground::owner;
use crate::process::{calls, schedule};
use crate::state::Counts;
use mlx5_softdev::Device;
use std::ffi::{CStr, c_char, c_int};

/// Has the `nth` destroying from now be refused, counted from 1, with EBUSY. 0 takes it back.
// SAFETY: nothing else has this name.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn mlx5_uverbs_keep(nth: u32) {
    fault::set_one(Place::End, nth, Errno::BUSY, 0);
}

/// Has the `nth` call from now fail, counted from 1, with `errno`; or with `status`, if that is not 0 and the
/// call is a command to the device; and all of the same method behind it, since libraries try again. Opening
/// the device's file counts, destroying does not. 0 takes it back. It replaces any other plan.
// SAFETY: nothing else has this name.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn mlx5_uverbs_fail(nth: u32, errno: c_int, status: u8) {
    fault::set_one(Place::Call, nth, Errno(errno), status);
}

/// Returns how many calls are left until one fails: 0 when it has.
// SAFETY: nothing else has this name.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn mlx5_uverbs_left() -> u32 {
    u32::try_from(fault::left(Place::Call)).unwrap_or(u32::MAX)
}

/// Makes all crypto logins invalid, as when a crypto officer deletes their credential.
// SAFETY: nothing else has this name.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn mlx5_uverbs_revoke() {
    owner::as_device(calls::revoke);
}

/// Has the device give numbers of objects that are gone out again at once.
// SAFETY: nothing else has this name.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn mlx5_uverbs_reuse_numbers() {
    owner::as_device(|| calls::with_device(Device::reuse_numbers));
}

/// Has a completion queue overrun with its next entry.
// SAFETY: nothing else has this name.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn mlx5_uverbs_overrun(number: u32) {
    owner::as_device(|| calls::with_device(|device| device.fill(number)));
}

/// Returns how much there is in this process: 0 contexts, 1 objects, 2 channels, 3 destroyings refused so
/// far.
// SAFETY: nothing else has this name.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn mlx5_uverbs_count(what: u32) -> u64 {
    let Counts { contexts, objects, channels, refused } = owner::as_device(calls::counts);
    [contexts, objects, channels, refused].get(what as usize).copied().unwrap_or(0)
}

/// Has the faults of a plan come from now on, in the words of `mlx5-emulate --faults`; none for an empty one.
/// Returns 0, or -1 for words that make no sense.
///
/// # Safety
/// `words` is a C string.
// SAFETY: nothing else has this name.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn mlx5_uverbs_faults(words: *const c_char) -> c_int {
    // SAFETY: by contract.
    let words = unsafe { CStr::from_ptr(words) }.to_string_lossy();
    match Plan::parse(&words) {
        Ok(plan) => {
            fault::set((!words.is_empty()).then_some(plan));
            0
        }
        Err(_) => -1,
    }
}

/// Writes the faults that have come, as words with a zero behind, and returns how long all of them are. What
/// has no room is left out.
///
/// # Safety
/// `buffer` has `room` bytes.
// SAFETY: nothing else has this name.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn mlx5_uverbs_trace(buffer: *mut u8, room: usize) -> usize {
    // SAFETY: by contract.
    unsafe { write_out(&fault::trace(), buffer, room) }
}

/// Writes the last completions of the device, a line for each, those of errors with their cause, with a zero
/// behind, and returns how long all of them are. What has no room is left out.
///
/// # Safety
/// `buffer` has `room` bytes.
// SAFETY: nothing else has this name.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn mlx5_uverbs_completions(buffer: *mut u8, room: usize) -> usize {
    let words = owner::as_device(|| {
        let mut words = String::new();
        calls::with_device(|device| {
            words = device.kept_completions().map(|written| format!("{written}\n")).collect();
        });
        words
    });
    // SAFETY: by contract.
    unsafe { write_out(&words, buffer, room) }
}

/// Writes words with a zero behind, as far as there is room, and returns how long all of them are.
///
/// # Safety
/// `buffer` has `room` bytes.
unsafe fn write_out(words: &str, buffer: *mut u8, room: usize) -> usize {
    if let Some(most) = room.checked_sub(1) {
        let length = words.len().min(most);
        // SAFETY: by contract there is room for this and a zero.
        unsafe {
            buffer.copy_from_nonoverlapping(words.as_ptr(), length);
            buffer.add(length).write(0);
        }
    }
    words.len()
}

/// Has the device do nothing by itself from now on, or as always where `on` is 0: [`mlx5_uverbs_work`] moves
/// it.
// SAFETY: nothing else has this name.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn mlx5_uverbs_by_hand(on: c_int) {
    schedule::set_by_hand(on != 0);
}

/// Has the device do what there is to do. Returns whether there was anything.
// SAFETY: nothing else has this name.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn mlx5_uverbs_work() -> c_int {
    c_int::from(owner::as_device(schedule::work_by_hand))
}
