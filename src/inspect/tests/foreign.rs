//! Tests of requests and completions of queues that this library does not have. Other drivers post and
//! receive them on hardware.
//!
//! The bytes are assembled field by field, after reading libmlx5, UCX, UCC, NVSHMEM, DPDK and the kernel's
//! mlx5_core.

use super::cqe::{CompletionEntry, EntryKind};
use super::drivers::{context, control, joined, segment, umr_control};
use super::std;
use super::std::string::{String, ToString};
use super::std::vec::Vec;
use super::*;

const LKEY: u32 = 0x0000_5600;
const RKEY: u32 = 0x0000_5800;
const SIGNALLED: u8 = 8;

fn data() -> Vec<u8> {
    segment(64, LKEY, 0x1000)
}

fn remote() -> Vec<u8> {
    joined(&[&0x7f00_0000_0000_u64.to_be_bytes(), &RKEY.to_be_bytes(), &[0; 4]])
}

/// Returns the address of a datagram to queue pair 0x45 at fe80::b859:9fff:fe00:1, as `mlx5_create_ah` of
/// libmlx5 makes it.
fn address(key: u64) -> Vec<u8> {
    let gid = [0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0xb8, 0x59, 0x9f, 0xff, 0xfe, 0, 0, 1];
    joined(&[
        &key.to_be_bytes(),
        &[0x80, 0, 0, 0x45, 0, 0, 0xc0, 1],
        &[0, 0, 0, 0, 0xb8, 0x59, 0x9f, 0, 0, 1, 0, 64],
        &[0x40, 0, 0, 0],
        &gid,
    ])
}

/// Returns an Ethernet segment that asks for checksums of L3 and L4, with `header` bytes of the packet
/// header.
fn ethernet(mss: u16, header: u16) -> Vec<u8> {
    let rest = usize::from(header).saturating_sub(2).next_multiple_of(16);
    joined(&[
        &[0, 0, 0, 0, 0xc0, 0],
        &mss.to_be_bytes(),
        &[0; 4],
        &header.to_be_bytes(),
        &[0xb8; 2],
        &std::vec![0x59; rest],
    ])
}

fn request(opcode: u8, opmod: u8, parts: &[&[u8]]) -> Vec<u8> {
    let parts = joined(parts);
    let octowords = u8::try_from(1 + parts.len() / 16).unwrap();
    patched(joined(&[&control(opcode, octowords, SIGNALLED, 0), &parts]), 0, &[opmod])
}

/// Returns a request of this kind of queue in words, and the kinds of its segments. Checks that no finding is
/// worse than a note.
fn decoded(queue: QueueKind, bytes: &[u8]) -> (String, Vec<SegmentKind>) {
    exercise(bytes);
    let request = parse(bytes).on_queue(queue);
    assert!(request.worst(&DeviceContext::UNKNOWN) <= Some(Severity::Note), "{request}");
    let kinds = request.segments().map(|segment| segment.kind).collect();
    (request.summary(DeviceContext::UNKNOWN).to_string(), kinds)
}

#[test]
fn sends_of_other_queues_have_their_address_in_words() {
    use SegmentKind::{Address, Control, Data, Ethernet, EthernetHeader, RemoteAddress, SharedReceiveQueue};
    let to = "MAC b8:59:9f:00:00:01, GID fe80:0000:0000:0000:b859:9fff:fe00:0001, signalled";
    let datagram = request(0x0a, 0, &[&address(0x1111_1111 << 32), &data()]);
    let (words, kinds) = decoded(QueueKind::Datagram, &datagram);
    let want = "SEND: 64 bytes in 1 data segment, to queue pair 0x45, Q_Key 0x11111111, ";
    assert_eq!((words, kinds), (std::format!("{want}{to}"), std::vec![Control, Address, Data]));
    // Without the bit `EXTENDED`, the address is compact: it has no route, and ends after 16 bytes.
    let compact = joined(&[&address(0x1111_1111 << 32)[..8], &[0, 0, 0, 0x45, 0, 0, 0, 7]]);
    let (words, kinds) = decoded(QueueKind::Datagram, &request(0x0a, 0, &[&compact, &data()]));
    assert!(words.ends_with("to queue pair 0x45, Q_Key 0x11111111, signalled"), "{words}");
    assert_eq!(kinds, [Control, Address, Data]);
    let write = request(0x08, 0, &[&address(0x1_0000_0001), &remote(), &data()]);
    let (words, kinds) = decoded(QueueKind::DynamicallyConnected, &write);
    assert!(words.contains("to target 0x45, access key 0x0000000100000001, MAC b8:59"), "{words}");
    assert_eq!(kinds, [Control, Address, RemoteAddress, Data]);
    let write = request(0x08, 0, &[&[0, 0, 0, 9, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0], &remote(), &data()]);
    let (_, kinds) = decoded(QueueKind::ExtendedConnected, &write);
    assert_eq!(kinds, [Control, SharedReceiveQueue, RemoteAddress, Data]);
    for (header, rest) in [(0, 0), (2, 0), (18, 1), (19, 1), (34, 1), (35, 1)] {
        let (words, kinds) =
            decoded(QueueKind::Ethernet, &request(0x0a, 0, &[&ethernet(0, header), &data()]));
        let inline =
            if header == 0 { String::new() } else { std::format!(", {header} bytes of header inline") };
        let want = std::format!("SEND: 64 bytes in 1 data segment, checksums L3+L4{inline}, signalled");
        assert_eq!(words, want);
        let rest = std::iter::repeat_n(EthernetHeader, rest);
        assert_eq!(kinds, [Control, Ethernet].into_iter().chain(rest).chain([Data]).collect::<Vec<_>>());
    }
}

/// If the kind of queue is unknown, a send with an address is not decoded as one of a connected queue pair,
/// whatever the address is.
#[test]
fn what_no_connected_queue_pair_posts_is_not_read_as_of_one() {
    for (opcode, parts) in [
        (0x0a, [address(0x1111_1111 << 32), data()]),
        // The first word of this key could also be the header of 4 bytes of inline data.
        (0x0a, [address(0x8000_0004 << 32), data()]),
        (0x0a, [joined(&[&[0x11; 4], &[0; 7], &[0x45, 0, 0, 0, 7]]), data()]),
        (0x08, [joined(&[&address(0x1_0000_0001), &remote()]), data()]),
        (0x0a, [ethernet(0, 18), data()]),
        (0x0a, [ethernet(0, 0), data()]),
        (0x0a, [patched(ethernet(0, 18), 0, &[0x11, 0x07, 0, 0, 0xc0, 0x20]), data()]),
    ] {
        let bytes = request(opcode, 0, &[&parts[0], &parts[1]]);
        assert_eq!(problems(&bytes, &DeviceContext::UNKNOWN), [Problem::QueueKindMissing]);
        let (words, kinds) = decoded(QueueKind::Unknown, &bytes);
        assert!(words.contains(", not decoded"), "{words}");
        assert_eq!(kinds, [SegmentKind::Control, SegmentKind::Unknown]);
    }
    // Requests of a connected queue pair are decoded: with a data segment, with inline data, and without
    // data.
    for parts in [data(), joined(&[&[0x80, 0, 0, 12], &[0; 12]]), Vec::new()] {
        let (words, _) = decoded(QueueKind::Unknown, &request(0x0a, 0, &[&parts]));
        assert!(!words.contains("not decoded"), "{words}");
    }
    // The keys of these data segments stand where an Ethernet segment has its flags, and the lengths where it
    // has offsets. Each breaks one rule of an Ethernet segment: flags that no driver sets, segmentation, only
    // one checksum, no kind of packet.
    for (length, key) in
        [(0, 0xc100_0000), (0, 0xc004_0000), (0, 0xc000_0001), (64, 0x8020_0000), (64, 0xc000_0000)]
    {
        let bytes = request(0x0a, 0, &[&segment(length, key, 0x1000)]);
        assert_eq!(parse(&bytes).segments().nth(1).map(|segment| segment.kind), Some(SegmentKind::Data));
    }
}

/// Requests that only an Ethernet queue posts, and a modifier that no source has, are not decoded.
#[test]
fn parts_depend_on_the_kind_of_queue_and_on_the_modifier() {
    let second = |queue, bytes: &[u8]| parse(bytes).on_queue(queue).segments().nth(1).map(|part| part.kind);
    let packets = request(0x0e, 0, &[&ethernet(1448, 18), &data()]);
    assert_eq!(second(QueueKind::Ethernet, &packets), Some(SegmentKind::Ethernet));
    assert_eq!(second(QueueKind::Connected, &packets), Some(SegmentKind::Unknown));
    let [transpose, other] = [0, 1].map(|opmod| request(0x32, opmod, &[&[0; 16], &data()]));
    assert_eq!(second(QueueKind::Connected, &transpose), Some(SegmentKind::Transpose));
    assert_eq!(second(QueueKind::Connected, &other), Some(SegmentKind::Unknown));
}

#[test]
fn flags_of_an_address_are_named() {
    let named = |key: [u8; 8], flags: [u8; 8], route: u8| {
        let mut bytes = joined(&[&key, &flags, &address(1)[16..]]);
        bytes[28] = route;
        let bytes = request(0x0a, 0, &[&bytes, &data()]);
        let page = parse(&bytes).on_queue(QueueKind::Datagram).pretty(DeviceContext::UNKNOWN, Style::Plain);
        let page = page.to_string();
        ["with route", "force loopback", "global route"].map(|name| page.contains(name))
    };
    assert_eq!(named([1; 8], [0x80, 0, 0, 0x45, 0, 0x80, 0, 1], 0x40), [true; 3]);
    assert_eq!(named([1; 8], [0x80, 0, 0, 0x45, 0, 0, 0, 1], 0), [true, false, false]);
    assert_eq!(named([1; 8], [0, 0, 0, 0x45, 0, 0, 0, 1], 0), [false; 3]);
}

#[test]
fn masked_atomics_are_read_by_their_size() {
    use SegmentKind::{MaskedAdd32, MaskedAdd64, MaskedSwap32, MaskedSwap64};
    let numbers = |count: u8, bytes: usize| -> Vec<u8> {
        let number = |number: u8| joined(&[&std::vec![0; bytes - 1], &[number]]);
        (1..=count).flat_map(number).collect()
    };
    let all = "swap 0x1, compare 0x2, swap_mask 0x3, compare_mask 0x4";
    for (opcode, opmod, operands, bytes, kind, words) in [
        (0x14, 8, numbers(4, 4), 4, MaskedSwap32, all),
        (0x14, 9, numbers(4, 8), 8, MaskedSwap64, all),
        (0x15, 8, joined(&[&numbers(2, 4), &[0; 8]]), 4, MaskedAdd32, "add 0x1, field_boundary 0x2"),
        (0x15, 9, numbers(2, 8), 8, MaskedAdd64, "add 0x1, field_boundary 0x2"),
    ] {
        let atomic = |length| request(opcode, opmod, &[&remote(), &operands, &segment(length, LKEY, 0x1000)]);
        let (found, kinds) = decoded(QueueKind::Unknown, &atomic(bytes));
        let there = "remote 0x7f0000000000 key 0x00005800";
        let name = if opcode == 0x14 { "ATOMIC_MASKED_CS" } else { "ATOMIC_MASKED_FA" };
        assert!(
            found.starts_with(&std::format!("{name}: {bytes} bytes in 1 data segment, {there}, {words}"))
        );
        assert_eq!(kinds[1..3], [SegmentKind::RemoteAddress, kind]);
        let wanted = Problem::AtomicOperand { bytes: bytes.into() };
        assert_eq!(problems(&atomic(16), &DeviceContext::UNKNOWN), [wanted]);
    }
}

#[test]
fn requests_of_other_drivers_have_their_names_and_parts() {
    use SegmentKind::{
        Control, Data, Ethernet, EthernetHeader, MmoMetadata, TagMatching, Transpose, Unknown, Wait,
        WaitForValue,
    };
    let sixteen = [0x11; 16];
    for (opcode, opmod, parts, name, kinds) in [
        // Kernel TLS and NVSHMEM post this request.
        (0x23, 0, data(), "DUMP: 64 bytes in 1 data segment", &[Data][..]),
        // DPDK and the kernel post TSO and ENHANCED_MPSW.
        (
            0x0e,
            0,
            joined(&[&ethernet(1460, 54), &data()]),
            "TSO: 64 bytes",
            &[Ethernet, EthernetHeader, Data],
        ),
        (0x0e, 1, joined(&[&ethernet(0, 0), &data()]), "TSO: 64 bytes", &[Ethernet, Data]),
        (
            0x29,
            0,
            joined(&[&ethernet(0, 0), &data(), &data()]),
            "ENHANCED_MPSW: 128",
            &[Ethernet, Data, Data],
        ),
        (0x0f, 0, sixteen.to_vec(), "WAIT", &[Wait]),
        // UCC and DPDK post WAIT with the modifiers 1 and 2.
        (0x0f, 1, [sixteen; 2].concat(), "WAIT", &[WaitForValue]),
        (0x0f, 2, [sixteen; 2].concat(), "WAIT", &[WaitForValue]),
        (0x17, 0, sixteen.to_vec(), "SEND_ENABLE", &[Wait]),
        (0x32, 0, joined(&[&[0; 16], &data(), &data()]), "LOCAL_MMO: 128 bytes", &[Transpose, Data, Data]),
        (0x28, 0, joined(&[&[0x10], &[0; 31], &data()]), "TAG_MATCHING: 64 bytes", &[TagMatching, Data]),
        (0x2f, 3, joined(&[&[0; 16], &data(), &data()]), "MMO: 128 bytes", &[MmoMetadata, Data, Data]),
        // This module decodes no segments of these requests: they are not public, concern flow tables, or
        // belong to an atomic of unknown size.
        (0x18, 0, sixteen.to_vec(), "BIND_MW", &[Unknown]),
        (0x19, 0, sixteen.to_vec(), "FMR", &[Unknown]),
        (0x1b, 0, sixteen.to_vec(), "LOCAL_INVAL", &[Unknown]),
        (0x1f, 0, sixteen.to_vec(), "CONFIG_CMD", &[Unknown]),
        (0x2c, 0, sixteen.to_vec(), "FLOW_TBL_ACCESS", &[Unknown]),
        (0x2d, 2, sixteen.to_vec(), "ACCESS_ASO", &[Unknown]),
        (0x14, 12, sixteen.to_vec(), "ATOMIC_MASKED_CS", &[Unknown]),
        // These requests set TLS parameters of a TIS (modifier 1) or a TIR (2), through which the kernel
        // sends and receives (`ktls_txrx.c` of mlx5_core). They must not be decoded as BSFs.
        (0x25, 1, joined(&[&umr_control(0x80, 0, 4, 0), &[0x5a; 128]]), "UMR", &[Unknown]),
        (0x25, 2, joined(&[&umr_control(0x80, 0, 4, 0), &[0x5a; 128]]), "UMR", &[Unknown]),
        (0x20, 1, std::vec![0x5a; 48], "SET_PSV", &[Unknown]),
        (0x21, 2, sixteen.to_vec(), "GET_PSV", &[Unknown]),
        (0x2c, 1, sixteen.to_vec(), "FLOW_TBL_ACCESS", &[Unknown]),
    ] {
        let (words, found) = decoded(QueueKind::Unknown, &request(opcode, opmod, &[&parts]));
        assert!(words.starts_with(name) && !words.contains("not decoded"), "{words}");
        assert_eq!(found, [&[Control], kinds].concat(), "{words}");
    }
    let cut = request(0x28, 0, &[&[0; 16]]);
    assert_eq!(problems(&cut, &DeviceContext::UNKNOWN), [Problem::SizeMismatch { ds: 2, wanted: 3 }]);
    assert!(matches!(parse(&cut).body(), Body::Unknown));
}

/// `inspect` knows the parts of requests with a named opcode, except for the opcodes that this test lists.
/// The parts of their requests are not public or not decoded. A NOP is in the list because it has no parts.
#[test]
fn the_opcodes_without_known_parts_are_these() {
    let has_parts = |opcode: u8| {
        (0..16).map(|opmod| request(opcode, opmod, &[&[0; 64]])).any(|bytes| {
            let second = |queue| parse(&bytes).on_queue(queue).segments().nth(1).unwrap().kind;
            [QueueKind::Connected, QueueKind::Ethernet].map(second) != [SegmentKind::Unknown; 2]
        })
    };
    let names = (0..=u8::MAX)
        .filter(|opcode| !has_parts(*opcode))
        .filter_map(|opcode| parse(&request(opcode, 0, &[])).opcode().name());
    let wanted = [
        "NOP",
        "BIND_MW",
        "FMR",
        "LOCAL_INVAL",
        "CONFIG_CMD",
        "GET_PSV",
        "CHECK_PSV",
        "RGET_PSV",
        "RCHECK_PSV",
        "FLOW_TBL_ACCESS",
        "ACCESS_ASO",
    ];
    assert_eq!(names.collect::<Vec<_>>(), wanted);
}

/// UCC's all-to-all configures an mkey with an interleaved layout whose header and entries are in registered
/// memory. The request holds only a pointer to them. The header repeats the entries, so the mkey may be
/// longer than with a list of as many entries.
#[test]
fn an_interleaved_layout_in_memory_is_none_that_is_too_short() {
    let length = |length| {
        let pointer = segment(0, LKEY, 0x7f00_0000_0800);
        joined(&[&control(0x25, 9, 8, 0x1234), &umr_control(0, 4, 0, 1), &context(length, false), &pointer])
    };
    for bytes in [0xe000, 3 * 0xffff * 0xffff_ffff] {
        let (words, kinds) = decoded(QueueKind::Unknown, &length(bytes));
        // A list with the same number of entries maps up to 8 GiB.
        let form = if bytes == 0xe000 { "an interleaved layout or a list" } else { "an interleaved layout" };
        let want = std::format!("4 octowords of {form} at 0x7f0000000800 key 0x00005600");
        assert!(words.contains(&want), "{words}");
        assert_eq!(kinds.last(), Some(&SegmentKind::EntriesPointer));
    }
    let over = 3 * 0xffff * 0xffff_ffff + 1;
    let found = problems(&length(over), &DeviceContext::UNKNOWN);
    assert!(found.contains(&Problem::PointerTooShort { octowords: 4, length: over }), "{found:?}");
    let ksm = DeviceContext { entry_size: KsmEntrySize::new(4096).ok(), ..DeviceContext::UNKNOWN };
    assert!(
        problems(&length(4 * 4096 + 1), &ksm)
            .contains(&Problem::PointerTooShort { octowords: 4, length: 4 * 4096 + 1 })
    );
}

/// Returns requests of one block each, with these opcodes, indices and queue pairs.
fn ring(requests: &[(u8, u16, u32)]) -> Vec<u8> {
    let block = |&(opcode, index, qpn): &(u8, u16, u32)| {
        let [_, high, middle, low] = qpn.to_be_bytes();
        let parts = if opcode == 0 { Vec::new() } else { joined(&[&remote(), &data()]) };
        let bytes = patched(request(opcode, 0, &[&parts]), 4, &[high, middle, low]);
        let mut bytes = patched(bytes, 1, &index.to_be_bytes());
        bytes.resize(64, 0);
        bytes
    };
    requests.iter().flat_map(block).collect()
}

#[test]
fn indices_and_queue_pairs_follow_along_a_ring() {
    let found = |bytes: &[u8]| {
        let mut found = Vec::new();
        for (offset, request) in Requests::new(bytes) {
            request.findings(&DeviceContext::UNKNOWN, |finding| {
                let of_one = matches!(finding.problem, Problem::DataInNop | Problem::NeverWritten);
                if finding.severity() < Severity::Refused && !of_one {
                    found.push((offset + finding.offset, finding.problem));
                }
            });
        }
        found
    };
    let out = |found, wanted| Problem::IndexOutOfOrder { found, wanted };
    // All three requests have block number 0. After a request with number 0, the next block has number 1.
    let same = ring(&[(8, 0, 0x77), (8, 0, 0x77), (8, 0, 0x77)]);
    assert_eq!(found(&same), [(65, out(0, 1)), (129, out(0, 1))]);
    assert_eq!(out(0, 1).severity(), Severity::Suspicious);
    // A jump of block numbers is reported once. A single request has no predecessor to compare with.
    assert_eq!(found(&ring(&[(8, 7, 1), (8, 9, 1), (8, 10, 1)])), [(65, out(9, 8))]);
    assert_eq!(found(&ring(&[(8, 0xffff, 1), (8, 0, 1), (8, 1, 1)])), []);
    assert_eq!(parse(&same[64..]).worst(&DeviceContext::UNKNOWN), None);
    // No finding follows from a request of two blocks, from a NOP that fills the queue, or from a block of
    // zeros.
    let mut two = patched(ring(&[(8, 0, 1), (8, 0, 1), (8, 2, 1)]), 7, &[5]);
    two.splice(48..80, joined(&[&data(), &data()]));
    assert_eq!(found(&two), []);
    let filled = ring(&[(8, 4, 1), (0, 0, 0), (8, 6, 1)]);
    assert_eq!(found(&filled), []);
    let unwritten = joined(&[&ring(&[(8, 4, 1)]), &[0; 64], &ring(&[(8, 6, 1)])]);
    assert_eq!(found(&unwritten), []);
    // In a whole ring, the requests after the last posted one are left from the lap before, which is only a
    // note. In a part of a ring, the same block numbers are out of order.
    let lap = ring(&[(8, 8, 1), (8, 9, 1), (8, 6, 1), (8, 7, 1)]);
    assert_eq!(found(&lap), [(129, Problem::OtherLap)]);
    assert_eq!(found(&lap[..192]), [(129, out(6, 10))]);
    let other = ring(&[(8, 0, 1), (8, 1, 2), (8, 2, 2)]);
    assert_eq!(found(&other), [(68, Problem::OtherQueuePair { qpn: 2, before: 1 })]);
}

#[test]
fn data_in_a_completion_is_shown() {
    let bytes: Vec<u8> = (0..32).collect();
    let short = entry(&[(0, &bytes), (44, &[0, 0, 0, 20]), (56, &[0x10, 0, 0, 0x77, 0, 3, 0, 4])]);
    let read = CompletionEntry::parse(&short).unwrap();
    assert_eq!((read.worst(), read.inline_data()), (Some(Severity::Note), Some(&bytes[..20])));
    let words = "REQ: queue pair 0x77, counter 3, RDMA_READ, 20 bytes, inline data";
    assert_eq!(read.summary(None).to_string(), words);
    let page = read.to_string();
    assert!(page.contains("0x000  00010203 04050607 08090a0b 0c0d0e0f"), "{page}");
    assert!(page.contains("inline data           32 bytes"), "{page}");
    // In a slot of 128 bytes, the 64 bytes before the entry hold inline data.
    let long = entry(&[(44, &[0, 0, 0, 40]), (56, &[0, 0, 0, 0x77, 0, 3, 0, 0x28])]);
    let half: Vec<u8> = (0..64).collect();
    let slot = joined(&[&half, &long]);
    let read = CompletionEntry::parse_128(&slot).unwrap();
    assert_eq!((read.worst(), read.inline_data()), (Some(Severity::Note), Some(&half[..40])));
    let segments: Vec<_> = read.segments().map(|segment| (segment.kind, segment.offset)).collect();
    assert_eq!(segments, [(SegmentKind::InlineHalf, 0), (SegmentKind::Cqe, 64)]);
    let alone = CompletionEntry::parse(&long).unwrap();
    assert_eq!((alone.worst(), alone.inline_data()), (Some(Severity::Note), None));
    assert!(CompletionEntry::parse_128(&slot[..127]).is_err());
    // If an entry reports no inline data, the device never wrote the first half of the slot, so it is no
    // segment.
    let plain = joined(&[&half, &entry(&[(56, &[0x10, 0, 0, 0x77, 0, 3, 0, 0])])]);
    let read = CompletionEntry::parse_128(&plain).unwrap();
    let segments: Vec<_> = read.segments().map(|segment| (segment.kind, segment.offset)).collect();
    assert_eq!(segments, [(SegmentKind::Cqe, 64)]);
    assert_eq!((read.worst(), read.inline_data()), (None, None));
}

#[test]
fn compressed_completions_are_named() {
    let title = entry(&[(44, &[0, 0, 0, 7]), (56, &[0, 0, 0, 0x77, 0, 3, 0, 0x2c])]);
    let read = CompletionEntry::parse(&title).unwrap();
    assert!(matches!(read.kind(), EntryKind::Compressed(_)));
    assert_eq!(read.summary(None).to_string(), "RESP_SEND: queue pair 0x77, 7 compressed completions");
    assert_eq!(read.worst(), Some(Severity::Note));
    assert!(read.to_string().contains("byte_cnt              7 completions"), "{read}");
}

/// Only syndrome and vendor syndrome together identify a page fault.
#[test]
fn page_faults_are_named_by_both_syndromes() {
    for (syndrome, named) in [(0x22, true), (0x04, false), (0x13, false)] {
        let bytes = entry(&[(54, &[0x93, syndrome]), (56, &[0x08, 0, 0, 0x77, 0, 5, 0, 0xd2])]);
        let page = CompletionEntry::parse(&bytes).unwrap().to_string();
        assert_eq!(page.contains("page fault"), named, "{page}");
    }
}

/// The kernel's mlx5e maps the buffers of a receive queue by addresses of pages in the request. The addresses
/// must not be decoded as a list.
#[test]
fn pages_in_a_request_are_none_of_a_list() {
    let mapping = |numbers: &[u64], flags: u8| {
        let mut entries: Vec<u8> = numbers.iter().flat_map(|number| number.to_be_bytes()).collect();
        entries.resize(entries.len().next_multiple_of(64), 0);
        let octowords = (entries.len() / 16) as u16;
        let ds = 8 + octowords as u8;
        let umr = umr_control(flags, octowords, 0, 1 << 29);
        joined(&[&control(0x25, ds, 0, 0x1234), &umr, &[0; 64], &entries])
    };
    let (offset, inline) = (0x10, 0x80);
    let pages: Vec<u64> = (1..=15).map(|page| page << 12 | 3).collect();
    let (words, kinds) = decoded(QueueKind::Unknown, &mapping(&pages, offset | inline));
    assert!(words.contains("from entry 0 on, 15 pages, length kept"), "{words}");
    assert_eq!(kinds[3..], [SegmentKind::Pages; 8]);
    // The first key and address of the list look like pages, but the later ones do not.
    let list = [64 << 32 | 0x0077_0001, 0x1_0003, 64 << 32 | 0x0077_0100, 0x1_0004];
    for (numbers, flags) in [(&list[..], offset | inline), (&pages[..], inline)] {
        let bytes = mapping(numbers, flags);
        let kinds: Vec<_> = parse(&bytes).segments().map(|segment| segment.kind).collect();
        assert_eq!(kinds[3], SegmentKind::ListEntry, "{numbers:x?}");
    }
    // Entries whose length the mkey holds are a list too, although their length fields are 0.
    let (words, _) =
        decoded(QueueKind::Unknown, &mapping(&[0x7700, 0x1000, 0x7700, 0x3000], offset | inline));
    assert!(words.contains("list of 2 entries, length kept"), "{words}");
}

/// A ring that is not full has blocks of zeros, and a copy of a ring may end within a request. Neither counts
/// as a request that the device refuses.
#[test]
fn parts_of_a_ring_that_are_not_there_are_refused_by_nobody() {
    let written = ring(&[(8, 4, 1)]);
    let bytes = joined(&[&written, &[0; 128]]);
    let found: Vec<_> = Requests::new(&bytes).map(|(_, request)| request).collect();
    assert!(found[1..].iter().all(|request| matches!(request.body(), Body::Unwritten)));
    for request in &found[1..] {
        let mut seen = Vec::new();
        request.findings(&DeviceContext::UNKNOWN, |finding| seen.push(finding.problem));
        assert_eq!(seen, [Problem::NeverWritten]);
        assert_eq!(request.summary(DeviceContext::UNKNOWN).to_string(), "never written");
    }
    // If a block of zeros is parsed as a single request, the device refuses this request.
    assert_eq!(parse(&[0; 64]).worst(&DeviceContext::UNKNOWN), Some(Severity::Refused));
    for (bytes, have) in [(&written[..32], 32), (&written[..16], 16)] {
        let (_, request) = Requests::new(bytes).next().unwrap();
        let mut seen = Vec::new();
        request.findings(&DeviceContext::UNKNOWN, |finding| seen.push(finding.problem));
        assert_eq!(seen, [Problem::CutOff { needed: 48, have }]);
        // If the same bytes are parsed as a single request, the missing bytes are a fault, and the only one.
        let truncated = Problem::Truncated { needed: 48, have };
        assert_eq!(problems(bytes, &DeviceContext::UNKNOWN), [truncated]);
    }
    let umr =
        joined(&[&control(0x25, 12, 8, 0x1200), &umr_control(0x80, 4, 0, 1), &context(64, false), &data()]);
    for end in [20, 70, 130, 144] {
        let found = problems(&umr[..end], &DeviceContext::UNKNOWN);
        assert!(found.contains(&Problem::Truncated { needed: 192, have: end }), "{found:?}");
        assert!(
            !found.iter().any(|problem| matches!(
                problem,
                Problem::SizeMismatch { .. } | Problem::ListTooShort { .. }
            )),
            "{found:?}"
        );
    }
}
