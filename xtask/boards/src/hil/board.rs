//! The interface between a board and `cargo xtask hil` (the runner): a command that prints events as lines
//! (the protocol), and a reset.

use std::process::Command;

/// The reason why a board cannot run anything.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Trouble {
    /// The board cannot be reached. The board is skipped, unless `--require-board` is given.
    Unreachable(String),
    /// The board cannot run for another reason.
    Broken(String),
}

impl From<String> for Trouble {
    fn from(reason: String) -> Self {
        Self::Broken(reason)
    }
}

/// A board, as `cargo xtask hil` uses it. Dropping the board ends all its processes.
pub(super) trait Board {
    /// Reserves the board for this run, and waits for it if necessary. The runner calls this function once,
    /// before all others.
    fn take(&mut self) -> Result<(), Trouble> {
        Ok(())
    }

    /// Returns the name of the place (the lab's entry for a board) that was reserved. `None` for a board
    /// outside of a lab, or before the reservation.
    fn place(&self) -> Option<&str> {
        None
    }

    /// Prepares a run: builds, boots, copies. The runner calls this function once, and prepares one board at
    /// a time.
    fn prepare(&mut self) -> Result<(), Trouble>;

    /// Returns a command that runs the cases and prints their events (the protocol). `arguments` are for the
    /// board's program: `--ways WAYS`, `--filter TEXT`, `--after CASE`.
    fn command(&mut self, arguments: &[String]) -> Result<Command, String>;

    /// Brings the board back to its state after `prepare`. The caller ensures that the process of the last
    /// command has ended.
    fn reset(&mut self) -> Result<(), String>;
}
