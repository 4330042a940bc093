//! Tests that each fault is found, and that valid requests have no findings.

use super::cqe::{CompletionEntry, EntryKind};
use super::drivers::{context, control, segment, spdk_encrypted_transaction, spdk_transaction, umr_control};
use super::requests::*;
use super::std;
use super::std::vec::Vec;
use super::*;
use crate::mkey::*;
use crate::types::*;
use crate::wqe::{Local, Payload, Remote, Sge};

#[test]
fn good_requests_have_no_findings() {
    for bytes in [full(), interleaved()] {
        for (_, request) in Requests::new(&bytes) {
            assert_eq!(request.worst(&DeviceContext::UNKNOWN), None, "{request}");
        }
    }
}

/// Checks the severities that other tests rely on, and the severities of unusual values that drivers write.
#[test]
fn what_devices_refuse_is_told_from_what_drivers_do() {
    use Problem::*;
    for (problem, severity) in [
        (UmrReserved, Severity::Refused),
        (ListTooShort { sum: 1, length: 2 }, Severity::Suspicious),
        (ListTooLong { sum: 2, length: 1 }, Severity::Note),
        (BsfEnableKept, Severity::Note),
        (BsfNotEnabled, Severity::Suspicious),
        (BoundWithSignature, Severity::Note),
        (ByPointer, Severity::Note),
        (TransactionOrder, Severity::Suspicious),
    ] {
        assert_eq!(problem.severity(), severity, "{problem}");
    }
}

/// A fault: a function that returns a valid request, the offset and the bytes that make it faulty, and the
/// offset and kind of the expected problem.
type Case = (fn() -> Vec<u8>, usize, &'static [u8], usize, Problem);

#[test]
fn each_fault_is_found() {
    use Problem::*;
    let cases: &[Case] = &[
        (full, 7, &[0], 7, SizeZero),
        (full, 7, &[64], 7, SizeOverLimit { ds: 64 }),
        (full, 7, &[63], 448, Truncated { needed: 1008, have: 448 }),
        (full, 7, &[19], 7, SizeMismatch { ds: 19, wanted: 20 }),
        (full, 7, &[24], 7, SizeMismatch { ds: 24, wanted: 20 }),
        (full, 3, &[0x33], 3, UnknownOpcode { opcode: 0x33 }),
        (full, 3, &[0x20], 7, SizeMismatch { ds: 20, wanted: 2 }),
        (full, 0, &[1], 0, AnotherObject { opmod: 1 }),
        (full, 11, &[0xa0], 11, UnknownBits { name: "fm_ce_se", bits: 0xa0 }),
        (full, UMR, &[0x00], UMR, ByPointer),
        (full, UMR, &[0x00], 7, SizeMismatch { ds: 20, wanted: 9 }),
        (full, UMR, &[0xa0], UMR, CheckFree),
        (full, UMR, &[0x84], UMR, UmrReserved),
        (full, UMR, &[0xc0], UMR, UnknownBits { name: "flags", bits: 0x40 }),
        (full, UMR + 1, &[1], UMR + 1, UmrReserved),
        (full, UMR + 47, &[1], UMR + 40, UmrReserved),
        (full, CONTEXT + 3, &[1], CONTEXT + 3, ReservedNotZero { name: "reserved" }),
        (full, CONTEXT + 1, &[1], CONTEXT + 1, UnknownBits { name: "relaxed_ordering_write", bits: 1 }),
        (full, UMR + 5, &[3], UMR + 4, EntriesNotPadded { octowords: 3 }),
        (full, UMR + 5, &[8], 7, SizeMismatch { ds: 20, wanted: 24 }),
        (full, UMR + 7, &[4], 7, SizeMismatch { ds: 20, wanted: 16 }),
        (full, UMR + 15, &[0x00], UMR + 8, EntriesWithoutLength),
        (full, UMR + 15, &[0x00], CONTEXT + 24, FieldWithoutMask { name: "len" }),
        (full, UMR + 14, &[0x22], UMR + 8, BsfEnableKept),
        (full, CONTEXT + 12, &[0x04], UMR + 8, BsfNotEnabled),
        (full, UMR + 14, &[0x30], CONTEXT + 12, FieldWithoutMask { name: "signature error count" }),
        (full, UMR + 14, &[0x12], UMR + 8, MaskMissing { name: "MKEY" }),
        (unmasked, CONTEXT + 7, &[0x35], CONTEXT + 4, FieldWithoutMask { name: "qpn_mkey" }),
        (unmasked, CONTEXT + 4, &[0], CONTEXT + 4, FieldWithoutMask { name: "qpn_mkey" }),
        (full, UMR + 13, &[0x00], CONTEXT + 2, FieldWithoutMask { name: "remote read" }),
        (full, UMR + 13, &[0x30], UMR + 8, PartialAccessMask),
        (full, UMR + 13, &[0xbc], UMR + 8, UnusualMask { name: "SMALL_FENCE" }),
        (full, UMR + 12, &[0x00], UMR + 8, MaskMissing { name: "FREE" }),
        (full, UMR + 15, &[0x05], UMR + 8, UnknownBits { name: "mkey_mask", bits: 4 }),
        (full, UMR + 8, &[0x80], UMR + 8, UnknownBits { name: "mkey_mask", bits: 1 << 63 }),
        (full, CONTEXT, &[0x40], CONTEXT, FreesAndConfigures),
        (full, CONTEXT + 2, &[0x80], CONTEXT + 2, UnknownBits { name: "access", bits: 0x80 }),
        (bound, 0, &[], CONTEXT + 4, BoundToQueuePair { qpn: 0x123 }),
        (bound, 0, &[], CONTEXT + 4, BoundWithSignature),
        (moved, 0, &[], CONTEXT + 16, NonZeroStart { address: 0x1000 }),
        (empty, 0, &[], UMR + 4, EmptyLayout),
        (empty, CONTEXT + 31, &[9], UMR + 4, LengthWithoutEntries { length: 9 }),
        (empty, UMR + 14, &[0x30], UMR + 6, EnabledWithoutBsf),
        (wire_only, SIGNATURE + 15, &[1], SIGNATURE + 12, UnusedDomain { domain: "memory" }),
        (alike, SIGNATURE, &[0xc0, 0xff, 1], SIGNATURE + 2, AlikeButNotCopied),
        (short_masks, 0, &[], SIGNATURE + 1, CheckMaskIrrelevant { bits: 0x01 }),
        (short_masks, 0, &[], SIGNATURE + 2, CopyMaskIrrelevant { bits: 0x03 }),
        (interleaved, CONTEXT, &[0x40], CONTEXT, FreesAndConfigures),
        (bsfs_alone, CONTEXT, &[0x40], CONTEXT, FreesAndConfigures),
        (pointed, 0, &[], ENTRIES + 8, PointerAlignment { address: 0x1_8000_0400 }),
        (streams, ENTRIES + 6, &[5], ENTRIES + 4, StridedOpcode { op: 0x500 }),
        (streams, ENTRIES + 15, &[3], ENTRIES + 14, StridedSpare { entries: 3, octowords: 8 }),
        (memcpy, 32, &[0x80], 32, InlineNotAllowed),
        (memcpy, 48, &[0x80], 48, InlineNotAllowed),
        (memcpy, 51, &[63], 48, MemcpyLengths { from: 64, to: 63 }),
        (full, 7, &[4], 7, SizeMismatch { ds: 4, wanted: 8 }),
        (full, 3, &[0], UMR, DataInNop),
        (full, CONTEXT + 7, &[0x35], CONTEXT + 7, TagChange { from: 0x34, to: 0x35 }),
        (full, CONTEXT + 20, &[1], CONTEXT + 16, FieldWithoutMask { name: "start_addr" }),
        (full, CONTEXT + 31, &[0x11], CONTEXT + 24, ListTooShort { sum: 1040, length: 1041 }),
        (full, CONTEXT + 31, &[0x0f], CONTEXT + 24, ListTooLong { sum: 1040, length: 1039 }),
        (full, CONTEXT + 27, &[1], CONTEXT + 24, LengthOver32Bits { length: 0x1_0000_0410 }),
        (full, ENTRIES + 2, &[0, 0], ENTRIES, EntryEmpty { index: 0 }),
        (full, ENTRIES + 16, &[0x80], ENTRIES + 16, EntryTooLong { index: 1, length: 0x8000_0208 }),
        (interleaved, ENTRIES + 6, &[5], ENTRIES + 4, StridedOpcode { op: 0x500 }),
        (interleaved, ENTRIES + 15, &[4], ENTRIES + 14, StridedCount { entries: 4, octowords: 4 }),
        (interleaved, ENTRIES + 15, &[2], ENTRIES + 48, PaddingNotZero),
        (interleaved, ENTRIES + 15, &[2], ENTRIES, StridedCycle { sum: 520, cycle: 524 }),
        (interleaved, ENTRIES + 3, &[0xff], CONTEXT + 24, StridedLength { mapped: 1534, length: 1048 }),
        (interleaved, ENTRIES + 11, &[0], ENTRIES + 8, RepeatZero),
        (
            interleaved,
            ENTRIES + 16,
            &[1],
            ENTRIES + 16,
            StrideTooSmall { index: 0, stride: 0x104, bytes: 0x200 },
        ),
        (interleaved, ENTRIES + 35, &[0], ENTRIES + 32, StridedEntryEmpty { index: 1 }),
        (full, SIGNATURE, &[0x90], SIGNATURE, BsfSizeCode { found: 2, wanted: 3, count: 2 }),
        (full, CRYPTO_AT, &[0x81], CRYPTO_AT, BsfSizeCode { found: 2, wanted: 3, count: 2 }),
        (full, CRYPTO_AT, &[0xc0], CRYPTO_AT, BsfOrder),
        (full, SIGNATURE, &[0xc1], CRYPTO_AT, BsfOrder),
        (full, SIGNATURE, &[0x50], SIGNATURE, BsfSizeCode { found: 1, wanted: 3, count: 2 }),
        (full, SIGNATURE, &[0x40], SIGNATURE + 2, TransactionWithBlocks),
        (full, SIGNATURE, &[0x40], SIGNATURE, TransactionEmpty),
        (spdk_transaction, SIGNATURE, &[0], SIGNATURE, BsfSizeCode { found: 0, wanted: 2, count: 1 }),
        (spdk_transaction, SIGNATURE, &[0xc0], SIGNATURE, BsfSizeCode { found: 3, wanted: 2, count: 1 }),
        (spdk_transaction, SIGNATURE + 1, &[0xf0], SIGNATURE + 1, TransactionCheckMask { mask: 0xf0 }),
        (spdk_transaction, SIGNATURE + 2, &[1], SIGNATURE + 2, TransactionWithBlocks),
        (spdk_transaction, SIGNATURE + 7, &[1], CONTEXT + 24, TransactionSize { size: 4097, length: 4096 }),
        (spdk_transaction, SIGNATURE + 16, &[0x31], SIGNATURE + 16, TransactionBits { domain: "memory" }),
        (spdk_transaction, SIGNATURE + 16, &[0x32], SIGNATURE + 16, TransactionBits { domain: "memory" }),
        (
            spdk_transaction,
            SIGNATURE + 16,
            &[0x70],
            SIGNATURE + 16,
            UnknownBits { name: "t_init_gen_pro_size", bits: 1 << 30 },
        ),
        (spdk_transaction, SIGNATURE + 20, &[1], SIGNATURE + 20, ReservedNotZero { name: "rsvd_epi_size" }),
        (
            spdk_transaction,
            SIGNATURE + 24,
            &[0x20],
            SIGNATURE + 24,
            UnknownCode { name: "w_tfs", value: 0x20 },
        ),
        (spdk_transaction, SIGNATURE + 28, &[0x40], SIGNATURE + 28, TransactionInBothDomains),
        (spdk_transaction, SIGNATURE + 24, &[0; 4], SIGNATURE, TransactionEmpty),
        (spdk_transaction, SIGNATURE + 24, &[0; 4], SIGNATURE + 16, TransactionBits { domain: "wire" }),
        (begins_without_format, 0, &[], SIGNATURE + 16, TransactionBits { domain: "wire" }),
        (begins_without_format, SIGNATURE + 16, &[0x10], SIGNATURE + 16, TransactionBits { domain: "wire" }),
        (spdk_transaction, SIGNATURE + 40, &[1], SIGNATURE + 40, ReservedNotZero { name: "reserved" }),
        (spdk_encrypted_transaction, CRYPTO_AT + 1, &[3], CRYPTO_AT + 1, TransactionOrder),
        (
            spdk_encrypted_transaction,
            CRYPTO_AT + 6,
            &[9],
            CRYPTO_AT + 4,
            RawDataSize { size: 0x900, length: 4096 },
        ),
        (full, SIGNATURE + 3, &[5], SIGNATURE + 3, UnknownCode { name: "m_bs_selector", value: 5 }),
        (full, SIGNATURE + 3, &[0], SIGNATURE + 2, CopyMaskStructure),
        (full, SIGNATURE + 4, &[0], SIGNATURE + 4, RawDataSize { size: 0x00ff_ffff, length: 1040 }),
        (full, CRYPTO_AT + 4, &[0; 4], CRYPTO_AT + 4, RawDataSize { size: 0, length: 1040 }),
        (full, SIGNATURE + 8, &[0x77], SIGNATURE + 8, UnknownCode { name: "w_bfs", value: 0x77 }),
        (full, SIGNATURE + 8, &[0x42], SIGNATURE + 2, CopyMaskStructure),
        (full, SIGNATURE + 8, &[0x42], SIGNATURE + 32, InlineUnwanted { domain: "wire" }),
        (full, SIGNATURE + 8, &[0x40], SIGNATURE + 8, NotRepeated { domain: "wire" }),
        (full, SIGNATURE + 32, &[0x40], SIGNATURE + 32, InlineMissing { domain: "wire" }),
        (full, SIGNATURE + 48, &[0x00], SIGNATURE + 48, InlineMissing { domain: "memory" }),
        (full, SIGNATURE + 40, &[7], SIGNATURE + 40, UnknownCode { name: "w_sig_type", value: 7 }),
        (full, SIGNATURE + 40, &[0], SIGNATURE + 40, GuardType { code: 0 }),
        (full, SIGNATURE + 41, &[0x08], SIGNATURE + 41, NotRepeated { domain: "wire" }),
        (full, SIGNATURE + 41, &[0x89], SIGNATURE + 41, UnknownBits { name: "w_rp_inv_seed", bits: 1 }),
        (full, SIGNATURE + 45, &[0x43], SIGNATURE + 45, BothEscapes),
        (full, SIGNATURE + 46, &[0x00], SIGNATURE + 46, AppTagMask { mask: 0x00ff }),
        (full, CRYPTO_AT + 1, &[4], CRYPTO_AT + 1, UnknownCode { name: "enc_order", value: 4 }),
        (full, CRYPTO_AT + 1, &[2], CRYPTO_AT + 1, BothOutsideCipher),
        (full, CRYPTO_AT + 1, &[3], CRYPTO_AT + 1, BothOutsideCipher),
        (full, CRYPTO_AT + 3, &[1], CRYPTO_AT + 3, UnknownCode { name: "enc_standard", value: 1 }),
        (full, CRYPTO_AT + 8, &[0], CRYPTO_AT + 8, UnknownCode { name: "crypto_block_size_ptr", value: 0 }),
        (full, CRYPTO_AT + 8, &[1], CRYPTO_AT + 8, UnitNotBlock { unit: 512, wanted: 520 }),
        (full, CRYPTO_AT + 24, &[0xff; 8], CRYPTO_AT + 16, TweakCarry { order: "big endian" }),
        (full, CRYPTO_AT + 16, &[0xff; 8], CRYPTO_AT + 16, TweakCarry { order: "little endian" }),
        (full, CRYPTO_AT + 32, &[1], CRYPTO_AT + 32, DekTooLarge { dek: 0x0100_0099 }),
        (full, CRYPTO_AT + 40, &[1], CRYPTO_AT + 40, KeytagGiven),
    ];
    for (number, &(bytes, at, new, offset, problem)) in cases.iter().enumerate() {
        let mut found = Vec::new();
        parse(&patched(bytes(), at, new)).findings(&DeviceContext::UNKNOWN, |finding| found.push(finding));
        assert!(
            found.contains(&Finding { offset, problem }),
            "case {number}: {problem} at {offset}\nfound {found:?}"
        );
    }
}

/// Returns the request of [`full`] with CRC32Cs, and with masks that have bits for more bytes than a CRC32C
/// has.
fn short_masks() -> Vec<u8> {
    let both = BlockSignature::both(CRC32C, CRC32C).with_check_mask(0xf1);
    full_with(both.with_copy_mask(0x33).unwrap(), CRYPTO)
}

/// Returns a UMR with a transaction that begins on the wire, although the wire has no format.
fn begins_without_format() -> Vec<u8> {
    patched(spdk_transaction(), SIGNATURE + 16, &[0x20, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0])
}

/// Returns a request that writes a signature, but no layout.
fn bsfs_alone() -> Vec<u8> {
    let config = MkeyConfig {
        signature: SignatureChange::Set(BlockSignature::wire(dif(1, 2))),
        ..MkeyConfig::UNCHANGED
    };
    configured(attributes(true, None), &config, Layout::Unchanged).unwrap()
}

/// Returns a UMR with a list in memory, at an address that is no multiple of 2048, where no list may begin.
fn pointed() -> Vec<u8> {
    let pointer = segment(0, 0x0056_7800, 0x1_8000_0400);
    [control(0x25, 9, 8, 0x1234), umr_control(0, 8, 0, 1), context(100, false), pointer].concat()
}

/// Returns a request with a layout of four streams. Header and streams have 5 * 16 bytes, so they take two
/// blocks.
fn streams() -> Vec<u8> {
    let entry = |address| InterleavedEntry { address, bytes: 8, skip: 0, key: REGION };
    let entries = [0x1000, 0x2000, 0x3000, 0x4000].map(entry);
    let layout = Layout::Interleaved { repeat: 2, entries: &entries };
    configured(attributes(false, None), &MkeyConfig::UNCHANGED, layout).unwrap()
}

/// Returns a UMR that replaces four entries, from number `first` on.
fn replacing(first: u16) -> Vec<u8> {
    let entries = (0..4).flat_map(|number| segment(64, 0x0056_7800, number << 12)).collect();
    [control(0x25, 12, 8, 0x1234), umr_control(0x90, 4, first, 0), context(0, false), entries].concat()
}

#[test]
fn entries_are_replaced_in_blocks_of_four() {
    for first in 0..10_u16 {
        let bytes = replacing(first);
        let problem = Problem::ReplacedInBlock { first: first.into() };
        let mut found = Vec::new();
        parse(&bytes).findings(&DeviceContext::UNKNOWN, |finding| found.push(finding));
        assert_eq!(found.contains(&Finding { offset: UMR + 6, problem }), first % 4 != 0, "{found:?}");
        assert!(!found.iter().any(|finding| finding.problem == Problem::EntriesWithoutLength), "{found:?}");
        let Body::Configure(umr) = parse(&bytes).body() else { panic!("a configuration") };
        assert_eq!((umr.first_replaced(), umr.length()), (Some(first.into()), None));
        let words = parse(&bytes).summary(DeviceContext::UNKNOWN).to_string();
        let text = std::format!("mkey 0x000012/34: from entry {first} on, list of 4 entries, length kept");
        assert!(words.contains(&text), "{words}");
    }
    assert_eq!(problems(&replacing(4), &DeviceContext::UNKNOWN).len(), 2, "and the mask lacks two bits");
}

/// The upper bits of a translation offset have a field of their own, after the mkey mask.
#[test]
fn m84_offsets_of_more_than_16_bits_are_read() {
    let upper = |mut bytes: Vec<u8>, upper: u32| {
        bytes[UMR + 16..UMR + 20].copy_from_slice(&upper.to_be_bytes());
        bytes
    };
    let found = |bytes: &[u8]| {
        let mut found = Vec::new();
        parse(bytes).findings(&DeviceContext::UNKNOWN, |finding| found.push(finding));
        found.retain(|finding| finding.severity() == Severity::Refused);
        found
    };
    for (upper_bits, first, number) in [(1, 0, 0x1_0000), (0xffff, 0xfffc, 0xffff_fffc_u64)] {
        let bytes = upper(replacing(first), upper_bits);
        assert_eq!(found(&bytes), []);
        let words = parse(&bytes).summary(DeviceContext::UNKNOWN).to_string();
        assert!(words.contains(&std::format!("from entry {number} on")), "{words}");
    }
    let at = |offset, problem| std::vec![Finding { offset, problem }];
    let bytes = upper(replacing(2), 1);
    assert_eq!(found(&bytes), at(UMR + 6, Problem::ReplacedInBlock { first: 0x1_0002 }));
    let bytes = upper(replacing(0), 0x1_0000);
    assert_eq!(found(&bytes), at(UMR + 16, Problem::EntryBehindAll { first: 1 << 32 }));
    let bytes = upper(streams(), 3);
    assert_eq!(found(&bytes), at(UMR + 16, Problem::OffsetWithoutFlag { upper: 3 }));
}

/// If a UMR makes a list longer, the request contains the length of the whole list.
#[test]
fn m84_the_length_behind_an_offset_is_that_of_the_whole_list() {
    let entries: Vec<u8> = (0..4).flat_map(|number| segment(64, 0x0056_7800, number << 12)).collect();
    let growing = |first, length| {
        [
            control(0x25, 12, 8, 0x1234),
            umr_control(0x90, 4, first, 1),
            context(length, false),
            entries.clone(),
        ]
        .concat()
    };
    let worst = |bytes: &[u8]| parse(bytes).worst(&DeviceContext::UNKNOWN);
    assert_eq!(worst(&growing(4, 1000)), Some(Severity::Note));
    assert_eq!(worst(&growing(0, 1000)), Some(Severity::Suspicious));
    let words = parse(&growing(4, 1000)).summary(DeviceContext::UNKNOWN).to_string();
    assert!(words.contains("from entry 4 on, list of 4 entries, "), "{words}");
}

/// A harmless value: a function that returns a request, the offset of the value in the request, the bytes of
/// the value, and a function that recognises the problem that the rules must not report.
type Harmless = (fn() -> Vec<u8>, usize, &'static [u8], fn(&Problem) -> bool);

#[test]
fn what_only_looks_like_a_fault_is_none() {
    use Problem::*;
    let cases: &[Harmless] = &[
        // Only one of the two escape flags is set.
        (full, SIGNATURE + 45, &[0x41], |it| matches!(it, BothEscapes)),
        (full, SIGNATURE + 45, &[0x42], |it| matches!(it, BothEscapes)),
        // The mask selects only the tag, or only the queue pair.
        (full, UMR + 14, &[0x32, 1, 0x35], |it| matches!(it, FieldWithoutMask { name: "qpn_mkey" })),
        (bound, UMR + 14, &[0x52], |it| matches!(it, FieldWithoutMask { name: "qpn_mkey" })),
        // The start address is 0, or the mask does not select it.
        (moved, CONTEXT + 22, &[0], |it| matches!(it, NonZeroStart { .. })),
        (moved, UMR + 15, &[0x01], |it| matches!(it, NonZeroStart { .. })),
        // Any queue pair may use the mkey, or the mask does not select the queue pair.
        (bound, CONTEXT + 4, &[0xff; 3], |it| matches!(it, BoundToQueuePair { .. } | BoundWithSignature)),
        (bound, UMR + 14, &[0x32], |it| matches!(it, BoundToQueuePair { .. } | BoundWithSignature)),
        // The request has entries, but a length of 0.
        (full, CONTEXT + 30, &[0, 0], |it| matches!(it, EmptyLayout)),
        // The first entry of the list reads as a header with another code.
        (streams, ENTRIES + 6, &[5, 0, 0, 0, 0, 3], |it| matches!(it, StridedOpcode { .. })),
        (interleaved, ENTRIES + 6, &[5, 0, 0, 0, 0, 2, 0, 0, 0, 0], |it| matches!(it, StridedOpcode { .. })),
        (interleaved, ENTRIES + 6, &[5, 0, 0, 0, 0, 2, 0, 0, 0, 9], |it| matches!(it, StridedOpcode { .. })),
        // The size of a memory-to-memory operation that is no copy is unknown.
        (memcpy, 0, &[6, 0, 5, 0x2f, 0, 1, 0x23, 3], |it| matches!(it, SizeMismatch { .. })),
    ];
    for (number, &(bytes, at, new, problem)) in cases.iter().enumerate() {
        let bytes = patched(bytes(), at, new);
        let found = problems(&bytes, &DeviceContext::UNKNOWN);
        assert!(!found.iter().any(problem), "case {number}: {found:?}\n{}", parse(&bytes));
    }
    let nop = encoded(|queue| queue.request(1).nop()).unwrap();
    assert_eq!(problems(&nop, &DeviceContext::UNKNOWN), []);
    // If a request is cut off after its fixed part, the only problem is the missing data segment.
    let remote = Remote { address: 0x1000, rkey: REGION };
    let sge = Sge { address: 0, length: 8, lkey: REGION };
    let read = encoded(|queue| queue.request(1).rdma_read(remote, &[sge])).unwrap();
    let found = problems(&read[..32], &DeviceContext::UNKNOWN);
    assert_eq!(found, [Truncated { needed: 48, have: 32 }]);
}

/// For each order of signature and cipher: the data unit must be a block with its signature if, and only if,
/// the cipher covers the signature.
#[test]
fn data_units_are_compared_with_what_is_encrypted() {
    use Direction::{DecryptOnTx, EncryptOnTx};
    use SignatureOrder::{AfterCryptoOnTx, BeforeCryptoOnTx};
    let wire = BlockSignature::wire(dif(1, 2));
    let memory = BlockSignature::memory(dif(1, 2));
    for (order, direction, block, inside) in [
        (BeforeCryptoOnTx, EncryptOnTx, wire, true),
        (AfterCryptoOnTx, DecryptOnTx, memory, true),
        (AfterCryptoOnTx, EncryptOnTx, wire, false),
        (BeforeCryptoOnTx, DecryptOnTx, memory, false),
    ] {
        let crypto = |data_unit| Crypto { order, direction, data_unit, ..CRYPTO };
        let found = problems(&full_with(block, crypto(BlockSize::B4160)), &DeviceContext::UNKNOWN);
        let mistaken = Problem::UnitNotBlock { unit: 4160, wanted: 520 };
        assert_eq!(found.contains(&mistaken), inside, "{order:?} {direction:?}: {found:?}");
        let single = DeviceContext { engine: Some(XtsEngine::SingleBlock), ..DeviceContext::UNKNOWN };
        let over = Problem::SingleUnitEngine { length: 1040, unit: 512 };
        let found = problems(&full_with(block, crypto(BlockSize::B512)), &single);
        assert!(found.contains(&over), "{order:?} {direction:?}: {found:?}");
    }
}

/// The finding for an unreadable signature names the offset of the unknown code.
#[test]
fn signatures_that_cannot_be_read_back_say_where() {
    let unknown = |name, value| Problem::UnknownCode { name, value };
    for (at, new, offset, problem) in [
        (0, &[0xc0, 0xff, 5, 1][..], 2, unknown("w_bs_selector", 5)),
        (0, &[0xc0, 0xff, 1, 5], 3, unknown("m_bs_selector", 5)),
        // If both domains have the same structure, the selector of the memory domain counts for both.
        (3, &[5], 3, unknown("m_bs_selector", 5)),
        (8, &[0x02], 8, unknown("w_bfs", 2)),
        (8, &[0x77], 8, unknown("w_bfs", 0x77)),
        (12, &[0x01], 12, unknown("m_bfs", 1)),
        (12, &[0x60], 12, unknown("m_bfs", 0x60)),
        (40, &[7], 40, Problem::GuardType { code: 7 }),
        (56, &[7], 56, Problem::GuardType { code: 7 }),
    ] {
        let bytes = patched(full(), SIGNATURE + at, new);
        let Body::Configure(umr) = parse(&bytes).body() else { panic!("a configuration") };
        let finding = Finding { offset: SIGNATURE + offset, problem };
        assert_eq!(umr.signature(), Err(finding));
        assert_eq!(umr.signature_change(), Err(finding));
    }
    for (at, new, offset, problem) in [
        (24, &[0x20][..], 24, unknown("w_tfs", 0x20)),
        (24, &[0x42], 24, unknown("w_tfs", 0x42)),
        (24, &[0, 0, 0, 0, 0x50], 28, unknown("m_tfs", 0x50)),
        (28, &[0x40], 28, Problem::TransactionInBothDomains),
    ] {
        let bytes = patched(spdk_transaction(), SIGNATURE + at, new);
        let Body::Configure(umr) = parse(&bytes).body() else { panic!("a configuration") };
        assert_eq!(umr.transaction(), Err(Finding { offset: SIGNATURE + offset, problem }));
    }
}

#[test]
fn what_cannot_be_read_back_says_where() {
    for (at, new, problem) in [
        (1, 4, Problem::UnknownCode { name: "enc_order", value: 4 }),
        (3, 1, Problem::UnknownCode { name: "enc_standard", value: 1 }),
        (8, 0, Problem::UnknownCode { name: "crypto_block_size_ptr", value: 0 }),
        (32, 1, Problem::DekTooLarge { dek: 0x0100_0099 }),
    ] {
        let bytes = patched(full(), CRYPTO_AT + at, &[new]);
        let Body::Configure(umr) = parse(&bytes).body() else { panic!("a configuration") };
        let offset = CRYPTO_AT + at;
        assert_eq!(umr.crypto(XtsEngine::MultiBlock), Err(Finding { offset, problem }));
    }
}

#[test]
fn what_is_at_a_limit_is_not_over_it() {
    let longest = problems(&patched(full(), 7, &[63]), &DeviceContext::UNKNOWN);
    assert!(!longest.iter().any(|problem| matches!(problem, Problem::SizeOverLimit { .. })), "{longest:?}");
    let most = patched(full(), CONTEXT + 24, &[0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff]);
    let most = problems(&most, &DeviceContext::UNKNOWN);
    assert!(!most.iter().any(|problem| matches!(problem, Problem::LengthOver32Bits { .. })), "{most:?}");
    // The list has two entries of 520 bytes; the second is set to 2 GiB, the largest valid length.
    let entry = patched(full(), ENTRIES + 16, &[0x80, 0, 0, 0]);
    let entry = problems(&entry, &DeviceContext::UNKNOWN);
    assert!(!entry.iter().any(|problem| matches!(problem, Problem::EntryTooLong { .. })), "{entry:?}");
}

#[test]
fn a_reserved_flag_is_told_once() {
    let found = problems(&patched(full(), UMR, &[0x84]), &DeviceContext::UNKNOWN);
    assert!(!found.iter().any(|problem| matches!(problem, Problem::UnknownBits { .. })), "{found:?}");
}

#[test]
fn what_is_wrong_with_transfers_has_a_place() {
    let remote = Remote { address: 0x1000, rkey: REGION };
    let sge = Sge { address: 0, length: 8, lkey: REGION };
    let read = encoded(|queue| queue.request(1).rdma_read(remote, &[sge, sge])).unwrap();
    let add =
        encoded(|queue| queue.request(1).fetch_add(remote, 1, Local { address: 0, lkey: REGION })).unwrap();
    let psv = full().split_off(320);
    for (bytes, offset, problem) in [
        (patched(psv.clone(), 16, &[1]), 16, Problem::PsvTooLarge { psv: 0x0100_0011 }),
        (patched(psv, 20, &[0, 1]), 20, Problem::PsvSyndrome { syndrome: 1 }),
        (patched(read.clone(), 48, &[0, 0, 0, 0]), 48, Problem::SegmentIs2Gib { index: 1 }),
        (patched(read, 48, &[0x80, 0, 0, 4]), 48, Problem::InlineNotAllowed),
        (patched(add, 51, &[16]), 48, Problem::AtomicOperand { bytes: 8 }),
    ] {
        let mut found = Vec::new();
        parse(&bytes).findings(&DeviceContext::UNKNOWN, |finding| found.push(finding));
        assert!(found.contains(&Finding { offset, problem }), "{found:?}");
    }
}

#[test]
fn a_mask_of_all_bytes_has_no_bits_to_spare() {
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
    let old =
        SignatureCapabilities { block_4048: false, crc32c: false, crc64_xp10: false, digest_with_xts: false };
    let old = DeviceContext { capabilities: Some(old), ..DeviceContext::UNKNOWN };
    let bytes = full_with(BlockSignature::wire(CRC32C), CRYPTO);
    assert!(problems(&bytes, &old).contains(&Problem::CapabilityMissing { what: "CRC-32C" }));
    assert!(
        !problems(&full(), &old).iter().any(|problem| matches!(problem, Problem::CapabilityMissing { .. }))
    );
    let long = Domain { signature: Signature::Crc64Xp10(Seed::Ones), block_size: BlockSize::B512 };
    let odd = Domain { signature: Signature::Crc32(Seed::Ones), block_size: BlockSize::B4048 };
    for (domain, what) in [(long, "CRC-64 XP10"), (odd, "blocks of 4048 bytes")] {
        let bytes = full_with(BlockSignature::wire(domain), CRYPTO);
        assert!(problems(&bytes, &old).contains(&Problem::CapabilityMissing { what }), "{what}");
    }
}

#[test]
fn lengths_that_leave_odd_ends_are_suspicious() {
    // After one data unit of 520 bytes, 1032 bytes leave 512. A last, partial unit must lack at least 16
    // bytes, so it may have at most 504.
    let config = MkeyConfig { crypto: Some(CRYPTO), ..MkeyConfig::UNCHANGED };
    let entry = KlmEntry { address: 0x1000, length: 1032, key: REGION };
    let bytes = configured(attributes(false, Some(XtsEngine::MultiBlock)), &config, &[entry]);
    let found = problems(&bytes.unwrap(), &DeviceContext::UNKNOWN);
    assert_eq!(found, [Problem::JobSize { length: 1032, unit: 520 }]);
    let found = problems(&full_with(BlockSignature::memory(CRC32C), CRYPTO), &DeviceContext::UNKNOWN);
    assert!(found.contains(&Problem::PartialBlock { length: 1040, stride: 516 }), "{found:?}");
    assert!(!found.iter().any(|problem| matches!(problem, Problem::PartialWireBlock { .. })), "{found:?}");
    // If only the wire has signatures, all memory is data: two blocks of 512 bytes, and 16 bytes.
    let found = problems(&wire_only(), &DeviceContext::UNKNOWN);
    assert!(found.contains(&Problem::PartialWireBlock { data: 1040, block: 512 }), "{found:?}");
    // The data of two blocks in memory, 2 * 512 bytes, is a quarter of a block of 4096 bytes on the wire.
    let large = Domain { block_size: BlockSize::B4096, ..dif(3, 2) };
    let found = problems(&full_with(BlockSignature::both(dif(1, 2), large), CRYPTO), &DeviceContext::UNKNOWN);
    assert!(found.contains(&Problem::PartialWireBlock { data: 1024, block: 4096 }), "{found:?}");
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
    let sge = Sge { address: 0, length: 8, lkey: REGION };
    let read = encoded(|queue| queue.request(1).rdma_read(remote, &[sge]));
    let read = read.unwrap();
    let found = problems(&patched(read.clone(), 32, &[0, 0, 0, 0]), &DeviceContext::UNKNOWN);
    assert_eq!(found, [Problem::SegmentIs2Gib { index: 0 }]);
    let found = problems(&patched(read.clone(), 32, &[0x80]), &DeviceContext::UNKNOWN);
    assert_eq!(found, [Problem::InlineNotAllowed]);
    let found = problems(&patched(read, 7, &[1]), &DeviceContext::UNKNOWN);
    assert_eq!(found, [Problem::SizeMismatch { ds: 1, wanted: 2 }]);

    let add = encoded(|queue| queue.request(1).fetch_add(remote, 1, Local { address: 0, lkey: REGION }));
    let add = add.unwrap();
    assert_eq!(problems(&add, &DeviceContext::UNKNOWN), []);
    let found = problems(&patched(add, 51, &[16]), &DeviceContext::UNKNOWN);
    assert_eq!(found, [Problem::AtomicOperand { bytes: 8 }]);

    let send = encoded(|queue| queue.request(1).send(Payload::Inline(&[1; 12])));
    let send = send.unwrap();
    let found = problems(&patched(send, 19, &[13]), &DeviceContext::UNKNOWN);
    assert_eq!(found, [Problem::InlineOverrun { length: 13, room: 12 }]);
}

#[test]
fn copies_are_checked() {
    assert_eq!(problems(&memcpy(), &DeviceContext::UNKNOWN), []);
    let longer = [memcpy(), std::vec![0; 16]].concat();
    for (bytes, at, new, problem) in [
        (memcpy(), 35, [63], Problem::MemcpyLengths { from: 63, to: 64 }),
        (memcpy(), 48, [0x80], Problem::InlineNotAllowed),
        (memcpy(), 7, [3], Problem::SizeMismatch { ds: 3, wanted: 4 }),
        (longer, 7, [5], Problem::SizeMismatch { ds: 5, wanted: 4 }),
    ] {
        let found = problems(&patched(bytes, at, &new), &DeviceContext::UNKNOWN);
        assert!(found.contains(&problem), "{problem}\nfound {found:?}");
    }
    // The same segments of another memory-to-memory operation are not decoded as a copy.
    assert!(matches!(parse(&patched(memcpy(), 0, &[6])).body(), Body::DataPath(_)));
}

#[test]
fn a_refusal_is_told_from_what_is_only_odd() {
    let refusal = |bytes: &[u8]| parse(bytes).refusal(&DeviceContext::UNKNOWN).map(|finding| finding.problem);
    assert_eq!(refusal(&memcpy()), None);
    let odd = patched(memcpy(), 35, &[63]);
    assert!(!problems(&odd, &DeviceContext::UNKNOWN).is_empty());
    assert_eq!(refusal(&odd), None);
    let refused = patched(patched(memcpy(), 35, &[63]), 7, &[64]);
    assert_eq!(refusal(&refused), Some(Problem::SizeOverLimit { ds: 64 }));
}

/// Entries beyond the mkey's length are ignored. `raw_data_size` may also be the exact length.
#[test]
fn exact_sizes_and_old_entries_are_nothing() {
    let shorter = patched(full(), CONTEXT + 30, &[2, 8]);
    for (at, new) in [(ENTRIES + 16, &[0x80][..]), (ENTRIES + 16, &[0, 0, 0, 0])] {
        let found = problems(&patched(shorter.clone(), at, new), &DeviceContext::UNKNOWN);
        let entry =
            |problem: &Problem| matches!(problem, Problem::EntryEmpty { .. } | Problem::EntryTooLong { .. });
        assert!(!found.iter().any(entry), "{found:?}");
    }
    // The exact length may count the signatures in memory, or leave them out.
    for size in [1040_u32, 1024] {
        let exact =
            patched(patched(full(), SIGNATURE + 4, &size.to_be_bytes()), CRYPTO_AT + 4, &size.to_be_bytes());
        assert_eq!(problems(&exact, &DeviceContext::UNKNOWN), []);
    }
}

#[test]
fn only_signatures_are_bound_with_a_warning() {
    let plain = patched(patched(interleaved(), UMR + 14, &[0x60]), CONTEXT + 4, &[0, 1, 0x23]);
    assert_eq!(problems(&plain, &DeviceContext::UNKNOWN), [Problem::BoundToQueuePair { qpn: 0x123 }]);
    let bound = patched(patched(spdk_transaction(), UMR + 14, &[0x42]), CONTEXT + 4, &[0, 1, 0x23]);
    assert!(problems(&bound, &DeviceContext::UNKNOWN).contains(&Problem::BoundWithSignature));
}

#[test]
fn nops_may_hold_what_was_there_before() {
    let nop = patched(full().split_off(320), 3, &[0]);
    let found = problems(&patched(nop, 11, &[0x13]), &DeviceContext::UNKNOWN);
    assert_eq!(found, [Problem::NopFlags { bits: 0x11 }, Problem::DataInNop]);
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
    let bytes = bytes.unwrap();
    let request = parse(&bytes);
    assert!(matches!(request.body(), Body::Invalidate(umr) if umr.key() == KEY));
    assert_eq!(request.worst(&DeviceContext::UNKNOWN), None);
    assert_eq!(request.summary(DeviceContext::UNKNOWN).to_string(), "UMR invalidate mkey 0x000012/34");
}

#[test]
fn odd_completions_are_found() {
    let found = |bytes: &[u8]| {
        let mut problems = Vec::new();
        let entry = CompletionEntry::parse(bytes).unwrap();
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
    let message: &[u8] = &[0, 0, 0, 9];
    let inline = |op_own: u8| found(&entry(&[(44, message), (63, &[op_own])])).0;
    assert_eq!(inline(0x24), [Problem::CqeInlineData { bytes: 9, room: 32 }]);
    assert_eq!(inline(0x28), [Problem::CqeInlineHalf]);
    assert_eq!(inline(0x2c), [Problem::CqeCompressed { count: 9 }]);
    // The format of error entries, and of entries that were never written, has no meaning.
    assert_eq!(inline(0xfd), [Problem::NotWritten]);
    assert_eq!(inline(0xed), [Problem::UnknownSyndrome { syndrome: 0 }]);
    assert_eq!(
        found(&entry(&[(55, &[0x77]), (63, &[0xd0])])).0,
        [Problem::UnknownSyndrome { syndrome: 0x77 }]
    );
    let (problems, _) = found(&entry(&[(34, &[2, 3]), (63, &[0xc0])]));
    let want = [
        Problem::SignatureSyndrome { syndrome: 0 },
        Problem::SignatureType { code: 2 },
        Problem::SignatureDomain { code: 3 },
    ];
    assert_eq!(problems, want);
}
