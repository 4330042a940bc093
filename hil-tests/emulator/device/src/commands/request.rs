//! The request of a command, and its fields by their offsets in bytes. Numbers are in big endian.

use super::reply::Refused;
use super::{Place, Record};
use crate::wiped::Wiped;
use alloc::vec::Vec;

/// The bytes of a request. They are wiped when dropped, since they may contain a key.
pub struct Request(
    /// The bytes, from the opcode on.
    pub Wiped,
);

impl Request {
    /// Returns the opcode. A request that is too short for one has opcode 0, which no command has.
    pub fn opcode(&self) -> u16 {
        self.u16(0).unwrap_or_default()
    }

    /// Returns `length` bytes from offset `at` on.
    ///
    /// # Errors
    /// [`Refused::INPUT_LENGTH`] if the request ends before the last of these bytes.
    pub fn bytes(&self, at: usize, length: usize) -> Result<&[u8], Refused> {
        let end = at.checked_add(length).ok_or(Refused::INPUT_LENGTH)?;
        self.0.get(at..end).ok_or(Refused::INPUT_LENGTH)
    }

    fn number(&self, at: usize, length: usize) -> Result<u64, Refused> {
        Ok(self.bytes(at, length)?.iter().fold(0, |word, byte| word << 8 | u64::from(*byte)))
    }

    /// Returns the number in a byte at an offset.
    ///
    /// # Errors
    /// [`Refused::INPUT_LENGTH`] if the request ends before the end of the number.
    pub fn u8(&self, at: usize) -> Result<u8, Refused> {
        Ok(self.number(at, 1)? as u8)
    }

    /// Returns the number in two bytes at an offset.
    ///
    /// # Errors
    /// [`Refused::INPUT_LENGTH`] if the request ends before the end of the number.
    pub fn u16(&self, at: usize) -> Result<u16, Refused> {
        Ok(self.number(at, 2)? as u16)
    }

    /// Returns the number in three bytes at an offset.
    ///
    /// # Errors
    /// [`Refused::INPUT_LENGTH`] if the request ends before the end of the number.
    pub fn u24(&self, at: usize) -> Result<u32, Refused> {
        Ok(self.number(at, 3)? as u32)
    }

    /// Returns the number in four bytes at an offset.
    ///
    /// # Errors
    /// [`Refused::INPUT_LENGTH`] if the request ends before the end of the number.
    pub fn u32(&self, at: usize) -> Result<u32, Refused> {
        Ok(self.number(at, 4)? as u32)
    }

    /// Returns the number in eight bytes at an offset.
    ///
    /// # Errors
    /// [`Refused::INPUT_LENGTH`] if the request ends before the end of the number.
    pub fn u64(&self, at: usize) -> Result<u64, Refused> {
        self.number(at, 8)
    }

    /// Returns the number of the umem that contains a queue or a record. Returns `None` if the command says
    /// that it is in no umem (`is_valid` is false).
    pub(super) fn umem(&self, is_valid: bool, at: usize) -> Result<Option<u32>, Refused> {
        is_valid.then(|| self.u32(at)).transpose()
    }

    /// Returns the place of a doorbell record. The field at `offset` is the record's offset in the umem, or
    /// its address without a umem.
    pub(super) fn record(&self, umem: Option<u32>, offset: usize) -> Result<Record, Refused> {
        Ok(Record { umem, offset: self.u64(offset)? })
    }

    /// Returns the place of a ring: an offset in a umem, or pages of 4096 << `log_page` bytes.
    pub(super) fn place(
        &self,
        umem: Option<u32>,
        offset: usize,
        (log_page, page_offset): (u8, u16),
    ) -> Result<Place, Refused> {
        Ok(match umem {
            Some(number) => Place::Umem { number, offset: self.u64(offset)? },
            None => Place::Pages { log_page, offset: page_offset },
        })
    }

    /// Reads the list of page addresses from offset `at` of a request on. The request has to end with the
    /// list.
    ///
    /// # Errors
    /// [`Refused::INPUT_LENGTH`] if the request is too short or too long.
    pub(crate) fn pages(&self, at: usize, count: usize) -> Result<Vec<u64>, Refused> {
        if self.0.len() != at + count * 8 {
            return Err(Refused::INPUT_LENGTH);
        }
        (0..count).map(|page| self.u64(at + page * 8)).collect()
    }
}
