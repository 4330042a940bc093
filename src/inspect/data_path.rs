//! Requests that move data, in parts.

use super::segment::{MEMCPY_OCTOWORDS, data_path_octowords, inline_length, is_memcpy};
use crate::wire::OCTOWORD_BYTES;
use crate::wire::ctrl::Opcode;
use crate::wire::data::{AtomicSegment, DataSegment, InlineHeader, MmoMetadataSegment, RemoteAddressSegment};
use zerocopy::FromBytes;

/// A send, RDMA or atomic request.
#[derive(Clone, Copy, Debug)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct DataPath<'a> {
    opcode: Opcode,
    remote: Option<&'a RemoteAddressSegment>,
    atomic: Option<&'a AtomicSegment>,
    /// Data segments and where they begin in the request.
    segments: &'a [u8],
    segments_offset: usize,
}

/// One data segment of a request: a pointer to memory, or inline data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub enum DataSegmentView<'a> {
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
    /// Takes up a request; `None` where it is no data path, or ends before its data segments begin.
    pub(super) fn new(opcode: Opcode, bytes: &'a [u8]) -> Option<Self> {
        let (octowords, has_atomic) = data_path_octowords(opcode)?;
        let segments_offset = octowords * OCTOWORD_BYTES;
        let (head, segments) = bytes.split_at_checked(segments_offset)?;
        let mut remote = None;
        let mut atomic = None;
        if octowords > 1 {
            remote = Some(RemoteAddressSegment::ref_from_prefix(head.get(OCTOWORD_BYTES..)?).ok()?.0);
        }
        if has_atomic {
            atomic = Some(AtomicSegment::ref_from_prefix(head.get(2 * OCTOWORD_BYTES..)?).ok()?.0);
        }
        Some(Self { opcode, remote, atomic, segments, segments_offset })
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

    /// Iterates over the data segments, each with the offset in the request where it begins.
    pub fn data_segments(&self) -> impl Iterator<Item = (usize, DataSegmentView<'a>)> + Clone + use<'a> {
        DataSegments { rest: self.segments, offset: self.segments_offset }
    }

    /// Returns how many bytes the request moves; a data segment of length 0 counts as none.
    pub fn length(&self) -> u64 {
        self.data_segments()
            .map(|(_, segment)| match segment {
                DataSegmentView::Memory(segment) => u64::from(segment.byte_count.get()),
                DataSegmentView::Inline { length, .. } => u64::from(length),
            })
            .sum()
    }
}

#[derive(Clone, Debug)]
struct DataSegments<'a> {
    rest: &'a [u8],
    offset: usize,
}

impl<'a> Iterator for DataSegments<'a> {
    type Item = (usize, DataSegmentView<'a>);

    fn next(&mut self) -> Option<Self::Item> {
        let (segment, length) = match inline_length(self.rest) {
            Some(length) => {
                let (_, bytes) = self.rest.split_at_checked(size_of::<InlineHeader>())?;
                let whole = size_of::<InlineHeader>().saturating_add(length as usize);
                let data = bytes.get(..length as usize).unwrap_or(bytes);
                (DataSegmentView::Inline { length, bytes: data }, whole.next_multiple_of(OCTOWORD_BYTES))
            }
            None => {
                let (segment, _) = DataSegment::read_from_prefix(self.rest).ok()?;
                (DataSegmentView::Memory(segment), OCTOWORD_BYTES)
            }
        };
        let offset = self.offset;
        self.rest = self.rest.get(length..).unwrap_or_default();
        self.offset += length;
        Some((offset, segment))
    }
}

/// A copy from memory to memory, without a peer.
#[derive(Clone, Copy, Debug)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct Memcpy<'a> {
    metadata: &'a MmoMetadataSegment,
    source: &'a DataSegment,
    target: &'a DataSegment,
}

impl<'a> Memcpy<'a> {
    /// Where in the request the segment of the source begins, and that of the target.
    pub(super) const SEGMENTS: [usize; 2] =
        [(MEMCPY_OCTOWORDS - 2) * OCTOWORD_BYTES, (MEMCPY_OCTOWORDS - 1) * OCTOWORD_BYTES];
    /// Bytes of a segment that has length 0.
    const MOST_BYTES: u64 = 1 << 31;

    /// Takes up a memory-to-memory request; `None` where it does something else, or ends too soon.
    pub(super) fn new(bytes: &'a [u8]) -> Option<Self> {
        if !is_memcpy(bytes) {
            return None;
        }
        let (metadata, rest) = MmoMetadataSegment::ref_from_prefix(bytes.get(OCTOWORD_BYTES..)?).ok()?;
        let (source, rest) = DataSegment::ref_from_prefix(rest).ok()?;
        let (target, _) = DataSegment::ref_from_prefix(rest).ok()?;
        Some(Self { metadata, source, target })
    }

    /// Returns the segment with the opaque buffer.
    pub const fn metadata(&self) -> &'a MmoMetadataSegment {
        self.metadata
    }

    /// Returns the source.
    pub const fn source(&self) -> &'a DataSegment {
        self.source
    }

    /// Returns the target.
    pub const fn target(&self) -> &'a DataSegment {
        self.target
    }

    /// Returns how many bytes are read: 0 in the segment stands for 2 GiB.
    pub const fn length(&self) -> u64 {
        match self.source.byte_count.get() {
            0 => Self::MOST_BYTES,
            length => length as u64,
        }
    }
}
