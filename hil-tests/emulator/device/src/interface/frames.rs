//! Offloads of Ethernet frames: the device cuts a payload into frames (LSO), and computes the checksums of
//! IPv4, TCP and UDP (`en_tx.c` of Linux's mlx5_core).

use alloc::vec::Vec;

/// The number of bytes of an Ethernet header.
const ETHERNET: usize = 14;

/// Types of Ethernet frames (EtherType).
mod kind {
    pub(super) const IPV4: u16 = 0x0800;
    pub(super) const IPV6: u16 = 0x86dd;
    pub(super) const VLAN: u16 = 0x8100;
}

/// Protocols above IP.
const TCP: u8 = 6;
const UDP: u8 = 17;

/// The TCP flags that only the last frame has (FIN, PSH) and the flag that only the first frame has (CWR)
/// when the device cuts data into frames.
const ONLY_LAST: u8 = 0x09;
const ONLY_FIRST: u8 = 0x80;

/// The checksums that the device must compute (`cs_flags` of Linux's `mlx5_wqe_eth_seg`): of the IPv4 header,
/// and of TCP or UDP.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Checksums {
    pub(super) network: bool,
    pub(super) transport: bool,
}

/// Offsets in a frame: the IP header, the header above it, and the end of the IP packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Layout {
    network: usize,
    transport: usize,
    end: usize,
    protocol: u8,
    is_v6: bool,
}

fn half(frame: &[u8], at: usize) -> Option<u16> {
    frame.get(at..)?.first_chunk().map(|bytes| u16::from_be_bytes(*bytes))
}

fn put(frame: &mut [u8], at: usize, value: u16) {
    if let Some(place) = frame.get_mut(at..).and_then(<[u8]>::first_chunk_mut) {
        *place = value.to_be_bytes();
    }
}

/// Returns the type of a frame and the offset of the bytes after the type. VLAN tags are skipped.
fn kind(frame: &[u8]) -> Option<(u16, usize)> {
    let mut at = ETHERNET - 2;
    while half(frame, at)? == kind::VLAN {
        at += 4;
    }
    Some((half(frame, at)?, at + 2))
}

impl Layout {
    /// Returns the layout of a frame with an IP packet. Returns `None` for an IPv6 packet with extension
    /// headers.
    fn of(frame: &[u8]) -> Option<Self> {
        let (kind, network) = kind(frame)?;
        let found = match kind {
            kind::IPV4 => {
                let words = frame.get(network)? & 0xf;
                let total = usize::from(half(frame, network + 2)?);
                let transport = network + usize::from(words) * 4;
                let protocol = *frame.get(network + 9)?;
                Self { network, transport, end: network + total, protocol, is_v6: false }
            }
            kind::IPV6 => {
                let end = network + 40 + usize::from(half(frame, network + 4)?);
                let protocol = *frame.get(network + 6)?;
                Self { network, transport: network + 40, end, protocol, is_v6: true }
            }
            _ => return None,
        };
        (found.end <= frame.len() && found.transport <= found.end).then_some(found)
    }

    /// Returns the offset of the checksum of TCP or UDP, or `None` for other protocols.
    fn checksum(&self) -> Option<usize> {
        match self.protocol {
            TCP => Some(self.transport + 16),
            UDP => Some(self.transport + 6),
            _ => None,
        }
    }

    /// Returns the source and destination addresses.
    fn addresses<'f>(&self, frame: &'f [u8]) -> &'f [u8] {
        let (first, length) = if self.is_v6 { (8, 32) } else { (12, 8) };
        frame.get(self.network + first..self.network + first + length).unwrap_or_default()
    }
}

/// Returns the sum of big-endian 16-bit words. An odd last byte counts as the upper half of a word. The
/// function `fold` makes the sum a ones' complement sum of 16 bits.
fn sum(bytes: &[u8]) -> u64 {
    let (words, rest) = bytes.as_chunks::<2>();
    let last = rest.first().map_or(0, |byte| u64::from(*byte) << 8);
    words.iter().fold(last, |sum, word| sum + u64::from(u16::from_be_bytes(*word)))
}

fn fold(mut sum: u64) -> u16 {
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}

/// Returns the sum of all words of a frame's IP packet, which a driver compares with the packet's checksums
/// (`check_sum` of Linux's `mlx5_cqe64`). Other frames are summed from the end of their Ethernet header on.
pub(super) fn received_sum(frame: &[u8]) -> u16 {
    let (first, end) = Layout::of(frame).map_or((ETHERNET, frame.len()), |found| (found.network, found.end));
    fold(sum(frame.get(first..end).unwrap_or_default()))
}

/// Computes and writes the requested checksums of a frame.
fn complete(frame: &mut [u8], Checksums { network, transport }: Checksums) {
    let Some(layout) = Layout::of(frame) else { return };
    if network && !layout.is_v6 {
        put(frame, layout.network + 10, 0);
        let header = fold(sum(frame.get(layout.network..layout.transport).unwrap_or_default()));
        put(frame, layout.network + 10, !header);
    }
    if let Some(place) = layout.checksum().filter(|place| transport && place + 2 <= layout.end) {
        put(frame, place, 0);
        let body = frame.get(layout.transport..layout.end).unwrap_or_default();
        let checksum = transport_checksum(layout.addresses(frame), layout.protocol, body);
        put(frame, place, checksum);
    }
}

/// Returns the checksum of a TCP segment or a UDP datagram, whose own checksum is 0 in `body`. `addresses`
/// are source and destination of the IP packet, and `protocol` is the number of TCP or UDP.
pub fn transport_checksum(addresses: &[u8], protocol: u8, body: &[u8]) -> u16 {
    let pseudo = sum(addresses) + body.len() as u64 + u64::from(protocol);
    match !fold(pseudo + sum(body)) {
        // In UDP, 0 means that a datagram has no checksum.
        0 if protocol == UDP => 0xffff,
        checksum => checksum,
    }
}

/// Returns the frames of a request: its header and payload as one frame or, with `cut`, the header before
/// each part of at most `cut` bytes of the payload.
pub(super) fn frames(header: &[u8], payload: &[u8], cut: Option<u16>, checksums: Checksums) -> Vec<Vec<u8>> {
    let Some(cut) = cut.map(usize::from).filter(|cut| *cut != 0) else {
        let mut frame = [header, payload].concat();
        complete(&mut frame, checksums);
        return [frame].into();
    };
    let count = payload.len().div_ceil(cut).max(1);
    let part = |number: usize| {
        let begin = number * cut;
        let bytes = payload.get(begin..payload.len().min(begin + cut)).unwrap_or_default();
        let mut frame = [header, bytes].concat();
        adjust(&mut frame, number, begin, number + 1 == count);
        complete(&mut frame, checksums);
        frame
    };
    (0..count).map(part).collect()
}

/// Adjusts the header of one of the frames into which data are cut: lengths, the identification of IPv4, and
/// sequence number and flags of TCP. `number` is the frame's index, and `begin` the number of payload bytes
/// before the frame.
fn adjust(frame: &mut [u8], number: usize, begin: usize, is_last: bool) {
    let Some((kind, network)) = kind(frame) else { return };
    let length = frame.len().saturating_sub(network);
    match kind {
        kind::IPV4 => {
            put(frame, network + 2, length as u16);
            let identification = half(frame, network + 4).unwrap_or_default();
            put(frame, network + 4, identification.wrapping_add(number as u16));
        }
        kind::IPV6 => put(frame, network + 4, length.saturating_sub(40) as u16),
        _ => return,
    }
    let Some(layout) = Layout::of(frame) else { return };
    match layout.protocol {
        TCP => {
            let place = frame.get_mut(layout.transport + 4..).and_then(<[u8]>::first_chunk_mut);
            if let Some(place) = place {
                *place = u32::from_be_bytes(*place).wrapping_add(begin as u32).to_be_bytes();
            }
            if let Some(flags) = frame.get_mut(layout.transport + 13) {
                *flags &= if is_last { 0xff } else { !ONLY_LAST };
                *flags &= if number == 0 { 0xff } else { !ONLY_FIRST };
            }
        }
        UDP => put(frame, layout.transport + 4, (layout.end - layout.transport) as u16),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    /// A frame of IPv4 and TCP without data: sequence number 0x1000, flags CWR, ACK, PSH and FIN.
    fn header() -> Vec<u8> {
        let mut frame = [2; 12].to_vec();
        frame.extend([0x08, 0x00]);
        frame.extend([0x45, 0, 0, 40, 0, 7, 0, 0, 64, TCP, 0xaa, 0xaa, 192, 0, 2, 1, 192, 0, 2, 2]);
        frame.extend([0x12, 0x34, 0x56, 0x78, 0, 0, 0x10, 0, 0, 0, 0, 0, 0x50, 0x99, 1, 0, 0xaa, 0xaa, 0, 0]);
        frame
    }

    /// A frame with a VLAN tag, IPv6 and UDP, with three bytes of data.
    fn datagram() -> Vec<u8> {
        let mut frame = [2; 12].to_vec();
        frame.extend([0x81, 0, 0, 5, 0x86, 0xdd, 0x60, 0, 0, 0, 0, 11, UDP, 64]);
        frame.extend([7; 32]);
        frame.extend([0, 1, 0, 2, 0, 11, 0, 0, 1, 2, 3]);
        frame
    }

    const BOTH: Checksums = Checksums { network: true, transport: true };

    /// Returns whether the checksums are right. In this case the IPv4 header sums to all ones. The rest of
    /// the packet also sums to all ones, together with addresses, length and protocol.
    fn is_right(frame: &[u8]) -> bool {
        let layout = Layout::of(frame).unwrap();
        let body = &frame[layout.transport..layout.end];
        let pseudo = sum(layout.addresses(frame)) + body.len() as u64 + u64::from(layout.protocol);
        (layout.is_v6 || fold(sum(&frame[layout.network..layout.transport])) == 0xffff)
            && fold(pseudo + sum(body)) == 0xffff
    }

    #[test]
    fn data_are_cut_into_frames_with_headers_of_their_own() {
        let payload: Vec<u8> = (0..25).collect();
        let made = frames(&header(), &payload, Some(10), BOTH);
        assert_eq!(made.iter().map(Vec::len).collect::<Vec<_>>(), [64, 64, 59]);
        assert!(made.iter().all(|frame| is_right(frame)));
        let numbers = |frame: &Vec<u8>| (frame[17], frame[19], frame[41], frame[47]);
        assert_eq!(
            made.iter().map(numbers).collect::<Vec<_>>(),
            [(50, 7, 0, 0x90), (50, 8, 10, 0x10), (45, 9, 20, 0x19)]
        );
        assert_eq!(made.concat().len(), 25 + 3 * 54);
        // UDP over IPv6: both headers have a length.
        let made = frames(&datagram()[..66], &payload, Some(20), BOTH);
        let lengths = |frame: &Vec<u8>| (frame.len(), [frame[22], frame[23]], [frame[62], frame[63]]);
        let lengths: Vec<_> = made.iter().map(lengths).collect();
        assert_eq!(lengths, [(86, [0, 28], [0, 28]), (71, [0, 13], [0, 13])]);
        assert!(made.iter().all(|frame| is_right(frame)));
    }

    #[test]
    fn checksums_are_written_where_the_host_left_them() {
        let whole = |checksums| frames(&header(), &[], None, checksums).concat();
        assert_eq!(whole(Checksums::default()), header());
        assert!(is_right(&whole(BOTH)) && !is_right(&header()));
        // An IPv4 header with a right checksum sums to all ones, so only the bytes after it count.
        let frame = whole(BOTH);
        assert_eq!(received_sum(&frame), fold(0xffff + sum(&frame[34..])));
        let mut datagram = datagram();
        let frame = frames(&datagram, &[], None, BOTH).concat();
        assert!(is_right(&frame));
        // The padding of a short frame is no part of the packet.
        assert_eq!(received_sum(&[frame.clone(), vec![9; 4]].concat()), received_sum(&frame));
        // A datagram that ends before its checksum stays as it is.
        datagram[23] = 7;
        assert_eq!(frames(&datagram, &[], None, BOTH).concat(), datagram);
    }

    /// The expected checksums were computed by hand.
    #[test]
    fn checksums_have_their_value_and_place() {
        let mut expected = header();
        expected[24..26].copy_from_slice(&[0xf6, 0xc5]);
        expected[50..52].copy_from_slice(&[0xb1, 0x9b]);
        assert_eq!(frames(&header(), &[], None, BOTH).concat(), expected);
        let mut expected = datagram();
        expected[64..66].copy_from_slice(&[0x8b, 0x63]);
        assert_eq!(frames(&datagram(), &[], None, BOTH).concat(), expected);
        // In these two, all words sum to 0xffff, and the checksum is 0.
        let checksums = [(UDP, [0xff, 0xec]), (TCP, [0xff, 0xf7])];
        assert_eq!(checksums.map(|(protocol, body)| transport_checksum(&[], protocol, &body)), [0xffff, 0]);
    }

    #[test]
    fn a_frame_cut_short_is_left_as_it_is() {
        let frame = header();
        for length in 0..frame.len() {
            let _ = frames(&frame[..length], &[1, 2, 3], Some(2), BOTH);
            let _ = received_sum(&frame[..length]);
        }
    }
}
