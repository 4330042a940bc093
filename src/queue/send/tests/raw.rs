//! Tests of requests that the caller built, and of copies in memory.

use super::*;
use crate::wqe::{Local, MaskedAtomic, MemcpyConfig};

/// Returns a request of this opcode, flags and size. Its place and queue pair differ from those that posting
/// will write.
fn wqe<const BYTES: usize>(opcode: Opcode, flags: u8) -> [u8; BYTES] {
    let mut bytes = [0x5a; BYTES];
    let control =
        [0x77, 0xaa, 0xbb, opcode.0, 0xcc, 0xdd, 0xee, (BYTES / 16) as u8, 9, 8, 7, flags, 1, 2, 3, 4];
    bytes[..16].copy_from_slice(&control);
    bytes
}

/// Returns the bytes of the first `blocks` blocks.
fn written(queue: &Queue<'_>, blocks: u32) -> Vec<u8> {
    (0..blocks).flat_map(|at| queue.block(at).0).collect()
}

/// Posts a request with these flags of its own, and returns the written flags.
fn flags_of(own: u8, post: fn(&mut Queue<'_>, &[u8])) -> u8 {
    let (mut ring, record) = ([Wqebb::ZERO; 64], DoorbellRecord::new());
    let mut queue = queue(&mut ring, &record, 0);
    post(&mut queue, &wqe::<16>(Opcode::NOP, own));
    queue.block(queue.producer() - 1).0[11]
}

#[test]
fn m46_a_raw_request_gets_its_place_and_nothing_else() {
    let (mut ring, record) = ([Wqebb([0xa5; 64]); 64], DoorbellRecord::new());
    let mut queue = queue(&mut ring, &record, 0);
    queue.request(1).nop().unwrap();
    // Five octowords, followed by bytes that do not belong to the request.
    let raw = wqe::<80>(Opcode(0x3c), 0x1f);
    queue.request(2).raw(&[&raw[..], &[0xff; 100]].concat()).unwrap();
    let mut expected = raw.to_vec();
    expected[1..3].copy_from_slice(&[0, 1]);
    expected[4..7].copy_from_slice(&[0, 0, 0x77]);
    let blocks = written(&queue, 4);
    assert_eq!(blocks[64..][..80], expected);
    assert_eq!(blocks[64 + 80..], [0xa5; 64 + 48], "the rest of its blocks, and those after it");
    queue.ring_doorbell();
    assert_eq!((queue.outstanding(), queue.producer(), record.bytes()[1]), (2, 3, [0, 0, 0, 3]));
    assert_eq!(queue.retire_at(1), Some((2, RequestKind::Raw)));
    assert_eq!((queue.outstanding(), queue.free_blocks()), (0, 64));
}

#[test]
fn m46_a_raw_request_has_a_size_and_the_bytes_for_it() {
    let (mut ring, record) = ([Wqebb::ZERO; 64], DoorbellRecord::new());
    let mut queue = queue(&mut ring, &record, 0);
    let sized = |octowords| {
        let mut bytes = [0; 1008];
        bytes[7] = octowords;
        bytes
    };
    for octowords in [0, 64, 128, 255] {
        assert_eq!(queue.request(1).raw(&sized(octowords)), Err(PostError::RawSize { octowords }));
    }
    for octowords in 1..=63 {
        let (bytes, needed) = (sized(octowords), u16::from(octowords) * 16);
        for have in 0..needed {
            let needed = if have < 16 { 16 } else { needed };
            let error = PostError::RawTooShort { needed, have };
            assert_eq!(queue.request(1).raw(&bytes[..have.into()]), Err(error));
        }
        let begin = queue.producer();
        queue.request(1).raw(&bytes[..needed.into()]).unwrap();
        assert_eq!(queue.producer() - begin, u32::from(octowords).div_ceil(4));
        queue.restart(|_| ());
    }
    assert_eq!(
        PostError::RawSize { octowords: 64 }.to_string(),
        "the control segment says 64 octowords: 1 to 63 are allowed"
    );
    let short = PostError::RawTooShort { needed: 32, have: 31 }.to_string();
    assert_eq!(short, "the request says that it has 32 bytes: 31 are given");
}

#[test]
fn m46_flags_are_those_of_both() {
    // The flags that the raw request has itself stay, also bits without a meaning.
    for own in [0, 0x08, 0x0c, 0x04, 0x20, 0x82, 0xff] {
        assert_eq!(flags_of(own, |queue, wqe| queue.request(1).raw(wqe).unwrap()), own);
    }
    let signaled: fn(&mut Queue<'_>, &[u8]) = |queue, wqe| queue.request(1).signaled().raw(wqe).unwrap();
    // `own` is the completion mode in the raw request itself: a completion only after an error (0), only
    // after an error other than a flush (4), always (8), or always with an event (0x0c).
    for (own, written) in [(0, 8), (4, 8), (8, 8), (0x0c, 0x0c)] {
        assert_eq!(flags_of(own, signaled), written);
    }
    assert_eq!(flags_of(0, |queue, wqe| queue.request(1).solicited().raw(wqe).unwrap()), 2);
    // The fence in the raw request has priority over the fence asked for by `fenced`.
    let fenced: fn(&mut Queue<'_>, &[u8]) = |queue, wqe| queue.request(1).fenced().raw(wqe).unwrap();
    for (own, written) in [(0, 0x80), (0x20, 0x20), (0x60, 0x60), (0x80, 0x80)] {
        assert_eq!(flags_of(own, fenced), written);
    }
    let behind_umr: fn(&mut Queue<'_>, &[u8]) = |queue, wqe| {
        queue.request(1).invalidate(KEY).unwrap();
        queue.request(2).raw(wqe).unwrap();
    };
    for (own, written) in [(0, 0x20), (0x60, 0x60), (0x80, 0x80)] {
        assert_eq!(flags_of(own, behind_umr), written);
    }
}

/// The bytes of a masked addition of 4 bytes are those of a dump that an NVSHMEM program has printed.
#[test]
fn m86_a_masked_atomic_is_as_on_hardware() {
    let remote = Remote { address: 0x7f00_0000_0000, rkey: Key::from_raw(0x5800) };
    let old = Local { address: 0x1000, lkey: Key::from_raw(0x5600) };
    let dump: [u32; 16] = [0x0800_0015, 0x7704, 8, 0, 0x7f00, 0, 0x5800, 0, 1, 0, 0, 0, 4, 0x5600, 0, 0x1000];
    let words = |atomic: MaskedAtomic| {
        let (mut ring, record) = ([Wqebb::ZERO; 64], DoorbellRecord::new());
        let mut queue = queue(&mut ring, &record, 0);
        queue.request(1).signaled().masked_atomic(remote, atomic, old).unwrap();
        let bytes: Vec<_> = (0..queue.producer()).flat_map(|at| queue.block(at).0).collect();
        bytes.chunks(4).map(|word| u32::from_be_bytes(word.try_into().unwrap())).collect::<Vec<_>>()
    };
    assert_eq!(words(MaskedAtomic::FetchAdd32 { add: 1, boundary: 0 }), dump);
    let long = words(MaskedAtomic::FetchAdd64 { add: 1 << 32 | 2, boundary: 3 << 32 | 4 });
    assert_eq!((long[0], long[1] & 63, &long[8..12]), (0x0900_0015, 4, &[1, 2, 3, 4][..]));
    assert_eq!((long[12], &long[13..16]), (8, &dump[13..]));
    let short = words(MaskedAtomic::CompareSwap32 { compare: 1, compare_mask: 2, swap: 3, swap_mask: 4 });
    assert_eq!((short[0], short[1] & 63, &short[8..12]), (0x0800_0014, 4, &[3, 1, 4, 2][..]));
    let atomic = MaskedAtomic::CompareSwap64 { compare: 1, compare_mask: 2, swap: 3, swap_mask: 4 };
    let long = words(atomic);
    assert_eq!((long[0], long[1] & 63, &long[8..16]), (0x0900_0014, 5, &[0, 3, 0, 1, 0, 4, 0, 2][..]));
    assert_eq!((long[16], &long[17..20]), (8, &dump[13..]));
}

#[test]
fn m46_a_queue_that_signals_all_signals_raw_requests() {
    let (mut ring, record) = ([Wqebb::ZERO; 64], DoorbellRecord::new());
    let config = SendQueueConfig { signal_all: true, ..SendQueueConfig::new(Qpn::default()) };
    let witness = Witness { record: &record, seen: Vec::new() };
    let mut queue = Queue::new(config, &mut ring, SendSlot::leaked(64), &record, witness).unwrap();
    queue.request(1).raw(&wqe::<16>(Opcode::NOP, 0)).unwrap();
    assert_eq!(queue.block(0).0[11], 8);
}

#[test]
fn m46_what_follows_a_raw_umr_is_fenced() {
    let (mut ring, record) = ([Wqebb::ZERO; 64], DoorbellRecord::new());
    let mut queue = queue(&mut ring, &record, 0);
    for (opcode, fence) in [
        (Opcode::UMR, FmCeSe::FM_SMALL),
        (Opcode::SET_PSV, FmCeSe::FM_SMALL),
        (Opcode::RDMA_WRITE, FmCeSe::FM_NONE),
    ] {
        queue.request(1).raw(&wqe::<32>(opcode, 0)).unwrap();
        assert_eq!(queue.next_fence(), fence, "{opcode}");
    }
}

const TO: Local = Local { address: 0x1122_3344_5566_7788, lkey: Key::from_raw(0x99aa_bb00) };
const FROM: Local = Local { address: 0x0102_0304_0506_0708, lkey: Key::from_raw(0x090a_0b00) };
const OPAQUE: Local = Local { address: 0xa1a2_a3a4_a5a6_a7a8, lkey: Key::from_raw(0xa9aa_ab00) };

fn copying<'r>(ring: &'r mut [Wqebb], record: &'r DoorbellRecord, log_max_bytes: u8) -> Queue<'r> {
    let memcpy = Some(MemcpyConfig { opaque: OPAQUE, log_max_bytes });
    let config = SendQueueConfig { memcpy, ..SendQueueConfig::new(Qpn::from_low_bits(0x77)) };
    Queue::new(config, ring, SendSlot::leaked(64), record, Witness { record, seen: Vec::new() }).unwrap()
}

#[test]
fn m45_a_copy_is_written_as_rdma_core_writes_it() {
    let (mut ring, record) = ([Wqebb([0xa5; 64]); 64], DoorbellRecord::new());
    let mut queue = copying(&mut ring, &record, 31);
    queue.request(1).invalidate(KEY).unwrap();
    queue.request(2).signaled().memcpy(TO, FROM, 0x0001_0203).unwrap();
    // The request has the form of rdma-core's `struct mlx5_mmo_wqe`: a control segment with opcode 0x2f,
    // modifier 1 and a size of 4 octowords, then opaque buffer, source and target.
    let control = [1, 0, 2, 0x2f, 0, 0, 0x77, 4, 0, 0, 0, 0x28, 0, 0, 0, 0];
    let opaque = [0, 0, 0, 0, 0xa9, 0xaa, 0xab, 0, 0xa1, 0xa2, 0xa3, 0xa4, 0xa5, 0xa6, 0xa7, 0xa8];
    let source = [0, 1, 2, 3, 9, 0x0a, 0x0b, 0, 1, 2, 3, 4, 5, 6, 7, 8];
    let target = [0, 1, 2, 3, 0x99, 0xaa, 0xbb, 0, 0x11, 0x22, 0x33, 0x44, 0x55, 0x66, 0x77, 0x88];
    assert_eq!(queue.block(2).0[..], [control, opaque, source, target].concat());
    assert_eq!(queue.next_fence(), FmCeSe::FM_NONE, "a dependant asks for its fence");
    // A length of 2 GiB is written as 0.
    queue.request(3).memcpy(TO, FROM, 1 << 31).unwrap();
    let block = queue.block(3).0;
    assert_eq!((&block[32..36], &block[48..52]), (&[0; 4][..], &[0; 4][..]));
    queue.ring_doorbell();
    assert_eq!(queue.retire_at(2), Some((2, RequestKind::Memcpy)));
}

#[test]
fn m45_copies_have_the_device_s_limit() {
    for (log_max_bytes, log_max) in [(0, 0), (21, 21), (31, 31), (32, 31), (255, 31)] {
        let (mut ring, record) = ([Wqebb::ZERO; 64], DoorbellRecord::new());
        let mut queue = copying(&mut ring, &record, log_max_bytes);
        queue.request(1).memcpy(TO, FROM, 1 << log_max).unwrap();
        let over = queue.request(2).memcpy(TO, FROM, (1 << log_max) + 1);
        let mebibytes = ((1_u32 << log_max) / (1 << 20) + 1) as u16;
        assert_eq!(over, Err(PostError::MemcpyTooLong { mebibytes, log_max }));
        assert_eq!(queue.request(3).memcpy(TO, FROM, 0), Err(PostError::MemcpyEmpty));
        assert_eq!(queue.outstanding(), 1);
    }
    let text = PostError::MemcpyTooLong { mebibytes: 3, log_max: 21 }.to_string();
    assert_eq!(text, "a copy in memory of 3 MiB: 2^21 bytes are the most");
}
