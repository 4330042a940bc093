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
    /// The device's writes through the mkey may pass one another.
    pub relaxed_ordering_write: bool,
    #[bits(5)]
    __: u8,
}

/// Byte with the page size (PRM `mkc.relaxed_ordering_read` and `mkc.log_page_size`).
#[bitfield(u8, defmt = cfg(feature = "defmt"))]
#[derive(PartialEq, Eq)]
pub struct PageByte {
    /// Base-2 logarithm of the page size in bytes; in an mkey whose entries all have one length (KSM), base-2
    /// logarithm of this length.
    #[bits(5, into = low8::<5>)]
    pub log_page_size: u8,
    #[bits(1)]
    __: u8,
    /// The device's reads through the mkey may pass writes.
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
    /// The right to local reads. It is set when the mkey is created; no UMR of this library writes it.
    pub local_read: bool,
    /// The right to local writes.
    pub local_write: bool,
    /// The right to remote reads.
    pub remote_read: bool,
    /// The right to remote writes.
    pub remote_write: bool,
    /// The right to remote atomics.
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
    /// The queue pair that the key is bound to, [`QpnMkey::ANY`] for none.
    #[bits(24, into = low32::<24>)]
    pub qpn: u32,
}

impl QpnMkey {
    /// `qpn`: the key is bound to no queue pair.
    pub const ANY: u32 = 0x00ff_ffff;
    /// The word of a key that is bound to no queue pair and has tag 0.
    pub(crate) const UNBOUND: Self = Self::new().with_qpn(Self::ANY);
}

/// Word with mkey flags and the protection domain (PRM `mkc.length64` to `mkc.pd`).
#[bitfield(u32, defmt = cfg(feature = "defmt"))]
#[derive(PartialEq, Eq)]
pub struct FlagsPd {
    /// Protection domain. No UMR of this library writes it.
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
    /// The mkey spans the whole space of 64-bit addresses.
    pub length64: bool,
}

/// The mkey context segment, 64 bytes (PRM `mkc`, `struct mlx5_wqe_mkey_context_seg`).
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[repr(C)]
pub struct MkeyContext {
    /// Whether the key refuses all traffic, see [`FreeByte`].
    pub free: u8,
    /// Whether writes may pass one another, see [`OrderingByte`].
    pub ordering: u8,
    /// Access rights, see [`AccessByte`].
    pub access: u8,
    /// Reserved.
    pub sf: u8,
    /// Bound queue pair and tag, see [`QpnMkey`].
    pub qpn_mkey: U32,
    /// Reserved.
    pub reserved1: U32,
    /// Flags and protection domain, see [`FlagsPd`].
    pub flags_pd: U32,
    /// First address of the key's space: 0, unless a configuration
    /// ([`PreparedConfig::with_start_address`](crate::wqe::PreparedConfig::with_start_address)) or the
    /// binding of a memory window sets another one.
    pub start_addr: U64,
    /// Length of the key's space in bytes. If memory and wire differ in length, the length in memory.
    pub len: U64,
    /// Room for BSFs in octowords. It is set when the mkey is created; a UMR of this library does not write
    /// it.
    pub bsf_octowords: U32,
    /// Reserved.
    pub reserved2: [U32; 4],
    /// Room for translation entries in octowords. It is set when the mkey is created; a UMR of this library
    /// does not write it.
    pub translations_octowords: U32,
    /// Reserved.
    pub reserved3: [u8; 3],
    /// Page size, and whether reads may pass writes, see [`PageByte`].
    pub page: u8,
    /// Reserved.
    pub reserved4: U32,
}

impl MkeyContext {
    /// Returns whether the key refuses all traffic.
    pub const fn is_free(&self) -> bool {
        FreeByte::from_bits(self.free).free()
    }

    /// Returns the access rights as their fields.
    pub const fn access_bits(&self) -> AccessByte {
        AccessByte::from_bits(self.access)
    }

    /// Returns the word with queue pair and tag as its fields.
    pub const fn qpn_mkey_word(&self) -> QpnMkey {
        QpnMkey::from_bits(self.qpn_mkey.get())
    }

    /// Returns the word with flags and protection domain as its fields.
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
