//! The error of polling: a completion entry was refused, or no completion arrived in time.

use crate::wire::cqe::CqeOpcode;
use core::fmt;

/// Polling found a completion entry that is malformed, or whose queue pair, request or mkey is unknown. The
/// entry has been consumed; nothing else has changed. Only [`CompletionError::TimedOut`] concerns no entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
#[non_exhaustive]
pub enum CompletionError {
    /// The opcode is not that of a completion.
    UnknownOpcode(CqeOpcode),
    /// The entry is compressed or carries data. Queues for this library must be created so that the device
    /// writes neither.
    UnsupportedFormat {
        /// The format code of the entry.
        format: u8,
    },
    /// The router does not have the queue pair. It belongs to another router, or it was removed.
    UnknownQueuePair {
        /// Number of the queue pair.
        qpn: u32,
    },
    /// The queue pair has no outstanding request at this position.
    UnknownRequest {
        /// Number of the queue pair.
        qpn: u32,
        /// Position in the send or receive queue, modulo 2^16 (`wqe_counter` of the entry).
        counter: u16,
    },
    /// A signature error names an mkey that the router does not have. The queue keeps the error until the
    /// mkey is checked ([`CompletionQueue::check`](crate::queue::CompletionQueue::check)).
    UnknownMkey {
        /// Index of the mkey.
        index: u32,
    },
    /// No completion arrived within the caller's limit of attempts.
    TimedOut,
}

impl fmt::Display for CompletionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::UnknownOpcode(opcode) => write!(f, "completion with {opcode}"),
            Self::UnsupportedFormat { format } => write!(f, "completion entry in format {format}"),
            Self::UnknownQueuePair { qpn } => write!(f, "completion of unknown queue pair {qpn:#x}"),
            Self::UnknownRequest { qpn, counter } => {
                write!(f, "completion of queue pair {qpn:#x}, position {counter}: no such request")
            }
            Self::UnknownMkey { index } => write!(f, "signature error of unknown mkey index {index:#x}"),
            Self::TimedOut => f.write_str("no completion within the limit"),
        }
    }
}

impl core::error::Error for CompletionError {}
