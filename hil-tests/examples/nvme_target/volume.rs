//! The volume: a file of blocks, each with its T10-DIF behind it.

use super::error::Result;
use mlx5_mkey::types::BlockSize;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

pub(crate) const DIF: usize = 8;

/// The size of a volume.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Geometry {
    pub(crate) blocks: u64,
    pub(crate) block_size: BlockSize,
}

impl Geometry {
    /// Returns the bytes of a block without T10-DIF.
    pub(crate) const fn data(&self) -> usize {
        self.block_size.bytes() as usize
    }

    /// Returns the bytes of a block with its T10-DIF.
    pub(crate) const fn stride(&self) -> usize {
        self.data() + DIF
    }
}

/// A volume of protection type 1: the reference tag of a block is its number.
pub(crate) struct Volume {
    pub(crate) geometry: Geometry,
    file: File,
}

impl Volume {
    /// Opens the volume in a file. A new file gets blocks of zeros, with the T10-DIF that they should have.
    pub(crate) fn open(path: &Path, geometry: Geometry) -> Result<Self> {
        let file = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path)?;
        let length = geometry.blocks * geometry.stride() as u64;
        match file.metadata()?.len() {
            0 => {
                file.set_len(length)?;
                // The CRC of zeros is 0, hence only the reference tag is written.
                for lba in 0..geometry.blocks {
                    let end = (lba + 1) * geometry.stride() as u64;
                    file.write_all_at(&(lba as u32).to_be_bytes(), end - 4)?;
                }
            }
            other if other == length => {}
            other => return Err(format!("the volume has {other} bytes, not {length}").into()),
        }
        Ok(Self { geometry, file })
    }

    fn offset(&self, lba: u64) -> u64 {
        lba * self.geometry.stride() as u64
    }

    /// Reads blocks with their T10-DIF.
    pub(crate) fn load(&self, lba: u64, bytes: &mut [u8]) -> io::Result<()> {
        self.file.read_exact_at(bytes, self.offset(lba))
    }

    /// Writes blocks with their T10-DIF.
    pub(crate) fn store(&self, lba: u64, bytes: &[u8]) -> io::Result<()> {
        self.file.write_all_at(bytes, self.offset(lba))
    }

    /// Has the kernel write all stored blocks to the disk.
    pub(crate) fn flush(&self) -> io::Result<()> {
        self.file.sync_data()
    }
}
