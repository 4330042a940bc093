//! Decides which thread does the device's work: the worker, or a thread of the program that posts or polls.

use crate::ground::{owner, sys};
use crate::process::{bell, lock};
use crate::state::Pace;
use crate::state::devices::Devices;
use std::cell::Cell;
use std::os::fd::RawFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// Whether a thread wanted to do the device's work, but found the lock taken. The thread that holds the lock
/// then does the work once more. If that thread has already finished, the worker or the next thread that
/// posts or polls does the work. So a doorbell waits at most as long as the worker sleeps.
static MISSED: AtomicBool = AtomicBool::new(false);

/// Whether a thread of the program has done the device's work since the last call of [`is_polled`].
static LOOKED: AtomicBool = AtomicBool::new(false);

/// Whether the program waits for events, so that it does not only poll.
static WAITS_FOR_EVENTS: AtomicBool = AtomicBool::new(false);

/// The number of calls of [`look`] in a row that found no work.
static IDLE_LOOKS: AtomicUsize = AtomicUsize::new(0);

/// The time for which further calls of [`look`] of a thread do nothing, if the device only waits for several
/// answers of peers. Requests that the thread posts in this time are sent together. A program with one
/// request in flight waits for its answer, so its calls do the device's work at once.
const TOGETHER: Duration = Duration::from_micros(5);

thread_local! {
    /// The end of this thread's last call of [`look`], if the call was short and the device then only waits
    /// for answers of peers.
    static AWAITING_SINCE: Cell<Option<Instant>> = const { Cell::new(None) };
    /// The spin lock of this thread's last call of [`look`], and the number of further releases of this lock
    /// that need no look ([`Devices::releases_without_work`]).
    static SKIPS: Cell<(usize, u32)> = const { Cell::new((0, 0)) };
}

/// Whether a test drives the device step by step, and no other thread does its work.
static BY_HAND: AtomicBool = AtomicBool::new(false);

/// The number of calls of [`look`] in a row without work after which a thread yields its core: about 5 µs,
/// longer than a peer on another core needs for an answer. The time is short, because the thread or process
/// with the awaited answer may wait for this core.
const PATIENCE: usize = 16;

/// The result of doing the device's work once, for the worker.
#[derive(Debug, Default)]
pub(crate) struct Found {
    /// Whether there was work.
    pub(crate) moved: bool,
    /// Whether the devices are not idle, for example because a doorbell record can announce work. The worker
    /// then looks for work again soon.
    pub(crate) awake: bool,
}

/// Does the device's work for the worker.
pub(crate) fn work() -> Found {
    if by_hand() {
        return Found::default();
    }
    let (moved, awake) = lock::in_turn(|devices| {
        let moved = turn(devices, |devices| devices.work(Pace::Clock));
        (moved, !devices.is_quiet())
    });
    Found { moved: moved || was_missed(), awake }
}

/// Asks the peers to wake the worker when they send, and returns the descriptors to sleep on, besides the
/// socket that wakes the worker (bell).
pub(crate) fn prepare_sleep() -> Vec<RawFd> {
    if by_hand() { Vec::new() } else { lock::in_turn(|devices| devices.prepare_sleep()) }
}

/// Does the device's work for a thread of the program that calls the device and holds the lock. The call may
/// be a query whose answer depends on a doorbell. Without this work, a program that repeats its query would
/// wait until the worker runs, which takes many milliseconds each time on a busy machine.
pub(crate) fn work_before_call(devices: &mut Devices) {
    if !by_hand() && !devices.is_quiet() {
        turn(devices, |devices| caught(devices, Pace::Clock));
    }
}

/// Does the device's work on a thread of the program that has released the spin lock at the address
/// `released`, unless another thread holds the devices' lock or waits for it. Handlers of signals and
/// cancellation wait until the work is done.
pub(crate) fn look(released: usize) {
    if !bell::is_heard() || owner::is_inside() || by_hand() || has_just_looked() || is_skipped(released) {
        return;
    }
    // The second pass does the work of a thread that found the lock taken during the first pass. A third pass
    // would keep this thread from the program's own work.
    for _ in 0..2 {
        let Some(moved) = sys::undisturbed(|| owner::as_device(|| look_once(released))) else { return };
        LOOKED.store(true, Ordering::Relaxed);
        if moved {
            IDLE_LOOKS.store(0, Ordering::Relaxed);
        } else if IDLE_LOOKS.fetch_add(1, Ordering::Relaxed) >= PATIENCE {
            std::thread::yield_now();
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

/// Returns whether the last look at this lock makes a look at this release unnecessary.
fn is_skipped(released: usize) -> bool {
    let less = |skips: &Cell<(usize, u32)>| match skips.take() {
        (lock, left @ 1..) if lock == released => {
            skips.set((lock, left - 1));
            true
        }
        _ => false,
    };
    SKIPS.try_with(less) == Ok(true)
}

/// Does the device's work once. Returns whether there was any work, or `None` if another thread does it.
fn look_once(released: usize) -> Option<bool> {
    let work = |devices: &mut Devices| {
        let begun = devices.awaits_answers().then(Instant::now);
        let moved = caught(devices, Pace::Clock);
        let was_short = begun.is_none_or(|begun| begun.elapsed() < 2 * TOGETHER);
        let since = (was_short && devices.awaits_answers()).then(Instant::now);
        let _ = AWAITING_SINCE.try_with(|awaiting| awaiting.set(since));
        let _ = SKIPS.try_with(|skips| skips.set((released, devices.releases_without_work())));
        moved
    };
    match lock::if_free(|devices| turn(devices, work)) {
        Ok(moved) => Some(moved),
        Err(lock::Taken) => {
            MISSED.store(true, Ordering::Release);
            None
        }
    }
}

/// Does the device's work on a thread of the program. A panic is a fault of the device and does not end the
/// program.
fn caught(devices: &mut Devices, pace: Pace) -> bool {
    catch_unwind(AssertUnwindSafe(|| devices.work(pace))).unwrap_or(false)
}

/// Does the device's work by `work`, under the lock that the caller holds. Threads that want to do the work
/// in the meantime set [`MISSED`].
fn turn(devices: &mut Devices, work: impl FnOnce(&mut Devices) -> bool) -> bool {
    MISSED.store(false, Ordering::Release);
    let moved = work(devices);
    WAITS_FOR_EVENTS.store(devices.waits_for_events(), Ordering::Relaxed);
    moved
}

/// Returns whether only a test drives the device.
pub(crate) fn by_hand() -> bool {
    BY_HAND.load(Ordering::Acquire)
}

/// Sets whether only a test drives the device.
pub(crate) fn set_by_hand(on: bool) {
    BY_HAND.store(on, Ordering::Release);
    // This call waits for the lock. Afterwards, no thread is still doing the device's work.
    lock::in_turn(|_| ());
    bell::ring();
}

/// Does the device's work once. Returns whether there was any work.
pub(crate) fn work_by_hand() -> bool {
    lock::in_turn(|devices| turn(devices, |devices| caught(devices, Pace::Step)))
}

/// Returns whether a thread found the lock taken since the device's work was last begun.
pub(crate) fn was_missed() -> bool {
    MISSED.load(Ordering::Acquire)
}

/// Returns whether threads of the program do the worker's work: they have polled since the last call, and the
/// program waits for no events.
pub(crate) fn is_polled() -> bool {
    LOOKED.swap(false, Ordering::Relaxed) && !WAITS_FOR_EVENTS.load(Ordering::Relaxed)
}

/// Forgets the parent process's values of these variables after a fork.
pub(crate) fn forget() {
    MISSED.store(false, Ordering::Release);
    IDLE_LOOKS.store(0, Ordering::Relaxed);
    LOOKED.store(false, Ordering::Relaxed);
    WAITS_FOR_EVENTS.store(false, Ordering::Relaxed);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_releases_of_the_same_lock_are_skipped() {
        SKIPS.set((8, 2));
        assert_eq!([8, 8, 8].map(is_skipped), [true, true, false]);
        SKIPS.set((8, 2));
        assert_eq!([16, 8].map(is_skipped), [false, false], "another lock ends the skips");
    }
}
