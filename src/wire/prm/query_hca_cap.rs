//! QUERY_HCA_CAP: capabilities of the device.

use super::command::{ReplyHeader, RequestHeader};
use zerocopy::big_endian::U32;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// `op_mod` of the request: the general capabilities.
pub const GENERAL: u16 = 0 << 1;

/// `op_mod` of the request: the RoCE capabilities (PRM: type 4).
pub const ROCE: u16 = 4 << 1;

/// `op_mod` of the request: the crypto capabilities (PRM: type 0x1a).
pub const CRYPTO: u16 = 0x1a << 1;

/// `op_mod` of the request, added to the type: the capabilities in force, not the possible ones.
pub const CURRENT: u16 = 1;

/// Bytes of capabilities in a reply. Only the first 256 of each page are known.
pub const CAPABILITY_BYTES: usize = 4096;

/// Bytes of the capabilities that this library reads.
pub const KNOWN_BYTES: usize = 256;

/// Request, 16 bytes (PRM `query_hca_cap_in`). Its `op_mod` selects the capabilities.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[repr(C)]
pub struct QueryHcaCapRequest {
    /// Command and page.
    pub header: RequestHeader,
    /// The function that is queried; 0 for the function that owns the command queue.
    pub function: U32,
    /// Reserved.
    pub reserved: U32,
}

/// Reply, 4112 bytes (PRM `query_hca_cap_out`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct QueryHcaCapReply {
    /// Status.
    pub header: ReplyHeader,
    /// Reserved.
    pub reserved: [U32; 2],
    /// The page that was asked for, see [`super::general_capabilities`] and [`super::crypto_capabilities`].
    pub known: [u8; KNOWN_BYTES],
    /// The rest of the page.
    pub rest: [u8; CAPABILITY_BYTES - KNOWN_BYTES],
}

crate::fmt::defmt_as_bytes!(QueryHcaCapRequest, QueryHcaCapReply);

const _: () = assert!(size_of::<QueryHcaCapRequest>() == 16);
const _: () = assert!(size_of::<QueryHcaCapReply>() == 4112);
const _: () = assert!(core::mem::offset_of!(QueryHcaCapReply, known) == 16);
