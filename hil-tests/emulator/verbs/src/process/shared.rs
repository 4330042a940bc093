//! The one state of this process, its lock, and what happens to it when the process forks.
#![allow(unsafe_code)]

use crate::ground::errno::Errno;
use crate::ground::fault::{self, CallId, Course};
use crate::ground::process_memory::ProcessMemory;
use crate::ground::settings::Settings;
use crate::ground::{allocator, descriptors, notice, sys};
use crate::process::{schedule, worker};
use crate::state::State;
use mlx5_softdev::Device;
use std::cell::{Cell, UnsafeCell};
use std::collections::BTreeSet;
use std::os::fd::RawFd;
use std::panic::catch_unwind;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, Once, PoisonError, TryLockError};
use std::time::{Duration, Instant};

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

thread_local! {
    /// This thread is inside the device, whose own closing is real.
    static INSIDE_DEVICE: Cell<bool> = const { Cell::new(false) };
}

/// The process that the state belongs to.
static OWNER: AtomicI32 = AtomicI32::new(0);

static PREPARED: Once = Once::new();

/// Whether a worker was started in this process.
static WORKING: AtomicBool = AtomicBool::new(false);

/// Whether this thread is inside the device: what it opens and closes there is the device's own, and the lock may be taken.
pub(crate) fn is_inside() -> bool {
    INSIDE_DEVICE.try_with(Cell::get).unwrap_or(true)
}

/// Runs `body` as the device: what it closes is closed.
pub(crate) fn as_device<T>(body: impl FnOnce() -> T) -> T {
    let before = INSIDE_DEVICE.try_with(|inside| inside.replace(true)).unwrap_or(true);
    let result = body();
    let _ = INSIDE_DEVICE.try_with(|inside| inside.set(before));
    result
}

/// Returns the number of the process that the state belongs to.
pub(crate) fn owner() -> i32 {
    match OWNER.load(Ordering::Acquire) {
        0 => sys::pid(),
        owner => owner,
    }
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

/// Another thread has the lock, or waits for it.
#[derive(Debug)]
pub(crate) struct Taken;

/// Runs `body` with the state under the lock, behind all calls that wait for it. `None` where there is no state.
pub(crate) fn in_turn<T>(body: impl FnOnce(&mut State) -> T) -> Option<T> {
    while WAITING.load(Ordering::Acquire) > 0 {
        sys::yield_now();
    }
    INSIDE.lock().unwrap_or_else(PoisonError::into_inner).state.as_mut().map(body)
}

/// Runs `body` with the state under the lock, if that is free. `None` where there is no state.
///
/// # Errors
/// [`Taken`].
pub(crate) fn if_free<T>(body: impl FnOnce(&mut State) -> T) -> Result<Option<T>, Taken> {
    if WAITING.load(Ordering::Acquire) > 0 {
        return Err(Taken);
    }
    match INSIDE.try_lock() {
        Ok(mut inside) => Ok(inside.state.as_mut().map(body)),
        Err(TryLockError::Poisoned(poisoned)) => Ok(poisoned.into_inner().state.as_mut().map(body)),
        Err(TryLockError::WouldBlock) => Err(Taken),
    }
}

/// Whether there is a worker.
pub(crate) fn is_working() -> bool {
    WORKING.load(Ordering::Acquire)
}

/// A program has opened the device.
///
/// # Errors
/// As [`State::new`]; [`Errno::INVAL`] for an environment that makes no sense, after a line to standard error.
pub(crate) fn open(descriptor: RawFd) -> Result<(), Errno> {
    prepare();
    match fault::call(CallId::OPEN) {
        Course::Good => {}
        Course::Fails(errno, _) => return Err(errno),
        Course::Unheard => return Err(Errno::TIMEDOUT),
    }
    {
        let mut inside = lock();
        inside.orphans.remove(&descriptor);
        if inside.state.is_none() {
            let settings = Settings::from_environment().map_err(|what| {
                // Without it nobody would know what the kernel's word means.
                notice::once(&what);
                Errno::INVAL
            })?;
            inside.state = Some(State::new(&settings)?);
            if let Some(plan) = settings.faults {
                fault::set_for_good(plan);
            }
        }
        if let Some(state) = inside.state.as_mut() {
            state.open(descriptor);
        }
        descriptors::give(descriptor);
        if !WORKING.swap(true, Ordering::AcqRel) && !worker::start() {
            WORKING.store(false, Ordering::Release);
            return Err(Errno::NOMEM);
        }
        // Under the lock, so that no fork comes between.
        worker::wake();
    }
    Ok(())
}

/// Makes all crypto logins invalid.
pub(crate) fn revoke() {
    if let Some(state) = lock().state.as_mut()
        && let Some(factory) = state.factory
    {
        state.device.revoke(factory.credential);
    }
}

/// Changes the device, if there is one.
pub(crate) fn with_device(change: impl FnOnce(&mut Device<ProcessMemory>)) {
    if let Some(state) = lock().state.as_mut() {
        change(&mut state.device);
    }
}

/// Returns how many contexts, objects and channels there are.
pub(crate) fn counts() -> [u64; 3] {
    lock().state.as_ref().map_or([0; 3], State::counts)
}

/// A program is about to close a descriptor that [`descriptors::is_ours`].
pub(crate) fn close(descriptor: RawFd) {
    let mut inside = lock();
    descriptors::take_back(descriptor);
    inside.orphans.remove(&descriptor);
    if let Some(state) = inside.state.as_mut() {
        state.close(descriptor);
    }
}

/// A program has made `new` of `old`, one of which [`descriptors::is_ours`]; what `new` was before is closed.
pub(crate) fn duplicate(old: RawFd, new: RawFd) {
    let mut inside = lock();
    if descriptors::is_ours(old) {
        descriptors::give(new);
    } else {
        descriptors::take_back(new);
    }
    inside.orphans.remove(&new);
    if inside.orphans.contains(&old) {
        inside.orphans.insert(new);
    }
    if let Some(state) = inside.state.as_mut() {
        state.duplicate(old, new);
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
        let context = state.context_of(descriptor).ok_or(Errno(libc::ENOTTY))?;
        schedule::work_before_call(state);
        let outcome = crate::command::dispatch(state, context, address);
        if let Some(made) = outcome.as_ref().ok().copied().flatten() {
            descriptors::give(made);
        }
        // Calls about anything but queues leave the worker nothing to do: programs make mkeys by the ten thousand.
        if state.has_changed() || schedule::was_missed() {
            worker::wake();
        }
        outcome
    };
    fault::pause();
    outcome.map(drop)
}

/// Returns the file of the clock, and from where on in it a program maps that maps `offset` of a device; `None` for what is not the clock.
///
/// # Errors
/// [`Errno::IO`] for a device that a parent process has.
#[cfg(not(feature = "fuzz"))]
pub(crate) fn clock_page(descriptor: RawFd, offset: i64) -> Result<Option<(RawFd, i64)>, Errno> {
    let inside = lock();
    if inside.orphans.contains(&descriptor) {
        return Err(Errno::IO);
    }
    Ok(inside.state.as_ref().and_then(|state| state.clock_page(offset)))
}

/// Makes this process ready to fork and to end.
pub(crate) fn prepare() {
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
    allocator::hold();
}

extern "C" fn after_fork_in_parent() {
    allocator::release();
    // SAFETY: as in `before_fork`, which this thread has been through.
    drop(unsafe { (*HELD.0.get()).take() });
}

extern "C" fn after_fork_in_child() {
    allocator::release();
    // SAFETY: as in `before_fork`; the child has this one thread.
    let guard = unsafe { (*HELD.0.get()).take() };
    OWNER.store(sys::pid(), Ordering::Release);
    WORKING.store(false, Ordering::Release);
    WAITING.store(0, Ordering::Release);
    schedule::forget();
    worker::forget();
    if let Some(mut inside) = guard
        && let Some(state) = inside.state.take()
    {
        inside.orphans.extend(state.context_descriptors());
        // Closes this process's copies of lock and sockets. The parent keeps its own.
        as_device(|| drop(state));
    }
}

extern "C" fn at_exit() {
    if is_borrowed() {
        return;
    }
    let _ = catch_unwind(|| {
        let deadline = Instant::now() + LAST_WORDS;
        // The worker gives the lock back soon; a thread that ends the process in the middle of a call never does.
        while Instant::now() < deadline {
            let inside = match INSIDE.try_lock() {
                Ok(inside) => Some(inside),
                Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
                Err(TryLockError::WouldBlock) => None,
            };
            if let Some(mut inside) = inside {
                if let Some(state) = inside.state.as_mut() {
                    as_device(|| state.finish(deadline));
                    if fault::is_told() {
                        let [contexts, objects, channels] = state.counts();
                        let left = format!("{contexts} contexts, {objects} objects, {channels} channels");
                        notice::always(&format!("left at the end: {left}"));
                    }
                }
                return;
            }
            sys::yield_now();
        }
    });
}
