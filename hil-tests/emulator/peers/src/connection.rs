//! The encoding of messages of connection management between processes. The kinds of messages follow
//! InfiniBand's communication manager (InfiniBand 12.6). Bytes of a peer are never trusted.

use crate::address::Gid;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};

/// The most bytes of private data in a message (`RDMA_MAX_PRIVATE_DATA`).
pub const MOST_DATA: usize = 255;

/// The parameters of a connection that one side tells the other (`struct rdma_ucm_conn_param`).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Parameters {
    /// The number of the queue pair.
    pub qpn: u32,
    /// The Q_Key of a datagram service.
    pub qkey: u32,
    /// The first packet sequence number.
    pub first_psn: u32,
    /// The GID of the sender's port.
    pub gid: Gid,
    /// 1 for a queue pair with a shared receive queue.
    pub shared_receives: u8,
    /// The most RDMA READs and atomics that the sender answers at a time.
    pub responder_resources: u8,
    /// The most RDMA READs and atomics that the sender has in flight.
    pub initiator_depth: u8,
    /// 1 for end-to-end flow control.
    pub flow_control: u8,
    /// The number of retries of a request without an answer.
    pub retries: u8,
    /// The number of retries of a request whose receiver is not ready.
    pub rnr_retries: u8,
    /// Private data, at most [`MOST_DATA`] bytes.
    pub data: Vec<u8>,
}

/// The content of a message of connection management, by the kinds of InfiniBand.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Content {
    /// REQ, or SIDR_REQ for a datagram service: requests a connection from `source` to `destination`.
    Request {
        /// Whether the service takes datagrams.
        datagrams: bool,
        /// The address of the requester.
        source: SocketAddr,
        /// The address of the service.
        destination: SocketAddr,
        /// The requester's parameters.
        parameters: Parameters,
    },
    /// REP, or SIDR_REP: accepts the request.
    Reply(Parameters),
    /// RTU: the requester is ready to use the connection.
    Ready,
    /// REJ: rejects the request, with a reason and private data.
    Reject(u32, Vec<u8>),
    /// DREQ: ends the connection.
    Disconnect,
    /// DREP: confirms the end of the connection.
    Disconnected,
}

/// A message of connection management.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Notice {
    /// The sender: the slot of its process, and the number of its `rdma_cm_id`.
    pub from: (u32, u32),
    /// The number of the receiver's `rdma_cm_id`. In a request, this is the `rdma_cm_id` of the listener.
    pub to: u32,
    /// The kind of the message, with the fields of this kind.
    pub content: Content,
}

/// Appends the bytes of a message to `out`.
pub fn encode(notice: &Notice, out: &mut Vec<u8>) {
    out.extend([notice.from.0, notice.from.1, notice.to].into_iter().flat_map(u32::to_ne_bytes));
    match &notice.content {
        Content::Request { datagrams, source, destination, parameters } => {
            out.extend([1, u8::from(*datagrams)]);
            [source, destination].into_iter().for_each(|place| encode_address(place, out));
            encode_parameters(parameters, out);
        }
        Content::Reply(parameters) => {
            out.push(2);
            encode_parameters(parameters, out);
        }
        Content::Ready => out.push(3),
        Content::Reject(reason, data) => {
            out.push(4);
            out.extend(reason.to_ne_bytes());
            out.extend_from_slice(data);
        }
        Content::Disconnect => out.push(5),
        Content::Disconnected => out.push(6),
    }
}

fn encode_address(address: &SocketAddr, out: &mut Vec<u8>) {
    match address.ip() {
        IpAddr::V4(ip) => out.extend([&[4][..], &ip.to_ipv6_mapped().octets()].concat()),
        IpAddr::V6(ip) => out.extend([&[6][..], &ip.octets()].concat()),
    }
    out.extend(address.port().to_ne_bytes());
}

fn encode_parameters(parameters: &Parameters, out: &mut Vec<u8>) {
    let Parameters { qpn, qkey, first_psn, gid, data, .. } = parameters;
    out.extend([*qpn, *qkey, *first_psn].into_iter().flat_map(u32::to_ne_bytes));
    out.extend(gid);
    let Parameters { shared_receives, responder_resources, initiator_depth, .. } = parameters;
    out.extend([*shared_receives, *responder_resources, *initiator_depth]);
    out.extend([parameters.flow_control, parameters.retries, parameters.rnr_retries]);
    out.extend(data);
}

/// Decodes a message that consists of all `bytes`. Returns `None` for malformed bytes.
pub fn decode(bytes: &[u8]) -> Option<Notice> {
    let (from, to) = ((u32_at(bytes, 0)?, u32_at(bytes, 4)?), u32_at(bytes, 8)?);
    let (kind, rest) = bytes.get(12..)?.split_first()?;
    let content = match (kind, rest) {
        (1, [datagrams @ 0..=1, rest @ ..]) => Content::Request {
            datagrams: *datagrams == 1,
            source: decode_address(rest)?,
            destination: decode_address(rest.get(ADDRESS..)?)?,
            parameters: decode_parameters(rest.get(2 * ADDRESS..)?)?,
        },
        (2, rest) => Content::Reply(decode_parameters(rest)?),
        (3, []) => Content::Ready,
        (4, rest) => Content::Reject(u32_at(rest, 0)?, data(rest.get(4..)?)?),
        (5, []) => Content::Disconnect,
        (6, []) => Content::Disconnected,
        _ => return None,
    };
    Some(Notice { from, to, content })
}

/// The number of bytes of an encoded address.
const ADDRESS: usize = 1 + 16 + 2;

fn decode_address(bytes: &[u8]) -> Option<SocketAddr> {
    let ip = Ipv6Addr::from(*bytes.get(1..)?.first_chunk::<16>()?);
    let ip = match bytes.first()? {
        4 => IpAddr::V4(ip.to_ipv4_mapped()?),
        6 => IpAddr::V6(ip),
        _ => return None,
    };
    Some(SocketAddr::new(ip, u16_at(bytes, 17)?))
}

fn decode_parameters(bytes: &[u8]) -> Option<Parameters> {
    let gid = *bytes.get(12..)?.first_chunk()?;
    let numbers = bytes.get(28..)?.first_chunk()?;
    let [shared_receives, responder_resources, initiator_depth, flow_control, retries, rnr_retries] =
        *numbers;
    Some(Parameters {
        qpn: u32_at(bytes, 0)?,
        qkey: u32_at(bytes, 4)?,
        first_psn: u32_at(bytes, 8)?,
        gid,
        shared_receives,
        responder_resources,
        initiator_depth,
        flow_control,
        retries,
        rnr_retries,
        data: data(bytes.get(34..)?)?,
    })
}

/// Returns the number of 2 bytes at a place, in the machine's byte order.
fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_ne_bytes(*bytes.get(at..)?.first_chunk()?))
}

/// Returns the number of 4 bytes at a place, in the machine's byte order.
fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(*bytes.get(at..)?.first_chunk()?))
}

fn data(bytes: &[u8]) -> Option<Vec<u8>> {
    (bytes.len() <= MOST_DATA).then(|| bytes.to_vec())
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::indexing_slicing)]
mod tests {
    use super::*;

    fn notices() -> Vec<Notice> {
        let parameters = Parameters {
            qpn: 1,
            qkey: 2,
            first_psn: 3,
            gid: [4; 16],
            shared_receives: 5,
            responder_resources: 6,
            initiator_depth: 7,
            flow_control: 8,
            retries: 9,
            rnr_retries: 10,
            data: b"private".to_vec(),
        };
        let contents = [
            Content::Request {
                datagrams: true,
                source: "192.0.2.1:5".parse().unwrap(),
                destination: "[fd00::1]:6".parse().unwrap(),
                parameters: parameters.clone(),
            },
            Content::Reply(parameters),
            Content::Ready,
            Content::Reject(28, b"no".to_vec()),
            Content::Disconnect,
            Content::Disconnected,
        ];
        contents.map(|content| Notice { from: (1, 2), to: 3, content }).into()
    }

    #[test]
    fn notices_survive_the_way() {
        for notice in notices() {
            let mut bytes = Vec::new();
            encode(&notice, &mut bytes);
            assert_eq!(decode(&bytes), Some(notice.clone()));
            for length in 0..bytes.len() {
                let _ = decode(&bytes[..length]);
            }
            for at in 0..bytes.len() {
                let mut changed = bytes.clone();
                changed[at] ^= 0xff;
                let _ = decode(&changed);
            }
            bytes.extend([0; 256]);
            assert_eq!(decode(&bytes), None, "too much");
        }
    }
}
