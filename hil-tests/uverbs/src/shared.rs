//! The one state of this process, its lock, and what happens to it when the process forks.
#![allow(unsafe_code)]

use crate::errno::Errno;
use crate::settings::Settings;
use crate::state::State;
use crate::{sys, worker};
use std::cell::{Cell, UnsafeCell};
use std::collections::BTreeSet;
use std::os::fd::{AsRawFd, RawFd};
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, Once, PoisonError};
use std::time::{Duration, Instant};

/// File descriptors from here on are not given out as devices.
const DESCRIPTORS: usize = 1 << 16;

/// How long the end of the process waits for peers to take what is theirs.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// What the lock protects.
#[derive(Debug, Default)]
struct Inside {
    state: Option<State>,
    /// Descriptors of contexts that a parent had open at its fork. Their device is not in this process.
    orphans: BTreeSet<RawFd>,
}

static INSIDE: Mutex<Inside> = Mutex::new(Inside { state: None, orphans: BTreeSet::new() });

/// Calls that wait for the lock; the worker steps back for them.
static WAITING: AtomicUsize = AtomicUsize::new(0);

/// Descriptors that are contexts or channels, one bit each, for a quick answer without the lock.
static OURS: [AtomicU64; DESCRIPTORS / 64] = [const { AtomicU64::new(0) }; DESCRIPTORS / 64];

/// Descriptors that this library keeps for itself, one bit each. A program that closes all that it does not know, as
/// daemons do, must not close these: other files would get their numbers, and the device would write into them.
static KEPT: [AtomicU64; DESCRIPTORS / 64] = [const { AtomicU64::new(0) }; DESCRIPTORS / 64];

thread_local! {
    /// This thread is inside the device, whose own closing is real.
    static INSIDE_DEVICE: Cell<bool> = const { Cell::new(false) };
}

/// The process that the state belongs to.
static OWNER: AtomicI32 = AtomicI32::new(0);

static PREPARED: Once = Once::new();

/// Whether a worker was started in this process.
static WORKING: AtomicBool = AtomicBool::new(false);

fn bit(descriptor: RawFd) -> Option<(&'static AtomicU64, u64)> {
    let number = usize::try_from(descriptor).ok()?;
    Some((OURS.get(number / 64)?, 1 << (number % 64)))
}

fn kept_bit(descriptor: RawFd) -> Option<(&'static AtomicU64, u64)> {
    let number = usize::try_from(descriptor).ok()?;
    Some((KEPT.get(number / 64)?, 1 << (number % 64)))
}

/// Keeps a descriptor from being closed by the program.
pub(crate) fn keep(descriptor: &impl AsRawFd) {
    if let Some((word, bit)) = kept_bit(descriptor.as_raw_fd()) {
        word.fetch_or(bit, Ordering::Release);
    }
}

/// Whether the program may close a descriptor. This library may close its own.
pub(crate) fn may_close(descriptor: RawFd) -> bool {
    let Some((word, bit)) = kept_bit(descriptor) else { return true };
    if word.load(Ordering::Acquire) & bit == 0 {
        return true;
    }
    let own = INSIDE_DEVICE.try_with(Cell::get).unwrap_or(true);
    if own && !is_borrowed() {
        word.fetch_and(!bit, Ordering::Release);
    }
    own
}

/// Runs `body` as the device: what it closes is closed.
pub(crate) fn as_device<T>(body: impl FnOnce() -> T) -> T {
    let before = INSIDE_DEVICE.try_with(|inside| inside.replace(true)).unwrap_or(true);
    let result = body();
    let _ = INSIDE_DEVICE.try_with(|inside| inside.set(before));
    result
}

fn mark(descriptor: RawFd) {
    if let Some((word, bit)) = bit(descriptor) {
        word.fetch_or(bit, Ordering::Release);
    }
}

fn unmark(descriptor: RawFd) {
    if let Some((word, bit)) = bit(descriptor) {
        word.fetch_and(!bit, Ordering::Release);
    }
}

/// Whether a descriptor is a context or a channel.
pub(crate) fn is_ours(descriptor: RawFd) -> bool {
    bit(descriptor).is_some_and(|(word, bit)| word.load(Ordering::Acquire) & bit != 0)
}

/// Whether a descriptor is so high that it cannot be remembered.
pub(crate) fn is_too_high(descriptor: RawFd) -> bool {
    bit(descriptor).is_none()
}

/// Whether this is not the process that the state belongs to: a child that shares its parent's memory until it executes
/// another program (vfork). It must not touch anything.
pub(crate) fn is_borrowed() -> bool {
    let owner = OWNER.load(Ordering::Acquire);
    owner != 0 && owner != sys::pid()
}

fn lock() -> MutexGuard<'static, Inside> {
    WAITING.fetch_add(1, Ordering::AcqRel);
    let guard = INSIDE.lock().unwrap_or_else(PoisonError::into_inner);
    WAITING.fetch_sub(1, Ordering::AcqRel);
    guard
}

/// A program has opened the device.
///
/// # Errors
/// As [`State::new`].
pub(crate) fn open(descriptor: RawFd) -> Result<(), Errno> {
    prepare();
    {
        let mut inside = lock();
        inside.orphans.remove(&descriptor);
        if inside.state.is_none() {
            inside.state = Some(State::new(&Settings::from_environment())?);
        }
        if let Some(state) = inside.state.as_mut() {
            state.open(descriptor);
        }
        mark(descriptor);
        if !WORKING.swap(true, Ordering::AcqRel) && !worker::start() {
            WORKING.store(false, Ordering::Release);
            return Err(Errno::NOMEM);
        }
        // Under the lock, so that no fork comes between.
        worker::wake();
    }
    Ok(())
}

/// A program is about to close a descriptor that [`is_ours`].
pub(crate) fn close(descriptor: RawFd) {
    let mut inside = lock();
    unmark(descriptor);
    inside.orphans.remove(&descriptor);
    if let Some(state) = inside.state.as_mut() {
        state.close(descriptor);
    }
}

/// A program calls the device.
///
/// # Errors
/// The call's own; [`Errno::IO`] for a device that a parent process has.
pub(crate) fn ioctl(descriptor: RawFd, address: u64) -> Result<(), Errno> {
    let outcome = {
        let mut inside = lock();
        if inside.orphans.contains(&descriptor) {
            return Err(Errno::IO);
        }
        let state = inside.state.as_mut().ok_or(Errno::IO)?;
        if !state.contexts.contains_key(&descriptor) {
            return Err(Errno(libc::ENOTTY));
        }
        let outcome = crate::command::dispatch(state, descriptor, address);
        if let Some(made) = outcome.as_ref().ok().copied().flatten() {
            mark(made);
        }
        worker::wake();
        outcome
    };
    outcome.map(drop)
}

/// Does what there is to do, for the worker, and looks for peers if `peers`. Returns whether there was anything, whether a doorbell could come, and what
/// else to wait on.
pub(crate) fn work(peers: bool) -> (bool, bool, Vec<RawFd>) {
    while WAITING.load(Ordering::Acquire) > 0 {
        sys::yield_now();
    }
    let mut inside = INSIDE.lock().unwrap_or_else(PoisonError::into_inner);
    match inside.state.as_mut() {
        Some(state) => {
            let moved = state.work(peers);
            (moved, !state.is_quiet(), state.descriptors())
        }
        None => (false, false, Vec::new()),
    }
}

/// Makes this process ready to fork and to end.
fn prepare() {
    PREPARED.call_once(|| {
        OWNER.store(sys::pid(), Ordering::Release);
        // SAFETY: all four are functions without arguments that stay loaded: a preloaded library is never unloaded.
        unsafe {
            libc::pthread_atfork(Some(before_fork), Some(after_fork_in_parent), Some(after_fork_in_child));
            libc::atexit(at_exit);
        }
    });
}

/// The lock, held over a fork by the thread that forks.
struct HeldOverFork(UnsafeCell<Option<MutexGuard<'static, Inside>>>);

// SAFETY: the cell is only touched by the thread that forks, between taking the lock and giving it back; two threads
// cannot be there at once, since both would hold the lock.
unsafe impl Sync for HeldOverFork {}

static HELD: HeldOverFork = HeldOverFork(UnsafeCell::new(None));

extern "C" fn before_fork() {
    let guard = lock();
    // SAFETY: this thread has the lock, so nobody else is at the cell.
    unsafe { *HELD.0.get() = Some(guard) };
}

extern "C" fn after_fork_in_parent() {
    // SAFETY: as in `before_fork`, which this thread has been through.
    drop(unsafe { (*HELD.0.get()).take() });
}

extern "C" fn after_fork_in_child() {
    // SAFETY: as in `before_fork`; the child has this one thread.
    let guard = unsafe { (*HELD.0.get()).take() };
    OWNER.store(sys::pid(), Ordering::Release);
    WORKING.store(false, Ordering::Release);
    WAITING.store(0, Ordering::Release);
    worker::forget();
    if let Some(mut inside) = guard
        && let Some(state) = inside.state.take()
    {
        inside.orphans.extend(state.contexts.keys());
        // Closes this process's copies of lock and sockets. The parent keeps its own.
        as_device(|| drop(state));
    }
}

extern "C" fn at_exit() {
    if is_borrowed() {
        return;
    }
    let _ = std::panic::catch_unwind(|| {
        let deadline = Instant::now() + LAST_WORDS;
        // The worker gives the lock back soon; a thread that ends the process in the middle of a call never does.
        while Instant::now() < deadline {
            if let Ok(mut inside) = INSIDE.try_lock() {
                if let Some(state) = inside.state.as_mut() {
                    as_device(|| state.finish(deadline));
                }
                return;
            }
            sys::yield_now();
        }
    });
}
