//! The devices of this process, behind one lock.

use crate::state::devices::Devices;
use std::collections::BTreeSet;
use std::os::fd::RawFd;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};

/// The data that the lock protects.
#[derive(Debug, Default)]
pub(super) struct Inside {
    pub(super) devices: Devices,
    /// Descriptors of contexts that the parent had open at its fork. Their devices belong to the parent.
    pub(super) orphans: BTreeSet<RawFd>,
}

static INSIDE: Mutex<Inside> = Mutex::new(Inside { devices: Devices::new(), orphans: BTreeSet::new() });

/// The number of calls that wait for the lock. The worker lets these calls go first.
static WAITING: AtomicUsize = AtomicUsize::new(0);

/// The error of [`if_free`]: another thread holds the lock or waits for it.
#[derive(Debug)]
pub(super) struct Taken;

/// Takes the lock, for a call of the program.
pub(super) fn lock() -> MutexGuard<'static, Inside> {
    WAITING.fetch_add(1, Ordering::AcqRel);
    let guard = INSIDE.lock().unwrap_or_else(PoisonError::into_inner);
    WAITING.fetch_sub(1, Ordering::AcqRel);
    guard
}

/// Takes the lock if no thread holds it.
pub(super) fn try_lock() -> Option<MutexGuard<'static, Inside>> {
    match INSIDE.try_lock() {
        Ok(inside) => Some(inside),
        Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
        Err(TryLockError::WouldBlock) => None,
    }
}

/// Runs `body` with the devices under the lock, after all calls that wait for the lock.
pub(super) fn in_turn<T>(body: impl FnOnce(&mut Devices) -> T) -> T {
    while WAITING.load(Ordering::Acquire) > 0 {
        std::thread::yield_now();
    }
    body(&mut INSIDE.lock().unwrap_or_else(PoisonError::into_inner).devices)
}

/// Runs `body` with the devices under the lock, if the lock is free.
///
/// # Errors
/// [`Taken`] if another thread holds the lock or waits for it.
pub(super) fn if_free<T>(body: impl FnOnce(&mut Devices) -> T) -> Result<T, Taken> {
    if WAITING.load(Ordering::Acquire) > 0 {
        return Err(Taken);
    }
    try_lock().map(|mut inside| body(&mut inside.devices)).ok_or(Taken)
}

/// Forgets the waiting calls of the parent process after a fork.
pub(super) fn forget() {
    WAITING.store(0, Ordering::Release);
}
