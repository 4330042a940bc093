//! How long a run may take.

use std::time::Duration;

/// How long things may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Limits {
    /// From the start of the board's program to its first event.
    pub(super) start: Duration,
    /// From one event to the next.
    pub(super) case: Duration,
    /// The whole run, resets included.
    pub(super) total: Duration,
}
