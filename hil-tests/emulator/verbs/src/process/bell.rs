//! The bell that wakes the worker: a pair of sockets. A byte written to one end ends the worker's sleep.

use crate::ground::{descriptors, owner};
use std::io::Write;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

/// The end of the pair of sockets to which [`ring`] writes.
static BELL: Mutex<Option<UnixStream>> = Mutex::new(None);

/// Whether a worker was started in this process.
static HEARD: AtomicBool = AtomicBool::new(false);

/// Returns whether a worker was started in this process.
pub(super) fn is_heard() -> bool {
    HEARD.load(Ordering::Acquire)
}

/// Makes the bell (a pair of sockets), and calls `start` with the end that the worker reads, to start the
/// worker. Does nothing if this process has a worker. Returns whether it now has a worker.
pub(super) fn hang(start: impl FnOnce(UnixStream) -> bool) -> bool {
    if HEARD.swap(true, Ordering::AcqRel) {
        return true;
    }
    let started = hang_new(start).is_some();
    HEARD.store(started, Ordering::Release);
    started
}

fn hang_new(start: impl FnOnce(UnixStream) -> bool) -> Option<()> {
    let (ours, its) = UnixStream::pair().ok()?;
    ours.set_nonblocking(true).ok()?;
    its.set_nonblocking(true).ok()?;
    descriptors::keep(&ours);
    descriptors::keep(&its);
    let mut bell = BELL.lock().unwrap_or_else(PoisonError::into_inner);
    let started = start(its);
    *bell = Some(ours);
    started.then_some(())
}

/// Wakes the worker.
pub(super) fn ring() {
    if let Some(bell) = BELL.lock().unwrap_or_else(PoisonError::into_inner).as_mut() {
        // A full socket has already woken the worker.
        let _ = bell.write(&[1]);
    }
}

/// Forgets the parent's worker after a fork. The child has no worker.
pub(super) fn forget() {
    HEARD.store(false, Ordering::Release);
    // Another thread may have held this lock at the fork. The bell is then abandoned, with its two
    // descriptors.
    if let Ok(mut bell) = BELL.try_lock() {
        owner::as_device(|| *bell = None);
    }
}
