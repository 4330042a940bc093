//! The messages over the queue pairs: commands of the initiator, and responses of the target.

use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// The size of a message buffer, in bytes.
pub(crate) const CAPSULE: usize = 32;

/// A command of the initiator.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(crate) struct Command {
    /// The first block of the volume that the command reads or writes.
    pub(crate) lba: U64,
    pub(crate) blocks: U32,
    /// Key of the initiator's mkey. Its space begins at 0 and has 520 bytes per block: data and T10-DIF.
    pub(crate) rkey: U32,
    /// Number that identifies the command among those of its queue pair. The response repeats it.
    pub(crate) tag: U16,
    /// [`Command::READ`] or [`Command::WRITE`].
    pub(crate) opcode: u8,
    /// Reserved, always 0.
    pub(crate) reserved: u8,
}

impl Command {
    pub(crate) const READ: u8 = 2;
    pub(crate) const WRITE: u8 = 1;
}

/// The response of the target: the result of a command.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(crate) struct Response {
    /// With [`Response::CORRUPT`]: the first block whose signature is wrong.
    pub(crate) lba: U64,
    /// The tag of the command.
    pub(crate) tag: U16,
    /// [`Response::DONE`], [`Response::CORRUPT`] or [`Response::INVALID`].
    pub(crate) status: u8,
    /// Reserved, always 0.
    pub(crate) reserved: [u8; 5],
}

impl Response {
    /// The command is done. Data that were read are the last written data.
    pub(crate) const DONE: u8 = 0;
    /// A block of the volume differs from its last written data.
    pub(crate) const CORRUPT: u8 = 1;
    /// The command is invalid.
    pub(crate) const INVALID: u8 = 2;
}
