//! The encoding of the messages that the processes of emulated devices send to each other: the length of the
//! data (4 bytes), the length of the fields (1 byte), the fields, the data. The data are apart from the
//! fields, so that each end copies them once. Bytes of a peer are never trusted: for malformed bytes, the
//! caller ends the connection.

use crate::connection::{self, Notice};
use crate::reader::Reader;
use mlx5_mkey::wire::cqe::Syndrome;
use mlx5_softdev::{Cause, Change, Datagram, Message, Payload, Reason, Request, Response, Width};
use std::mem::take;
use std::sync::Arc;

/// The most bytes of data of a message: 1 GiB.
const LONGEST: usize = 1 << 30;

/// The bytes before the fields: the length of the data, and the length of the fields.
const LENGTHS: usize = 5;

/// The most bytes that are reserved for the data of a message before they arrive.
const RESERVED: usize = 1 << 18;

const REQUEST: u8 = 1;
const RESPONSE: u8 = 2;
const UNANSWERED: u8 = 3;
const CONNECTION: u8 = 4;
const FRAME: u8 = 5;

/// The most bytes of an Ethernet frame.
pub const LONGEST_FRAME: usize = 1 << 16;

/// A decoded message of any kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Packet {
    /// A message of a device's queue pair: a request or a response.
    Device(Message),
    /// A message of connection management.
    Connection(Notice),
    /// An Ethernet frame of a network interface, without its checksum.
    Frame(Vec<u8>),
}

/// An encoded message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Encoded {
    /// The lengths and the fields.
    pub head: Vec<u8>,
    /// The data.
    pub data: Arc<Vec<u8>>,
}

impl Encoded {
    /// Encodes a message: `fill` appends the fields, and returns the data.
    fn new(fill: impl FnOnce(&mut Vec<u8>) -> Arc<Vec<u8>>) -> Self {
        let mut head = vec![0; LENGTHS];
        let data = fill(&mut head);
        let fields = (head.len() - LENGTHS) as u8;
        if let Some([length @ .., count]) = head.first_chunk_mut::<LENGTHS>() {
            *length = (data.len() as u32).to_le_bytes();
            *count = fields;
        }
        Self { head, data }
    }

    /// Returns all bytes of the message.
    pub fn bytes(&self) -> Vec<u8> {
        [self.head.as_slice(), &self.data].concat()
    }
}

/// Encodes a message of connection management.
pub fn encode_notice(notice: &Notice) -> Encoded {
    Encoded::new(|fields| {
        fields.push(CONNECTION);
        let mut data = Vec::new();
        connection::encode(notice, &mut data);
        data.into()
    })
}

/// Encodes an Ethernet frame of at most [`LONGEST_FRAME`] bytes.
pub fn encode_frame(frame: &[u8]) -> Encoded {
    Encoded::new(|fields| {
        fields.push(FRAME);
        frame.to_vec().into()
    })
}

const SEND: u8 = 1;
const WRITE: u8 = 2;
const READ: u8 = 3;
const COMPARE_SWAP: u8 = 4;
const FETCH_ADD: u8 = 5;

const DONE: u8 = 1;
const DATA: u8 = 2;
const ORIGINAL: u8 = 3;
const NOT_READY: u8 = 4;
const REFUSED: u8 = 5;
const UNREACHABLE: u8 = 6;

/// Encodes a message of a queue pair.
pub fn encode(message: Message) -> Encoded {
    Encoded::new(|fields| match message {
        Message::Request { from, to, sequence, request } => {
            fields.push(REQUEST);
            numbers(fields, &[from, to, sequence]);
            encode_request(request, fields)
        }
        Message::Unanswered { from, to, datagram, request } => {
            fields.push(UNANSWERED);
            numbers(fields, &[from, to]);
            fields.push(datagram.is_some().into());
            if let Some(Datagram { qkey, route }) = datagram {
                numbers(fields, &[qkey]);
                fields.extend_from_slice(&route);
            }
            encode_request(request, fields)
        }
        Message::Response { to, sequence, response } => {
            fields.push(RESPONSE);
            numbers(fields, &[to, sequence]);
            encode_response(response, fields)
        }
    })
}

fn numbers(out: &mut Vec<u8>, numbers: &[u32]) {
    for number in numbers {
        out.extend_from_slice(&number.to_le_bytes());
    }
}

fn long(out: &mut Vec<u8>, numbers: &[u64]) {
    for number in numbers {
        out.extend_from_slice(&number.to_le_bytes());
    }
}

fn encode_request(request: Request, out: &mut Vec<u8>) -> Arc<Vec<u8>> {
    match request {
        Request::Send { data, payload, solicited } => {
            let (kind, word) = match payload {
                Payload::None => (0, 0),
                Payload::Immediate(word) => (1, word),
                Payload::Invalidate(key) => (2, key),
            };
            out.extend_from_slice(&[SEND, kind, u8::from(solicited)]);
            numbers(out, &[word]);
            return data;
        }
        Request::Write { rkey, address, data, immediate, solicited } => {
            out.extend_from_slice(&[WRITE, u8::from(immediate.is_some()), u8::from(solicited)]);
            numbers(out, &[immediate.unwrap_or(0), rkey]);
            long(out, &[address]);
            return data;
        }
        Request::Read { rkey, address, length } => {
            out.push(READ);
            numbers(out, &[rkey, length]);
            long(out, &[address]);
        }
        Request::Atomic { rkey, address, width, change, masked } => {
            let (kind, values) = match change {
                Change::CompareSwap { compare, compare_mask, swap, swap_mask } => {
                    (COMPARE_SWAP, &[compare, compare_mask, swap, swap_mask][..])
                }
                Change::FetchAdd { add, boundary } => (FETCH_ADD, &[add, boundary][..]),
            };
            out.extend_from_slice(&[kind, u8::from(width == Width::Four), u8::from(masked)]);
            numbers(out, &[rkey]);
            long(out, &[address]);
            long(out, values);
        }
    }
    Arc::default()
}

fn encode_response(response: Response, out: &mut Vec<u8>) -> Arc<Vec<u8>> {
    match response {
        Response::Done => out.push(DONE),
        Response::Data(data) => {
            out.push(DATA);
            return data.into();
        }
        Response::Original(value) => {
            out.push(ORIGINAL);
            long(out, &[value]);
        }
        Response::ReceiverNotReady { timer } => out.extend_from_slice(&[NOT_READY, timer]),
        Response::Refused { syndrome, cause } => {
            out.extend_from_slice(&[REFUSED, syndrome.0]);
            if let Some(Cause { key, reason }) = cause {
                out.push(key.is_some().into());
                numbers(out, &[key.unwrap_or(0)]);
                long(out, &reason.values());
                return reason.name().as_bytes().to_vec().into();
            }
        }
        Response::Unreachable => out.push(UNREACHABLE),
    }
    Arc::default()
}

/// The part of a message that has arrived.
#[derive(Debug, Default)]
pub struct Arriving {
    /// The lengths and the fields.
    head: Vec<u8>,
    data: Vec<u8>,
}

impl Arriving {
    /// Returns the place to which the next bytes are to be appended, and their number.
    pub fn wanted(&mut self) -> (&mut Vec<u8>, usize) {
        let (end, length) = self.lengths().unwrap_or((LENGTHS, 0));
        let missing = end.saturating_sub(self.head.len());
        if missing > 0 {
            return (&mut self.head, missing);
        }
        if self.data.is_empty() {
            self.data.reserve(length.min(RESERVED));
        }
        let missing = length.saturating_sub(self.data.len());
        (&mut self.data, missing)
    }

    /// Returns the length of lengths and fields, and the length of the data, as far as they have arrived.
    fn lengths(&self) -> Option<(usize, usize)> {
        let [length @ .., fields] = self.head.first_chunk::<LENGTHS>()?;
        Some((LENGTHS + usize::from(*fields), u32::from_le_bytes(*length) as usize))
    }

    /// Takes the message if it is complete.
    ///
    /// # Errors
    /// [`Malformed`] if the bytes are not a message. The start of the next message is then unknown.
    pub fn take(&mut self) -> Result<Option<Packet>, Malformed> {
        let Some((end, length)) = self.lengths() else { return Ok(None) };
        if length > LONGEST {
            return Err(Malformed);
        }
        if self.head.len() < end || self.data.len() < length {
            return Ok(None);
        }
        let fields = self.head.get(LENGTHS..).unwrap_or_default();
        let packet = parse(fields, take(&mut self.data)).ok_or(Malformed)?;
        self.head.clear();
        Ok(Some(packet))
    }
}

/// Decodes the message at the beginning of `bytes`. Returns `Ok(None)` if the message is incomplete.
///
/// # Errors
/// [`Malformed`] if the bytes are not a message.
pub fn decode(mut bytes: &[u8]) -> Result<Option<Packet>, Malformed> {
    let mut arriving = Arriving::default();
    while !bytes.is_empty() {
        let (place, wanted) = arriving.wanted();
        let (next, rest) = bytes.split_at(wanted.min(bytes.len()));
        place.extend_from_slice(next);
        bytes = rest;
        if let Some(packet) = arriving.take()? {
            return Ok(Some(packet));
        }
    }
    Ok(None)
}

/// The error for bytes that are no message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Malformed;

fn parse(fields: &[u8], data: Vec<u8>) -> Option<Packet> {
    match fields {
        [CONNECTION] => connection::decode(&data).map(Packet::Connection),
        [FRAME] => (data.len() <= LONGEST_FRAME).then_some(Packet::Frame(data)),
        _ => parse_message(&mut Reader(fields), data).map(Packet::Device),
    }
}

/// Decodes a message of a queue pair. Refuses surplus fields, and data of a message that has none.
fn parse_message(reader: &mut Reader<'_>, mut data: Vec<u8>) -> Option<Message> {
    let message = match reader.byte()? {
        REQUEST => Message::Request {
            from: reader.u32()?,
            to: reader.u32()?,
            sequence: reader.u32()?,
            request: parse_request(reader, &mut data)?,
        },
        UNANSWERED => {
            let (from, to) = (reader.u32()?, reader.u32()?);
            let datagram = match reader.flag()? {
                true => Some(Datagram { qkey: reader.u32()?, route: reader.array()? }),
                false => None,
            };
            Message::Unanswered { from, to, datagram, request: parse_request(reader, &mut data)? }
        }
        RESPONSE => Message::Response {
            to: reader.u32()?,
            sequence: reader.u32()?,
            response: parse_response(reader, &mut data)?,
        },
        _ => return None,
    };
    (reader.0.is_empty() && data.is_empty()).then_some(message)
}

/// Decodes a request, which takes the data if it carries data.
fn parse_request(reader: &mut Reader<'_>, data: &mut Vec<u8>) -> Option<Request> {
    Some(match reader.byte()? {
        SEND => {
            let (kind, solicited, word) = (reader.byte()?, reader.flag()?, reader.u32()?);
            let payload = match kind {
                0 => Payload::None,
                1 => Payload::Immediate(word),
                2 => Payload::Invalidate(word),
                _ => return None,
            };
            Request::Send { data: take(data).into(), payload, solicited }
        }
        WRITE => {
            let (immediate, solicited, word) = (reader.flag()?, reader.flag()?, reader.u32()?);
            let (rkey, address) = (reader.u32()?, reader.u64()?);
            let immediate = immediate.then_some(word);
            Request::Write { rkey, address, data: take(data).into(), immediate, solicited }
        }
        READ => {
            let (rkey, length, address) = (reader.u32()?, reader.u32()?, reader.u64()?);
            Request::Read { rkey, address, length }
        }
        kind @ (COMPARE_SWAP | FETCH_ADD) => parse_atomic(reader, kind == COMPARE_SWAP)?,
        _ => return None,
    })
}

/// Reads an atomic request. Refuses an atomic of 4 bytes with a value whose upper half is not 0. Refuses a
/// plain atomic (`masked` is false) that has masks or is not of 8 bytes.
fn parse_atomic(reader: &mut Reader<'_>, swaps: bool) -> Option<Request> {
    let width = if reader.flag()? { Width::Four } else { Width::Eight };
    let masked = reader.flag()?;
    let (rkey, address) = (reader.u32()?, reader.u64()?);
    let mut value = || reader.u64().filter(|value| width == Width::Eight || value >> 32 == 0);
    let change = match swaps {
        true => Change::CompareSwap {
            compare: value()?,
            compare_mask: value()?,
            swap: value()?,
            swap_mask: value()?,
        },
        false => Change::FetchAdd { add: value()?, boundary: value()? },
    };
    let is_plain = width == Width::Eight && change == change.without_masks();
    (masked || is_plain).then_some(Request::Atomic { rkey, address, width, change, masked })
}

/// Decodes a response, which takes the data if it carries data.
fn parse_response(reader: &mut Reader<'_>, data: &mut Vec<u8>) -> Option<Response> {
    Some(match reader.byte()? {
        DONE => Response::Done,
        DATA => Response::Data(take(data)),
        ORIGINAL => Response::Original(reader.u64()?),
        NOT_READY => Response::ReceiverNotReady { timer: reader.byte()? },
        REFUSED => {
            let syndrome = Syndrome(reader.byte()?);
            let cause = if reader.0.is_empty() { None } else { Some(parse_cause(reader, &take(data))?) };
            Response::Refused { syndrome, cause }
        }
        UNREACHABLE => Response::Unreachable,
        _ => return None,
    })
}

/// Reads the cause for which a peer refuses a request: the key and the numbers of the reason. The data are
/// the reason's name.
fn parse_cause(reader: &mut Reader<'_>, name: &[u8]) -> Option<Cause> {
    let (named, key) = (reader.flag()?, reader.u32()?);
    let values = [reader.u64()?, reader.u64()?, reader.u64()?];
    let reason = Reason::from_values(std::str::from_utf8(name).ok()?, values)?;
    Some(Cause { key: named.then_some(key), reason })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn messages() -> Vec<Message> {
        let requests = [
            Request::Send { data: vec![1, 2, 3].into(), payload: Payload::Invalidate(7), solicited: true },
            Request::Send { data: vec![].into(), payload: Payload::Immediate(9), solicited: false },
            Request::Write {
                rkey: 1,
                address: 2,
                data: vec![5; 9].into(),
                immediate: Some(3),
                solicited: false,
            },
            Request::Write {
                rkey: 1,
                address: u64::MAX,
                data: vec![].into(),
                immediate: None,
                solicited: false,
            },
            Request::Read { rkey: 4, address: 5, length: 6 },
            Request::compare_swap(1, 8, 2, 3),
            Request::fetch_add(1, 8, 2),
            Request::Atomic {
                rkey: 1,
                address: 8,
                width: Width::Eight,
                change: Change::CompareSwap { compare: 1, compare_mask: u64::MAX, swap: 2, swap_mask: 3 },
                masked: true,
            },
            Request::Atomic {
                rkey: 1,
                address: 4,
                width: Width::Four,
                change: Change::FetchAdd { add: 1, boundary: 0x8000_0000 },
                masked: true,
            },
        ];
        let responses = [
            Response::Done,
            Response::Data(vec![8; 100]),
            Response::Original(u64::MAX),
            Response::ReceiverNotReady { timer: 12 },
            Response::Refused { syndrome: Syndrome::REMOTE_ACCESS, cause: None },
            Response::Refused {
                syndrome: Syndrome::REMOTE_ACCESS,
                cause: Some(Cause { key: Some(0x500), reason: Reason::KeyTag { key: 0x700, tag: 9 } }),
            },
            Response::Unreachable,
        ];
        let mut datagrams = [None, Some(Datagram { qkey: 7, route: [9; 40] })].into_iter().cycle();
        let unanswered = requests.clone().map(|request| {
            let datagram = datagrams.next().flatten();
            Message::Unanswered { from: 1, to: 2, datagram, request }
        });
        let requests = requests.map(|request| Message::Request { from: 1, to: 2, sequence: 3, request });
        let responses = responses.map(|response| Message::Response { to: 2, sequence: 3, response });
        requests.into_iter().chain(unanswered).chain(responses).collect()
    }

    #[test]
    fn messages_survive_the_way() {
        for message in messages() {
            let bytes = encode(message.clone()).bytes();
            for length in 0..bytes.len() {
                assert_eq!(decode(&bytes[..length]), Ok(None));
            }
            assert_eq!(decode(&bytes), Ok(Some(Packet::Device(message))));
        }
    }

    #[test]
    fn an_atomic_without_masks_has_none() {
        let parsed = |width, change| {
            let request = Request::Atomic { rkey: 1, address: 8, width, change, masked: false };
            let mut fields = Vec::new();
            encode_request(request.clone(), &mut fields);
            parse_request(&mut Reader(&fields), &mut Vec::new()) == Some(request)
        };
        assert!(parsed(Width::Eight, Change::FetchAdd { add: 1, boundary: 0 }));
        assert!(!parsed(Width::Four, Change::FetchAdd { add: 1, boundary: 0 }));
        assert!(!parsed(Width::Eight, Change::FetchAdd { add: 1, boundary: 2 }));
    }

    #[test]
    fn frames_have_a_longest_length() {
        let frame = vec![7; LONGEST_FRAME];
        assert_eq!(decode(&encode_frame(&frame).bytes()), Ok(Some(Packet::Frame(frame.clone()))));
        assert_eq!(decode(&encode_frame(&[frame, vec![7]].concat()).bytes()), Err(Malformed));
    }

    #[test]
    fn wrong_lengths_are_refused_and_never_panic() {
        for message in messages() {
            let bytes = encode(message).bytes();
            for count in (0..=u8::MAX).filter(|count| *count != bytes[4]) {
                let mut other = [&bytes[..], &[0; 255]].concat();
                other[4] = count;
                assert_eq!(decode(&other), Err(Malformed), "{count} instead of {} bytes of fields", bytes[4]);
            }
            for length in 0..50 {
                let mut other = [&bytes[..], &[0; 50]].concat();
                other[0] = length;
                let _ = decode(&other);
            }
        }
        let done = encode(Message::Response { to: 2, sequence: 3, response: Response::Done });
        let mut with_data = [&done.head[..], &[0]].concat();
        with_data[0] = 1;
        assert_eq!(decode(&with_data), Err(Malformed), "data of a message without data");
        let too_long = [&(LONGEST as u32 + 1).to_le_bytes()[..], &[1]].concat();
        for malformed in [&[0xff; 8][..], &[0; 5], &too_long] {
            assert_eq!(decode(malformed), Err(Malformed));
        }
    }

    #[test]
    fn only_a_part_of_the_announced_memory_is_reserved() {
        let mut arriving = Arriving {
            head: [&(LONGEST as u32).to_le_bytes()[..], &[1, FRAME]].concat(),
            ..Default::default()
        };
        assert_eq!(arriving.take(), Ok(None));
        assert_eq!(arriving.wanted().1, LONGEST);
        assert!(arriving.data.capacity() < 2 * RESERVED);
    }
}
