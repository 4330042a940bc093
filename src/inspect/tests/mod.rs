//! Tests: requests are encoded and decoded, faults are inserted and found, and no bytes cause a panic.

#![allow(clippy::indexing_slicing, clippy::unwrap_used)]

extern crate std;

mod drivers;
mod faults;
mod foreign;
mod parts;
mod requests;
mod round_trip;
mod strategies;
mod words;

use super::*;
use crate::mkey::{
    Layout, Mkey, MkeyAttributes, MkeyConfig, SignatureAttributes, SignatureCapabilities, UmrForm, XtsEngine,
};
use crate::queue::{Doorbell, DoorbellRecord, LastRequest, SendQueue, SendQueueConfig, SendSlot};
use crate::types::{Key, KsmEntrySize, PsvIndex, Qpn};
use crate::wire::Wqebb;
use crate::wqe::PreparedConfig;
use crate::wqe::error::PostError;
use std::string::ToString;
use std::vec::Vec;

/// A doorbell that, each time it is rung, records the first 8 bytes of the last request's control segment.
#[derive(Default)]
struct Recorder(Vec<[u8; 8]>);

impl Doorbell for Recorder {
    fn ring(&mut self, last: &LastRequest<'_>) {
        self.0.push(last.control());
    }
}

const QPN: Qpn = Qpn::from_low_bits(0x123);
const KEY: Key = Key::from_raw(0x0000_1234);
const MEMORY_PSV: PsvIndex = PsvIndex::from_low_bits(0x11);
const WIRE_PSV: PsvIndex = PsvIndex::from_low_bits(0x22);
/// The key of the memory that mkeys and data segments name.
const REGION: Key = Key::from_raw(0x0056_7800);

type Queue<'r> = SendQueue<'r, &'r mut Recorder>;

/// Returns the bytes that `post` posts to a queue whose ring was filled with a pattern.
fn encoded(post: impl FnOnce(&mut Queue<'_>) -> Result<(), PostError>) -> Result<Vec<u8>, PostError> {
    let mut ring = std::vec![Wqebb([0xa5; 64]); 64];
    let record = DoorbellRecord::new();
    let mut recorder = Recorder::default();
    let mut queue =
        SendQueue::new(SendQueueConfig::new(QPN), &mut ring, SendSlot::leaked(64), &record, &mut recorder)
            .unwrap();
    post(&mut queue)?;
    queue.ring_doorbell();
    let blocks = queue.producer() as usize;
    assert_eq!(recorder.0.len(), 1);
    Ok(ring.iter().take(blocks).flat_map(|block| block.0).collect())
}

fn attributes(signature: bool, crypto: Option<XtsEngine>) -> MkeyAttributes {
    MkeyAttributes {
        key: KEY,
        max_entries: 64,
        signature: signature.then(|| SignatureAttributes::new(MEMORY_PSV, WIRE_PSV)),
        crypto,
        tag_update: true,
        form: UmrForm::Complete,
        entry_size: None,
    }
}

/// Returns the bytes of the UMR that configures a new mkey, and of its SET_PSVs.
fn configured<'l>(
    attributes: MkeyAttributes,
    config: &MkeyConfig,
    layout: impl Into<Layout<'l>>,
) -> Result<Vec<u8>, PostError> {
    let mut mkey = Mkey::new(attributes);
    let prepared = PreparedConfig::with_any_data_unit(mkey.kind(), config)?;
    encoded(|queue| queue.request(1).signaled().configure_mkey(&mut mkey, &prepared, layout.into()))
}

fn parse(bytes: &[u8]) -> WorkRequest<'_> {
    WorkRequest::parse(bytes).unwrap()
}

fn problems(bytes: &[u8], device: &DeviceContext) -> Vec<Problem> {
    let mut problems = Vec::new();
    parse(bytes).findings(device, |finding| {
        assert!(finding.offset <= bytes.len());
        problems.push(finding.problem);
    });
    problems
}

fn check_page(text: &str) {
    for line in text.lines() {
        assert!(line.chars().count() <= 100, "{line}");
    }
}

/// All kinds of queues, also the unknown kind.
const QUEUES: [QueueKind; 6] = [
    QueueKind::Unknown,
    QueueKind::Connected,
    QueueKind::Datagram,
    QueueKind::DynamicallyConnected,
    QueueKind::ExtendedConnected,
    QueueKind::Ethernet,
];

/// Calls all methods of the request in `bytes`, once for a queue of unknown kind, and once for a kind that is
/// chosen by the sum of the bytes.
fn exercise(bytes: &[u8]) {
    exercise_on(QueueKind::Unknown, bytes);
    let sum = bytes.iter().fold(0, |sum: usize, byte| sum + usize::from(*byte));
    exercise_on(QUEUES[sum % QUEUES.len()], bytes);
}

fn exercise_on(queue: QueueKind, bytes: &[u8]) {
    for device in [
        DeviceContext::UNKNOWN,
        DeviceContext {
            engine: Some(XtsEngine::SingleBlock),
            capabilities: Some(SignatureCapabilities {
                block_4048: false,
                crc32c: false,
                crc64_xp10: false,
                digest_with_xts: false,
            }),
            entry_size: KsmEntrySize::new(4096).ok(),
        },
    ] {
        for (_, request) in Requests::new(bytes).on_queue(queue) {
            let length = request.bytes().len();
            let mut end = 0;
            for segment in request.segments() {
                assert_eq!(segment.offset, end, "segments leave no gap");
                end += segment.bytes.len();
            }
            assert_eq!(end, length, "segments reach the end");
            let mut shown = std::vec![false; length];
            for field in request.fields() {
                for slot in shown.iter_mut().skip(field.offset).take(field.bytes.len()) {
                    assert!(!*slot, "no byte belongs to two fields");
                    *slot = true;
                }
            }
            for (byte, shown) in request.bytes().iter().zip(shown) {
                assert!(shown || *byte == 0, "a byte that is not zero belongs to a field");
            }
            request.findings(&device, |finding| assert!(finding.offset <= length));
            check_page(&request.pretty(device, Style::Plain).to_string());
            let _ = request.pretty(device, Style::Ansi).to_string();
            if let Body::Configure(umr) | Body::Invalidate(umr) = request.body() {
                let _ = umr.signature_change();
                for engine in [XtsEngine::MultiBlock, XtsEngine::SingleBlock, XtsEngine::Unspecified] {
                    let _ = umr.crypto(engine);
                }
                if let Some(layout) = umr.layout() {
                    let _ = layout.mapped_bytes();
                    let _ = layout.list_entries().count() + layout.interleaved_entries().count();
                }
            }
        }
    }
}

/// Returns `bytes` with `new` in place of the bytes from offset `at` on.
fn patched(mut bytes: Vec<u8>, at: usize, new: &[u8]) -> Vec<u8> {
    bytes[at..at + new.len()].copy_from_slice(new);
    bytes
}

/// Returns a completion entry. Each part is an offset with the bytes there; all other bytes are 0.
fn entry(parts: &[(usize, &[u8])]) -> Vec<u8> {
    parts.iter().fold(std::vec![0; 64], |bytes, (at, new)| patched(bytes, *at, new))
}
