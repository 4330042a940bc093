//! Copies out of memory that the device, or a peer through it, may write at any time.

#![allow(unsafe_code)]

/// The type that one load reads: the widest that every processor of the architecture supports.
#[cfg(target_arch = "x86_64")]
type Word = core::arch::x86_64::__m128i;
#[cfg(target_arch = "aarch64")]
type Word = core::arch::aarch64::uint8x16_t;
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
type Word = u64;

const WORD: usize = size_of::<Word>();

/// Number of words that one iteration of the loop copies. With only one, the loop counter would cost as much
/// time as the copies.
const TURN: usize = 4;

/// Copies `to.len()` bytes from `from`.
///
/// Every byte is read once, by a volatile load. After a plain copy the compiler may use the original instead
/// of the copy, or read a byte twice, because it assumes that nobody changes the original. A program could
/// then use other bytes than those that it has checked.
///
/// # Safety
/// The caller ensures that `to.len()` bytes at `from` are readable and initialised, and that no Rust code
/// writes to them meanwhile.
pub(in crate::devx) unsafe fn copy_out(from: *const u8, to: &mut [u8]) {
    let aligned = from.align_offset(WORD).min(to.len());
    let (head, rest) = to.split_at_mut(aligned);
    let (words, tail) = rest.as_chunks_mut::<WORD>();
    let tail_at = aligned.wrapping_add(words.len().wrapping_mul(WORD));
    let (turns, single) = words.as_chunks_mut::<TURN>();
    let mut next = from.wrapping_add(aligned).cast::<Word>();
    for turn in turns {
        // SAFETY: `turn` has room for as many words as are read. The words are among the caller's bytes, and
        // aligned because the first word is at offset `aligned`.
        let read: [Word; TURN] = core::array::from_fn(|at| unsafe { next.add(at).read_volatile() });
        next = next.wrapping_add(TURN);
        for (room, word) in turn.iter_mut().zip(read) {
            // SAFETY: `room` has as many bytes as a word.
            unsafe { room.as_mut_ptr().cast::<Word>().write_unaligned(word) };
        }
    }
    for room in single {
        // SAFETY: as in the loop above, the word is aligned and among the caller's bytes, and `room` has as
        // many bytes as a word.
        unsafe { room.as_mut_ptr().cast::<Word>().write_unaligned(next.read_volatile()) };
        next = next.wrapping_add(1);
    }
    for (part, bytes) in [(0, head), (tail_at, tail)] {
        for (at, room) in bytes.iter_mut().enumerate() {
            // SAFETY: the byte is among the caller's bytes, and a byte needs no alignment.
            *room = unsafe { from.add(part + at).read_volatile() };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_byte_is_copied_to_its_place_and_no_other_is_written() {
        let original: [u8; 256] = core::array::from_fn(|at| at as u8 ^ 0x5a);
        for (begin, length) in (0..33).flat_map(|begin| (0..200).map(move |length| (begin, length))) {
            let mut copy = [0xee; 256];
            let room = &mut copy[begin % 7..][..length];
            // SAFETY: the bytes are those of an array, which nobody writes.
            unsafe { copy_out(original[begin..].as_ptr(), room) };
            assert_eq!(room, &original[begin..][..length], "{begin} {length}");
            let rest = copy[..begin % 7].iter().chain(&copy[begin % 7 + length..]);
            assert!(rest.copied().all(|byte| byte == 0xee), "{begin} {length}");
        }
    }
}
