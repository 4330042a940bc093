//! Labels of the page that `decode` draws: colours, block numbers, places.

use super::pieces::Place;
use mlx5_mkey::inspect::{SegmentKind, WorkRequest};

/// Returns the CSS class of a segment kind, which determines its colour.
pub(super) const fn colour(kind: SegmentKind) -> &'static str {
    match kind {
        SegmentKind::Control => "control",
        SegmentKind::UmrControl => "umr",
        SegmentKind::MkeyContext => "context",
        SegmentKind::ListEntry | SegmentKind::Pages | SegmentKind::EntriesPointer => "entry",
        SegmentKind::StridedHeader | SegmentKind::StridedEntry => "strided",
        SegmentKind::Padding => "padding",
        SegmentKind::SignatureBsf | SegmentKind::SignatureBsfCopy => "signature",
        SegmentKind::TransactionBsf => "transaction",
        SegmentKind::CryptoBsf => "crypto",
        SegmentKind::SetPsv => "psv",
        SegmentKind::RemoteAddress
        | SegmentKind::MmoMetadata
        | SegmentKind::Address
        | SegmentKind::SharedReceiveQueue
        | SegmentKind::Ethernet => "remote",
        SegmentKind::Atomic
        | SegmentKind::MaskedSwap32
        | SegmentKind::MaskedSwap64
        | SegmentKind::MaskedAdd32
        | SegmentKind::MaskedAdd64 => "atomic",
        SegmentKind::Data => "data",
        SegmentKind::Inline | SegmentKind::EthernetHeader | SegmentKind::InlineHalf => "inline",
        SegmentKind::Cqe | SegmentKind::InlineCqe | SegmentKind::CompressedCqe => "cqe",
        SegmentKind::ErrorCqe => "error",
        SegmentKind::SignatureErrorCqe => "signature",
        _ => "unknown",
    }
}

/// Returns the numbers of the first and the last block of a request in its send queue. The request's control
/// segment contains the first number.
pub(super) fn block_numbers(request: &WorkRequest<'_>) -> (u16, u16) {
    let first = request.control().opcode_word().wqe_index();
    (first, first.wrapping_add(request.blocks().saturating_sub(1) as u16))
}

/// Describes the place in the input where a piece begins.
pub(super) fn begins(place: &Place<'_>) -> String {
    match place {
        Place::Byte(offset) => format!("byte {offset:#x}"),
        Place::Log(place) => (*place).to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mlx5_mkey::inspect::QueueKind;
    use std::collections::BTreeSet;

    /// [`colour`] names the class of all segments of requests, except these.
    #[test]
    fn the_segments_without_a_colour_are_these() {
        let mut without = BTreeSet::new();
        for (opcode, opmod) in (0..=u8::MAX).flat_map(|opcode| (0..16).map(move |opmod| (opcode, opmod))) {
            for queue in [QueueKind::Connected, QueueKind::Ethernet, QueueKind::ExtendedConnected] {
                let mut bytes = [0; 256];
                (bytes[0], bytes[3], bytes[7]) = (opmod, opcode, 16);
                let request = WorkRequest::parse(&bytes).unwrap().on_queue(queue);
                let kinds = request.segments().map(|segment| segment.kind);
                without.extend(kinds.filter(|kind| colour(*kind) == "unknown").map(SegmentKind::name));
            }
        }
        let wanted = ["tag matching segment", "transpose segment", "unknown", "wait segment"];
        assert_eq!(without, BTreeSet::from(wanted));
    }
}
