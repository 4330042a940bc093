//! Types of numbers that cannot hold a wrong value.
//!
//! For example, object numbers have 24 bits, and there are five block sizes. The constructor of each type
//! checks the limit, and all later code relies on this check.
//!
//! ```
//! use mlx5_mkey::types::{BlockSize, Key, MkeyIndex, Qpn, Tweak};
//! assert_eq!(Qpn::new(0x0100_0000).unwrap_err().to_string(), "queue pair number 16777216: 0 to 16777215 is allowed");
//! assert_eq!(Key::new(MkeyIndex::new(0x1234)?, 0x56).get(), 0x1234_56);
//! assert_eq!(BlockSize::from_bytes(4096), Some(BlockSize::B4096));
//! assert_eq!(Tweak::from_lba(0x1000).get(), 0x1000);
//! # Ok::<(), mlx5_mkey::types::OutOfRange>(())
//! ```

use core::fmt;
use zerocopy::{Immutable, IntoBytes};

/// A number is outside of the range that its field allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct OutOfRange {
    /// The name of the number, such as "queue pair number".
    pub what: &'static str,
    /// The number that the caller gave.
    pub value: u64,
    /// The smallest number allowed.
    pub min: u64,
    /// The largest number allowed.
    pub max: u64,
}

impl fmt::Display for OutOfRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}: {} to {} is allowed", self.what, self.value, self.min, self.max)
    }
}

impl core::error::Error for OutOfRange {}

/// Why a queue, or a pool of mkeys or memory windows, cannot be created from the given memory and settings;
/// or why a table of queue pairs cannot accept a queue pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
#[non_exhaustive]
pub enum QueueError {
    /// A size is not a power of two, or exceeds its limit.
    Size {
        /// Name of the size: unit and queue, such as "blocks of a send queue".
        what: &'static str,
        /// The size that the caller gave, in the unit that `what` names.
        entries: usize,
        /// Largest size allowed, in the same unit.
        max: usize,
    },
    /// The caller gave fewer slots than the queue's ring has entries, or than the pool has elements. A slot
    /// holds the library's own record of one entry or element.
    TooFewSlots {
        /// Name of the slots, such as "slots of a send queue".
        what: &'static str,
        /// Number of slots that are needed, one for each entry of the ring or each element of the pool.
        needed: usize,
        /// Number of slots that the caller gave.
        slots: usize,
    },
    /// A pool of memory windows was to be created, but one of the windows is bound.
    WindowBound {
        /// The key of the bound window.
        key: Key,
    },
    /// The configured maximum of inline data would make a work request longer than the device accepts.
    InlineLimit {
        /// The maximum of inline data that the caller configured, in bytes.
        bytes: u32,
        /// Largest length allowed, in bytes.
        max: u32,
    },
    /// A table of queue pairs has no room for another queue pair.
    TableFull {
        /// Number of queue pairs that the table has room for.
        capacity: usize,
    },
    /// A table of queue pairs already has a queue pair of this number.
    QpnInUse {
        /// The number of the queue pair.
        qpn: Qpn,
    },
}

impl fmt::Display for QueueError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Size { what, entries, max } => {
                write!(f, "{entries} {what}: a power of two up to {max} is wanted")
            }
            Self::TooFewSlots { what, needed, slots } => write!(f, "{slots} {what}, {needed} are needed"),
            Self::WindowBound { key } => write!(f, "the window {key} is bound"),
            Self::InlineLimit { bytes, max } => {
                write!(f, "{bytes} bytes of inline data, {max} are the limit")
            }
            Self::TableFull { capacity } => write!(f, "the table is full with {capacity} queue pairs"),
            Self::QpnInUse { qpn } => write!(f, "the table already has a queue pair {qpn}"),
        }
    }
}

impl core::error::Error for QueueError {}

/// The largest 24-bit number.
const MAX_24: u32 = 0x00ff_ffff;

macro_rules! number24 {
    ($(#[$doc:meta])* $name:ident, $what:literal) => {
        $(#[$doc])*
        ///
        /// ```
        #[doc = concat!("use mlx5_mkey::types::", stringify!($name), ";")]
        #[doc = concat!("assert_eq!(", stringify!($name), "::new(0x1234)?.get(), 0x1234);")]
        #[doc = concat!("assert!(", stringify!($name), "::new(0x0100_0000).is_err());")]
        /// # Ok::<(), mlx5_mkey::types::OutOfRange>(())
        /// ```
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
        #[cfg_attr(feature = "defmt", derive(defmt::Format))]
        pub struct $name(u32);

        impl $name {
            /// Creates the value from a number below 2^24.
            ///
            /// # Errors
            /// [`OutOfRange`] for a number of more than 24 bits.
            pub const fn new(value: u32) -> Result<Self, OutOfRange> {
                if value > MAX_24 {
                    return Err(OutOfRange { what: $what, value: value as u64, min: 0, max: MAX_24 as u64 });
                }
                Ok(Self(value))
            }

            /// Creates the value from the low 24 bits of a word.
            pub const fn from_low_bits(word: u32) -> Self {
                Self(word & MAX_24)
            }

            /// Returns the number, which is below 2^24.
            pub const fn get(self) -> u32 {
                self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{:#x}", self.0)
            }
        }
    };
}

number24! {
    /// The number of a queue pair (PRM `qpn`, 24 bits).
    Qpn, "queue pair number"
}
number24! {
    /// The number of a completion queue (PRM `cqn`, 24 bits).
    Cqn, "completion queue number"
}
number24! {
    /// The index of an mkey, a part of its key (PRM `mkey_index`, 24 bits). CREATE_MKEY returns the index,
    /// and completions for signature errors contain it.
    MkeyIndex, "mkey index"
}
number24! {
    /// The index of a protection signature value (PRM `psv_index`, 24 bits).
    PsvIndex, "PSV index"
}
number24! {
    /// The number by which mkeys name a DEK, the device's object for an encryption key (PRM `encryption_key`
    /// object, 24 bits).
    ///
    /// The object id that the device returns for a DEK has 32 bits; a BSF contains the low 24 bits.
    /// [`DekId::from_low_bits`] accepts the whole id.
    DekId, "DEK id"
}

/// The key of an mkey or of a memory region, as work requests contain it: a 24-bit index and an 8-bit tag
/// (PRM `mkey`, `lkey` and `rkey`).
///
/// ```
/// use mlx5_mkey::types::{Key, MkeyIndex};
/// let key = Key::new(MkeyIndex::new(0x1234)?, 0x56);
/// assert_eq!(key.get(), 0x0012_3456);
/// # Ok::<(), mlx5_mkey::types::OutOfRange>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default, IntoBytes, Immutable)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
#[repr(transparent)]
pub struct Key(pub(crate) u32);

impl Key {
    /// Creates a key from its index and its tag.
    pub const fn new(index: MkeyIndex, tag: u8) -> Self {
        Self(index.0 << 8 | tag as u32)
    }

    /// Creates a key from the number by which verbs and other libraries know it: `index << 8 | tag`.
    pub const fn from_raw(raw: u32) -> Self {
        Self(raw)
    }

    /// Returns the key as a number: `index << 8 | tag`.
    pub const fn get(self) -> u32 {
        self.0
    }

    /// Returns the index, which names the mkey object.
    pub const fn index(self) -> MkeyIndex {
        MkeyIndex(self.0 >> 8)
    }

    /// Returns the tag, the part that the key's owner may change.
    pub const fn tag(self) -> u8 {
        self.0 as u8
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#010x}", self.0)
    }
}

/// The number of data bytes in a block that has a signature, without the signature itself; or the size of a
/// data unit of AES-XTS (`enum mlx5dv_block_size`, and DPDK's unit of 1 MiB).
///
/// The value of each variant is the code in a BSF (PRM `bs_selector`).
///
/// ```
/// use mlx5_mkey::mkey::{Domain, Signature};
/// use mlx5_mkey::types::{BlockSize, Seed};
/// let domain = Domain { signature: Signature::Crc32c(Seed::Ones), block_size: BlockSize::B4096 };
/// assert_eq!(domain.stride(), 4100);
/// assert_eq!(BlockSize::from_bytes(520), Some(BlockSize::B520));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
#[repr(u8)]
pub enum BlockSize {
    /// Blocks or data units of 512 bytes.
    B512 = 1,
    /// Blocks or data units of 520 bytes.
    B520 = 2,
    /// Blocks or data units of 4048 bytes. Devices without the capability `block_4048` refuse this size.
    B4048 = 6,
    /// Blocks or data units of 4096 bytes.
    B4096 = 3,
    /// Blocks or data units of 4160 bytes.
    B4160 = 4,
    /// Data units of 1 MiB, for AES-XTS only. Posting refuses this size for blocks with a signature
    /// ([`ConfigError::BlockSizeUnsupported`](crate::error::ConfigError::BlockSizeUnsupported)).
    ///
    /// DPDK's driver knows the code as 1 MiB; a comment in the kernel calls the same code 1 GiB. For mkeys of
    /// at most 1 MiB, both meanings have the same effect.
    MIB1 = 5,
}

impl BlockSize {
    /// All sizes of blocks with a signature, smallest first.
    pub const ALL: [Self; 5] = [Self::B512, Self::B520, Self::B4048, Self::B4096, Self::B4160];
    /// All sizes of data units, smallest first.
    pub const UNITS: [Self; 6] = [Self::B512, Self::B520, Self::B4048, Self::B4096, Self::B4160, Self::MIB1];

    /// Returns the size in bytes.
    pub const fn bytes(self) -> u32 {
        match self {
            Self::B512 => 512,
            Self::B520 => 520,
            Self::B4048 => 4048,
            Self::B4096 => 4096,
            Self::B4160 => 4160,
            Self::MIB1 => 1 << 20,
        }
    }

    /// Returns the code that a BSF carries (PRM `bs_selector`).
    pub const fn selector(self) -> u8 {
        self as u8
    }

    /// Returns the size for a code of a BSF, `None` for 0 and for unknown codes.
    pub const fn from_selector(selector: u8) -> Option<Self> {
        match selector {
            1 => Some(Self::B512),
            2 => Some(Self::B520),
            3 => Some(Self::B4096),
            4 => Some(Self::B4160),
            5 => Some(Self::MIB1),
            6 => Some(Self::B4048),
            _ => None,
        }
    }

    /// Returns the size that has this number of bytes, `None` if there is none.
    pub const fn from_bytes(bytes: u32) -> Option<Self> {
        match bytes {
            512 => Some(Self::B512),
            520 => Some(Self::B520),
            4048 => Some(Self::B4048),
            4096 => Some(Self::B4096),
            4160 => Some(Self::B4160),
            0x10_0000 => Some(Self::MIB1),
            _ => None,
        }
    }
}

/// The length of each entry of a list whose entries all have the same length (KSM): a power of two from 4 KiB
/// to 2 GiB.
///
/// ```
/// use mlx5_mkey::types::KsmEntrySize;
/// assert_eq!(KsmEntrySize::new(2 << 20)?.bytes(), 2 << 20);
/// assert!(KsmEntrySize::new(3 << 20).is_err());
/// # Ok::<(), mlx5_mkey::types::OutOfRange>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct KsmEntrySize(u8);

impl KsmEntrySize {
    /// The smallest length of an entry in bytes (DPDK `MLX5_MIN_KLM_FIXED_BUFFER_SIZE`).
    pub const MIN: u32 = 1 << 12;
    /// The largest length of an entry in bytes.
    pub const MAX: u32 = 1 << 31;

    /// Creates the value from a length in bytes.
    ///
    /// # Errors
    /// [`OutOfRange`] for a length outside of [`KsmEntrySize::MIN`] to [`KsmEntrySize::MAX`], and for a
    /// length that is no power of two.
    pub const fn new(bytes: u32) -> Result<Self, OutOfRange> {
        if bytes < Self::MIN || bytes > Self::MAX || !bytes.is_power_of_two() {
            return Err(OutOfRange {
                what: "bytes of each entry (a power of two)",
                value: bytes as u64,
                min: Self::MIN as u64,
                max: Self::MAX as u64,
            });
        }
        Ok(Self(bytes.trailing_zeros() as u8))
    }

    /// Returns the length in bytes.
    pub const fn bytes(self) -> u32 {
        1 << self.0
    }

    /// Returns the base-2 logarithm of the length, as in the device's field (PRM `log_entity_size`).
    pub(crate) const fn log(self) -> u8 {
        self.0
    }
}

/// One of the two domains of an mkey: memory, or the wire.
///
/// ```
/// use mlx5_mkey::mkey::{BlockSignature, Domain, Signature};
/// use mlx5_mkey::types::{BlockSize, DomainKind, Seed};
/// let domain = Domain { signature: Signature::Crc32(Seed::Ones), block_size: BlockSize::B512 };
/// let signature = BlockSignature::wire(domain);
/// assert_eq!(signature.domain(DomainKind::Wire), Some(domain));
/// assert_eq!(signature.domain(DomainKind::Memory), None);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub enum DomainKind {
    /// The memory domain: the bytes as they are in memory.
    Memory,
    /// The wire domain: the bytes as they cross the network.
    Wire,
}

/// The start value of a CRC, or of the guard of a T10-DIF. The device supports two.
///
/// ```
/// use mlx5_mkey::mkey::Signature;
/// use mlx5_mkey::types::Seed;
/// // The CRC32C of iSCSI starts with all bits 1.
/// let signature = Signature::Crc32c(Seed::Ones);
/// assert_eq!(signature.bytes(), 4);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub enum Seed {
    /// All bits of the start value are 0.
    Zeros,
    /// All bits of the start value are 1.
    Ones,
}

/// The fence that the device needs on a request after an mkey change, so that the request uses the changed
/// mkey (PRM `umr_fence`).
///
/// ```
/// use mlx5_mkey::command::GeneralCapabilities;
/// use mlx5_mkey::queue::SendQueueConfig;
/// use mlx5_mkey::types::Qpn;
/// /// Returns the configuration of a queue with the fence that its device needs.
/// fn config(qpn: Qpn, device: &GeneralCapabilities) -> SendQueueConfig {
///     SendQueueConfig { umr_fence: device.umr_fence, ..SendQueueConfig::new(qpn) }
/// }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub enum UmrFence {
    /// The device needs the strong fence.
    Strong,
    /// The device needs the small fence. The reference provider sets the small fence on all devices.
    Small,
    /// The device needs no fence, because it keeps the order by itself.
    None,
}

/// The tweak of the first data unit, a 128-bit number: normally the LBA of the first block (IEEE 1619).
///
/// The device adds one for each further data unit. The byte order of the tweak in the BSF depends on the
/// engine ([`crate::mkey::XtsEngine`]); this library chooses it.
///
/// ```
/// use mlx5_mkey::types::Tweak;
/// assert_eq!(Tweak::from_lba(5), Tweak::from_le_bytes([5, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]));
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Tweak {
    /// The bytes of the number, highest first.
    big_endian: [u8; 16],
}

impl Tweak {
    /// Creates the tweak from the logical block address of the first data unit.
    pub const fn from_lba(lba: u64) -> Self {
        Self::new(lba as u128)
    }

    /// Creates the tweak from a 128-bit number.
    pub const fn new(value: u128) -> Self {
        Self { big_endian: value.to_be_bytes() }
    }

    /// Creates the tweak from 16 bytes in little endian, as in `mlx5dv_crypto_attr.initial_tweak`.
    pub const fn from_le_bytes(bytes: [u8; 16]) -> Self {
        Self::new(u128::from_le_bytes(bytes))
    }

    /// Returns the tweak as a number.
    pub const fn get(self) -> u128 {
        u128::from_be_bytes(self.big_endian)
    }
}

impl fmt::Debug for Tweak {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The code of `core` that prints a `u128` contains a panic, which this library avoids. So the number
        // is printed in two halves of 64 bits.
        write!(f, "Tweak(0x{:016x}{:016x})", (self.get() >> 64) as u64, self.get() as u64)
    }
}

#[cfg(feature = "defmt")]
impl defmt::Format for Tweak {
    fn format(&self, f: defmt::Formatter<'_>) {
        defmt::write!(f, "Tweak({=u128:#x})", self.get());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_end_at_24_bits() {
        assert_eq!(PsvIndex::new(0x00ff_ffff).map(PsvIndex::get), Ok(0x00ff_ffff));
        let error = PsvIndex::new(0x0100_0000);
        assert_eq!(
            error,
            Err(OutOfRange { what: "PSV index", value: 0x0100_0000, min: 0, max: 0x00ff_ffff })
        );
    }

    #[test]
    fn selectors_and_sizes_agree() {
        for size in BlockSize::UNITS {
            assert_eq!(BlockSize::from_selector(size.selector()), Some(size));
            assert_eq!(BlockSize::from_bytes(size.bytes()), Some(size));
            assert_eq!(size.bytes() % 8, 0, "a multiple of 8");
        }
        assert_eq!(BlockSize::from_selector(0), None);
        assert_eq!(BlockSize::from_selector(7), None);
        assert!(!BlockSize::ALL.contains(&BlockSize::MIB1), "a data unit, and no block");
    }
}
