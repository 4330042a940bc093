//! The sizes of storage commands, and where their blocks are in memory.

use super::ledger::PROTECTED_BLOCK;
use mlx5_mkey::mkey::{MkeyKind, XtsEngine};
use mlx5_mkey::wqe::RequestSize;
use std::ops::Range;

/// The limits of an mkey and of a command, which depend on the device's AES-XTS engine.
#[derive(Clone, Copy)]
pub(crate) struct Geometry {
    pub(crate) blocks_per_mkey: u32,
    pub(crate) mkeys_per_command: usize,
}

impl Geometry {
    /// Returns the limits for an AES-XTS engine.
    pub(crate) fn of(engine: XtsEngine) -> Self {
        match engine {
            // An mkey maps 2048 blocks of 512 bytes, which is 1 MiB of data.
            XtsEngine::MultiBlock | XtsEngine::MultiBlockLittleEndian => {
                Self { blocks_per_mkey: 2048, mkeys_per_command: 1 }
            }
            XtsEngine::SingleBlock | XtsEngine::Unspecified => {
                Self { blocks_per_mkey: 1, mkeys_per_command: 8 }
            }
        }
    }

    /// Returns the largest number of blocks of a command.
    pub(crate) fn max_blocks(self) -> u32 {
        self.blocks_per_mkey * self.mkeys_per_command as u32
    }

    /// Returns the space that the largest command takes in the send queue: the configurations of its mkeys
    /// (`kind`), and one transfer with a data segment for each mkey.
    pub(crate) fn transfer_size(self, kind: &MkeyKind) -> RequestSize {
        let configure = RequestSize::configure_mkey(kind, 1, 2);
        configure.times(self.mkeys_per_command as u32).and(RequestSize::rdma(self.mkeys_per_command))
    }

    /// Returns the range of bytes in the staging memory that holds the blocks `blocks` of the command in slot
    /// `slot`.
    pub(crate) fn staged(self, slot: usize, blocks: Range<u32>) -> Range<usize> {
        let first = slot * self.max_blocks() as usize;
        (first + blocks.start as usize) * PROTECTED_BLOCK..(first + blocks.end as usize) * PROTECTED_BLOCK
    }

    /// Returns, for each mkey of a command of `blocks` blocks, the range of blocks that the mkey maps.
    pub(crate) fn chunks(self, blocks: u32) -> impl Iterator<Item = Range<u32>> {
        let step = self.blocks_per_mkey;
        (0..blocks.div_ceil(step)).map(move |chunk| chunk * step..((chunk + 1) * step).min(blocks))
    }
}
