//! The encoding of messages of connection management between processes. The kinds of messages follow
//! InfiniBand's communication manager (InfiniBand 12.6). Bytes of a peer are never trusted.

use crate::address::Gid;
use crate::reader::Reader;
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
    out.extend([notice.from.0, notice.from.1, notice.to].into_iter().flat_map(u32::to_le_bytes));
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
            out.extend(reason.to_le_bytes());
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
    out.extend(address.port().to_le_bytes());
}

fn encode_parameters(parameters: &Parameters, out: &mut Vec<u8>) {
    let Parameters { qpn, qkey, first_psn, gid, data, .. } = parameters;
    out.extend([*qpn, *qkey, *first_psn].into_iter().flat_map(u32::to_le_bytes));
    out.extend(gid);
    let Parameters { shared_receives, responder_resources, initiator_depth, .. } = parameters;
    out.extend([*shared_receives, *responder_resources, *initiator_depth]);
    out.extend([parameters.flow_control, parameters.retries, parameters.rnr_retries]);
    out.extend(data);
}

/// Decodes a message that consists of all `bytes`. Returns `None` for malformed bytes.
pub fn decode(bytes: &[u8]) -> Option<Notice> {
    let reader = &mut Reader(bytes);
    let (from, to) = ((reader.u32()?, reader.u32()?), reader.u32()?);
    let content = match reader.byte()? {
        1 => Content::Request {
            datagrams: reader.flag()?,
            source: decode_address(reader)?,
            destination: decode_address(reader)?,
            parameters: decode_parameters(reader)?,
        },
        2 => Content::Reply(decode_parameters(reader)?),
        3 => Content::Ready,
        4 => Content::Reject(reader.u32()?, data(reader)?),
        5 => Content::Disconnect,
        6 => Content::Disconnected,
        _ => return None,
    };
    reader.0.is_empty().then_some(Notice { from, to, content })
}

fn decode_address(reader: &mut Reader<'_>) -> Option<SocketAddr> {
    let (kind, ip) = (reader.byte()?, Ipv6Addr::from(reader.array::<16>()?));
    let ip = match kind {
        4 => IpAddr::V4(ip.to_ipv4_mapped()?),
        6 => IpAddr::V6(ip),
        _ => return None,
    };
    Some(SocketAddr::new(ip, u16::from_le_bytes(reader.array()?)))
}

fn decode_parameters(reader: &mut Reader<'_>) -> Option<Parameters> {
    Some(Parameters {
        qpn: reader.u32()?,
        qkey: reader.u32()?,
        first_psn: reader.u32()?,
        gid: reader.array()?,
        shared_receives: reader.byte()?,
        responder_resources: reader.byte()?,
        initiator_depth: reader.byte()?,
        flow_control: reader.byte()?,
        retries: reader.byte()?,
        rnr_retries: reader.byte()?,
        data: data(reader)?,
    })
}

fn data(reader: &mut Reader<'_>) -> Option<Vec<u8>> {
    Some(reader.rest()).filter(|data| data.len() <= MOST_DATA)
}

#[cfg(test)]
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
