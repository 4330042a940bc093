//! A gate before the completion rings, for whoever wants a device that breaks its word.

use crate::cqe::Entry;
use crate::refusal::Cause;
use alloc::boxed::Box;
use alloc::collections::VecDeque;

/// What becomes of an entry on its way to a completion ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Passage {
    /// It is written.
    Once,
    /// It is written, and once more behind that.
    Twice,
    /// It is not written.
    Never,
    /// It waits with all behind it in its queue, until [`crate::Device::release`], or until an object is
    /// taken from the device that it may be about.
    Later,
    /// Another entry is written before it, whose owner bit is filled in.
    Behind([u8; 64]),
    /// Its queue has no room for it, nor for any other.
    Overrun,
}

/// What is asked about each entry, by the number of its queue.
type Keeper = dyn FnMut(u32, &Entry) -> Passage + Send;

/// Who says what passes, and what waits.
#[derive(Default)]
pub(crate) struct Gate {
    keeper: Option<Box<Keeper>>,
    /// Entries, their queues and the causes of errors, oldest first.
    held: VecDeque<(u32, Entry, Option<Cause>)>,
}

impl core::fmt::Debug for Gate {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "Gate({} wait)", self.held.len())
    }
}

impl Gate {
    /// Has `keeper` asked about each entry from now on.
    pub(crate) fn set(&mut self, keeper: impl FnMut(u32, &Entry) -> Passage + Send + 'static) {
        self.keeper = Some(Box::new(keeper));
    }

    /// Returns what becomes of an entry. One that waits is kept.
    pub(crate) fn pass(&mut self, cqn: u32, entry: &Entry, cause: Option<Cause>) -> Passage {
        let Some(keeper) = &mut self.keeper else { return Passage::Once };
        let waits = self.held.iter().any(|(other, ..)| *other == cqn);
        let passage = if waits { Passage::Later } else { keeper(cqn, entry) };
        if passage == Passage::Later {
            self.held.push_back((cqn, *entry, cause));
        }
        passage
    }

    /// Returns what waits, which waits no more.
    pub(crate) fn open(&mut self) -> VecDeque<(u32, Entry, Option<Cause>)> {
        core::mem::take(&mut self.held)
    }
}
