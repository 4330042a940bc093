//! The SET_PSV segment (`struct mlx5_wqe_set_psv_seg`).

use zerocopy::big_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// What SET_PSV writes into a protection signature value, 16 bytes (`struct mlx5_wqe_set_psv_seg`).
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[repr(C)]
pub struct SetPsvSegment {
    /// Index of the PSV, in the low 24 bits.
    pub psv_index: U32,
    /// 0: no error is pending.
    pub syndrome: U16,
    /// Reserved.
    pub reserved: U16,
    /// Start values: a CRC seed (32-bit CRCs in the high half), or T10-DIF `guard << 48 | app << 32 | ref`.
    pub transient_signature: U64,
}

crate::fmt::defmt_as_bytes!(SetPsvSegment);

const _: () = assert!(size_of::<SetPsvSegment>() == 16);
const _: () = assert!(core::mem::offset_of!(SetPsvSegment, transient_signature) == 8);
