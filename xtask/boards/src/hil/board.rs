//! The interface between a board and the runner, `cargo xtask hil`: a command that writes the protocol, and a
//! reset.

use std::process::Command;

/// The reason why a board cannot run anything.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Trouble {
    /// The board cannot be reached. The run is skipped, unless `--require-board` is given.
    Unreachable(String),
    /// The board cannot run for another reason.
    Broken(String),
}

impl From<String> for Trouble {
    fn from(reason: String) -> Self {
        Self::Broken(reason)
    }
}

/// A board, as the runner sees it. Dropping the board ends all its processes.
pub(super) trait Board {
    /// Reserves the board for this run, and waits for it if necessary. Called once, before all other
    /// functions.
    fn take(&mut self) -> Result<(), Trouble> {
        Ok(())
    }

    /// Returns the name of the board's place in a lab, once the board is reserved.
    fn place(&self) -> Option<&str> {
        None
    }

    /// Prepares a run: builds, boots, copies. Called once. The runner prepares one board at a time.
    fn prepare(&mut self) -> Result<(), Trouble>;

    /// Returns a command that runs the cases and writes the protocol to its standard output. `arguments` are
    /// for the board's program: `--ways WAYS`, `--filter TEXT`, `--after CASE`.
    fn command(&mut self, arguments: &[String]) -> Result<Command, String>;

    /// Brings the board back to its state after `prepare`. The runner has ended the command's process before.
    fn reset(&mut self) -> Result<(), String>;
}
