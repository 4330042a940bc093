//! Blocks of a send ring that the device reads before it executes them.

use alloc::vec::Vec;
use mlx5_mkey::wire::WQEBB_BYTES;

/// Blocks of a send ring that were read together with an earlier block.
#[derive(Clone, Debug, Default)]
pub(crate) struct ReadAhead {
    pub(crate) first: u16,
    pub(crate) blocks: Vec<[u8; WQEBB_BYTES]>,
}

impl ReadAhead {
    /// Returns the blocks that came with a doorbell. `first` is the number of the first block.
    pub(crate) fn of(first: u16, blocks: &[[u8; WQEBB_BYTES]]) -> Self {
        Self { first, blocks: blocks.to_vec() }
    }
}
