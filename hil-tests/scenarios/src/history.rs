//! The last requests and completions of a board as text, for the report of a failed case.

use crate::board::{Board, QueuePairView};
use alloc::string::String;
use alloc::vec::Vec;
use mlx5_mkey::inspect::{DeviceContext, WorkRequest};
use mlx5_mkey::wire::ctrl::ControlSegment;
use zerocopy::FromBytes;

/// The most requests of a queue pair that a report shows.
const REQUESTS: usize = 8;
/// The most queue pairs that a report shows.
const QUEUE_PAIRS: usize = 4;
const COMPLETIONS: usize = 16;

const BLOCK: usize = 64;

/// Describes the newest queue pairs: their states, last requests and last completions.
pub fn lines(board: &mut dyn Board) -> Vec<String> {
    let mut lines = Vec::new();
    let queue_pairs = board.queue_pairs();
    for view in queue_pairs.iter().skip(queue_pairs.len().saturating_sub(QUEUE_PAIRS)) {
        let QueuePairView { qpn, state, next_block, send_ring, blocks } = view;
        lines.push(format!("queue pair {qpn:#x}: {state}, the device is at block {next_block}"));
        let ring = board.read(*send_ring, blocks * BLOCK);
        lines.extend(requests(*qpn, *next_block, &ring));
    }
    let completions = board.completions();
    lines.extend(completions.into_iter().rev().take(COMPLETIONS).rev());
    lines
}

/// Describes the last requests of a send ring. A block of the ring is the start of a request if its bytes,
/// read as a control segment, have the block's own number and this queue pair number. `next` is the next
/// block that the device executes.
fn requests(qpn: u32, next: u16, ring: &[u8]) -> Vec<String> {
    let count = ring.len() / BLOCK;
    let mut found = Vec::new();
    for slot in 0..count {
        let Some(Ok((control, _))) = ring.get(slot * BLOCK..).map(ControlSegment::read_from_prefix) else {
            continue;
        };
        let index = control.opcode_word().wqe_index();
        if control.qpn_ds_word().qpn() != qpn || usize::from(index) % count != slot {
            continue;
        }
        // A request may cross the end of the ring.
        let length = (usize::from(control.qpn_ds_word().ds()) * 16).clamp(16, ring.len());
        let bytes: Vec<u8> = ring.iter().cycle().skip(slot * BLOCK).take(length).copied().collect();
        let words = match WorkRequest::parse(&bytes) {
            Ok(request) => format!("{}", request.summary(DeviceContext::UNKNOWN)),
            Err(error) => format!("{error}"),
        };
        // The distance in blocks from the next block that the device executes to the request, modulo 2^16. It
        // is negative for an executed request.
        let place = index.wrapping_sub(next) as i16;
        let done = if place < 0 { "" } else { ", not executed" };
        found.push((place, format!("queue pair {qpn:#x}: block {index}: {words}{done}")));
    }
    found.sort_unstable_by_key(|(place, _)| *place);
    let skipped = found.len().saturating_sub(REQUESTS);
    found.into_iter().skip(skipped).map(|(_, line)| line).collect()
}
