//! Time limits of a run of scenarios on a board.

use std::time::Duration;

/// Time limits of a run on a board.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The longest time from the start of the board's program to its first event. An event is a line that
    /// tells, for example, that a scenario starts or has passed.
    pub start: Duration,
    /// The longest time from one event to the next.
    pub case: Duration,
    /// The longest time of the whole run, including resets.
    pub total: Duration,
}
