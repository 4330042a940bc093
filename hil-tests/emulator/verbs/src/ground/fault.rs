//! Deliberate faults. A plan says at which visit to a place (such as a call, or a completion) a fault
//! happens. All code that can fail asks the plan first.
//!
//! Without a plan, a check whether a fault happens costs one load of an atomic.

pub(crate) use mlx5_faults::{Ending, Fault, Incident, Place, QueueEvent};
pub(crate) use mlx5_plan::{CallId, Plan};

use crate::ground::errno::Errno;
use crate::ground::notice;
use crate::ground::port::Port;
use mlx5_faults::{Rule, Subject};
use mlx5_plan::Visit;
use mlx5_softdev::{Passage, Ruling, Side};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// The delay of the answer to a call that the plan makes late.
const LATE: Duration = Duration::from_micros(200);

/// A late completion is written after the device has looked for work at most this many times.
const MAX_LOOKS: u64 = 8;

static ACTIVE: AtomicBool = AtomicBool::new(false);
static PLAN: Mutex<Option<Plan>> = Mutex::new(None);

/// Whether each fault is reported on standard error, because the plan came from the environment.
static TOLD: AtomicBool = AtomicBool::new(false);

/// Whether the answer of the last call is to be late.
static PAUSE: AtomicBool = AtomicBool::new(false);

/// How many times the device still looks for work until late completions are written.
static LOOKS: AtomicU32 = AtomicU32::new(0);

/// Whether an incident has taken the port down.
static PORT_DOWN: AtomicBool = AtomicBool::new(false);

/// Whether an incident has removed the GIDs of IP addresses, so that only the default GID is left.
static GIDS_GONE: AtomicBool = AtomicBool::new(false);

/// The number of incidents and new plans that may have changed the ports.
static PORT_CHANGES: AtomicU32 = AtomicU32::new(0);

fn plan() -> MutexGuard<'static, Option<Plan>> {
    PLAN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Replaces the plan: from now on, only faults of this plan happen. The port gets its real state again.
pub(crate) fn set(new: Option<Plan>) {
    ACTIVE.store(new.is_some(), Ordering::Release);
    for altered in [&PORT_DOWN, &GIDS_GONE] {
        if altered.swap(false, Ordering::AcqRel) {
            PORT_CHANGES.fetch_add(1, Ordering::AcqRel);
        }
    }
    *plan() = new;
}

/// Adds faults, given as words of `mlx5-emulate --faults`, to the plan.
///
/// # Errors
/// A sentence that names the invalid word. The plan stays as it is.
pub(crate) fn add(words: &str) -> Result<(), String> {
    plan().get_or_insert_default().add(words)?;
    ACTIVE.store(true, Ordering::Release);
    Ok(())
}

/// Replaces the plan as [`set`] does, and reports each fault on standard error from now on.
pub(crate) fn set_for_good(new: Plan) {
    TOLD.store(true, Ordering::Release);
    set(Some(new));
}

/// Plans a single fault, at the `nth` visit to a place. An `nth` of 0 plans none.
pub(crate) fn set_one(place: Place, nth: u32, errno: Errno, status: u8) {
    let fault = Fault::Fails { errno: errno.0, status };
    let (nth, stays) = (u64::from(nth), place == Place::Call);
    let rule = Rule::At { place, subject: Subject::Any, nth, stays, fault };
    set((nth > 0).then(|| Plan::of(rule)));
}

/// Returns the number of visits to a place up to the first fault that the plan lists for the place.
pub(crate) fn left(place: Place) -> u64 {
    plan().as_ref().map_or(0, |plan| plan.left(place))
}

/// Returns the faults that have happened, in the form of a plan.
pub(crate) fn trace() -> String {
    plan().as_ref().map(Plan::trace).unwrap_or_default()
}

/// Returns whether faults of this process are reported on standard error.
pub(crate) fn is_told() -> bool {
    TOLD.load(Ordering::Acquire)
}

/// Counts a visit to a place. Returns the fault that the plan has for this visit, if any.
pub(crate) fn at(place: Place) -> Option<Fault> {
    ask(Visit::to(place))
}

fn ask(visit: Visit) -> Option<Fault> {
    if !ACTIVE.load(Ordering::Acquire) {
        return None;
    }
    let fault = plan().as_mut()?.at(visit)?;
    if is_told() {
        notice::always(&format!("fault: {}: {fault}", visit.place.name()));
    }
    if fault == Fault::Dies {
        crate::ground::sys::die();
    }
    Some(fault)
}

/// Returns the decision about the next request of a queue pair. While the port is down, all requests that the
/// queue pair sends are lost.
pub(crate) fn request(side: Side, queue_pair: u32) -> Ruling {
    let place = if side == Side::Send { Place::Request } else { Place::Receive };
    match mlx5_plan::ruling(ask(Visit::of(place, queue_pair))) {
        Ruling::Good if is_port_down() && side == Side::Send => Ruling::Lost,
        ruling => ruling,
    }
}

/// Returns the oldest incident that has happened and was not returned yet. If the incident changes the port,
/// this function has made the change.
pub(crate) fn incident() -> Option<Incident> {
    if !ACTIVE.load(Ordering::Acquire) {
        return None;
    }
    let incident = plan().as_mut()?.take_incident()?;
    if is_told() {
        notice::always(&format!("fault: incident: {incident}"));
    }
    let (altered, is_on) = match incident {
        Incident::PortDown => (&PORT_DOWN, true),
        Incident::PortUp => (&PORT_DOWN, false),
        Incident::GidsGone => (&GIDS_GONE, true),
        Incident::GidsBack => (&GIDS_GONE, false),
        Incident::Ends(_) | Incident::Device(_) | Incident::Queue { .. } => return Some(incident),
    };
    altered.store(is_on, Ordering::Release);
    PORT_CHANGES.fetch_add(1, Ordering::AcqRel);
    Some(incident)
}

/// Returns whether an incident has taken the port down.
pub(crate) fn is_port_down() -> bool {
    PORT_DOWN.load(Ordering::Acquire)
}

/// Returns whether incidents may have changed a port since the last call with the same `seen`.
pub(crate) fn has_port_changed(seen: &mut u32) -> bool {
    let changes = PORT_CHANGES.load(Ordering::Acquire);
    std::mem::replace(seen, changes) != changes
}

/// Returns the port as incidents have left it.
pub(crate) fn altered(port: &Port) -> Port {
    let mut port = port.clone();
    port.is_active &= !is_port_down();
    if GIDS_GONE.load(Ordering::Acquire) {
        let default = port.default_gid();
        port.entries.retain(|entry| entry.gid == default);
    }
    port
}

/// The outcome of a call under the plan of faults.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Course {
    /// The call is carried out.
    Good,
    /// The call fails with this errno. If the call carries a command of the device, the command's reply has
    /// this status.
    Fails(Errno, u8),
    /// A command that changes an object is carried out. Any other call is not carried out. In both cases, the
    /// caller gets an error.
    Unheard,
}

/// Returns the outcome of a call that makes, changes or queries an object.
pub(crate) fn call(id: CallId) -> Course {
    match ask(Visit::by(Place::Call, id)) {
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

/// Returns whether late completions are to be written now. The device asks each time when it looks for work.
pub(crate) fn late_ones_are_due() -> bool {
    let less = |looks: u32| looks.checked_sub(1);
    LOOKS.fetch_update(Ordering::AcqRel, Ordering::Acquire, less) == Ok(1)
}

/// Returns whether and when the device writes a completion entry, as the plan decides.
pub(crate) fn completion(entry: &[u8; 64]) -> Passage {
    let passage = mlx5_plan::passage(ask(mlx5_plan::visit(entry)), entry, below);
    if passage == Passage::Later {
        LOOKS.store(1 + below(MAX_LOOKS) as u32, Ordering::Release);
    }
    passage
}

fn below(end: u64) -> u64 {
    plan().as_mut().map_or(0, |plan| plan.below(end))
}
