//! Requests that move data, in parts.

use super::segment::{data_path_octowords, inline_length};
use crate::wire::OCTOWORD_BYTES;
use crate::wire::ctrl::Opcode;
use crate::wire::data::{AtomicSegment, DataSegment, InlineHeader, RemoteAddressSegment};
use zerocopy::FromBytes;

/// A send, RDMA or atomic request.
#[derive(Clone, Copy, Debug)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct DataPath<'a> {
    opcode: Opcode,
    remote: Option<&'a RemoteAddressSegment>,
    atomic: Option<&'a AtomicSegment>,
    /// Data pieces and where they begin in the request.
    pieces: &'a [u8],
    pieces_offset: usize,
}

/// One piece of the data that a request moves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub enum Piece<'a> {
    /// Local memory.
    Memory(DataSegment),
    /// Bytes inside the request.
    Inline {
        /// How many bytes the request says.
        length: u32,
        /// The bytes; fewer than that where the request ends before.
        bytes: &'a [u8],
    },
}

impl<'a> DataPath<'a> {
    /// Takes up a request; `None` where it is no data path, or ends before its data pieces begin.
    pub(super) fn new(opcode: Opcode, bytes: &'a [u8]) -> Option<Self> {
        let (octowords, has_atomic) = data_path_octowords(opcode)?;
        let pieces_offset = octowords * OCTOWORD_BYTES;
        let (head, pieces) = bytes.split_at_checked(pieces_offset)?;
        let mut remote = None;
        let mut atomic = None;
        if octowords > 1 {
            remote = Some(RemoteAddressSegment::ref_from_prefix(head.get(OCTOWORD_BYTES..)?).ok()?.0);
        }
        if has_atomic {
            atomic = Some(AtomicSegment::ref_from_prefix(head.get(2 * OCTOWORD_BYTES..)?).ok()?.0);
        }
        Some(Self { opcode, remote, atomic, pieces, pieces_offset })
    }

    /// Returns what kind of transfer it is.
    pub const fn opcode(&self) -> Opcode {
        self.opcode
    }

    /// Returns the place in the peer's memory, for RDMA and atomics.
    pub const fn remote(&self) -> Option<&'a RemoteAddressSegment> {
        self.remote
    }

    /// Returns the operands, for atomics.
    pub const fn atomic(&self) -> Option<&'a AtomicSegment> {
        self.atomic
    }

    /// Iterates over the pieces of data, each with the offset in the request where it begins.
    pub fn pieces(&self) -> impl Iterator<Item = (usize, Piece<'a>)> + Clone + use<'a> {
        Pieces { rest: self.pieces, offset: self.pieces_offset }
    }

    /// Returns how many bytes the request moves; a piece of length 0 counts as none.
    pub fn length(&self) -> u64 {
        self.pieces()
            .map(|(_, piece)| match piece {
                Piece::Memory(segment) => u64::from(segment.byte_count.get()),
                Piece::Inline { length, .. } => u64::from(length),
            })
            .sum()
    }
}

#[derive(Clone, Debug)]
struct Pieces<'a> {
    rest: &'a [u8],
    offset: usize,
}

impl<'a> Iterator for Pieces<'a> {
    type Item = (usize, Piece<'a>);

    fn next(&mut self) -> Option<Self::Item> {
        let (piece, length) = match inline_length(self.rest) {
            Some(length) => {
                let (_, bytes) = self.rest.split_at_checked(size_of::<InlineHeader>())?;
                let whole = size_of::<InlineHeader>().saturating_add(length as usize);
                let data = bytes.get(..length as usize).unwrap_or(bytes);
                (Piece::Inline { length, bytes: data }, whole.next_multiple_of(OCTOWORD_BYTES))
            }
            None => {
                let (segment, _) = DataSegment::read_from_prefix(self.rest).ok()?;
                (Piece::Memory(segment), OCTOWORD_BYTES)
            }
        };
        let offset = self.offset;
        self.rest = self.rest.get(length..).unwrap_or_default();
        self.offset += length;
        Some((offset, piece))
    }
}
