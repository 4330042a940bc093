//! Finds the addresses of the rings and doorbell records that commands name.

use super::opcode;
use crate::commands::{Place, Record, Refused, Request};
use crate::device::{Device, Error};
use crate::interface_state::Kind;
use crate::memory::Memory;

/// Offset of the list of pages in CREATE_EQ, CREATE_CQ and CREATE_QP.
const PAGES: usize = 0x110;
/// The number of bytes of an entry of an event or completion queue, and of a block of a send ring.
pub(super) const ENTRY: u64 = 64;
/// The number of bytes of a doorbell record.
const RECORD: usize = 8;

impl<M: Memory> Device<M> {
    /// Returns the address of a ring of `bytes` bytes, all of which have to be memory. The pages of a ring
    /// may be anywhere in memory. `writes` says that the device writes to the ring.
    pub(super) fn ring(
        &mut self,
        request: &Request,
        place: Place,
        bytes: u64,
        writes: bool,
    ) -> Result<u64, Refused> {
        match place {
            Place::Pages { log_page, offset } => self.ring_on_pages(request, log_page, offset, bytes),
            Place::Umem { number, offset } => {
                let ring = self.in_umem(request, number, offset, bytes, writes)?;
                if self.is_memory(ring, bytes) { Ok(ring) } else { Err(Refused::PARAMETER) }
            }
        }
    }

    /// Returns the address of `length` bytes at an offset in a umem of the command's user. Refuses a place
    /// that the device writes (`writes`) in a umem that was registered only for reads.
    fn in_umem(
        &self,
        request: &Request,
        number: u32,
        offset: u64,
        length: u64,
        writes: bool,
    ) -> Result<u64, Refused> {
        self.may_name(request.uid()?, Kind(opcode::CREATE_UMEM), number)?;
        let umem = self.interface.umems.get(&number).ok_or(Refused::RESOURCE)?;
        let is_inside = offset.checked_add(length).is_some_and(|end| end <= umem.length);
        if !is_inside || writes && !umem.writable {
            return Err(Refused::PARAMETER);
        }
        umem.address.checked_add(offset).ok_or(Refused::PARAMETER)
    }

    /// Returns whether all entries of a ring are inside the memory.
    fn is_memory(&self, ring: u64, bytes: u64) -> bool {
        let is_line = |line: u64| {
            ring.checked_add(line).is_some_and(|at| self.memory.read(at, &mut [0; ENTRY as usize]).is_ok())
        };
        (0..bytes).step_by(ENTRY as usize).all(is_line)
    }

    fn ring_on_pages(
        &mut self,
        request: &Request,
        log_page: u8,
        offset: u16,
        bytes: u64,
    ) -> Result<u64, Refused> {
        let page = 1_u64 << (12 + log_page);
        let offset = u64::from(offset & 0x3f) * (page / 64);
        let count = (offset + bytes).div_ceil(page) as usize;
        // The command may list more pages than the ring needs.
        let listed = request.0.len().saturating_sub(PAGES) / 8;
        let mut pages = request.pages(PAGES, listed.max(count))?;
        pages.truncate(count);
        if pages.iter().any(|at| !at.is_multiple_of(page)) {
            return Err(Refused::PARAMETER);
        }
        let ring = self.memory.open(&pages, 12 + log_page, offset).ok_or(Refused::INPUT_LENGTH)?;
        if !self.is_memory(ring, bytes) {
            self.memory.close(ring);
            return Err(Refused::PARAMETER);
        }
        Ok(ring)
    }

    /// Records the umems of a new queue's ring and doorbell record, so that they cannot be destroyed before
    /// the queue. Returns the queue's number. If the creation has failed (`made`), removes the window of a
    /// ring on pages from the device's bus.
    pub(super) fn with_ring(
        &mut self,
        kind: u16,
        (ring, place): (u64, Place),
        record: Option<u32>,
        made: Result<u32, Error>,
    ) -> Result<u32, Refused> {
        let umem = place.umem();
        match made {
            Ok(number) => _ = self.interface.over_umems.insert((Kind(kind), number), [umem, record]),
            Err(_) if umem.is_none() => self.memory.close(ring),
            Err(_) => {}
        }
        Ok(made?)
    }

    /// Removes the window of a destroyed queue's ring from the device's bus, unless the ring is in a umem.
    pub(super) fn close_ring(&mut self, kind: u16, number: u32, ring: u64) {
        let umems = self.interface.over_umems.remove(&(Kind(kind), number));
        if !matches!(umems, Some([Some(_), _])) {
            self.memory.close(ring);
        }
    }

    /// Returns the address of the doorbell record that a command names: in memory, or in a umem.
    pub(super) fn record(&self, request: &Request, record: Record) -> Result<u64, Refused> {
        let at = match record.umem {
            Some(umem) => self.in_umem(request, umem, record.offset, RECORD as u64, false)?,
            None => record.offset,
        };
        let is_memory = self.memory.read(at, &mut [0; RECORD]).is_ok();
        if at.is_multiple_of(RECORD as u64) && is_memory { Ok(at) } else { Err(Refused::PARAMETER) }
    }
}
