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
