//! Whose call it is, the program's or the device's own, and whose process.

use crate::ground::sys;
use std::cell::Cell;
use std::sync::atomic::{AtomicI32, Ordering};

thread_local! {
    /// This thread is inside the device, whose own closing is real.
    static INSIDE_DEVICE: Cell<bool> = const { Cell::new(false) };
}

/// The process that the state belongs to; 0 before there is one.
static OWNER: AtomicI32 = AtomicI32::new(0);

/// Whether this thread is inside the device: files that it opens and closes there are the device's own.
pub(crate) fn is_inside() -> bool {
    INSIDE_DEVICE.try_with(Cell::get).unwrap_or(true)
}

/// Runs `body` as the device: a file that it closes is closed.
pub(crate) fn as_device<T>(body: impl FnOnce() -> T) -> T {
    let before = INSIDE_DEVICE.try_with(|inside| inside.replace(true)).unwrap_or(true);
    let result = body();
    let _ = INSIDE_DEVICE.try_with(|inside| inside.set(before));
    result
}

/// The state belongs to this process from now on.
pub(crate) fn take_over() {
    OWNER.store(sys::pid(), Ordering::Release);
}

/// Returns the number of the process that the state belongs to.
pub(crate) fn owner() -> i32 {
    match OWNER.load(Ordering::Acquire) {
        0 => sys::pid(),
        owner => owner,
    }
}

/// Whether the state belongs to another process: this one is a child that shares its parent's memory until it
/// executes another program (vfork). It must not touch anything.
pub(crate) fn is_borrowed() -> bool {
    owner() != sys::pid()
}
