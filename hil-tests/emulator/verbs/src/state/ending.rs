//! The effects on the open contexts when a plan of faults ends the device.

use crate::ground::abi::AsyncEvent;
use crate::ground::errno::Errno;
use crate::ground::fault::{self, Ending};
use crate::state::State;
use crate::state::object::Object;
use mlx5_softdev::QpState;
use zerocopy::IntoBytes;

/// The kernel's number for the event that the device has failed (`IBV_EVENT_DEVICE_FATAL`).
const DEVICE_FATAL: u32 = 8;

impl State {
    /// Ends the device for all open contexts if the plan of faults has ended it. A program that opens the
    /// device anew gets a working one.
    pub(crate) fn end_if_due(&mut self) {
        let Some(ending) = fault::ending() else { return };
        let numbers: Vec<u32> = self.contexts.keys().copied().collect();
        for number in numbers {
            self.fail_queue_pairs(number);
            if ending == Ending::Failed {
                // This makes the device flush the outstanding requests.
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
