//! RoCEv2 packets: Ethernet, IPv6, UDP, BTH, extended headers, payload, ICRC (InfiniBand 1, chapter 9, and
//! its annex A17).

use crc::{CRC_32_ISO_HDLC, Crc, Table};
use mlx5_softdev::transport_checksum;

/// The UDP port of RoCEv2.
const PORT: u16 = 4791;
/// The lowest UDP source port. All packets of a flow have the same source port.
const FIRST_SOURCE_PORT: u16 = 0xc000;
/// The default partition, with full membership.
const PARTITION: u16 = 0xffff;
/// The protocol number of UDP.
const PROTOCOL: u8 = 17;
/// Header lengths in bytes.
const IP: usize = 40;
const UDP: usize = 8;
const BTH: usize = 12;
const ETHERNET: usize = 14;
const ICRC: usize = 4;

const CRC: Crc<u32, Table<16>> = Crc::<u32, Table<16>>::new(&CRC_32_ISO_HDLC);

/// A queue pair as the headers of packets name it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Endpoint {
    /// The MAC address of the port.
    pub mac: [u8; 6],
    /// The IPv6 address of the port.
    pub address: [u8; 16],
    /// The number of the queue pair in the headers of packets.
    pub number: u32,
}

/// The fields in which the packets of a flow differ.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Packet<'a> {
    pub(super) opcode: u8,
    /// Whether the sender requests a solicited event at the receiver.
    pub(super) solicited: bool,
    /// Whether the sender requests an acknowledgement.
    pub(super) acknowledge: bool,
    pub(super) psn: u32,
    /// The extended headers, which follow the BTH.
    pub(super) headers: &'a [u8],
    pub(super) payload: &'a [u8],
}

/// Appends a packet, from its Ethernet header to its ICRC.
pub(super) fn append([from, to]: [Endpoint; 2], packet: &Packet<'_>, out: &mut Vec<u8>) {
    let padding = packet.payload.len().wrapping_neg() % 4;
    let body = BTH + packet.headers.len() + packet.payload.len() + padding + ICRC;
    // The cast is lossless: a packet has at most the largest MTU and its headers.
    let length = (UDP + body) as u16;
    let start = out.len();
    out.extend([to.mac, from.mac].as_flattened());
    out.extend([0x86, 0xdd]);
    out.extend([0x60, 0, 0, 0]);
    out.extend(length.to_be_bytes());
    out.extend([PROTOCOL, 64]);
    out.extend([from.address, to.address].as_flattened());
    let source = FIRST_SOURCE_PORT | (from.number ^ to.number) as u16;
    out.extend([source, PORT, length, 0].map(u16::to_be_bytes).as_flattened());
    out.push(packet.opcode);
    // The migration bit is set, as for a queue pair without an alternate path. The transport version is 0.
    out.push(u8::from(packet.solicited) << 7 | 1 << 6 | (padding as u8) << 4);
    out.extend(PARTITION.to_be_bytes());
    out.extend((to.number & 0x00ff_ffff).to_be_bytes());
    out.extend((u32::from(packet.acknowledge) << 31 | packet.psn & 0x00ff_ffff).to_be_bytes());
    out.extend(packet.headers);
    out.extend(packet.payload);
    out.resize(out.len() + padding, 0);
    let datagram = out.get(start + ETHERNET..).unwrap_or_default();
    let check = icrc(datagram);
    out.extend(check.to_le_bytes());
    let datagram = out.get(start + ETHERNET..).unwrap_or_default();
    // IPv6 requires the checksum of UDP. Adapters write 0, but Wireshark reports 0 as an error.
    let (addresses, udp) = (datagram.get(8..IP).unwrap_or_default(), datagram.get(IP..).unwrap_or_default());
    let sum = transport_checksum(addresses, PROTOCOL, udp);
    if let Some(place) = out.get_mut(start + ETHERNET + IP + 6..start + ETHERNET + IP + UDP) {
        place.copy_from_slice(&sum.to_be_bytes());
    }
}

/// Returns the invariant CRC of a packet that begins with its IPv6 header and ends before the CRC. Fields
/// that routers may change count as ones. The CRC begins with 8 bytes of ones in place of InfiniBand's link
/// header, which RoCEv2 lacks.
fn icrc(datagram: &[u8]) -> u32 {
    let (head, rest) = datagram.split_at_checked(IP + UDP + BTH).unwrap_or((datagram, &[]));
    let mut head = head.to_vec();
    // Offset and bits of the fields that change: traffic class and flow label, hop limit, UDP checksum, the
    // byte of the BTH with congestion marks.
    let changing =
        [(0, 0x0f), (1, 0xff), (2, 0xff), (3, 0xff), (7, 0xff), (46, 0xff), (47, 0xff), (52, 0xff)];
    for (place, bits) in changing {
        if let Some(byte) = head.get_mut(place) {
            *byte |= bits;
        }
    }
    let mut digest = CRC.digest();
    digest.update(&[0xff; 8]);
    digest.update(&head);
    digest.update(rest);
    digest.finalize()
}
