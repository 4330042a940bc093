//! The address segment after the control segment, in requests of datagram queues and of dynamically connected
//! queues (PRM `ud_av`).

use zerocopy::big_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// The first part of an address, 16 bytes (`struct mlx5_wqe_av` of mlx5dv.h, `struct mlx5_base_av` of UCX). A
/// compact address consists of this part only.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[repr(C)]
pub struct BaseAddress {
    /// Q_Key of a datagram in the upper half, or the access key of a dynamically connected queue (`key`).
    pub key: U64,
    /// Number of the queue pair, or of the dynamically connected target, in the low 24 bits; and the bit
    /// [`BaseAddress::EXTENDED`] (`dqp_dct`).
    pub dqp_dct: U32,
    /// Static rate and service level (`stat_rate_sl`).
    pub stat_rate_sl: u8,
    /// Force-loopback bit, and path bits of the source LID (`fl_mlid`).
    pub fl_mlid: u8,
    /// Remote LID; UDP source port on RoCE (`rlid`).
    pub rlid: U16,
}

impl BaseAddress {
    /// In `dqp_dct`: a [`RouteAddress`] follows (`MLX5_EXTENDED_UD_AV`).
    pub const EXTENDED: u32 = 1 << 31;

    /// Returns the number of the queue pair, or of the dynamically connected target.
    pub const fn number(&self) -> u32 {
        self.dqp_dct.get() & 0x00ff_ffff
    }
}

/// The second part of an address, 32 bytes: the path by MAC and GID (`struct mlx5_wqe_av`, from `reserved0`
/// on).
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[repr(C)]
pub struct RouteAddress {
    /// Reserved.
    pub reserved: [u8; 4],
    /// MAC address of the next hop (`rmac`).
    pub mac: [u8; 6],
    /// Traffic class (`tclass`).
    pub traffic_class: u8,
    /// Hop limit (`hop_limit`).
    pub hop_limit: u8,
    /// Global route bit, index of the source GID, flow label (`grh_gid_fl`).
    pub grh_gid_fl: U32,
    /// GID of the destination (`rgid`).
    pub gid: [u8; 16],
}

crate::fmt::defmt_as_bytes!(BaseAddress, RouteAddress);

const _: () = assert!(size_of::<BaseAddress>() == 16 && size_of::<RouteAddress>() == 32);
const _: () = assert!(core::mem::offset_of!(BaseAddress, dqp_dct) == 8);
const _: () = assert!(core::mem::offset_of!(RouteAddress, gid) == 16);
