//! The encoding of the messages that the processes of emulated devices send to each other. Bytes of a peer
//! are never trusted: for malformed bytes, the caller ends the connection.

use crate::connection::{self, Notice};
use crate::reader::Reader;
use mlx5_mkey::wire::cqe::Syndrome;
use mlx5_softdev::{Cause, Change, Datagram, Message, Payload, Reason, Request, Response, Width};

/// The most bytes of an encoded message after its length: the longest data (1 GiB) and the fields before the
/// data.
pub const LONGEST: usize = (1 << 30) + 64;

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

/// Encodes a message of connection management: its length, then its bytes.
pub fn encode_notice(notice: &Notice) -> Vec<u8> {
    let mut bytes = vec![0; 4];
    bytes.push(CONNECTION);
    connection::encode(notice, &mut bytes);
    with_length(bytes)
}

/// Encodes an Ethernet frame of at most [`LONGEST_FRAME`] bytes: its length, then its bytes.
pub fn encode_frame(frame: &[u8]) -> Vec<u8> {
    with_length([&[0, 0, 0, 0, FRAME], frame].concat())
}

/// Writes the length of an encoded message into its first four bytes.
fn with_length(mut bytes: Vec<u8>) -> Vec<u8> {
    let length = (bytes.len() - 4) as u32;
    if let Some(place) = bytes.first_chunk_mut() {
        *place = length.to_le_bytes();
    }
    bytes
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

/// Encodes a message of a queue pair. Returns two parts: length and fields, and the data that follow them.
pub fn encode(message: &Message) -> (Vec<u8>, &[u8]) {
    let mut head = vec![0; 4];
    let data = match message {
        Message::Request { from, to, sequence, request } => {
            head.push(REQUEST);
            numbers(&mut head, &[*from, *to, *sequence]);
            encode_request(request, &mut head)
        }
        Message::Unanswered { from, to, datagram, request } => {
            head.push(UNANSWERED);
            numbers(&mut head, &[*from, *to]);
            head.push(datagram.is_some().into());
            if let Some(Datagram { qkey, route }) = datagram {
                numbers(&mut head, &[*qkey]);
                head.extend_from_slice(route);
            }
            encode_request(request, &mut head)
        }
        Message::Response { to, sequence, response } => {
            head.push(RESPONSE);
            numbers(&mut head, &[*to, *sequence]);
            encode_response(response, &mut head)
        }
    };
    let length = (head.len() - 4 + data.len()) as u32;
    if let Some(place) = head.first_chunk_mut() {
        *place = length.to_le_bytes();
    }
    (head, data)
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

fn encode_request<'a>(request: &'a Request, out: &mut Vec<u8>) -> &'a [u8] {
    match request {
        Request::Send { data, payload, solicited } => {
            let (kind, word) = match payload {
                Payload::None => (0, 0),
                Payload::Immediate(word) => (1, *word),
                Payload::Invalidate(key) => (2, *key),
            };
            out.extend_from_slice(&[SEND, kind, u8::from(*solicited)]);
            numbers(out, &[word]);
            return data;
        }
        Request::Write { rkey, address, data, immediate, solicited } => {
            out.extend_from_slice(&[WRITE, u8::from(immediate.is_some()), u8::from(*solicited)]);
            numbers(out, &[immediate.unwrap_or(0), *rkey]);
            long(out, &[*address]);
            return data;
        }
        Request::Read { rkey, address, length } => {
            out.push(READ);
            numbers(out, &[*rkey, *length]);
            long(out, &[*address]);
        }
        Request::Atomic { rkey, address, width, change, masked } => {
            let (kind, values) = match change {
                Change::CompareSwap { compare, compare_mask, swap, swap_mask } => {
                    (COMPARE_SWAP, &[*compare, *compare_mask, *swap, *swap_mask][..])
                }
                Change::FetchAdd { add, boundary } => (FETCH_ADD, &[*add, *boundary][..]),
            };
            out.extend_from_slice(&[kind, u8::from(*width == Width::Four), u8::from(*masked)]);
            numbers(out, &[*rkey]);
            long(out, &[*address]);
            long(out, values);
        }
    }
    &[]
}

fn encode_response<'a>(response: &'a Response, out: &mut Vec<u8>) -> &'a [u8] {
    match response {
        Response::Done => out.push(DONE),
        Response::Data(data) => {
            out.push(DATA);
            return data;
        }
        Response::Original(value) => {
            out.push(ORIGINAL);
            long(out, &[*value]);
        }
        Response::ReceiverNotReady { timer } => out.extend_from_slice(&[NOT_READY, *timer]),
        Response::Refused { syndrome, cause } => {
            out.extend_from_slice(&[REFUSED, syndrome.0]);
            if let Some(Cause { key, reason }) = cause {
                out.push(key.is_some().into());
                numbers(out, &[key.unwrap_or(0)]);
                long(out, &reason.values());
                out.extend_from_slice(reason.name().as_bytes());
            }
        }
        Response::Unreachable => out.push(UNREACHABLE),
    }
    &[]
}

/// Decodes the first message in `bytes`. Returns the number of bytes of the encoded message, and the message.
/// Returns `Ok(None)` if the message is incomplete.
///
/// # Errors
/// [`Malformed`] if the bytes are not a message. The start of the next message is then unknown.
pub fn decode(bytes: &[u8]) -> Result<Option<(usize, Packet)>, Malformed> {
    let Some((length, rest)) = bytes.split_first_chunk::<4>() else { return Ok(None) };
    let length = u32::from_le_bytes(*length) as usize;
    if length > LONGEST {
        return Err(Malformed);
    }
    let Some(body) = rest.get(..length) else { return Ok(None) };
    let packet = match body {
        [CONNECTION, rest @ ..] => connection::decode(rest).map(Packet::Connection),
        [FRAME, rest @ ..] => (rest.len() <= LONGEST_FRAME).then(|| Packet::Frame(rest.to_vec())),
        _ => parse(&mut Reader(body)).map(Packet::Device),
    };
    Ok(Some((length + 4, packet.ok_or(Malformed)?)))
}

/// The error for bytes that are no message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Malformed;

fn parse(reader: &mut Reader<'_>) -> Option<Message> {
    let message = match reader.byte()? {
        REQUEST => Message::Request {
            from: reader.u32()?,
            to: reader.u32()?,
            sequence: reader.u32()?,
            request: parse_request(reader)?,
        },
        UNANSWERED => {
            let (from, to) = (reader.u32()?, reader.u32()?);
            let datagram = match reader.flag()? {
                true => Some(Datagram { qkey: reader.u32()?, route: reader.array()? }),
                false => None,
            };
            Message::Unanswered { from, to, datagram, request: parse_request(reader)? }
        }
        RESPONSE => Message::Response {
            to: reader.u32()?,
            sequence: reader.u32()?,
            response: parse_response(reader)?,
        },
        _ => return None,
    };
    reader.0.is_empty().then_some(message)
}

fn parse_request(reader: &mut Reader<'_>) -> Option<Request> {
    Some(match reader.byte()? {
        SEND => {
            let (kind, solicited, word) = (reader.byte()?, reader.flag()?, reader.u32()?);
            let payload = match kind {
                0 => Payload::None,
                1 => Payload::Immediate(word),
                2 => Payload::Invalidate(word),
                _ => return None,
            };
            Request::Send { data: reader.rest().into(), payload, solicited }
        }
        WRITE => {
            let (immediate, solicited, word) = (reader.flag()?, reader.flag()?, reader.u32()?);
            let (rkey, address) = (reader.u32()?, reader.u64()?);
            let immediate = immediate.then_some(word);
            Request::Write { rkey, address, data: reader.rest().into(), immediate, solicited }
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

fn parse_response(reader: &mut Reader<'_>) -> Option<Response> {
    Some(match reader.byte()? {
        DONE => Response::Done,
        DATA => Response::Data(reader.rest()),
        ORIGINAL => Response::Original(reader.u64()?),
        NOT_READY => Response::ReceiverNotReady { timer: reader.byte()? },
        REFUSED => {
            let syndrome = Syndrome(reader.byte()?);
            let cause = if reader.0.is_empty() { None } else { Some(parse_cause(reader)?) };
            Response::Refused { syndrome, cause }
        }
        UNREACHABLE => Response::Unreachable,
        _ => return None,
    })
}

/// Reads the cause for which a peer refuses a request: the key, then the numbers and the name of the reason.
fn parse_cause(reader: &mut Reader<'_>) -> Option<Cause> {
    let (named, key) = (reader.flag()?, reader.u32()?);
    let values = [reader.u64()?, reader.u64()?, reader.u64()?];
    let name = reader.rest();
    let reason = Reason::from_values(std::str::from_utf8(&name).ok()?, values)?;
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

    fn bytes_of(message: &Message) -> Vec<u8> {
        let (head, data) = encode(message);
        [head.as_slice(), data].concat()
    }

    #[test]
    fn messages_survive_the_way() {
        let mut stream = Vec::new();
        for message in messages() {
            stream.extend(bytes_of(&message));
        }
        let mut rest = stream.as_slice();
        for message in messages() {
            let (length, decoded) = decode(rest).unwrap().unwrap();
            assert_eq!(decoded, Packet::Device(message));
            rest = &rest[length..];
        }
        assert_eq!(decode(rest), Ok(None));
    }

    #[test]
    fn an_atomic_without_masks_has_none() {
        let parsed = |width, change| {
            let request = Request::Atomic { rkey: 1, address: 8, width, change, masked: false };
            let mut bytes = Vec::new();
            encode_request(&request, &mut bytes);
            parse_request(&mut Reader(&bytes)) == Some(request)
        };
        assert!(parsed(Width::Eight, Change::FetchAdd { add: 1, boundary: 0 }));
        assert!(!parsed(Width::Four, Change::FetchAdd { add: 1, boundary: 0 }));
        assert!(!parsed(Width::Eight, Change::FetchAdd { add: 1, boundary: 2 }));
    }

    #[test]
    fn frames_have_a_longest_length() {
        let frame = vec![7; LONGEST_FRAME];
        assert_eq!(
            decode(&encode_frame(&frame)),
            Ok(Some((LONGEST_FRAME + 5, Packet::Frame(frame.clone()))))
        );
        assert_eq!(decode(&encode_frame(&[frame, vec![7]].concat())), Err(Malformed));
    }

    #[test]
    fn a_message_cut_short_waits_or_is_refused_and_never_panics() {
        for message in messages() {
            let bytes = bytes_of(&message);
            for length in 0..bytes.len() {
                assert_eq!(decode(&bytes[..length]), Ok(None));
            }
            for cut in 1..bytes.len() - 4 {
                let mut shorter = bytes[..bytes.len() - cut].to_vec();
                let length = (shorter.len() - 4) as u32;
                shorter[..4].copy_from_slice(&length.to_le_bytes());
                let _ = decode(&shorter);
            }
        }
        assert_eq!(decode(&[0xff; 8]), Err(Malformed));
    }
}
