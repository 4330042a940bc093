//! The translation entries of an interleaved layout (`struct mlx5_wqe_umr_repeat_block_seg`).

use zerocopy::big_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// The header of an interleaved layout, 16 bytes (`struct mlx5_wqe_umr_repeat_block_seg`).
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[repr(C)]
pub struct StridedHeader {
    /// Bytes in one cycle: the sum over all entries.
    pub bytes_per_cycle: U32,
    /// The code that marks an interleaved layout: [`StridedHeader::OPCODE`].
    pub op: U32,
    /// Number of cycles.
    pub repeat_count: U32,
    /// Reserved.
    pub reserved: U16,
    /// Number of entries that follow.
    pub num_entries: U16,
}

impl StridedHeader {
    /// The code in `op` by which the device tells the header of an interleaved layout from a list entry.
    pub const OPCODE: u32 = 0x400;

    /// Creates the header of an interleaved layout.
    pub const fn new(repeat_count: u32, bytes_per_cycle: u32, num_entries: u16) -> Self {
        Self {
            bytes_per_cycle: U32::new(bytes_per_cycle),
            op: U32::new(Self::OPCODE),
            repeat_count: U32::new(repeat_count),
            reserved: U16::ZERO,
            num_entries: U16::new(num_entries),
        }
    }
}

/// One entry (a stream) of an interleaved layout, 16 bytes (`struct mlx5_wqe_umr_repeat_ent_seg`).
///
/// In each cycle the entry provides `byte_count` bytes. The bytes of the next cycle are `stride` bytes
/// further.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[repr(C)]
pub struct StridedEntry {
    /// Distance in bytes from the bytes of one cycle to the bytes of the next cycle.
    pub stride: U16,
    /// Number of bytes that the entry provides in each cycle.
    pub byte_count: U16,
    /// Key of the memory region, or of the mkey, that holds the bytes.
    pub mkey: U32,
    /// Address of the bytes of the first cycle.
    pub address: U64,
}

crate::fmt::defmt_as_bytes!(StridedHeader, StridedEntry);

const _: () = assert!(size_of::<StridedHeader>() == 16 && size_of::<StridedEntry>() == 16);
const _: () = assert!(core::mem::offset_of!(StridedHeader, num_entries) == 14);
