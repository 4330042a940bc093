//! Words to bytes: from a checked request to 64-byte blocks. Pure functions; no I/O, no state.
//!
//! A work request is handed on block by block, or octoword by octoword, to a `Sink`. Blocks go where the ring has their
//! slot, so that a ring's end needs no second code path.

pub(crate) mod data_path;
pub(crate) mod set_psv;
pub(crate) mod template;
pub(crate) mod umr;

pub use data_path::{Payload, Remote, Sge};
pub use template::MkeyTemplate;

use crate::wire::Octoword;
use zerocopy::{Immutable, IntoBytes, Unaligned};

/// Takes the parts of a request, in order.
pub(crate) trait Sink {
    /// Takes the next octoword.
    fn put(&mut self, octoword: Octoword);

    /// Takes the next block whole. Every segment of a UMR fills blocks.
    fn put_block<B: IntoBytes + Immutable + Unaligned>(&mut self, block: B);
}
