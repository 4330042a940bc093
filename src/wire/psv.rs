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
    /// What the signature starts with, see [`TransientSignature`].
    pub transient_signature: U64,
}

/// What a signature starts with, 8 bytes (`transient_signature` of `struct mlx5_wqe_set_psv_seg`): the fields
/// of a T10-DIF, or the seed of a CRC over all of them, one of 32 bits in the first four bytes.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[repr(C)]
pub struct TransientSignature {
    /// Seed of the block guard.
    pub guard: U16,
    /// Application tag.
    pub app_tag: U16,
    /// Reference tag.
    pub ref_tag: U32,
}

crate::fmt::defmt_as_bytes!(SetPsvSegment, TransientSignature);

const _: () = assert!(size_of::<SetPsvSegment>() == 16 && size_of::<TransientSignature>() == 8);
const _: () = assert!(core::mem::offset_of!(SetPsvSegment, transient_signature) == 8);
