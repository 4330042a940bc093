//! Words to bytes: from a checked request to 64-byte blocks. Pure functions; no I/O, no state.
//!
//! A work request is handed on part by part to a `Sink`, which knows where the ring has the next slot.

pub(crate) mod data_path;
pub(crate) mod set_psv;
pub(crate) mod template;
pub(crate) mod umr;

pub use data_path::{Payload, Remote, Sge};
pub use template::MkeyTemplate;

use crate::wire::{Block, ZEROS};
use zerocopy::{Immutable, IntoBytes, Unaligned};

/// Blocks that requests fill.
#[derive(Clone, Copy)]
pub(crate) struct Room {
    /// With parts of known size.
    pub(crate) fixed: usize,
    /// With translation entries.
    pub(crate) entries: usize,
}

impl Room {
    /// Returns how many blocks there are.
    #[inline(always)]
    pub(crate) const fn blocks(self) -> usize {
        self.fixed + self.entries
    }
}

/// Returns a block of up to four entries, and zeros.
#[inline(never)]
pub(crate) fn padded(entries: &(impl IntoBytes + Immutable + ?Sized)) -> Block {
    let mut block = ZEROS;
    block.as_flattened_mut().iter_mut().zip(entries.as_bytes()).for_each(|(slot, byte)| *slot = *byte);
    block
}

/// Takes the parts of a request, in order.
pub(crate) trait Sink {
    /// Takes the next part: whole octowords.
    fn put<B: IntoBytes + Immutable + Unaligned>(&mut self, part: B);

    /// Leaves the blocks of the translation entries free: what is put next stands behind them. They are written last, since
    /// their number is the only one that the compiler does not know.
    fn leave_entries(&mut self, blocks: usize);

    /// Takes the next translation entries, of an octoword each, and zeros up to a whole block.
    fn put_entries<T: Copy + IntoBytes + Immutable + Unaligned>(&mut self, entries: &[T]);

    /// Leaves octowords as they are.
    fn skip(&mut self, octowords: usize);
}
