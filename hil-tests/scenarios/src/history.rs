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
    let own: Vec<u32> = queue_pairs.iter().map(|view| view.qpn).collect();
    let completions = own_completions(&own, &lines, board.completions());
    lines.extend(completions.into_iter().rev().take(COMPLETIONS).rev());
    lines
}

/// Leaves out the completions of earlier cases, which a board may still know. `own` are the numbers of the
/// case's queue pairs, `requests` the lines about their requests. A signature error names only its mkey: the
/// error is the case's own if one of the requests names this mkey, or if a completion of the case came
/// before.
fn own_completions(own: &[u32], requests: &[String], completions: Vec<String>) -> Vec<String> {
    let mut has_begun = false;
    let is_own = |line: &String| {
        if let Some(number) = number_after(line, "queue pair ") {
            let is_own = own.iter().any(|qpn| format!("{qpn:#x}") == number);
            has_begun |= is_own;
            return is_own;
        }
        let is_named = |mkey| requests.iter().any(|request| request.contains(mkey));
        has_begun || number_after(line, "mkey index ").is_none_or(is_named)
    };
    completions.into_iter().filter(is_own).collect()
}

/// Returns the number that follows `words` in a line, as the line has it.
fn number_after<'l>(line: &'l str, words: &str) -> Option<&'l str> {
    let (_, rest) = line.split_once(words)?;
    rest.split(|character: char| !character.is_ascii_alphanumeric()).next()
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn completions_of_earlier_cases_are_left_out() {
        let completions = [
            "completion: REQ: queue pair 0x10, counter 1",
            "completion: SIG_ERR: mkey index 0x000019, wire",
            "completion: SIG_ERR: mkey index 0x000020, wire",
            "completion: REQ: queue pair 0x12, counter 0",
            "completion: SIG_ERR: mkey index 0x000021, wire",
            "completion: REQ: queue pair 0x1, counter 0",
        ]
        .map(String::from);
        let requests = [String::from("queue pair 0x12: block 0: UMR configure mkey 0x000020/00: access")];
        let kept = own_completions(&[0x12], &requests, completions.clone().into());
        assert_eq!(kept, completions[2..5]);
    }
}
