//! Planned faults of the device: refused commands, lost or repeated completion entries, and the device's end.

use crate::memory::GuestMemory;
use mlx5_faults::{CallId, Ending, Fault, Place, Plan, passage, place};
use mlx5_softdev::{Course, Device};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// The delay of a late command.
const LATE: Duration = Duration::from_millis(1);

/// Statuses of commands (`MLX5_CMD_STAT_*` of Linux): an internal error, and no resources.
const INTERNAL: u8 = 0x1;
const NO_RESOURCES: u8 = 0xf;

#[derive(Debug)]
struct State {
    plan: Plan,
    ending: Option<Ending>,
}

/// A plan of faults, and the end that the plan has chosen.
#[derive(Clone, Debug)]
pub(crate) struct Planned(Arc<Mutex<State>>);

impl Planned {
    /// Has a device fail as a plan says.
    pub(crate) fn new(plan: Plan, device: &mut Device<GuestMemory>) -> Self {
        let planned = Self(Arc::new(Mutex::new(State { plan, ending: None })));
        let (entries, commands) = (planned.clone(), planned.clone());
        device.set_gate(move |_, entry| {
            let fault = entries.ask(place(entry), CallId::NONE);
            passage(fault, entry, |end| entries.state().plan.below(end))
        });
        device.set_judge(move |opcode, destroys| {
            let place = if destroys { Place::End } else { Place::Call };
            match commands.ask(place, CallId::new(0, 0, opcode.into())) {
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

    /// Counts a visit to a place, and returns its fault. Reports the fault on standard error.
    fn ask(&self, place: Place, id: CallId) -> Option<Fault> {
        let mut state = self.state();
        let fault = state.plan.at(place, id)?;
        eprintln!("fault: {}: {fault}", place.name());
        match fault {
            Fault::Ends(ending) => {
                state.ending = Some(ending);
                None
            }
            fault => Some(fault),
        }
    }

    /// Returns how the device ends, once.
    pub(crate) fn ending(&self) -> Option<Ending> {
        self.state().ending.take()
    }
}

/// Returns the status of a command for an error. A device has no error numbers of Linux.
const fn as_status(errno: i32, status: u8) -> u8 {
    const ENOMEM: i32 = 12;
    match (errno, status) {
        (ENOMEM, 0) => NO_RESOURCES,
        (_, 0) => INTERNAL,
        (_, status) => status,
    }
}
