//! For tests of programs: has a call fail that would not, and tells what the device still holds.
//!
//! Exported by name, since a test is the very program that this library stands before. Who does not call this notices
//! nothing of it.
#![allow(unsafe_code)]

use crate::errno::Errno;
use crate::shared;
use mlx5_softdev::Device;
use std::ffi::c_int;
use std::sync::atomic::{AtomicI32, AtomicU8, AtomicU32, AtomicU64, Ordering};

/// How a call fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Failure {
    /// What the kernel says.
    pub(crate) errno: Errno,
    /// What the device says, where a command goes to it; 0 for nothing.
    pub(crate) status: u8,
}

/// Which method a call is of: object and method, or a command of the older interface, or opening the device's file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CallId(u64);

impl CallId {
    /// Opening the device's file.
    pub(crate) const OPEN: Self = Self(u64::MAX);
    const NONE: Self = Self(u64::MAX - 1);

    /// A method, and the number of the command that it carries, if it carries one.
    pub(crate) fn new(object: u16, method: u16, command: u64) -> Self {
        Self(u64::from(object) << 48 | u64::from(method) << 32 | command & 0xffff_ffff)
    }
}

/// Calls until one fails; 0 for none.
static LEFT: AtomicU32 = AtomicU32::new(0);
/// The method that fails since then.
static BROKEN: AtomicU64 = AtomicU64::new(CallId::NONE.0);
static ERRNO: AtomicI32 = AtomicI32::new(0);
static STATUS: AtomicU8 = AtomicU8::new(0);

/// Objects that could not be destroyed when the program asked for it.
static REFUSED: AtomicU64 = AtomicU64::new(0);

/// Destroyings until one is refused; 0 for none.
static KEPT: AtomicU32 = AtomicU32::new(0);

/// Counts a destroying. Returns whether it is to be refused.
pub(crate) fn keeps_next() -> bool {
    counts_down(&KEPT)
}

/// Counts one less. Returns whether this was the last.
fn counts_down(left: &AtomicU32) -> bool {
    left.fetch_update(Ordering::AcqRel, Ordering::Acquire, |left| left.checked_sub(1)) == Ok(1)
}

/// Has the `nth` destroying from now be refused, counted from 1, with EBUSY. 0 takes it back.
// SAFETY: nothing else has this name.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn mlx5_uverbs_keep(nth: u32) {
    KEPT.store(nth, Ordering::Release);
}

/// Counts a call that makes, changes or asks something. Returns how it fails if it does.
pub(crate) fn next_call(id: CallId) -> Option<Failure> {
    if counts_down(&LEFT) {
        BROKEN.store(id.0, Ordering::Release);
    }
    (BROKEN.load(Ordering::Acquire) == id.0).then(|| Failure {
        errno: Errno(ERRNO.load(Ordering::Acquire)),
        status: STATUS.load(Ordering::Acquire),
    })
}

/// Notes that an object could not be destroyed.
pub(crate) fn refused() {
    REFUSED.fetch_add(1, Ordering::AcqRel);
}

/// Has the `nth` call from now fail, counted from 1, with `errno`; or with `status`, if that is not 0 and the call is a
/// command to the device; and all of the same method behind it, since libraries try again. Opening the device's file
/// counts, destroying does not. 0 takes it back.
// SAFETY: nothing else has this name.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn mlx5_uverbs_fail(nth: u32, errno: c_int, status: u8) {
    ERRNO.store(errno, Ordering::Release);
    STATUS.store(status, Ordering::Release);
    BROKEN.store(CallId::NONE.0, Ordering::Release);
    LEFT.store(nth, Ordering::Release);
}

/// Returns how many calls are left until one fails: 0 when it has.
// SAFETY: nothing else has this name.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn mlx5_uverbs_left() -> u32 {
    LEFT.load(Ordering::Acquire)
}

/// Makes all crypto logins invalid, as when a crypto officer deletes their credential.
// SAFETY: nothing else has this name.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn mlx5_uverbs_revoke() {
    shared::as_device(shared::revoke);
}

/// Has the device give numbers of queue pairs and mkeys that are gone out again at once.
// SAFETY: nothing else has this name.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn mlx5_uverbs_reuse_numbers() {
    shared::as_device(|| shared::with_device(Device::reuse_numbers));
}

/// Has a completion queue overrun with its next entry.
// SAFETY: nothing else has this name.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn mlx5_uverbs_overrun(number: u32) {
    shared::as_device(|| shared::with_device(|device| device.fill(number)));
}

/// Returns how much there is in this process: 0 contexts, 1 objects, 2 channels, 3 destroyings refused so far.
// SAFETY: nothing else has this name.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn mlx5_uverbs_count(what: u32) -> u64 {
    match what {
        0..=2 => shared::as_device(|| shared::counts().get(what as usize).copied().unwrap_or(0)),
        3 => REFUSED.load(Ordering::Acquire),
        _ => 0,
    }
}
