//! Commands that cannot be encoded, or that the device refuses.

use crate::wire::klm::Klm;
use crate::wire::prm::command::{Opcode, Status};
use core::fmt;

/// A command that could not be encoded, that the device refused, or whose reply is invalid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
#[non_exhaustive]
pub enum CommandError {
    /// The mailbox has no room for the request. Nothing was written.
    MailboxTooShort {
        /// The command.
        command: Opcode,
        /// Bytes of the mailbox.
        length: usize,
        /// Bytes of the request.
        needed: usize,
    },
    /// The reply is too short for its values.
    ReplyTooShort {
        /// The command.
        command: Opcode,
        /// Bytes of the reply.
        length: usize,
        /// Bytes expected.
        needed: usize,
    },
    /// The device refused the command.
    Status {
        /// The command.
        command: Opcode,
        /// The general reason.
        status: Status,
        /// The exact reason, as a number that the vendor can look up.
        syndrome: u32,
    },
    /// An address does not have the alignment that the device needs. Nothing was written.
    Misaligned {
        /// The object at the address.
        what: &'static str,
        /// The address.
        address: u64,
        /// The number of bytes that the address has to be a multiple of.
        alignment: u64,
    },
    /// Firmware takes no page at address 0. Nothing was written.
    PageAtZero,
    /// A bitmap of pages has fewer bits than there are pages. Nothing was written.
    BitmapTooShort {
        /// Words of 64 bits that it has.
        words: usize,
        /// Words that it needs.
        needed: u32,
    },
    /// A queue does not fit into its pages. Nothing was written.
    TooFewPages {
        /// Bytes of the pages.
        bytes: u64,
        /// Bytes of the queue.
        needed: u64,
    },
    /// The device gives back more pages than were asked for.
    TooManyPages {
        /// Pages of the reply.
        pages: u32,
        /// Pages that were asked for.
        asked: u32,
    },
    /// The device does not support the command or a part of it. The command was not sent.
    Unsupported {
        /// The command.
        command: Opcode,
        /// The ability that the device lacks.
        what: &'static str,
    },
    /// The command asks for more translation entries than an mkey of this device can have. The command was
    /// not sent.
    TooManyEntries {
        /// The command.
        command: Opcode,
        /// Entries asked for.
        entries: u32,
        /// The device's limit.
        max: u32,
    },
    /// An entry of a list has a length that the device does not accept. The command was not sent.
    EntryLength {
        /// The command.
        command: Opcode,
        /// The number of the entry.
        index: u32,
        /// The entry's length in bytes. The limit is [`crate::mkey::KlmEntry::MAX_BYTES`].
        length: u32,
    },
    /// The entries do not cover the space, or the space ends after address 2^64 - 1.
    SpaceLength {
        /// The command.
        command: Opcode,
        /// Bytes of the space.
        length: u64,
        /// The largest length that the space can have.
        max: u64,
    },
}

impl fmt::Display for CommandError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::MailboxTooShort { command, length, needed } => {
                write!(f, "{command}: a mailbox of {length} bytes, the request has {needed}")
            }
            Self::ReplyTooShort { command, length, needed } => {
                write!(f, "{command}: a reply of {length} bytes, {needed} were expected")
            }
            Self::Status { command, status, syndrome } => {
                write!(f, "{command} refused: {status}, syndrome {syndrome:#010x}")
            }
            Self::Misaligned { what, address, alignment } => {
                write!(f, "{what} at {address:#x}: its address is no multiple of {alignment}")
            }
            Self::PageAtZero => f.write_str("firmware takes no page at address 0"),
            Self::BitmapTooShort { words, needed } => {
                write!(f, "a bitmap of {words} words for pages, {needed} are needed")
            }
            Self::TooFewPages { bytes, needed } => {
                write!(f, "pages of {bytes} bytes in all, the queue has {needed}")
            }
            Self::TooManyPages { pages, asked } => {
                write!(f, "the device gives {pages} pages back, {asked} were asked for")
            }
            Self::Unsupported { command, what } => write!(f, "{command}: the device has no {what}"),
            Self::TooManyEntries { command, entries, max } => {
                write!(f, "{command}: {entries} translation entries, the device takes {max}")
            }
            Self::EntryLength { command, index, length } => {
                let max = Klm::MAX_BYTES;
                write!(f, "{command}: entry {index} has {length} bytes, an entry has 1 to {max}")
            }
            Self::SpaceLength { command, length, max } => {
                write!(f, "{command}: a space of {length} bytes, it can have {max}")
            }
        }
    }
}

impl core::error::Error for CommandError {}

/// Both halves of an AES-XTS key are the same ([`XtsKey`](super::XtsKey)).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct EqualHalves;

impl fmt::Display for EqualHalves {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("both halves of the AES-XTS key are the same")
    }
}

impl core::error::Error for EqualHalves {}
