//! The one state of this process, its lock, and what happens to it when the process forks.
#![allow(unsafe_code)]

use crate::errno::Errno;
use crate::probe::{self, CallId};
use crate::process::ProcessMemory;
use crate::settings::Settings;
use crate::state::State;
use crate::{sys, worker};
use mlx5_softdev::Device;
use std::cell::{Cell, UnsafeCell};
use std::collections::BTreeSet;
use std::ffi::{c_int, c_uint};
use std::io::Write as _;
use std::os::fd::{AsRawFd, RawFd};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, Once, PoisonError, TryLockError};
use std::time::{Duration, Instant};

/// File descriptors from here on are not given out as devices.
pub(crate) const DESCRIPTORS: usize = 1 << 16;

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

/// A set of descriptors, one bit each.
struct Bits([AtomicU64; DESCRIPTORS / 64]);

impl Bits {
    const fn new() -> Self {
        Self([const { AtomicU64::new(0) }; DESCRIPTORS / 64])
    }

    fn word(&self, descriptor: RawFd) -> Option<(&AtomicU64, u64)> {
        let number = usize::try_from(descriptor).ok()?;
        Some((self.0.get(number / 64)?, 1 << (number % 64)))
    }

    fn set(&self, descriptor: RawFd) {
        if let Some((word, bit)) = self.word(descriptor) {
            word.fetch_or(bit, Ordering::Release);
        }
    }

    fn clear(&self, descriptor: RawFd) {
        if let Some((word, bit)) = self.word(descriptor) {
            word.fetch_and(!bit, Ordering::Release);
        }
    }

    fn has(&self, descriptor: RawFd) -> bool {
        self.word(descriptor).is_some_and(|(word, bit)| word.load(Ordering::Acquire) & bit != 0)
    }
}

/// Descriptors that are contexts or channels, for a quick answer without the lock.
static OURS: Bits = Bits::new();

/// Descriptors that this library keeps for itself. A program that closes all that it does not know, as
/// daemons do, must not close these: other files would get their numbers, and the device would write into them.
static KEPT: Bits = Bits::new();

thread_local! {
    /// This thread is inside the device, whose own closing is real.
    static INSIDE_DEVICE: Cell<bool> = const { Cell::new(false) };
}

/// The process that the state belongs to.
static OWNER: AtomicI32 = AtomicI32::new(0);

static PREPARED: Once = Once::new();

/// Whether a worker was started in this process.
static WORKING: AtomicBool = AtomicBool::new(false);

/// A thread found the lock taken; whoever holds it is to look once more. Where that comes too late, the worker or the next thread
/// that posts or polls looks instead: no doorbell is lost, it waits as long as the worker sleeps.
static MISSED: AtomicBool = AtomicBool::new(false);

/// A thread of the program has looked since the worker last asked.
static LOOKED: AtomicBool = AtomicBool::new(false);

/// The program waits for events, not only by polling.
static WAITS_FOR_EVENTS: AtomicBool = AtomicBool::new(false);

/// How often in a row threads of the program have looked for nothing.
static IDLE_LOOKS: AtomicUsize = AtomicUsize::new(0);

/// Looks in a row without work after which a thread yields its core.
const PATIENCE: usize = 16;

/// Keeps a descriptor from being closed by the program.
pub(crate) fn keep(descriptor: &impl AsRawFd) {
    KEPT.set(descriptor.as_raw_fd());
}

/// Whether the program may close a descriptor. This library may close its own.
pub(crate) fn may_close(descriptor: RawFd) -> bool {
    if !KEPT.has(descriptor) {
        return true;
    }
    let own = is_inside();
    if own && !is_borrowed() {
        KEPT.clear(descriptor);
    }
    own
}

/// Closes those of a range of descriptors that are contexts or channels with `close`, and hands the parts of the range that
/// lie between those that the program may not close to `rest`, until one of them fails.
pub(crate) fn close_range(
    first: c_uint,
    last: c_uint,
    close: impl Fn(RawFd),
    rest: impl Fn(c_uint, c_uint) -> c_int,
) -> c_int {
    let mut from = first;
    for descriptor in RawFd::try_from(first).unwrap_or(RawFd::MAX)..DESCRIPTORS as RawFd {
        let number = descriptor.unsigned_abs();
        if number > last {
            break;
        }
        if OURS.has(descriptor) {
            close(descriptor);
        }
        if KEPT.has(descriptor) {
            if let Some(before) = number.checked_sub(1).filter(|before| from <= *before)
                && let failed @ ..0 = rest(from, before)
            {
                return failed;
            }
            from = number + 1;
        }
    }
    if from <= last { rest(from, last) } else { 0 }
}

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

/// Whether a descriptor is a context or a channel.
pub(crate) fn is_ours(descriptor: RawFd) -> bool {
    OURS.has(descriptor)
}

/// Whether a descriptor is so high that it cannot be remembered.
pub(crate) fn is_too_high(descriptor: RawFd) -> bool {
    OURS.word(descriptor).is_none()
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

/// A program has opened the device.
///
/// # Errors
/// As [`State::new`]; [`Errno::INVAL`] for an environment that makes no sense, after a line to standard error.
pub(crate) fn open(descriptor: RawFd) -> Result<(), Errno> {
    prepare();
    if let Some(failure) = probe::next_call(CallId::OPEN) {
        return Err(failure.errno);
    }
    {
        let mut inside = lock();
        inside.orphans.remove(&descriptor);
        if inside.state.is_none() {
            let settings = Settings::from_environment().map_err(|what| {
                // Without it nobody would know what the kernel's word means.
                let _ = writeln!(std::io::stderr(), "mlx5-uverbs: {what}");
                Errno::INVAL
            })?;
            inside.state = Some(State::new(&settings)?);
        }
        if let Some(state) = inside.state.as_mut() {
            state.open(descriptor);
        }
        OURS.set(descriptor);
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

/// A program is about to close a descriptor that [`is_ours`].
pub(crate) fn close(descriptor: RawFd) {
    let mut inside = lock();
    OURS.clear(descriptor);
    inside.orphans.remove(&descriptor);
    if let Some(state) = inside.state.as_mut() {
        state.close(descriptor);
    }
}

/// A program has made `new` of `old`, one of which [`is_ours`]; what `new` was before is closed.
pub(crate) fn duplicate(old: RawFd, new: RawFd) {
    let mut inside = lock();
    if is_ours(old) {
        OURS.set(new);
    } else {
        OURS.clear(new);
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
        let outcome = crate::command::dispatch(state, context, address);
        if let Some(made) = outcome.as_ref().ok().copied().flatten() {
            OURS.set(made);
        }
        // Calls about anything but queues leave the worker nothing to do: programs make mkeys by the ten thousand.
        if state.has_changed() || MISSED.load(Ordering::Acquire) {
            worker::wake();
        }
        outcome
    };
    outcome.map(drop)
}

/// What the worker finds.
#[derive(Debug, Default)]
pub(crate) struct Found {
    /// There was something to do.
    pub(crate) moved: bool,
    /// A doorbell could come.
    pub(crate) awake: bool,
    /// What else to wait on.
    pub(crate) descriptors: Vec<RawFd>,
}

/// Does what there is to do, for the worker.
pub(crate) fn work() -> Found {
    while WAITING.load(Ordering::Acquire) > 0 {
        sys::yield_now();
    }
    let mut inside = INSIDE.lock().unwrap_or_else(PoisonError::into_inner);
    MISSED.store(false, Ordering::Release);
    let Some(state) = inside.state.as_mut() else { return Found::default() };
    let moved = state.work();
    WAITS_FOR_EVENTS.store(state.waits_for_events(), Ordering::Relaxed);
    let (awake, descriptors) = (!state.is_quiet(), state.descriptors());
    drop(inside);
    Found { moved: moved || MISSED.load(Ordering::Acquire), awake, descriptors }
}

/// Does what there is to do, on a thread of the program, unless another thread is at it or waits for its turn. Signals and
/// cancellation wait until that is done.
pub(crate) fn look() {
    if !WORKING.load(Ordering::Acquire) || is_inside() {
        return;
    }
    // Once more for a thread that came meanwhile, and no oftener: this one has its own work.
    for _ in 0..2 {
        let Some(moved) = sys::undisturbed(|| as_device(look_once)) else { return };
        LOOKED.store(true, Ordering::Relaxed);
        if moved {
            IDLE_LOOKS.store(0, Ordering::Relaxed);
        } else if IDLE_LOOKS.fetch_add(1, Ordering::Relaxed) >= PATIENCE {
            // Whoever is waited for may need the core.
            sys::yield_now();
        }
        if !MISSED.load(Ordering::Acquire) {
            return;
        }
    }
}

/// Returns whether there was something to do, `None` where another thread does it.
fn look_once() -> Option<bool> {
    let free = (WAITING.load(Ordering::Acquire) == 0).then(|| INSIDE.try_lock());
    let mut inside = match free {
        Some(Ok(inside)) => inside,
        Some(Err(TryLockError::Poisoned(poisoned))) => poisoned.into_inner(),
        Some(Err(TryLockError::WouldBlock)) | None => {
            MISSED.store(true, Ordering::Release);
            return None;
        }
    };
    MISSED.store(false, Ordering::Release);
    let state = inside.state.as_mut()?;
    let moved = catch_unwind(AssertUnwindSafe(|| state.work())).unwrap_or(false);
    WAITS_FOR_EVENTS.store(state.waits_for_events(), Ordering::Relaxed);
    Some(moved)
}

/// Whether the program polls, and has done so since this was last asked: then it does what the worker is there for.
pub(crate) fn is_polled() -> bool {
    LOOKED.swap(false, Ordering::Relaxed) && !WAITS_FOR_EVENTS.load(Ordering::Relaxed)
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
    MISSED.store(false, Ordering::Release);
    IDLE_LOOKS.store(0, Ordering::Relaxed);
    LOOKED.store(false, Ordering::Relaxed);
    WAITS_FOR_EVENTS.store(false, Ordering::Relaxed);
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
                }
                return;
            }
            sys::yield_now();
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::RefCell;

    #[test]
    fn ranges_leave_out_what_is_kept() {
        // Numbers that no other test of this program opens.
        for kept in [60_003, 60_004, 60_010] {
            KEPT.set(kept);
        }
        OURS.set(60_006);
        let parts = |first, last| {
            let (ours, others) = (RefCell::new(Vec::new()), RefCell::new(Vec::new()));
            let close = |descriptor| ours.borrow_mut().push(descriptor);
            let rest = |first, last| {
                others.borrow_mut().push((first, last));
                0
            };
            assert_eq!(close_range(first, last, close, rest), 0);
            (ours.into_inner(), others.into_inner())
        };
        assert_eq!(parts(60_000, 60_002), (vec![], vec![(60_000, 60_002)]));
        assert_eq!(parts(60_003, 60_004), (vec![], vec![]));
        assert_eq!(parts(60_004, 60_006), (vec![60_006], vec![(60_005, 60_006)]));
        let all = vec![(60_000, 60_002), (60_005, 60_009), (60_011, c_uint::MAX)];
        assert_eq!(parts(60_000, c_uint::MAX), (vec![60_006], all));
        assert_eq!(parts(c_uint::MAX, c_uint::MAX), (vec![], vec![(c_uint::MAX, c_uint::MAX)]));
        let refused = |_, _| -1;
        assert_eq!(close_range(60_000, 60_009, |_| (), refused), -1);
        for kept in [60_003, 60_004, 60_010] {
            KEPT.clear(kept);
        }
        OURS.clear(60_006);
    }
}
