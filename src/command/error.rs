//! The errors of commands: the command cannot be encoded, the device refuses it, or its reply is invalid.

use crate::wire::klm::Klm;
use crate::wire::prm::command::{Opcode, Status};
use core::fmt;

/// Why a command failed: it could not be encoded, the device refused it, or its reply is invalid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
#[non_exhaustive]
pub enum CommandError {
    /// The mailbox has no room for the request. Nothing was written.
    MailboxTooShort {
        /// The command.
        command: Opcode,
        /// Length of the mailbox in bytes.
        length: usize,
        /// Length of the request in bytes.
        needed: usize,
    },
    /// The reply is too short for the fields that the command reads.
    ReplyTooShort {
        /// The command.
        command: Opcode,
        /// Length of the reply in bytes.
        length: usize,
        /// Number of bytes that the reply needs.
        needed: usize,
    },
    /// The device refused the command.
    Status {
        /// The command.
        command: Opcode,
        /// The general reason.
        status: Status,
        /// The exact reason, as a number that only the vendor can interpret.
        syndrome: u32,
    },
    /// An address lacks the alignment that the device needs. Nothing was written.
    Misaligned {
        /// The kind of object at the address, such as "page" or "doorbell record".
        what: &'static str,
        /// The address.
        address: u64,
        /// The number of bytes that the address has to be a multiple of.
        alignment: u64,
    },
    /// A page for the firmware begins at address 0, which the firmware does not accept. Nothing was written.
    PageAtZero,
    /// The bitmap of a [`PageRange`](crate::hca::PageRange) has fewer bits than there are pages. Nothing was
    /// written.
    BitmapTooShort {
        /// Number of 64-bit words of the bitmap.
        words: usize,
        /// Number of 64-bit words that the pages need.
        needed: u32,
    },
    /// A queue does not fit into its pages. Nothing was written.
    TooFewPages {
        /// Length of all pages in bytes.
        bytes: u64,
        /// Length of the queue in bytes.
        needed: u64,
    },
    /// The firmware's reply gives back more pages than the command asked for.
    TooManyPages {
        /// Number of pages in the reply.
        pages: u32,
        /// Number of pages that the command asked for.
        asked: u32,
    },
    /// The device does not support the command or a part of it. The command was not sent.
    Unsupported {
        /// The command.
        command: Opcode,
        /// The ability that the device lacks, in words.
        what: &'static str,
    },
    /// The command asks for more translation entries than an mkey of this device can have. The command was
    /// not sent.
    TooManyEntries {
        /// The command.
        command: Opcode,
        /// Number of entries that the command asks for.
        entries: u32,
        /// Largest number of entries that the device allows.
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
    /// The length of an mkey's space is 0 or more than the length of its entries, or the space ends after
    /// address 2^64 - 1. The command was not sent.
    SpaceLength {
        /// The command.
        command: Opcode,
        /// Length of the space in bytes.
        length: u64,
        /// The largest length that the space can have.
        max: u64,
    },
    /// The device gave a new object the number of an object that exists. The new object is destroyed.
    NumberInUse {
        /// The command.
        command: Opcode,
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
            Self::NumberInUse { command } => {
                write!(f, "{command}: the device gave the number of an object that exists")
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
