//! Segments of the data path: local data, inline data, remote address, atomic operands, what a copy in memory
//! has.

use zerocopy::big_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// A data segment: a range of local memory, 16 bytes (PRM `wqe_data_seg`, `struct mlx5_wqe_data_seg`, `struct
/// ibv_sge`).
///
/// Also the entry of a receive queue.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[repr(C)]
pub struct DataSegment {
    /// Length in bytes; bit 31 would make it an inline header.
    pub byte_count: U32,
    /// Key of the memory.
    pub lkey: U32,
    /// Address of the first byte; for a zero-based mkey the offset in its space.
    pub address: U64,
}

impl DataSegment {
    /// The longest segment, in bytes: the length has 31 bits.
    pub const MAX_BYTES: u32 = (1 << 31) - 1;
    /// The key that ends a list of receive entries before its last slot (`MLX5_INVALID_LKEY`).
    pub const END_OF_LIST_KEY: u32 = 0x100;

    /// The entry that ends a list of receive entries before its last slot.
    pub const END_OF_LIST: Self =
        Self { byte_count: U32::ZERO, lkey: U32::new(Self::END_OF_LIST_KEY), address: U64::ZERO };
}

/// The header before inline data, 4 bytes (`struct mlx5_wqe_inline_seg`).
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[repr(C)]
pub struct InlineHeader {
    /// Length in bytes, with [`InlineHeader::INLINE`] set.
    pub byte_count: U32,
}

impl InlineHeader {
    /// Tells inline data from a data segment (`MLX5_INLINE_SEG`).
    pub const INLINE: u32 = 1 << 31;
}

/// Where in the peer's memory an RDMA request goes, 16 bytes (PRM `wqe_raddr_seg`).
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

/// Operands of an atomic, 16 bytes (PRM `wqe_atomic_seg`).
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

/// What a memory-to-memory request has before its data segments, 16 bytes (`struct mlx5_mmo_metadata_seg`).
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[repr(C)]
pub struct MmoMetadataSegment {
    /// Low half of what the operation is told, 0 for a copy (`mmo_control_31_0`); DPDK has the high half in
    /// the control segment's immediate data.
    pub control: U32,
    /// Key of the opaque buffer, where the device may leave what it has to say of the operation (rdma-core:
    /// 64 bytes).
    pub opaque_lkey: U32,
    /// Address of the opaque buffer.
    pub opaque_address: U64,
}

crate::fmt::defmt_as_bytes!(
    DataSegment,
    InlineHeader,
    RemoteAddressSegment,
    AtomicSegment,
    MmoMetadataSegment
);

const _: () = assert!(size_of::<DataSegment>() == 16 && size_of::<InlineHeader>() == 4);
const _: () = assert!(size_of::<RemoteAddressSegment>() == 16 && size_of::<AtomicSegment>() == 16);
const _: () = assert!(core::mem::offset_of!(RemoteAddressSegment, rkey) == 8);
const _: () = assert!(size_of::<MmoMetadataSegment>() == 16);
const _: () = assert!(core::mem::offset_of!(MmoMetadataSegment, opaque_address) == 8);
