//! The wire formats of requests, completion entries and commands, one file for each kind of segment or
//! command. Each file declares the fields with their units, and names the public source of each constant.
//!
//! Every struct converts from and to bytes by zerocopy, and has big-endian fields; its size and offsets are
//! asserted beside it. [`crate::wqe`] encodes requests from these structs, and [`crate::inspect`] decodes
//! them.
//!
//! The setters of a word (`with_…`, `set_…`) take as many low bits of a value as the field has. A debug build
//! panics at a value with more bits.
//!
//! ```
//! use mlx5_mkey::wire::ctrl::{ControlSegment, Opcode};
//! use zerocopy::FromBytes;
//! // The first 16 bytes of an RDMA WRITE in block 3 of queue pair 0x77, with a completion.
//! let bytes = [0, 0, 3, 8, 0, 0, 0x77, 3, 0, 0, 0, 8, 0, 0, 0, 0];
//! let Ok(control) = ControlSegment::read_from_bytes(&bytes) else { panic!("not 16 bytes") };
//! assert_eq!(control.opcode_word().opcode(), Opcode::RDMA_WRITE.0);
//! assert_eq!((control.qpn_ds_word().qpn(), control.qpn_ds_word().ds()), (0x77, 3));
//! ```

pub mod bsf;
pub(crate) mod codes;
pub mod cqe;
pub mod ctrl;
pub mod data;
pub mod datagram;
pub mod ethernet;
pub mod klm;
pub(crate) mod low;
pub mod mkey_context;
pub mod prm;
pub mod psv;
pub mod strided;
pub mod umr;

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// The unit of a send queue, in bytes: a send WQE basic block (PRM `MLX5_SEND_WQE_BB`).
pub const WQEBB_BYTES: usize = 64;

/// The unit that segment sizes are counted in, in bytes (PRM: octoword, `MLX5_SEND_WQE_DS`).
pub const OCTOWORD_BYTES: usize = 16;

/// Number of octowords in a block.
pub(crate) const OCTOWORDS_PER_BLOCK: usize = WQEBB_BYTES / OCTOWORD_BYTES;

/// The bytes of one octoword.
pub(crate) type Octoword = [u8; OCTOWORD_BYTES];

/// The 64 bytes of a block, the unit in which the device reads requests.
pub(crate) type Block = [Octoword; OCTOWORDS_PER_BLOCK];

/// Returns the number of blocks that `octowords` octowords take, rounded up.
#[inline]
pub(crate) const fn blocks_of(octowords: usize) -> usize {
    octowords.div_ceil(OCTOWORDS_PER_BLOCK)
}

/// A block of zeros, for the parts of a request that carry no value.
pub(crate) const ZEROS: Block = [[0; OCTOWORD_BYTES]; OCTOWORDS_PER_BLOCK];

/// The largest number of octowords of one work request: the size field has 6 bits.
pub const MAX_WQE_OCTOWORDS: u8 = 63;

/// The largest number of full blocks that a request can have.
pub(crate) const MAX_WHOLE_BLOCKS: usize = MAX_WQE_OCTOWORDS as usize / OCTOWORDS_PER_BLOCK;

/// Number of blocks of a UMR before its layout. The first holds control segment and UMR control segment, the
/// second the mkey context.
pub(crate) const UMR_HEAD_BLOCKS: usize = 2;

/// One block of a send queue's ring (WQEBB), 64 bytes. A work request takes one or more blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C, align(64))]
pub struct Wqebb(pub [u8; WQEBB_BYTES]);

impl Wqebb {
    /// A block of zeros.
    pub const ZERO: Self = Self([0; WQEBB_BYTES]);
}

crate::fmt::defmt_as_bytes!(Wqebb);

const _: () = assert!(size_of::<Wqebb>() == 64 && align_of::<Wqebb>() == 64);
