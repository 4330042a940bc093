//! Formats posted requests as plain text, as the option `--log` prints them.

use super::queue::Queue;
use mlx5_mkey::inspect::{Style, WorkRequest};

/// Returns the text of a request, with the findings: the errors for which a device would refuse the request.
/// `block` is the number of the request's first block. `cargo xtask decode` parses this text.
pub fn request(queue: &Queue, block: u16, bytes: &[u8]) -> String {
    let between = if queue.kind_name().is_empty() { "" } else { " " };
    let place = format!("mlx5_0{between}{} qp {:#x} block {block}", queue.kind_name(), queue.number);
    match WorkRequest::parse(bytes) {
        Ok(request) => {
            format!("{place}\n{}", request.on_queue(queue.kind()).pretty(queue.device, Style::Plain))
        }
        Err(error) => format!("{place}: {error}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mlx5_softdev::Transport;

    /// The expected lines are in a file that the test of `cargo xtask decode` also reads, so that both tests
    /// agree on the format.
    #[test]
    fn requests_are_written_as_decode_reads_them() {
        let nop = [0, 0, 1, 0, 0, 0, 0x40, 1, 0, 0, 0, 8, 0, 0, 0, 0];
        let write = [[0, 0, 2, 8, 0, 0, 0x41, 3, 0, 0, 0, 8, 0, 0, 0, 0], [0x11; 16], [0x22; 16]].concat();
        let log = [(0x40, 1, &nop[..]), (0x41, 2, &write)]
            .map(|(qpn, index, bytes)| request(&Queue::connected(qpn), index, bytes) + "\n");
        assert_eq!(log.concat(), include_str!("../log.txt"));
    }

    #[test]
    fn a_datagram_has_its_address_in_words() {
        let control = [0, 0, 1, 10, 0, 0, 0x42, 2, 0, 0, 0, 8, 0, 0, 0, 0];
        let address = [0, 0, 0, 0x11, 0, 0, 0, 0, 0, 0, 0, 0x43, 0, 0, 0, 0];
        let datagram = Queue { transport: Transport::UnreliableDatagram, ..Queue::connected(0x42) };
        let text = request(&datagram, 1, &[control, address].concat());
        let words = "mlx5_0 ud qp 0x42 block 1\nSEND: 0 bytes in 0 data segments, to queue pair 0x43, \
                     Q_Key 0x00000011";
        assert!(text.starts_with(words), "{text}");
    }
}
