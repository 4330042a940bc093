//! Words to bytes: from a checked request to 64-byte blocks. Pure functions; no I/O, no state.
//!
//! A work request is built block by block and each block is handed on when it is complete. Whoever takes it decides where
//! it goes, so that a ring's end needs no second code path.

pub(crate) mod data_path;
pub(crate) mod set_psv;
pub(crate) mod umr;

pub use data_path::{Payload, Remote, Sge};

use crate::wire::{OCTOWORD_BYTES, WQEBB_BYTES};

/// Octowords in a block.
const OCTOWORDS_PER_BLOCK: usize = WQEBB_BYTES / OCTOWORD_BYTES;
