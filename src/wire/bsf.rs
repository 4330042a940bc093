//! Byte stream formats, which describe how the device processes the bytes that pass through an mkey (PRM
//! `bsf`).

use super::codes::codes;
use super::low::{low8, low32};
use bitfield_struct::bitfield;
use zerocopy::big_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// First byte of both kinds of BSF (`bsf_size_sbs`, `bsf_size_type`).
#[bitfield(u8, defmt = cfg(feature = "defmt"))]
#[derive(PartialEq, Eq)]
pub struct BsfSize {
    /// 1 for a crypto BSF (`MLX5_BSF_TYPE_CRYPTO`), 0 for a signature BSF.
    #[bits(4, into = low8::<4>)]
    pub kind: u8,
    /// Both domains have the same block structure, so the byte `wire` is a copy mask (`MLX5_BSF_SBS_SHIFT`).
    pub same_block_structure: bool,
    #[bits(1)]
    __: u8,
    /// Size code: for a single BSF [`BsfSize::WITH_INLINE`], or a shorter one ([`BsfSize::EXTENDED`],
    /// [`BsfSize::BASIC`]); for each BSF of a pair [`BsfSize::SIGNATURE_AND_CRYPTO`].
    #[bits(2, into = low8::<2>)]
    pub size: u8,
}

impl BsfSize {
    /// `kind`: a crypto BSF.
    pub const KIND_CRYPTO: u8 = 1;
    /// `size`: a BSF of 16 bytes, which consists of the fields before the extension.
    pub const BASIC: u8 = 0;
    /// `size`: a BSF of 32 bytes, with the extension (SPDK's transaction signatures).
    pub const EXTENDED: u8 = 1;
    /// `size`: a BSF of 64 bytes, the only one of its mkey.
    pub const WITH_INLINE: u8 = 2;
    /// `size`: a BSF of 64 bytes, one of a signature BSF and a crypto BSF of the same mkey.
    pub const SIGNATURE_AND_CRYPTO: u8 = 3;
}

/// Format selector and PSV of one domain: of the block signature (`w_bfs_psv`, `m_bfs_psv`), or of the
/// signature of a transaction (`ext_wire_tfs_psv`, `ext_memory_tfs_psv`).
#[bitfield(u32, defmt = cfg(feature = "defmt"))]
#[derive(PartialEq, Eq)]
pub struct BfsPsv {
    /// Index of the protection signature value.
    #[bits(24, into = low32::<24>)]
    pub psv: u32,
    /// Block format selector: 0 for T10-DIF. For a CRC, the number of the kind of CRC, to which the flags
    /// [`BfsPsv::SEED_ZERO`] and [`BfsPsv::REPEAT`] may be added.
    pub bfs: u8,
}

impl BfsPsv {
    /// `bfs`: the signature is a CRC32 (`MLX5_BFS_CRC32_BASE`).
    pub const CRC32: u8 = 0x20;
    /// `bfs`: the signature is a CRC32C (`MLX5_BFS_CRC32C_BASE`).
    pub const CRC32C: u8 = 0x40;
    /// `bfs`: the signature is a CRC64-XP10 (`MLX5_BFS_CRC64_XP10_BASE`).
    pub const CRC64_XP10: u8 = 0x50;
    /// `bfs`: the signature starts anew in each block (`MLX5_BFS_CRC_REPEAT_BIT`).
    pub const REPEAT: u8 = 0x02;
    /// `bfs`: the seed is 0; without this bit the seed is all ones (`MLX5_BFS_CRC_SEED_BIT`).
    pub const SEED_ZERO: u8 = 0x01;
    /// The bits of `bfs` that tell the CRCs apart.
    pub const BASE_MASK: u8 = 0xf0;
}

/// How an mkey takes part in the signature of a transaction (`ext_init_gen_pro_size`, as in SPDK's
/// `lib/mlx5`).
#[bitfield(u32, defmt = cfg(feature = "defmt"))]
#[derive(PartialEq, Eq)]
pub struct TransactionBits {
    #[bits(24)]
    __: u32,
    /// The signature is after the data in memory. The device checks it when the data is read, and generates
    /// it when the data is written.
    pub memory_check_gen: bool,
    /// The signature of the memory domain starts from its seed with this mkey.
    pub memory_init: bool,
    #[bits(2)]
    __: u32,
    /// The signature is after the data on the wire. The device checks it when data arrives, and generates it
    /// when data is sent.
    pub wire_check_gen: bool,
    /// The signature of the wire domain starts from its seed with this mkey.
    pub wire_init: bool,
    #[bits(2)]
    __: u32,
}

/// Whether the inline T10-DIF section is in use (`vld_refresh`).
#[bitfield(u16, defmt = cfg(feature = "defmt"))]
#[derive(PartialEq, Eq)]
pub struct InlineValid {
    #[bits(14)]
    __: u16,
    /// A flag that the reference provider sets beside `valid` (`MLX5_BSF_REFRESH_DIF`). No public source
    /// explains it.
    pub refresh: bool,
    /// The section is valid (`MLX5_BSF_INL_VALID`).
    pub valid: bool,
}

/// Repetition and seed of the block guard (`rp_inv_seed`).
#[bitfield(u8, defmt = cfg(feature = "defmt"))]
#[derive(PartialEq, Eq)]
pub struct RepeatSeed {
    #[bits(3)]
    __: u8,
    /// The guard starts from all ones, not from 0 (`MLX5_BSF_SEED`).
    pub seed_ones: bool,
    #[bits(3)]
    __: u8,
    /// The signature starts anew in each block (`MLX5_BSF_REPEAT_BLOCK`).
    pub repeat_block: bool,
}

/// Reference tag and escape flags of a T10-DIF domain (`dif_inc_ref_guard_check`).
#[bitfield(u8, defmt = cfg(feature = "defmt"))]
#[derive(PartialEq, Eq)]
pub struct DifFlags {
    /// A block whose application tag is FFFF is not checked (`MLX5_BSF_APPTAG_ESCAPE`).
    pub app_escape: bool,
    /// A block whose application and reference tags are all ones is not checked (`MLX5_BSF_APPREF_ESCAPE`).
    pub app_ref_escape: bool,
    #[bits(4)]
    __: u8,
    /// The reference tag grows by one for each block (`MLX5_BSF_INC_REFTAG`).
    pub inc_ref_tag: bool,
    #[bits(1)]
    __: u8,
}

/// The inline T10-DIF section of one domain, 16 bytes (`struct mlx5_bsf_inl`).
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[repr(C)]
pub struct InlineDif {
    /// Whether the section is in use, see [`InlineValid`].
    pub vld_refresh: U16,
    /// Application tag.
    pub app_tag: U16,
    /// Reference tag of the first block.
    pub ref_tag: U32,
    /// [`InlineDif::SIG_CRC`] or [`InlineDif::SIG_IP_CHECKSUM`].
    pub sig_type: u8,
    /// Repetition and seed of the guard, see [`RepeatSeed`].
    pub rp_inv_seed: u8,
    /// Reserved.
    pub reserved: [u8; 3],
    /// Reference tag and escape flags, see [`DifFlags`].
    pub dif_flags: u8,
    /// Mask of the application tag's bits that are checked; this library sets all of them.
    pub app_bitmask_check: U16,
}

impl InlineDif {
    /// The section of a domain without T10-DIF.
    pub const NONE: Self = Self {
        vld_refresh: U16::ZERO,
        app_tag: U16::ZERO,
        ref_tag: U32::ZERO,
        sig_type: 0,
        rp_inv_seed: 0,
        reserved: [0; 3],
        dif_flags: 0,
        app_bitmask_check: U16::ZERO,
    };
    /// `sig_type`: the guard is a CRC (`MLX5_T10DIF_CRC`).
    pub const SIG_CRC: u8 = 1;
    /// `sig_type`: the guard is an IP checksum (`MLX5_T10DIF_IPCS`).
    pub const SIG_IP_CHECKSUM: u8 = 2;
}

/// A signature BSF with inline sections, 64 bytes (`struct mlx5_bsf`).
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[repr(C)]
pub struct SignatureBsf {
    /// Kind and size of the BSF, see [`BsfSize`].
    pub bsf_size_sbs: u8,
    /// Mask of the signature's bytes that are checked; bit 7 selects the first byte.
    pub check_byte_mask: u8,
    /// Block size selector of the wire domain; if both domains have the same block structure, the mask of the
    /// signature's bytes that the device copies from one domain to the other.
    pub wire: u8,
    /// Block size selector of the memory domain.
    pub memory: u8,
    /// Number of data bytes that a digest covers. Without a digest, this library writes all ones. One BSF is
    /// an exception: the empty BSF beside AES-XTS in a UMR of
    /// [`UmrForm::Minimal`](crate::mkey::UmrForm::Minimal) contains the exact length of the data, which other
    /// drivers also write.
    pub raw_data_size: U32,
    /// Block format and PSV of the wire domain, see [`BfsPsv`].
    pub wire_bfs_psv: U32,
    /// Block format and PSV of the memory domain, see [`BfsPsv`].
    pub memory_bfs_psv: U32,
    /// Extension: how the mkey takes part in a transaction, see [`TransactionBits`].
    pub ext_init_gen_pro_size: U32,
    /// Extension: epilogue size, unused by this library.
    pub ext_epi_size: U32,
    /// Extension: transaction format and PSV of the wire domain, see [`BfsPsv`].
    pub ext_wire_tfs_psv: U32,
    /// Extension: transaction format and PSV of the memory domain, see [`BfsPsv`].
    pub ext_memory_tfs_psv: U32,
    /// T10-DIF of the wire domain.
    pub wire_inline: InlineDif,
    /// T10-DIF of the memory domain.
    pub memory_inline: InlineDif,
}

codes! {
    /// The domain that holds ciphertext, and the order of cipher and signature (`enc_order`). The type can
    /// also hold codes without a name, because a ring may contain any code.
    EncryptionOrder(u8), "encryption order {:#x}";

    /// The wire holds ciphertext; its signature is inside the cipher (`ENCRYPTED_WIRE_SIGNATURE`).
    WIRE_SIGNATURE = 0, "encrypted wire signature";
    /// Memory holds ciphertext; its signature is inside the cipher (`ENCRYPTED_MEMORY_SIGNATURE`).
    MEMORY_SIGNATURE = 1, "encrypted memory signature";
    /// The wire holds ciphertext; its signature is outside and covers ciphertext (`ENCRYPTED_RAW_WIRE`).
    RAW_WIRE = 2, "encrypted raw wire";
    /// Memory holds ciphertext; its signature is outside and covers ciphertext (`ENCRYPTED_RAW_MEMORY`).
    RAW_MEMORY = 3, "encrypted raw memory";
}

/// A crypto BSF, 64 bytes (`struct mlx5_crypto_bsf`).
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[repr(C)]
pub struct CryptoBsf {
    /// Kind and size of the BSF, see [`BsfSize`].
    pub bsf_size_type: u8,
    /// The domain that holds ciphertext, and the order of cipher and signature, see [`EncryptionOrder`].
    pub enc_order: u8,
    /// Reserved.
    pub reserved0: u8,
    /// The cipher: [`CryptoBsf::AES_XTS`].
    pub enc_standard: u8,
    /// Length of the data in bytes, or all ones. This library writes the exact length beside a digest, and in
    /// the UMRs of [`UmrForm::Minimal`](crate::mkey::UmrForm::Minimal) if no block signature is in force;
    /// otherwise it writes all ones. Other drivers also write the exact length.
    pub raw_data_size: U32,
    /// Data unit size, see [`BlockSize`](crate::types::BlockSize).
    pub data_unit_selector: u8,
    /// Reserved.
    pub reserved1: [u8; 7],
    /// Tweak of the first data unit, in the byte order of the engine.
    pub xts_initial_tweak: [u8; 16],
    /// Number of the DEK, in the low 24 bits.
    pub dek: U32,
    /// Reserved.
    pub reserved2: [u8; 4],
    /// The keytag, which must equal the tag of the DEK if the DEK has one.
    pub keytag: [u8; 8],
    /// Reserved.
    pub reserved3: [u8; 16],
}

impl CryptoBsf {
    /// `enc_standard`: AES-XTS (IEEE 1619).
    pub const AES_XTS: u8 = 0;
    /// `data_unit_selector`: units of 1 MiB (`MLX5_BLOCK_SIZE_1MB` of DPDK).
    pub const UNIT_1_MIB: u8 = 5;
}

crate::fmt::defmt_as_bytes!(InlineDif, SignatureBsf, CryptoBsf);

const _: () = assert!(size_of::<InlineDif>() == 16 && size_of::<SignatureBsf>() == 64);
const _: () = assert!(core::mem::offset_of!(SignatureBsf, wire_bfs_psv) == 8);
const _: () = assert!(core::mem::offset_of!(SignatureBsf, wire_inline) == 32);
const _: () = assert!(core::mem::offset_of!(InlineDif, dif_flags) == 13);
const _: () = assert!(size_of::<CryptoBsf>() == 64);
const _: () = assert!(core::mem::offset_of!(CryptoBsf, data_unit_selector) == 8);
const _: () = assert!(core::mem::offset_of!(CryptoBsf, xts_initial_tweak) == 16);
const _: () = assert!(core::mem::offset_of!(CryptoBsf, dek) == 32);
const _: () = assert!(core::mem::offset_of!(CryptoBsf, keytag) == 40);
const _: () = assert!(BsfSize::new().with_same_block_structure(true).into_bits() == 0x10);
const _: () = assert!(BsfSize::new().with_size(BsfSize::SIGNATURE_AND_CRYPTO).into_bits() == 0xc0);
const _: () =
    assert!(TransactionBits::new().with_wire_init(true).with_wire_check_gen(true).into_bits() == 0x3000_0000);
const _: () = assert!(InlineValid::new().with_valid(true).with_refresh(true).into_bits() == 0xc000);
const _: () = assert!(RepeatSeed::new().with_repeat_block(true).with_seed_ones(true).into_bits() == 0x88);
const _: () = assert!(DifFlags::new().with_inc_ref_tag(true).with_app_ref_escape(true).into_bits() == 0x42);
