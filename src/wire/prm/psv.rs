//! CREATE_PSV: the command that creates protection signature values.

use super::command::{ReplyHeader, RequestHeader};
use crate::wire::low::{low8, low32};
use bitfield_struct::bitfield;
use zerocopy::big_endian::U32;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// The number of PSVs, and their protection domain.
#[bitfield(u32, defmt = cfg(feature = "defmt"))]
#[derive(PartialEq, Eq)]
pub struct PsvCount {
    /// Number of the protection domain.
    #[bits(24, into = low32::<24>)]
    pub pd: u32,
    #[bits(4)]
    __: u8,
    /// Number of PSVs, 1 to 4.
    #[bits(4, into = low8::<4>)]
    pub num_psv: u8,
}

/// The request CREATE_PSV, 16 bytes (PRM `create_psv_in`).
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[repr(C)]
pub struct CreatePsvRequest {
    /// Opcode and variant of the command.
    pub header: RequestHeader,
    /// Number of PSVs, and their protection domain, see [`PsvCount`].
    pub count: U32,
    /// Reserved.
    pub reserved: U32,
}

/// The reply to CREATE_PSV, 32 bytes (PRM `create_psv_out`).
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[repr(C)]
pub struct CreatePsvReply {
    /// Status of the command.
    pub header: ReplyHeader,
    /// Reserved.
    pub reserved: [U32; 2],
    /// The indices of the requested PSVs, each in the low 24 bits.
    pub psv: [U32; 4],
}

crate::fmt::defmt_as_bytes!(CreatePsvRequest, CreatePsvReply);

const _: () = assert!(size_of::<CreatePsvRequest>() == 16);
const _: () = assert!(size_of::<CreatePsvReply>() == 32);
const _: () = assert!(core::mem::offset_of!(CreatePsvReply, psv) == 0x10);
