//! Finds work requests that doorbell records have announced, and prints them on standard error.

use crate::ground::notice;
use crate::ground::process_memory::ProcessMemory;
use crate::state::object::Qp;
use mlx5_mkey::inspect::cqe::CompletionEntry;
use mlx5_record::{Queue, request};
use mlx5_softdev::{Cause, Memory};
use std::io::Write as _;

const BLOCK: u64 = 64;

/// Hands to `take` the requests of a send queue that its doorbell record has announced since the last call,
/// each with the number of its first block.
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

/// Prints a request on standard error, with one call. Ignores a failure, since the program may have closed
/// its standard error.
pub(crate) fn print(queue: &Queue, index: u16, bytes: &[u8]) {
    let text = request(queue, index, bytes);
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
