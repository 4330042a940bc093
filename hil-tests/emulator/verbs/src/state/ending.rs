//! Incidents of a plan of faults: the end of the device, changes of its port, and asynchronous events.

use crate::ground::abi::AsyncEvent;
use crate::ground::errno::Errno;
use crate::ground::fault::{Ending, Incident, QueueEvent};
use crate::ground::sys;
use crate::state::State;
use crate::state::events::Subject;
use crate::state::object::Object;
use crate::state::port::NUMBER;
use mlx5_softdev::{Event, QpAttributes, QpState, ReceiveQueue};
use zerocopy::IntoBytes;

/// The kernel's number for the event that the device has failed (`IBV_EVENT_DEVICE_FATAL`).
const DEVICE_FATAL: u32 = 8;

impl State {
    /// Carries out an incident of the plan of faults.
    pub(super) fn happen(&mut self, incident: Incident) {
        match incident {
            Incident::Ends(ending) => self.end_device(ending),
            Incident::Device(event) => self.report_on_device(NUMBER.into(), event.kernel()),
            Incident::Queue { event, queue_pair } => self.strike(event, queue_pair),
            Incident::PortDown | Incident::PortUp | Incident::GidsGone | Incident::GidsBack => {
                self.follow_port(sys::nanoseconds());
            }
        }
    }

    /// Raises an event of a queue pair, or of one of its queues. Does nothing if the queue pair or the queue
    /// does not exist.
    fn strike(&mut self, event: QueueEvent, number: u32) {
        let Ok(QpAttributes { send_cqn, receive, .. }) = self.device.attributes(number) else { return };
        let shared = if let ReceiveQueue::Shared(number) = receive { Some(number) } else { None };
        let raised = match event {
            QueueEvent::CqError => Some(Event::CqError(send_cqn)),
            QueueEvent::Fatal => Some(Event::QpFatal(number)),
            QueueEvent::Request => Some(Event::QpRequest(number)),
            QueueEvent::Access => Some(Event::QpAccess(number)),
            QueueEvent::Drained => Some(Event::SqDrained(number)),
            QueueEvent::LastReceive => Some(Event::LastWqe(number)),
            QueueEvent::SrqError => shared.map(Event::SrqFatal),
            QueueEvent::SrqLimit => shared.map(Event::SrqLimit),
            // The software device has no state for these events.
            QueueEvent::Established | QueueEvent::Migrated | QueueEvent::NotMigrated => {
                self.report_on(Subject::Qp(number), event.kernel());
                None
            }
        };
        if let Some(raised) = raised {
            self.device.raise(raised);
            self.touch();
        }
        self.report();
    }

    /// Ends the device for all open contexts. A program that opens the device again gets a working device.
    fn end_device(&mut self, ending: Ending) {
        let numbers: Vec<u32> = self.contexts.keys().copied().collect();
        for number in numbers {
            self.fail_queue_pairs(number);
            if ending == Ending::Failed {
                // `run` makes the device flush the outstanding requests.
                self.device.run();
            }
            let Some(context) = self.contexts.get_mut(&number) else { continue };
            let is_first = context.ending.replace(ending).is_none();
            let (channel, objects) = match ending {
                Ending::Removed => (context.async_channel, context.bury()),
                Ending::Failed => (context.async_channel, Vec::new()),
            };
            if is_first {
                self.push(channel, AsyncEvent { element: 0, kind: DEVICE_FATAL, reserved: 0 }.as_bytes());
            }
            for object in objects {
                let _ = self.destroy(object);
            }
            if ending == Ending::Removed {
                self.end_channels(number);
            }
        }
        self.touch();
    }

    /// Moves the queue pairs of a context to the error state.
    fn fail_queue_pairs(&mut self, context: u32) {
        let Some(context) = self.contexts.get(&context) else { return };
        let number = |object: &Object| match object {
            Object::Qp(qp) => Some(qp.number),
            _ => None,
        };
        let numbers: Vec<u32> = context.queues().filter_map(number).collect();
        for number in numbers {
            // A queue pair in RESET refuses this change, and has no outstanding requests.
            let _ = self.modify(number, QpState::Error);
        }
    }

    /// Checks that a context may make a call. If the device has ended for the context, only a call that
    /// destroys an object (`ends`) is allowed.
    ///
    /// # Errors
    /// [`Errno::IO`] if the call is not allowed.
    pub(crate) fn may_call(&self, context: u32, ends: bool) -> Result<(), Errno> {
        match self.contexts.get(&context).and_then(|context| context.ending) {
            None => Ok(()),
            Some(_) if ends => Ok(()),
            Some(_) => Err(Errno::IO),
        }
    }
}
