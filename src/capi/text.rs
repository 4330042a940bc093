//! Writes text to memory of a C caller.

#![allow(unsafe_code)] // The function `text` writes through a pointer of the caller.

use core::ffi::c_char;
use core::fmt::{self, Write};
use core::mem::MaybeUninit;

/// Writes a text and a NUL. The text is cut off if `size` bytes are too few. Returns the length of the whole
/// text in bytes, without the NUL.
///
/// # Safety
/// The caller ensures that `first` is NULL, or leads to `size` bytes that nobody else uses meanwhile.
pub(super) unsafe fn text(first: *mut c_char, size: usize, words: &dyn fmt::Display) -> usize {
    let room = match first.is_null() {
        true => &mut [],
        // SAFETY: the caller ensures that `first` leads to `size` bytes. `c_char` and `MaybeUninit<u8>` are
        // both one byte.
        false => unsafe { core::slice::from_raw_parts_mut(first.cast::<MaybeUninit<u8>>(), size) },
    };
    let mut text = Text { room, length: 0 };
    // Writing to `Text` never fails.
    let _ = write!(text, "{words}");
    let end = text.length.min(text.room.len().saturating_sub(1));
    if let Some(end) = text.room.get_mut(end) {
        end.write(0);
    }
    text.length
}

/// Writes a text to `room` and counts its bytes.
struct Text<'t> {
    room: &'t mut [MaybeUninit<u8>],
    /// Bytes of the text so far, including those that had no room.
    length: usize,
}

impl Write for Text<'_> {
    fn write_str(&mut self, words: &str) -> fmt::Result {
        for (place, byte) in self.room.iter_mut().skip(self.length).zip(words.bytes()) {
            place.write(byte);
        }
        self.length = self.length.saturating_add(words.len());
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_ends_with_a_nul_in_any_room() {
        for size in 0..9 {
            let mut bytes = [0x55; 9];
            // SAFETY: the array has `size` bytes.
            let length = unsafe { text(bytes.as_mut_ptr(), size, &"seventy") };
            assert_eq!(length, 7);
            let kept = size.saturating_sub(1).min(7);
            assert!(bytes.iter().zip(b"seventy").take(kept).all(|(byte, wanted)| *byte as u8 == *wanted));
            assert!(size == 0 || bytes[kept] == 0);
            assert!(bytes[size..].iter().all(|byte| *byte == 0x55), "{size}");
        }
        // SAFETY: NULL stands for no room.
        assert_eq!(unsafe { text(core::ptr::null_mut(), 9, &"seventy") }, 7);
    }
}
