//! The place of a transfer, a wrong signature in one, and memory for its bytes.

use crate::refusal::Reason;
use crate::signature::Mismatch;
use alloc::vec::Vec;

/// A domain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// The bytes between two devices.
    Wire,
    /// The bytes in memory.
    Memory,
}

/// The place of a transfer in the three ways of counting bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// Offset in wire bytes, which is what requests give.
    pub wire_offset: u64,
    /// Length in wire bytes.
    pub wire_length: u64,
    /// Offset in bytes of data alone.
    pub data_offset: u64,
    /// Offset in memory bytes.
    pub memory_offset: u64,
    /// Length in memory bytes.
    pub memory_length: u64,
}

/// What a signature is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SignatureType {
    /// A block.
    Block,
    /// A transaction.
    Transaction,
}

/// The first signature of a transfer that was wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockError {
    /// What it was over.
    pub sig_type: SignatureType,
    /// Where it stood.
    pub side: Side,
    /// The PSV of that domain.
    pub psv: u32,
    /// Offset of the block's last byte, signature included, in bytes of its domain.
    pub offset: u64,
    /// What was wrong.
    pub mismatch: Mismatch,
}

/// An empty vector with room, which a message of 2 GiB may not get.
pub(crate) fn room(length: usize) -> Result<Vec<u8>, Reason> {
    let mut bytes = Vec::new();
    bytes.try_reserve_exact(length).map_err(|_| Reason::NoRoom { length: length as u64 })?;
    Ok(bytes)
}
