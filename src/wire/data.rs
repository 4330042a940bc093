//! Segments of the data path: local data, inline data, remote address, operands of atomics, metadata of
//! memory copies.

use zerocopy::big_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// A data segment: a range of local memory, 16 bytes (PRM `wqe_data_seg`, `struct mlx5_wqe_data_seg`, `struct
/// ibv_sge`).
///
/// Entries of a receive queue have the same format.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[repr(C)]
pub struct DataSegment {
    /// Length in bytes; 0 means 2 GiB. Bit 31 is 0: it would make the segment an inline header.
    pub byte_count: U32,
    /// Key of the memory.
    pub lkey: U32,
    /// Address of the first byte; for a zero-based mkey the offset in its space.
    pub address: U64,
}

impl DataSegment {
    /// The largest length that this library writes, in bytes: `byte_count` has 31 bits.
    pub const MAX_BYTES: u32 = (1 << 31) - 1;
    /// The key of the entry that ends a receive request with fewer entries than its slot has room for
    /// (`MLX5_INVALID_LKEY`).
    pub const END_OF_LIST_KEY: u32 = 0x100;

    /// The entry that ends a receive request with fewer entries than its slot has room for.
    pub const END_OF_LIST: Self =
        Self { byte_count: U32::ZERO, lkey: U32::new(Self::END_OF_LIST_KEY), address: U64::ZERO };
}

/// The header before inline data, 4 bytes (`struct mlx5_wqe_inline_seg`).
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[repr(C)]
pub struct InlineHeader {
    /// Length of the inline data in bytes, with [`InlineHeader::INLINE`] set.
    pub byte_count: U32,
}

impl InlineHeader {
    /// The bit that distinguishes inline data from a data segment (`MLX5_INLINE_SEG`).
    pub const INLINE: u32 = 1 << 31;
}

/// The segment with the place in the peer's memory that an RDMA request accesses, 16 bytes (PRM
/// `wqe_raddr_seg`).
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[repr(C)]
pub struct RemoteAddressSegment {
    /// Address in the peer's memory; for a zero-based mkey the offset in its space.
    pub address: U64,
    /// The peer's key.
    pub rkey: U32,
    /// Reserved.
    pub reserved: U32,
}

/// The segment with the operands of an atomic, 16 bytes (PRM `wqe_atomic_seg`).
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[repr(C)]
pub struct AtomicSegment {
    /// The value to swap in, or to add.
    pub swap_add: U64,
    /// The value to compare with; 0 for an add.
    pub compare: U64,
}

/// The segment with the operands of an atomic of 4 bytes under masks, 16 bytes (UCX
/// `uct_ib_mlx5_atomic_masked_cswap32_seg`, `uct_ib_mlx5_atomic_masked_fadd32_seg`).
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[repr(C)]
pub struct MaskedAtomic32Segment {
    /// The value to swap in, or to add.
    pub swap_add: U32,
    /// The value to compare with; for an add, the highest bits of the fields.
    pub compare: U32,
    /// The bits that the swap replaces; 0 for an add.
    pub swap_mask: U32,
    /// The bits that are compared; 0 for an add.
    pub compare_mask: U32,
}

/// The segment with the operands of a compare and swap of 8 bytes under masks, 32 bytes (`struct
/// mlx5_wqe_masked_atomic_seg`). An add of 8 bytes has the first half of the segment only, an
/// [`AtomicSegment`] with the highest bits of the fields in place of the compared value (UCX
/// `uct_ib_mlx5_atomic_masked_fadd64_seg`).
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[repr(C)]
pub struct MaskedAtomic64Segment {
    /// The value to swap in, and the value to compare with.
    pub operands: AtomicSegment,
    /// The bits that the swap replaces.
    pub swap_mask: U64,
    /// The bits that are compared.
    pub compare_mask: U64,
}

/// The metadata of a memory-to-memory request, before its data segments, 16 bytes (`struct
/// mlx5_mmo_metadata_seg`).
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[repr(C)]
pub struct MmoMetadataSegment {
    /// Low half of the operation's parameters, 0 for a copy (`mmo_control_31_0`). DPDK writes the high half
    /// into the control segment's immediate data.
    pub control: U32,
    /// Key of the opaque buffer, to which the device may write information about the operation (64 bytes in
    /// rdma-core).
    pub opaque_lkey: U32,
    /// Address of the opaque buffer.
    pub opaque_address: U64,
}

crate::fmt::defmt_as_bytes!(
    DataSegment,
    InlineHeader,
    RemoteAddressSegment,
    AtomicSegment,
    MaskedAtomic32Segment,
    MaskedAtomic64Segment,
    MmoMetadataSegment
);

const _: () = assert!(size_of::<DataSegment>() == 16 && size_of::<InlineHeader>() == 4);
const _: () = assert!(size_of::<RemoteAddressSegment>() == 16 && size_of::<AtomicSegment>() == 16);
const _: () = assert!(core::mem::offset_of!(RemoteAddressSegment, rkey) == 8);
const _: () = assert!(size_of::<MaskedAtomic32Segment>() == 16);
const _: () = assert!(size_of::<MaskedAtomic64Segment>() == 32);
const _: () = assert!(core::mem::offset_of!(MaskedAtomic64Segment, swap_mask) == 16);
const _: () = assert!(size_of::<MmoMetadataSegment>() == 16);
const _: () = assert!(core::mem::offset_of!(MmoMetadataSegment, opaque_address) == 8);
