//! Tests of the segments into which requests are cut, and of their decoded parts.

use super::drivers::{context, control, joined, segment, umr_control};
use super::requests::*;
use super::std;
use super::std::vec::Vec;
use super::*;
use crate::mkey::*;
use SegmentKind::*;

/// Returns kind, number, offset and length of each segment.
fn cut(bytes: &[u8]) -> Vec<(SegmentKind, usize, usize, usize)> {
    let whole = |segment: Segment<'_>| (segment.kind, segment.index, segment.offset, segment.bytes.len());
    parse(bytes).segments().map(whole).collect()
}

const HEAD: [(SegmentKind, usize, usize, usize); 3] =
    [(Control, 0, 0, 16), (UmrControl, 0, 16, 48), (MkeyContext, 0, 64, 64)];

/// Returns a UMR with these sizes, and `octowords` octowords behind its mkey context. The first byte of each
/// octoword is the octoword's number, from 1 on.
fn umr(flags: u8, entries: u16, bsf: u16, octowords: u8) -> Vec<u8> {
    let rest = (1..=octowords).flat_map(|number| [&[number][..], &[0x11; 15]].concat()).collect::<Vec<_>>();
    joined(&[
        &control(0x25, 8 + octowords, 8, 0x1234),
        &umr_control(flags, entries, bsf, 0),
        &context(0, false),
        &rest,
    ])
}

#[test]
fn a_umr_has_entries_padding_and_bsfs() {
    let lists = |bytes: &[u8]| {
        let cut = cut(bytes);
        assert_eq!(cut[..3], HEAD);
        cut[3..].to_vec()
    };
    assert_eq!(
        lists(&full()[..320]),
        [
            (ListEntry, 0, 128, 16),
            (ListEntry, 1, 144, 16),
            (Padding, 0, 160, 16),
            (Padding, 0, 176, 16),
            (SignatureBsfCopy, 0, 192, 64),
            (CryptoBsf, 0, 256, 64),
        ]
    );
    assert_eq!(
        lists(&interleaved()),
        [
            (StridedHeader, 0, 128, 16),
            (StridedEntry, 0, 144, 16),
            (StridedEntry, 1, 160, 16),
            (StridedEntry, 2, 176, 16),
        ]
    );
    // Octowords after the entries and BSFs that the size fields count have the kind `Unknown`.
    assert_eq!(lists(&umr(0x80, 0, 0, 2)), [(Unknown, 0, 128, 32)]);
    assert_eq!(
        lists(&umr(0x80, 4, 4, 10))[3..],
        [(ListEntry, 3, 176, 16), (bsf_kind(5), 0, 192, 64), (Unknown, 0, 256, 32),]
    );
    // A size that is no whole number of BSFs cuts the last BSF short.
    assert_eq!(lists(&umr(0x80, 0, 2, 6)), [(bsf_kind(1), 0, 128, 32), (Unknown, 0, 160, 64)]);
    assert_eq!(lists(&umr(0x80, 0, 6, 6)), [(bsf_kind(1), 0, 128, 64), (bsf_kind(5), 0, 192, 32)]);
    // With a translation offset, the field `bsf_octowords` is a part of the offset, not a size.
    assert_eq!(lists(&umr(0x90, 1, 4, 2)), [(ListEntry, 0, 128, 16), (Unknown, 0, 144, 16)]);
}

/// Returns the kind of a BSF with this first byte.
fn bsf_kind(first: u8) -> SegmentKind {
    if first & 0xf == 1 { CryptoBsf } else { Unknown }
}

#[test]
fn a_pointer_stands_in_place_of_lists() {
    for (entries, bsf) in [(4, 0), (0, 4), (4, 4)] {
        let bytes = umr(0, entries, bsf, 3);
        let want = [(EntriesPointer, 0, 128, 16), (Unknown, 0, 144, 32)];
        assert_eq!(cut(&bytes), [&HEAD[..], &want].concat());
        assert!(problems(&bytes, &DeviceContext::UNKNOWN).contains(&Problem::ByPointer));
        let Body::Configure(umr) = parse(&bytes).body() else { panic!("a configuration") };
        assert_eq!(umr.pointer().map(|pointer| pointer.byte_count.get()), Some(0x0111_1111));
    }
    // Without entries and BSFs, there is no pointer.
    let bytes = umr(0, 0, 0, 0);
    assert_eq!(cut(&bytes), HEAD);
    assert!(!problems(&bytes, &DeviceContext::UNKNOWN).contains(&Problem::ByPointer));
    let Body::Configure(umr) = parse(&bytes).body() else { panic!("a configuration") };
    assert!(umr.pointer().is_none());
}

#[test]
fn other_requests_have_a_head_and_data() {
    let request = |opcode: u8, octowords: u8| {
        let data = (1..octowords).flat_map(|number| segment(8, 0x0056_7800, number.into()));
        joined(&[&control(opcode, octowords, 8, 0), &data.collect::<Vec<_>>()])
    };
    let octoword = |kind, index, number: usize| (kind, index, number * 16, 16);
    for (opcode, octowords, want) in [
        (0x0a, 3, std::vec![octoword(Data, 0, 1), octoword(Data, 1, 2)]),
        (0x08, 4, std::vec![octoword(RemoteAddress, 0, 1), octoword(Data, 0, 2), octoword(Data, 1, 3)]),
        (0x12, 4, std::vec![octoword(RemoteAddress, 0, 1), octoword(Atomic, 0, 2), octoword(Data, 0, 3)]),
        (0x20, 4, std::vec![octoword(SetPsv, 0, 1), (Unknown, 0, 32, 32)]),
        (0x00, 3, std::vec![(Unknown, 0, 16, 32)]),
    ] {
        assert_eq!(cut(&request(opcode, octowords))[1..], want, "{opcode:#x}");
    }
    let copy = patched(joined(&[&memcpy(), &[7; 32]]), 7, &[6]);
    let data =
        [octoword(MmoMetadata, 0, 1), octoword(Data, 0, 2), octoword(Data, 1, 3), (Unknown, 0, 64, 32)];
    assert_eq!(cut(&copy)[1..], data);
    // Inline data may stand between data segments.
    let inline = joined(&[&0x8000_000d_u32.to_be_bytes(), &[7; 28]]);
    let send =
        joined(&[&control(0x0a, 5, 8, 0), &segment(8, 0x0056_7800, 1), &inline, &segment(8, 0x0056_7800, 2)]);
    let want = [(Data, 0, 16, 16), (Inline, 1, 32, 32), (Data, 2, 64, 16)];
    assert_eq!(cut(&send)[1..], want);
}

#[test]
fn layouts_map_what_their_entries_give() {
    let mapped = |bytes: &[u8]| match parse(bytes).body() {
        Body::Configure(umr) => umr.layout().map(|layout| layout.mapped_bytes()),
        _ => None,
    };
    assert_eq!(mapped(&full()), Some(1040));
    assert_eq!(mapped(&interleaved()), Some(2 * 524));
    // The result is the sum of the entries' lengths. Wrong numbers in the header or in the mkey context do
    // not change it.
    assert_eq!(mapped(&patched(interleaved(), ENTRIES + 3, &[0xff])), Some(2 * 524));
    assert_eq!(mapped(&patched(full(), CONTEXT + 31, &[0x11])), Some(1040));
    assert_eq!(mapped(&umr(0x80, 0, 0, 0)), None);
}

#[test]
fn any_bit_of_the_mask_for_rights_changes_them() {
    for bit in 0..64 {
        let mut bytes = patched(umr(0x80, 0, 0, 0), UMR + 8, &(1_u64 << bit).to_be_bytes());
        bytes[CONTEXT + 2] = 0x78;
        let Body::Configure(umr) = parse(&bytes).body() else { panic!("a configuration") };
        assert_eq!(umr.access(), (18..=21).contains(&bit).then_some(Access::ALL), "bit {bit}");
    }
}

#[test]
fn bsfs_name_psvs_and_data_units() {
    let bytes = full();
    let Body::Configure(umr) = parse(&bytes).body() else { panic!("a configuration") };
    assert_eq!(umr.psvs(), Some((MEMORY_PSV, WIRE_PSV)));
    assert_eq!(umr.data_unit(), Some(520));
    for (selector, bytes) in
        [(0, None), (1, Some(512)), (3, Some(4096)), (4, Some(4160)), (5, Some(1 << 20)), (7, None)]
    {
        let patched = patched(full(), CRYPTO_AT + 8, &[selector]);
        let Body::Configure(umr) = parse(&patched).body() else { panic!("a configuration") };
        assert_eq!(umr.data_unit(), bytes, "{selector}");
    }
    let plain = interleaved();
    let Body::Configure(umr) = parse(&plain).body() else { panic!("a configuration") };
    assert_eq!((umr.psvs(), umr.data_unit()), (None, None));
}
