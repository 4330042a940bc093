//! Each fault is found, and good requests have none.

use super::cqe::{CompletionEntry, EntryKind};
use super::drivers::{spdk_encrypted_transaction, spdk_transaction};
use super::requests::*;
use super::std::vec::Vec;
use super::*;
use crate::mkey::*;
use crate::types::*;
use crate::wqe::{Payload, Remote, Sge};

#[test]
fn good_requests_have_no_findings() {
    for bytes in [full(), interleaved()] {
        for (_, request) in Requests::new(&bytes) {
            assert_eq!(request.worst(&DeviceContext::UNKNOWN), None, "{request}");
        }
    }
}

/// The severities that other tests rely on, and where drivers drew the line.
#[test]
fn what_devices_refuse_is_told_from_what_drivers_do() {
    use Problem::*;
    for (problem, severity) in [
        (UmrReserved, Severity::Refused),
        (ListTooShort { sum: 1, length: 2 }, Severity::Refused),
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

/// Bytes, where they change, the bytes written there, and what is found.
type Case = (fn() -> Vec<u8>, usize, &'static [u8], Problem);

#[test]
fn each_fault_is_found() {
    use Problem::*;
    let cases: &[Case] = &[
        (full, 7, &[0], SizeZero),
        (full, 7, &[64], SizeOverLimit { ds: 64 }),
        (full, 7, &[63], Truncated { needed: 1008, have: 448 }),
        (full, 7, &[19], SizeMismatch { ds: 19, wanted: 20 }),
        (full, 7, &[24], SizeMismatch { ds: 24, wanted: 20 }),
        (full, 3, &[0x33], UnknownOpcode { opcode: 0x33 }),
        (full, 3, &[0x20], SizeMismatch { ds: 20, wanted: 2 }),
        (full, 0, &[1], UnexpectedOpmod { opmod: 1 }),
        (full, 11, &[0x40], UnknownBits { name: "fm_ce_se", bits: 0x40 }),
        (full, UMR, &[0x00], ByPointer),
        (full, UMR, &[0x00], SizeMismatch { ds: 20, wanted: 9 }),
        (full, UMR, &[0xa0], CheckFree),
        (full, UMR, &[0x84], UmrReserved),
        (full, UMR, &[0xc0], UnknownBits { name: "flags", bits: 0x40 }),
        (full, UMR + 1, &[1], UmrReserved),
        (full, UMR + 47, &[1], UmrReserved),
        (full, CONTEXT + 3, &[1], ReservedNotZero { name: "reserved" }),
        (full, CONTEXT + 1, &[1], UnknownBits { name: "relaxed_ordering_write", bits: 1 }),
        (full, UMR + 5, &[3], EntriesNotPadded { octowords: 3 }),
        (full, UMR + 5, &[8], SizeMismatch { ds: 20, wanted: 24 }),
        (full, UMR + 7, &[4], SizeMismatch { ds: 20, wanted: 16 }),
        (full, UMR + 15, &[0x00], EntriesWithoutLength),
        (full, UMR + 15, &[0x00], FieldWithoutMask { name: "len" }),
        (full, UMR + 14, &[0x22], BsfEnableKept),
        (full, CONTEXT + 12, &[0x04], BsfNotEnabled),
        (full, UMR + 14, &[0x30], FieldWithoutMask { name: "signature error count" }),
        (full, UMR + 14, &[0x12], MaskMissing { name: "MKEY" }),
        (unmasked, CONTEXT + 7, &[0x35], FieldWithoutMask { name: "qpn_mkey" }),
        (unmasked, CONTEXT + 4, &[0], FieldWithoutMask { name: "qpn_mkey" }),
        (full, UMR + 13, &[0x00], FieldWithoutMask { name: "remote read" }),
        (full, UMR + 13, &[0x30], PartialAccessMask),
        (full, UMR + 13, &[0xbc], UnusualMask { name: "SMALL_FENCE" }),
        (full, UMR + 12, &[0x00], MaskMissing { name: "FREE" }),
        (full, UMR + 8, &[0x80], UnknownBits { name: "mkey_mask", bits: 1 << 63 }),
        (full, CONTEXT, &[0x40], FreesAndConfigures),
        (full, CONTEXT + 2, &[0x80], UnknownBits { name: "access", bits: 0x80 }),
        (bound, 0, &[], BoundToQueuePair { qpn: 0x123 }),
        (bound, 0, &[], BoundWithSignature),
        (moved, 0, &[], NonZeroStart { address: 0x1000 }),
        (empty, 0, &[], EmptyLayout),
        (empty, CONTEXT + 31, &[9], LengthWithoutEntries { length: 9 }),
        (empty, UMR + 14, &[0x30], EnabledWithoutBsf),
        (wire_only, SIGNATURE + 15, &[1], UnusedDomain { domain: "memory" }),
        (alike, SIGNATURE, &[0xc0, 0xff, 1], AlikeButNotCopied),
        (full, 3, &[0], DataInNop),
        (full, CONTEXT + 7, &[0x35], TagChange { from: 0x34, to: 0x35 }),
        (full, CONTEXT + 20, &[1], FieldWithoutMask { name: "start_addr" }),
        (full, CONTEXT + 31, &[0x11], ListTooShort { sum: 1040, length: 1041 }),
        (full, CONTEXT + 31, &[0x0f], ListTooLong { sum: 1040, length: 1039 }),
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
        (interleaved, ENTRIES + 35, &[0], StridedEntryEmpty { index: 1 }),
        (full, SIGNATURE, &[0x90], BsfSizeCode { found: 2, wanted: 3, count: 2 }),
        (full, CRYPTO_AT, &[0x81], BsfSizeCode { found: 2, wanted: 3, count: 2 }),
        (full, CRYPTO_AT, &[0xc0], BsfOrder),
        (full, SIGNATURE, &[0xc1], BsfOrder),
        (full, SIGNATURE, &[0x50], BsfSizeCode { found: 1, wanted: 3, count: 2 }),
        (full, SIGNATURE, &[0x40], TransactionWithBlocks),
        (full, SIGNATURE, &[0x40], TransactionEmpty),
        (spdk_transaction, SIGNATURE, &[0], BsfSizeCode { found: 0, wanted: 2, count: 1 }),
        (spdk_transaction, SIGNATURE, &[0xc0], BsfSizeCode { found: 3, wanted: 2, count: 1 }),
        (spdk_transaction, SIGNATURE + 1, &[0xf0], TransactionCheckMask { mask: 0xf0 }),
        (spdk_transaction, SIGNATURE + 2, &[1], TransactionWithBlocks),
        (spdk_transaction, SIGNATURE + 7, &[1], TransactionSize { size: 4097, length: 4096 }),
        (spdk_transaction, SIGNATURE + 16, &[0x31], TransactionBits { domain: "memory" }),
        (
            spdk_transaction,
            SIGNATURE + 16,
            &[0x70],
            UnknownBits { name: "t_init_gen_pro_size", bits: 1 << 30 },
        ),
        (spdk_transaction, SIGNATURE + 20, &[1], ReservedNotZero { name: "rsvd_epi_size" }),
        (spdk_transaction, SIGNATURE + 24, &[0x20], UnknownCode { name: "w_tfs", value: 0x20 }),
        (spdk_transaction, SIGNATURE + 28, &[0x40], TransactionInBothDomains),
        (spdk_transaction, SIGNATURE + 24, &[0; 4], TransactionEmpty),
        (spdk_transaction, SIGNATURE + 24, &[0; 4], TransactionBits { domain: "wire" }),
        (spdk_transaction, SIGNATURE + 40, &[1], ReservedNotZero { name: "reserved" }),
        (spdk_encrypted_transaction, CRYPTO_AT + 1, &[3], TransactionOrder),
        (spdk_encrypted_transaction, CRYPTO_AT + 6, &[9], RawDataSize { size: 0x900, length: 4096 }),
        (full, SIGNATURE + 3, &[5], UnknownCode { name: "m_bs_selector", value: 5 }),
        (full, SIGNATURE + 3, &[0], CopyMaskStructure),
        (full, SIGNATURE + 4, &[0], RawDataSize { size: 0x00ff_ffff, length: 1040 }),
        (full, CRYPTO_AT + 4, &[0; 4], RawDataSize { size: 0, length: 1040 }),
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
    let both = both.with_copy_mask(0x33).unwrap();
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
    let old =
        SignatureCapabilities { block_4048: false, crc32c: false, crc64_xp10: false, digest_with_xts: false };
    let old = DeviceContext { capabilities: Some(old), ..DeviceContext::UNKNOWN };
    let bytes = full_with(BlockSignature::wire(CRC32C), CRYPTO);
    assert!(problems(&bytes, &old).contains(&Problem::CapabilityMissing { what: "CRC-32C" }));
    assert!(
        !problems(&full(), &old).iter().any(|problem| matches!(problem, Problem::CapabilityMissing { .. }))
    );
}

#[test]
fn lengths_that_leave_odd_ends_are_suspicious() {
    // 1032 bytes leave 512 after the first unit of 520, and the rule allows 504 at most.
    let config = MkeyConfig { crypto: Some(CRYPTO), ..MkeyConfig::UNCHANGED };
    let entry = KlmEntry { address: 0x1000, length: 1032, key: REGION };
    let bytes = configured(attributes(false, Some(XtsEngine::MultiBlock)), &config, &[entry]);
    let found = problems(&bytes.unwrap(), &DeviceContext::UNKNOWN);
    assert_eq!(found, [Problem::JobSize { length: 1032, unit: 520 }]);
    let found = problems(&full_with(BlockSignature::memory(CRC32C), CRYPTO), &DeviceContext::UNKNOWN);
    assert!(found.contains(&Problem::PartialBlock { length: 1040, stride: 516 }), "{found:?}");
    assert!(!found.iter().any(|problem| matches!(problem, Problem::PartialWireBlock { .. })), "{found:?}");
    // Where only the wire is signed, memory is data: two blocks of 512 and 16 bytes.
    let found = problems(&wire_only(), &DeviceContext::UNKNOWN);
    assert!(found.contains(&Problem::PartialWireBlock { data: 1040, block: 512 }), "{found:?}");
    // Two blocks in memory are a quarter of one on the wire.
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

    let add = encoded(|queue| queue.request(1).fetch_add(remote, 1, &sge));
    let add = add.unwrap();
    assert_eq!(problems(&add, &DeviceContext::UNKNOWN), []);
    let found = problems(&patched(add, 51, &[16]), &DeviceContext::UNKNOWN);
    assert_eq!(found, [Problem::AtomicOperand]);

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
    // What other operations mean by the same segments is not known here.
    assert!(matches!(parse(&patched(memcpy(), 0, &[6])).body(), Body::Unknown));
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

/// What is after the length does not count, nor what a raw data size says that is exact.
#[test]
fn exact_sizes_and_old_entries_are_nothing() {
    let shorter = patched(full(), CONTEXT + 30, &[2, 8]);
    for (at, new) in [(ENTRIES + 16, &[0x80][..]), (ENTRIES + 16, &[0, 0, 0, 0])] {
        let found = problems(&patched(shorter.clone(), at, new), &DeviceContext::UNKNOWN);
        let entry =
            |problem: &Problem| matches!(problem, Problem::EntryEmpty { .. } | Problem::EntryTooLong { .. });
        assert!(!found.iter().any(entry), "{found:?}");
    }
    // The length with the signatures in memory, and without.
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
    assert_eq!(found(&entry(&[(63, &[0x24])])).0, [Problem::CqeFormat { format: 1 }]);
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
