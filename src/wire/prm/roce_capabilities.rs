//! RoCE capabilities of the device (PRM `roce_cap`; the UDP ports are in the kernel's and DPDK's headers
//! only).

use crate::wire::low::low8;
use bitfield_struct::bitfield;
use zerocopy::big_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Time stamps and loopback (PRM `roce_cap`, first word).
#[bitfield(u32, defmt = cfg(feature = "defmt"))]
#[derive(PartialEq, Eq)]
pub struct RoceFlags {
    /// The formats of time stamps that queue pairs support, with the codes of `sq_ts_format` of the general
    /// capabilities.
    #[bits(2, into = low8::<2>)]
    pub qp_ts_format: u8,
    #[bits(23)]
    __: u32,
    /// Reliable connections can loop back while RoCE is on.
    pub fl_rc_qp_when_roce_enabled: bool,
    /// Reliable connections can loop back while RoCE is off.
    pub fl_rc_qp_when_roce_disabled: bool,
    #[bits(5)]
    __: u8,
}

/// RoCE capabilities, 256 bytes (PRM `roce_cap`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct RoceCapabilityBits {
    /// Time stamps and loopback, see [`RoceFlags`].
    pub flags: U32,
    /// Not read by this library.
    pub reserved0: [U32; 5],
    /// The highest UDP source port of RoCE v2.
    pub max_src_udp_port: U16,
    /// The lowest UDP source port of RoCE v2.
    pub min_src_udp_port: U16,
    /// Not read by this library.
    pub reserved1: [U32; 57],
}

crate::fmt::defmt_as_bytes!(RoceCapabilityBits);

const _: () = assert!(size_of::<RoceCapabilityBits>() == 256);
const _: () = assert!(core::mem::offset_of!(RoceCapabilityBits, max_src_udp_port) == 0x18);
const _: () = assert!(RoceFlags::new().with_fl_rc_qp_when_roce_enabled(true).into_bits() == 1 << 25);
const _: () = assert!(RoceFlags::new().with_qp_ts_format(2).into_bits() == 2);
