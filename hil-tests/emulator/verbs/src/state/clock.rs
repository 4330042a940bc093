//! The device's clock, as the kernel maps it for programs: a page with the register, and one that says what
//! its ticks are in time.
//!
//! The clock has 1 GHz (`capabilities`), and is this system's. The register is memory: it is written when a
//! completion is stamped and whenever somebody does the device's work, so that it may show a moment that is
//! past, but never one behind a stamp that a program has seen.

use crate::ground::errno::Errno;
use crate::ground::sys::{self, Mapping};
use std::os::fd::{AsRawFd, OwnedFd};

/// Bytes of a page.
const PAGE: u64 = 4096;

/// The pages that a program maps (`MLX5_IB_MMAP_CORE_CLOCK`, `MLX5_IB_MMAP_CLOCK_INFO` of version 1): command
/// and index, which are the number of the page in the file.
const CORE_CLOCK: u64 = 5 << 8;
const CLOCK_INFO: u64 = 7 << 8;

/// Ticks in a millisecond: as `device_frequency_khz` of the capabilities.
pub(crate) const KILOHERTZ: u64 = 1_000_000;

/// The bits of the clock that count, and by how many nanoseconds are shifted (kernel `mlx5_core`,
/// `CLOCKSOURCE_MASK(41)`, `MLX5_CYCLES_SHIFT`).
const MASK: u64 = (1 << 41) - 1;
const SHIFT: u32 = 31;

/// Nanoseconds until the base is given anew: long before the clock ends.
const OVERFLOW: u64 = 1 << 30;

/// `struct ib_uverbs_clock_info`, as words of 8 bytes: sign, nanoseconds, cycles, fraction, multiplier and
/// shift, mask, overflow.
const SIGN: u64 = 0;
const NANOSECONDS: u64 = 8;
const CYCLES: u64 = 16;
const FACTORS: u64 = 32;
const MASKED: u64 = 40;
const OVERFLOWS: u64 = 48;

/// Both pages.
#[derive(Debug)]
pub(crate) struct ClockPages {
    file: OwnedFd,
    pages: Mapping,
    /// When the base was given, if it was.
    base: Option<u64>,
    sign: u32,
}

impl ClockPages {
    /// Makes the pages, and shows the time of now.
    ///
    /// # Errors
    /// [`Errno::NOMEM`] where there is no memory, or no descriptor.
    pub(crate) fn new() -> Result<Self, Errno> {
        let file = sys::memory(c"mlx5-clock", 2 * PAGE)?;
        let pages = Mapping::new(file.as_raw_fd(), 2 * PAGE, true)?;
        let mut clock = Self { file, pages, base: None, sign: 0 };
        clock.give_base();
        clock.ticks();
        Ok(clock)
    }

    /// Shows the time of now, and returns it.
    pub(crate) fn ticks(&mut self) -> u64 {
        let now = sys::nanoseconds();
        // Both halves at once: who reads the high one twice sees whether the low one belongs to it.
        self.pages.store(0, now.to_be());
        if self.base.is_some_and(|base| now.saturating_sub(base) > OVERFLOW) {
            self.give_base();
        }
        now
    }

    /// Says what the time of day is at which ticks. Whoever reads meanwhile sees an odd sign, and reads
    /// again.
    fn give_base(&mut self) {
        // In this order: what is stamped has never a time of day that is still to come.
        let (day, now) = (sys::time_of_day(), sys::nanoseconds());
        let factors = [(1_u32 << SHIFT).to_ne_bytes(), SHIFT.to_ne_bytes()].concat();
        let factors = factors.try_into().map_or(0, u64::from_ne_bytes);
        // The sign is the first half of its word, whatever the order of bytes; the other half is reserved.
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

    /// Returns the file of the pages, and where in it the page is that a program maps from `offset` on;
    /// `None` for other pages, which are memory of nobody else.
    pub(crate) fn page(&self, offset: u64) -> Option<(&OwnedFd, u64)> {
        match offset / PAGE {
            CORE_CLOCK => Some((&self.file, 0)),
            CLOCK_INFO => Some((&self.file, PAGE)),
            _ => None,
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
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
        // It is given anew once a second has passed.
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
