//! The UMR control segment: which parts of an mkey a UMR changes (PRM `umr_ctrl_seg`).

use super::ctrl::ControlSegment;
use bitfield_struct::bitfield;
use zerocopy::big_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// First byte of the UMR control segment (PRM `umr_ctrl_seg.flags`).
#[bitfield(u8, defmt = cfg(feature = "defmt"))]
#[derive(PartialEq, Eq)]
pub struct UmrFlags {
    #[bits(3)]
    __: u8,
    /// The device refuses the request unless the mkey is bound to the request's queue pair (`CHECK_QPN`).
    pub check_qpn: bool,
    /// The field [`UmrControlSegment::bsf_octowords`] is a translation offset instead of a BSF size
    /// (`TRNSLATION_OFFSET`).
    pub translation_offset: bool,
    /// The device refuses the request unless the mkey is free. rdma-core calls this flag
    /// `MLX5_WQE_UMR_CTRL_FLAG_CHECK_FREE` and sets it when it binds a memory window. The kernel calls it
    /// `MLX5_UMR_CHECK_NOT_FREE` ("fail if not free").
    pub check_free: bool,
    #[bits(1)]
    __: u8,
    /// Translation entries and BSFs follow in the request itself (`INLINE`).
    pub inline: bool,
}

/// The fields of the mkey context that a UMR writes (PRM `umr_ctrl_seg.mkey_mask`).
#[bitfield(u64, defmt = cfg(feature = "defmt"))]
#[derive(PartialEq, Eq)]
pub struct MkeyMask {
    /// Length of the mkey's space.
    pub len: bool,
    #[bits(5)]
    __: u8,
    /// First address of the mkey's space.
    pub start_addr: bool,
    #[bits(1)]
    __: u8,
    /// Whether the peer may invalidate the key.
    pub en_rinval: bool,
    /// Bit 0 of the signature error count.
    pub sig_err: bool,
    #[bits(2)]
    __: u8,
    /// Whether the BSFs are in force.
    pub bsf_enable: bool,
    /// The tag of the key.
    pub mkey: bool,
    /// The queue pair that the key is bound to.
    pub qpn: bool,
    #[bits(3)]
    __: u8,
    /// The right to local writes.
    pub local_write: bool,
    /// The right to remote reads.
    pub remote_read: bool,
    /// The right to remote writes.
    pub remote_write: bool,
    /// The right to remote atomics.
    pub atomic: bool,
    #[bits(3)]
    __: u8,
    /// Whether writes may pass one another.
    pub relaxed_ordering_write: bool,
    #[bits(3)]
    __: u8,
    /// Whether the mkey is free, so that it refuses all traffic.
    pub free: bool,
    #[bits(17)]
    __: u32,
    /// Whether reads may pass writes.
    pub relaxed_ordering_read: bool,
    #[bits(16)]
    __: u16,
}

const _: () = {
    // These are the bit numbers of rdma-core (`MLX5_WQE_UMR_CTRL_MKEY_MASK_*`). A wrong padding in the struct
    // would shift every bit after it.
    assert!(MkeyMask::new().with_start_addr(true).into_bits() == 1 << 6);
    assert!(MkeyMask::new().with_sig_err(true).into_bits() == 1 << 9);
    assert!(MkeyMask::new().with_bsf_enable(true).into_bits() == 1 << 12);
    assert!(MkeyMask::new().with_qpn(true).into_bits() == 1 << 14);
    assert!(MkeyMask::new().with_local_write(true).into_bits() == 1 << 18);
    assert!(MkeyMask::new().with_atomic(true).into_bits() == 1 << 21);
    assert!(MkeyMask::new().with_free(true).into_bits() == 1 << 29);
    // These are bit numbers of the kernel (`MLX5_MKEY_MASK_*`), which rdma-core lacks.
    assert!(MkeyMask::new().with_en_rinval(true).into_bits() == 1 << 8);
    assert!(MkeyMask::new().with_relaxed_ordering_write(true).into_bits() == 1 << 25);
    assert!(MkeyMask::new().with_relaxed_ordering_read(true).into_bits() == 1 << 47);
};

/// The UMR control segment, 48 bytes (PRM `umr_ctrl_seg`, `struct mlx5_wqe_umr_ctrl_seg`).
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[repr(C)]
pub struct UmrControlSegment {
    /// Flags of the request, see [`UmrFlags`].
    pub flags: u8,
    /// Reserved.
    pub reserved0: [u8; 3],
    /// Number of octowords of the translation entries, rounded up to a multiple of 4 (64 bytes).
    pub klm_octowords: U16,
    /// Size of the BSFs in octowords. With [`UmrFlags::translation_offset`], this field holds the low 16 bits
    /// of the number of the first translation entry that the UMR writes (`translation_offset`).
    pub bsf_octowords: U16,
    /// The fields of the mkey context that the UMR writes, see [`MkeyMask`].
    pub mkey_mask: U64,
    /// The upper 32 bits of the number of the first translation entry that the UMR writes, for devices with
    /// `umr_extended_translation_offset` (kernel `xlt_offset_47_16`).
    pub translation_offset_47_16: U32,
    /// Reserved.
    pub reserved1: [U32; 7],
}

impl UmrControlSegment {
    /// The alignment in bytes of translation entries and BSFs outside of the request (DPDK
    /// `MLX5_UMR_KLM_PTR_ALIGN`: "as PRM describes").
    pub const POINTER_ALIGNMENT: u64 = 2048;

    /// Returns the flags as their fields.
    pub const fn flag_bits(&self) -> UmrFlags {
        UmrFlags::from_bits(self.flags)
    }

    /// Returns the number of the first translation entry that the UMR writes, `None` if the UMR writes a
    /// whole layout.
    pub const fn first_entry(&self) -> Option<u64> {
        if !self.flag_bits().translation_offset() {
            return None;
        }
        Some((self.translation_offset_47_16.get() as u64) << 16 | self.bsf_octowords.get() as u64)
    }

    /// Makes the UMR write translation entries from number `first` on.
    pub(crate) fn set_first_entry(&mut self, first: u32) {
        self.flags = self.flag_bits().with_translation_offset(true).into_bits();
        self.bsf_octowords = U16::new(first as u16);
        self.translation_offset_47_16 = U32::new(first >> 16);
    }

    /// Returns the mask as its fields.
    pub const fn mask(&self) -> MkeyMask {
        MkeyMask::from_bits(self.mkey_mask.get())
    }
}

/// The first block of a UMR: control segment and UMR control segment, 64 bytes.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[repr(C)]
pub struct UmrHead {
    /// Control segment. Its `imm` is the key of the mkey that the UMR changes.
    pub ctrl: ControlSegment,
    /// UMR control segment.
    pub umr: UmrControlSegment,
}

crate::fmt::defmt_as_bytes!(UmrControlSegment, UmrHead);

const _: () = assert!(size_of::<UmrControlSegment>() == 48);
const _: () = assert!(core::mem::offset_of!(UmrControlSegment, klm_octowords) == 4);
const _: () = assert!(core::mem::offset_of!(UmrControlSegment, mkey_mask) == 8);
const _: () = assert!(core::mem::offset_of!(UmrControlSegment, translation_offset_47_16) == 16);
const _: () = assert!(size_of::<UmrHead>() == 64);
