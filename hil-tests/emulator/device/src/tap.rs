//! A tap on the wire and on the completion queues, for whoever wants to see what passes.

use crate::message::Message;
use crate::refusal::Cause;
use alloc::boxed::Box;
use alloc::collections::VecDeque;
use mlx5_mkey::inspect::cqe::CompletionEntry;

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
        /// Of an error, why.
        cause: Option<Cause>,
    },
    /// A command of the command queue was carried out, or refused.
    Command {
        /// Its opcode.
        opcode: u16,
        /// Which of several things it does (`op_mod`).
        op_mod: u16,
        /// How it ended (PRM `status`).
        status: u8,
        /// Why it was refused, by a number of this device's own.
        syndrome: u32,
    },
}

/// A completion entry that was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Written {
    /// The completion queue.
    pub cqn: u32,
    /// The entry, but for its owner bit.
    pub entry: [u8; 64],
    /// Of an error, why.
    pub cause: Option<Cause>,
}

impl core::fmt::Display for Written {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match CompletionEntry::parse(&self.entry) {
            Ok(entry) => write!(f, "completion: {}", entry.summary(None))?,
            Err(error) => write!(f, "completion: {error}")?,
        }
        match self.cause {
            Some(cause) => write!(f, ": {cause}"),
            None => Ok(()),
        }
    }
}

/// What is called for all that passes.
type Look = dyn FnMut(Seen<'_>) + Send;

/// Who looks, if anyone, and the last entries that were written.
#[derive(Default)]
pub(crate) struct Tap {
    look: Option<Box<Look>>,
    /// At most this number of entries is kept.
    limit: usize,
    written: VecDeque<Written>,
}

impl core::fmt::Debug for Tap {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(if self.look.is_some() { "Tap(used)" } else { "Tap(unused)" })
    }
}

impl Tap {
    /// Has `look` called for all that passes from now on.
    pub(crate) fn set(&mut self, look: impl FnMut(Seen<'_>) + Send + 'static) {
        self.look = Some(Box::new(look));
    }

    /// Has the last `limit` completion entries kept from now on.
    pub(crate) fn keep(&mut self, limit: usize) {
        self.limit = limit;
        self.written.clear();
    }

    /// Returns the entries that are kept, oldest first.
    pub(crate) fn written(&self) -> impl Iterator<Item = &Written> {
        self.written.iter()
    }

    /// Shows something to whoever looks.
    pub(crate) fn show(&mut self, seen: Seen<'_>) {
        if let Seen::Completion { cqn, entry, cause } = seen
            && self.limit > 0
        {
            if self.written.len() >= self.limit {
                self.written.pop_front();
            }
            self.written.push_back(Written { cqn, entry: *entry, cause });
        }
        if let Some(look) = &mut self.look {
            look(seen);
        }
    }
}
