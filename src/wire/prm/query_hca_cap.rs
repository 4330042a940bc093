//! QUERY_HCA_CAP: the command that returns capabilities of the device.

use super::command::{ReplyHeader, RequestHeader};
use zerocopy::big_endian::U32;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// `op_mod` of the request: selects the general capabilities.
pub const GENERAL: u16 = 0 << 1;

/// `op_mod` of the request: selects the capabilities of atomics (PRM: type 3).
pub const ATOMIC: u16 = 3 << 1;

/// `op_mod` of the request: selects the RoCE capabilities (PRM: type 4).
pub const ROCE: u16 = 4 << 1;

/// `op_mod` of the request: selects the crypto capabilities (PRM: type 0x1a).
pub const CRYPTO: u16 = 0x1a << 1;

/// `op_mod` of the request, added to the code of the capabilities: selects the capabilities in force. Without
/// this bit, the request selects the largest possible values.
pub const CURRENT: u16 = 1;

/// Number of bytes of capabilities in a reply.
pub const CAPABILITY_BYTES: usize = 4096;

/// Number of bytes at the beginning of the capabilities that this library reads.
pub const KNOWN_BYTES: usize = 256;

/// The request QUERY_HCA_CAP, 16 bytes (PRM `query_hca_cap_in`). Its `op_mod` selects the capabilities.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[repr(C)]
pub struct QueryHcaCapRequest {
    /// Opcode of the command, and the `op_mod` that selects the capabilities.
    pub header: RequestHeader,
    /// The PCI function that is queried; 0 for the function that owns the command queue.
    pub function: U32,
    /// Reserved.
    pub reserved: U32,
}

/// The reply to QUERY_HCA_CAP, 4112 bytes (PRM `query_hca_cap_out`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct QueryHcaCapReply {
    /// Status of the command.
    pub header: ReplyHeader,
    /// Reserved.
    pub reserved: [U32; 2],
    /// The beginning of the selected capabilities, see [`super::general_capabilities`],
    /// [`super::atomic_capabilities`], [`super::roce_capabilities`] and [`super::crypto_capabilities`].
    pub known: [u8; KNOWN_BYTES],
    /// The rest of the selected capabilities, which this library does not read.
    pub rest: [u8; CAPABILITY_BYTES - KNOWN_BYTES],
}

crate::fmt::defmt_as_bytes!(QueryHcaCapRequest, QueryHcaCapReply);

const _: () = assert!(size_of::<QueryHcaCapRequest>() == 16);
const _: () = assert!(size_of::<QueryHcaCapReply>() == 4112);
const _: () = assert!(core::mem::offset_of!(QueryHcaCapReply, known) == 16);
