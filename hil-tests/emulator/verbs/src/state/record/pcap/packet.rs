//! RoCEv2 packets: Ethernet, IPv6, UDP, BTH, extended headers, payload, ICRC (InfiniBand 1, chapter 9, and
//! its annex A17).

use crate::fabric;
use crate::ground::port;
use crc::{CRC_32_ISO_HDLC, Crc, Table};

/// The UDP port of RoCEv2.
const PORT: u16 = 4791;
/// The first UDP source port. All packets of a flow have the same port.
const FIRST_SOURCE_PORT: u16 = 0xc000;
/// The default partition, with full membership.
const PARTITION: u16 = 0xffff;
/// Header lengths in bytes.
const IP: usize = 40;
const UDP: usize = 8;
const BTH: usize = 12;
const ETHERNET: usize = 14;
const ICRC: usize = 4;

const CRC: Crc<u32, Table<16>> = Crc::<u32, Table<16>>::new(&CRC_32_ISO_HDLC);

/// Sender and receiver of a packet, by their queue pair numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Flow {
    /// The number of the sending queue pair.
    pub(super) from: u32,
    /// The number of the receiving queue pair.
    pub(super) to: u32,
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
pub(super) fn append(flow: Flow, packet: &Packet<'_>, out: &mut Vec<u8>) {
    let padding = packet.payload.len().wrapping_neg() % 4;
    let body = BTH + packet.headers.len() + packet.payload.len() + padding + ICRC;
    // No packet is longer than the largest MTU and its headers.
    let length = (UDP + body) as u16;
    let start = out.len();
    out.extend([mac(flow.to), mac(flow.from)].as_flattened());
    out.extend([0x86, 0xdd]);
    out.extend([0x60, 0, 0, 0]);
    out.extend(length.to_be_bytes());
    out.extend([17, 64]);
    out.extend([address(flow.from), address(flow.to)].as_flattened());
    let source = FIRST_SOURCE_PORT | (flow.from ^ flow.to) as u16;
    out.extend([source, PORT, length, 0].map(u16::to_be_bytes).as_flattened());
    out.push(packet.opcode);
    // The migration bit is set, as for a queue pair without an alternate path. The transport version is 0.
    out.push(u8::from(packet.solicited) << 7 | 1 << 6 | (padding as u8) << 4);
    out.extend(PARTITION.to_be_bytes());
    out.extend((flow.to & 0x00ff_ffff).to_be_bytes());
    out.extend((u32::from(packet.acknowledge) << 31 | packet.psn & 0x00ff_ffff).to_be_bytes());
    out.extend(packet.headers);
    out.extend(packet.payload);
    out.resize(out.len() + padding, 0);
    let datagram = out.get(start + ETHERNET..).unwrap_or_default();
    let check = icrc(datagram);
    out.extend(check.to_le_bytes());
    let datagram = out.get(start + ETHERNET..).unwrap_or_default();
    let sum = udp_checksum(datagram);
    if let Some(place) = out.get_mut(start + ETHERNET + IP + 6..start + ETHERNET + IP + UDP) {
        place.copy_from_slice(&sum.to_be_bytes());
    }
}

/// Returns the MAC address of a queue pair's process: the device's address plus the number of the process's
/// slot.
fn mac(qpn: u32) -> [u8; 6] {
    let [a, b, c, d, rest @ ..] = port::mac(0);
    let [e, f] = moved(rest, qpn);
    [a, b, c, d, e, f]
}

/// Returns the IPv6 address of a queue pair's process: the device's address plus the number of the process's
/// slot.
fn address(qpn: u32) -> [u8; 16] {
    let mut address = port::link_local(port::mac(0));
    if let Some(last) = address.last_chunk_mut() {
        *last = moved(*last, qpn);
    }
    address
}

fn moved(last: [u8; 2], qpn: u32) -> [u8; 2] {
    u16::from_be_bytes(last).wrapping_add(fabric::slot_of(qpn) as u16).to_be_bytes()
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

/// Returns the UDP checksum, which IPv6 requires. Adapters write 0, but Wireshark reports 0 as an error.
fn udp_checksum(datagram: &[u8]) -> u16 {
    let (addresses, udp) = (datagram.get(8..IP).unwrap_or_default(), datagram.get(IP..).unwrap_or_default());
    let mut sum = 17 + udp.len() as u64;
    for pair in addresses.chunks(2).chain(udp.chunks(2)) {
        let [high, low] = [pair.first(), pair.get(1)].map(|byte| byte.copied().unwrap_or(0));
        sum += u64::from(u16::from_be_bytes([high, low]));
    }
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    match !(sum as u16) {
        0 => 0xffff,
        sum => sum,
    }
}
