//! Deliberate faults: a plan says which fault comes when. All code that can fail asks the plan first.
//!
//! Without a plan, a question costs one load of an atomic.

pub(crate) use mlx5_faults::{CallId, Ending, Fault, Place, Plan};

use crate::ground::errno::Errno;
use crate::ground::notice;
use mlx5_faults::Rule;
use mlx5_softdev::Passage;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// The delay of the answer to a call that the plan makes late.
const LATE: Duration = Duration::from_micros(200);

/// A late completion is written after at most this many turns of the device.
const MAX_LOOKS: u64 = 8;

static ACTIVE: AtomicBool = AtomicBool::new(false);
static PLAN: Mutex<Option<Plan>> = Mutex::new(None);

/// Whether each fault is reported on standard error, because the plan came from the environment.
static TOLD: AtomicBool = AtomicBool::new(false);

/// Whether the answer of the last call is to be late.
static PAUSE: AtomicBool = AtomicBool::new(false);

/// The number of turns of the device until late completions are written.
static LOOKS: AtomicU32 = AtomicU32::new(0);

/// The end of the device that [`ending`] has not returned yet: 0 none, 1 removed, 2 failed.
static ENDING: AtomicU8 = AtomicU8::new(0);

fn plan() -> MutexGuard<'static, Option<Plan>> {
    PLAN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Replaces the plan: from now on only faults of this plan come.
pub(crate) fn set(new: Option<Plan>) {
    ACTIVE.store(new.is_some(), Ordering::Release);
    ENDING.store(0, Ordering::Release);
    *plan() = new;
}

/// Replaces the plan as [`set`] does, and reports each fault on standard error from now on.
pub(crate) fn set_for_good(new: Plan) {
    TOLD.store(true, Ordering::Release);
    set(Some(new));
}

/// Plans a single fault, at the `nth` visit to a place. An `nth` of 0 plans none.
pub(crate) fn set_one(place: Place, nth: u32, errno: Errno, status: u8) {
    let fault = Fault::Fails { errno: errno.0, status };
    let rule = Rule { place, nth: nth.into(), fault, stays: place == Place::Call };
    set((nth > 0).then(|| Plan::of(rule)));
}

/// Returns how many more visits to a place there are until its first listed fault.
pub(crate) fn left(place: Place) -> u64 {
    plan().as_ref().map_or(0, |plan| plan.left(place))
}

/// Returns the faults that have come, in the form of a plan.
pub(crate) fn trace() -> String {
    plan().as_ref().map(Plan::trace).unwrap_or_default()
}

/// Returns whether faults of this process are reported on standard error.
pub(crate) fn is_told() -> bool {
    TOLD.load(Ordering::Acquire)
}

/// Notes a visit to a place. Returns the fault that the plan has for it, if any.
pub(crate) fn at(place: Place) -> Option<Fault> {
    ask(place, CallId::NONE)
}

fn ask(place: Place, id: CallId) -> Option<Fault> {
    if !ACTIVE.load(Ordering::Acquire) {
        return None;
    }
    let fault = plan().as_mut()?.at(place, id)?;
    if is_told() {
        notice::always(&format!("fault: {}: {fault}", place.name()));
    }
    match fault {
        Fault::Ends(Ending::Removed) => ENDING.store(1, Ordering::Release),
        Fault::Ends(Ending::Failed) => ENDING.store(2, Ordering::Release),
        Fault::Dies => crate::ground::sys::die(),
        _ => return Some(fault),
    }
    None
}

/// The outcome of a call under the plan of faults.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Course {
    /// The call is carried out.
    Good,
    /// The call fails with this errno and, if it is a command, with this status.
    Fails(Errno, u8),
    /// A command that changes an object is carried out, any other call is not. In either case, the caller is
    /// told that the call has failed.
    Unheard,
}

/// Returns the outcome of a call that makes, changes or queries an object.
pub(crate) fn call(id: CallId) -> Course {
    match ask(Place::Call, id) {
        None => Course::Good,
        Some(Fault::Fails { errno, status }) => Course::Fails(Errno(errno), status),
        Some(Fault::Unheard) => Course::Unheard,
        Some(_) => {
            PAUSE.store(true, Ordering::Release);
            Course::Good
        }
    }
}

/// Returns the errno with which the destruction of an object is refused, if the plan refuses it.
pub(crate) fn end() -> Option<Errno> {
    match at(Place::End)? {
        Fault::Fails { errno, .. } => Some(Errno(errno)),
        _ => None,
    }
}

/// Waits if the answer of the last call is to be late.
pub(crate) fn pause() {
    if PAUSE.swap(false, Ordering::AcqRel) {
        std::thread::sleep(LATE);
    }
}

/// Returns how the device has ended, once for each ending.
pub(crate) fn ending() -> Option<Ending> {
    if !ACTIVE.load(Ordering::Acquire) {
        return None;
    }
    match ENDING.swap(0, Ordering::AcqRel) {
        1 => Some(Ending::Removed),
        2 => Some(Ending::Failed),
        _ => None,
    }
}

/// Returns whether late completions are to be written now. The device asks once in each turn.
pub(crate) fn late_ones_are_due() -> bool {
    let less = |looks: u32| looks.checked_sub(1);
    LOOKS.fetch_update(Ordering::AcqRel, Ordering::Acquire, less) == Ok(1)
}

/// Returns whether and when the device writes a completion entry, as the plan decides.
pub(crate) fn completion(entry: &[u8; 64]) -> Passage {
    let passage = mlx5_faults::passage(at(mlx5_faults::place(entry)), entry, below);
    if passage == Passage::Later {
        LOOKS.store(1 + below(MAX_LOOKS) as u32, Ordering::Release);
    }
    passage
}

fn below(end: u64) -> u64 {
    plan().as_mut().map_or(0, |plan| plan.below(end))
}
