//! The target's account of what it has corrupted, in a file beside the volume: it must outlive a target that
//! is killed.
//!
//! A corruption is written down before it is done, with the byte that the file is to have then. One that was
//! written down and not found yet is done again by the target that comes back; the bytes are the same if it
//! was done already. It is found, and that is written down, before the initiator hears of it, so it is never
//! done again after the block was repaired.

use super::storage::{Outcome, Random};
use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// Bytes of a block with its T10-DIF, as it is on the wire and, encrypted, in the file.
pub(crate) const PROTECTED_BLOCK: usize = 520;

/// Where a changed byte spoils the signature itself: the bytes of the ciphertext that hold the T10-DIF (the
/// last block of AES and the bytes behind it are swapped, IEEE 1619). Any other byte spoils 16 bytes of data,
/// which a guard of 16 bits misses once in 65,536 times; here the tags are wrong as well, so that the run may
/// ask for every single one to be found.
const SPOILED: std::ops::Range<u64> = 496..512;

/// What was corrupted, and which of it was found.
pub(crate) struct Ledger {
    path: PathBuf,
    file: File,
    initiator: Option<u64>,
    /// The blocks that were corrupted, in order.
    pub(crate) corrupted: Vec<u64>,
    /// Those that were not found yet.
    open: BTreeMap<u64, (u64, u8)>,
    /// Blocks that were found and had not been corrupted.
    pub(crate) unexpected: Vec<u64>,
    random: Random,
}

impl Ledger {
    /// Opens the account of a volume, and does again what is open.
    pub(crate) fn open(path: &Path, volume: &File) -> Outcome<Self> {
        let file = OpenOptions::new().create(true).append(true).open(path)?;
        let (mut corrupted, mut open, mut initiator) = (Vec::new(), BTreeMap::new(), None);
        for line in fs::read_to_string(path)?.lines() {
            let numbers: Vec<u64> =
                line.split_ascii_whitespace().skip(1).filter_map(|word| word.parse().ok()).collect();
            match numbers[..] {
                [lba, at, byte] if line.starts_with("corrupted") => {
                    corrupted.push(lba);
                    open.insert(lba, (at, byte as u8));
                }
                [lba] if line.starts_with("found") => drop(open.remove(&lba)),
                [other] if line.starts_with("initiator") => {
                    initiator = Some(other);
                    corrupted.clear();
                    open.clear();
                }
                _ => return Err(format!("{}: `{line}`", path.display()).into()),
            }
        }
        for (at, byte) in open.values() {
            volume.write_all_at(&[*byte], *at)?;
        }
        let random = Random(corrupted.len() as u64);
        let path = path.to_path_buf();
        Ok(Self { path, file, initiator, corrupted, open, unexpected: Vec::new(), random })
    }

    /// Begins anew where the initiator is another one than before: it writes the whole volume.
    pub(crate) fn begin(&mut self, initiator: u64) -> Outcome {
        if self.initiator != Some(initiator) {
            writeln!(self.file, "initiator {initiator}")?;
            self.initiator = Some(initiator);
            self.corrupted.clear();
            self.open.clear();
        }
        Ok(())
    }

    /// Flips a bit of a block, once in a run: one that was found stays corrupt until the initiator has heard
    /// of it.
    pub(crate) fn corrupt(&mut self, volume: &File, lba: u64) -> Outcome {
        if self.corrupted.contains(&lba) {
            return Ok(());
        }
        let at =
            lba * PROTECTED_BLOCK as u64 + SPOILED.start + self.random.below(SPOILED.end - SPOILED.start);
        let mut byte = [0];
        volume.read_exact_at(&mut byte, at)?;
        let [byte] = byte.map(|byte| byte ^ 1 << self.random.below(8));
        writeln!(self.file, "corrupted {lba} {at} {byte}")?;
        self.corrupted.push(lba);
        self.open.insert(lba, (at, byte));
        volume.write_all_at(&[byte], at)?;
        Ok(())
    }

    /// Notes that the device has named a block.
    pub(crate) fn found(&mut self, lba: u64) -> Outcome {
        if self.open.remove(&lba).is_some() {
            writeln!(self.file, "found {lba}")?;
        } else if !self.corrupted.contains(&lba) {
            // One that was found before is read again by an initiator that has not heard of it.
            self.unexpected.push(lba);
        }
        Ok(())
    }

    /// Removes the file.
    pub(crate) fn remove(self) -> Outcome {
        Ok(fs::remove_file(self.path)?)
    }
}
