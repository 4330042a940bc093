//! Requests that move data, decoded into their parts.

use super::heads::{Heads, heads, inline_length};
use super::queue_kind::QueueKind;
use super::segment::{MEMCPY_OCTOWORDS, is_memcpy};
use super::segment_kind::SegmentKind;
use crate::wire::OCTOWORD_BYTES;
use crate::wire::ctrl::Opcode;
use crate::wire::data::{AtomicSegment, DataSegment, InlineHeader, MmoMetadataSegment, RemoteAddressSegment};
use crate::wire::datagram::{BaseAddress, RouteAddress};
use crate::wire::ethernet::EthernetSegment;
use zerocopy::FromBytes;

/// A request with data segments: a send, RDMA, an atomic, or another operation.
#[derive(Clone, Copy, Debug)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct DataPath<'a> {
    opcode: Opcode,
    remote: Option<&'a RemoteAddressSegment>,
    atomic: Option<&'a AtomicSegment>,
    /// Number of bytes of the peer's memory that the atomic changes; 0 if the request is no atomic.
    atomic_bytes: u8,
    address: Option<&'a BaseAddress>,
    route: Option<&'a RouteAddress>,
    ethernet: Option<&'a EthernetSegment>,
    /// The bytes of all data segments, and their offset in the request.
    segments: &'a [u8],
    segments_offset: usize,
}

/// One data segment of a request: a pointer to memory, or inline data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub enum DataSegmentView<'a> {
    /// A range of local memory.
    Memory(DataSegment),
    /// Data inside the request (inline data).
    Inline {
        /// Length of the inline data in bytes, according to the request.
        length: u32,
        /// The inline data. It has fewer than `length` bytes if the request ends too early.
        bytes: &'a [u8],
    },
}

impl<'a> DataPath<'a> {
    /// Decodes a request. Returns `None` if the request has no data segments, or ends before they begin.
    pub(super) fn new(opcode: Opcode, queue: QueueKind, bytes: &'a [u8]) -> Option<Self> {
        let heads = heads(opcode, queue, bytes).filter(Heads::has_data)?;
        let segments_offset = heads.end();
        let segments = bytes.get(segments_offset..)?;
        let part = |kind| heads.bytes_of(kind, bytes);
        let address = part(SegmentKind::Address).and_then(|part| BaseAddress::ref_from_prefix(part).ok());
        let parts = [SegmentKind::Atomic, SegmentKind::MaskedSwap64, SegmentKind::MaskedAdd64];
        let shorter = [SegmentKind::MaskedSwap32, SegmentKind::MaskedAdd32];
        let has = |kinds: &[SegmentKind]| kinds.iter().any(|kind| part(*kind).is_some());
        Some(Self {
            opcode,
            remote: part(SegmentKind::RemoteAddress)
                .and_then(|part| RemoteAddressSegment::ref_from_bytes(part).ok()),
            atomic: part(SegmentKind::Atomic).and_then(|part| AtomicSegment::ref_from_bytes(part).ok()),
            atomic_bytes: u8::from(has(&parts)) * 8 + u8::from(has(&shorter)) * 4,
            address: address.map(|(base, _)| base),
            route: address
                .and_then(|(_, rest)| RouteAddress::ref_from_prefix(rest).ok())
                .map(|(route, _)| route),
            ethernet: part(SegmentKind::Ethernet).and_then(|part| EthernetSegment::ref_from_bytes(part).ok()),
            segments,
            segments_offset,
        })
    }

    /// Returns the opcode of the request.
    pub const fn opcode(&self) -> Opcode {
        self.opcode
    }

    /// Returns the place in the peer's memory; `None` unless the request is an RDMA or an atomic.
    pub const fn remote(&self) -> Option<&'a RemoteAddressSegment> {
        self.remote
    }

    /// Returns the operands of an atomic without masks; `None` for other requests.
    pub const fn atomic(&self) -> Option<&'a AtomicSegment> {
        self.atomic
    }

    /// Returns how many bytes of the peer's memory an atomic changes, or `None` if the request is no atomic.
    pub const fn atomic_bytes(&self) -> Option<u64> {
        if self.atomic_bytes == 0 { None } else { Some(self.atomic_bytes as u64) }
    }

    /// Returns the address of the destination, with its route if there is one; `None` unless the request is
    /// of a datagram queue or of a dynamically connected queue.
    pub const fn address(&self) -> Option<(&'a BaseAddress, Option<&'a RouteAddress>)> {
        match self.address {
            Some(address) => Some((address, self.route)),
            None => None,
        }
    }

    /// Returns the Ethernet segment; `None` unless the request is a send of an Ethernet queue.
    pub const fn ethernet(&self) -> Option<&'a EthernetSegment> {
        self.ethernet
    }

    /// Returns the offset of the data segments, in bytes from the start of the request.
    pub(super) const fn data_offset(&self) -> usize {
        self.segments_offset
    }

    /// Iterates over the data segments, each with its offset in the request.
    pub fn data_segments(&self) -> impl Iterator<Item = (usize, DataSegmentView<'a>)> + Clone + use<'a> {
        DataSegments { rest: self.segments, offset: self.segments_offset }
    }

    /// Returns how many bytes the request moves. A data segment with length 0 counts as 0 bytes, although a
    /// device reads it as 2 GiB.
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

/// A request that copies local memory, without a peer.
#[derive(Clone, Copy, Debug)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct Memcpy<'a> {
    metadata: &'a MmoMetadataSegment,
    source: &'a DataSegment,
    target: &'a DataSegment,
}

impl<'a> Memcpy<'a> {
    /// The offsets of the data segments in the request: source, then target.
    pub(super) const SEGMENTS: [usize; 2] =
        [(MEMCPY_OCTOWORDS - 2) * OCTOWORD_BYTES, (MEMCPY_OCTOWORDS - 1) * OCTOWORD_BYTES];
    /// Length in bytes of a data segment whose length field is 0.
    const MOST_BYTES: u64 = 1 << 31;

    /// Decodes a memory-to-memory request. Returns `None` if the request is no copy, or ends too early.
    pub(super) fn new(bytes: &'a [u8]) -> Option<Self> {
        if !is_memcpy(bytes) {
            return None;
        }
        let (metadata, rest) = MmoMetadataSegment::ref_from_prefix(bytes.get(OCTOWORD_BYTES..)?).ok()?;
        let (source, rest) = DataSegment::ref_from_prefix(rest).ok()?;
        let (target, _) = DataSegment::ref_from_prefix(rest).ok()?;
        Some(Self { metadata, source, target })
    }

    /// Returns the metadata segment, which names the opaque buffer.
    pub const fn metadata(&self) -> &'a MmoMetadataSegment {
        self.metadata
    }

    /// Returns the data segment of the source.
    pub const fn source(&self) -> &'a DataSegment {
        self.source
    }

    /// Returns the data segment of the target.
    pub const fn target(&self) -> &'a DataSegment {
        self.target
    }

    /// Returns how many bytes the device reads from the source. A length field of 0 means 2 GiB.
    pub const fn length(&self) -> u64 {
        match self.source.byte_count.get() {
            0 => Self::MOST_BYTES,
            length => length as u64,
        }
    }
}
