//! Packets of an Ethernet port's network interface: their send queues, and the counters of the port
//! (`en_tx.c` and `en_stats.c` of Linux's mlx5_core).

use super::frames::{self, Checksums};
use crate::commands::reply;
use crate::commands::{Refused, Request};
use crate::cqe::{self, Subject};
use crate::data_path::Range;
use crate::device::Device;
use crate::interface_state::{Counter, Traffic};
use crate::memory::Memory;
use crate::tap::Seen;
use crate::translate::Right;
use alloc::vec::Vec;
use mlx5_mkey::wire::cqe::CqeOpcode;
use mlx5_mkey::wire::ctrl::{ControlSegment, FmCeSe};
use zerocopy::FromBytes;

/// Opcodes of requests with a packet, and with a segment of TCP that the device cuts into packets (LSO).
const SEND: u8 = 0x0a;
const LARGE_SEND: u8 = 0x0e;

/// The number of bytes of a block of a send queue.
const BLOCK: u64 = 64;

/// The most bytes that all frames of one request may have. Linux sends at most 256 KiB at once
/// (`max_lso_cap`).
const MOST_BYTES: u64 = 1 << 20;

/// The most bytes of a packet that the device's observer gets.
const SHOWN: usize = 64;

/// A parsed request with a packet. The request consists of the control segment, the Ethernet segment with the
/// first bytes of the packet (`struct mlx5_wqe_eth_seg`), and data segments.
struct PacketRequest<'r> {
    inline: &'r [u8],
    /// The memory ranges of the packet after its inline bytes: key, address, length.
    ranges: Vec<Range>,
    /// The largest number of payload bytes in each packet, if the device cuts the data into packets.
    cut: Option<u16>,
    checksums: Checksums,
}

impl<'r> PacketRequest<'r> {
    fn parse(request: &'r [u8], is_large: bool) -> Option<Self> {
        const INLINE: usize = 30;
        /// This bit says that the device inserts a VLAN tag, and that no bytes are inline.
        const INSERTS: u16 = 0x8000;
        /// The bit of a data segment that contains its data.
        const CONTAINS: u32 = 0x8000_0000;
        let half = |at: usize| request.get(at..at + 2)?.try_into().ok().map(u16::from_be_bytes);
        let size = half(INLINE - 2)?;
        let size = if size & INSERTS != 0 { 0 } else { usize::from(size & 0x3ff) };
        let inline = request.get(INLINE..INLINE + size)?;
        // The Ethernet segment contains the first two inline bytes. The others fill whole segments of 16
        // bytes after it.
        let first = 32 + size.saturating_sub(2).next_multiple_of(16);
        let mut ranges = Vec::new();
        for segment in request.get(first..).unwrap_or_default().chunks_exact(16) {
            let (count, rest) = segment.split_first_chunk()?;
            let (key, address) = rest.split_first_chunk()?;
            let count = u32::from_be_bytes(*count);
            if count & CONTAINS != 0 {
                return None;
            }
            let address = u64::from_be_bytes(address.try_into().ok()?);
            ranges.push(Range { key: u32::from_be_bytes(*key), address, length: count.into() });
        }
        let cut = if is_large { Some(half(22)? & 0x3fff).filter(|bytes| *bytes != 0) } else { None };
        let flags = request.get(20).copied().unwrap_or_default();
        let checksums = Checksums { network: flags & 0x40 != 0, transport: flags & 0x80 != 0 };
        Some(Self { inline, ranges, cut, checksums })
    }

    /// Returns the number of packets, and the number of bytes of all of them.
    fn size(&self) -> (u64, u64) {
        let header = self.inline.len() as u64;
        let payload = self.ranges.iter().fold(0_u64, |sum, range| sum.saturating_add(range.length));
        let packets = self.cut.map_or(1, |cut| payload.div_ceil(cut.into()).max(1));
        (packets, payload.saturating_add(packets.saturating_mul(header)))
    }
}

/// Returns the counter for packets with this header. A header that is too short for a destination address
/// selects the counter of errors.
pub(super) fn kind_of<'t>(traffic: &'t mut Traffic, header: &[u8]) -> &'t mut Counter {
    match header.get(..6) {
        Some([0xff, 0xff, 0xff, 0xff, 0xff, 0xff]) => &mut traffic.broadcast,
        Some([first, ..]) if first & 1 != 0 => &mut traffic.multicast,
        Some(_) => &mut traffic.unicast,
        None => &mut traffic.errors,
    }
}

impl<M: Memory> Device<M> {
    /// Sends the packets that a doorbell announced, and completes requests that ask for a completion. If the
    /// doorbell contained a block (BlueFlame) with the number of the next block, the device uses this block
    /// instead of the block in the ring. Returns false if no send queue of packets has this number.
    pub(super) fn send_packets(&mut self, number: u32, mut brought: Option<[u8; 64]>) -> bool {
        let Some(queue) = self.interface.packets.get(&number).copied() else { return false };
        let mut record = [0; 4];
        if self.memory.read(queue.record.wrapping_add(4), &mut record).is_err() {
            return true;
        }
        let (producer, last) = (u32::from_be_bytes(record) as u16, (1 << queue.log_blocks) - 1);
        let mut next = queue.next;
        // A producer that is ahead by more blocks than the ring has is an error of the host. No further
        // request is read then.
        while next != producer && producer.wrapping_sub(next) <= 1 << queue.log_blocks {
            let slot = u64::from(next & last) * BLOCK;
            let mut block = [0; BLOCK as usize];
            let is_read = self.memory.read(queue.ring.wrapping_add(slot), &mut block).is_ok();
            let is_next = |brought: &[u8; 64]| brought.get(1..3) == Some(&next.to_be_bytes()[..]);
            block = brought.take().filter(is_next).unwrap_or(block);
            let Some((control, _)) = ControlSegment::read_from_prefix(&block).ok().filter(|_| is_read) else {
                break;
            };
            let blocks = (u16::from(control.qpn_ds_word().ds()).max(1)).div_ceil(4);
            let opcode = control.opcode_word().opcode();
            if [SEND, LARGE_SEND].contains(&opcode) {
                let mut request = block.to_vec();
                for ahead in 1..blocks {
                    let mut more = [0; BLOCK as usize];
                    let slot = u64::from(next.wrapping_add(ahead) & last) * BLOCK;
                    // A failed read leaves the bytes 0. The data segments in them then have key 0, which is
                    // not valid.
                    let _ = self.memory.read(queue.ring.wrapping_add(slot), &mut more);
                    request.extend(more);
                }
                request.truncate(usize::from(control.qpn_ds_word().ds()) * 16);
                self.take_packet(number, queue.pd, opcode == LARGE_SEND, &request);
            }
            if control.flags().ce() >= FmCeSe::CE_ALWAYS {
                let subject = Subject { qpn: number, user_index: 0, counter: next, wqe_opcode: opcode };
                let entry = cqe::done(subject, CqeOpcode::REQUESTER, 0, 0, false);
                self.post(queue.cqn, entry);
            }
            next = next.wrapping_add(blocks);
        }
        if let Some(queue) = self.interface.packets.get_mut(&number) {
            queue.next = next;
        }
        true
    }

    /// Counts the packet of a request, and shows it to the device's observer (tap). A packet that the device
    /// cannot read counts as an error of the port.
    fn take_packet(&mut self, queue: u32, pd: u32, is_large: bool, request: &[u8]) {
        let packet = PacketRequest::parse(request, is_large);
        let read = packet.and_then(|packet| Some((self.first_bytes(queue, pd, &packet)?, packet)));
        let (packets, bytes) = read.as_ref().map_or((0, 0), |(_, packet)| packet.size());
        let header = read.as_ref().map_or(&[][..], |(header, _)| header);
        kind_of(&mut self.interface.traffic, header).count(packets.max(1), bytes);
        if let Some((_, packet)) = read.as_ref().filter(|_| self.network.is_some() && !header.is_empty()) {
            self.send_frames(queue, pd, packet);
        }
        self.tap.show(Seen::Packet { queue, packets, bytes, header });
    }

    /// Returns the first bytes of a packet, for the device's observer. Returns `None` if the device cannot
    /// read them.
    fn first_bytes(&self, queue: u32, pd: u32, packet: &PacketRequest<'_>) -> Option<Vec<u8>> {
        let mut header: Vec<u8> = packet.inline.iter().take(SHOWN).copied().collect();
        for range in &packet.ranges {
            let length = range.length.min((SHOWN - header.len()) as u64);
            let range = Range { length, ..*range };
            header.extend(self.path(queue, pd).gather(&self.memory, range, Right::LocalRead).ok()?.0);
        }
        Some(header)
    }

    /// Makes the frames of a request, and adds them to the frames that wait to be sent to other ports.
    fn send_frames(&mut self, queue: u32, pd: u32, packet: &PacketRequest<'_>) {
        let (_, bytes) = packet.size();
        if bytes > MOST_BYTES {
            return;
        }
        let mut payload = Vec::new();
        for range in &packet.ranges {
            match self.path(queue, pd).gather(&self.memory, *range, Right::LocalRead) {
                Ok((read, _)) => payload.extend(read),
                Err(_) => return,
            }
        }
        for frame in frames::frames(packet.inline, &payload, packet.cut, packet.checksums) {
            self.send_frame(frame);
        }
    }

    /// QUERY_VPORT_COUNTER: returns the counters of packets that the port has sent and received, and clears
    /// them if the command asks for it.
    pub(super) fn query_vport_counter(&mut self, request: &Request) -> Result<Vec<u8>, Refused> {
        const CLEAR: u8 = 0x80;
        let clears = request.u8(0x18)? & CLEAR != 0;
        let Traffic { errors, unicast, multicast, broadcast } = self.interface.traffic;
        let mut answer = reply::with(0x210, 0, &[]);
        let received = self.interface.received;
        for (at, counter) in [
            (0x20, errors),
            (0x70, received.broadcast),
            (0x80, broadcast),
            (0x90, received.unicast),
            (0xa0, unicast),
            (0xb0, received.multicast),
            (0xc0, multicast),
        ] {
            answer.splice(at..at + 8, counter.packets.to_be_bytes());
            answer.splice(at + 8..at + 16, counter.bytes.to_be_bytes());
        }
        if clears {
            self.interface.traffic = Traffic::default();
            self.interface.received = Traffic::default();
        }
        Ok(answer)
    }

    /// Writes the counters of packets into the register PPCNT (`data`): the group of IEEE 802.3 has the sent
    /// and the received packets, and the group of RFC 2863 has the sent packets. All other counters are 0.
    ///
    /// # Errors
    /// [`Refused::PARAMETER`] for a request to clear counters.
    pub(super) fn put_port_counters(&self, data: &mut [u8]) -> Result<(), Refused> {
        const COUNTERS: usize = 8;
        let Traffic { errors, unicast, multicast, broadcast } = self.interface.traffic;
        let sum = |of: fn(Counter) -> u64| {
            [unicast, multicast, broadcast].into_iter().fold(0_u64, |sum, one| sum.wrapping_add(of(one)))
        };
        let (packets, bytes) = (sum(|counter| counter.packets), sum(|counter| counter.bytes));
        let received = self.interface.received;
        let taken = [received.unicast, received.multicast, received.broadcast];
        let taken = taken.into_iter().fold(Counter::default(), |sum, one| Counter {
            packets: sum.packets.wrapping_add(one.packets),
            bytes: sum.bytes.wrapping_add(one.bytes),
        });
        let group = data.get(3).copied().unwrap_or_default() & 0x3f;
        let counters: &[(usize, u64)] = match group {
            0 => &[
                (0x00, packets),
                (0x08, taken.packets),
                (0x20, bytes),
                (0x28, taken.bytes),
                (0x30, multicast.packets),
                (0x38, broadcast.packets),
                (0x40, received.multicast.packets),
                (0x48, received.broadcast.packets),
            ],
            1 => &[
                (0x28, bytes),
                (0x30, unicast.packets),
                (0x40, errors.packets),
                (0x58, multicast.packets),
                (0x60, broadcast.packets),
            ],
            _ => &[],
        };
        if data.get(4).is_some_and(|byte| byte & 0x80 != 0) {
            return Err(Refused::PARAMETER);
        }
        for (at, counter) in counters {
            if let Some(place) = data.get_mut(COUNTERS + at..COUNTERS + at + 8) {
                place.copy_from_slice(&counter.to_be_bytes());
            }
        }
        Ok(())
    }
}
