//! The parts of a request between its control segment and its data segments, by opcode and kind of queue.

use super::queue_kind::QueueKind;
use super::segment_kind::SegmentKind;
use crate::wire::OCTOWORD_BYTES;
use crate::wire::ctrl::{ControlSegment, Opcode, OpcodeWord};
use crate::wire::data::{DataSegment, InlineHeader};
use crate::wire::datagram::{BaseAddress, RouteAddress};
use crate::wire::ethernet::EthernetSegment;
use zerocopy::FromBytes;

/// The parts of a fixed size between control segment and data segments, in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Heads {
    /// Each part with its length in bytes. Unused elements have a length of 0.
    parts: [(SegmentKind, usize); Self::MOST],
    /// Whether data segments follow the parts.
    data: bool,
}

impl Heads {
    /// The largest number of parts: an address, a place in the peer's memory, and operands.
    const MOST: usize = 3;

    const fn new(data: bool) -> Self {
        Self { parts: [(SegmentKind::Unknown, 0); Self::MOST], data }
    }

    /// Adds a part of `bytes` bytes. Nothing changes if `bytes` is 0.
    fn with(mut self, kind: SegmentKind, bytes: usize) -> Self {
        if let Some(part) = self.parts.iter_mut().find(|(_, bytes)| *bytes == 0) {
            *part = (kind, bytes);
        }
        self
    }

    /// Returns whether data segments follow the parts.
    pub(super) const fn has_data(&self) -> bool {
        self.data
    }

    /// Iterates over the parts. Each item has the kind, and the offsets of begin and end in the request.
    pub(super) fn iter(&self) -> impl Iterator<Item = (SegmentKind, usize, usize)> + use<> {
        let mut end = size_of::<ControlSegment>();
        self.parts.into_iter().filter(|(_, bytes)| *bytes > 0).map(move |(kind, bytes)| {
            let begin = end;
            end += bytes;
            (kind, begin, end)
        })
    }

    /// Returns the offset in the request at which the last part ends.
    pub(super) fn end(&self) -> usize {
        self.iter().last().map_or(size_of::<ControlSegment>(), |(_, _, end)| end)
    }

    /// Returns the part that contains the byte at `offset`, which is before [`Heads::end`]. The result has
    /// the kind, and the offsets of begin and end.
    pub(super) fn at(&self, offset: usize) -> (SegmentKind, usize, usize) {
        let part = self.iter().find(|(_, _, end)| offset < *end);
        part.unwrap_or((SegmentKind::Unknown, offset, offset + OCTOWORD_BYTES))
    }

    /// Returns the bytes of the part of kind `wanted`, or `None` if the request has no such part, or ends
    /// within the part.
    pub(super) fn bytes_of<'a>(&self, wanted: SegmentKind, bytes: &'a [u8]) -> Option<&'a [u8]> {
        let (_, begin, end) = self.iter().find(|(kind, ..)| *kind == wanted)?;
        bytes.get(begin..end)
    }
}

/// Returns the parts of a request, or `None` for an opcode whose parts are unknown. If the kind of queue is
/// unknown, also returns `None` for a request that cannot be of a connected queue pair.
pub(super) fn heads(opcode: Opcode, queue: QueueKind, bytes: &[u8]) -> Option<Heads> {
    const OCTOWORD: usize = OCTOWORD_BYTES;
    let opmod = bytes.first().copied().unwrap_or_default();
    let data = Heads::new(true);
    Some(match opcode {
        Opcode::SEND | Opcode::SEND_IMM | Opcode::SEND_INVAL if queue == QueueKind::Ethernet => {
            ethernet(data, bytes)
        }
        Opcode::SEND | Opcode::SEND_IMM | Opcode::SEND_INVAL => addressed(opcode, queue, bytes)?,
        Opcode::RDMA_WRITE | Opcode::RDMA_WRITE_IMM | Opcode::RDMA_READ => {
            addressed(opcode, queue, bytes)?.with(SegmentKind::RemoteAddress, OCTOWORD)
        }
        Opcode::ATOMIC_CS | Opcode::ATOMIC_FA | Opcode::ATOMIC_MASKED_CS | Opcode::ATOMIC_MASKED_FA => {
            let (kind, bytes_of_kind) = operands(opcode, opmod)?;
            addressed(opcode, queue, bytes)?
                .with(SegmentKind::RemoteAddress, OCTOWORD)
                .with(kind, bytes_of_kind)
        }
        Opcode::TSO | Opcode::ENHANCED_MPSW if matches!(queue, QueueKind::Unknown | QueueKind::Ethernet) => {
            ethernet(data, bytes)
        }
        Opcode::DUMP => data,
        Opcode::TAG_MATCHING => data.with(SegmentKind::TagMatching, 2 * OCTOWORD),
        Opcode::MMO => data.with(SegmentKind::MmoMetadata, OCTOWORD),
        Opcode::LOCAL_MMO if opmod == 0 => data.with(SegmentKind::Transpose, OCTOWORD),
        Opcode::SEND_ENABLE => Heads::new(false).with(SegmentKind::Wait, OCTOWORD),
        Opcode::WAIT if opmod == 0 => Heads::new(false).with(SegmentKind::Wait, OCTOWORD),
        Opcode::WAIT => Heads::new(false).with(SegmentKind::WaitForValue, 2 * OCTOWORD),
        _ => return None,
    })
}

/// Returns kind and length of the operands of an atomic, or `None` for an unknown opcode modifier.
const fn operands(opcode: Opcode, opmod: u8) -> Option<(SegmentKind, usize)> {
    const SHORT: u8 = OpcodeWord::OPMOD_ATOMIC_4;
    const LONG: u8 = OpcodeWord::OPMOD_ATOMIC_8;
    match (opcode, opmod) {
        (Opcode::ATOMIC_CS | Opcode::ATOMIC_FA, _) => Some((SegmentKind::Atomic, OCTOWORD_BYTES)),
        (Opcode::ATOMIC_MASKED_CS, SHORT) => Some((SegmentKind::MaskedSwap32, OCTOWORD_BYTES)),
        (Opcode::ATOMIC_MASKED_CS, LONG) => Some((SegmentKind::MaskedSwap64, 2 * OCTOWORD_BYTES)),
        (Opcode::ATOMIC_MASKED_FA, SHORT) => Some((SegmentKind::MaskedAdd32, OCTOWORD_BYTES)),
        (Opcode::ATOMIC_MASKED_FA, LONG) => Some((SegmentKind::MaskedAdd64, OCTOWORD_BYTES)),
        _ => None,
    }
}

/// Returns the part that requests on this kind of queue have first: an address, a shared receive queue, or
/// none. If the kind of queue is unknown, returns `None` for bytes that cannot be of a connected queue pair.
fn addressed(opcode: Opcode, queue: QueueKind, bytes: &[u8]) -> Option<Heads> {
    let data = Heads::new(true);
    match queue {
        QueueKind::Unknown => (!is_of_another_kind(opcode, bytes)).then_some(data),
        QueueKind::Connected | QueueKind::Ethernet => Some(data),
        QueueKind::Datagram | QueueKind::DynamicallyConnected => {
            let base = BaseAddress::ref_from_prefix(bytes.get(OCTOWORD_BYTES..).unwrap_or_default());
            let extended = base.is_ok_and(|(base, _)| base.dqp_dct.get() & BaseAddress::EXTENDED != 0);
            let route = if extended { size_of::<RouteAddress>() } else { 0 };
            Some(data.with(SegmentKind::Address, size_of::<BaseAddress>() + route))
        }
        QueueKind::ExtendedConnected => Some(data.with(SegmentKind::SharedReceiveQueue, OCTOWORD_BYTES)),
    }
}

/// Adds the Ethernet segment, and the part of the packet header that does not fit into this segment.
fn ethernet(heads: Heads, bytes: &[u8]) -> Heads {
    let segment = EthernetSegment::ref_from_prefix(bytes.get(OCTOWORD_BYTES..).unwrap_or_default());
    let header = segment.map_or(0, |(segment, _)| usize::from(segment.header_bytes()));
    heads
        .with(SegmentKind::Ethernet, size_of::<EthernetSegment>())
        .with(SegmentKind::EthernetHeader, header.saturating_sub(2).next_multiple_of(OCTOWORD_BYTES))
}

/// Returns whether the bytes after the control segment must be an address or an Ethernet segment. Returns
/// false if a request of a connected queue pair could also have these bytes.
fn is_of_another_kind(opcode: Opcode, bytes: &[u8]) -> bool {
    let Some(rest) = bytes.get(OCTOWORD_BYTES..).filter(|rest| !rest.is_empty()) else { return false };
    let route = BaseAddress::ref_from_prefix(rest).ok().and_then(|(base, rest)| {
        let extended = base.dqp_dct.get() & BaseAddress::EXTENDED != 0;
        RouteAddress::ref_from_prefix(rest).ok().filter(|_| extended)
    });
    if route.is_some_and(|(route, _)| route.reserved == [0; 4]) {
        return true;
    }
    let sends = matches!(opcode, Opcode::SEND | Opcode::SEND_IMM | Opcode::SEND_INVAL);
    if !sends || inline_length(rest).is_some() {
        return false;
    }
    // No data segment has key 0. If the bytes at the place of the key are 0, they belong to another segment:
    // a datagram's address, whose key has a reserved half at this place; or an Ethernet segment that asks for
    // no checksums.
    let data = DataSegment::ref_from_prefix(rest).ok();
    if data.is_some_and(|(data, _)| data.lkey.get() == 0) {
        return true;
    }
    let Ok((segment, _)) = EthernetSegment::ref_from_prefix(rest) else { return false };
    let known = segment.checksums & 0x0f == 0 && segment.parser_flags & !0x33 == 0 && segment.mss.get() == 0;
    let asks = segment.checksums & 0xc0 == 0xc0;
    known && (segment.parser_offsets == [0; 4] || asks && segment.parser_flags != 0)
}

/// Returns the length of the inline data at the beginning of `rest`, or `None` if `rest` begins with a data
/// segment that names memory.
pub(super) fn inline_length(rest: &[u8]) -> Option<u32> {
    let (header, _) = InlineHeader::ref_from_prefix(rest).ok()?;
    let word = header.byte_count.get();
    (word & InlineHeader::INLINE != 0).then_some(word & !InlineHeader::INLINE)
}
