//! A tap, by which an observer of the device sees messages, completion entries, requests, packets and
//! commands.

use crate::message::Message;
use crate::object::qp::Transport;
use crate::refusal::Cause;
use alloc::boxed::Box;
use alloc::collections::VecDeque;
use mlx5_mkey::inspect::cqe::CompletionEntry;

/// An occurrence that the tap shows to the observer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Seen<'a> {
    /// A message leaves a queue pair of this device. Its destination may be on this device, too.
    Sent(&'a Message),
    /// A message of another device arrives.
    Received(&'a Message),
    /// An entry is written to completion queue `cqn`.
    Completion {
        /// The completion queue.
        cqn: u32,
        /// The entry, without its owner bit.
        entry: &'a [u8; 64],
        /// The cause of an error entry.
        cause: Option<Cause>,
    },
    /// A request of a send queue starts, fails since it is malformed, or is flushed.
    Request {
        /// The queue pair.
        queue: u32,
        /// The transport of the queue pair.
        transport: Transport,
        /// The number of the request's first block.
        block: u16,
        /// The request, from its control segment on.
        bytes: &'a [u8],
    },
    /// A packet of the network interface was sent, or could not be read.
    Packet {
        /// The send queue.
        queue: u32,
        /// The number of packets: 1, more for data that the device cuts into packets, or 0 for a request that
        /// the device could not read.
        packets: u64,
        /// The bytes of all packets.
        bytes: u64,
        /// The first bytes of the packet, at most 64.
        header: &'a [u8],
    },
    /// A command of the command queue was carried out, or refused.
    Command {
        /// The opcode of the command.
        opcode: u16,
        /// The variant of the command (`op_mod`).
        op_mod: u16,
        /// The status of the command (PRM `status`).
        status: u8,
        /// The reason of a refusal, as a number that this device defines.
        syndrome: u32,
    },
}

/// A completion entry that was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Written {
    /// The completion queue.
    pub cqn: u32,
    /// The entry, without its owner bit.
    pub entry: [u8; 64],
    /// The cause of an error entry.
    pub cause: Option<Cause>,
}

impl core::fmt::Display for Written {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match CompletionEntry::parse(&self.entry) {
            Ok(entry) => entry.summary(None).fmt(f)?,
            Err(error) => error.fmt(f)?,
        }
        match self.cause {
            Some(cause) => write!(f, ": {cause}"),
            None => Ok(()),
        }
    }
}

/// The function that is called for each occurrence.
type Look = dyn FnMut(Seen<'_>) + Send;

/// The observer, if there is one, and the last written entries.
#[derive(Default)]
pub(crate) struct Tap {
    look: Option<Box<Look>>,
    /// The most entries that are kept.
    limit: usize,
    written: VecDeque<Written>,
}

impl core::fmt::Debug for Tap {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(if self.look.is_some() { "Tap(used)" } else { "Tap(unused)" })
    }
}

impl Tap {
    /// Sets the function that is called for each occurrence from now on.
    pub(crate) fn set(&mut self, look: impl FnMut(Seen<'_>) + Send + 'static) {
        self.look = Some(Box::new(look));
    }

    /// Keeps the last `limit` completion entries from now on.
    pub(crate) fn keep(&mut self, limit: usize) {
        self.limit = limit;
        self.written.clear();
    }

    /// Returns the entries that are kept, oldest first.
    pub(crate) fn written(&self) -> impl Iterator<Item = &Written> {
        self.written.iter()
    }

    /// Shows an occurrence to the observer.
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
