//! Commands about a function of the device: it is enabled, given pages, and disabled.

use super::command::{ReplyHeader, RequestHeader};
use bitfield_struct::bitfield;
use zerocopy::big_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Which function is meant.
#[bitfield(u32, defmt = cfg(feature = "defmt"))]
#[derive(PartialEq, Eq)]
pub struct FunctionId {
    /// Its number; 0 for that whose command queue this is.
    pub function_id: u16,
    #[bits(15)]
    __: u16,
    /// It is one of the cores on the device itself, as BlueField's.
    pub embedded_cpu_function: bool,
}

/// Request, 16 bytes without a list of pages (PRM `enable_hca_in`, `disable_hca_in`, `query_pages_in`,
/// `manage_pages_in`).
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[repr(C)]
pub struct FunctionRequest {
    /// Command.
    pub header: RequestHeader,
    /// See [`FunctionId`].
    pub function: U32,
    /// Pages in the list behind, or asked for; else reserved.
    pub num_entries: U32,
}

impl FunctionRequest {
    /// `op_mod` of QUERY_PAGES: what the firmware needs before it answers other commands.
    pub const BOOT_PAGES: u16 = 1;
    /// `op_mod` of QUERY_PAGES: what it needs before INIT_HCA.
    pub const INIT_PAGES: u16 = 2;
    /// `op_mod` of MANAGE_PAGES: the pages are the device's.
    pub const GIVE: u16 = 1;
    /// `op_mod` of MANAGE_PAGES: the device gives pages back.
    pub const TAKE: u16 = 2;
}

/// Reply to QUERY_PAGES, 16 bytes (PRM `query_pages_out`).
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[repr(C)]
pub struct QueryPagesReply {
    /// Status.
    pub header: ReplyHeader,
    /// See [`FunctionId`].
    pub function: U32,
    /// Pages that are wanted; with a sign.
    pub num_pages: U32,
}

/// Reply to MANAGE_PAGES, 16 bytes without the list of pages (PRM `manage_pages_out`).
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[repr(C)]
pub struct ManagePagesReply {
    /// Status.
    pub header: ReplyHeader,
    /// Pages in the list behind.
    pub num_entries: U32,
    /// Reserved.
    pub reserved: U32,
}

/// Reply to QUERY_ISSI, 112 bytes (PRM `query_issi_out`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct QueryIssiReply {
    /// Status.
    pub header: ReplyHeader,
    /// Reserved.
    pub reserved0: U16,
    /// The version in force.
    pub current_issi: U16,
    /// Reserved, and versions from 32 on.
    pub reserved1: [U32; 24],
    /// Which of the versions 0 to 31 are known: bit n stands for version n.
    pub supported_issi_dw0: U32,
}

crate::fmt::defmt_as_bytes!(FunctionRequest, QueryPagesReply, ManagePagesReply, QueryIssiReply);

const _: () = assert!(size_of::<FunctionRequest>() == 16);
const _: () = assert!(core::mem::offset_of!(FunctionRequest, num_entries) == 0xc);
const _: () = assert!(size_of::<QueryPagesReply>() == 16 && size_of::<ManagePagesReply>() == 16);
const _: () = assert!(core::mem::offset_of!(ManagePagesReply, num_entries) == 8);
const _: () = assert!(size_of::<QueryIssiReply>() == 112);
const _: () = assert!(core::mem::offset_of!(QueryIssiReply, current_issi) == 0xa);
const _: () = assert!(core::mem::offset_of!(QueryIssiReply, supported_issi_dw0) == 0x6c);
const _: () = assert!(FunctionId::new().with_embedded_cpu_function(true).into_bits() == 1 << 31);
