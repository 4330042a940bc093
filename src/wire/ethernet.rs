//! The segment after the control segment, in sends of Ethernet queues (PRM `eth_seg`).

use zerocopy::big_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// The Ethernet segment, 16 bytes (`struct mlx5_wqe_eth_seg` of the kernel). It ends with the first two bytes
/// of the inline packet header. The rest of the header follows, padded to octowords.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[repr(C)]
pub struct EthernetSegment {
    /// Offsets of outer L4, outer L3, inner L4 and inner L3, in units of 2 bytes (`swp_*_offset`).
    pub parser_offsets: [u8; 4],
    /// Checksums that the device fills in (`cs_flags`).
    pub checksums: u8,
    /// The protocols at `parser_offsets` (`swp_flags`).
    pub parser_flags: u8,
    /// Largest number of data bytes in a TCP segment (`mss`).
    pub mss: U16,
    /// Metadata for flow tables (`flow_table_metadata`).
    pub metadata: U32,
    /// Number of the packet header's bytes in the request, in the low 10 bits (`inline_hdr.sz`); or
    /// [`EthernetSegment::VLAN`] or [`EthernetSegment::TRAILER`] (`insert.type`).
    pub header_size: U16,
    /// The first two bytes of the packet header, or the VLAN tag (`inline_hdr.start`, `insert.vlan_tci`).
    pub header_start: [u8; 2],
}

impl EthernetSegment {
    /// In `header_size`: the device inserts a VLAN tag (`MLX5_ETH_WQE_INSERT_VLAN`).
    pub const VLAN: u16 = 1 << 15;
    /// In `header_size`: the device inserts a trailer (`MLX5_ETH_WQE_INSERT_TRAILER`).
    pub const TRAILER: u16 = 1 << 14;

    /// Returns how many bytes of the packet header are in the request. Two of them are in this segment.
    pub const fn header_bytes(&self) -> u16 {
        let word = self.header_size.get();
        if word & (Self::VLAN | Self::TRAILER) == 0 { word & 0x3ff } else { 0 }
    }
}

crate::fmt::defmt_as_bytes!(EthernetSegment);

const _: () = assert!(size_of::<EthernetSegment>() == 16);
const _: () = assert!(core::mem::offset_of!(EthernetSegment, header_size) == 12);
