//! Finds work requests whose doorbell has rung, and prints them on standard error.

use crate::ground::notice;
use crate::ground::process_memory::ProcessMemory;
use crate::state::object::Qp;
use mlx5_mkey::inspect::cqe::CompletionEntry;
use mlx5_mkey::inspect::{DeviceContext, QueueKind, Style, WorkRequest};
use mlx5_softdev::{Cause, Memory, Transport};
use std::io::Write as _;

const BLOCK: u64 = 64;

/// Hands to `take` the requests of a send queue whose doorbell has rung since the last call, each with the
/// number of its first block.
pub(crate) fn requests(qp: &mut Qp, mut take: impl FnMut(u16, &[u8])) {
    let mut record = [0; 4];
    if qp.blocks == 0 || ProcessMemory.read(qp.record.wrapping_add(4), &mut record).is_err() {
        return;
    }
    let rung = u32::from_be_bytes(record) as u16;
    let pending = u32::from(rung.wrapping_sub(qp.logged));
    if pending > qp.blocks {
        qp.logged = rung;
        return;
    }
    while qp.logged != rung {
        let mut bytes = vec![0; BLOCK as usize];
        if read_block(qp, qp.logged, &mut bytes).is_none() {
            return;
        }
        let octowords = bytes.get(7).copied().unwrap_or(0) & 0x3f;
        let blocks = u16::from(octowords.div_ceil(4)).clamp(1, rung.wrapping_sub(qp.logged));
        for index in 1..blocks {
            let mut block = vec![0; BLOCK as usize];
            if read_block(qp, qp.logged.wrapping_add(index), &mut block).is_none() {
                return;
            }
            bytes.append(&mut block);
        }
        bytes.truncate((usize::from(octowords) * 16).clamp(16, bytes.len()));
        take(qp.logged, &bytes);
        qp.logged = qp.logged.wrapping_add(blocks);
    }
}

fn read_block(qp: &Qp, number: u16, out: &mut [u8]) -> Option<()> {
    let slot = u64::from(u32::from(number) & qp.blocks.wrapping_sub(1));
    ProcessMemory.read(qp.sq.wrapping_add(slot * BLOCK), out).ok()
}

/// A queue pair whose requests are logged.
#[derive(Clone, Copy)]
pub(crate) struct Queue {
    pub(crate) number: u32,
    transport: Transport,
    pub(crate) device: DeviceContext,
}

impl Queue {
    pub(crate) fn of(qp: &Qp, device: DeviceContext) -> Self {
        Self { number: qp.number, transport: qp.transport, device }
    }

    #[cfg(test)]
    pub(crate) const fn connected(number: u32) -> Self {
        Self { number, transport: Transport::ReliableConnection, device: DeviceContext::UNKNOWN }
    }

    pub(crate) const fn kind(&self) -> QueueKind {
        match self.transport {
            Transport::UnreliableDatagram => QueueKind::Datagram,
            _ => QueueKind::Connected,
        }
    }

    /// Returns the name of the queue's kind for `--queue` of `cargo xtask decode`. The name is empty for a
    /// connected queue pair, the most common kind.
    pub(crate) const fn kind_name(&self) -> &'static str {
        match self.transport {
            Transport::UnreliableDatagram => "ud",
            _ => "",
        }
    }
}

/// Returns a request in words, with the findings for which a device would refuse it. `cargo xtask decode`
/// parses this text.
fn decoded(queue: &Queue, index: u16, bytes: &[u8]) -> String {
    let between = if queue.kind_name().is_empty() { "" } else { " " };
    let place = format!("mlx5_0{between}{} qp {:#x} block {index}", queue.kind_name(), queue.number);
    match WorkRequest::parse(bytes) {
        Ok(request) => {
            format!("{place}\n{}", request.on_queue(queue.kind()).pretty(queue.device, Style::Plain))
        }
        Err(error) => format!("{place}: {error}"),
    }
}

/// Prints a request on standard error, with one call. Ignores a failure, since the program may have closed
/// its standard error.
pub(crate) fn print(queue: &Queue, index: u16, bytes: &[u8]) {
    let text = decoded(queue, index, bytes);
    let _ = std::io::stderr().lock().write_all(format!("{text}\n").as_bytes());
}

/// Reports on standard error which request failed, and why.
pub(crate) fn failure(entry: &[u8; 64], cause: &Cause) {
    notice::always(&failed(entry, cause));
}

fn failed(entry: &[u8; 64], cause: &Cause) -> String {
    match CompletionEntry::parse(entry) {
        Ok(entry) => format!("mlx5_0 {}: {cause}", entry.summary(None)),
        Err(error) => format!("mlx5_0 {error}: {cause}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The expected lines are in a file that the test of `cargo xtask decode` also reads.
    #[test]
    fn requests_are_written_as_decode_reads_them() {
        let nop = [0, 0, 1, 0, 0, 0, 0x40, 1, 0, 0, 0, 8, 0, 0, 0, 0];
        let write = [[0, 0, 2, 8, 0, 0, 0x41, 3, 0, 0, 0, 8, 0, 0, 0, 0], [0x11; 16], [0x22; 16]].concat();
        let log = [(0x40, 1, &nop[..]), (0x41, 2, &write)]
            .map(|(qpn, index, bytes)| decoded(&Queue::connected(qpn), index, bytes) + "\n");
        assert_eq!(log.concat(), include_str!("../../../tests/log.txt"));
    }

    #[test]
    fn a_datagram_has_its_address_in_words() {
        let control = [0, 0, 1, 10, 0, 0, 0x42, 2, 0, 0, 0, 8, 0, 0, 0, 0];
        let address = [0, 0, 0, 0x11, 0, 0, 0, 0, 0, 0, 0, 0x43, 0, 0, 0, 0];
        let datagram = Queue { transport: Transport::UnreliableDatagram, ..Queue::connected(0x42) };
        let text = decoded(&datagram, 1, &[control, address].concat());
        let words = "mlx5_0 ud qp 0x42 block 1\nSEND: 0 bytes in 0 data segments, to queue pair 0x43, \
                     Q_Key 0x00000011";
        assert!(text.starts_with(words), "{text}");
    }
}
