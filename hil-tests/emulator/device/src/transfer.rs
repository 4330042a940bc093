//! The range of a transfer, a wrong signature in a transfer, and the allocation of memory for transferred
//! bytes.

use crate::refusal::Reason;
use crate::signature::Mismatch;
use alloc::vec::Vec;

/// A side of an mkey (signature domain).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// The bytes between two devices.
    Wire,
    /// The bytes in memory.
    Memory,
}

/// The range of a transfer, in the three ways of counting bytes: on the wire, in memory, and data alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// Offset in wire bytes. Requests use this offset.
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

/// The data that a signature covers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SignatureType {
    /// The data of one block.
    Block,
    /// All data of a transaction.
    Transaction,
}

/// The first wrong signature of a transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockError {
    /// The data that the signature covers.
    pub sig_type: SignatureType,
    /// The side on which the signature stands.
    pub side: Side,
    /// The PSV of that side.
    pub psv: u32,
    /// Offset of the signature's last byte, in bytes of its domain.
    pub offset: u64,
    /// The wrong part, with the found and the computed value.
    pub mismatch: Mismatch,
}

/// Returns an empty vector with room for `length` bytes. The allocation may fail: a message may have 2 GiB.
pub(crate) fn room(length: usize) -> Result<Vec<u8>, Reason> {
    let mut bytes = Vec::new();
    bytes.try_reserve_exact(length).map_err(|_| Reason::NoRoom { length: length as u64 })?;
    Ok(bytes)
}
