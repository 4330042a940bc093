//! The request of a command, and its fields by their offsets in bytes.

use super::reply::Refused;
use alloc::vec::Vec;
use zeroize::Zeroizing;

/// The bytes of a request. They are wiped when dropped, since they may contain a key.
pub(super) struct Request(pub(super) Zeroizing<Vec<u8>>);

impl Request {
    pub(super) fn bytes(&self, at: usize, length: usize) -> Result<&[u8], Refused> {
        let end = at.checked_add(length).ok_or(Refused::INPUT_LENGTH)?;
        self.0.get(at..end).ok_or(Refused::INPUT_LENGTH)
    }

    fn number(&self, at: usize, length: usize) -> Result<u64, Refused> {
        Ok(self.bytes(at, length)?.iter().fold(0, |word, byte| word << 8 | u64::from(*byte)))
    }

    pub(super) fn u8(&self, at: usize) -> Result<u8, Refused> {
        Ok(self.number(at, 1)? as u8)
    }

    pub(super) fn u16(&self, at: usize) -> Result<u16, Refused> {
        Ok(self.number(at, 2)? as u16)
    }

    pub(super) fn u24(&self, at: usize) -> Result<u32, Refused> {
        Ok(self.number(at, 3)? as u32)
    }

    pub(super) fn u32(&self, at: usize) -> Result<u32, Refused> {
        Ok(self.number(at, 4)? as u32)
    }

    pub(super) fn u64(&self, at: usize) -> Result<u64, Refused> {
        self.number(at, 8)
    }

    /// Reads the list of pages from offset `at` of a request on. The request has to end with the list.
    pub(super) fn pages(&self, at: usize, count: usize) -> Result<Vec<u64>, Refused> {
        if self.0.len() != at + count * 8 {
            return Err(Refused::INPUT_LENGTH);
        }
        (0..count).map(|page| self.u64(at + page * 8)).collect()
    }
}
