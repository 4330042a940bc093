//! Compares the rings that libmlx5 (the reference) and the library have written.

use super::sizes::PATTERN;
use mlx5_mkey::inspect::Requests;
use std::error::Error;
use std::fmt::Write as _;
use std::io;

/// A result, or an error: an [`io::Error`] of the installed libraries or of the software devices, or a
/// difference between libmlx5 and the library, in words.
pub(super) type Outcome<T> = Result<T, Box<dyn Error>>;

/// Adds words to a difference. Other errors stay as they are.
pub(super) fn explained<T>(result: Outcome<T>, words: impl FnOnce() -> String) -> Outcome<T> {
    result.map_err(|what| if what.is::<io::Error>() { what } else { format!("{what}\n{}", words()).into() })
}

pub(super) fn in_words(bytes: &[u8]) -> String {
    let mut text = String::new();
    for (offset, request) in Requests::new(bytes) {
        // Writing to a string never fails.
        let _ = writeln!(text, "block {}:\n{request}", offset / 64);
    }
    text
}

const RDMA_WRITE_IMM: u8 = 0x09;
const SEND_IMM: u8 = 0x0b;
const SEND_INVALIDATE: u8 = 0x01;
const FETCH_ADD: u8 = 0x12;
pub(super) const SET_PSV: u8 = 0x20;
const UMR: u8 = 0x25;
/// The bit CHECK_FREE of the UMR flags. A UMR that binds a memory window has it.
const CHECK_FREE: u8 = 1 << 5;

/// Compares two rings in which libmlx5 and the library have written `count` blocks from block `start` on,
/// possibly across the end of the ring.
///
/// libmlx5's ring was filled with [`PATTERN`] before. `before` is the earlier content of the library's ring.
pub(super) fn compare(
    ours: &[u8],
    before: &[u8],
    theirs: &[u8],
    start: usize,
    count: usize,
) -> Option<String> {
    let blocks = theirs.len() / 64;
    if ours.len() != theirs.len() || count > blocks {
        return Some(format!("{count} blocks in rings of {} and {} bytes", ours.len(), theirs.len()));
    }
    for beside in start + count..start + blocks {
        let range = beside % blocks * 64..beside % blocks * 64 + 64;
        if ours[range.clone()] != before[range.clone()] {
            return Some("blocks written beside the requests".into());
        }
        if theirs[range] != [PATTERN; 64] {
            return Some("blocks written beside the requests, by the reference".into());
        }
    }
    let (ours, theirs) = (straight(ours, start, count), straight(theirs, start, count));
    let mut block = 0;
    while block < count {
        let from = block * 64;
        let length = usize::from(theirs[from + 7] & 0x3f) * 16;
        if length == 0 || from + length > theirs.len() {
            return Some(format!("block {block} of the reference has no size, or too large a one"));
        }
        let opcode = theirs[from + 3];
        for at in 0..length {
            let (our, their) = (ours[from + at], theirs[from + at]);
            // Whether libmlx5 may leave this byte unwritten, and the byte still has the pattern.
            let untouched = their == PATTERN && may_be_untouched(opcode, at, length, &theirs[from..]);
            if our != their && !untouched {
                return Some(format!(
                    "block {block} byte {at} of {length}: {our:#04x}, the reference has {their:#04x}"
                ));
            }
        }
        block += length.div_ceil(64);
    }
    None
}

/// Copies `count` blocks of a ring from block `start` on. After the ring's last block follows its first.
pub(super) fn straight(ring: &[u8], start: usize, count: usize) -> Vec<u8> {
    ring.iter().cycle().skip(start * 64).take(count * 64).copied().collect()
}

/// Returns whether libmlx5 leaves this byte of a request unwritten.
fn may_be_untouched(opcode: u8, at: usize, length: usize, request: &[u8]) -> bool {
    /// Length of a UMR that invalidates: control segment, UMR control segment and mkey context.
    const INVALIDATE_BYTES: usize = 128;
    match opcode {
        // libmlx5 writes only two fields of the mkey context, which begins at byte 64: the state (64) and the
        // key (68..72).
        UMR if length == INVALIDATE_BYTES => (65..68).contains(&at) || at >= 72,
        // In a UMR that binds a window, libmlx5 also writes rights (66), start and length (80..96).
        UMR => {
            let binds = request[16] & CHECK_FREE != 0;
            binds && ([65, 67].contains(&at) || (72..80).contains(&at) || (96..128).contains(&at))
        }
        // A fetch-and-add has no compare value: libmlx5 leaves the bytes for it unwritten.
        FETCH_ADD => (12..16).contains(&at) || (40..48).contains(&at),
        RDMA_WRITE_IMM | SEND_IMM | SEND_INVALIDATE => in_inline_padding(opcode, at, length, request),
        _ => (12..16).contains(&at) || opcode != SET_PSV && in_inline_padding(opcode, at, length, request),
    }
}

/// Returns whether this byte is padding after inline data, in the last 16 bytes of the request.
fn in_inline_padding(opcode: u8, at: usize, length: usize, request: &[u8]) -> bool {
    // RDMA WRITE (8) and READ (16) have a remote address segment after the control segment.
    let header = if matches!(opcode, 0x08 | RDMA_WRITE_IMM | 0x10) { 32 } else { 16 };
    if length <= header {
        return false;
    }
    let count = word(request, header);
    let data = (count & 0x3ff) as usize;
    let inline = count >> 31 == 1;
    let end = header + 4 + data;
    inline && end.next_multiple_of(16) == length && at >= end
}

pub(super) fn word(bytes: &[u8], at: usize) -> u32 {
    u32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two rings, each with an empty block, then a SEND with 5 bytes of inline data: first as the library
    /// writes it, then as libmlx5 does.
    fn rings() -> (Vec<u8>, Vec<u8>) {
        let (mut ours, mut theirs) = (vec![!PATTERN; 192], vec![PATTERN; 192]);
        for ring in [&mut ours, &mut theirs] {
            ring[64..76].copy_from_slice(&[0, 0, 1, 0x0a, 0, 0, 7, 2, 0, 0, 0, 0]);
            ring[80..89].copy_from_slice(&[0x80, 0, 0, 5, 1, 2, 3, 4, 5]);
        }
        (ours, theirs)
    }

    #[test]
    fn only_what_the_reference_left_alone_may_differ() {
        let (ours, theirs) = rings();
        let before = vec![!PATTERN; 192];
        assert_eq!(compare(&ours, &before, &theirs, 1, 1), None);
        // A difference in the inline data, or in the control segment without its immediate data, must be
        // found.
        for at in (64..76).chain(80..89) {
            let mut wrong = ours.clone();
            wrong[at] ^= 1;
            assert!(compare(&wrong, &before, &theirs, 1, 1).is_some(), "byte {at}");
        }
        // A changed byte in a block next to the request must be found.
        for at in [0, 63, 128, 191] {
            let mut wrong = ours.clone();
            wrong[at] ^= 1;
            assert!(compare(&wrong, &before, &theirs, 1, 1).is_some(), "byte {at}");
        }
        // If libmlx5 writes the immediate data, a difference there must be found too.
        let mut wrong = theirs.clone();
        wrong[76] = 0;
        assert!(compare(&ours, &before, &wrong, 1, 1).is_some());
    }

    #[test]
    fn requests_go_on_at_the_ring_s_begin() {
        let (mut ours, mut theirs) = rings();
        let before = vec![!PATTERN; 192];
        for ring in [&mut ours, &mut theirs] {
            // This SEND of six octowords is in the last block of the ring and in the first one.
            ring.rotate_left(64);
            ring.copy_within(0..64, 128);
            ring[135] = 6;
            ring[0..64].fill(7);
        }
        ours[64..128].fill(!PATTERN);
        theirs[64..128].fill(PATTERN);
        ours[140..144].fill(0);
        ours[128 + 25..192].fill(9);
        theirs[128 + 25..192].fill(9);
        assert_eq!(compare(&ours, &before, &theirs, 2, 2), None);
        ours[31] = 8;
        assert!(compare(&ours, &before, &theirs, 2, 2).is_some());
        ours[31] = 7;
        ours[64] = 8;
        assert!(compare(&ours, &before, &theirs, 2, 2).is_some());
    }
}
