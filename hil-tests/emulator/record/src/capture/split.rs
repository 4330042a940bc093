//! Splits messages of the device into RoCEv2 packets.

use super::packet::Packet;
use mlx5_mkey::wire::cqe::Syndrome;
use mlx5_softdev::{Change, Payload, Request, Response, Width};

/// The packet opcodes for one kind of message, by the place of the packet in the message.
struct Opcodes {
    first: u8,
    middle: u8,
    last: u8,
    only: u8,
}

/// Bits that turn an opcode of reliable connections into the opcode of unreliable connections.
const UNRELIABLE: u8 = 0x20;
/// Bits that turn an opcode of reliable connections into the opcode of datagrams.
const DATAGRAM: u8 = 0x60;

const SEND: Opcodes = Opcodes { first: 0x00, middle: 0x01, last: 0x02, only: 0x04 };
const SEND_IMMEDIATE: Opcodes = Opcodes { last: 0x03, only: 0x05, ..SEND };
const SEND_INVALIDATE: Opcodes = Opcodes { last: 0x16, only: 0x17, ..SEND };
const WRITE: Opcodes = Opcodes { first: 0x06, middle: 0x07, last: 0x08, only: 0x0a };
const WRITE_IMMEDIATE: Opcodes = Opcodes { last: 0x09, only: 0x0b, ..WRITE };
const READ_RESPONSE: Opcodes = Opcodes { first: 0x0d, middle: 0x0e, last: 0x0f, only: 0x10 };
const READ: u8 = 0x0c;
const ACKNOWLEDGE: u8 = 0x11;
const ATOMIC_ACKNOWLEDGE: u8 = 0x12;
const COMPARE_SWAP: u8 = 0x13;
const FETCH_ADD: u8 = 0x14;
/// Opcodes of masked atomics, from the range for manufacturers (InfiniBand 9.2.1). No public source states
/// the opcodes and headers of mlx5 devices: here the operands follow address and key, as in a work request.
const MASKED_COMPARE_SWAP: u8 = 0xd3;
const MASKED_FETCH_ADD: u8 = 0xd4;

/// Syndromes of an AETH, the extended header of answers. The low bits of `ACCEPTED` are a credit count, here
/// the code for unlimited credits.
const ACCEPTED: u8 = 0x1f;
const NOT_READY: u8 = 0x20;
const REFUSED: u8 = 0x60;

/// The data of a message, with all that the message's packets need.
struct Data<'a> {
    opcodes: Opcodes,
    data: &'a [u8],
    /// The extended headers of the first packet, of the last packet, and of the packet of a message that has
    /// only one packet.
    headers: [&'a [u8]; 3],
    solicited: bool,
    acknowledge: bool,
}

impl Data<'_> {
    fn each(&self, mtu: usize, psn: u32, emit: &mut impl FnMut(Packet<'_>)) {
        let last = count(self.data.len(), mtu) - 1;
        let mut parts = self.data.chunks(mtu);
        let [of_first, of_last, of_only] = self.headers;
        for index in 0..=last {
            let ends = index == last;
            let (opcode, headers): (u8, &[u8]) = match (index, ends) {
                (0, true) => (self.opcodes.only, of_only),
                (0, false) => (self.opcodes.first, of_first),
                (_, true) => (self.opcodes.last, of_last),
                (_, false) => (self.opcodes.middle, &[]),
            };
            emit(Packet {
                opcode,
                solicited: self.solicited && ends,
                acknowledge: self.acknowledge && ends,
                psn: psn.wrapping_add(index),
                headers,
                payload: parts.next().unwrap_or_default(),
            });
        }
    }
}

/// Returns the number of packets for a message of `bytes` bytes. A message of zero bytes takes one packet.
fn count(bytes: usize, mtu: usize) -> u32 {
    bytes.div_ceil(mtu).max(1) as u32
}

/// Returns how many packet sequence numbers a request takes. An RDMA READ takes one for each packet of its
/// response.
pub(super) fn numbers(request: &Request, mtu: usize) -> u32 {
    match request {
        Request::Send { data, .. } | Request::Write { data, .. } => count(data.len(), mtu),
        Request::Read { length, .. } => count(*length as usize, mtu),
        Request::Atomic { .. } => 1,
    }
}

fn reth(address: u64, rkey: u32, length: u32) -> Vec<u8> {
    [&address.to_be_bytes()[..], &rkey.to_be_bytes(), &length.to_be_bytes()].concat()
}

/// Hands the packets of a request to `emit`. The first packet has the sequence number `psn`.
pub(super) fn request(request: &Request, mtu: usize, psn: u32, mut emit: impl FnMut(Packet<'_>)) {
    let single = |opcode, headers: &[u8], emit: &mut dyn FnMut(Packet<'_>)| {
        emit(Packet { opcode, solicited: false, acknowledge: false, psn, headers, payload: &[] });
    };
    match request {
        Request::Send { data, payload, solicited } => {
            let (opcodes, word) = match payload {
                Payload::None => (SEND, None),
                Payload::Immediate(word) => (SEND_IMMEDIATE, Some(word)),
                Payload::Invalidate(key) => (SEND_INVALIDATE, Some(key)),
            };
            let word = word.map(|word| word.to_be_bytes());
            let last = word.as_ref().map_or(&[][..], |word| word);
            let headers = [&[], last, last];
            let solicited = *solicited;
            Data { opcodes, data, headers, solicited, acknowledge: true }.each(mtu, psn, &mut emit);
        }
        Request::Write { rkey, address, data, immediate, solicited } => {
            let opcodes = if immediate.is_some() { WRITE_IMMEDIATE } else { WRITE };
            let word = immediate.map(u32::to_be_bytes);
            let last = word.as_ref().map_or(&[][..], |word| word);
            let first = reth(*address, *rkey, data.len() as u32);
            let only = [&first[..], last].concat();
            let headers = [&first[..], last, &only];
            let solicited = *solicited;
            Data { opcodes, data, headers, solicited, acknowledge: true }.each(mtu, psn, &mut emit);
        }
        Request::Read { rkey, address, length } => single(READ, &reth(*address, *rkey, *length), &mut emit),
        Request::Atomic { rkey, address, width, change, masked } => {
            let (swaps, values) = match *change {
                Change::CompareSwap { compare, compare_mask, swap, swap_mask } => {
                    (true, &[swap, compare, swap_mask, compare_mask][..])
                }
                Change::FetchAdd { add, boundary } => (false, &[add, boundary][..]),
            };
            // A plain atomic has two values. The second value of a plain addition is its `boundary`, which is
            // 0.
            let (opcode, values) = match (swaps, *masked) {
                (true, true) => (MASKED_COMPARE_SWAP, values),
                (false, true) => (MASKED_FETCH_ADD, values),
                (true, false) => (COMPARE_SWAP, values.get(..2).unwrap_or(values)),
                (false, false) => (FETCH_ADD, values),
            };
            let mut headers = [&address.to_be_bytes()[..], &rkey.to_be_bytes()].concat();
            values.iter().for_each(|value| match width {
                Width::Four => headers.extend((*value as u32).to_be_bytes()),
                Width::Eight => headers.extend(value.to_be_bytes()),
            });
            single(opcode, &headers, &mut emit);
        }
    }
}

/// Returns the extended header of a datagram (DETH), from the Q_Key and the number of the sending queue pair.
pub(super) fn deth(qkey: u32, from: u32) -> [u8; 8] {
    let mut deth = [0; 8];
    let (key, sender) = deth.split_at_mut(4);
    key.copy_from_slice(&qkey.to_be_bytes());
    sender.copy_from_slice(&(from & 0x00ff_ffff).to_be_bytes());
    deth
}

/// Hands the packets of a request that gets no answer to `emit`, as [`request`] does. `head` is the extended
/// header of a datagram, or `None` on an unreliable connection.
pub(super) fn unanswered(
    asked: &Request,
    head: Option<[u8; 8]>,
    mtu: usize,
    psn: u32,
    mut emit: impl FnMut(Packet<'_>),
) {
    request(asked, mtu, psn, |packet| {
        let head = head.as_ref().map_or(&[][..], |head| head);
        let opcode = packet.opcode | if head.is_empty() { UNRELIABLE } else { DATAGRAM };
        let headers = &[head, packet.headers].concat();
        emit(Packet { opcode, acknowledge: false, headers, ..packet });
    });
}

/// The facts about a request that its answer needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Asked {
    /// The number of the request's first packet.
    pub(super) psn: u32,
    /// The count of packet numbers that the request took.
    pub(super) numbers: u32,
    /// The number of the request among the requests of its queue pair, from 0 on.
    pub(super) sequence: u32,
}

/// Hands the packets of an answer to `emit`. An unreachable queue pair sends no packet.
pub(super) fn response(response: &Response, asked: Asked, mtu: usize, mut emit: impl FnMut(Packet<'_>)) {
    let done = asked.sequence.wrapping_add(1);
    let aeth = |syndrome: u8, messages: u32| {
        let [_, messages @ ..] = messages.to_be_bytes();
        [&[syndrome][..], &messages].concat()
    };
    let (opcode, headers, psn) = match response {
        Response::Done => {
            let last = asked.psn.wrapping_add(asked.numbers).wrapping_sub(1);
            (ACKNOWLEDGE, aeth(ACCEPTED, done), last)
        }
        Response::Data(data) => {
            let head = aeth(ACCEPTED, done);
            let headers = [&head[..]; 3];
            let data = Data { opcodes: READ_RESPONSE, data, headers, solicited: false, acknowledge: false };
            return data.each(mtu, asked.psn, &mut emit);
        }
        Response::Original(value) => {
            let headers = [aeth(ACCEPTED, done), value.to_be_bytes().to_vec()].concat();
            (ATOMIC_ACKNOWLEDGE, headers, asked.psn)
        }
        Response::ReceiverNotReady { timer } => {
            (ACKNOWLEDGE, aeth(NOT_READY | timer & 0x1f, asked.sequence), asked.psn)
        }
        Response::Refused { syndrome, .. } => {
            (ACKNOWLEDGE, aeth(REFUSED | code(*syndrome), asked.sequence), asked.psn)
        }
        Response::Unreachable => return,
    };
    emit(Packet { opcode, solicited: false, acknowledge: false, psn, headers: &headers, payload: &[] });
}

/// Returns the NAK code that makes a requester's completion report this syndrome.
fn code(syndrome: Syndrome) -> u8 {
    match syndrome {
        Syndrome::REMOTE_INVALID_REQUEST => 1,
        Syndrome::REMOTE_ACCESS => 2,
        _ => 3,
    }
}
