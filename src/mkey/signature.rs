//! Block signatures: integrity fields after each block of data, in memory, on the wire, or both.

use super::DomainKind;
use crate::error::ConfigError;
use crate::types::{BlockSize, Seed};
use crate::wire::bsf::{BfsPsv, BsfSize, DifFlags, InlineDif, InlineValid, RepeatSeed, SignatureBsf};
use crate::wire::{OCTOWORDS_PER_BLOCK, Octoword};
use zerocopy::big_endian::{U16, U32, U64};
use zerocopy::{transmute, transmute_mut};

/// Ready check and copy masks (`enum mlx5dv_sig_mask`). Bit 7 is the first byte of a signature; any value is allowed.
pub mod check_mask {
    /// Guard of a T10-DIF.
    pub const T10DIF_GUARD: u8 = 0xc0;
    /// Application tag of a T10-DIF.
    pub const T10DIF_APP_TAG: u8 = 0x30;
    /// Reference tag of a T10-DIF.
    pub const T10DIF_REF_TAG: u8 = 0x0f;
    /// A CRC of 32 bits. Assumption: bit 7 is the first byte in memory for the little-endian CRC32C too (gap 2).
    pub const CRC32: u8 = 0xf0;
    /// A CRC of 64 bits.
    pub const CRC64: u8 = 0xff;
    /// The whole signature, whatever its kind.
    pub const ALL: u8 = 0xff;
}

/// What the guard field of a T10-DIF holds (`enum mlx5dv_sig_t10dif_bg_type`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub enum Guard {
    /// CRC-16 with polynomial 8BB7 (T10 SBC-3).
    Crc,
    /// The Internet checksum (RFC 1071).
    IpChecksum,
}

/// Which blocks of a T10-DIF domain pass unchecked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub enum Escape {
    /// None.
    Never,
    /// Those whose application tag is FFFF (`MLX5DV_SIG_T10DIF_FLAG_APP_ESCAPE`).
    AppTag,
    /// Those whose application tag is FFFF and whose reference tag is FFFFFFFF
    /// (`MLX5DV_SIG_T10DIF_FLAG_APP_REF_ESCAPE`). The reference provider lets it win over the other flag (D10).
    AppAndRefTag,
}

/// T10-DIF protection information, 8 bytes big endian: guard 2, application tag 2, reference tag 4
/// (`struct mlx5dv_sig_t10dif`, T10 SBC-3).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct T10Dif {
    /// What the guard field holds.
    pub guard: Guard,
    /// Where the guard's calculation starts in each block.
    pub seed: Seed,
    /// The application tag to generate or to check.
    pub app_tag: u16,
    /// The reference tag of the first block: normally the low half of its LBA.
    pub ref_tag: u32,
    /// The reference tag grows by one for each block (`MLX5DV_SIG_T10DIF_FLAG_REF_REMAP`).
    pub ref_remap: bool,
    /// Which blocks pass unchecked.
    pub escape: Escape,
}

/// A kind of signature with its parameters (`enum mlx5dv_sig_type`, `enum mlx5dv_sig_crc_type`).
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
    /// Returns the size of the field in bytes.
    pub const fn bytes(&self) -> u32 {
        match self {
            Self::Crc32(_) | Self::Crc32c(_) => 4,
            Self::T10Dif(_) | Self::Crc64Xp10(_) => 8,
        }
    }

    /// Returns the block format selector of a BSF, without the number of the PSV.
    const fn format_selector(&self) -> U32 {
        let (base, seed) = match self {
            Self::T10Dif(_) => return U32::ZERO,
            Self::Crc32(seed) => (BfsPsv::CRC32, seed),
            Self::Crc32c(seed) => (BfsPsv::CRC32C, seed),
            Self::Crc64Xp10(seed) => (BfsPsv::CRC64_XP10, seed),
        };
        let seed = match seed {
            Seed::Zeros => BfsPsv::SEED_ZERO,
            Seed::Ones => 0,
        };
        U32::new(BfsPsv::new().with_bfs(base | BfsPsv::REPEAT | seed).into_bits())
    }

    /// Returns the inline section of a BSF.
    const fn inline_dif(&self) -> InlineDif {
        let Self::T10Dif(dif) = self else { return InlineDif::NONE };
        let T10Dif { guard, seed, app_tag, ref_tag, ref_remap, escape } = *dif;
        InlineDif {
            vld_refresh: U16::new(InlineValid::new().with_valid(true).with_refresh(true).into_bits()),
            app_tag: U16::new(app_tag),
            ref_tag: U32::new(ref_tag),
            sig_type: match guard {
                Guard::Crc => InlineDif::SIG_CRC,
                Guard::IpChecksum => InlineDif::SIG_IP_CHECKSUM,
            },
            rp_inv_seed: RepeatSeed::new()
                .with_repeat_block(true)
                .with_seed_ones(matches!(seed, Seed::Ones))
                .into_bits(),
            reserved: [0; 3],
            dif_flags: DifFlags::new()
                .with_inc_ref_tag(ref_remap)
                .with_app_escape(matches!(escape, Escape::AppTag))
                .with_app_ref_escape(matches!(escape, Escape::AppAndRefTag))
                .into_bits(),
            app_bitmask_check: U16::MAX_VALUE,
        }
    }

    /// Returns the start value as a PSV holds it (DEVICE.md 4.2).
    const fn start(&self) -> U64 {
        U64::new(match self {
            Self::T10Dif(dif) => {
                let guard = match dif.seed {
                    Seed::Zeros => 0,
                    Seed::Ones => 0xffff,
                };
                guard << 48 | (dif.app_tag as u64) << 32 | dif.ref_tag as u64
            }
            Self::Crc32(Seed::Ones) | Self::Crc32c(Seed::Ones) => 0xffff_ffff_0000_0000,
            Self::Crc64Xp10(Seed::Ones) => u64::MAX,
            Self::Crc32(Seed::Zeros) | Self::Crc32c(Seed::Zeros) | Self::Crc64Xp10(Seed::Zeros) => 0,
        })
    }

    /// Returns whether both are of one kind, whatever their parameters.
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

/// The signature of one domain and the size of the blocks that it protects (`struct mlx5dv_sig_block_domain`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct Domain {
    /// Kind and parameters.
    pub signature: Signature,
    /// Bytes of data per block.
    pub block_size: BlockSize,
}

impl Domain {
    /// Returns the bytes of a block with its signature.
    pub const fn stride(&self) -> u32 {
        self.outline().stride()
    }

    const fn outline(&self) -> DomainOutline {
        let kind = match self.signature {
            Signature::T10Dif(_) => SignatureKind::T10Dif,
            Signature::Crc32(_) | Signature::Crc32c(_) => SignatureKind::Crc32,
            Signature::Crc64Xp10(_) => SignatureKind::Crc64,
        };
        DomainOutline { kind, block_size: self.block_size }
    }

    /// Returns whether both domains have the same kind of signature and block size, which a copy mask needs.
    pub const fn same_structure(&self, other: &Self) -> bool {
        self.block_size.bytes() == other.block_size.bytes() && self.signature.same_kind(&other.signature)
    }
}

/// The block signature of an mkey: in memory, on the wire, or in both domains (`struct mlx5dv_sig_block_attr`).
///
/// The device does what each direction needs: it checks the signature of the domain that data comes from, strips it, and
/// adds that of the domain that data goes to.
///
/// ```
/// use mlx5_mkey::mkey::{BlockSignature, Domain, Signature};
/// use mlx5_mkey::types::{BlockSize, Seed};
/// // The data in memory ends each 512 bytes with a CRC32; the wire carries plain data.
/// let domain = Domain { signature: Signature::Crc32(Seed::Ones), block_size: BlockSize::B512 };
/// let signature = BlockSignature::memory(domain);
/// assert_eq!(signature.wire_bytes(516 * 3), Some(512 * 3));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct BlockSignature {
    words: SignatureWords,
    /// The same in wire form, so that posting copies it.
    ready: ReadySignature,
}

/// What a block signature says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub(crate) struct SignatureWords {
    memory: Option<Signature>,
    wire: Option<Signature>,
    /// Apart from the signatures, and so in 32 bytes: they are copied with each configuration.
    memory_block: BlockSize,
    wire_block: BlockSize,
    check_mask: u8,
    copy_mask: Option<u8>,
}

/// What lengths and signature errors are read by: all of a signature but its parameters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub(crate) struct Outline {
    pub(crate) memory: Option<DomainOutline>,
    pub(crate) wire: Option<DomainOutline>,
}

/// The same of a domain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub(crate) struct DomainOutline {
    pub(crate) kind: SignatureKind,
    block_size: BlockSize,
}

/// A kind of signature.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
#[repr(u8)]
pub(crate) enum SignatureKind {
    T10Dif,
    Crc32,
    Crc64,
}

impl Outline {
    /// No signature.
    pub(crate) const NONE: Self = Self { memory: None, wire: None };

    /// Returns whether a domain has a signature.
    pub(crate) const fn is_some(&self) -> bool {
        self.memory.is_some() || self.wire.is_some()
    }

    /// Returns how many bytes are on the wire for whole blocks that take `memory_bytes` in memory.
    pub(crate) const fn wire_bytes(&self, memory_bytes: u64) -> Option<u64> {
        convert(memory_bytes, self.memory, self.wire)
    }
}

impl DomainOutline {
    /// Returns the bytes of a block with its signature.
    pub(crate) const fn stride(&self) -> u32 {
        let signature = match self.kind {
            SignatureKind::Crc32 => 4,
            SignatureKind::T10Dif | SignatureKind::Crc64 => 8,
        };
        self.block_size.bytes() + signature
    }
}

/// What posting a signature copies: it is made when the words change, not when they are posted.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct ReadySignature {
    /// The BSF ([`SignatureBsf`]) but for the numbers of the PSVs, in parts: its first word, with the size code of a BSF that
    /// stands alone and of one that crypto follows; its second word, with the block formats; the rest.
    pub(crate) head: U64,
    pub(crate) head_with_crypto: U64,
    pub(crate) formats: U64,
    pub(crate) rest: [Octoword; OCTOWORDS_PER_BLOCK - 1],
    /// What the PSVs start with.
    pub(crate) starts: PsvStarts,
    /// What a device must know, as [`SignatureCapabilities::lacking`] counts it, and [`SignatureCapabilities::TWO_DOMAINS`]. One
    /// question then settles what nearly all signatures are: one that the device knows, in one domain.
    pub(crate) needs: u8,
}

/// What the PSVs of a signature start with, in the order in which they are set: memory before wire.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct PsvStarts {
    /// Both domains have one: then that of the memory is set first, and starts with `first`.
    pub(crate) both: bool,
    pub(crate) first: U64,
    /// Whose the last is, or the only one, and what it starts with.
    pub(crate) last_domain: DomainKind,
    pub(crate) last: U64,
}

/// Whose PSVs the BSF of a signature names.
#[derive(Clone, Copy)]
pub(crate) enum Psvs {
    None,
    One(DomainKind),
    Both,
}

impl PsvStarts {
    /// Returns how many there are.
    #[inline(always)]
    pub(crate) const fn count(&self) -> usize {
        1 + self.both as usize
    }
}

impl ReadySignature {
    /// The BSF of no signature, which lets data pass (D23).
    const EMPTY_BSF: SignatureBsf = SignatureBsf {
        bsf_size_sbs: 0,
        check_byte_mask: 0,
        wire: 0,
        memory: 0,
        raw_data_size: U32::MAX_VALUE,
        wire_bfs_psv: U32::ZERO,
        memory_bfs_psv: U32::ZERO,
        ext_init_gen_pro_size: U32::ZERO,
        ext_epi_size: U32::ZERO,
        ext_wire_tfs_psv: U32::ZERO,
        ext_memory_tfs_psv: U32::ZERO,
        wire_inline: InlineDif::NONE,
        memory_inline: InlineDif::NONE,
    };
    /// No signature.
    pub(crate) const NONE: &Self = &Self::new(&Self::EMPTY_BSF, None, None);

    const fn new(bsf: &SignatureBsf, memory: Option<&Domain>, wire: Option<&Domain>) -> Self {
        let mut starts =
            PsvStarts { both: false, first: U64::ZERO, last_domain: DomainKind::Memory, last: U64::ZERO };
        let mut needs = SignatureCapabilities::ERROR_COUNT;
        if let Some(memory) = memory {
            starts.last = memory.signature.start();
            needs |= SignatureCapabilities::needs(memory);
        }
        if let Some(wire) = wire {
            if memory.is_some() {
                (starts.both, starts.first) = (true, starts.last);
                needs |= SignatureCapabilities::TWO_DOMAINS;
            }
            (starts.last_domain, starts.last) = (DomainKind::Wire, wire.signature.start());
            needs |= SignatureCapabilities::needs(wire);
        }
        let [first, rest @ ..]: [Octoword; OCTOWORDS_PER_BLOCK] = transmute!(*bsf);
        let [head, formats]: [U64; 2] = transmute!(first);
        Self {
            head: Self::sized(head, BsfSize::WITH_INLINE),
            head_with_crypto: Self::sized(head, BsfSize::SIGNATURE_AND_CRYPTO),
            formats,
            rest,
            starts,
            needs,
        }
    }

    const fn sized(head: U64, size: u8) -> U64 {
        U64::new(head.get() | (BsfSize::new().with_size(size).into_bits() as u64) << 56)
    }

    /// Returns whose PSVs the BSF of a signature names.
    pub(crate) const fn psvs(&self) -> Psvs {
        if self.starts.both { Psvs::Both } else { Psvs::One(self.starts.last_domain) }
    }

    /// Returns whether both domains have a signature.
    #[inline(always)]
    pub(crate) const fn is_in_both(&self) -> bool {
        self.starts.both
    }
}

impl core::fmt::Debug for ReadySignature {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        // It says what the words say.
        f.write_str("..")
    }
}

#[cfg(feature = "defmt")]
impl defmt::Format for ReadySignature {
    fn format(&self, f: defmt::Formatter<'_>) {
        defmt::write!(f, "..");
    }
}

impl BlockSignature {
    /// A signature in memory only: stripped on its way to the wire, added on its way to memory.
    pub const fn memory(domain: Domain) -> Self {
        Self::new(Some(domain), None)
    }

    /// A signature on the wire only: added on its way to the wire, stripped on its way to memory.
    pub const fn wire(domain: Domain) -> Self {
        Self::new(None, Some(domain))
    }

    /// A signature in both domains: passed on where they are alike, else converted.
    pub const fn both(memory: Domain, wire: Domain) -> Self {
        Self::new(Some(memory), Some(wire))
    }

    const fn new(memory: Option<Domain>, wire: Option<Domain>) -> Self {
        let (memory, memory_block) = Self::parts(memory);
        let (wire, wire_block) = Self::parts(wire);
        let check_mask = check_mask::ALL;
        Self::from_words(SignatureWords {
            memory,
            wire,
            memory_block,
            wire_block,
            check_mask,
            copy_mask: None,
        })
    }

    const fn parts(domain: Option<Domain>) -> (Option<Signature>, BlockSize) {
        match domain {
            Some(Domain { signature, block_size }) => (Some(signature), block_size),
            None => (None, BlockSize::B512),
        }
    }

    /// Checks only those bytes of the incoming signature whose bit is set; see [`check_mask`].
    #[must_use]
    pub const fn with_check_mask(self, mask: u8) -> Self {
        Self::from_words(SignatureWords { check_mask: mask, ..self.words })
    }

    /// Copies those bytes of the signature whose bit is set and calculates the others, instead of choosing by itself.
    ///
    /// # Errors
    /// [`ConfigError::CopyMaskNeedsSameStructure`] unless both domains are there with the same type and block size.
    pub const fn with_copy_mask(self, mask: u8) -> Result<Self, ConfigError> {
        match (self.memory_domain(), self.wire_domain()) {
            (Some(memory), Some(wire)) if memory.same_structure(&wire) => {
                Ok(Self::from_words(SignatureWords { copy_mask: Some(mask), ..self.words }))
            }
            _ => Err(ConfigError::CopyMaskNeedsSameStructure),
        }
    }

    /// Replaces the reference tag of the first block, in a domain that has a T10-DIF. All else stays ready.
    ///
    /// # Errors
    /// [`ConfigError::NotASignatureMkey`] where that domain has none.
    ///
    /// ```
    /// use mlx5_mkey::mkey::{BlockSignature, Domain, DomainKind, Escape, Guard, Signature, T10Dif};
    /// use mlx5_mkey::types::{BlockSize, Seed};
    /// let (guard, seed, escape) = (Guard::Crc, Seed::Zeros, Escape::Never);
    /// let dif = |ref_tag| T10Dif { guard, seed, app_tag: 0, ref_tag, ref_remap: true, escape };
    /// let domain = |ref_tag| Domain { signature: Signature::T10Dif(dif(ref_tag)), block_size: BlockSize::B512 };
    /// let mut signature = BlockSignature::wire(domain(7));
    /// signature.set_ref_tag(DomainKind::Wire, 8)?;
    /// assert_eq!(signature, BlockSignature::wire(domain(8)));
    /// # Ok::<(), mlx5_mkey::error::ConfigError>(())
    /// ```
    #[inline]
    pub fn set_ref_tag(&mut self, domain: DomainKind, ref_tag: u32) -> Result<(), ConfigError> {
        self.words.set_ref_tag(domain, ref_tag)?;
        if self.ready.is_in_both() {
            // Which parts are copied may depend on the tags.
            *self = Self::from_words(self.words);
            return Ok(());
        }
        let [_, wire, memory] = &mut self.ready.rest;
        let inline: &mut InlineDif = match domain {
            DomainKind::Memory => transmute_mut!(memory),
            DomainKind::Wire => transmute_mut!(wire),
        };
        inline.ref_tag = U32::new(ref_tag);
        // It begins with guard and application tag.
        let [_, start]: &mut [U32; 2] = transmute_mut!(&mut self.ready.starts.last);
        *start = U32::new(ref_tag);
        Ok(())
    }

    /// Puts words into wire form.
    pub(crate) const fn from_words(words: SignatureWords) -> Self {
        let (memory, wire) = (words.memory(), words.wire());
        let mut bsf = ReadySignature::EMPTY_BSF;
        bsf.check_byte_mask = words.check_mask;
        if let Some(domain) = &memory {
            bsf.memory = domain.block_size.selector();
            bsf.memory_bfs_psv = domain.signature.format_selector();
            bsf.memory_inline = domain.signature.inline_dif();
        }
        if let Some(domain) = &wire {
            bsf.wire = domain.block_size.selector();
            bsf.wire_bfs_psv = domain.signature.format_selector();
            bsf.wire_inline = domain.signature.inline_dif();
        }
        if let Some(copy_mask) = words.effective_copy_mask() {
            bsf.bsf_size_sbs = BsfSize::new().with_same_block_structure(true).into_bits();
            bsf.wire = copy_mask;
        }
        Self { words, ready: ReadySignature::new(&bsf, memory.as_ref(), wire.as_ref()) }
    }

    /// Returns what it says.
    pub(crate) const fn words(&self) -> &SignatureWords {
        &self.words
    }

    /// Returns the wire form.
    pub(crate) const fn ready(&self) -> &ReadySignature {
        &self.ready
    }

    /// Returns the memory domain.
    pub const fn memory_domain(&self) -> Option<Domain> {
        self.words.memory()
    }

    /// Returns the wire domain.
    pub const fn wire_domain(&self) -> Option<Domain> {
        self.words.wire()
    }

    /// Returns which bytes of an incoming signature are checked.
    pub const fn check_mask(&self) -> u8 {
        self.words.check_mask
    }

    /// Returns the copy mask that the user gave.
    pub const fn copy_mask(&self) -> Option<u8> {
        self.words.copy_mask
    }

    /// Returns which bytes of the signature are copied, `None` where the domains differ in structure or one is absent.
    ///
    /// Without a mask of the user's a CRC is copied whole, and the parts of a T10-DIF whose parameters agree (R84, R85).
    pub const fn effective_copy_mask(&self) -> Option<u8> {
        self.words.effective_copy_mask()
    }

    /// Returns how many bytes are on the wire for whole blocks that take `memory_bytes` in memory, `None` for a part of a
    /// block. Work requests and offsets in an mkey count wire bytes (D3).
    pub fn wire_bytes(&self, memory_bytes: u64) -> Option<u64> {
        self.words.outline().wire_bytes(memory_bytes)
    }

    /// Returns how many bytes of memory whole blocks take that are `wire_bytes` on the wire, `None` for a part of a block.
    pub fn memory_bytes(&self, wire_bytes: u64) -> Option<u64> {
        let Outline { memory, wire } = self.words.outline();
        convert(wire_bytes, wire, memory)
    }
}

impl SignatureWords {
    /// Replaces the reference tag of a domain that has a T10-DIF.
    #[inline(always)]
    pub(crate) const fn set_ref_tag(&mut self, domain: DomainKind, ref_tag: u32) -> Result<(), ConfigError> {
        let domain = match domain {
            DomainKind::Memory => &mut self.memory,
            DomainKind::Wire => &mut self.wire,
        };
        let Some(Signature::T10Dif(dif)) = domain else {
            return Err(ConfigError::NotASignatureMkey);
        };
        dif.ref_tag = ref_tag;
        Ok(())
    }

    /// Returns whether a domain has a T10-DIF.
    pub(crate) const fn has_ref_tag(&self, domain: DomainKind) -> bool {
        let signature = match domain {
            DomainKind::Memory => &self.memory,
            DomainKind::Wire => &self.wire,
        };
        matches!(signature, Some(Signature::T10Dif(_)))
    }

    const fn memory(&self) -> Option<Domain> {
        match self.memory {
            Some(signature) => Some(Domain { signature, block_size: self.memory_block }),
            None => None,
        }
    }

    const fn wire(&self) -> Option<Domain> {
        match self.wire {
            Some(signature) => Some(Domain { signature, block_size: self.wire_block }),
            None => None,
        }
    }

    /// Returns the outline.
    pub(crate) fn outline(&self) -> Outline {
        Outline {
            memory: self.memory().map(|domain| domain.outline()),
            wire: self.wire().map(|domain| domain.outline()),
        }
    }

    pub(crate) const fn effective_copy_mask(&self) -> Option<u8> {
        let (Some(memory), Some(wire)) = (self.memory(), self.wire()) else { return None };
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
}

/// Returns the length in domain `to` of whole blocks that have `bytes` in domain `from`.
const fn convert(bytes: u64, from: Option<DomainOutline>, to: Option<DomainOutline>) -> Option<u64> {
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

/// Which signatures and block sizes a device knows (`struct mlx5dv_sig_caps`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct SignatureCapabilities {
    /// Blocks of 4048 bytes (R97).
    pub block_4048: bool,
    /// CRC-32C (R102).
    pub crc32c: bool,
    /// CRC-64 XP10 (R102).
    pub crc64_xp10: bool,
}

impl SignatureCapabilities {
    /// A device that knows all.
    pub const ALL: Self = Self { block_4048: true, crc32c: true, crc64_xp10: true };

    /// Blocks of 4048 bytes, CRC-32C and CRC-64 XP10, as bits.
    const BITS: [u8; 3] = [1, 2, 4];
    /// A signature in two domains. Every device knows it, but it has to be told apart.
    pub(crate) const TWO_DOMAINS: u8 = 8;
    /// Any signature. What the device waits for goes with it: the error count.
    pub(crate) const ERROR_COUNT: u8 = 16;

    /// Returns what the device does not know, as bits.
    pub(crate) const fn lacking(&self) -> u8 {
        let [block, crc32c, crc64] = Self::BITS;
        (if self.block_4048 { 0 } else { block })
            | (if self.crc32c { 0 } else { crc32c })
            | (if self.crc64_xp10 { 0 } else { crc64 })
    }

    /// Returns what a domain needs, as bits.
    const fn needs(domain: &Domain) -> u8 {
        let [block, crc32c, crc64] = Self::BITS;
        let signature = match domain.signature {
            Signature::Crc32c(_) => crc32c,
            Signature::Crc64Xp10(_) => crc64,
            Signature::T10Dif(_) | Signature::Crc32(_) => 0,
        };
        signature | if matches!(domain.block_size, BlockSize::B4048) { block } else { 0 }
    }

    /// Refuses what the device does not know.
    pub(crate) const fn check(&self, signature: &BlockSignature) -> Result<(), ConfigError> {
        match self.check_domain(signature.memory_domain()) {
            Ok(()) => self.check_domain(signature.wire_domain()),
            error => error,
        }
    }

    const fn check_domain(&self, domain: Option<Domain>) -> Result<(), ConfigError> {
        let Some(domain) = domain else { return Ok(()) };
        match domain.signature {
            Signature::Crc32c(_) if !self.crc32c => return Err(ConfigError::SignatureUnsupported),
            Signature::Crc64Xp10(_) if !self.crc64_xp10 => return Err(ConfigError::SignatureUnsupported),
            _ => {}
        }
        match domain.block_size {
            BlockSize::B4048 if !self.block_4048 => Err(ConfigError::BlockSizeUnsupported(domain.block_size)),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_copied_in_two_octowords() {
        assert_eq!(size_of::<SignatureWords>(), 32);
    }

    const fn dif(app_tag: u16, ref_tag: u32) -> Domain {
        Domain {
            signature: Signature::T10Dif(T10Dif {
                guard: Guard::Crc,
                seed: Seed::Zeros,
                app_tag,
                ref_tag,
                ref_remap: true,
                escape: Escape::Never,
            }),
            block_size: BlockSize::B512,
        }
    }

    const CRC32: Domain = Domain { signature: Signature::Crc32(Seed::Ones), block_size: BlockSize::B512 };
    const CRC32C: Domain = Domain { signature: Signature::Crc32c(Seed::Ones), block_size: BlockSize::B512 };

    #[test]
    fn r85_parts_of_a_dif_are_copied_where_they_agree() {
        assert_eq!(BlockSignature::both(dif(1, 2), dif(1, 2)).effective_copy_mask(), Some(0xff));
        assert_eq!(BlockSignature::both(dif(1, 2), dif(9, 2)).effective_copy_mask(), Some(0xcf));
        assert_eq!(BlockSignature::both(dif(1, 2), dif(1, 9)).effective_copy_mask(), Some(0xf0));
        assert_eq!(BlockSignature::both(CRC32, CRC32).effective_copy_mask(), Some(0xf0));
        assert_eq!(BlockSignature::both(CRC32, CRC32C).effective_copy_mask(), None);
    }

    #[test]
    fn r90_a_copy_mask_needs_two_alike_domains() {
        let refused = Err(ConfigError::CopyMaskNeedsSameStructure);
        assert_eq!(BlockSignature::memory(CRC32).with_copy_mask(1), refused, "D22");
        assert_eq!(BlockSignature::wire(CRC32).with_copy_mask(1), refused);
        assert_eq!(BlockSignature::both(CRC32, CRC32C).with_copy_mask(1), refused);
        let bigger = Domain { block_size: BlockSize::B4096, ..CRC32 };
        assert_eq!(BlockSignature::both(CRC32, bigger).with_copy_mask(1), refused);
        let given = BlockSignature::both(CRC32, CRC32).with_copy_mask(0x21);
        assert_eq!(given.map(|signature| signature.effective_copy_mask()), Ok(Some(0x21)));
    }

    #[test]
    fn d3_lengths_convert_between_domains() {
        let wire = BlockSignature::wire(dif(0, 0));
        assert_eq!(wire.wire_bytes(1024), Some(1040));
        assert_eq!(wire.memory_bytes(1040), Some(1024));
        assert_eq!(wire.memory_bytes(1024), None);
        let both = BlockSignature::both(CRC32, dif(0, 0));
        assert_eq!(both.wire_bytes(516), Some(520));
    }
}
