//! The effects on a program when its open device ends.

use crate::ground::abi::AsyncEvent;
use crate::ground::errno::Errno;
use crate::ground::fault::{self, Ending};
use crate::state::State;
use crate::state::object::Object;
use mlx5_softdev::QpState;
use zerocopy::IntoBytes;

/// `IBV_EVENT_DEVICE_FATAL`.
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
                // The device flushes the outstanding requests.
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

    /// Puts the queue pairs of a context into the error state.
    fn fail_queue_pairs(&mut self, context: u32) {
        let Some(context) = self.contexts.get(&context) else { return };
        let number = |object: &Object| match object {
            Object::Qp(qp) => Some(qp.number),
            _ => None,
        };
        let numbers: Vec<u32> = context.queues().filter_map(number).collect();
        for number in numbers {
            // A queue pair in RESET refuses this step, and has no outstanding requests.
            let _ = self.modify(number, QpState::Error);
        }
    }

    /// Refuses a call of a context whose device has ended, unless the call only destroys (`ends`).
    ///
    /// # Errors
    /// [`Errno::IO`].
    pub(crate) fn may_call(&self, context: u32, ends: bool) -> Result<(), Errno> {
        match self.contexts.get(&context).and_then(|context| context.ending) {
            None => Ok(()),
            Some(_) if ends => Ok(()),
            Some(_) => Err(Errno::IO),
        }
    }
}
