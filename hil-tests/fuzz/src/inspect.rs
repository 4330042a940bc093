//! Fuzz target for the decoder of rings and completion entries (`mlx5_mkey::inspect`). No bytes may cause a
//! panic or a read out of bounds. Each decoded part must be at the offset that the decoder reports.

use crate::input::Input;
use crate::values::engine;
use mlx5_mkey::inspect::cqe::CompletionEntry;
use mlx5_mkey::inspect::{
    Body, DeviceContext, Field, QueueKind, Requests, Segment, Severity, Style, WorkRequest,
};
use mlx5_mkey::mkey::{SignatureCapabilities, XtsEngine};
use mlx5_mkey::types::KsmEntrySize;
use std::fmt::{self, Write};

/// A writer that keeps only the number of bytes.
#[derive(Default)]
struct Sink(usize);

impl Write for Sink {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.0 += text.len();
        Ok(())
    }
}

/// Formats a value, and asserts that the text is not empty.
fn say(what: impl fmt::Display) {
    let mut sink = Sink::default();
    write!(sink, "{what}").expect("a sink takes all");
    assert!(sink.0 > 0, "something is said");
}

const QUEUES: [QueueKind; 6] = [
    QueueKind::Unknown,
    QueueKind::Connected,
    QueueKind::Datagram,
    QueueKind::DynamicallyConnected,
    QueueKind::ExtendedConnected,
    QueueKind::Ethernet,
];

pub(crate) fn run(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let device = DeviceContext {
        engine: input.maybe(engine),
        capabilities: input.maybe(|input| {
            let bits: u8 = input.any();
            let [block_4048, crc32c, crc64_xp10, digest_with_xts] = [1, 2, 4, 8].map(|bit| bits & bit != 0);
            SignatureCapabilities { block_4048, crc32c, crc64_xp10, digest_with_xts }
        }),
        entry_size: None,
    };
    // This choice takes no byte of the input, so that inputs of the corpus keep their meaning.
    let entry_size = if bytes.len().is_multiple_of(8) { KsmEntrySize::new(4096).ok() } else { None };
    let device = DeviceContext { entry_size, ..device };
    let style = input.pick(&[Style::Plain, Style::Ansi]);
    let bytes = input.rest();
    let mut end = 0;
    // The choice of the queue takes no byte of the input, so that inputs of the corpus keep their meaning.
    let queue = QUEUES[bytes.len() % QUEUES.len()];
    for (offset, request) in Requests::new(bytes).on_queue(queue) {
        assert_eq!(request.queue(), queue);
        assert_eq!(offset, end, "one request behind the other");
        end = offset + request.blocks() * 64;
        assert!(bytes[offset..].starts_with(request.bytes()));
        look(&request, device, style);
    }
    for entry in bytes.chunks(64).filter_map(|bytes| CompletionEntry::parse(bytes).ok()) {
        look_at_entry(entry.bytes(), &entry, style);
    }
    for slot in bytes.chunks_exact(128) {
        let entry = CompletionEntry::parse_128(slot).expect("the slot is whole");
        assert_eq!(Ok(entry.kind()), CompletionEntry::parse(&slot[64..]).map(|entry| entry.kind()));
        look_at_entry(slot, &entry, style);
    }
}

fn look(request: &WorkRequest<'_>, device: DeviceContext, style: Style) {
    let bytes = request.bytes();
    for segment in request.segments() {
        within(bytes, segment.offset, segment.bytes);
        look_at_segment(bytes, &segment);
    }
    let mut fields = 0;
    for field in request.fields() {
        look_at_field(bytes, &field, device);
        fields += 1;
    }
    assert_eq!(fields, request.segments().map(|segment| segment.fields().count()).sum::<usize>());
    let mut worst = None;
    request.findings(&device, |finding| {
        worst = worst.max(Some(finding.severity()));
        say(finding);
    });
    assert_eq!(worst, request.worst(&device));
    let refused = worst == Some(Severity::Refused);
    assert_eq!(request.refusal(&device).is_some(), refused);
    say(request.summary(device));
    say(request.pretty(device, style));
    look_at_body(&request.body());
}

fn look_at_body(body: &Body<'_>) {
    match body {
        Body::Configure(umr) | Body::Invalidate(umr) => {
            if let Some(layout) = umr.layout() {
                let entries = layout.list_entries().count().max(layout.interleaved_entries().count());
                assert!(entries <= layout.count());
                let _ = layout.mapped_bytes();
            }
            let _ = (umr.psvs(), umr.access(), umr.length(), umr.data_unit(), umr.pointer(), umr.tag());
            let _ = (umr.signature(), umr.signature_change(), umr.transaction(), umr.error_count());
            let _ = umr.crypto(XtsEngine::MultiBlock);
        }
        Body::DataPath(transfer) => {
            let _ = (transfer.length(), transfer.data_segments().count(), transfer.atomic_bytes());
            let _ = (transfer.address(), transfer.ethernet());
        }
        Body::Memcpy(copy) => {
            let _ = (copy.length(), copy.metadata());
        }
        _ => {}
    }
}

/// Asserts that the bytes of `part` are at `offset` of `whole`.
fn within(whole: &[u8], offset: usize, part: &[u8]) {
    assert!(whole.get(offset..).is_some_and(|rest| rest.starts_with(part)), "{offset} of {}", whole.len());
}

fn look_at_segment(bytes: &[u8], segment: &Segment<'_>) {
    let mut end = segment.offset;
    for field in segment.fields() {
        assert!(field.offset >= end, "fields are in the order of their bytes");
        within(bytes, field.offset, field.bytes);
        end = field.offset;
    }
}

fn look_at_field(bytes: &[u8], field: &Field<'_>, device: DeviceContext) {
    within(bytes, field.offset, field.bytes);
    let _ = (field.value(), field.is_reserved(), field.unknown_bits(), field.is_unknown_code());
    say(field.with_engine(device.engine));
}

fn look_at_entry(slot: &[u8], entry: &CompletionEntry<'_>, style: Style) {
    entry.segments().for_each(|segment| look_at_segment(slot, &segment));
    entry.fields().for_each(|field| look_at_field(slot, &field, DeviceContext::UNKNOWN));
    assert!(entry.inline_data().is_none_or(|data| data.len() <= 64));
    let mut worst = None;
    entry.findings(|finding| worst = worst.max(Some(finding.severity())));
    assert_eq!(worst, entry.worst());
    for stride in [None, Some(0), Some(520)] {
        say(entry.summary(stride));
        say(entry.pretty(stride, style));
    }
}
