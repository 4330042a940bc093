//! The clock that stamps completions.

use alloc::boxed::Box;

type Read = Box<dyn FnMut() -> u64 + Send>;

/// The function that returns the time in ticks, if one is set.
#[derive(Default)]
pub(crate) struct Clock(Option<Read>);

impl core::fmt::Debug for Clock {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("Clock(..)")
    }
}

impl Clock {
    pub(crate) fn set(&mut self, read: impl FnMut() -> u64 + Send + 'static) {
        self.0 = Some(Box::new(read));
    }

    /// Returns the current time in ticks, or 0 if no function is set.
    pub(crate) fn ticks(&mut self) -> u64 {
        self.0.as_mut().map_or(0, |read| read())
    }
}

/// Converts ticks of 1 ns to a time stamp in real time: seconds in the high half, nanoseconds in the low
/// half.
pub(crate) const fn real_time(ticks: u64) -> u64 {
    const SECOND: u64 = 1_000_000_000;
    ((ticks / SECOND) << 32) | (ticks % SECOND)
}

#[cfg(test)]
mod tests {
    #[test]
    fn real_time_is_seconds_and_nanoseconds() {
        assert_eq!(super::real_time(0), 0);
        assert_eq!(super::real_time(1_999_999_999), 1 << 32 | 999_999_999);
        assert_eq!(super::real_time(7_000_000_005), 7 << 32 | 5);
    }
}
