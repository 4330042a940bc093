//! The table of commands of the older `write` interface: their lengths, and the functions that carry them
//! out.

use super::{address, completion, device, memory, queue_pair, shared_receive, window};
use crate::command::call::Run;
use crate::command::numbers::EXTENDED;

/// A command of the older `write` interface: its number, the minimum lengths of its structure and of its
/// answer, and the function that carries it out.
pub(crate) struct Command {
    pub(crate) number: u64,
    pub(crate) input: usize,
    pub(crate) output: usize,
    pub(crate) run: Run,
}

const fn command(number: u64, input: usize, output: usize, run: Run) -> Command {
    Command { number, input, output, run }
}

/// All commands of the older `write` interface (`ib_user_verbs.h`).
pub(crate) const COMMANDS: &[Command] = &[
    command(1, 8, 176, device::query_device),
    command(EXTENDED | 1, 8, 184, device::query_device_extended),
    command(3, 8, 4, memory::alloc_pd),
    command(5, 56, 4, address::create),
    command(9, 40, 12, memory::register),
    command(11, 48, 8, memory::reregister),
    command(14, 16, 8, window::alloc),
    command(17, 8, 4, completion::create_channel),
    command(25, 16, 128, queue_pair::query),
    command(26, 112, 0, queue_pair::modify),
    command(EXTENDED | 26, 112, 8, queue_pair::modify),
    command(33, 16, 0, shared_receive::modify),
    command(34, 16, 16, shared_receive::query),
];
