//! Words to bytes: from a checked request to 64-byte blocks. Pure functions; no I/O, no state.
//!
//! A work request is handed on octoword by octoword to a `Sink`, which puts four into a block. Blocks go where the ring
//! has their slot, so that a ring's end needs no second code path.

pub(crate) mod data_path;
pub(crate) mod set_psv;
pub(crate) mod umr;

pub use data_path::{Payload, Remote, Sge};

use crate::wire::{OCTOWORD_BYTES, WQEBB_BYTES, Wqebb};

/// Octowords in a block.
pub(crate) const OCTOWORDS_PER_BLOCK: usize = WQEBB_BYTES / OCTOWORD_BYTES;

/// The unit in which requests are handed on.
pub(crate) type Octoword = [u8; OCTOWORD_BYTES];

/// Takes the octowords of a request, in order.
pub(crate) trait Sink {
    /// Takes the next octoword.
    fn put(&mut self, octoword: Octoword);

    /// Takes the next four. Every segment of a UMR fills blocks.
    #[inline(always)]
    fn put_block(&mut self, block: Wqebb) {
        let octowords: [Octoword; OCTOWORDS_PER_BLOCK] = zerocopy::transmute!(block);
        for octoword in octowords {
            self.put(octoword);
        }
    }
}
