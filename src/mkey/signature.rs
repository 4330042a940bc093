//! Block signatures, which are integrity fields after each block of data in memory, on the wire, or in both.

use super::Digest;
use crate::mkey::error::ConfigError;
use crate::types::{BlockSize, DomainKind, Seed};
use core::fmt;

/// Masks of a signature's bytes to check or to copy (`enum mlx5dv_sig_mask`). Bit 7 selects the first byte.
/// Masks other than these constants are allowed too.
///
/// ```
/// use mlx5_mkey::mkey::{BlockSignature, check_mask};
/// /// For a peer with a numbering of its own for reference tags: the tags are not checked.
/// fn without_ref_tags(signature: BlockSignature) -> BlockSignature {
///     signature.with_check_mask(check_mask::T10DIF_GUARD | check_mask::T10DIF_APP_TAG)
/// }
/// ```
pub mod check_mask {
    /// Mask of the guard of a T10-DIF.
    pub const T10DIF_GUARD: u8 = 0xc0;
    /// Mask of the application tag of a T10-DIF.
    pub const T10DIF_APP_TAG: u8 = 0x30;
    /// Mask of the reference tag of a T10-DIF.
    pub const T10DIF_REF_TAG: u8 = 0x0f;
    /// Mask of a CRC of 32 bits. Assumption: bit 7 is the first byte in memory for the little-endian CRC32C
    /// too.
    pub const CRC32: u8 = 0xf0;
    /// Mask of a CRC of 64 bits.
    pub const CRC64: u8 = 0xff;
    /// Mask of the whole signature, whatever its kind.
    pub const ALL: u8 = 0xff;
}

/// The contents of the guard field of a T10-DIF (`enum mlx5dv_sig_t10dif_bg_type`).
///
/// ```
/// use mlx5_mkey::mkey::{Guard, T10Dif};
/// /// For a host that computes guards in software, where a checksum is quicker than a CRC.
/// fn with_checksum(dif: T10Dif) -> T10Dif {
///     T10Dif { guard: Guard::IpChecksum, ..dif }
/// }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub enum Guard {
    /// CRC-16 with polynomial 8BB7 (T10 SBC-3).
    Crc,
    /// The Internet checksum (RFC 1071).
    IpChecksum,
}

/// Selects blocks of a T10-DIF domain that pass unchecked.
///
/// ```
/// use mlx5_mkey::mkey::{Escape, T10Dif};
/// /// For a volume whose blocks have the application tag FFFF until they are first written.
/// fn skipping_unwritten(dif: T10Dif) -> T10Dif {
///     T10Dif { escape: Escape::AppTag, ..dif }
/// }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub enum Escape {
    /// No block passes unchecked.
    Never,
    /// Blocks with application tag FFFF pass unchecked (`MLX5DV_SIG_T10DIF_FLAG_APP_ESCAPE`).
    AppTag,
    /// Blocks with application tag FFFF and reference tag FFFFFFFF pass unchecked
    /// (`MLX5DV_SIG_T10DIF_FLAG_APP_REF_ESCAPE`). In the reference provider, this flag has priority over
    /// `MLX5DV_SIG_T10DIF_FLAG_APP_ESCAPE`.
    AppAndRefTag,
}

/// T10-DIF protection information, 8 bytes big endian: guard 2, application tag 2, reference tag 4
/// (`struct mlx5dv_sig_t10dif`, T10 SBC-3).
///
/// ```
/// use mlx5_mkey::mkey::{Escape, Guard, Signature, T10Dif};
/// use mlx5_mkey::types::Seed;
/// let lba = 0x1_0000_1000_u64;
/// let dif = T10Dif {
///     guard: Guard::Crc,
///     seed: Seed::Zeros,
///     app_tag: 0xf11e,
///     ref_tag: lba as u32,
///     ref_remap: true, // the next block has reference tag 0x1001
///     escape: Escape::Never,
/// };
/// assert_eq!(Signature::T10Dif(dif).bytes(), 8);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct T10Dif {
    /// The contents of the guard field.
    pub guard: Guard,
    /// The start value of the guard in each block.
    pub seed: Seed,
    /// The application tag to generate or to check.
    pub app_tag: u16,
    /// The reference tag of the first block: normally the low half of its LBA.
    pub ref_tag: u32,
    /// Whether the reference tag grows by one for each block (`MLX5DV_SIG_T10DIF_FLAG_REF_REMAP`).
    pub ref_remap: bool,
    /// Selects the blocks that pass unchecked.
    pub escape: Escape,
}

/// A kind of signature with its parameters (`enum mlx5dv_sig_type`, `enum mlx5dv_sig_crc_type`).
///
/// ```
/// use mlx5_mkey::mkey::Signature;
/// use mlx5_mkey::types::Seed;
/// assert_eq!(Signature::Crc32c(Seed::Ones).bytes(), 4);
/// assert_eq!(Signature::Crc64Xp10(Seed::Ones).bytes(), 8);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub enum Signature {
    /// T10-DIF, 8 bytes.
    T10Dif(T10Dif),
    /// CRC-32 as in Fibre Channel (FC-PH), 4 bytes.
    Crc32(Seed),
    /// CRC-32C as in iSCSI (RFC 3720), 4 bytes.
    Crc32c(Seed),
    /// CRC-64 as in Microsoft XP10, 8 bytes.
    Crc64Xp10(Seed),
}

impl Signature {
    /// Returns the size of the signature in bytes.
    pub const fn bytes(&self) -> u32 {
        match self {
            Self::Crc32(_) | Self::Crc32c(_) => 4,
            Self::T10Dif(_) | Self::Crc64Xp10(_) => 8,
        }
    }

    /// Returns whether both signatures are of one kind. Parameters may differ.
    const fn same_kind(&self, other: &Self) -> bool {
        matches!(
            (self, other),
            (Self::T10Dif(_), Self::T10Dif(_))
                | (Self::Crc32(_), Self::Crc32(_))
                | (Self::Crc32c(_), Self::Crc32c(_))
                | (Self::Crc64Xp10(_), Self::Crc64Xp10(_))
        )
    }
}

/// The signature of one domain and the size of the blocks that it protects (`struct
/// mlx5dv_sig_block_domain`).
///
/// ```
/// use mlx5_mkey::mkey::{Domain, Signature};
/// use mlx5_mkey::types::{BlockSize, Seed};
/// let memory = Domain { signature: Signature::Crc64Xp10(Seed::Ones), block_size: BlockSize::B4096 };
/// assert_eq!(memory.stride(), 4104);
/// // For another kind of signature, the device computes all bytes anew, and copies none.
/// let wire = Domain { signature: Signature::Crc32c(Seed::Ones), ..memory };
/// assert!(!memory.same_structure(&wire));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct Domain {
    /// Kind and parameters of the signature.
    pub signature: Signature,
    /// Number of data bytes in each block.
    pub block_size: BlockSize,
}

impl Domain {
    /// Returns the length of a block with its signature, in bytes.
    pub const fn stride(&self) -> u32 {
        self.block_size.bytes() + self.signature.bytes()
    }

    /// Returns whether both domains have the same kind of signature and the same block size. Only then the
    /// device can copy bytes of a signature from one domain to the other.
    pub const fn same_structure(&self, other: &Self) -> bool {
        self.block_size.bytes() == other.block_size.bytes() && self.signature.same_kind(&other.signature)
    }
}

/// The block signature of an mkey: in memory, on the wire, or in both domains (`struct
/// mlx5dv_sig_block_attr`).
///
/// The device checks and strips the signature of the domain that data comes from. It adds the signature of
/// the domain that data goes to.
///
/// ```
/// use mlx5_mkey::mkey::{BlockSignature, Domain, Signature};
/// use mlx5_mkey::types::{BlockSize, Seed};
/// // In memory, a CRC32 follows each 512 bytes of data. The wire carries only the data.
/// let domain = Domain { signature: Signature::Crc32(Seed::Ones), block_size: BlockSize::B512 };
/// let signature = BlockSignature::memory(domain);
/// assert_eq!(signature.wire_bytes(516 * 3), Some(512 * 3));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct BlockSignature {
    memory: Option<Signature>,
    wire: Option<Signature>,
    // Block sizes are stored apart from the signatures, so that the struct has 32 bytes only: posting a
    // request copies it into the mkey's state.
    memory_block: BlockSize,
    wire_block: BlockSize,
    check_mask: u8,
    copy_mask: Option<u8>,
}

impl BlockSignature {
    /// Returns a signature in memory only. The device strips it on the way to the wire, and adds it on the
    /// way to memory.
    pub const fn memory(domain: Domain) -> Self {
        Self::new(Some(domain), None)
    }

    /// Returns a signature on the wire only. The device adds it on the way to the wire, and strips it on the
    /// way to memory.
    pub const fn wire(domain: Domain) -> Self {
        Self::new(None, Some(domain))
    }

    /// Returns signatures in both domains. The device copies the bytes of a signature that both domains have
    /// in common ([`BlockSignature::effective_copy_mask`]), and computes all others anew.
    pub const fn both(memory: Domain, wire: Domain) -> Self {
        Self::new(Some(memory), Some(wire))
    }

    const fn new(memory: Option<Domain>, wire: Option<Domain>) -> Self {
        let (memory, memory_block) = Self::parts(memory);
        let (wire, wire_block) = Self::parts(wire);
        Self { memory, wire, memory_block, wire_block, check_mask: check_mask::ALL, copy_mask: None }
    }

    const fn parts(domain: Option<Domain>) -> (Option<Signature>, BlockSize) {
        match domain {
            Some(Domain { signature, block_size }) => (Some(signature), block_size),
            None => (None, BlockSize::B512),
        }
    }

    /// Makes the device check only the bytes of an incoming signature whose bits are set in `mask`
    /// ([`check_mask`]).
    #[must_use]
    pub const fn with_check_mask(self, mask: u8) -> Self {
        Self { check_mask: mask, ..self }
    }

    /// Makes the device copy the bytes of the signature whose bits are set in `mask`, and compute the other
    /// bytes. Without this call, the mask follows from the parameters of both domains
    /// ([`BlockSignature::effective_copy_mask`]).
    ///
    /// # Errors
    /// [`ConfigError::CopyMaskNeedsSameStructure`] unless both domains have a signature of the same kind and
    /// the same block size.
    pub const fn with_copy_mask(self, mask: u8) -> Result<Self, ConfigError> {
        match (self.memory_domain(), self.wire_domain()) {
            (Some(memory), Some(wire)) if memory.same_structure(&wire) => {
                Ok(Self { copy_mask: Some(mask), ..self })
            }
            _ => Err(ConfigError::CopyMaskNeedsSameStructure),
        }
    }

    /// Returns signature and block size in memory, `None` without a signature in memory.
    pub const fn memory_domain(&self) -> Option<Domain> {
        match self.memory {
            Some(signature) => Some(Domain { signature, block_size: self.memory_block }),
            None => None,
        }
    }

    /// Returns signature and block size on the wire, `None` without a signature on the wire.
    pub const fn wire_domain(&self) -> Option<Domain> {
        match self.wire {
            Some(signature) => Some(Domain { signature, block_size: self.wire_block }),
            None => None,
        }
    }

    /// Returns signature and block size in a domain, `None` without a signature in this domain.
    pub const fn domain(&self, kind: DomainKind) -> Option<Domain> {
        match kind {
            DomainKind::Memory => self.memory_domain(),
            DomainKind::Wire => self.wire_domain(),
        }
    }

    /// Returns the parameters of a domain's T10-DIF, to change them; `None` for a domain without T10-DIF.
    #[inline]
    pub(crate) const fn t10dif_mut(&mut self, kind: DomainKind) -> Option<&mut T10Dif> {
        let signature = match kind {
            DomainKind::Memory => &mut self.memory,
            DomainKind::Wire => &mut self.wire,
        };
        match signature {
            Some(Signature::T10Dif(dif)) => Some(dif),
            _ => None,
        }
    }

    /// Returns whether both domains have a signature.
    #[inline]
    pub(crate) const fn is_in_both(&self) -> bool {
        self.memory.is_some() && self.wire.is_some()
    }

    /// Returns the mask of the bytes of an incoming signature that the device checks.
    pub const fn check_mask(&self) -> u8 {
        self.check_mask
    }

    /// Returns the copy mask that the user gave, if any.
    pub const fn copy_mask(&self) -> Option<u8> {
        self.copy_mask
    }

    /// Returns the mask of the signature's bytes that the device copies from one domain to the other. Returns
    /// `None` if the domains differ in structure, or one has no signature.
    ///
    /// Without a mask from the user, the device copies a whole CRC. Of a T10-DIF, it copies the parts whose
    /// parameters agree.
    pub const fn effective_copy_mask(&self) -> Option<u8> {
        let (Some(memory), Some(wire)) = (self.memory_domain(), self.wire_domain()) else { return None };
        if !memory.same_structure(&wire) {
            return None;
        }
        if self.copy_mask.is_some() {
            return self.copy_mask;
        }
        Some(match (&memory.signature, &wire.signature) {
            (Signature::T10Dif(memory), Signature::T10Dif(wire)) => {
                let mut mask = 0;
                if memory.guard as u8 == wire.guard as u8 && memory.seed as u8 == wire.seed as u8 {
                    mask |= check_mask::T10DIF_GUARD;
                }
                if memory.app_tag == wire.app_tag {
                    mask |= check_mask::T10DIF_APP_TAG;
                }
                if memory.ref_tag == wire.ref_tag {
                    mask |= check_mask::T10DIF_REF_TAG;
                }
                mask
            }
            (Signature::Crc64Xp10(_), _) => check_mask::CRC64,
            _ => check_mask::CRC32,
        })
    }

    /// Returns how many bytes on the wire correspond to `memory_bytes` bytes in memory, or `None` if they end
    /// within a block. Work requests, and offsets in an mkey, count bytes as they are on the wire.
    pub const fn wire_bytes(&self, memory_bytes: u64) -> Option<u64> {
        convert(memory_bytes, self.memory_domain(), self.wire_domain())
    }

    /// Returns how many bytes in memory correspond to `wire_bytes` bytes on the wire, or `None` if they end
    /// within a block.
    pub const fn memory_bytes(&self, wire_bytes: u64) -> Option<u64> {
        convert(wire_bytes, self.wire_domain(), self.memory_domain())
    }
}

/// Returns the length in domain `to` of data whose length in domain `from` is `bytes`, or `None` if the data
/// ends within a block.
const fn convert(bytes: u64, from: Option<Domain>, to: Option<Domain>) -> Option<u64> {
    let data = match from {
        Some(from) => {
            if !bytes.is_multiple_of(from.stride() as u64) {
                return None;
            }
            bytes / from.stride() as u64 * from.block_size.bytes() as u64
        }
        None => bytes,
    };
    match to {
        Some(to) => {
            if !data.is_multiple_of(to.block_size.bytes() as u64) {
                return None;
            }
            (data / to.block_size.bytes() as u64).checked_mul(to.stride() as u64)
        }
        None => Some(data),
    }
}

/// The signatures and block sizes that a device supports (`struct mlx5dv_sig_caps`).
///
/// ```
/// use mlx5_mkey::mkey::SignatureCapabilities;
/// let capabilities = SignatureCapabilities { block_4048: false, ..SignatureCapabilities::ALL };
/// assert_eq!(capabilities.to_string(), "T10-DIF, CRC32, CRC32C, CRC64-XP10");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct SignatureCapabilities {
    /// The device supports blocks of 4048 bytes.
    pub block_4048: bool,
    /// The device supports CRC-32C.
    pub crc32c: bool,
    /// The device supports CRC-64 XP10.
    pub crc64_xp10: bool,
    /// One mkey can have both a [`Digest`] and AES-XTS (PRM `cmd_hca_cap`, bit 7 of offset 0x74).
    pub digest_with_xts: bool,
}

/// Writes the names of the signatures, and the block size of 4048 bytes if the device supports it.
impl fmt::Display for SignatureCapabilities {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("T10-DIF, CRC32")?;
        for (name, has) in [
            ("CRC32C", self.crc32c),
            ("CRC64-XP10", self.crc64_xp10),
            ("blocks of 4048 bytes", self.block_4048),
        ] {
            if has {
                write!(f, ", {name}")?;
            }
        }
        Ok(())
    }
}

impl SignatureCapabilities {
    /// The capabilities of a device that supports all signatures and block sizes.
    pub const ALL: Self = Self { block_4048: true, crc32c: true, crc64_xp10: true, digest_with_xts: true };

    /// Checks that the device supports the signatures and block sizes of `signature`.
    pub(crate) const fn check(&self, signature: &BlockSignature) -> Result<(), ConfigError> {
        match self.check_domain(signature.memory_domain()) {
            Ok(()) => self.check_domain(signature.wire_domain()),
            error => error,
        }
    }

    /// Checks that the device supports CRC32C, which each digest needs.
    pub(crate) const fn check_digest(&self, _: &Digest) -> Result<(), ConfigError> {
        if self.crc32c { Ok(()) } else { Err(ConfigError::SignatureUnsupported) }
    }

    const fn check_domain(&self, domain: Option<Domain>) -> Result<(), ConfigError> {
        let Some(domain) = domain else { return Ok(()) };
        match domain.signature {
            Signature::Crc32c(_) if !self.crc32c => return Err(ConfigError::SignatureUnsupported),
            Signature::Crc64Xp10(_) if !self.crc64_xp10 => return Err(ConfigError::SignatureUnsupported),
            _ => {}
        }
        match domain.block_size {
            BlockSize::MIB1 => Err(ConfigError::BlockSizeUnsupported(domain.block_size)),
            BlockSize::B4048 if !self.block_4048 => Err(ConfigError::BlockSizeUnsupported(domain.block_size)),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests;
