//! Tests of the capture. They parse the written packets with a parser of their own, whose CRC is checked with
//! a packet of real hardware.

use super::*;
use mlx5_mkey::wire::cqe::Syndrome;
use mlx5_softdev::{Change, Datagram, Payload, Width};

const TIME: Duration = Duration::new(1_700_000_000, 123_456_789);
/// Returns an endpoint whose addresses contain the upper bits of the number.
fn endpoint(number: u32) -> Endpoint {
    let slot = (number >> 16) as u8;
    let mut address = [0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0, 0x6d, 0x6c, 0xff, 0xfe, 0x78, 0x35, 1];
    address[15] += slot;
    Endpoint { mac: [2, 0x6d, 0x6c, 0x78, 0x35, 1 + slot], address, number }
}

/// Two queue pairs, each of its own process.
const A: u32 = 0x40;
const B: u32 = 0x2_0041;

/// The parts of a parsed packet.
#[derive(Clone, Debug, PartialEq)]
struct Parsed {
    from: [u8; 16],
    to: u32,
    opcode: u8,
    solicited: bool,
    acknowledge: bool,
    psn: u32,
    /// Bytes after the BTH: extended headers and payload, without padding.
    rest: Vec<u8>,
}

/// Returns the CRC-32 of bytes, computed bit by bit.
fn crc(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(u32::MAX, |crc, byte| {
        (0..8).fold(crc ^ u32::from(*byte), |crc, _| crc >> 1 ^ if crc & 1 == 1 { 0xedb8_8320 } else { 0 })
    })
}

/// Returns the invariant CRC of an IPv4 or IPv6 packet, which begins with its IP header and ends with the
/// CRC's own bytes.
fn icrc(packet: &[u8]) -> [u8; 4] {
    let mut bytes = packet[..packet.len() - 4].to_vec();
    let ip = match bytes[0] >> 4 {
        4 => {
            [1, 8, 10, 11].into_iter().for_each(|changing| bytes[changing] = 0xff);
            20
        }
        _ => {
            bytes[0] |= 0xf;
            [1, 2, 3, 7].into_iter().for_each(|changing| bytes[changing] = 0xff);
            40
        }
    };
    [ip + 6, ip + 7, ip + 12].into_iter().for_each(|changing| bytes[changing] = 0xff);
    crc(&[&[0xff; 8][..], &bytes].concat()).to_le_bytes()
}

fn number(bytes: &[u8]) -> u32 {
    bytes.iter().fold(0, |number, byte| number << 8 | u32::from(*byte))
}

fn parse(packet: &[u8]) -> Parsed {
    let (ethernet, ip) = packet.split_at(14);
    assert_eq!(ethernet[12..], [0x86, 0xdd]);
    assert_eq!((ip[0] >> 4, ip[6]), (6, 17), "IPv6 and UDP");
    // Each MAC address determines the second half of its IPv6 address (EUI-64).
    for (mac, address) in [(&ethernet[..6], &ip[24..40]), (&ethernet[6..12], &ip[8..24])] {
        assert_eq!(address[..8], [0xfe, 0x80, 0, 0, 0, 0, 0, 0]);
        assert_eq!((mac[0] ^ 2, &mac[1..3], &mac[3..]), (address[8], &address[9..11], &address[13..]));
    }
    let udp = &ip[40..];
    assert_eq!(number(&ip[4..6]) as usize, udp.len());
    assert_eq!(number(&udp[4..6]) as usize, udp.len());
    assert_eq!(number(&udp[2..4]), 4791);
    let pseudo = [&ip[8..40], &[0, 0], &ip[4..6], &[0, 17], udp].concat();
    let sum: u32 = pseudo.chunks(2).map(|pair| number(&[pair, &[0]].concat()[..2])).sum();
    assert_eq!((sum & 0xffff) + (sum >> 16), 0xffff, "UDP checksum");
    assert_eq!(udp[udp.len() - 4..], icrc(ip), "ICRC");
    let bth = &udp[8..20];
    assert_eq!((bth[1] & 0x4f, &bth[2..4], bth[4], bth[8] & 0x7f), (0x40, &[0xff, 0xff][..], 0, 0));
    let padding = usize::from(bth[1] >> 4 & 3);
    let body = &udp[20..udp.len() - 4];
    assert!(body.len().is_multiple_of(4));
    Parsed {
        from: ip[8..24].try_into().unwrap(),
        to: number(&bth[5..8]),
        opcode: bth[0],
        solicited: bth[1] >> 7 == 1,
        acknowledge: bth[8] >> 7 == 1,
        psn: number(&bth[9..12]),
        rest: body[..body.len() - padding].to_vec(),
    }
}

/// Parses the records of a capture, which follow its file header.
fn parse_records(mut bytes: &[u8]) -> Vec<Parsed> {
    let mut parsed = Vec::new();
    while let Some((head, rest)) = bytes.split_at_checked(16) {
        let field = |index: usize| u32::from_ne_bytes(head[4 * index..][..4].try_into().unwrap());
        assert_eq!(field(2), field(3));
        let (packet, rest) = rest.split_at(field(2) as usize);
        parsed.push(parse(packet));
        bytes = rest;
    }
    assert!(bytes.is_empty());
    parsed
}

/// Returns the state of a process with one queue pair, [`A`] or [`B`], whose path has an MTU of 256.
fn wire(qpn: u32) -> Wire {
    let route = Route { mtu: Some(PathMtu::B256), send_psn: 0xff_fffe, receive_psn: 0x100 };
    let other = Route { send_psn: 0x100, receive_psn: 0xff_fffe, ..route };
    let routes = BTreeMap::from([(qpn, if qpn == A { route } else { other })]);
    Wire { routes, ..Wire::default() }
}

fn sent(wire: &mut Wire, message: &Message) -> Vec<Parsed> {
    let mut all = Vec::new();
    wire.packets(Seen::Sent(message), endpoint, TIME, |bytes| all.append(bytes));
    parse_records(&all)
}

fn received(wire: &mut Wire, message: &Message) {
    wire.packets(Seen::Received(message), endpoint, TIME, |_| {
        panic!("packets of others are theirs to write")
    });
}

fn asks(sequence: u32, request: Request) -> Message {
    Message::Request { from: A, to: B, sequence, request }
}

fn answers(sequence: u32, response: Response) -> Message {
    Message::Response { to: A, sequence, response }
}

fn data(length: u16) -> Vec<u8> {
    (0..length).map(|byte| (byte % 251) as u8).collect()
}

fn write(length: u16, immediate: Option<u32>) -> Request {
    Request::Write { rkey: 0x1234, address: 0x5678, data: data(length).into(), immediate, solicited: true }
}

fn opcodes(packets: &[Parsed]) -> Vec<u8> {
    packets.iter().map(|packet| packet.opcode).collect()
}

fn psns(packets: &[Parsed]) -> Vec<u32> {
    packets.iter().map(|packet| packet.psn).collect()
}

/// The packet is a congestion notification of a ConnectX-4 Lx, from the tests of Scapy
/// (`test/contrib/roce.uts`).
#[test]
fn the_parser_knows_a_packet_of_hardware() {
    let head = "45c2003c718c400040119161 0a0011010a001201 000012b700280000 8100ffff4000011800000000";
    let text = format!("{head}{}82fd002a", "00".repeat(16)).replace(' ', "");
    let packet: Vec<u8> = text
        .as_bytes()
        .chunks(2)
        .map(|pair| u8::from_str_radix(str::from_utf8(pair).unwrap(), 16).unwrap())
        .collect();
    assert_eq!(packet.len(), 60);
    assert_eq!(packet[56..], icrc(&packet));
}

#[test]
fn a_long_write_is_several_packets() {
    let packets = sent(&mut wire(A), &asks(0, write(600, Some(0xabcd))));
    assert_eq!(opcodes(&packets), [0x06, 0x07, 0x09]);
    assert_eq!(psns(&packets), [0xff_fffe, 0xff_ffff, 0], "they wrap at 24 bits");
    let reth = [&0x5678u64.to_be_bytes()[..], &0x1234u32.to_be_bytes(), &600u32.to_be_bytes()].concat();
    let (first, last) = packets[0].rest.split_at(16);
    assert_eq!(first, reth);
    let (immediate, end) = packets[2].rest.split_at(4);
    assert_eq!(number(immediate), 0xabcd);
    assert_eq!([last, &packets[1].rest, end].concat(), data(600));
    let flags: Vec<_> = packets.iter().map(|packet| (packet.solicited, packet.acknowledge)).collect();
    assert_eq!(flags, [(false, false), (false, false), (true, true)]);
    assert!(packets.iter().all(|packet| packet.to == B && packet.from[14..] == [0x35, 1]));
}

#[test]
fn short_messages_are_one_packet() {
    let send = |payload| Request::Send { data: data(5).into(), payload, solicited: false };
    let cases: [(Request, u8, Vec<u8>); 11] = [
        (send(Payload::None), 0x04, data(5)),
        (send(Payload::Immediate(7)), 0x05, [vec![0, 0, 0, 7], data(5)].concat()),
        (send(Payload::Invalidate(7)), 0x17, [vec![0, 0, 0, 7], data(5)].concat()),
        (
            write(0, None),
            0x0a,
            [0x5678u64.to_be_bytes().to_vec(), vec![0, 0, 0x12, 0x34], vec![0; 4]].concat(),
        ),
        (
            write(256, Some(7)),
            0x0b,
            [0x5678u64.to_be_bytes().to_vec(), vec![0, 0, 0x12, 0x34, 0, 0, 1, 0, 0, 0, 0, 7], data(256)]
                .concat(),
        ),
        (
            Request::Read { rkey: 1, address: 2, length: 3 },
            0x0c,
            vec![0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 1, 0, 0, 0, 3],
        ),
        (
            Request::compare_swap(1, 2, 3, 4),
            0x13,
            [
                [0, 0, 0, 0, 0, 0, 0, 2],
                [0, 0, 0, 1, 0, 0, 0, 0],
                [0, 0, 0, 4, 0, 0, 0, 0],
                [0, 0, 0, 3, 0, 0, 0, 0],
            ]
            .concat()[..28]
                .to_vec(),
        ),
        (
            Request::fetch_add(1, 2, 5),
            0x14,
            [vec![0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 5], vec![0; 8]].concat(),
        ),
        (
            Request::Atomic {
                rkey: 1,
                address: 2,
                width: Width::Four,
                change: Change::CompareSwap { compare: 5, compare_mask: 6, swap: 7, swap_mask: 8 },
                masked: true,
            },
            0xd3,
            [0_u32, 2, 1, 7, 5, 8, 6].map(u32::to_be_bytes).concat(),
        ),
        (
            Request::Atomic {
                rkey: 1,
                address: 2,
                width: Width::Eight,
                change: Change::FetchAdd { add: 5, boundary: 6 },
                masked: true,
            },
            0xd4,
            [0_u32, 2, 1, 0, 5, 0, 6].map(u32::to_be_bytes).concat(),
        ),
        (Request::Send { data: vec![].into(), payload: Payload::None, solicited: true }, 0x04, vec![]),
    ];
    let mut wire = wire(A);
    for (sequence, (request, opcode, rest)) in (0..).zip(cases) {
        let packets = sent(&mut wire, &asks(sequence, request));
        let [packet] = &packets[..] else { panic!("{packets:?}") };
        assert_eq!((packet.opcode, &packet.rest), (opcode, &rest));
        assert_eq!(packet.psn, (0xff_fffe + sequence) & 0xff_ffff);
    }
}

#[test]
fn answers_have_the_numbers_of_what_they_answer() {
    let mut wire = wire(B);
    let requests = [
        write(600, None),
        Request::Read { rkey: 1, address: 2, length: 300 },
        Request::fetch_add(1, 8, 5),
        write(1, Some(1)),
    ];
    for (sequence, request) in (0..).zip(requests) {
        received(&mut wire, &asks(sequence, request));
    }
    let mut answer = |sequence, response| sent(&mut wire, &answers(sequence, response));
    let done = answer(0, Response::Done);
    assert_eq!((opcodes(&done), psns(&done)), (vec![0x11], vec![0]), "that of the last packet");
    assert_eq!(done[0].rest, [0x1f, 0, 0, 1]);
    assert!(done[0].to == A && done[0].from[14..] == [0x35, 3]);
    let read = answer(1, Response::Data(data(300)));
    assert_eq!((opcodes(&read), psns(&read)), (vec![0x0d, 0x0f], vec![1, 2]));
    assert!(read.iter().all(|packet| packet.rest[..4] == [0x1f, 0, 0, 2]));
    assert_eq!([&read[0].rest[4..], &read[1].rest[4..]].concat(), data(300));
    let atomic = answer(2, Response::Original(9));
    assert_eq!((opcodes(&atomic), psns(&atomic)), (vec![0x12], vec![3]));
    assert_eq!(atomic[0].rest, [0x1f, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0, 9]);
    let not_ready = answer(3, Response::ReceiverNotReady { timer: 7 });
    assert_eq!(
        (not_ready[0].opcode, not_ready[0].psn, &not_ready[0].rest[..]),
        (0x11, 4, &[0x27, 0, 0, 3][..])
    );
    let refused = answer(3, Response::Refused { syndrome: Syndrome::REMOTE_ACCESS, cause: None });
    assert_eq!((refused[0].opcode, refused[0].psn, &refused[0].rest[..]), (0x11, 4, &[0x62, 0, 0, 3][..]));
    assert_eq!(answer(3, Response::Done), [], "it was answered");
}

#[test]
fn unreliable_connections_have_opcodes_of_their_own() {
    let mut wire = wire(A);
    let mut send =
        |request| sent(&mut wire, &Message::Unanswered { from: A, to: B, datagram: None, request });
    let packets = [send(write(300, Some(1))), send(write(4, None))].concat();
    assert_eq!((opcodes(&packets), psns(&packets)), (vec![0x26, 0x29, 0x2a], vec![0xff_fffe, 0xff_ffff, 0]));
    assert!(packets.iter().all(|packet| !packet.acknowledge));
}

#[test]
fn a_datagram_is_one_packet_with_its_key_and_sender() {
    let mut wire = wire(A);
    let mut send = |payload| {
        let request = Request::Send { data: data(1000).into(), payload, solicited: true };
        let datagram = Some(Datagram { qkey: 0x1122_3344, route: [0; 40] });
        sent(&mut wire, &Message::Unanswered { from: A, to: B, datagram, request })
    };
    let packets = [send(Payload::None), send(Payload::Immediate(5))].concat();
    assert_eq!((opcodes(&packets), psns(&packets)), (vec![0x64, 0x65], vec![0xff_fffe, 0xff_ffff]));
    let deth = [0x11, 0x22, 0x33, 0x44, 0, 0, 0, 0x40];
    assert_eq!(packets[0].rest, [&deth[..], &data(1000)].concat());
    assert_eq!(packets[1].rest, [&deth[..], &[0, 0, 0, 5], &data(1000)].concat());
    assert!(packets.iter().all(|packet| packet.to == B && packet.solicited && !packet.acknowledge));
}

#[test]
fn codes_of_refusals() {
    let syndromes = [Syndrome::REMOTE_INVALID_REQUEST, Syndrome::REMOTE_ACCESS, Syndrome::REMOTE_OPERATION];
    for (syndrome, code) in syndromes.into_iter().zip([0x61, 0x62, 0x63]) {
        let mut wire = wire(B);
        received(&mut wire, &asks(0, write(1, None)));
        assert_eq!(
            sent(&mut wire, &answers(0, Response::Refused { syndrome, cause: None }))[0].rest[0],
            code
        );
    }
    let mut wire = wire(B);
    received(&mut wire, &asks(0, write(1, None)));
    assert_eq!(sent(&mut wire, &answers(0, Response::Unreachable)), []);
}

#[test]
fn what_is_sent_again_has_the_same_numbers() {
    let mut wire = wire(A);
    let mut numbers = |sequence| psns(&sent(&mut wire, &asks(sequence, write(257, None))));
    let sent = [numbers(0), numbers(1), numbers(2)];
    assert_eq!(sent.concat(), [0xff_fffe, 0xff_ffff, 0, 1, 2, 3]);
    assert_eq!([numbers(1), numbers(2), numbers(3)].concat(), [0, 1, 2, 3, 4, 5]);
    assert_eq!(numbers(0), [0xff_fffe, 0xff_ffff], "after a reset");
    assert_eq!(numbers(1), [0, 1]);
}

/// A peer may send messages with any numbers of queue pairs.
#[test]
fn invented_numbers_take_no_memory() {
    let mut wire = wire(B);
    wire.writes_received = true;
    let mut received = |message: &Message| wire.packets(Seen::Received(message), endpoint, TIME, |_| ());
    for from in 0..100_000 {
        let request = write(1, None);
        received(&Message::Unanswered { from, to: B, datagram: None, request: request.clone() });
        received(&Message::Request { from, to: B, sequence: 5, request: request.clone() });
        received(&Message::Request { from, to: 0x7000 + from, sequence: 5, request });
    }
    assert_eq!((wire.requesters.len(), wire.askers.len(), wire.unanswered.len()), (1, 1, MAX_SENDERS));
    // The request of the last requester is still recorded, so its answer gets packet number 0.
    assert_eq!(
        psns(&sent(&mut wire, &Message::Response { to: 99_999, sequence: 5, response: Response::Done })),
        [0]
    );
}

#[test]
fn processes_share_a_file_and_nothing_else_is_written_to() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("wire.pcap");
    let mut captures = [A, B].map(|qpn| {
        let mut capture = Capture::shared(&path, endpoint).unwrap();
        capture.set_routes(wire(qpn).routes);
        capture
    });
    let [request, response] = [asks(0, write(600, None)), answers(0, Response::Done)];
    captures[0].seen(Seen::Sent(&request));
    captures[1].seen(Seen::Received(&request));
    captures[1].seen(Seen::Sent(&response));
    captures[0].seen(Seen::Received(&response));
    let bytes = std::fs::read(&path).unwrap();
    assert_eq!(bytes[..24], *HEAD.map(u32::to_ne_bytes).as_flattened());
    let packets = parse_records(&bytes[24..]);
    assert_eq!(opcodes(&packets), [0x06, 0x07, 0x08, 0x11]);
    assert_eq!(psns(&packets), [0xff_fffe, 0xff_ffff, 0, 0]);
    std::fs::write(&path, "a letter").unwrap();
    assert!(Capture::shared(&path, endpoint).is_err());
    assert_eq!(std::fs::read(&path).unwrap(), b"a letter");
    assert!(Capture::shared(Path::new("/dev/zero"), endpoint).is_err(), "it has no end");
}

#[test]
fn a_capture_of_a_port_has_both_directions_and_frames() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("port.pcap");
    std::fs::write(&path, "an old file").unwrap();
    let mut capture = Capture::of_port(&path, endpoint).unwrap();
    capture.set_routes(wire(A).routes);
    let request = Request::Send { data: data(1).into(), payload: Payload::None, solicited: false };
    let unanswered = Message::Unanswered { from: B, to: A, datagram: None, request };
    capture.seen(Seen::Sent(&asks(0, write(300, None))));
    capture.seen(Seen::Received(&answers(0, Response::Done)));
    capture.seen(Seen::Received(&unanswered));
    let bytes = std::fs::read(&path).unwrap();
    let packets = parse_records(&bytes[24..]);
    assert_eq!(opcodes(&packets), [0x06, 0x08, 0x11, 0x24]);
    assert_eq!(
        psns(&packets),
        [0xff_fffe, 0xff_ffff, 0xff_ffff, 0x100],
        "the peer begins with its own number"
    );
    let mut expected = bytes.len();
    for frame in [&[7; 60][..], &[8; 1514], &[]] {
        capture.frame(frame);
        let bytes = std::fs::read(&path).unwrap();
        assert_eq!(&bytes[expected + 8..expected + 12], (frame.len() as u32).to_ne_bytes());
        assert_eq!(&bytes[expected + 16..], frame);
        expected = bytes.len();
    }
    assert!(Capture::of_port(folder.path(), endpoint).is_err());
}
