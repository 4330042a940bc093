//! Commands about a PCI function of the device. They enable and disable the function, give pages to it, and
//! choose the version of the interface between driver and firmware (ISSI).

use super::command::{ReplyHeader, RequestHeader};
use bitfield_struct::bitfield;
use zerocopy::big_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// The PCI function that a command is about.
#[bitfield(u32, defmt = cfg(feature = "defmt"))]
#[derive(PartialEq, Eq)]
pub struct FunctionId {
    /// The PCI function's number; 0 for the function that owns the command queue.
    pub function_id: u16,
    #[bits(15)]
    __: u16,
    /// The PCI function belongs to the cores on the device itself, as on BlueField.
    pub embedded_cpu_function: bool,
}

/// The request ENABLE_HCA, DISABLE_HCA, QUERY_PAGES or MANAGE_PAGES, 16 bytes without a list of pages (PRM
/// `enable_hca_in`, `disable_hca_in`, `query_pages_in`, `manage_pages_in`).
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[repr(C)]
pub struct FunctionRequest {
    /// Opcode and variant of the command.
    pub header: RequestHeader,
    /// The PCI function that the command is about, see [`FunctionId`].
    pub function: U32,
    /// For MANAGE_PAGES, the number of pages in the list after the request, or the number of pages that
    /// software wants back. For other commands, reserved.
    pub num_entries: U32,
}

impl FunctionRequest {
    /// `op_mod` of QUERY_PAGES: pages that the firmware needs before it answers other commands.
    pub const BOOT_PAGES: u16 = 1;
    /// `op_mod` of QUERY_PAGES: pages that the firmware needs before INIT_HCA.
    pub const INIT_PAGES: u16 = 2;
    /// `op_mod` of MANAGE_PAGES: software gives pages to the device.
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
    /// Status of the command.
    pub header: ReplyHeader,
    /// The PCI function that the command is about, see [`FunctionId`].
    pub function: U32,
    /// Number of pages that the firmware wants. A negative number means that software has to take pages back.
    pub num_pages: U32,
}

/// Reply to MANAGE_PAGES, 16 bytes without the list of pages (PRM `manage_pages_out`).
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[repr(C)]
pub struct ManagePagesReply {
    /// Status of the command.
    pub header: ReplyHeader,
    /// Number of pages in the list after the reply.
    pub num_entries: U32,
    /// Reserved.
    pub reserved: U32,
}

/// Reply to QUERY_ISSI, 112 bytes (PRM `query_issi_out`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct QueryIssiReply {
    /// Status of the command.
    pub header: ReplyHeader,
    /// Reserved.
    pub reserved0: U16,
    /// The ISSI version in force.
    pub current_issi: U16,
    /// Reserved, and ISSI versions from 32 on.
    pub reserved1: [U32; 24],
    /// The ISSI versions from 0 to 31 that the firmware supports: bit n stands for version n.
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
