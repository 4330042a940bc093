//! CREATE_MKEY: the whole context of an mkey (PRM `mkc`). A UMR later changes parts of it.

use super::command::RequestHeader;
use crate::wire::low::{low8, low32};
use bitfield_struct::bitfield;
use zerocopy::big_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// First word of an mkey context: state, translation mode, rights.
#[bitfield(u32, defmt = cfg(feature = "defmt"))]
#[derive(PartialEq, Eq)]
pub struct MkcFlags {
    __: u8,
    /// How addresses are translated: [`MkcFlags::PA`], [`MkcFlags::MTT`], [`MkcFlags::KLM`] or
    /// [`MkcFlags::KSM`].
    #[bits(2, into = low8::<2>)]
    pub access_mode_1_0: u8,
    /// The right to local reads.
    pub local_read: bool,
    /// The right to local writes.
    pub local_write: bool,
    /// The right to remote reads.
    pub remote_read: bool,
    /// The right to remote writes.
    pub remote_write: bool,
    /// The right to remote atomics.
    pub atomic: bool,
    /// UMRs may change the context.
    pub umr_en: bool,
    /// The device sets a small fence on responses to RDMA READs.
    pub small_fence_on_rdma_read_response: bool,
    #[bits(1)]
    __: u8,
    /// The device's writes through the mkey may pass one another.
    pub relaxed_ordering_write: bool,
    #[bits(7)]
    __: u8,
    /// The high bits of the translation mode, which are 0 for the four modes of `access_mode_1_0`.
    #[bits(3, into = low8::<3>)]
    pub access_mode_4_2: u8,
    #[bits(1)]
    __: u8,
    /// The key refuses all traffic until a UMR configures the mkey.
    pub free: bool,
    #[bits(1)]
    __: u8,
}

impl MkcFlags {
    /// No translation: addresses are bus addresses (`MLX5_MKC_ACCESS_MODE_PA`).
    pub const PA: u8 = 0;
    /// Translation by pages (`MLX5_MKC_ACCESS_MODE_MTT`).
    pub const MTT: u8 = 1;
    /// Translation by entries of key, length and address (`MLX5_MKC_ACCESS_MODE_KLMS`).
    pub const KLM: u8 = 2;
    /// Translation by entries of key and address, all of one length (kernel `MLX5_MKC_ACCESS_MODE_KSM`, DPDK
    /// `MLX5_MKC_ACCESS_MODE_KLM_FBS`).
    pub const KSM: u8 = 3;
}

/// Word with flags and the protection domain.
#[bitfield(u32, defmt = cfg(feature = "defmt"))]
#[derive(PartialEq, Eq)]
pub struct MkcPd {
    /// Number of the protection domain.
    #[bits(24, into = low32::<24>)]
    pub pd: u32,
    /// The peer may invalidate the key.
    pub en_rinval: bool,
    #[bits(1)]
    __: u8,
    /// Bit 0 of the number of signature errors that software has seen.
    pub expected_sigerr_count: bool,
    #[bits(3)]
    __: u8,
    /// BSFs are in force.
    pub bsf_en: bool,
    /// The mkey spans the whole space of 64-bit addresses.
    pub length64: bool,
}

/// Word with the page size and the order of reads.
#[bitfield(u32, defmt = cfg(feature = "defmt"))]
#[derive(PartialEq, Eq)]
pub struct MkcPages {
    /// Base-2 logarithm of the page size in bytes; with [`MkcFlags::KSM`], base-2 logarithm of the length of
    /// an entry in bytes (`log_entity_size`).
    #[bits(5, into = low8::<5>)]
    pub log_page_size: u8,
    #[bits(1)]
    __: u8,
    /// The device's reads through the mkey may pass writes.
    pub relaxed_ordering_read: bool,
    #[bits(25)]
    __: u32,
}

/// Word with the crypto flag.
#[bitfield(u32, defmt = cfg(feature = "defmt"))]
#[derive(PartialEq, Eq)]
pub struct MkcCrypto {
    #[bits(27)]
    __: u32,
    /// 1 if the mkey encrypts, else 0.
    #[bits(2, into = low8::<2>)]
    pub crypto_en: u8,
    #[bits(3)]
    __: u8,
}

/// The context of an mkey, 64 bytes (PRM `mkc`).
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[repr(C)]
pub struct Mkc {
    /// State, translation mode and rights, see [`MkcFlags`].
    pub flags: U32,
    /// Bound queue pair and tag, see [`crate::wire::mkey_context::QpnMkey`].
    pub qpn_mkey: U32,
    /// Reserved.
    pub reserved0: U32,
    /// Flags and protection domain, see [`MkcPd`].
    pub pd: U32,
    /// First address of the key's space.
    pub start_addr: U64,
    /// Length of the key's space in bytes.
    pub len: U64,
    /// Room for BSFs in octowords.
    pub bsf_octword_size: U32,
    /// Reserved.
    pub reserved1: [U32; 4],
    /// Room for translation entries in octowords.
    pub translations_octword_size: U32,
    /// Page size, and whether reads may pass writes, see [`MkcPages`].
    pub pages: U32,
    /// Whether the mkey encrypts, see [`MkcCrypto`].
    pub crypto: U32,
}

/// The source of the pages of a new mkey.
#[bitfield(u32, defmt = cfg(feature = "defmt"))]
#[derive(PartialEq, Eq)]
pub struct MkeySource {
    #[bits(30)]
    __: u32,
    /// The number of the user memory in the request (`umem_id`) is valid.
    pub mkey_umem_valid: bool,
    /// The device uses the list of pages, which is in the request or in user memory.
    pub pg_access: bool,
}

/// The request CREATE_MKEY, 272 bytes without a list of pages (PRM `create_mkey_in`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct CreateMkeyRequest {
    /// Opcode and variant of the command.
    pub header: RequestHeader,
    /// Reserved.
    pub reserved0: U32,
    /// The source of the pages, see [`MkeySource`].
    pub source: U32,
    /// The context of the new mkey.
    pub mkc: Mkc,
    /// Reserved.
    pub reserved1: [U32; 4],
    /// Octowords of translation entries that are given at creation, in the request or in user memory.
    pub translations_octword_actual_size: U32,
    /// Number of the user memory that holds the pages (kernel and DPDK headers; reserved in rdma-core's).
    pub umem_id: U32,
    /// Offset of the first page in the user memory, in bytes.
    pub umem_offset: U64,
    /// Reserved.
    pub reserved2: [U32; 40],
}

crate::fmt::defmt_as_bytes!(Mkc, CreateMkeyRequest);

const _: () = assert!(size_of::<Mkc>() == 64);
const _: () = assert!(core::mem::offset_of!(Mkc, pd) == 0xc);
const _: () = assert!(core::mem::offset_of!(Mkc, len) == 0x18);
const _: () = assert!(core::mem::offset_of!(Mkc, bsf_octword_size) == 0x20);
const _: () = assert!(core::mem::offset_of!(Mkc, translations_octword_size) == 0x34);
const _: () = assert!(core::mem::offset_of!(Mkc, crypto) == 0x3c);
const _: () = assert!(size_of::<CreateMkeyRequest>() == 272);
const _: () = assert!(core::mem::offset_of!(CreateMkeyRequest, mkc) == 0x10);
const _: () = assert!(core::mem::offset_of!(CreateMkeyRequest, translations_octword_actual_size) == 0x60);
const _: () = assert!(core::mem::offset_of!(CreateMkeyRequest, umem_offset) == 0x68);
const _: () = assert!(MkcFlags::new().with_free(true).into_bits() == 1 << 30);
const _: () = assert!(MkcFlags::new().with_umr_en(true).into_bits() == 1 << 15);
const _: () = assert!(MkcCrypto::new().with_crypto_en(1).into_bits() == 1 << 27);
