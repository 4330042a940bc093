//! Planned faults of the device: refused commands, lost or repeated completion entries, failed requests, and
//! the device's end.

use crate::memory::GuestMemory;
use mlx5_faults::{Ending, Fault, Incident, Place};
use mlx5_plan::{CallId, Plan, Visit, passage, ruling, visit};
use mlx5_softdev::{Course, Device, Side};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// The time that the device waits before it executes a command that the plan delays.
const LATE: Duration = Duration::from_millis(1);

/// Statuses of commands (`MLX5_CMD_STAT_*` of Linux): an internal error, and no resources.
const INTERNAL: u8 = 0x1;
const NO_RESOURCES: u8 = 0xf;

/// Places of a plan at which the function has no faults: reads of events, which the kernel in the client's
/// machine carries out, and messages between processes.
const ELSEWHERE: [Place; 3] = [Place::Read, Place::Message, Place::Wire];

/// Checks that the function visits each place, and has each incident, that a plan names.
///
/// # Errors
/// A sentence with the name of the place or of the incident.
pub fn check_places(plan: &Plan) -> Result<(), String> {
    if let Some(place) = ELSEWHERE.into_iter().find(|place| plan.names(*place)) {
        return Err(format!("faults at `{}` need the stand-in: the function has none", place.name()));
    }
    match plan.named_incidents().find(|incident| !matches!(incident, Incident::Ends(_))) {
        None => Ok(()),
        Some(incident) => Err(format!("`{incident}` needs the stand-in: the function has none")),
    }
}

/// A function that gets a sentence about each fault.
type Tell = dyn FnMut(&str) + Send;

struct State {
    plan: Plan,
    tell: Box<Tell>,
}

impl core::fmt::Debug for State {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "State({:?})", self.plan)
    }
}

/// The plan of faults of a function, which the function and the callbacks of its device share.
#[derive(Clone, Debug)]
pub(crate) struct Planned(Arc<Mutex<State>>);

impl Planned {
    /// Makes a device fail as a plan says. Calls `tell` with a sentence for each fault.
    pub(crate) fn new(plan: Plan, device: &mut Device<GuestMemory>, tell: Box<Tell>) -> Self {
        let planned = Self(Arc::new(Mutex::new(State { plan, tell })));
        let (entries, commands, requests) = (planned.clone(), planned.clone(), planned.clone());
        device.set_gate(move |_, entry| {
            let fault = entries.ask(visit(entry));
            passage(fault, entry, |end| entries.state().plan.below(end))
        });
        device.set_arbiter(move |side, number| {
            let place = if side == Side::Send { Place::Request } else { Place::Receive };
            ruling(requests.ask(Visit::of(place, number)))
        });
        device.set_judge(move |opcode, destroys| {
            let place = if destroys { Place::End } else { Place::Call };
            match commands.ask(Visit::by(place, CallId::new(0, 0, opcode.into()))) {
                None => Course::Good,
                Some(Fault::Fails { errno, status }) => Course::Refused(as_status(errno, status)),
                Some(Fault::Unheard) => Course::Unheard(INTERNAL),
                Some(_) => {
                    std::thread::sleep(LATE);
                    Course::Good
                }
            }
        });
        planned
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts a visit to a place. Returns the fault that the plan has for this visit, if any.
    fn ask(&self, visit: Visit) -> Option<Fault> {
        let mut state = self.state();
        let fault = state.plan.at(visit)?;
        (state.tell)(&format!("fault: {}: {fault}", visit.place.name()));
        Some(fault)
    }

    /// Returns how the device ends, if the plan has ended it since the last call. Other incidents have no
    /// effect: [`check_places`] refuses them.
    pub(crate) fn ending(&self) -> Option<Ending> {
        let mut state = self.state();
        match state.plan.take_incident()? {
            Incident::Ends(ending) => {
                (state.tell)(&format!("fault: {}", Incident::Ends(ending)));
                Some(ending)
            }
            _ => None,
        }
    }
}

/// Returns the status of a command that a planned fault refuses. If the plan names only an errno of Linux,
/// which a device does not know, the function returns the status that is nearest to the errno.
const fn as_status(errno: i32, status: u8) -> u8 {
    const ENOMEM: i32 = 12;
    match (errno, status) {
        (ENOMEM, 0) => NO_RESOURCES,
        (_, 0) => INTERNAL,
        (_, status) => status,
    }
}
