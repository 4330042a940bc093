//! Whose turn it is to do the device's work: the worker's, or that of a thread of the program that posts or
//! polls.

use crate::ground::{owner, sys};
use crate::process::{bell, lock};
use crate::state::{Pace, State};
use std::cell::Cell;
use std::os::fd::RawFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// A thread found the lock taken; whoever holds it is to look once more. Where that comes too late, the
/// worker or the next thread that posts or polls looks instead: no doorbell is lost, it waits as long as the
/// worker sleeps.
static MISSED: AtomicBool = AtomicBool::new(false);

/// A thread of the program has looked since the worker last asked.
static LOOKED: AtomicBool = AtomicBool::new(false);

/// The program waits for events, not only by polling.
static WAITS_FOR_EVENTS: AtomicBool = AtomicBool::new(false);

/// How often in a row threads of the program have looked for nothing.
static IDLE_LOOKS: AtomicUsize = AtomicUsize::new(0);

/// So long a thread that has looked does not look again while an answer is to come: what it posts meanwhile
/// is sent together.
const TOGETHER: Duration = Duration::from_micros(5);

thread_local! {
    /// When the last look of this thread ended, if it was short and left nothing to do but wait for an
    /// answer.
    static AWAITING_SINCE: Cell<Option<Instant>> = const { Cell::new(None) };
}

/// A test moves the device: nobody else does.
static BY_HAND: AtomicBool = AtomicBool::new(false);

/// Looks in a row without work after which a thread yields its core.
const PATIENCE: usize = 16;

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
    if by_hand() {
        return Found::default();
    }
    let found = lock::in_turn(|state| {
        let moved = turn(state, |state| state.work(Pace::Clock));
        (moved, !state.is_quiet(), state.descriptors())
    });
    let Some((moved, awake, descriptors)) = found else { return Found::default() };
    Found { moved: moved || was_missed(), awake, descriptors }
}

/// Does what there is to do for a thread of the program that calls the device and has the lock: it may ask
/// what has become of what it rang. On a busy machine it takes many milliseconds until another thread has its
/// turn, and who asks again and again would wait for it each time.
pub(crate) fn work_before_call(state: &mut State) {
    if !by_hand() && !state.is_quiet() {
        turn(state, |state| caught(state, Pace::Clock));
    }
}

/// Does what there is to do, on a thread of the program, unless another thread is at it or waits for its
/// turn. Signals and cancellation wait until that is done.
pub(crate) fn look() {
    if !bell::is_heard() || owner::is_inside() || by_hand() || has_just_looked() {
        return;
    }
    // Once more for a thread that came meanwhile, and no oftener: this one has its own work.
    for _ in 0..2 {
        let Some(moved) = sys::undisturbed(|| owner::as_device(look_once)) else { return };
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

fn has_just_looked() -> bool {
    let since = AWAITING_SINCE.try_with(Cell::get).ok().flatten();
    since.is_some_and(|since| since.elapsed() < TOGETHER)
}

/// Returns whether there was something to do, `None` where another thread does it.
fn look_once() -> Option<bool> {
    let work = |state: &mut State| {
        let begun = Instant::now();
        let moved = caught(state, Pace::Clock);
        let since = (state.awaits_answers() && begun.elapsed() < 2 * TOGETHER).then(Instant::now);
        let _ = AWAITING_SINCE.try_with(|awaiting| awaiting.set(since));
        moved
    };
    match lock::if_free(|state| turn(state, work)) {
        Ok(moved) => moved,
        Err(lock::Taken) => {
            MISSED.store(true, Ordering::Release);
            None
        }
    }
}

/// Does the work, on a thread of the program, for which a panic is no end: it is a fault of the device.
fn caught(state: &mut State, pace: Pace) -> bool {
    catch_unwind(AssertUnwindSafe(|| state.work(pace))).unwrap_or(false)
}

/// Does the work, under the lock. Who comes meanwhile has missed it.
fn turn(state: &mut State, work: impl FnOnce(&mut State) -> bool) -> bool {
    MISSED.store(false, Ordering::Release);
    let moved = work(state);
    WAITS_FOR_EVENTS.store(state.waits_for_events(), Ordering::Relaxed);
    moved
}

/// Whether the device does nothing by itself.
pub(crate) fn by_hand() -> bool {
    BY_HAND.load(Ordering::Acquire)
}

/// Has the device do nothing by itself, or as always.
pub(crate) fn set_by_hand(on: bool) {
    BY_HAND.store(on, Ordering::Release);
    // A turn that had begun is over behind this.
    let _ = lock::in_turn(|_| ());
    bell::ring();
}

/// Does what there is to do, once. Returns whether there was anything.
pub(crate) fn work_by_hand() -> bool {
    lock::in_turn(|state| turn(state, |state| caught(state, Pace::Step))).unwrap_or(false)
}

/// Whether a thread found the lock taken since the last turn.
pub(crate) fn was_missed() -> bool {
    MISSED.load(Ordering::Acquire)
}

/// Whether the program polls, and has done so since this was last asked: then it does what the worker is
/// there for.
pub(crate) fn is_polled() -> bool {
    LOOKED.swap(false, Ordering::Relaxed) && !WAITS_FOR_EVENTS.load(Ordering::Relaxed)
}

/// Forgets what was in the process that this one is a fork of.
pub(crate) fn forget() {
    MISSED.store(false, Ordering::Release);
    IDLE_LOOKS.store(0, Ordering::Relaxed);
    LOOKED.store(false, Ordering::Relaxed);
    WAITS_FOR_EVENTS.store(false, Ordering::Relaxed);
}
