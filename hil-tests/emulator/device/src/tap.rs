//! A tap on the wire and on the completion queues, for whoever wants to see what passes.

use crate::message::Message;
use alloc::boxed::Box;

/// Something that passes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Seen<'a> {
    /// A message leaves a queue pair of this device, perhaps for another of its own.
    Sent(&'a Message),
    /// A message of another device arrives.
    Received(&'a Message),
    /// An entry is written to completion queue `cqn`, but for its owner bit.
    Completion {
        /// The completion queue.
        cqn: u32,
        /// The entry.
        entry: &'a [u8; 64],
    },
}

/// What is called for all that passes.
type Look = dyn FnMut(Seen<'_>) + Send;

/// Who looks, if anyone.
#[derive(Default)]
pub(crate) struct Tap(Option<Box<Look>>);

impl core::fmt::Debug for Tap {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(if self.0.is_some() { "Tap(used)" } else { "Tap(unused)" })
    }
}

impl Tap {
    /// Has `look` called for all that passes from now on.
    pub(crate) fn set(&mut self, look: impl FnMut(Seen<'_>) + Send + 'static) {
        self.0 = Some(Box::new(look));
    }

    /// Shows something to whoever looks.
    pub(crate) fn show(&mut self, seen: Seen<'_>) {
        if let Some(look) = &mut self.0 {
            look(seen);
        }
    }
}
