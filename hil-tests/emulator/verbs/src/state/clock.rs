//! The device's clock, as the kernel maps it for programs: a page with the clock register, and a page that
//! relates the ticks of the register to the time of day.
//!
//! The clock runs at 1 GHz (`capabilities`), and shows this system's monotonic time. The clock register is
//! plain memory: the stand-in writes the time to it when a completion gets its stamp, and whenever a thread
//! does the device's work. The register may show a past moment, but never a moment before a stamp that a
//! program has seen.

use crate::ground::errno::Errno;
use crate::ground::sys::{self, Mapping};
use std::os::fd::{AsRawFd, OwnedFd};

/// Bytes of a page.
const PAGE: u64 = 4096;

/// The pages that a program maps (`MLX5_IB_MMAP_CORE_CLOCK`, `MLX5_IB_MMAP_CLOCK_INFO` of version 1), as page
/// numbers in the device's file. A page number consists of a command (5 or 7) and an index (0).
const CORE_CLOCK: u64 = 5 << 8;
const CLOCK_INFO: u64 = 7 << 8;

/// The ticks of the clock in a millisecond, equal to `device_frequency_khz` of the capabilities.
pub(crate) const KILOHERTZ: u64 = 1_000_000;

/// The valid bits of the clock, and the shift from ticks to nanoseconds (kernel `mlx5_core`,
/// `CLOCKSOURCE_MASK(41)`, `MLX5_CYCLES_SHIFT`).
const MASK: u64 = (1 << 41) - 1;
const SHIFT: u32 = 31;

/// The nanoseconds after which the base (a time of day, and the ticks at this time) is written anew, long
/// before the clock's 41 bits overflow.
const OVERFLOW: u64 = 1 << 30;

/// Offsets in bytes in `struct ib_uverbs_clock_info` of the words that are written: sign, nanoseconds,
/// cycles, multiplier and shift, mask, overflow. The fraction, at 24, stays 0.
const SIGN: u64 = 0;
const NANOSECONDS: u64 = 8;
const CYCLES: u64 = 16;
const FACTORS: u64 = 32;
const MASKED: u64 = 40;
const OVERFLOWS: u64 = 48;

/// Both pages of the clock.
#[derive(Debug)]
pub(crate) struct ClockPages {
    file: OwnedFd,
    pages: Mapping,
    /// The ticks in the base (a time of day, and the ticks at this time) that was written last.
    base: Option<u64>,
    sign: u32,
}

impl ClockPages {
    /// Makes the pages, which then show the current time.
    ///
    /// # Errors
    /// [`Errno::NOMEM`] if no memory or no descriptor is left.
    pub(crate) fn new() -> Result<Self, Errno> {
        let file = sys::memory(c"mlx5-clock", 2 * PAGE)?;
        let pages = Mapping::new(file.as_raw_fd(), 2 * PAGE, true)?;
        let mut clock = Self { file, pages, base: None, sign: 0 };
        clock.give_base();
        clock.ticks();
        Ok(clock)
    }

    /// Writes the current time to the clock register, and returns the time.
    pub(crate) fn ticks(&mut self) -> u64 {
        let now = sys::nanoseconds();
        // One store writes both halves of the register. A program reads the high half before and after the
        // low half, and so sees whether both halves belong to the same time.
        self.pages.store(0, now.to_be());
        if self.base.is_some_and(|base| now.saturating_sub(base) > OVERFLOW) {
            self.give_base();
        }
        now
    }

    /// Writes the base: a time of day, and the ticks at this time. A reader that sees an odd sign reads
    /// again.
    fn give_base(&mut self) {
        // The time of day is taken first, so that no stamp converts to a time of day in the future.
        let (day, now) = (sys::time_of_day(), sys::nanoseconds());
        let factors = [(1_u32 << SHIFT).to_ne_bytes(), SHIFT.to_ne_bytes()].concat();
        let factors = factors.try_into().map_or(0, u64::from_ne_bytes);
        // The sign is the first half of its word, in memory order. The other half is reserved.
        let sign = |number: u32| {
            let [a, b, c, d] = number.to_ne_bytes();
            self.pages.store(PAGE + SIGN, u64::from_ne_bytes([a, b, c, d, 0, 0, 0, 0]));
        };
        sign(self.sign | 1);
        for (at, word) in [
            (NANOSECONDS, day),
            (CYCLES, now & MASK),
            (FACTORS, factors),
            (MASKED, MASK),
            (OVERFLOWS, OVERFLOW),
        ] {
            self.pages.store(PAGE + at, word);
        }
        let next = self.sign.wrapping_add(2);
        sign(next);
        self.sign = next;
        self.base = Some(now);
    }

    /// Returns the file of the clock's pages, and the position in this file that a program maps when it maps
    /// `offset` of the device's file. Returns `None` if `offset` is not a page of the clock.
    pub(crate) fn page(&self, offset: u64) -> Option<(&OwnedFd, u64)> {
        match offset / PAGE {
            CORE_CLOCK => Some((&self.file, 0)),
            CLOCK_INFO => Some((&self.file, PAGE)),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_pages_show_the_time() {
        let mut clock = ClockPages::new().unwrap();
        let before = sys::nanoseconds();
        let now = clock.ticks();
        assert!((before..=sys::nanoseconds()).contains(&now));
        let read = |clock: &ClockPages, at: u64| clock.pages.load(at);
        assert_eq!(u64::from_be(read(&clock, 0)), now);
        assert_eq!(read(&clock, PAGE + MASKED), MASK);
        let base = (read(&clock, PAGE + NANOSECONDS), read(&clock, PAGE + CYCLES), read(&clock, PAGE + SIGN));
        // More than `OVERFLOW` nanoseconds after the base, `ticks` writes a new base.
        clock.base = Some(now - OVERFLOW - 1);
        let now = clock.ticks();
        assert!(read(&clock, PAGE + CYCLES).wrapping_sub(now) & MASK < OVERFLOW);
        assert!(read(&clock, PAGE + NANOSECONDS) > base.0);
        assert_ne!(read(&clock, PAGE + SIGN), base.2);
        assert_eq!(clock.sign & 1, 0);
        assert!(clock.page(5 << 20).is_some() && clock.page(7 << 20).is_some());
        assert!(clock.page(0).is_none() && clock.page(7 << 20 | 1 << 12).is_none());
    }
}
