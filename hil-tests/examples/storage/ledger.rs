//! The target's list of corruptions that it made on purpose (the ledger), in a file beside the volume. The
//! file outlives a target that is killed.
//!
//! Each corruption is recorded before it is made, with the new value of the byte. A restarted target repeats
//! all recorded corruptions that were not found yet; a repetition changes nothing if the byte has its new
//! value already. A found corruption is recorded as found before the initiator is told: it is never repeated
//! after the initiator has repaired the block.

use super::storage::{Outcome, Random};
use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// Bytes of a block with its T10-DIF, on the wire and, encrypted, in the file.
pub(crate) const PROTECTED_BLOCK: usize = 520;

/// Offsets at which a changed byte spoils the T10-DIF itself: the bytes of the ciphertext that hold it (IEEE
/// 1619 swaps the last block of AES and the bytes after it). Any other byte would spoil 16 bytes of data,
/// which a guard of 16 bits misses once in 65,536 times. At these offsets the tags are wrong too: the run can
/// require that every corruption is found.
const SPOILED: std::ops::Range<u64> = 496..512;

/// The corruptions of a volume, and whether they were found.
pub(crate) struct Ledger {
    path: PathBuf,
    file: File,
    initiator: Option<u64>,
    /// The corrupted blocks, in order.
    pub(crate) corrupted: Vec<u64>,
    /// The corrupted blocks that were not found yet, each with the offset and the new value of its byte.
    open: BTreeMap<u64, (u64, u8)>,
    /// Blocks that the device reported although they were not corrupted.
    pub(crate) unexpected: Vec<u64>,
    random: Random,
}

impl Ledger {
    /// Opens the ledger of a volume, and repeats the open corruptions.
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

    /// Clears the ledger for a new initiator, which writes the whole volume.
    pub(crate) fn begin(&mut self, initiator: u64) -> Outcome {
        if self.initiator != Some(initiator) {
            writeln!(self.file, "initiator {initiator}")?;
            self.initiator = Some(initiator);
            self.corrupted.clear();
            self.open.clear();
        }
        Ok(())
    }

    /// Flips a bit of a block, unless the block was corrupted before: a found block stays corrupt until the
    /// initiator has repaired it.
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

    /// Records that the device has reported a block.
    pub(crate) fn found(&mut self, lba: u64) -> Outcome {
        if self.open.remove(&lba).is_some() {
            writeln!(self.file, "found {lba}")?;
        } else if !self.corrupted.contains(&lba) {
            // A corrupted block may be reported again, if the initiator missed the first report. Any other
            // block is unexpected.
            self.unexpected.push(lba);
        }
        Ok(())
    }

    /// Removes the ledger's file.
    pub(crate) fn remove(self) -> Outcome {
        Ok(fs::remove_file(self.path)?)
    }
}
