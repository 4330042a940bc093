//! Handlers for a fork and for the end of the process, which keep the state consistent.
#![allow(unsafe_code)]

use crate::ground::{allocator, fault, notice, owner};
use crate::process::lock::{self, Inside};
use crate::process::{bell, schedule};
use crate::state::Counts;
use std::cell::UnsafeCell;
use std::panic::catch_unwind;
use std::sync::{MutexGuard, Once};
use std::time::{Duration, Instant};

/// The longest time for which the end of the process waits until peers have read its last messages.
const LAST_WORDS: Duration = Duration::from_secs(1);

static PREPARED: Once = Once::new();

/// Registers the handlers for a fork and for the end of this process.
pub(crate) fn prepare() {
    PREPARED.call_once(|| {
        owner::take_over();
        // SAFETY: all four are functions without arguments that stay loaded: a preloaded library is never
        // unloaded.
        unsafe {
            libc::pthread_atfork(Some(before_fork), Some(after_fork_in_parent), Some(after_fork_in_child));
            libc::atexit(at_exit);
        }
    });
}

/// The lock around the state, held over a fork by the thread that forks.
struct HeldOverFork(UnsafeCell<Option<MutexGuard<'static, Inside>>>);

// SAFETY: a thread touches the cell only while it holds the lock, which only one thread can hold at a time.
unsafe impl Sync for HeldOverFork {}

static HELD: HeldOverFork = HeldOverFork(UnsafeCell::new(None));

extern "C" fn before_fork() {
    let guard = lock::lock();
    // SAFETY: this thread has the lock, so no other thread uses the cell.
    unsafe { *HELD.0.get() = Some(guard) };
    allocator::hold();
}

extern "C" fn after_fork_in_parent() {
    allocator::release();
    // SAFETY: this thread has the lock since `before_fork`, so no other thread uses the cell.
    drop(unsafe { (*HELD.0.get()).take() });
}

extern "C" fn after_fork_in_child() {
    allocator::release();
    // SAFETY: the child has only this thread, so no other thread uses the cell.
    let guard = unsafe { (*HELD.0.get()).take() };
    owner::take_over();
    lock::forget();
    schedule::forget();
    bell::forget();
    if let Some(mut inside) = guard {
        let devices = std::mem::take(&mut inside.devices);
        inside.orphans.extend(devices.context_descriptors());
        // Dropping the devices closes this process's copies of locks and sockets. The parent keeps its own
        // copies.
        owner::as_device(|| drop(devices));
    }
}

extern "C" fn at_exit() {
    if owner::is_borrowed() {
        return;
    }
    let _ = catch_unwind(|| {
        let deadline = Instant::now() + LAST_WORDS;
        // If another thread holds the lock, such as the worker, it releases the lock soon. If this thread
        // ends the process in the middle of a call, the lock stays taken, and the loop ends at the deadline.
        while Instant::now() < deadline {
            if let Some(mut inside) = lock::try_lock() {
                if !inside.devices.is_empty() {
                    owner::as_device(|| inside.devices.finish(deadline));
                    if fault::is_told() {
                        let Counts { contexts, objects, channels, .. } = inside.devices.counts();
                        let left = format!("{contexts} contexts, {objects} objects, {channels} channels");
                        notice::always(&format!("left at the end: {left}"));
                    }
                }
                return;
            }
            std::thread::yield_now();
        }
    });
}
