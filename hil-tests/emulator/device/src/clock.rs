//! The clock that stamps completions.

use alloc::boxed::Box;

type Read = Box<dyn FnMut() -> u64 + Send>;

/// Who tells the time, if anybody does.
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

    /// Returns the ticks of now; 0 without a clock.
    pub(crate) fn ticks(&mut self) -> u64 {
        self.0.as_mut().map_or(0, |read| read())
    }
}
