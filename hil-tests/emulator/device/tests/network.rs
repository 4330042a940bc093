//! Tests of the network interface of an Ethernet port: of send queues of packets, of frames, and of objects
//! with a number and no other state (`en_main.c` of Linux's mlx5_core).

use crate::commands::*;
use crate::common::*;
use mlx5_mkey::types::Key;
use mlx5_softdev::Error;
use std::sync::{Arc, Mutex};
use zerocopy::IntoBytes;

/// Logarithm of the number of blocks of the send queue.
const LOG: u8 = 2;

/// A send queue of packets with a ring of `1 << log` blocks.
struct Sender {
    queue: u32,
    ring: u64,
    record: u64,
    log: u8,
    index: u16,
}

/// A request with a packet: its flags for checksums, the most bytes of payload in each packet (0 if the
/// device does not cut the data), its inline bytes, and ranges of memory: length, key and address.
#[derive(Clone, Copy, Default)]
struct Packet<'p> {
    checksums: u8,
    cut: u16,
    inline: &'p [u8],
    ranges: &'p [(u32, u32, u64)],
}

impl Sender {
    fn new(setup: &mut Setup, log: u8) -> Self {
        let cq = setup.made_cq(4);
        let (ring, record) = (setup.host.alloc(64 << log), setup.host.alloc(8));
        let words = Words::new(0x904, 0x110).u24(0x29, cq.cqn).u8(0x50, 0x10).u24(0x5d, setup.uar);
        let words = words.u24(0x59, setup.host.pd).u64(0x60, record).u8(0x71, 6).u8(0x73, log);
        let queue = setup.good(with_pages(words, ring, 64 << log));
        Self { queue, ring, record, log, index: 0 }
    }

    /// Posts a request, and rings its doorbell.
    fn send(&mut self, setup: &mut Setup, packet: Packet<'_>) {
        let Packet { checksums, cut, inline, ranges } = packet;
        let segments = (inline.len().max(2) - 2).div_ceil(16);
        let mut request = vec![0; 32 + segments * 16];
        request[20] = checksums;
        request[22..24].copy_from_slice(&cut.to_be_bytes());
        request[28..30].copy_from_slice(&(inline.len() as u16).to_be_bytes());
        request[30..30 + inline.len()].copy_from_slice(inline);
        for (length, key, address) in ranges {
            request.extend([&length.to_be_bytes()[..], &key.to_be_bytes(), &address.to_be_bytes()].concat());
        }
        let opcode = if cut == 0 { 0x0a } else { 0x0e };
        request[..4].copy_from_slice(&(u32::from(self.index) << 8 | opcode).to_be_bytes());
        let size = request.len() as u32 / 16;
        request[4..8].copy_from_slice(&(self.queue << 8 | size).to_be_bytes());
        for block in request.chunks(64) {
            setup.host.put(self.ring + u64::from(self.index % (1 << self.log)) * 64, block);
            self.index += 1;
        }
        setup.host.put(self.record + 4, &u32::from(self.index).to_be_bytes());
        setup.host.device.write_uar(u64::from(setup.uar) * 4096 + 0x800, &request[..8]);
        setup.host.device.settle_doorbells();
    }
}

/// Returns the frames that the device has sent.
fn frames(setup: &mut Setup) -> Vec<Vec<u8>> {
    std::iter::from_fn(|| setup.host.device.take_frame()).collect()
}

/// Returns a SEND request of one block. Its first word has the index and the opcode, its second the queue and
/// the size, two octowords. The twelfth byte asks for a completion.
fn block(queue: u32, index: u16, signaled: bool) -> [u8; 64] {
    let mut block = [0; 64];
    block[..4].copy_from_slice(&(u32::from(index) << 8 | 0x0a).to_be_bytes());
    block[4..8].copy_from_slice(&(queue << 8 | 2).to_be_bytes());
    block[11] = if signaled { 8 } else { 0 };
    block
}

#[test]
fn packets_are_taken_and_complete_where_they_are_signalled() {
    let mut setup = Setup::new();
    let shown = Arc::new(Mutex::new(Vec::new()));
    let seen = shown.clone();
    setup.host.device.set_tap(move |event| {
        if let mlx5_softdev::Seen::Packet { queue, .. } = event {
            seen.lock().unwrap().push(queue);
        }
    });
    let cq = setup.made_cq(4);
    let (ring, record) = (setup.host.alloc(64 << LOG), setup.host.alloc(8));
    let words =
        Words::new(0x904, 0x110).u24(0x29, cq.cqn).u8(0x50, 0x10).u24(0x5d, setup.uar).u64(0x60, record);
    let words = with_pages(words.u8(0x71, 6).u8(0x73, LOG), ring, 64 << LOG);
    setup.refused(words.clone().u24(0x29, 0xffff), BAD_RESOURCE, "no completion queue");
    setup.refused(words.clone().u8(0x71, 4), BAD_PARAMETER, "a stride that is no block");
    setup.refused(words.clone().u64(0x60, 4), BAD_PARAMETER, "no record");
    setup.refused(words.clone().u24(0x5d, 0x77), BAD_RESOURCE, "no page of doorbells");
    let queue = setup.good(words);
    setup.good(Words::new(0x905, 16).u24(9, queue));
    // Six packets fill the ring and begin its second lap. The last packet of each doorbell is signalled.
    let mut counters = Vec::new();
    for (index, signaled) in [(0, false), (1, true), (2, true), (3, false), (4, false), (5, true)] {
        let slot = u64::from(index % (1 << LOG)) * 64;
        setup.host.put(ring + slot, &block(queue, index, signaled));
        if signaled {
            setup.host.put(record + 4, &(u32::from(index) + 1).to_be_bytes());
            let at = u64::from(setup.uar) * 4096 + 0x800;
            setup.host.device.write_uar(at, &block(queue, index, signaled)[..8]);
            let entry = setup.host.get(cq.address + 64 * counters.len() as u64, 64);
            assert_eq!(entry[0x38..0x3c], (0x0a00_0000 | queue).to_be_bytes());
            counters.push(u16::from_be_bytes([entry[0x3c], entry[0x3d]]));
        }
    }
    assert_eq!(counters, [1, 2, 5]);
    assert_eq!(*shown.lock().unwrap(), [queue; 6]);
    // Two doorbells have no effect: one without a new request, and one whose producer is too far ahead for
    // the ring.
    for producer in [6, 6 + (1 << LOG) + 1] {
        setup.host.put(record + 4, &u32::to_be_bytes(producer));
        let at = u64::from(setup.uar) * 4096 + 0x900;
        setup.host.device.write_uar(at, &block(queue, 6, true)[..8]);
    }
    assert_eq!(shown.lock().unwrap().len(), 6);
    setup.good(Words::new(0x906, 16).u24(9, queue));
    setup.refused(Words::new(0x906, 16).u24(9, queue), BAD_RESOURCE, "twice");
}

/// A driver learns from the completion of a NOP whether the bus combines writes: only the block that comes
/// with the doorbell asks for a completion (`mlx5_core_test_wc` of Linux).
#[test]
fn a_block_that_comes_with_its_doorbell_takes_the_place_of_the_one_in_the_ring() {
    let mut setup = Setup::new();
    let cq = setup.made_cq(4);
    let (ring, record) = (setup.host.alloc(64 << LOG), setup.host.alloc(8));
    let words =
        Words::new(0x904, 0x110).u24(0x29, cq.cqn).u8(0x50, 0x10).u24(0x5d, setup.uar).u64(0x60, record);
    let queue = setup.good(with_pages(words.u8(0x71, 6).u8(0x73, LOG), ring, 64 << LOG));
    let nop = |index: u16, signaled| {
        let mut block = block(queue, index, signaled);
        block[3] = 0;
        block[7] = 1;
        block
    };
    let page = u64::from(setup.uar) * 4096;
    for index in 0..2_u16 {
        setup.host.put(ring + u64::from(index) * 64, &nop(index, false));
        setup.host.put(record + 4, &(u32::from(index) + 1).to_be_bytes());
        let brought = nop(index, true);
        let (parts, _) = brought.as_chunks::<8>();
        for (at, part) in (page + 0x800 + u64::from(index) * 0x100..).step_by(8).zip(parts) {
            setup.host.device.write_uar(at, part);
        }
        let entry = setup.host.get(cq.address + 64 * u64::from(index), 64);
        assert_eq!((&entry[0x3c..0x3e], entry[0x3f] & 1), (&index.to_be_bytes()[..], 0));
    }
    // A block of another index is ignored: the device executes the request in the ring instead.
    setup.host.put(ring + 128, &nop(2, true));
    setup.host.put(record + 4, &3_u32.to_be_bytes());
    setup.host.device.write_uar(page + 0x800, &nop(7, false));
    assert_eq!(setup.host.get(cq.address + 128 + 0x3c, 2), [0, 2]);
    // The doorbells of a device that is slower than its host arrive after the host has written further
    // requests. The first completion still belongs to the block that came with the first of these doorbells.
    for index in 3..6_u16 {
        setup.host.put(ring + u64::from(index & 3) * 64, &nop(index, index == 5));
    }
    setup.host.put(record + 4, &6_u32.to_be_bytes());
    let brought = nop(3, true);
    let (parts, _) = brought.as_chunks::<8>();
    for (at, part) in (page + 0x900..).step_by(8).zip(parts) {
        setup.host.device.write_uar(at, part);
    }
    assert_eq!(setup.host.get(cq.address + 3 * 64 + 0x3c, 2), [0, 3]);
    assert_eq!(setup.host.get(cq.address + 4 * 64 + 0x3c, 2), [0, 5], "the ring has the later requests");
}

#[test]
fn objects_of_the_interface_end_once() {
    let mut setup = Setup::new();
    let table = setup.good(Words::new(0x930, 0x40));
    let group = setup.good(Words::new(0x933, 0x40).u24(0x15, table));
    setup.good(Words::new(0x936, 0x40));
    let ends =
        [Words::new(0x934, 0x40).u24(0x15, table).u24(0x19, group), Words::new(0x931, 0x40).u24(0x15, table)];
    let others =
        [(0x816, 0x817), (0x912, 0x914), (0x771, 0x772), (0x908, 0x90a), (0x916, 0x918), (0x900, 0x902)];
    let others = others.map(|(makes, ends)| Words::new(ends, 16).u24(9, setup.good(Words::new(makes, 16))));
    for end in ends.into_iter().chain(others) {
        setup.good(end.clone());
        setup.refused(end, BAD_RESOURCE, "twice");
    }
}

#[test]
fn the_table_of_gids_has_room_for_256() {
    let mut setup = Setup::new();
    let set = |index| Words::new(0x761, 0x30).u16(8, index).u8(0x1f, 7);
    setup.good(set(255));
    setup.refused(set(256), BAD_PARAMETER, "behind the table");
}

/// The device counts packets by the kind of their destination. The bytes of a packet are inline, in memory,
/// or both. The device cuts a large segment into packets, each with the inline header.
#[test]
fn packets_are_counted_by_their_destination() {
    let mut setup = Setup::new();
    let (data, key) = setup.host.filled(&[0x33; 3000]);
    let mut sender = Sender::new(&mut setup, LOG);
    let mut send = |setup: &mut Setup, cut: u16, inline: &[u8], ranges: &[(u32, u32, u64)]| {
        sender.send(setup, Packet { cut, inline, ranges, ..Default::default() });
    };
    let to = |first: u8| [&[first; 6][..], &[2, 0, 0, 0, 0, 1, 8, 0]].concat();
    let key = key.get();
    send(&mut setup, 0, &to(0xff), &[]);
    send(&mut setup, 0, &to(0x02), &[(100, key, data)]);
    // The destination is in memory, and is a multicast address.
    send(&mut setup, 0, &[], &[(60, key, data)]);
    // Three packets of at most 1448 bytes, each with a header of 54 bytes, in a request of two blocks.
    send(&mut setup, 1448, &[to(0x04), vec![0; 40]].concat(), &[(3000, key, data)]);
    send(&mut setup, 0, &to(0x02), &[(100, key ^ 0x100, data)]);
    let counters = |setup: &mut Setup, clear: u8| {
        let bytes = told(setup, Words::new(0x770, 0x20).u8(0x18, clear), 0x200);
        let number = |at: usize| u64::from_be_bytes(bytes[at - 0x10..at - 8].try_into().unwrap());
        [0x20, 0x80, 0xa0, 0xc0].map(|at| (number(at), number(at + 8)))
    };
    let all = [(1, 0), (1, 14), (4, 114 + 3 * 54 + 3000), (1, 60)];
    assert_eq!(counters(&mut setup, 0), all);
    let port = |setup: &mut Setup, group: u8| {
        let words = Words::new(0x805, 16 + 0x100).u16(6, 1).u16(0xa, 0x5008).u8(16 + 3, group);
        told(setup, words, 0x100)
    };
    let [ieee, rfc] = [0, 1].map(|group| port(&mut setup, group));
    let number = |bytes: &[u8], at: usize| u64::from_be_bytes(bytes[8 + at..16 + at].try_into().unwrap());
    assert_eq!([0, 0x20, 0x30, 0x38].map(|at| number(&ieee, at)), [6, 3350, 1, 1]);
    assert_eq!([0x28, 0x30, 0x40, 0x58, 0x60].map(|at| number(&rfc, at)), [3350, 4, 1, 1, 1]);
    let clears = Words::new(0x805, 16 + 0x100).u16(6, 1).u16(0xa, 0x5008).u8(16 + 4, 0x80);
    setup.refused(clears, BAD_PARAMETER, "clearing of the port's counters");
    assert_eq!(counters(&mut setup, 0x80), all);
    assert_eq!(counters(&mut setup, 0), [(0, 0); 4], "they were cleared");
}

/// A frame lands in the next receive request of a queue that is ready, with its length and the sum of its IP
/// packet.
#[test]
fn a_frame_of_another_port_lands_in_a_receive() {
    let mut setup = Setup::new();
    setup.host.device.join(0x1_0040, 0x1_ffff).unwrap();
    let cq = setup.made_cq(4);
    let (ring, record) = (setup.host.alloc(64 << LOG), setup.host.alloc(8));
    let (data, key) = setup.host.filled(&[0; 256]);
    let pd = setup.host.pd;
    let words = Words::new(0x908, 0x110).u24(0x29, cq.cqn).u8(0x50, 0x10).u24(0x59, pd);
    let words = words.u64(0x60, record).u8(0x71, 6).u8(0x73, LOG);
    setup.refused(with_pages(words.clone().u24(0x29, 0x999), ring, 64 << LOG), BAD_RESOURCE, "no CQ");
    let queue = setup.good(with_pages(words, ring, 64 << LOG));
    // Two buffers, of 20 and of 200 bytes, then the mark that ends the list.
    let segment = |bytes: u32, key: u32, address: u64| {
        [&bytes.to_be_bytes()[..], &key.to_be_bytes(), &address.to_be_bytes()].concat()
    };
    let receive = [segment(20, key.get(), data), segment(200, key.get(), data + 20), segment(0, 0x100, 0)];
    setup.host.put(ring, &receive.concat());
    setup.host.put(record, &1_u32.to_be_bytes());
    let own = setup.host.device.mac();
    let mut frame = [&own[..], &[2, 0, 0, 0, 0, 9, 0x86, 0xdd]].concat();
    frame.extend((0..60).collect::<Vec<u8>>());
    let arrives = |setup: &mut Setup, frame: &[u8]| {
        setup.host.device.deliver_frame(frame);
        setup.host.get(cq.address, 64)
    };
    let unwritten = arrives(&mut setup, &frame);
    let ready = Words::new(0x909, 0x110).u24(9, queue).u8(0x21, 0x10);
    setup.good(ready);
    // Frames for other addresses, and frames that are cut short, are lost.
    let mut other = frame.clone();
    other[5] ^= 1;
    for lost in [&other[..], &frame[..14], &[]] {
        assert_eq!(arrives(&mut setup, lost), unwritten);
    }
    let entry = arrives(&mut setup, &frame);
    assert_eq!((entry[0x3f], &entry[0x2c..0x30]), (0x20, &74_u32.to_be_bytes()[..]));
    assert_eq!(setup.host.get(data, 74), frame);
    let sum = (0..30_u64).map(|word| word * 0x202 + 1).sum::<u64>();
    assert_eq!(&entry[0x14..0x16], &(sum as u16 + (sum >> 16) as u16).to_be_bytes());
    // No receive request is left, so the next frame is lost. All ports take frames for a group address.
    frame[0] = 0xff;
    arrives(&mut setup, &frame);
    assert_eq!(setup.host.get(cq.address + 64, 64), unwritten, "no receive request is left");
    setup.host.put(record, &2_u32.to_be_bytes());
    setup.host.put(ring + 64, &segment(20, key.get(), data));
    arrives(&mut setup, &frame);
    assert_eq!(setup.host.get(cq.address + 64 + 0x3f, 1), [0xe0], "the receive is too short");
    setup.good(Words::new(0x90a, 16).u24(9, queue));
    setup.refused(Words::new(0x90a, 16).u24(9, queue), BAD_RESOURCE, "twice");
    setup.host.device.deliver_frame(&frame);
}

/// Queue pairs have no numbers of send queues, which begin at 0xf0_0000.
#[test]
fn a_device_joins_no_network_with_the_numbers_of_send_queues() {
    let mut setup = Setup::new();
    let refused = Err(Error::BadAttribute("object numbers"));
    for (first, last) in [(0xef_0040, 0xf0_0000), (0xf0_0040, 0xf0_ffff), (0xff_0040, 0xff_ffff)] {
        assert_eq!(setup.host.device.join(first, last), refused, "{first:#x} to {last:#x}");
    }
    setup.host.device.join(0xef_0040, 0xef_ffff).unwrap();
    let (words, _) = setup.qp();
    assert_eq!(setup.good(words), 0xef_0040);
}

/// A device on a network sends a request as frames: cut to size, and with the checksums that the host left
/// out. A device without a network sends no frames.
#[test]
fn frames_leave_a_device_on_a_network_only() {
    for joins in [false, true] {
        let mut setup = Setup::new();
        if joins {
            setup.host.device.join(0x1_0040, 0x1_ffff).unwrap();
        }
        let (data, key) = setup.host.filled(&[0x33; 100]);
        let inline = [2, 2, 2, 2, 2, 2, 2, 0, 0, 0, 0, 1, 0x88, 0xb5, 7, 8];
        let packet = Packet { cut: 60, inline: &inline, ranges: &[(100, key.get(), data)], checksums: 0 };
        Sender::new(&mut setup, LOG).send(&mut setup, packet);
        let frames = frames(&mut setup);
        let lengths: Vec<_> = frames.iter().map(Vec::len).collect();
        assert_eq!(lengths, if joins { vec![76, 56] } else { vec![] });
    }
}

/// Returns a device on a network, and its send queue.
fn networked() -> (Setup, Sender) {
    let mut setup = Setup::new();
    setup.host.device.join(0x1_0040, 0x1_ffff).unwrap();
    let sender = Sender::new(&mut setup, LOG);
    (setup, sender)
}

/// A frame has the bytes of its request, which may fill two blocks, and the checksums that the request asks
/// for: of the IPv4 header at offset 24, and of UDP at offset 40.
#[test]
fn a_frame_has_the_checksums_that_its_request_asks_for() {
    let (mut setup, mut sender) = networked();
    let mut header = [&[2; 12][..], &[8, 0, 0x45, 0, 0, 128, 0, 7, 0, 0, 64, 17, 0, 0]].concat();
    header.extend([192, 0, 2, 1, 192, 0, 2, 2, 0, 1, 0, 2, 0, 108, 0, 0]);
    let data = pattern(100, 1);
    let (at, key) = setup.host.filled(&data);
    for checksums in [0x00, 0x40, 0x80, 0xc0, 0x3f] {
        sender
            .send(&mut setup, Packet { checksums, inline: &header, ranges: &[(100, key.get(), at)], cut: 0 });
        let [frame] = &mut frames(&mut setup)[..] else { panic!("one frame") };
        let written = [24, 40].map(|at| core::mem::take(&mut frame[at]) != 0 || frame[at + 1] != 0);
        assert_eq!(written, [checksums & 0x40 != 0, checksums & 0x80 != 0], "{checksums:#x}");
        [25, 41].into_iter().for_each(|at| frame[at] = 0);
        assert_eq!(*frame, [&header[..], &data].concat());
    }
}

/// The device's observer gets the first 64 bytes of a packet.
#[test]
fn an_observer_gets_the_beginning_of_a_packet() {
    let (mut setup, mut sender) = networked();
    let shown = Arc::new(Mutex::new(Vec::new()));
    let seen = shown.clone();
    setup.host.device.set_tap(move |event| {
        if let mlx5_softdev::Seen::Packet { header, .. } = event {
            seen.lock().unwrap().push(header.to_vec());
        }
    });
    let data = pattern(100, 1);
    let (at, key) = setup.host.filled(&data);
    let packet = Packet {
        inline: &[2; 14],
        ranges: &[(30, key.get(), at), (70, key.get(), at + 30)],
        ..Default::default()
    };
    sender.send(&mut setup, packet);
    assert_eq!(*shown.lock().unwrap(), [[&[2; 14][..], &data[..50]].concat()]);
}

/// The frames of one request have at most 1 MiB together, and at most 1,024 frames wait for other ports. The
/// device drops the others.
#[test]
fn a_device_keeps_a_bounded_number_of_frames() {
    const MOST: u32 = 1 << 20;
    let (mut setup, mut sender) = networked();
    let (at, key) = setup.host.region(MOST as usize, mlx5_softdev::Access::ALL);
    for (length, sent) in [(MOST - 14, 1), (MOST - 13, 0), (MOST, 0)] {
        let ranges = [(length, key.get(), at)];
        sender.send(&mut setup, Packet { inline: &[2; 14], ranges: &ranges, ..Default::default() });
        assert_eq!(frames(&mut setup).len(), sent, "{length}");
    }
    let packet = Packet { cut: 1, inline: &[2; 14], ranges: &[(1100, key.get(), at)], checksums: 0 };
    sender.send(&mut setup, packet);
    assert_eq!(frames(&mut setup).len(), 1024);
}

/// Queues of packets and of frames have up to 2^15 slots, on the pages of their list. A slot of a receive
/// queue has 16 to 2,048 bytes.
#[test]
fn queues_of_an_interface_have_good_sizes() {
    let mut setup = Setup::new();
    let cq = setup.made_cq(4).cqn;
    let (ring, record) = (setup.host.alloc(64 << 15), setup.host.alloc(8));
    let words = |opcode, log_stride, log| {
        let words = Words::new(opcode, PAGES).u24(0x29, cq).u8(0x50, 0x10).u24(0x59, setup.host.pd);
        words.u24(0x5d, setup.uar).u64(0x60, record).u8(0x71, log_stride).u8(0x73, log)
    };
    let sends = words(0x904, 6, 15);
    let [receives, long, wrong] =
        [(4, 15), (0xf0 | 11, 2), (4, 16)].map(|(stride, log)| words(0x908, stride, log));
    let others = [(3, 4), (12, 4)].map(|(stride, log)| words(0x908, stride, log));
    setup.good(with_pages(sends.clone(), ring, 64 << 15));
    setup.refused(with_pages(sends.clone(), ring, 64 << 14), 0x50, "too few pages");
    setup.refused(with_pages(sends.u8(0x73, 16), ring, 64 << 15), BAD_PARAMETER, "2^16 blocks");
    setup.good(with_pages(receives.clone(), ring, 16 << 15));
    setup.refused(with_pages(receives, ring, 16 << 14), 0x50, "too few pages");
    setup.good(with_pages(long, ring, 2048 << 2));
    setup.refused(with_pages(wrong, ring, 64 << 15), BAD_PARAMETER, "2^16 slots");
    for other in others {
        setup.refused(with_pages(other, ring, 64 << 15), BAD_PARAMETER, "slots of 8 or 4,096 bytes");
    }
}

/// Receive requests are used in the order of their slots, around the ring. A queue that was reset begins at
/// its first slot. A queue whose producer is ahead by more slots than the ring has takes no frame.
#[test]
fn frames_land_in_slot_after_slot() {
    let mut setup = Setup::new();
    setup.host.device.join(0x1_0040, 0x1_ffff).unwrap();
    let cq = setup.made_cq(4);
    let (ring, record) = (setup.host.alloc(64 << LOG), setup.host.alloc(8));
    let (data, key) = setup.host.filled(&[0; 4 * 256]);
    let words = Words::new(0x908, 0x110).u24(0x29, cq.cqn).u8(0x50, 0x10).u24(0x59, setup.host.pd);
    let words = words.u64(0x60, record).u8(0x71, 6).u8(0x73, LOG);
    let queue = setup.good(with_pages(words, ring, 64 << LOG));
    for slot in 0..4 {
        let segments = [segment(data + 256 * slot, 256, key), segment(0, 0, Key::from_raw(0x100))];
        setup.host.put(ring + 64 * slot, segments.as_bytes());
    }
    let state = |setup: &mut Setup, state: u8| {
        setup.good(Words::new(0x909, 0x110).u24(9, queue).u8(0x21, state << 4))
    };
    let post = |setup: &mut Setup, producer: u32| setup.host.put(record, &producer.to_be_bytes());
    // Returns the slot in which a frame lands.
    let mut count = 0;
    let mut arrives = |setup: &mut Setup| {
        count += 1;
        let frame = [&[0xff; 6][..], &[count; 70]].concat();
        setup.host.device.deliver_frame(&frame);
        (0..4).find(|slot| setup.host.get(data + 256 * slot, 76) == frame)
    };
    state(&mut setup, 1);
    post(&mut setup, 4);
    assert_eq!([(); 5].map(|()| arrives(&mut setup)), [Some(0), Some(1), Some(2), Some(3), None]);
    post(&mut setup, 7);
    state(&mut setup, 1);
    assert_eq!([(); 2].map(|()| arrives(&mut setup)), [Some(0), Some(1)], "the state was ready before");
    state(&mut setup, 0);
    assert_eq!(arrives(&mut setup), None, "not ready");
    state(&mut setup, 1);
    post(&mut setup, 5);
    assert_eq!(arrives(&mut setup), None, "too far ahead");
    post(&mut setup, 2);
    assert_eq!([(); 3].map(|()| arrives(&mut setup)), [Some(0), Some(1), None]);
}
