//! Planned faults of the device: refused commands, lost or repeated completion entries, failed requests, and
//! the device's end.

use crate::memory::GuestMemory;
use mlx5_faults::{Ending, Fault, Incident, Place};
use mlx5_plan::{CallId, Plan, Visit, passage, ruling, visit};
use mlx5_softdev::{Course, Device, Side};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// The delay of a late command.
const LATE: Duration = Duration::from_millis(1);

/// Statuses of commands (`MLX5_CMD_STAT_*` of Linux): an internal error, and no resources.
const INTERNAL: u8 = 0x1;
const NO_RESOURCES: u8 = 0xf;

/// A plan of faults.
#[derive(Clone, Debug)]
pub(crate) struct Planned(Arc<Mutex<Plan>>);

impl Planned {
    /// Has a device fail as a plan says.
    pub(crate) fn new(plan: Plan, device: &mut Device<GuestMemory>) -> Self {
        let planned = Self(Arc::new(Mutex::new(plan)));
        let (entries, commands, requests) = (planned.clone(), planned.clone(), planned.clone());
        device.set_gate(move |_, entry| {
            let fault = entries.ask(visit(entry));
            passage(fault, entry, |end| entries.plan().below(end))
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

    fn plan(&self) -> MutexGuard<'_, Plan> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts a visit to a place, and returns its fault. Reports the fault on standard error.
    fn ask(&self, visit: Visit) -> Option<Fault> {
        let fault = self.plan().at(visit)?;
        eprintln!("fault: {}: {fault}", visit.place.name());
        Some(fault)
    }

    /// Returns how the device ends, once. Reports the incident on standard error.
    pub(crate) fn ending(&self) -> Option<Ending> {
        let incident = self.plan().take_incident()?;
        match incident {
            Incident::Ends(ending) => {
                eprintln!("fault: {incident}");
                Some(ending)
            }
            other => {
                eprintln!("fault: {other} is none of the PCI function");
                None
            }
        }
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
