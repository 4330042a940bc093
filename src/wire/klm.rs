//! The translation entry of a list layout (PRM `klm`).

use zerocopy::big_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// One entry of a list layout, 16 bytes (PRM `klm`, `struct mlx5_wqe_umr_klm_seg`).
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[repr(C)]
pub struct Klm {
    /// Length of the range in bytes. In an mkey whose entries all have one length (KSM), the device ignores
    /// this field.
    pub byte_count: U32,
    /// Key of the memory region, or of the mkey, that holds the range.
    pub mkey: U32,
    /// Address of the range's first byte.
    pub address: U64,
}

impl Klm {
    /// The largest length of an entry, in bytes (rdma-core `set_bind_wr`: "KLM support only 2GB").
    pub const MAX_BYTES: u32 = 1 << 31;
    /// The entry that pads a list to a multiple of 64 bytes.
    pub const PADDING: Self = Self { byte_count: U32::ZERO, mkey: U32::ZERO, address: U64::ZERO };
}

crate::fmt::defmt_as_bytes!(Klm);

const _: () = assert!(size_of::<Klm>() == 16);
