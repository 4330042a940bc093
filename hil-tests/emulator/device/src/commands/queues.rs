//! Reads commands on completion queues and on shared receive queues.

use super::{Place, Record, Refused, Request};
use crate::object::cq::CqAttributes;
use crate::object::srq::{SrqAttributes, Topology};

/// Logarithm of the most entries of a completion queue.
const LOG_MAX_ENTRIES: u8 = 22;

/// The fields of CREATE_CQ, which creates a completion queue (PRM `cqc`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CqCommand {
    /// The place of the entries.
    pub ring: Place,
    /// The place of the doorbell record.
    pub record: Record,
    /// The number of the UAR page with the doorbells of the completion queue.
    pub uar: u32,
    /// The number of the event queue that gets completion events.
    pub eq: u32,
    /// Whether all entries are written over the first entry (PRM `cc`).
    pub collapsed: bool,
    log_entries: u8,
    entry_bytes: u8,
    ignore_overrun: bool,
}

impl CqCommand {
    /// Reads the command.
    ///
    /// # Errors
    /// [`Refused`] for entries of more than 128 bytes, for compressed entries, which this device lacks, and
    /// for too many entries.
    pub fn read(request: &Request) -> Result<Self, Refused> {
        let (flags, more) = (request.u8(0x11)?, request.u8(0x12)?);
        let log_entries = request.u8(0x1c)? & 0x1f;
        // Bits 0xc0 of `flags` are set for a `cqe_sz` above 1 (128 bytes). Bit 0x40 of `more` is
        // `cqe_comp_en`.
        if flags & 0xc0 != 0 || more & 0x40 != 0 || log_entries > LOG_MAX_ENTRIES {
            return Err(Refused::PARAMETER);
        }
        let record = request.umem(request.u8(0x10)? & 0x02 != 0, 0x14)?;
        let ring = request.umem(request.u8(0x5c)? & 0x80 != 0, 0x58)?;
        Ok(Self {
            ring: request.place(ring, 0x50, (request.u8(0x28)? & 0x1f, request.u16(0x1a)? >> 6))?,
            record: request.record(record, 0x48)?,
            uar: request.u24(0x1d)?,
            eq: request.u32(0x24)?,
            log_entries,
            entry_bytes: 64 << (flags >> 5 & 1),
            ignore_overrun: flags & 0x02 != 0,
            collapsed: flags & 0x10 != 0,
        })
    }

    /// Returns the number of bytes of the ring.
    pub fn bytes(&self) -> u64 {
        u64::from(self.entry_bytes) << self.log_entries
    }

    /// Returns the attributes of the queue, with its ring and its doorbell record at these addresses.
    pub const fn attributes(&self, ring: u64, doorbell_record: u64) -> CqAttributes {
        let Self { log_entries, entry_bytes, ignore_overrun, .. } = *self;
        CqAttributes { ring, log_entries, entry_bytes, doorbell_record, ignore_overrun }
    }
}

/// The fields of CREATE_RMP, which creates a shared receive queue. The PRM calls this queue a receive memory
/// pool (PRM `rmpc`, `wq`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RmpCommand {
    /// The place of the ring of receive requests.
    pub ring: Place,
    /// The place of the doorbell record.
    pub record: Record,
    pd: u32,
    topology: Topology,
    log_slots: u8,
    log_stride: u8,
}

impl RmpCommand {
    /// Reads the command.
    ///
    /// # Errors
    /// [`Refused`] for strided queues and for signatures in receive requests, which this device does not
    /// support, and for a wrong number or size of slots in the ring.
    pub fn read(request: &Request) -> Result<Self, Refused> {
        const WQ: usize = 0x50;
        let at = |offset: usize| WQ + offset;
        let topology = match request.u8(at(0))? & 0xf8 {
            0x00 => Topology::LinkedList,
            0x10 => Topology::Cyclic,
            _ => return Err(Refused::PARAMETER),
        };
        let (log_slots, log_stride) = (request.u8(at(0x23))? & 0x1f, request.u8(at(0x21))? & 0xf);
        if log_slots > 16 || !(5..=10).contains(&log_stride) {
            return Err(Refused::PARAMETER);
        }
        let valid = request.u8(at(0x24))?;
        let record = request.umem(valid & 0x80 != 0, at(0x28))?;
        let ring = request.umem(valid & 0x40 != 0, at(0x2c))?;
        let pages = (request.u8(at(0x22))? & 0x1f, (request.u8(at(5))? & 0x1f).into());
        Ok(Self {
            ring: request.place(ring, at(0x30), pages)?,
            record: request.record(record, at(0x10))?,
            pd: request.u24(at(9))?,
            topology,
            log_slots,
            log_stride,
        })
    }

    /// Returns the number of bytes of the ring.
    pub const fn bytes(&self) -> u64 {
        1 << (self.log_slots + self.log_stride)
    }

    /// Returns the attributes of the queue, with its ring and its doorbell record at these addresses.
    pub const fn attributes(&self, ring: u64, doorbell_record: u64) -> SrqAttributes {
        let Self { pd, topology, log_slots, log_stride, .. } = *self;
        SrqAttributes { pd, topology, ring, log_slots, stride: 1 << log_stride, doorbell_record }
    }
}

/// Reads MODIFY_RMP. Returns the limit that the command arms, if its mask selects the limit.
///
/// # Errors
/// [`Refused::INPUT_LENGTH`] if the request is too short.
pub fn limit_of_rmp(request: &Request) -> Result<Option<u16>, Refused> {
    const LIMIT: u8 = 1;
    if request.u8(0x17)? & LIMIT != 0 { request.u16(0x56).map(Some) } else { Ok(None) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;
    use alloc::vec::Vec;

    /// Returns a request of zeros with these bytes in it.
    fn request(bytes: &[(usize, u8)]) -> Request {
        let mut request = vec![0; 0x110];
        bytes.iter().for_each(|(at, value)| request[*at] = *value);
        Request(request.into())
    }

    #[test]
    fn a_completion_queue_has_up_to_2_22_entries_of_64_or_128_bytes() {
        let bytes =
            |flags, log| CqCommand::read(&request(&[(0x11, flags), (0x1c, log)])).map(|cq| cq.bytes());
        assert_eq!([bytes(0, 3), bytes(0x20, 3), bytes(0, 22)], [Ok(512), Ok(1024), Ok(64 << 22)]);
        assert_eq!(bytes(0, 23), Err(Refused::PARAMETER));
    }

    #[test]
    fn a_shared_receive_queue_has_the_slots_of_its_command() {
        let read = |kind, log_slots, log_stride| {
            RmpCommand::read(&request(&[(0x50, kind), (0x55, 0xe3), (0x73, log_slots), (0x71, log_stride)]))
        };
        for (kind, topology) in [(0, Topology::LinkedList), (0x10, Topology::Cyclic)] {
            let rmp = read(kind, 16, 5).unwrap();
            assert_eq!((rmp.topology, rmp.bytes()), (topology, 32 << 16));
            assert_eq!(rmp.ring, Place::Pages { log_page: 0, offset: 3 });
        }
        let sizes: Vec<_> = (0..16).filter(|log| read(0, 16, *log).is_ok()).collect();
        assert_eq!(sizes, [5, 6, 7, 8, 9, 10]);
        assert_eq!(read(0, 17, 5), Err(Refused::PARAMETER));
        assert_eq!(read(0x20, 4, 5), Err(Refused::PARAMETER));
    }

    #[test]
    fn a_limit_is_armed_if_the_mask_selects_it() {
        let limit = |mask| limit_of_rmp(&request(&[(0x17, mask), (0x56, 1), (0x57, 2)]));
        assert_eq!([limit(1), limit(0), limit(0xfe)], [Ok(Some(0x102)), Ok(None), Ok(None)]);
    }
}
