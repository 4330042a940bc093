//! Errors of configurations of mkeys, of checks for signature errors, and of pools.

use crate::types::{BlockSize, DomainKind, KsmEntrySize};
use crate::wire::klm::Klm;
use crate::wire::umr::UmrControlSegment;
use core::fmt;

/// The part of a configuration that an error names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub enum ConfigPart {
    /// The access rights, [`crate::mkey::MkeyConfig::access`].
    Access,
    /// The layout, which is given with the request.
    Layout,
    /// The signature, which [`crate::mkey::MkeyConfig::signature`] sets or resets.
    Signature,
    /// The crypto properties, [`crate::mkey::MkeyConfig::crypto`].
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

/// The length that all entries of a list have, or `None` if each entry has its own. `Display` prints the
/// words for the text of an error.
struct EntryLengths(Option<KsmEntrySize>);

impl fmt::Display for EntryLengths {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            None => f.write_str("of their own lengths"),
            Some(size) => write!(f, "of {} bytes each", size.bytes()),
        }
    }
}

/// Why a configuration of an mkey was refused: it does not fit the device, the mkey or the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
#[non_exhaustive]
pub enum ConfigError {
    /// A signature or a digest was given for an mkey that was created without signature.
    NotASignatureMkey,
    /// Crypto properties were given for an mkey that was created without crypto.
    NotACryptoMkey,
    /// The device does not support a kind of signature that the configuration sets.
    SignatureUnsupported,
    /// The device does not support this block size.
    BlockSizeUnsupported(BlockSize),
    /// A copy mask was given, but the domains do not have the same signature type and block size.
    CopyMaskNeedsSameStructure,
    /// Both domains have a signature, and the signature of the domain with ciphertext is outside the cipher.
    /// No device supports this combination.
    BothSignaturesOutsideCipher,
    /// The device does not support a digest together with AES-XTS in one mkey.
    DigestWithXtsUnsupported,
    /// The digest of an mkey with AES-XTS does not cover ciphertext. A digest on the wire needs encryption
    /// when sending, and signatures after encryption. A digest in memory needs decryption when sending, and
    /// signatures before decryption. Devices are known to support these two forms only.
    DigestNotOverCiphertext,
    /// The layout of an mkey with a digest has no room for data beside the digest.
    DigestWithoutData {
        /// The length that the layout maps, in bytes.
        length: u8,
    },
    /// The digest of a prepared configuration was to be changed, but the configuration sets none.
    NoDigest,
    /// The configuration was prepared for another kind of mkey ([`crate::mkey::MkeyKind`]).
    OtherKind,
    /// The entries of the layout are not of the form that the mkey was created for. There are two forms:
    /// entries that all have one length (KSM), which must be the mkey's, and entries with lengths of their
    /// own. An mkey for entries of one length accepts only lists in registered memory.
    OtherEntries {
        /// The length of the layout's entries, if they all have one.
        layout: Option<KsmEntrySize>,
        /// The length of the mkey's entries, if they all have one.
        mkey: Option<KsmEntrySize>,
    },
    /// The kind of mkey combines entries of one length (KSM) with signature or crypto. No source shows that
    /// devices support this combination.
    EntriesWithBsf,
    /// A tag of a prepared configuration was to be changed, but the configuration sets no T10-DIF in this
    /// domain.
    NoT10Dif(DomainKind),
    /// Tweak or DEK of a prepared configuration were to be changed, but the configuration sets no crypto
    /// properties.
    NoCrypto,
    /// The layout has more entries than the mkey or the work request can hold.
    TooManyEntries {
        /// Largest number of entries that fits.
        max: u32,
    },
    /// A start address other than 0 was given for an mkey with signature or crypto.
    StartWithBsf,
    /// The space of an mkey or of a memory window would end after address 2^64 - 1.
    SpaceBehindEnd,
    /// The mkey has no list layout in force that could be changed: it has no layout yet, an unknown layout,
    /// or an interleaved layout.
    NoList,
    /// Entries were to be appended to a list that came in a request. Only a list from registered memory can
    /// be appended to.
    ListInRequest,
    /// Entries were to be appended to the list of an mkey with signature or crypto. BSFs stand behind this
    /// list, and no source shows that devices support this request.
    AppendWithBsf,
    /// An interleaved layout was to replace entries of a list, or to be appended to a list. An interleaved
    /// layout can only replace a whole layout.
    InterleavedInList,
    /// The memory window is bound already. It has to be invalidated before it is bound anew.
    WindowBound,
    /// The memory window to invalidate is not bound.
    WindowNotBound,
    /// The memory window was bound by another queue pair. Only that queue pair can invalidate the window.
    WindowOfOtherQueuePair {
        /// The number of the queue pair that bound the window.
        qpn: u32,
    },
    /// The address of a list in registered memory is no multiple of
    /// [`RegisteredList::ALIGNMENT`](crate::mkey::RegisteredList::ALIGNMENT).
    ListAddress {
        /// Number of bytes by which the address exceeds the last multiple of the alignment.
        past: u16,
    },
    /// The number of the first entry to replace or to append is no multiple of 4. Entries of a list are
    /// replaced and appended in blocks of 4.
    EntryInBlock {
        /// Number of the first entry that was to be written.
        first: u32,
    },
    /// Layout and BSFs together exceed the queue's limit for a work request.
    BsfDoesNotFit {
        /// Number of bytes of entries and BSFs.
        bytes: u32,
        /// Largest number of bytes that fits.
        max: u16,
    },
    /// The length of an entry of a list layout is 0 or more than [`crate::mkey::KlmEntry::MAX_BYTES`].
    EntryLength {
        /// The number of the entry, counted from 0.
        index: u16,
        /// The entry's length in bytes.
        length: u32,
    },
    /// The cycles of an interleaved layout in registered memory map 2^62 bytes or more.
    LengthOver62Bits {
        /// The length of all cycles in units of 2^50 bytes, rounded down.
        pebibytes: u16,
    },
    /// The stride of an entry of an interleaved layout, `bytes + skip`, has more than 16 bits.
    StrideOver16Bits {
        /// The number of the entry, counted from 0.
        index: u16,
        /// The entry's stride in bytes.
        stride: u32,
    },
    /// The layout maps more than 2^32 - 1 bytes, the limit of an mkey with signature or crypto.
    LengthOver32Bits {
        /// The length that the layout maps, in MiB, at most `u32::MAX`.
        mebibytes: u32,
    },
    /// The layout maps more than one data unit, and the engine encrypts only one data unit per mkey.
    LengthOverDataUnit {
        /// Number of bytes that the layout maps, at most `u32::MAX`.
        length: u32,
        /// Length of a data unit.
        unit: BlockSize,
    },
    /// The cipher covers the signature of each block, but a data unit is not a block with its signature. Data
    /// units would begin within blocks, and transfers could not begin at each block.
    /// [`PreparedConfig::with_any_data_unit`](crate::wqe::PreparedConfig::with_any_data_unit) accepts the
    /// data unit.
    DataUnitNotBlock {
        /// Length of a block with its signature, in bytes.
        block: u32,
        /// Length of a data unit.
        unit: BlockSize,
    },
    /// The tag of the key is not 0, and the device cannot change tags.
    TagUpdateUnsupported {
        /// The tag of the key.
        tag: u8,
    },
    /// The state of the mkey is unknown, because it was invalidated or its queue failed, and the
    /// configuration leaves out a part. In this state, a configuration must have all parts.
    StateUnknown {
        /// The part that the configuration leaves out.
        missing: ConfigPart,
    },
}

impl ConfigError {
    /// Checks that a space of `length` bytes from address `start` on ends by address 2^64 - 1.
    pub(crate) const fn check_space(start: u64, length: u64) -> Result<(), Self> {
        if length.saturating_sub(1) > u64::MAX - start { Err(Self::SpaceBehindEnd) } else { Ok(()) }
    }

    /// Checks that there are at most `max` entries.
    pub(crate) fn check_entries(entries: usize, max: usize) -> Result<(), Self> {
        if entries <= max {
            return Ok(());
        }
        Err(Self::TooManyEntries { max: u32::try_from(max).unwrap_or(u32::MAX) })
    }
}

impl fmt::Display for ConfigError {
    #[expect(clippy::too_many_lines, reason = "one sentence for each variant")]
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
            Self::LengthOver62Bits { pebibytes } => {
                write!(
                    f,
                    "{pebibytes} PiB are too long for an mkey: less than 4096 PiB (62 bits) are allowed"
                )
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

/// Why a check for signature errors has no answer: the mkey has no signature, reports were lost, or the
/// device's report is unintelligible (`mlx5dv_mkey_check`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
#[non_exhaustive]
pub enum CheckError {
    /// The mkey was created without block signature.
    NotASignatureMkey,
    /// The report of the device has an unknown syndrome, or does not match the signature in force.
    Unintelligible {
        /// The syndrome in the report.
        syndrome: u16,
        /// The type of signature in the report.
        sig_type: u8,
        /// The domain in the report.
        domain: u8,
    },
    /// The completion queue had to drop reports: more errors arrived for mkeys that no router contained than
    /// the queue can store. The data of any mkey may be wrong. Checks return this error until
    /// [`CompletionQueue::forget_lost_errors`](crate::queue::CompletionQueue::forget_lost_errors).
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

/// Why a pool refused a handle, an mkey or a memory window ([`MkeyPool`](crate::queue::MkeyPool),
/// [`WindowPool`](crate::queue::WindowPool)). The pool is as before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
#[non_exhaustive]
pub enum PoolError {
    /// The handle belongs to another pool.
    OtherPool,
    /// The mkey or window of the handle was put back or removed.
    NotInUse,
    /// The key may still be valid: no completion proves that the device has executed the request that
    /// invalidates the key.
    KeyInService,
}

impl fmt::Display for PoolError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::OtherPool => "the handle is of another pool",
            Self::NotInUse => "what the handle names was put back or removed: it is not in use",
            Self::KeyInService => "the key may still be in service",
        })
    }
}

impl core::error::Error for PoolError {}
