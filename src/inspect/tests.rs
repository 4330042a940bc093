//! Encode, then decode; break, then find; and whatever the bytes, no panic.

extern crate std;

use super::cqe::{CompletionEntry, EntryKind};
use super::*;
use crate::error::PostError;
use crate::mkey::{
    Access, BlockSignature, Crypto, Direction, Domain, Escape, Guard, InterleavedEntry, Keytag, Layout,
    ListEntry, Mkey, MkeyAttributes, MkeyConfig, Signature, SignatureAttributes, SignatureChange,
    SignatureOrder, T10Dif, check_mask,
};
use crate::queue::{Doorbell, DoorbellRecord, SendQueue, SendQueueConfig};
use crate::types::{BlockSize, DekId, Key, PsvIndex, Qpn, Seed, Tweak};
use crate::wire::Wqebb;
use crate::wqe::{Payload, Remote, Sge};
use proptest::collection::vec;
use proptest::option::of;
use proptest::prelude::*;
use std::string::{String, ToString};
use std::vec::Vec;

/// Remembers what was rung.
#[derive(Default)]
struct Recorder(Vec<[u8; 8]>);

impl Doorbell for Recorder {
    fn ring(&mut self, control: [u8; 8]) {
        self.0.push(control);
    }
}

const QPN: Qpn = Qpn::from_low_bits(0x123);
const KEY: Key = Key::from_raw(0x0000_1234);
const MEMORY_PSV: PsvIndex = PsvIndex::from_low_bits(0x11);
const WIRE_PSV: PsvIndex = PsvIndex::from_low_bits(0x22);
/// A key of ordinary memory.
const REGION: Key = Key::from_raw(0x0056_7800);

type Queue<'r> = SendQueue<'r, &'r mut Recorder, 64>;

/// Returns the bytes of what `post` posts to a queue whose ring held a pattern.
fn encoded(post: impl FnOnce(&mut Queue<'_>) -> Result<(), PostError>) -> Result<Vec<u8>, PostError> {
    let mut ring = std::vec![Wqebb([0xa5; 64]); 64];
    let record = DoorbellRecord::new();
    let mut recorder = Recorder::default();
    let mut queue = SendQueue::new(SendQueueConfig::new(QPN), &mut ring, &record, &mut recorder)
        .unwrap_or_else(|error| panic!("{error}"));
    post(&mut queue)?;
    queue.ring_doorbell();
    let blocks = queue.producer() as usize;
    drop(queue);
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
    }
}

/// Returns the bytes of a configuration, its SET_PSVs included.
fn configured(attributes: MkeyAttributes, config: &MkeyConfig<'_>) -> Result<Vec<u8>, PostError> {
    let mut mkey = Mkey::new(attributes)?;
    encoded(|queue| queue.request(1).signaled().configure_mkey(&mut mkey, config))
}

fn parse(bytes: &[u8]) -> WorkRequest<'_> {
    WorkRequest::parse(bytes).unwrap_or_else(|error| panic!("{error}"))
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

/// Looks at everything that there is of a request.
fn exercise(bytes: &[u8]) {
    for device in [
        DeviceContext::UNKNOWN,
        DeviceContext {
            engine: Some(XtsEngine::SingleBlock),
            capabilities: Some(SignatureCapabilities { block_4048: false, crc32c: false, crc64_xp10: false }),
        },
    ] {
        for (_, request) in Requests::new(bytes) {
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

fn seeds() -> impl Strategy<Value = Seed> {
    prop_oneof![Just(Seed::Zeros), Just(Seed::Ones)]
}

fn sizes() -> impl Strategy<Value = BlockSize> {
    proptest::sample::select(&BlockSize::ALL[..])
}

fn signatures() -> impl Strategy<Value = Signature> {
    let guard = prop_oneof![Just(Guard::Crc), Just(Guard::IpChecksum)];
    let escape = prop_oneof![Just(Escape::Never), Just(Escape::AppTag), Just(Escape::AppAndRefTag)];
    // Few tags, so that two domains often agree.
    let dif = (guard, seeds(), 0..3_u16, 0..3_u32, any::<bool>(), escape).prop_map(
        |(guard, seed, app_tag, ref_tag, ref_remap, escape)| {
            Signature::T10Dif(T10Dif { guard, seed, app_tag, ref_tag, ref_remap, escape })
        },
    );
    prop_oneof![
        3 => dif,
        1 => seeds().prop_map(Signature::Crc32),
        1 => seeds().prop_map(Signature::Crc32c),
        1 => seeds().prop_map(Signature::Crc64Xp10),
    ]
}

fn domains() -> impl Strategy<Value = Domain> {
    (signatures(), sizes()).prop_map(|(signature, block_size)| Domain { signature, block_size })
}

fn blocks() -> impl Strategy<Value = BlockSignature> {
    let masked = (domains(), domains(), any::<bool>(), any::<u8>(), of(any::<u8>()), 0..3);
    masked.prop_map(|(memory, wire, alike, check, copy, which)| {
        let wire = if alike { Domain { block_size: memory.block_size, ..wire } } else { wire };
        let block = match which {
            0 => BlockSignature::memory(memory),
            1 => BlockSignature::wire(wire),
            _ => BlockSignature::both(memory, wire),
        };
        let block = block.with_check_mask(check);
        copy.and_then(|mask| block.with_copy_mask(mask).ok()).unwrap_or(block)
    })
}

fn cryptos() -> impl Strategy<Value = Crypto> {
    let directions = prop_oneof![Just(Direction::EncryptOnTx), Just(Direction::DecryptOnTx)];
    let orders = prop_oneof![Just(SignatureOrder::AfterCryptoOnTx), Just(SignatureOrder::BeforeCryptoOnTx)];
    (directions, orders, sizes(), any::<u128>(), 0..1_u32 << 24, any::<[u8; 8]>()).prop_map(
        |(direction, order, data_unit, tweak, dek, keytag)| Crypto {
            direction,
            order,
            data_unit,
            tweak: Tweak::new(tweak),
            dek: DekId::from_low_bits(dek),
            keytag: Keytag(keytag),
        },
    )
}

fn changes() -> impl Strategy<Value = SignatureChange> {
    prop_oneof![
        Just(SignatureChange::Keep),
        Just(SignatureChange::Reset),
        blocks().prop_map(SignatureChange::Set)
    ]
}

#[derive(Clone, Debug)]
enum Entries {
    Keep,
    List(Vec<ListEntry>),
    Interleaved(u32, Vec<InterleavedEntry>),
}

impl Entries {
    fn layout(&self) -> Option<Layout<'_>> {
        match self {
            Self::Keep => None,
            Self::List(entries) => Some(Layout::list(entries)),
            Self::Interleaved(repeat, entries) => Layout::interleaved(*repeat, entries).ok(),
        }
    }
}

/// Keys of memory. Key 0x400 at the head of a list is the one that cannot be told from an interleaved layout.
fn keys() -> impl Strategy<Value = Key> {
    any::<u32>().prop_filter("0x400 is ambiguous", |key| *key != 0x400).prop_map(Key::from_raw)
}

fn entries() -> impl Strategy<Value = Entries> {
    let length = prop_oneof![1..=0x1_0000_u32, 1..=ListEntry::MAX_BYTES];
    let piece = (any::<u64>(), length, keys());
    let list = vec(piece.prop_map(|(address, length, key)| ListEntry::new(address, length, key)), 0..20);
    let stream = (any::<u64>(), 0..=0xffff_u32, 0..=0xffff_u32, keys());
    let stream =
        stream.prop_map(|(address, a, b, key)| InterleavedEntry::new(address, a.min(b), a.abs_diff(b), key));
    let interleaved = (any::<u32>(), vec(stream, 0..20));
    prop_oneof![
        1 => Just(Entries::Keep),
        3 => list.prop_map(|list| Entries::List(list.into_iter().flatten().collect())),
        3 => interleaved
            .prop_map(|(repeat, list)| Entries::Interleaved(repeat, list.into_iter().flatten().collect())),
    ]
}

fn accesses() -> impl Strategy<Value = Access> {
    let rights = [Access::LOCAL_WRITE, Access::REMOTE_READ, Access::REMOTE_WRITE, Access::REMOTE_ATOMIC];
    proptest::sample::subsequence(rights.to_vec(), 0..=4)
        .prop_map(|rights| rights.into_iter().fold(Access::NONE, Access::union))
}

fn engines() -> impl Strategy<Value = XtsEngine> {
    prop_oneof![Just(XtsEngine::MultiBlock), Just(XtsEngine::SingleBlock), Just(XtsEngine::Unspecified)]
}

/// The copy mask given is dropped where it equals the automatic one: the bytes are the same.
fn normalised(block: BlockSignature) -> BlockSignature {
    let bare = match (block.memory_domain(), block.wire_domain()) {
        (Some(memory), Some(wire)) => BlockSignature::both(*memory, *wire),
        _ => return block,
    };
    let bare = bare.with_check_mask(block.check_mask());
    if bare.effective_copy_mask() == block.copy_mask() { bare } else { block }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn configurations_come_back(
        signature_mkey: bool,
        engine in of(engines()),
        access in of(accesses()),
        entries in entries(),
        change in changes(),
        crypto in of(cryptos()),
    ) {
        let config = MkeyConfig { access, layout: entries.layout(), signature: change, crypto };
        // What the library refuses has no bytes.
        let Ok(bytes) = configured(attributes(signature_mkey, engine), &config) else { return Ok(()) };
        let device = DeviceContext { engine, capabilities: Some(SignatureCapabilities::ALL) };

        let requests: Vec<_> = Requests::new(&bytes).map(|(_, request)| request).collect();
        for request in &requests {
            // A reset on an mkey with crypto writes an empty BSF. The reference provider refuses a length over 32 bits
            // with that too, this library only with one that does something.
            let reset = config.crypto.is_none() && !matches!(change, SignatureChange::Set(_));
            let mut refused = false;
            request.findings(&device, |finding| {
                let long = matches!(finding.problem, Problem::LengthOver32Bits { .. });
                refused |= finding.severity() == Severity::Refused && !(reset && long);
            });
            prop_assert!(!refused, "{}", request.pretty(device, Style::Plain));
            prop_assert_eq!(request.control().qpn_ds_word().qpn(), QPN.get());
        }
        let Some(Body::Configure(umr)) = requests.first().map(WorkRequest::body) else {
            return Err(TestCaseError::fail("no UMR"));
        };
        prop_assert_eq!((umr.key(), umr.tag()), (KEY, Some(KEY.tag())));
        prop_assert_eq!(umr.access(), access);
        prop_assert_eq!(umr.length(), config.layout.map(|layout| layout.length()));
        let list: Result<Vec<_>, _> = umr.layout().iter().flat_map(|layout| layout.list_entries()).collect();
        let streams: Result<Vec<_>, _> =
            umr.layout().iter().flat_map(|layout| layout.interleaved_entries()).collect();
        let (list, streams) = (list.map_err(|e| TestCaseError::fail(e.to_string()))?,
            streams.map_err(|e| TestCaseError::fail(e.to_string()))?);
        let layout = match umr.layout() {
            None => None,
            Some(LayoutView::List(_)) => Some(Layout::list(&list)),
            Some(LayoutView::Interleaved { header, .. }) => {
                Layout::interleaved(header.repeat_count.get(), &streams).ok()
            }
        };
        prop_assert_eq!(layout, config.layout);

        let expected = match change {
            SignatureChange::Set(block) => SignatureChange::Set(normalised(block)),
            // A new mkey has no signature to keep.
            _ if !signature_mkey => SignatureChange::Keep,
            _ if engine.is_none() => SignatureChange::Reset,
            SignatureChange::Keep if crypto.is_none() => SignatureChange::Keep,
            _ => SignatureChange::Reset,
        };
        prop_assert_eq!(umr.signature_change(), Ok(expected));
        prop_assert_eq!(umr.crypto(engine.unwrap_or(XtsEngine::Unspecified)), Ok(crypto));
        prop_assert_eq!(umr.error_count(), signature_mkey.then_some(true));

        let block = match change { SignatureChange::Set(block) => Some(block), _ => None };
        let psvs: Vec<_> = requests.iter().filter_map(|request| match request.body() {
            Body::SetPsv(segment) => Some(segment.psv_index.get()),
            _ => None,
        }).collect();
        let memory = block.as_ref().and_then(BlockSignature::memory_domain).map(|_| MEMORY_PSV.get());
        let wire = block.as_ref().and_then(BlockSignature::wire_domain).map(|_| WIRE_PSV.get());
        prop_assert_eq!(psvs, memory.into_iter().chain(wire).collect::<Vec<_>>());
        if let (Some(_), Some((memory_psv, wire_psv))) = (block, umr.psvs()) {
            prop_assert_eq!(memory.unwrap_or(0), memory_psv.get());
            prop_assert_eq!(wire.unwrap_or(0), wire_psv.get());
        }
        exercise(&bytes);
    }

    #[test]
    fn damaged_configurations_do_no_harm(
        entries in entries(),
        block in blocks(),
        crypto in cryptos(),
        damage in vec((any::<prop::sample::Index>(), any::<u8>()), 1..8),
        cut in any::<prop::sample::Index>(),
    ) {
        let config = MkeyConfig {
            access: Some(Access::ALL),
            layout: entries.layout(),
            signature: SignatureChange::Set(block),
            crypto: Some(crypto),
        };
        let posted = configured(attributes(true, Some(XtsEngine::Unspecified)), &config);
        let Ok(mut bytes) = posted else { return Ok(()) };
        for (at, value) in damage {
            let at = at.index(bytes.len());
            bytes[at] = value;
        }
        exercise(&bytes);
        exercise(&bytes[..cut.index(bytes.len())]);
    }

    #[test]
    fn random_bytes_do_no_harm(
        mut bytes in vec(any::<u8>(), 0..1100),
        opcode in of(prop_oneof![Just(0x25_u8), Just(0x20), Just(0x08), Just(0x0a), Just(0x10), Just(0x11), Just(0)]),
        small in any::<bool>(),
    ) {
        exercise(&bytes);
        if let (Some(opcode), true) = (opcode, bytes.len() > 40) {
            bytes[3] = opcode;
            if small {
                // Sizes that keep the parts within the bytes.
                (bytes[20], bytes[22]) = (0, 0);
                (bytes[21], bytes[23]) = (bytes[21] % 32, bytes[23] % 32);
            }
            exercise(&bytes);
        }
    }

    #[test]
    fn random_completions_do_no_harm(bytes in vec(any::<u8>(), 0..80), stride in of(any::<u32>())) {
        let Ok(entry) = CompletionEntry::parse(&bytes) else {
            prop_assert!(bytes.len() < 64);
            return Ok(());
        };
        check_page(&entry.pretty(stride, Style::Plain).to_string());
        entry.findings(|finding| assert!(finding.offset < 64));
        let shown: usize = entry.fields().map(|field| field.bytes.len()).sum();
        prop_assert!(shown <= 64);
    }

    #[test]
    fn data_paths_come_back(
        sges in vec((any::<u64>(), 1..=Sge::MAX_BYTES, any::<u32>()), 0..30),
        inline in of(vec(any::<u8>(), 0..200)),
        address: u64,
        rkey: u32,
        imm: u32,
    ) {
        let sges: Vec<_> = sges
            .into_iter()
            .flat_map(|(address, length, key)| Sge::new(address, length, Key::from_raw(key)))
            .collect();
        let payload = inline.as_ref().map_or(Payload::Sges(&sges), |bytes| Payload::Inline(bytes));
        let remote = Remote { address, rkey: Key::from_raw(rkey) };
        let bytes = encoded(|queue| queue.request(1).signaled().rdma_write_imm(remote, imm, payload));
        let bytes = bytes.map_err(|error| TestCaseError::fail(error.to_string()))?;
        let request = parse(&bytes);
        prop_assert_eq!(request.worst(&DeviceContext::UNKNOWN), None);
        prop_assert_eq!(request.control().imm.get(), imm);
        let Body::DataPath(transfer) = request.body() else { return Err(TestCaseError::fail("no transfer")) };
        let place = transfer.remote().map(|remote| (remote.address.get(), remote.rkey.get()));
        prop_assert_eq!(place, Some((address, rkey)));
        let pieces: Vec<_> = transfer.pieces().map(|(_, piece)| piece).collect();
        match &inline {
            Some(data) if data.is_empty() => prop_assert!(pieces.is_empty()),
            Some(data) => {
                prop_assert_eq!(pieces, [Piece::Inline { length: data.len() as u32, bytes: data }]);
            }
            None => {
                let want: Vec<_> = sges.iter().map(|sge| Piece::Memory(sge.to_wire())).collect();
                prop_assert_eq!(pieces, want);
            }
        }
        exercise(&bytes);
    }
}

fn dif(app_tag: u16, ref_tag: u32) -> Domain {
    let (guard, seed, escape) = (Guard::Crc, Seed::Ones, Escape::Never);
    let dif = T10Dif { guard, seed, app_tag, ref_tag, ref_remap: true, escape };
    Domain { signature: Signature::T10Dif(dif), block_size: BlockSize::B512 }
}

const CRC32C: Domain = Domain { signature: Signature::Crc32c(Seed::Ones), block_size: BlockSize::B512 };

const CRYPTO: Crypto = Crypto {
    direction: Direction::EncryptOnTx,
    order: SignatureOrder::BeforeCryptoOnTx,
    data_unit: BlockSize::B520,
    tweak: Tweak::from_lba(7),
    dek: DekId::from_low_bits(0x99),
    keytag: Keytag([0; 8]),
};

/// Where the parts of [`full`] begin.
const UMR: usize = 16;
const CONTEXT: usize = 64;
const ENTRIES: usize = 128;
const SIGNATURE: usize = 192;
const CRYPTO_AT: usize = 256;

/// Two pieces, T10-DIF in both domains, crypto around the wire's: 320 bytes, and two SET_PSVs.
fn full() -> Vec<u8> {
    full_with(BlockSignature::both(dif(1, 2), dif(3, 2)), CRYPTO)
}

fn full_with(block: BlockSignature, crypto: Crypto) -> Vec<u8> {
    let pieces = [ListEntry::new(0x1000, 520, REGION), ListEntry::new(0x9000, 520, REGION)];
    let pieces: Vec<_> = pieces.into_iter().flatten().collect();
    let config = MkeyConfig {
        access: Some(Access::REMOTE_READ | Access::REMOTE_WRITE),
        layout: Some(Layout::list(&pieces)),
        signature: SignatureChange::Set(block),
        crypto: Some(crypto),
    };
    let posted = configured(attributes(true, Some(XtsEngine::MultiBlock)), &config);
    posted.unwrap_or_else(|error| panic!("{error}"))
}

/// Three streams, of 512, 8 and 4 bytes, twice.
fn interleaved() -> Vec<u8> {
    let streams = [
        InterleavedEntry::new(0x1000, 512, 4, REGION),
        InterleavedEntry::new(0x9000, 8, 0, REGION),
        InterleavedEntry::new(0xa000, 4, 4, REGION),
    ];
    let streams: Vec<_> = streams.into_iter().flatten().collect();
    let config = MkeyConfig { layout: Layout::interleaved(2, &streams).ok(), ..MkeyConfig::KEEP };
    configured(attributes(false, None), &config).unwrap_or_else(|error| panic!("{error}"))
}

/// Returns a copy with some bytes replaced.
fn patched(mut bytes: Vec<u8>, at: usize, new: &[u8]) -> Vec<u8> {
    bytes[at..at + new.len()].copy_from_slice(new);
    bytes
}

#[test]
fn good_requests_have_no_findings() {
    for bytes in [full(), interleaved()] {
        for (_, request) in Requests::new(&bytes) {
            assert_eq!(request.worst(&DeviceContext::UNKNOWN), None, "{request}");
        }
    }
}

#[test]
fn each_fault_is_found() {
    use Problem::*;
    // Bytes, where, what stands there instead, and what is found.
    let cases: &[(fn() -> Vec<u8>, usize, &[u8], Problem)] = &[
        (full, 7, &[0], SizeZero),
        (full, 7, &[64], SizeOverLimit { ds: 64 }),
        (full, 7, &[63], Truncated { needed: 1008, have: 448 }),
        (full, 7, &[19], SizeMismatch { ds: 19, wanted: 20 }),
        (full, 7, &[24], SizeMismatch { ds: 24, wanted: 20 }),
        (full, 3, &[0x33], UnknownOpcode { opcode: 0x33 }),
        (full, 3, &[0x20], SizeMismatch { ds: 20, wanted: 2 }),
        (full, 0, &[1], UnexpectedOpmod { opmod: 1 }),
        (full, 11, &[0x40], UnknownBits { name: "fm_ce_se", bits: 0x40 }),
        (full, UMR, &[0x00], NotInline),
        (full, UMR, &[0xa0], CheckFree),
        (full, UMR + 1, &[1], ReservedNotZero { name: "reserved" }),
        (full, UMR + 5, &[3], EntriesNotPadded { octowords: 3 }),
        (full, UMR + 5, &[8], SizeMismatch { ds: 20, wanted: 24 }),
        (full, UMR + 7, &[4], SizeMismatch { ds: 20, wanted: 16 }),
        (full, UMR + 15, &[0x00], EntriesWithoutLength),
        (full, UMR + 15, &[0x00], FieldWithoutMask { name: "len" }),
        (full, UMR + 14, &[0x22], BsfNotEnabled),
        (full, UMR + 14, &[0x30], FieldWithoutMask { name: "signature error count" }),
        (full, UMR + 14, &[0x12], MaskMissing { name: "MKEY" }),
        (full, UMR + 13, &[0x00], FieldWithoutMask { name: "remote read" }),
        (full, UMR + 13, &[0x30], PartialAccessMask),
        (full, UMR + 13, &[0xbc], UnusualMask { name: "SMALL_FENCE" }),
        (full, UMR + 12, &[0x00], MaskMissing { name: "FREE" }),
        (full, UMR + 8, &[0x80], UnknownBits { name: "mkey_mask", bits: 1 << 63 }),
        (full, CONTEXT, &[0x40], FreesAndConfigures),
        (full, CONTEXT + 2, &[0x80], UnknownBits { name: "access", bits: 0x80 }),
        (full, CONTEXT + 7, &[0x35], TagChange { from: 0x34, to: 0x35 }),
        (full, CONTEXT + 20, &[1], FieldWithoutMask { name: "start_addr" }),
        (full, CONTEXT + 31, &[0x11], ListLength { sum: 1040, length: 1041 }),
        (full, CONTEXT + 27, &[1], LengthOver32Bits { length: 0x1_0000_0410 }),
        (full, ENTRIES + 2, &[0, 0], EntryEmpty { index: 0 }),
        (full, ENTRIES + 16, &[0x80], EntryTooLong { index: 1, length: 0x8000_0208 }),
        (interleaved, ENTRIES + 6, &[5], StridedOpcode { op: 0x500 }),
        (interleaved, ENTRIES + 15, &[4], StridedCount { entries: 4, octowords: 4 }),
        (interleaved, ENTRIES + 15, &[2], PaddingNotZero),
        (interleaved, ENTRIES + 15, &[2], StridedCycle { sum: 520, cycle: 524 }),
        (interleaved, ENTRIES + 3, &[0xff], StridedLength { mapped: 1534, length: 1048 }),
        (interleaved, ENTRIES + 11, &[0], RepeatZero),
        (interleaved, ENTRIES + 16, &[1], StrideTooSmall { index: 0, stride: 0x104, bytes: 0x200 }),
        (interleaved, ENTRIES + 35, &[0], PieceEmpty { index: 1 }),
        (full, SIGNATURE, &[0x90], BsfSizeCode { found: 2, wanted: 3, count: 2 }),
        (full, CRYPTO_AT, &[0x81], BsfSizeCode { found: 2, wanted: 3, count: 2 }),
        (full, CRYPTO_AT, &[0xc0], BsfOrder),
        (full, SIGNATURE, &[0xc1], BsfOrder),
        (full, SIGNATURE, &[0x40], TransactionBsf),
        (full, SIGNATURE + 3, &[5], UnknownCode { name: "m_bs_selector", value: 5 }),
        (full, SIGNATURE + 3, &[0], CopyMaskStructure),
        (full, SIGNATURE + 4, &[0], RawDataSize { size: 0x00ff_ffff }),
        (full, SIGNATURE + 8, &[0x77], UnknownCode { name: "w_bfs", value: 0x77 }),
        (full, SIGNATURE + 8, &[0x42], CopyMaskStructure),
        (full, SIGNATURE + 8, &[0x42], InlineUnwanted { domain: "wire" }),
        (full, SIGNATURE + 8, &[0x40], NotRepeated { domain: "wire" }),
        (full, SIGNATURE + 32, &[0x40], InlineMissing { domain: "wire" }),
        (full, SIGNATURE + 48, &[0x00], InlineMissing { domain: "memory" }),
        (full, SIGNATURE + 40, &[7], UnknownCode { name: "w_sig_type", value: 7 }),
        (full, SIGNATURE + 40, &[0], GuardType { code: 0 }),
        (full, SIGNATURE + 41, &[0x08], NotRepeated { domain: "wire" }),
        (full, SIGNATURE + 41, &[0x89], UnknownBits { name: "w_rp_inv_seed", bits: 1 }),
        (full, SIGNATURE + 45, &[0x43], BothEscapes),
        (full, SIGNATURE + 46, &[0x00], AppTagMask { mask: 0x00ff }),
        (full, CRYPTO_AT + 1, &[4], UnknownCode { name: "enc_order", value: 4 }),
        (full, CRYPTO_AT + 1, &[2], BothOutsideCipher),
        (full, CRYPTO_AT + 1, &[3], BothOutsideCipher),
        (full, CRYPTO_AT + 3, &[1], UnknownCode { name: "enc_standard", value: 1 }),
        (full, CRYPTO_AT + 8, &[0], UnknownCode { name: "crypto_block_size_ptr", value: 0 }),
        (full, CRYPTO_AT + 8, &[1], UnitNotBlock { unit: 512, wanted: 520 }),
        (full, CRYPTO_AT + 24, &[0xff; 8], TweakCarry { order: "big endian" }),
        (full, CRYPTO_AT + 16, &[0xff; 8], TweakCarry { order: "little endian" }),
        (full, CRYPTO_AT + 32, &[1], DekTooLarge { dek: 0x0100_0099 }),
        (full, CRYPTO_AT + 40, &[1], KeytagGiven),
    ];
    for (number, (bytes, at, new, problem)) in cases.iter().enumerate() {
        let found = problems(&patched(bytes(), *at, new), &DeviceContext::UNKNOWN);
        assert!(found.contains(problem), "case {number}: {problem}\nfound {found:?}");
    }
}

#[test]
fn masks_of_short_signatures_have_bits_to_spare() {
    let both = BlockSignature::both(CRC32C, CRC32C).with_check_mask(0xf1);
    let both = both.with_copy_mask(0x33).unwrap_or_else(|error| panic!("{error}"));
    let found = problems(&full_with(both, CRYPTO), &DeviceContext::UNKNOWN);
    assert!(found.contains(&Problem::CheckMaskIrrelevant { bits: 0x01 }), "{found:?}");
    assert!(found.contains(&Problem::CopyMaskIrrelevant { bits: 0x03 }), "{found:?}");
    let all = BlockSignature::both(CRC32C, CRC32C).with_check_mask(check_mask::ALL);
    let found = problems(&full_with(all, CRYPTO), &DeviceContext::UNKNOWN);
    assert!(!found.iter().any(|problem| matches!(problem, Problem::CheckMaskIrrelevant { .. })), "{found:?}");
}

#[test]
fn r153_holes_in_the_table_are_noted() {
    let after = Crypto { order: SignatureOrder::AfterCryptoOnTx, data_unit: BlockSize::B512, ..CRYPTO };
    let found = problems(&full_with(BlockSignature::memory(dif(1, 2)), after), &DeviceContext::UNKNOWN);
    assert!(found.contains(&Problem::RowHole), "{found:?}");
    let found = problems(&full_with(BlockSignature::wire(dif(1, 2)), after), &DeviceContext::UNKNOWN);
    assert!(!found.contains(&Problem::RowHole), "{found:?}");
}

#[test]
fn what_is_known_of_the_device_is_checked() {
    let single = DeviceContext { engine: Some(XtsEngine::SingleBlock), ..DeviceContext::UNKNOWN };
    let limit = Problem::SingleUnitEngine { length: 1040, unit: 520 };
    assert!(problems(&full(), &single).contains(&limit));
    assert!(!problems(&full(), &DeviceContext::UNKNOWN).contains(&limit));
    let old = SignatureCapabilities { block_4048: false, crc32c: false, crc64_xp10: false };
    let old = DeviceContext { capabilities: Some(old), ..DeviceContext::UNKNOWN };
    let bytes = full_with(BlockSignature::wire(CRC32C), CRYPTO);
    assert!(problems(&bytes, &old).contains(&Problem::CapabilityMissing { what: "CRC-32C" }));
    assert!(
        !problems(&full(), &old).iter().any(|problem| matches!(problem, Problem::CapabilityMissing { .. }))
    );
}

#[test]
fn lengths_that_leave_odd_ends_are_suspicious() {
    // 1032 bytes leave 512 behind the first unit of 520, and the rule allows 504 at most.
    let pieces = ListEntry::new(0x1000, 1032, REGION).map(|piece| [piece]);
    let pieces = pieces.unwrap_or_else(|error| panic!("{error}"));
    let config = MkeyConfig { layout: Some(Layout::list(&pieces)), crypto: Some(CRYPTO), ..MkeyConfig::KEEP };
    let bytes = configured(attributes(false, Some(XtsEngine::MultiBlock)), &config);
    let found = problems(&bytes.unwrap_or_else(|error| panic!("{error}")), &DeviceContext::UNKNOWN);
    assert_eq!(found, [Problem::JobSize { length: 1032, unit: 520 }]);
    let found = problems(&full_with(BlockSignature::memory(CRC32C), CRYPTO), &DeviceContext::UNKNOWN);
    assert!(found.contains(&Problem::PartialBlock { length: 1040, stride: 516 }), "{found:?}");
}

#[test]
fn set_psv_and_transfers_are_checked() {
    let psv = full().split_off(320);
    assert!(matches!(parse(&psv).body(), Body::SetPsv(segment) if segment.psv_index.get() == 0x11));
    let found = problems(&patched(psv.clone(), 16, &[1]), &DeviceContext::UNKNOWN);
    assert_eq!(found, [Problem::PsvTooLarge { psv: 0x0100_0011 }]);
    let found = problems(&patched(psv, 20, &[0, 1]), &DeviceContext::UNKNOWN);
    assert_eq!(found, [Problem::PsvSyndrome { syndrome: 1 }]);

    let remote = Remote { address: 0x1000, rkey: REGION };
    let sge = Sge::new(0, 8, REGION).unwrap_or_else(|error| panic!("{error}"));
    let read = encoded(|queue| queue.request(1).rdma_read(remote, &[sge]));
    let read = read.unwrap_or_else(|error| panic!("{error}"));
    let found = problems(&patched(read.clone(), 32, &[0, 0, 0, 0]), &DeviceContext::UNKNOWN);
    assert_eq!(found, [Problem::PieceIs2Gib { index: 0 }]);
    let found = problems(&patched(read.clone(), 32, &[0x80]), &DeviceContext::UNKNOWN);
    assert_eq!(found, [Problem::InlineNotAllowed]);
    let found = problems(&patched(read, 7, &[1]), &DeviceContext::UNKNOWN);
    assert_eq!(found, [Problem::SizeMismatch { ds: 1, wanted: 2 }]);

    let add = encoded(|queue| queue.request(1).fetch_add(remote, 1, &sge));
    let add = add.unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(problems(&add, &DeviceContext::UNKNOWN), []);
    let found = problems(&patched(add, 51, &[16]), &DeviceContext::UNKNOWN);
    assert_eq!(found, [Problem::AtomicOperand]);

    let send = encoded(|queue| queue.request(1).send(Payload::Inline(&[1; 12])));
    let send = send.unwrap_or_else(|error| panic!("{error}"));
    let found = problems(&patched(send, 19, &[13]), &DeviceContext::UNKNOWN);
    assert_eq!(found, [Problem::InlineOverrun { length: 13, room: 12 }]);
}

#[test]
fn a_signature_byte_is_checked_where_there_is_one() {
    let mut bytes = full();
    let rest = bytes.iter().take(320).fold(0, |sum, byte| sum ^ byte);
    bytes[8] = !rest;
    assert_eq!(problems(&bytes, &DeviceContext::UNKNOWN), []);
    bytes[9] = 1;
    let found = problems(&bytes, &DeviceContext::UNKNOWN);
    assert_eq!(found, [Problem::WqeSignature { found: !rest, computed: !rest ^ 1 }]);
}

#[test]
fn invalidations_are_told_from_configurations() {
    let bytes = encoded(|queue| queue.request(1).invalidate(KEY));
    let bytes = bytes.unwrap_or_else(|error| panic!("{error}"));
    let request = parse(&bytes);
    assert!(matches!(request.body(), Body::Invalidate(umr) if umr.key() == KEY));
    assert_eq!(request.worst(&DeviceContext::UNKNOWN), None);
    assert_eq!(request.summary(DeviceContext::UNKNOWN).to_string(), "UMR invalidate mkey 0x000012/34");
}

#[test]
fn short_input_is_an_error() {
    let error = WorkRequest::parse(&[0; 15]);
    assert_eq!(error, Err(ParseError::TooShort { have: 15, needed: 16 }));
    assert!(CompletionEntry::parse(&[0; 63]).is_err());
}

#[test]
fn a_request_reads_in_words() {
    let device = DeviceContext { engine: Some(XtsEngine::MultiBlock), ..DeviceContext::UNKNOWN };
    let bytes = full();
    assert_eq!(
        parse(&bytes).summary(device).to_string(),
        "UMR configure mkey 0x000012/34: access remote read+write, list of 2 entries, 1040 bytes, \
         memory T10-DIF crc/512 seed ones app 0x0001 ref 0x00000002 growing, \
         wire T10-DIF crc/512 seed ones app 0x0003 ref 0x00000002 growing, check 0xff, copy 0xcf (automatic), \
         AES-XTS wire enciphered, signature inside, unit 520, DEK 0x99, tweak 0x7 (big endian), error count 1"
    );
}

#[test]
fn a_page_shows_bytes_fields_and_findings() {
    let psv = patched(full().split_off(320), 20, &[0, 1]);
    let want = "\
SET_PSV 0x000011: start value 0xffff000100000002, small fence
0x000  00000520 00012302 00000020 00000000  control segment
                                            opmod                 0x00
                                            wqe_index             5 (block)
                                            opcode                0x20 SET_PSV
                                            qpn                   0x000123
                                            ds                    2 octowords (32 bytes)
                                            signature             0x00
                                            dci_stream_channel    0x0000
                                            fm_ce_se              0x20 small fence
                                            imm                   0x00000000
0x010  00000011 00010000 ffff0001 00000002  SET_PSV segment
                                            psv_index             0x00000011
                                            syndrome              0x0001
                                            transient_signature   0xffff000100000002
note at 0x014: the PSV starts with syndrome 0x0001 (R176)
";
    let request = parse(&psv);
    assert_eq!(request.to_string(), want);
    // Colours change nothing but themselves.
    let coloured = request.pretty(DeviceContext::UNKNOWN, Style::Ansi).to_string();
    let mut text = String::new();
    for (number, part) in coloured.split('\x1b').enumerate() {
        text.push_str(if number == 0 { part } else { part.split_once('m').map_or(part, |(_, rest)| rest) });
    }
    assert_eq!(text, want);
}

/// Returns a completion entry with these bytes at these places.
fn entry(parts: &[(usize, &[u8])]) -> Vec<u8> {
    parts.iter().fold(std::vec![0; 64], |bytes, (at, new)| patched(bytes, *at, new))
}

#[test]
fn completions_read_in_words() {
    let words = |bytes: &[u8], stride| {
        CompletionEntry::parse(bytes).map(|entry| (entry.summary(stride).to_string(), entry.worst()))
    };
    let done = entry(&[(46, &[0x02, 0x08]), (56, &[0x08, 0, 1, 0x23, 0, 5, 0, 0x01])]);
    let text = "REQ: queue pair 0x123, counter 5, RDMA_WRITE, 520 bytes";
    assert_eq!(words(&done, None), Ok((text.into(), None)));

    let failed = entry(&[(54, &[0x93, 0x04]), (56, &[0x0a, 0, 1, 0x23, 0, 5, 0, 0xd0])]);
    let text = "REQ_ERR: queue pair 0x123, counter 5, SEND, local protection error (vendor 0x93, \
                on-demand page fault)";
    assert_eq!(words(&failed, None), Ok((text.into(), None)));

    let wrong = entry(&[
        (16, &[0x99, 0x16, 0, 0, 0xec, 0x7d, 0, 0]),
        (32, &[0x20, 0, 0, 1, 0, 0, 0x12, 0x34]),
        (46, &[0x04, 0x0f, 0]),
        (63, &[0xc0]),
    ]);
    let words = words(&wrong, Some(520)).map(|(text, worst)| {
        assert_eq!(worst, None);
        text
    });
    let text = words.unwrap_or_default();
    let start = "SIG_ERR: mkey index 0x000012, memory, block 1, offset 1039, \
                 bad guard: found 0xec7d, computed 0x9916 (T10-DIF)";
    assert!(text.starts_with(start), "{text}");
}

#[test]
fn odd_completions_are_found() {
    let found = |bytes: &[u8]| {
        let mut problems = Vec::new();
        let entry = CompletionEntry::parse(bytes).unwrap_or_else(|error| panic!("{error}"));
        entry.findings(|finding| problems.push(finding.problem));
        (problems, entry.kind())
    };
    let (problems, kind) = found(&entry(&[(63, &[0x90])]));
    assert_eq!(
        (problems.as_slice(), kind),
        (&[Problem::UnknownCqeOpcode { opcode: 9 }][..], EntryKind::Unknown)
    );
    let (problems, kind) = found(&entry(&[(63, &[0xf1])]));
    assert_eq!((problems.as_slice(), kind), (&[Problem::NotWritten][..], EntryKind::NotWritten));
    assert_eq!(found(&entry(&[(63, &[0x24])])).0, [Problem::CqeFormat { format: 1 }]);
    assert_eq!(
        found(&entry(&[(55, &[0x77]), (63, &[0xd0])])).0,
        [Problem::UnknownSyndrome { syndrome: 0x77 }]
    );
    let (problems, _) = found(&entry(&[(34, &[1, 3]), (63, &[0xc0])]));
    let want = [
        Problem::SignatureSyndrome { syndrome: 0 },
        Problem::SignatureType { code: 1 },
        Problem::SignatureDomain { code: 3 },
    ];
    assert_eq!(problems, want);
}
