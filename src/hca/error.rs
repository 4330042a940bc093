//! The errors of a command queue. On bare metal, a program sends commands to the device through this queue.

use crate::command::error::CommandError;
use crate::types::QueueError;
use crate::wire::prm::command::Opcode;
use crate::wire::prm::command_queue::DeliveryStatus;
use core::fmt;

/// Why a command failed on a device without a driver, or why its command queue cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
#[non_exhaustive]
pub enum CommandQueueError {
    /// The request cannot be encoded, the device refused it, or its reply is invalid.
    Command(CommandError),
    /// The number of mailbox blocks in the queue's memory is no power of two, or too large.
    Queue(QueueError),
    /// The firmware did not become ready in time.
    NotReady {
        /// How long the library waited for the firmware.
        milliseconds: u32,
    },
    /// The device has another revision of the command interface than the library supports.
    Revision {
        /// The device's revision of the command interface.
        found: u16,
        /// The revision that this library supports.
        known: u16,
    },
    /// The device reports a command queue that the library cannot use: it has more than 32 entries, its
    /// entries need more than one page, or an entry has fewer than 64 bytes.
    Layout {
        /// Base-2 logarithm of the number of entries.
        log_size: u8,
        /// Base-2 logarithm of the distance in bytes from one entry to the next.
        log_stride: u8,
    },
    /// Request and reply do not fit into the queue's memory. Nothing was sent to the device.
    TooManyBlocks {
        /// The command.
        command: Opcode,
        /// Number of mailbox blocks that the command needs.
        needed: u32,
        /// Number of mailbox blocks in the queue's memory.
        blocks: u32,
    },
    /// The device could not read the command, or could not write its reply.
    Delivery {
        /// The command.
        command: Opcode,
        /// The reason that the device reports.
        status: DeliveryStatus,
    },
    /// The token, the block number or the signature in a reply is wrong (checked only with
    /// [`verify_replies`](crate::hca::CommandQueueConfig::verify_replies)).
    Reply {
        /// The command.
        command: Opcode,
    },
    /// The device did not answer in time. The queue sends no further commands ([`Self::Lost`]).
    TimedOut {
        /// The command.
        command: Opcode,
        /// How long the library waited for the reply.
        milliseconds: u32,
    },
    /// An earlier command timed out. The device may still write its reply to the queue's memory, so the queue
    /// sends no further commands.
    Lost,
    /// The firmware wants more pages than the source of pages ([`PageSource`](crate::hca::PageSource)) has.
    NoPages {
        /// Number of pages that the firmware still wants.
        wanted: u32,
    },
    /// Either the firmware keeps pages that it should give back, or it wants pages for a third PCI function
    /// while it has pages for two. The library can record no more than two functions.
    PagesKept {
        /// Number of pages that the firmware has or may have. The number includes pages that were sent to the
        /// firmware, but whose receipt the firmware did not confirm.
        pages: u32,
    },
    /// The firmware gave back a page that does not come from the [`PageSource`](crate::hca::PageSource), or
    /// that it had already given back.
    ForeignPage {
        /// The page's address, as the firmware reported it.
        address: u64,
    },
}

impl From<CommandError> for CommandQueueError {
    fn from(error: CommandError) -> Self {
        Self::Command(error)
    }
}

impl From<QueueError> for CommandQueueError {
    fn from(error: QueueError) -> Self {
        Self::Queue(error)
    }
}

impl fmt::Display for CommandQueueError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Command(error) => error.fmt(f),
            Self::Queue(error) => error.fmt(f),
            Self::NotReady { milliseconds } => write!(f, "the firmware is not ready after {milliseconds} ms"),
            Self::Revision { found, known } => {
                write!(f, "the command interface has revision {found}, this library knows {known}")
            }
            Self::Layout { log_size, log_stride } => {
                write!(f, "2^{log_size} command entries, 2^{log_stride} bytes apart: 2^12 is a page")
            }
            Self::TooManyBlocks { command, needed, blocks } => {
                write!(f, "{command}: {needed} blocks needed, the command queue has {blocks}")
            }
            Self::Delivery { command, status } => write!(f, "{command} was not delivered: {status}"),
            Self::Reply { command } => {
                write!(f, "{command}: token, number or signature of the reply is wrong")
            }
            Self::TimedOut { command, milliseconds } => {
                write!(f, "{command}: no answer within {milliseconds} ms")
            }
            Self::Lost => f.write_str("the command queue is lost: a command timed out before"),
            Self::NoPages { wanted } => write!(f, "the firmware wants {wanted} pages, there are not enough"),
            Self::PagesKept { pages } => write!(f, "the firmware keeps {pages} pages"),
            Self::ForeignPage { address } => {
                write!(f, "the firmware gives back a page that it does not have, at {address:#x}")
            }
        }
    }
}

impl core::error::Error for CommandQueueError {}
