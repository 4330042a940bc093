//! A gate in front of the completion rings, the command queue and the work queues. Tests use it to lose,
//! repeat or delay completion entries, to refuse commands, and to fail or delay requests.

use crate::cqe::Entry;
use crate::refusal::Cause;
use crate::ruling::{Ruling, Side};
use alloc::boxed::Box;
use alloc::collections::VecDeque;

/// The gate's decision about a completion entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Passage {
    /// The entry is written.
    Once,
    /// The entry is written twice.
    Twice,
    /// The entry is not written.
    Never,
    /// The entry waits, with all later entries of its queue, until [`crate::Device::release`]. Waiting
    /// entries are also written before a queue pair changes its state, and before a queue pair, a completion
    /// queue or an mkey is destroyed.
    Later,
    /// The entry given here is written first, then the device's own entry. The device sets the owner bit of
    /// both.
    Behind([u8; 64]),
    /// The queue overruns: it has no room for this entry or for later entries.
    Overrun,
}

/// The gate's decision about a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Course {
    /// The command is carried out.
    Good,
    /// The command is not carried out, and reports this status.
    Refused(u8),
    /// The command is carried out, and reports this status all the same.
    Unheard(u8),
}

/// The function that decides about each request, by the number of its queue pair.
type Arbiter = dyn FnMut(Side, u32) -> Ruling + Send;

/// The function that decides about each command: by its opcode, and whether it destroys an object.
type Judge = dyn FnMut(u16, bool) -> Course + Send;

/// The function that decides about each completion entry. Its first argument is the number of the completion
/// queue.
type Keeper = dyn FnMut(u32, &Entry) -> Passage + Send;

/// The functions of a test that decide about completion entries, commands and requests, and the entries that
/// wait.
#[derive(Default)]
pub(crate) struct Gate {
    keeper: Option<Box<Keeper>>,
    judge: Option<Box<Judge>>,
    arbiter: Option<Box<Arbiter>>,
    /// The entries that wait, with their queues and the causes of errors, oldest first.
    held: VecDeque<(u32, Entry, Option<Cause>)>,
}

impl core::fmt::Debug for Gate {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "Gate({} wait)", self.held.len())
    }
}

impl Gate {
    /// Sets the function that decides about each completion entry from now on.
    pub(crate) fn set(&mut self, keeper: impl FnMut(u32, &Entry) -> Passage + Send + 'static) {
        self.keeper = Some(Box::new(keeper));
    }

    /// Sets the function that decides about each command from now on.
    pub(crate) fn set_judge(&mut self, judge: impl FnMut(u16, bool) -> Course + Send + 'static) {
        self.judge = Some(Box::new(judge));
    }

    /// Sets the function that decides about each request from now on.
    pub(crate) fn set_arbiter(&mut self, arbiter: impl FnMut(Side, u32) -> Ruling + Send + 'static) {
        self.arbiter = Some(Box::new(arbiter));
    }

    /// Returns the decision about a request of a queue pair.
    pub(crate) fn ruling(&mut self, side: Side, qpn: u32) -> Ruling {
        self.arbiter.as_mut().map_or(Ruling::Good, |arbiter| arbiter(side, qpn))
    }

    /// Returns the decision about a command.
    pub(crate) fn course(&mut self, opcode: u16, destroys: bool) -> Course {
        self.judge.as_mut().map_or(Course::Good, |judge| judge(opcode, destroys))
    }

    /// Returns whether completion entries wait.
    pub(crate) fn holds(&self) -> bool {
        !self.held.is_empty()
    }

    /// Returns the decision about a completion entry. An entry that has to wait is stored.
    pub(crate) fn pass(&mut self, cqn: u32, entry: &Entry, cause: Option<Cause>) -> Passage {
        let Some(keeper) = &mut self.keeper else { return Passage::Once };
        let waits = self.held.iter().any(|(other, ..)| *other == cqn);
        let passage = if waits { Passage::Later } else { keeper(cqn, entry) };
        if passage == Passage::Later {
            self.held.push_back((cqn, *entry, cause));
        }
        passage
    }

    /// Removes the completion entries that wait, and returns them.
    pub(crate) fn open(&mut self) -> VecDeque<(u32, Entry, Option<Cause>)> {
        core::mem::take(&mut self.held)
    }
}
