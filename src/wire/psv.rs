//! The SET_PSV segment (`struct mlx5_wqe_set_psv_seg`).

use zerocopy::big_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// The values that SET_PSV writes into a PSV, 16 bytes (`struct mlx5_wqe_set_psv_seg`).
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[repr(C)]
pub struct SetPsvSegment {
    /// Index of the PSV, in the low 24 bits.
    pub psv_index: U32,
    /// Code of a pending error; 0 if there is none, as in all requests of this library.
    pub syndrome: U16,
    /// Reserved.
    pub reserved: U16,
    /// The start value of the signature, see [`TransientSignature`].
    pub transient_signature: U64,
}

/// The start value of a signature, 8 bytes (`transient_signature` of `struct mlx5_wqe_set_psv_seg`). The
/// fields are the start values of a T10-DIF signature. The seed of a 64-bit CRC takes all 8 bytes instead,
/// the seed of a 32-bit CRC the first four.
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
