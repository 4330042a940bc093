//! What the two sides send each other over the queue pairs: commands one way, responses the other.

use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Bytes that a receive request has room for.
pub(crate) const CAPSULE: usize = 32;

/// What the initiator asks for.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(crate) struct Command {
    /// First block.
    pub(crate) lba: U64,
    /// Number of blocks.
    pub(crate) blocks: U32,
    /// Key of the initiator's mkey, whose space begins at 0 and has 520 bytes for each block: data and
    /// T10-DIF.
    pub(crate) rkey: U32,
    /// Comes back in the response: the number of the command among those of its queue pair.
    pub(crate) tag: U16,
    /// [`Command::READ`] or [`Command::WRITE`].
    pub(crate) opcode: u8,
    /// 0.
    pub(crate) reserved: u8,
}

impl Command {
    pub(crate) const READ: u8 = 2;
    pub(crate) const WRITE: u8 = 1;
}

/// What became of a command.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(crate) struct Response {
    /// The first block whose signature is wrong, for [`Response::CORRUPT`].
    pub(crate) lba: U64,
    /// That of the command.
    pub(crate) tag: U16,
    /// [`Response::DONE`], [`Response::CORRUPT`] or [`Response::INVALID`].
    pub(crate) status: u8,
    /// 0.
    pub(crate) reserved: [u8; 5],
}

impl Response {
    /// It is done; what was read is what was written last.
    pub(crate) const DONE: u8 = 0;
    /// A block of the volume is not what was written.
    pub(crate) const CORRUPT: u8 = 1;
    /// The command makes no sense.
    pub(crate) const INVALID: u8 = 2;
}
