//! Configurations, checks and handles of mkeys that are refused.

use crate::types::{BlockSize, DomainKind, KsmEntrySize};
use crate::wire::klm::Klm;
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
