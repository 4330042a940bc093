//! How long a run may take.

use std::time::Duration;

/// How long things may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// From the start of the board's program to its first event.
    pub start: Duration,
    /// From one event to the next.
    pub case: Duration,
    /// The whole run, resets included.
    pub total: Duration,
}
