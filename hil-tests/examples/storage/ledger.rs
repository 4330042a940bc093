//! The ledger: a list of the corruptions that the target made on purpose, in a file beside the volume. The
//! file survives when the target is killed.
//!
//! The target records each corruption before it makes it, with the new value of the byte. A restarted target
//! makes all recorded corruptions again that were not found yet; this changes nothing if the byte already has
//! its new value. The target records a found corruption before it tells the initiator. So it never makes the
//! corruption again after the initiator has repaired the block.

use super::storage::Outcome;
use fastrand::Rng;
use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// Bytes of a block with its T10-DIF. The size is the same on the wire (in plaintext) and in the file
/// (encrypted).
pub(crate) const PROTECTED_BLOCK: usize = 520;

/// Offsets in an encrypted block whose bytes hold the T10-DIF (IEEE 1619 swaps the last full block of AES and
/// the bytes after it). A changed byte at another offset would spoil 16 bytes of data, and the 16-bit guard
/// misses one such change in 65,536. A changed byte here also spoils the tags, so every corruption must be
/// found.
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
    random: Rng,
}

impl Ledger {
    /// Opens the ledger of a volume, and makes the corruptions again that were not found yet.
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
        let random = Rng::with_seed(corrupted.len() as u64);
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

    /// Flips a bit of a block, unless the ledger contains the block already: the initiator may not have
    /// repaired it yet.
    pub(crate) fn corrupt(&mut self, volume: &File, lba: u64) -> Outcome {
        if self.corrupted.contains(&lba) {
            return Ok(());
        }
        let at = lba * PROTECTED_BLOCK as u64 + self.random.u64(SPOILED);
        let mut byte = [0];
        volume.read_exact_at(&mut byte, at)?;
        let [byte] = byte.map(|byte| byte ^ 1 << self.random.u32(..8));
        writeln!(self.file, "corrupted {lba} {at} {byte}")?;
        self.corrupted.push(lba);
        self.open.insert(lba, (at, byte));
        volume.write_all_at(&[byte], at)?;
        Ok(())
    }

    /// Records that the device has reported a block as corrupt.
    pub(crate) fn found(&mut self, lba: u64) -> Outcome {
        if self.open.remove(&lba).is_some() {
            writeln!(self.file, "found {lba}")?;
        } else if !self.corrupted.contains(&lba) {
            // The device may report a corrupted block twice, if the initiator missed the first report. A
            // report of any other block is unexpected.
            self.unexpected.push(lba);
        }
        Ok(())
    }

    /// Removes the ledger's file.
    pub(crate) fn remove(self) -> Outcome {
        Ok(fs::remove_file(self.path)?)
    }
}
