//! Errors of the core, one type per phase: commands, configuration, posting, completion.
//!
//! All error types are small, `Copy`, and name the value and the limit. A refused request has changed
//! nothing.
//!
//! ```
//! use mlx5_mkey::error::PostError;
//! /// Returns whether the request can be posted after completions were taken. The queue has a ring of
//! /// `blocks` blocks and at most `max_requests` outstanding requests. Other errors are faults of the
//! /// program.
//! fn is_temporary(error: &PostError, blocks: u16, max_requests: u32) -> bool {
//!     match *error {
//!         PostError::SendRingFull { needed, .. } => needed <= blocks,
//!         PostError::TooManyRequests { needed, .. } => u32::from(needed) <= max_requests,
//!         PostError::ReceiveRingFull { .. } => true,
//!         _ => false,
//!     }
//! }
//! assert!(is_temporary(&PostError::SendRingFull { needed: 5, free: 1 }, 64, 64));
//! assert!(!is_temporary(&PostError::SendRingFull { needed: 5, free: 4 }, 4, 64));
//! assert!(!is_temporary(&PostError::SgeEmpty { index: 0 }, 64, 64));
//! ```

use crate::types::{BlockSize, DomainKind, KsmEntrySize, Qpn};
use crate::wire::MAX_WQE_OCTOWORDS;
use crate::wire::cqe::CqeOpcode;
use crate::wire::data::DataSegment;
use crate::wire::klm::Klm;
use crate::wire::prm::command::{Opcode, Status};
use crate::wire::prm::command_queue::DeliveryStatus;
use crate::wire::umr::UmrControlSegment;
use core::fmt;

/// A part of a configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub enum ConfigPart {
    /// [`crate::mkey::MkeyConfig::access`].
    Access,
    /// The layout, which is given with the request.
    Layout,
    /// [`crate::mkey::MkeyConfig::signature`], set or reset.
    Signature,
    /// [`crate::mkey::MkeyConfig::crypto`].
    Crypto,
}

impl fmt::Display for ConfigPart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Access => "access",
            Self::Layout => "a layout",
            Self::Signature => "a signature (set or reset)",
            Self::Crypto => "crypto properties",
        })
    }
}

/// A configuration that the device, the mkey or the queue cannot hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
#[non_exhaustive]
pub enum ConfigError {
    /// A signature was given for an mkey that was created without one.
    NotASignatureMkey,
    /// Crypto properties were given for an mkey that was created without them.
    NotACryptoMkey,
    /// The device does not know this kind of signature.
    SignatureUnsupported,
    /// The device does not know this block size.
    BlockSizeUnsupported(BlockSize),
    /// A copy mask was given, but the domains do not have the same signature type and block size.
    CopyMaskNeedsSameStructure,
    /// Signatures in both domains, with the cipher outside of them: no device supports that.
    BothSignaturesOutsideCipher,
    /// A digest and AES-XTS in one mkey: the device lacks it.
    DigestWithXtsUnsupported,
    /// A digest with AES-XTS has to be over the ciphertext of its domain. A digest on the wire needs
    /// encryption when sending, and signatures after encryption. A digest in memory needs decryption when
    /// sending, and signatures before decryption. No device is known to support other forms.
    DigestNotOverCiphertext,
    /// The layout of an mkey with a digest has no room for data beside the digest.
    DigestWithoutData {
        /// The length that the layout maps, in bytes.
        length: u8,
    },
    /// A prepared configuration sets no digest.
    NoDigest,
    /// A configuration was prepared for another kind of mkey ([`crate::mkey::MkeyKind`]).
    OtherKind,
    /// The mkey was created for another form of entries: entries that all have one length (KSM), entries that
    /// each have their own length, or entries of another common length. An mkey for entries of one length
    /// takes only lists in registered memory.
    OtherEntries {
        /// The length of the layout's entries, if they all have one.
        layout: Option<KsmEntrySize>,
        /// The length of the mkey's entries, if they all have one.
        mkey: Option<KsmEntrySize>,
    },
    /// An mkey for entries of one length cannot have signature or crypto: no source shows one.
    EntriesWithBsf,
    /// A prepared configuration sets no T10-DIF in this domain.
    NoT10Dif(DomainKind),
    /// A prepared configuration sets no crypto properties.
    NoCrypto,
    /// The layout has more entries than the mkey or the work request can hold.
    TooManyEntries {
        /// Entries that fit.
        max: u32,
    },
    /// The space of an mkey with signature or crypto has to begin at 0.
    StartWithBsf,
    /// The space of an mkey or of a memory window would end after address 2^64 - 1.
    SpaceBehindEnd,
    /// The mkey has no list layout in force that could be changed: it has no layout yet, an unknown layout,
    /// or an interleaved layout.
    NoList,
    /// The list in force came in a request. Only a list from registered memory can be appended to.
    ListInRequest,
    /// The list of an mkey with signature or crypto has BSFs behind it, and cannot be appended to: no source
    /// shows that.
    AppendWithBsf,
    /// An interleaved layout in registered memory can only replace a whole layout, not entries of a list.
    InterleavedInList,
    /// A memory window is bound: it has to be invalidated before it is bound anew.
    WindowBound,
    /// A memory window is not bound: there is nothing to invalidate.
    WindowNotBound,
    /// A memory window is bound by another queue pair. Only that queue pair can invalidate it.
    WindowOfOtherQueuePair {
        /// The number of that queue pair.
        qpn: u32,
    },
    /// A list in registered memory begins at an address that the device does not accept
    /// ([`RegisteredList::ALIGNMENT`](crate::mkey::RegisteredList::ALIGNMENT)).
    ListAddress {
        /// Bytes from the last allowed address to this address.
        past: u16,
    },
    /// The first entry is not at the beginning of a block of 4. Entries of a list are replaced and appended
    /// in blocks of 4.
    EntryInBlock {
        /// The first entry that was to be written.
        first: u32,
    },
    /// Layout and BSFs together exceed the queue's limit for a work request.
    BsfDoesNotFit {
        /// Bytes of entries and BSFs.
        bytes: u32,
        /// Bytes that fit.
        max: u16,
    },
    /// An entry of a list layout has no bytes, or more than [`crate::mkey::KlmEntry::MAX_BYTES`].
    EntryLength {
        /// The number of the entry, counted from 0.
        index: u16,
        /// The entry's length in bytes.
        length: u32,
    },
    /// The stride of an entry of an interleaved layout, `bytes + skip`, has more than 16 bits.
    StrideOver16Bits {
        /// The number of the entry, counted from 0.
        index: u16,
        /// The entry's stride in bytes.
        stride: u32,
    },
    /// An mkey with a signature or crypto is limited to 2^32 - 1 bytes.
    LengthOver32Bits {
        /// The length that the layout maps, in MiB, or `u32::MAX`.
        mebibytes: u32,
    },
    /// The mkey is longer than a data unit, and the engine encrypts only one data unit per mkey.
    LengthOverDataUnit {
        /// Bytes that the layout maps, or `u32::MAX`.
        length: u32,
        /// One data unit.
        unit: BlockSize,
    },
    /// The cipher covers the signature of each block, so a data unit has to be a block with its signature.
    /// With another size, data units would begin within blocks, and a part of the data could not be read
    /// ([`PreparedConfig::with_any_data_unit`](crate::wqe::PreparedConfig::with_any_data_unit)).
    DataUnitNotBlock {
        /// Bytes of a block with its signature.
        block: u32,
        /// The data unit.
        unit: BlockSize,
    },
    /// The key's tag is not 0 and the device cannot change tags.
    TagUpdateUnsupported {
        /// The tag.
        tag: u8,
    },
    /// The mkey's state is not known (the mkey was invalidated, or its queue failed), so this part must be
    /// given.
    StateUnknown {
        /// The part that is missing.
        missing: ConfigPart,
    },
}

impl ConfigError {
    /// Refuses a space that ends after address 2^64 - 1.
    pub(crate) const fn check_space(start: u64, length: u64) -> Result<(), Self> {
        if length.saturating_sub(1) > u64::MAX - start { Err(Self::SpaceBehindEnd) } else { Ok(()) }
    }

    /// Refuses more than `max` entries.
    pub(crate) fn check_entries(entries: usize, max: usize) -> Result<(), Self> {
        if entries <= max {
            return Ok(());
        }
        Err(Self::TooManyEntries { max: u32::try_from(max).unwrap_or(u32::MAX) })
    }
}

/// Prints the length of entries in words.
struct EntryLengths(Option<KsmEntrySize>);

impl fmt::Display for EntryLengths {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            None => f.write_str("of their own lengths"),
            Some(size) => write!(f, "of {} bytes each", size.bytes()),
        }
    }
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::NotASignatureMkey => f.write_str("the mkey was created without block signature"),
            Self::NotACryptoMkey => f.write_str("the mkey was created without crypto"),
            Self::SignatureUnsupported => f.write_str("the device does not support this signature type"),
            Self::BlockSizeUnsupported(size) => {
                write!(f, "the device does not support blocks of {} bytes", size.bytes())
            }
            Self::CopyMaskNeedsSameStructure => {
                f.write_str("a copy mask needs the same signature type and block size in both domains")
            }
            Self::BothSignaturesOutsideCipher => {
                f.write_str("signatures in both domains need the cipher around the encrypted one's signature")
            }
            Self::DigestWithXtsUnsupported => {
                f.write_str("the device does not support a digest and AES-XTS in one mkey")
            }
            Self::DigestNotOverCiphertext => {
                f.write_str("a digest with AES-XTS must be over the ciphertext of its domain")
            }
            Self::DigestWithoutData { length } => {
                write!(f, "a digest needs data beside it: the layout maps {length} bytes")
            }
            Self::NoDigest => f.write_str("no digest is set"),
            Self::OtherKind => f.write_str("the configuration was prepared for another kind of mkey"),
            Self::OtherEntries { layout, mkey } => write!(
                f,
                "the layout has entries {}, the mkey is for entries {}",
                EntryLengths(layout),
                EntryLengths(mkey)
            ),
            Self::EntriesWithBsf => {
                f.write_str("an mkey for entries of one length has no signature or crypto")
            }
            Self::NoT10Dif(DomainKind::Wire) => f.write_str("no T10-DIF is set on the wire"),
            Self::NoT10Dif(DomainKind::Memory) => f.write_str("no T10-DIF is set in memory"),
            Self::NoCrypto => f.write_str("no crypto properties are set"),
            Self::TooManyEntries { max } => {
                write!(
                    f,
                    "too many layout entries: {max} fit (an interleaved layout takes one for its header)"
                )
            }
            Self::StartWithBsf => f.write_str("the space of an mkey with signature or crypto begins at 0"),
            Self::SpaceBehindEnd => f.write_str("the space would end behind address 2^64 - 1"),
            Self::NoList => f.write_str("the mkey has no list that could be changed"),
            Self::ListInRequest => f.write_str("a list that came in a request is not appended to"),
            Self::AppendWithBsf => f.write_str("an mkey with signature or crypto has its list at once"),
            Self::InterleavedInList => f.write_str("an interleaved layout is no part of a list"),
            Self::WindowBound => f.write_str("the memory window is bound: invalidate it first"),
            Self::WindowNotBound => f.write_str("the memory window is not bound"),
            Self::WindowOfOtherQueuePair { qpn } => {
                write!(f, "queue pair {qpn:#x} has bound the memory window, and alone can invalidate it")
            }
            Self::ListAddress { past } => {
                let alignment = UmrControlSegment::POINTER_ALIGNMENT;
                write!(f, "the list begins {past} bytes behind a multiple of {alignment}")
            }
            Self::EntryInBlock { first } => {
                write!(f, "entry {first} is not the first in a block of 4, as which entries are written")
            }
            Self::BsfDoesNotFit { bytes, max } => {
                write!(f, "layout and BSFs take {bytes} bytes, {max} fit into a work request")
            }
            Self::EntryLength { index, length } => {
                write!(f, "layout entry {index} has {length} bytes: 1 to {} are allowed", Klm::MAX_BYTES)
            }
            Self::StrideOver16Bits { index, stride } => {
                write!(f, "layout entry {index} has a stride of {stride} bytes: {} is the most", u16::MAX)
            }
            Self::LengthOver32Bits { mebibytes } => {
                write!(f, "{mebibytes} MiB are too long for an mkey with signature or crypto (32 bits)")
            }
            Self::LengthOverDataUnit { length, unit } => {
                write!(
                    f,
                    "{length} bytes exceed the data unit of {} bytes, the limit of this crypto engine",
                    unit.bytes()
                )
            }
            Self::DataUnitNotBlock { block, unit } => write!(
                f,
                "a data unit has {} bytes, and a block with its signature inside the cipher {block}",
                unit.bytes()
            ),
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

/// A request that could not be posted. Posted requests, counters and mkey state are as before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
#[non_exhaustive]
pub enum PostError {
    /// The configuration does not fit the mkey or the queue.
    Config(ConfigError),
    /// The send queue's ring has too few free blocks: take completions first. If the whole ring has fewer
    /// than `needed` blocks, the request never fits.
    SendRingFull {
        /// Blocks of 64 bytes that the request takes.
        needed: u16,
        /// Blocks that are free.
        free: u16,
    },
    /// The receive queue's ring has no free slot for the request: take completions first.
    ReceiveRingFull {
        /// Slots of the ring.
        slots: u16,
    },
    /// The send queue's limit of outstanding requests is reached: take completions first. Where the limit is
    /// below `needed`, the request never fits.
    TooManyRequests {
        /// Requests that this request counts as: the SET_PSVs of a signature count too.
        needed: u16,
        /// Requests that may still be posted.
        free: u16,
    },
    /// The request has more data segments than the queue allows.
    TooManySges {
        /// Entries given, or `u16::MAX`.
        sges: u16,
        /// Entries that fit.
        max: u16,
    },
    /// A data segment has no bytes.
    SgeEmpty {
        /// The number of the segment, counted from 0.
        index: u16,
    },
    /// A data segment has more than [`crate::wqe::Sge::MAX_BYTES`].
    SgeTooLong {
        /// The number of the segment, counted from 0.
        index: u16,
        /// The segment's length in MiB.
        mebibytes: u16,
    },
    /// The inline data is longer than the queue allows.
    InlineTooLong {
        /// Bytes given, or `u16::MAX`.
        length: u16,
        /// Bytes that fit.
        max: u16,
    },
    /// The control segment of a request that the caller built has an invalid size: 0, or over 63 octowords.
    RawSize {
        /// The size in the control segment, in octowords of 16 bytes.
        octowords: u8,
    },
    /// A request that the caller built is shorter than its control segment says, or shorter than a control
    /// segment.
    RawTooShort {
        /// Bytes that the request needs.
        needed: u16,
        /// Bytes given.
        have: u16,
    },
    /// The queue was made for a queue pair without copies in memory.
    MemcpyUnsupported,
    /// A copy in memory has no bytes.
    MemcpyEmpty,
    /// A copy in memory is longer than the device's limit.
    MemcpyTooLong {
        /// The copy's length in MiB, rounded up.
        mebibytes: u16,
        /// Logarithm of the device's limit in bytes.
        log_max: u8,
    },
    /// The position from which requests were to be cancelled is not one of an outstanding request.
    NotOutstanding {
        /// The position, a block number modulo 2^16.
        counter: u16,
    },
    /// A handle names nothing that is in use in this pool.
    Pool(PoolError),
}

// A larger error would be returned through memory, which would slow down posting even without errors.
const _: () = assert!(size_of::<PostError>() <= 8);

impl From<ConfigError> for PostError {
    fn from(error: ConfigError) -> Self {
        Self::Config(error)
    }
}

impl From<PoolError> for PostError {
    fn from(error: PoolError) -> Self {
        Self::Pool(error)
    }
}

impl fmt::Display for PostError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Config(error) => error.fmt(f),
            Self::SendRingFull { needed, free } => {
                write!(f, "send ring full: {needed} blocks needed, {free} free")
            }
            Self::ReceiveRingFull { slots } => write!(f, "receive ring full: none of {slots} slots is free"),
            Self::TooManyRequests { needed, free } => {
                write!(f, "send queue full: {needed} requests needed, {free} may be posted")
            }
            Self::TooManySges { sges, max } => write!(f, "{sges} data segments, {max} fit"),
            Self::SgeEmpty { index } => write!(f, "data segment {index} has no bytes"),
            Self::SgeTooLong { index, mebibytes } => {
                write!(
                    f,
                    "data segment {index} has {mebibytes} MiB: {} bytes are the most",
                    DataSegment::MAX_BYTES
                )
            }
            Self::InlineTooLong { length, max } => write!(f, "{length} bytes of inline data, {max} fit"),
            Self::RawSize { octowords } => write!(
                f,
                "the control segment says {octowords} octowords: 1 to {MAX_WQE_OCTOWORDS} are allowed"
            ),
            Self::RawTooShort { needed, have } => {
                write!(f, "the request says that it has {needed} bytes: {have} are given")
            }
            Self::MemcpyUnsupported => f.write_str("the queue pair does not copy in memory"),
            Self::MemcpyEmpty => f.write_str("a copy in memory has no bytes"),
            Self::MemcpyTooLong { mebibytes, log_max } => {
                write!(f, "a copy in memory of {mebibytes} MiB: 2^{log_max} bytes are the most")
            }
            Self::NotOutstanding { counter } => write!(f, "no outstanding request begins at block {counter}"),
            Self::Pool(error) => error.fmt(f),
        }
    }
}

impl core::error::Error for PostError {}

/// Memory that cannot be a queue, or a queue pair that a table cannot take up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
#[non_exhaustive]
pub enum QueueError {
    /// The number of entries is not a power of two, or exceeds the limit.
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
                    "a queue of {entries} entries: a power of two up to {max}, the capacity of its type, is \
                     wanted"
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

/// Polling found a completion entry that is malformed, or whose queue pair, request or mkey is unknown. The
/// entry has been consumed; nothing else has changed. Only [`CompletionError::TimedOut`] concerns no entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
#[non_exhaustive]
pub enum CompletionError {
    /// The opcode is not that of a completion.
    UnknownOpcode(CqeOpcode),
    /// The entry is compressed or carries data, which queues of this library must not be set up for.
    UnsupportedFormat {
        /// The format code.
        format: u8,
    },
    /// The router does not have the queue pair. It belongs to another router, or it was removed.
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
    /// A signature error names an mkey that the router does not have. The queue keeps the error until the
    /// mkey is asked ([`CompletionQueue::check`](crate::queue::CompletionQueue::check)).
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

/// The mkey cannot be asked for signature errors, or the device's report of an error is unintelligible
/// (`mlx5dv_mkey_check`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
#[non_exhaustive]
pub enum CheckError {
    /// The mkey was created without block signature.
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
    /// More errors arrived for mkeys that were in no router than a completion queue can keep. So the data of
    /// any mkey may be wrong.
    ErrorsLost,
}

impl fmt::Display for CheckError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::NotASignatureMkey => f.write_str("the mkey was created without block signature"),
            Self::Unintelligible { syndrome, sig_type, domain } => {
                write!(f, "signature error with syndrome {syndrome:#06x}, type {sig_type}, domain {domain}")
            }
            Self::ErrorsLost => f.write_str("signature errors were lost: no router had their mkeys"),
        }
    }
}

impl core::error::Error for CheckError {}

/// An mkey or a memory window cannot be put back, or a handle names none that is in use
/// ([`MkeyPool`](crate::queue::MkeyPool), [`WindowPool`](crate::queue::WindowPool)). The pool is as before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
#[non_exhaustive]
pub enum PoolError {
    /// The handle belongs to another pool.
    OtherPool,
    /// The mkey or window of the handle was put back or removed.
    NotInUse,
    /// The key is in service, or may be: no completion proves that the device has executed the request that
    /// takes the key out of service.
    KeyInService,
    /// A pool was to be made of more elements than its type has room for.
    TooMany,
}

impl fmt::Display for PoolError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::OtherPool => "the handle is of another pool",
            Self::NotInUse => "what the handle names was put back or removed: it is not in use",
            Self::KeyInService => "the key may still be in service",
            Self::TooMany => "more elements than the pool has room for",
        })
    }
}

impl core::error::Error for PoolError {}

/// Both halves of an AES-XTS key are the same ([`crate::command::XtsKey`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct EqualHalves;

impl fmt::Display for EqualHalves {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("both halves of the AES-XTS key are the same")
    }
}

impl core::error::Error for EqualHalves {}

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

/// A command failed on a device without a driver, or the device's command queue does not meet the
/// requirements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
#[non_exhaustive]
pub enum CommandQueueError {
    /// The request cannot be encoded, the device refused it, or its reply is invalid.
    Command(CommandError),
    /// The number of blocks in the queue's memory is not allowed.
    Queue(QueueError),
    /// The firmware is not ready.
    NotReady {
        /// How long it was waited for.
        milliseconds: u32,
    },
    /// The command interface has another revision.
    Revision {
        /// The device's revision.
        found: u16,
        /// The revision that this library knows.
        known: u16,
    },
    /// The size or number of the device's entries does not fit into a page.
    Layout {
        /// Logarithm of the number of entries.
        log_size: u8,
        /// Logarithm of the bytes from one entry to the next.
        log_stride: u8,
    },
    /// Request and reply do not fit into the queue's memory. Nothing was done.
    TooManyBlocks {
        /// The command.
        command: Opcode,
        /// Blocks that the command needs.
        needed: u32,
        /// Blocks of the queue's memory.
        blocks: u32,
    },
    /// The device could not read the command, or could not write its reply. The status tells whether the
    /// command was carried out.
    Delivery {
        /// The command.
        command: Opcode,
        /// The reason.
        status: DeliveryStatus,
    },
    /// Token, number or signature of a reply is wrong.
    Reply {
        /// The command.
        command: Opcode,
    },
    /// The device did not answer in time. The queue is lost.
    TimedOut {
        /// The command.
        command: Opcode,
        /// How long it was waited for.
        milliseconds: u32,
    },
    /// A command timed out before: the device may still write to the queue's memory.
    Lost,
    /// The firmware wants more pages than the source has.
    NoPages {
        /// Pages that it still wants.
        wanted: u32,
    },
    /// The firmware keeps pages.
    PagesKept {
        /// Pages that the firmware has or may have. It may have pages whose transfer it did not confirm.
        pages: u32,
    },
    /// The firmware gave back a page that it did not get from this source, or that was already back.
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
