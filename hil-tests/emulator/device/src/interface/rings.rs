//! Addresses of rings and doorbell records in commands.

use super::reply::Refused;
use super::request::Request;
use crate::device::{Device, Error};
use crate::memory::Memory;

/// Offset of the list of pages in CREATE_EQ, CREATE_CQ and CREATE_QP.
pub(super) const PAGES: usize = 0x110;
/// Bytes of an entry of an event or completion queue, and of a block of a send ring.
pub(super) const ENTRY: u64 = 64;
/// Bytes of a doorbell record.
const RECORD: usize = 8;

impl<M: Memory> Device<M> {
    /// Returns the address of a ring of `bytes` on a list of pages. The ring begins `offset` 64ths of a page
    /// into the first page. All bytes of the ring have to be memory; the pages may be anywhere.
    pub(super) fn ring(
        &mut self,
        request: &Request,
        log_page: u8,
        offset: u16,
        bytes: u64,
    ) -> Result<u64, Refused> {
        let page = 1_u64 << (12 + log_page);
        let offset = u64::from(offset & 0x3f) * (page / 64);
        let count = (offset + bytes).div_ceil(page) as usize;
        // Surplus pages are allowed.
        let listed = request.0.len().saturating_sub(PAGES) / 8;
        let mut pages = request.pages(PAGES, listed.max(count))?;
        pages.truncate(count);
        if pages.iter().any(|at| !at.is_multiple_of(page)) {
            return Err(Refused::PARAMETER);
        }
        let ring = self.memory.open(&pages, 12 + log_page, offset).ok_or(Refused::INPUT_LENGTH)?;
        let is_line = |line: u64| {
            ring.checked_add(line).is_some_and(|at| self.memory.read(at, &mut [0; ENTRY as usize]).is_ok())
        };
        if !(0..bytes).step_by(ENTRY as usize).all(is_line) {
            self.memory.close(ring);
            return Err(Refused::PARAMETER);
        }
        Ok(ring)
    }

    /// Closes a ring again if the creation of its object failed.
    pub(super) fn with_ring<T>(&mut self, ring: u64, made: Result<T, Error>) -> Result<T, Refused> {
        if made.is_err() {
            self.memory.close(ring);
        }
        Ok(made?)
    }

    pub(super) fn record(&self, at: u64) -> Result<u64, Refused> {
        let is_memory = self.memory.read(at, &mut [0; RECORD]).is_ok();
        if at.is_multiple_of(RECORD as u64) && is_memory { Ok(at) } else { Err(Refused::PARAMETER) }
    }
}
