//! What can go wrong, one type per phase: commands, configuration, posting, completion.
//!
//! All are small, `Copy`, and name the value and the limit. A refused request has changed nothing.

use crate::types::{BlockSize, Key, OutOfRange, Qpn};
use crate::wire::cqe::CqeOpcode;
use crate::wire::prm::command::{Opcode, Status};
use core::fmt;

/// A configuration that the device, the mkey or the queue cannot hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
#[non_exhaustive]
pub enum ConfigError {
    /// A number does not fit its field.
    OutOfRange(OutOfRange),
    /// A signature was given for an mkey that was created without one (R119).
    NotASignatureMkey,
    /// Crypto properties were given for an mkey that was created without them (R123).
    NotACryptoMkey,
    /// The device does not know this kind of signature (R102).
    SignatureUnsupported,
    /// The device does not know this block size (R97).
    BlockSizeUnsupported(BlockSize),
    /// A copy mask was given, but the domains do not have the same signature type and block size (R89, R90).
    CopyMaskNeedsSameStructure,
    /// Signatures in both domains with the cipher outside of them: no device does that (R172).
    BothSignaturesOutsideCipher,
    /// The layout has more entries than the mkey or the work request can hold (R37, R41, R52).
    TooManyEntries {
        /// Entries of the layout.
        entries: usize,
        /// Entries that fit.
        max: usize,
    },
    /// Layout and BSFs together exceed what the queue lets a work request carry (R173).
    BsfDoesNotFit {
        /// Bytes of entries and BSFs.
        bytes: usize,
        /// Bytes that fit.
        max: usize,
    },
    /// An mkey with a signature or crypto is limited to 2^32 - 1 bytes (R51).
    LengthOver32Bits {
        /// Bytes of memory that the layout maps.
        length: u64,
    },
    /// An engine that enciphers single data units cannot serve a longer mkey (R171).
    LengthOverDataUnit {
        /// Bytes of memory that the layout maps.
        length: u64,
        /// Bytes of one data unit.
        unit: u32,
    },
    /// A template was made for another mkey: another key, or an mkey under this key that can do something else.
    OtherMkey {
        /// The template's key.
        template: Key,
        /// The mkey's.
        mkey: Key,
    },
    /// A template does not have as many entries, BSFs or PSVs as its configuration takes.
    TemplateSize {
        /// Of which it has another number.
        what: &'static str,
        /// How many the template has.
        has: usize,
        /// How many the configuration takes.
        needed: usize,
    },
    /// A template's list layout has no such entry; an interleaved one has none that can be replaced.
    NoSuchEntry {
        /// The entry that was named.
        index: usize,
        /// Entries that there are.
        entries: usize,
    },
    /// The key's tag is not 0 and the device cannot change tags (M3).
    TagUpdateUnsupported {
        /// The tag.
        tag: u8,
    },
    /// The mkey's state is not known (after an invalidation, a failed queue, or a template whose part is to be written again), so
    /// this part must be given (R121, D16).
    StateUnknown {
        /// The part of [`crate::mkey::MkeyConfig`] that is missing.
        missing: &'static str,
    },
}

impl From<OutOfRange> for ConfigError {
    fn from(error: OutOfRange) -> Self {
        Self::OutOfRange(error)
    }
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::OutOfRange(error) => error.fmt(f),
            Self::NotASignatureMkey => f.write_str("the mkey was created without block signature"),
            Self::NotACryptoMkey => f.write_str("the mkey was created without crypto"),
            Self::SignatureUnsupported => f.write_str("the device does not support this signature type"),
            Self::BlockSizeUnsupported(size) => {
                write!(f, "the device does not support blocks of {} bytes", size.bytes())
            }
            Self::CopyMaskNeedsSameStructure => {
                f.write_str("a copy mask needs the same signature type and block size in both domains")
            }
            Self::BothSignaturesOutsideCipher => f.write_str(
                "signatures in both domains need the cipher around the enciphered one's signature",
            ),
            Self::TooManyEntries { entries, max } => {
                write!(
                    f,
                    "{entries} layout entries, {max} fit (an interleaved layout takes one for its header)"
                )
            }
            Self::BsfDoesNotFit { bytes, max } => {
                write!(f, "layout and BSFs take {bytes} bytes, {max} fit into a work request")
            }
            Self::LengthOver32Bits { length } => {
                write!(f, "{length} bytes are too long for an mkey with signature or crypto (32 bits)")
            }
            Self::LengthOverDataUnit { length, unit } => {
                write!(
                    f,
                    "{length} bytes exceed the data unit of {unit} bytes, the limit of this crypto engine"
                )
            }
            Self::OtherMkey { template, mkey } => {
                write!(
                    f,
                    "the template was made for another mkey, with key {template}, than this one with key {mkey}"
                )
            }
            Self::TemplateSize { what, has, needed } => {
                write!(f, "the configuration takes {needed} {what}, the template has {has}")
            }
            Self::NoSuchEntry { index, entries } => {
                write!(f, "entry {index} cannot be replaced: the template has {entries} list entries")
            }
            Self::TagUpdateUnsupported { tag } => {
                write!(f, "key tag {tag:#04x} given, but the device cannot change tags")
            }
            Self::StateUnknown { missing } => {
                write!(f, "the mkey's state is unknown: the configuration must give {missing}")
            }
        }
    }
}

impl core::error::Error for ConfigError {}

/// A request that could not be posted. Ring, counters and mkey state are as before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
#[non_exhaustive]
pub enum PostError {
    /// The configuration does not fit the mkey or the queue.
    Config(ConfigError),
    /// The ring has too few free blocks: take completions first.
    RingFull {
        /// Blocks of 64 bytes (receive queue: slots) that the request takes.
        needed: u32,
        /// Blocks that are free.
        free: u32,
    },
    /// The queue's limit of outstanding requests is reached: take completions first.
    TooManyRequests {
        /// Requests that this one counts for: the SET_PSVs of a signature count too.
        needed: u32,
        /// Requests that may still be posted.
        free: u32,
    },
    /// The request has more scatter entries than the queue allows.
    TooManySges {
        /// Entries given.
        sges: usize,
        /// Entries that fit.
        max: usize,
    },
    /// The inline data is longer than the queue allows.
    InlineTooLong {
        /// Bytes given.
        length: usize,
        /// Bytes that fit.
        max: usize,
    },
    /// The position from which requests were to be cancelled is not one of an outstanding request.
    NotOutstanding {
        /// The position, a block number modulo 2^16.
        counter: u16,
    },
}

impl From<ConfigError> for PostError {
    fn from(error: ConfigError) -> Self {
        Self::Config(error)
    }
}

impl fmt::Display for PostError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Config(error) => error.fmt(f),
            Self::RingFull { needed, free } => write!(f, "ring full: {needed} blocks needed, {free} free"),
            Self::TooManyRequests { needed, free } => {
                write!(f, "queue full: {needed} requests needed, {free} may be posted")
            }
            Self::TooManySges { sges, max } => write!(f, "{sges} scatter entries, {max} fit"),
            Self::InlineTooLong { length, max } => write!(f, "{length} bytes of inline data, {max} fit"),
            Self::NotOutstanding { counter } => write!(f, "no outstanding request begins at block {counter}"),
        }
    }
}

impl core::error::Error for PostError {}

/// Memory that cannot be a queue, or a queue pair that a table cannot take up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
#[non_exhaustive]
pub enum QueueError {
    /// The number of entries is not a power of two, or over the limit.
    Size {
        /// Entries given.
        entries: usize,
        /// The largest number allowed here.
        max: usize,
    },
    /// The largest inline data would make a work request longer than the device reads.
    InlineLimit {
        /// Bytes given.
        bytes: u32,
        /// The largest number allowed.
        max: u32,
    },
    /// A table of queue pairs has no room for another.
    TableFull {
        /// Queue pairs that it has room for.
        capacity: usize,
    },
    /// A table has a queue pair of this number.
    QpnInUse {
        /// Queue pair.
        qpn: Qpn,
    },
}

impl fmt::Display for QueueError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Size { entries, max } => {
                write!(
                    f,
                    "a queue of {entries} entries: a power of two up to {max}, the capacity of its type, is wanted"
                )
            }
            Self::InlineLimit { bytes, max } => {
                write!(f, "{bytes} bytes of inline data, {max} are the limit")
            }
            Self::TableFull { capacity } => write!(f, "the table is full with {capacity} queue pairs"),
            Self::QpnInUse { qpn } => write!(f, "the table already has a queue pair {qpn}"),
        }
    }
}

impl core::error::Error for QueueError {}

/// A completion entry that makes no sense, or whose queue pair, request or mkey is not there. It has been consumed; nothing else
/// has changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
#[non_exhaustive]
pub enum CompletionError {
    /// The opcode is not one of a completion.
    UnknownOpcode(CqeOpcode),
    /// The entry is compressed or carries data, which queues of this library must not be set up for (M43, M60).
    UnsupportedFormat {
        /// The format code.
        format: u8,
    },
    /// The router has no such queue pair: another's, or one that was removed.
    UnknownQueuePair {
        /// Queue pair.
        qpn: u32,
    },
    /// The queue pair has no outstanding request at this position.
    UnknownRequest {
        /// Queue pair.
        qpn: u32,
        /// Position in its queue.
        counter: u16,
    },
    /// A signature error names an mkey that nobody knows.
    UnknownMkey {
        /// Index of the mkey.
        index: u32,
    },
    /// Nothing arrived within the limit.
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

/// The mkey cannot be asked for signature errors, or what the device said of one makes no sense (`mlx5dv_mkey_check`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
#[non_exhaustive]
pub enum CheckError {
    /// The mkey was created without block signature (M15).
    NotASignatureMkey,
    /// The syndrome has none of the known bits, or the error is not of a block signature.
    Unintelligible {
        /// Raw syndrome.
        syndrome: u16,
        /// Raw signature type.
        sig_type: u8,
        /// Raw domain.
        domain: u8,
    },
}

impl fmt::Display for CheckError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::NotASignatureMkey => f.write_str("the mkey was created without block signature"),
            Self::Unintelligible { syndrome, sig_type, domain } => {
                write!(f, "signature error with syndrome {syndrome:#06x}, type {sig_type}, domain {domain}")
            }
        }
    }
}

impl core::error::Error for CheckError {}

/// A command that could not be encoded, or that the device refused, or whose reply makes no sense.
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
    /// The reply ends before what it has to say.
    ReplyTooShort {
        /// The command.
        command: Opcode,
        /// Bytes of the reply.
        length: usize,
        /// Bytes expected.
        needed: usize,
    },
    /// The device refused the command (M59).
    Status {
        /// The command.
        command: Opcode,
        /// Why, in general.
        status: Status,
        /// Why, as a number that the vendor can look up.
        syndrome: u32,
    },
    /// The device cannot do what the command asks for; it was not asked.
    Unsupported {
        /// The command.
        command: Opcode,
        /// What is missing.
        what: &'static str,
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
            Self::Unsupported { command, what } => write!(f, "{command}: the device has no {what}"),
        }
    }
}

impl core::error::Error for CommandError {}
