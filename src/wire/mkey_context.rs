//! The mkey context segment: the new values of the fields that the UMR mask selects (PRM `mkc`).

use super::low::{low8, low32};
use bitfield_struct::bitfield;
use zerocopy::big_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// First byte of the mkey context (PRM `mkc.free`).
#[bitfield(u8, defmt = cfg(feature = "defmt"))]
#[derive(PartialEq, Eq)]
pub struct FreeByte {
    #[bits(6)]
    __: u8,
    /// The key refuses all traffic.
    pub free: bool,
    #[bits(1)]
    __: u8,
}

/// Second byte of the mkey context (PRM `mkc.relaxed_ordering_write`).
#[bitfield(u8, defmt = cfg(feature = "defmt"))]
#[derive(PartialEq, Eq)]
pub struct OrderingByte {
    #[bits(2)]
    __: u8,
    /// Writes may pass one another.
    pub relaxed_ordering_write: bool,
    #[bits(5)]
    __: u8,
}

/// Byte with the page size (PRM `mkc.relaxed_ordering_read` and `mkc.log_page_size`).
#[bitfield(u8, defmt = cfg(feature = "defmt"))]
#[derive(PartialEq, Eq)]
pub struct PageByte {
    /// Logarithm of the page size in bytes; for entries of one length, logarithm of that length.
    #[bits(5, into = low8::<5>)]
    pub log_page_size: u8,
    #[bits(1)]
    __: u8,
    /// Reads may pass writes.
    pub relaxed_ordering_read: bool,
    #[bits(1)]
    __: u8,
}

/// Access rights byte (PRM `mkc` bits `a`, `rw`, `rr`, `lw`, `lr`).
#[bitfield(u8, defmt = cfg(feature = "defmt"))]
#[derive(PartialEq, Eq)]
pub struct AccessByte {
    #[bits(2)]
    __: u8,
    /// Local read. Set when the mkey is created; no UMR of this library writes it.
    pub local_read: bool,
    /// Local write.
    pub local_write: bool,
    /// Remote read.
    pub remote_read: bool,
    /// Remote write.
    pub remote_write: bool,
    /// Remote atomic.
    pub atomic: bool,
    #[bits(1)]
    __: u8,
}

/// Word with the queue pair that a key is bound to and the key's tag (PRM `mkc.qpn`, `mkc.mkey_7_0`).
#[bitfield(u32, defmt = cfg(feature = "defmt"))]
#[derive(PartialEq, Eq)]
pub struct QpnMkey {
    /// The key's tag, its low byte.
    pub tag: u8,
    /// Bound queue pair, [`QpnMkey::ANY`] for none.
    #[bits(24, into = low32::<24>)]
    pub qpn: u32,
}

impl QpnMkey {
    /// Bound to no queue pair.
    pub const ANY: u32 = 0x00ff_ffff;
    /// Bound to no queue pair, with tag 0.
    pub(crate) const UNBOUND: Self = Self::new().with_qpn(Self::ANY);
}

/// Word with mkey flags and the protection domain (PRM `mkc.length64` to `mkc.pd`).
#[bitfield(u32, defmt = cfg(feature = "defmt"))]
#[derive(PartialEq, Eq)]
pub struct FlagsPd {
    /// Protection domain; not written by a UMR of this library.
    #[bits(24, into = low32::<24>)]
    pub pd: u32,
    /// Remote invalidation is allowed.
    pub remote_invalidate: bool,
    #[bits(1)]
    __: u8,
    /// Bit 0 of the number of signature errors that software has seen.
    pub sig_err_count: bool,
    #[bits(3)]
    __: u8,
    /// The BSFs are in force.
    pub bsf_enable: bool,
    /// The mkey spans all 64 bits.
    pub length64: bool,
}

/// The mkey context segment, 64 bytes (PRM `mkc`, `struct mlx5_wqe_mkey_context_seg`).
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[repr(C)]
pub struct MkeyContext {
    /// See [`FreeByte`].
    pub free: u8,
    /// See [`OrderingByte`].
    pub ordering: u8,
    /// See [`AccessByte`].
    pub access: u8,
    /// Reserved.
    pub sf: u8,
    /// See [`QpnMkey`].
    pub qpn_mkey: U32,
    /// Reserved.
    pub reserved1: U32,
    /// See [`FlagsPd`].
    pub flags_pd: U32,
    /// First address of the key's space; 0 for the zero-based keys of this library.
    pub start_addr: U64,
    /// Length of the key's space in bytes of memory.
    pub len: U64,
    /// Room for BSFs in octowords; set at creation.
    pub bsf_octowords: U32,
    /// Reserved.
    pub reserved2: [U32; 4],
    /// Room for translation entries in octowords; set at creation.
    pub translations_octowords: U32,
    /// Reserved.
    pub reserved3: [u8; 3],
    /// See [`PageByte`].
    pub page: u8,
    /// Reserved.
    pub reserved4: U32,
}

impl MkeyContext {
    /// Returns whether the key refuses all traffic.
    pub const fn is_free(&self) -> bool {
        FreeByte::from_bits(self.free).free()
    }

    /// Returns the rights as fields.
    pub const fn access_bits(&self) -> AccessByte {
        AccessByte::from_bits(self.access)
    }

    /// Returns queue pair and tag as fields.
    pub const fn qpn_mkey_word(&self) -> QpnMkey {
        QpnMkey::from_bits(self.qpn_mkey.get())
    }

    /// Replaces the tag, the last byte of its word.
    #[inline]
    pub(crate) fn set_tag(&mut self, tag: u8) {
        let [_, _, _, last]: &mut [u8; 4] = zerocopy::transmute_mut!(&mut self.qpn_mkey);
        *last = tag;
    }

    /// Returns flags and protection domain as fields.
    pub const fn flags_pd_word(&self) -> FlagsPd {
        FlagsPd::from_bits(self.flags_pd.get())
    }
}

crate::fmt::defmt_as_bytes!(MkeyContext);

const _: () = assert!(size_of::<MkeyContext>() == 64);
const _: () = assert!(core::mem::offset_of!(MkeyContext, flags_pd) == 12);
const _: () = assert!(core::mem::offset_of!(MkeyContext, len) == 24);
const _: () = assert!(core::mem::offset_of!(MkeyContext, translations_octowords) == 52);
const _: () = assert!(core::mem::offset_of!(MkeyContext, ordering) == 1);
const _: () = assert!(core::mem::offset_of!(MkeyContext, start_addr) == 16);
const _: () = assert!(core::mem::offset_of!(MkeyContext, page) == 0x3b);
const _: () = assert!(OrderingByte::new().with_relaxed_ordering_write(true).into_bits() == 1 << 2);
const _: () = assert!(PageByte::new().with_relaxed_ordering_read(true).into_bits() == 1 << 6);
const _: () = assert!(FreeByte::new().with_free(true).into_bits() == 1 << 6);
const _: () = assert!(AccessByte::new().with_local_write(true).into_bits() == 0x08);
const _: () = assert!(AccessByte::new().with_atomic(true).into_bits() == 0x40);
const _: () = assert!(FlagsPd::new().with_remote_invalidate(true).into_bits() == 1 << 24);
const _: () = assert!(FlagsPd::new().with_sig_err_count(true).into_bits() == 1 << 26);
const _: () = assert!(FlagsPd::new().with_bsf_enable(true).into_bits() == 1 << 30);
