//! Tells whether a thread runs code of the program or of the device, and which process owns the state (the
//! devices and their objects).

use crate::ground::sys;
use std::cell::Cell;
use std::sync::atomic::{AtomicI32, Ordering};

thread_local! {
    /// Whether this thread runs code of the device. For this code, `close` also closes descriptors that this
    /// library keeps for itself.
    static INSIDE_DEVICE: Cell<bool> = const { Cell::new(false) };
}

/// The number of the process that owns the state, or 0 before there is a state.
static OWNER: AtomicI32 = AtomicI32::new(0);

/// Returns whether this thread runs code of the device. The files that this code opens and closes are the
/// device's own.
pub(crate) fn is_inside() -> bool {
    INSIDE_DEVICE.try_with(Cell::get).unwrap_or(true)
}

/// Runs `body` as code of the device, so that files which `body` closes are really closed.
pub(crate) fn as_device<T>(body: impl FnOnce() -> T) -> T {
    let before = INSIDE_DEVICE.try_with(|inside| inside.replace(true)).unwrap_or(true);
    let result = body();
    let _ = INSIDE_DEVICE.try_with(|inside| inside.set(before));
    result
}

/// Makes this process the owner of the state.
pub(crate) fn take_over() {
    OWNER.store(sys::pid(), Ordering::Release);
}

/// Returns the number of the process that owns the state, or this process's number before there is a state.
pub(crate) fn owner() -> i32 {
    match OWNER.load(Ordering::Acquire) {
        0 => sys::pid(),
        owner => owner,
    }
}

/// Returns whether another process owns the state. This process is then a child that shares its parent's
/// memory until it executes another program (vfork), and it must not touch the state.
pub(crate) fn is_borrowed() -> bool {
    owner() != sys::pid()
}
