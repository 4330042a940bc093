//! Executes commands that make, change and destroy objects.

use super::rings::ENTRY;
use super::{ethernet, opcode};
use crate::commands::reply::{self, free};
use crate::commands::{
    CqCommand, KeySpace, MkeyCommand, Place, PsvCommand, Refused, Request, RmpCommand, dek, dek_reply,
    limit_of_rmp, modifies_key, opaque, psv_reply, steps, syncs_crypto,
};
use crate::device::{Device, Error};
use crate::interface_state::{Eq, Notify};
use crate::memory::Memory;
use crate::object::mkey::{Layout, Mkey, MkeyAttributes, PageEntry};
use crate::profile::Port;
use alloc::vec::Vec;
use mlx5_mkey::types::MkeyIndex;

/// The commands that create objects with a number and no other state: receive queues and domains of XRC,
/// which no queue pair of this device uses.
const NUMBERS: &[u16] = &[opcode::CREATE_XRC_SRQ, opcode::ALLOC_XRCD];

/// The object type of data encryption keys.
const DEK: u16 = 0xc;

/// The numbers of UAR pages. The number of a page is its place in BAR 0. Lower pages belong to the
/// initialization segment.
const UARS: core::ops::Range<u32> = 0x10..0x100;
const EQS: core::ops::Range<u32> = 1..0x100;
/// Logarithm of the most entries of an event queue.
const LOG_MAX_EVENTS: u8 = 22;

/// The most octowords of page entries of a region: 32 GiB of pages of 4 KiB. The limit belongs to this
/// device. It bounds the memory that one UMR with a large offset makes the device allocate.
const MOST_PAGE_ENTRIES: u32 = 1 << 22;

type Answer = Result<Vec<u8>, Refused>;

impl<M: Memory> Device<M> {
    pub(super) fn object_command(&mut self, opcode: u16, request: &Request) -> Answer {
        let number = request.u24(9)?;
        let done = |outcome: Result<(), Error>| Ok(outcome.map(|()| reply::done())?);
        if self.profile().port == Port::Ethernet
            && let Some(answer) = self.interface_command(opcode, request)
        {
            return answer;
        }
        let is_number = |opcode: &u16| {
            let interface = self.profile().port == Port::Ethernet && ethernet::NUMBERS.contains(opcode);
            NUMBERS.contains(opcode) || interface
        };
        match opcode {
            opcode::ALLOC_PD => Ok(reply::number(self.alloc_pd()?)),
            opcode::DEALLOC_PD => done(self.dealloc_pd(number)),
            opcode::ALLOC_UAR => {
                let page = free(UARS, |number| self.interface.uars.contains(number))?;
                self.interface.uars.insert(page);
                Ok(reply::number(page))
            }
            opcode::DEALLOC_UAR => {
                let is_page = self.interface.uars.remove(&number);
                if is_page { Ok(reply::done()) } else { Err(Refused::RESOURCE) }
            }
            opcode::CREATE_EQ => self.create_eq(request),
            opcode::DESTROY_EQ => self.destroy_eq(number & 0xff),
            opcode::CREATE_CQ => self.create_cq_on_pages(request),
            opcode::MODIFY_CQ => self.moderate_cq(number, request),
            opcode::DESTROY_CQ => self.destroy_cq_on_pages(number),
            opcode::CREATE_QP => self.create_qp_on_pages(request),
            opcode::DESTROY_QP => self.destroy_qp_on_pages(number),
            opcode::QUERY_QP => self.query_qp(number),
            opcode::CREATE_RMP => self.create_rmp(request),
            opcode::MODIFY_RMP => self.modify_rmp(request),
            opcode::DESTROY_RMP => self.destroy_rmp(number),
            opcode if steps(opcode) => self.step(number, request),
            opcode if is_number(&opcode) => Ok(reply::number(self.make_number(opcode)?)),
            opcode::CREATE_MKEY => self.create_mkey_by_command(request),
            opcode::DESTROY_MKEY => done(self.destroy_mkey(MkeyIndex::from_low_bits(number))),
            opcode::CREATE_PSV => {
                let PsvCommand { pd, count } = PsvCommand::read(request)?;
                Ok(psv_reply(&self.create_psvs(pd, count)?))
            }
            opcode::DESTROY_PSV => done(self.destroy_psv(number)),
            opcode::CREATE_UMEM => self.create_umem(request),
            opcode::DESTROY_UMEM => self.destroy_umem(number),
            opcode::CREATE_OBJECT if request.u16(6)? == DEK => self.create_dek_by_command(request),
            opcode::MODIFY_OBJECT if request.u16(6)? == DEK => self.modify_dek_by_command(request),
            opcode::QUERY_OBJECT if request.u16(6)? == DEK => {
                let opaque = self.interface.opaques.get(&request.u32(8)?).ok_or(Refused::RESOURCE)?;
                Ok(dek_reply(opaque))
            }
            opcode::DESTROY_OBJECT if request.u16(6)? == DEK => {
                let dek = request.u32(8)?;
                self.destroy_dek(dek)?;
                self.interface.opaques.remove(&dek);
                Ok(reply::done())
            }
            opcode::SYNC_CRYPTO => {
                syncs_crypto(request, self.profile())?;
                self.sync_crypto();
                Ok(reply::done())
            }
            _ => match opcode::ended(opcode).filter(|(makes, _)| is_number(makes)) {
                Some((makes, at)) if self.interface.numbers.remove(&(makes, request.u24(at)?)) => {
                    Ok(reply::done())
                }
                Some(_) => Err(Refused::RESOURCE),
                None => Err(Refused::OPCODE),
            },
        }
    }

    /// Creates an object that has a number and no other state, such as a user context (CREATE_UCTX). Receive
    /// queues of XRC share one range of numbers with shared receive queues, whose numbers are below 0x10_0000
    /// on this device.
    pub(super) fn make_number(&mut self, opcode: u16) -> Result<u32, Refused> {
        let numbers = match opcode {
            opcode::CREATE_XRC_SRQ => 0x10_0000..0x20_0000,
            // Commands name a set of counters by one byte.
            opcode::ALLOC_Q_COUNTER => 1..0x100,
            _ => 1..0xffff,
        };
        let number = free(numbers, |number| self.interface.numbers.contains(&(opcode, *number)))?;
        self.interface.numbers.insert((opcode, number));
        Ok(number)
    }

    /// CREATE_RMP: creates a shared receive queue.
    fn create_rmp(&mut self, request: &Request) -> Answer {
        let command = RmpCommand::read(request)?;
        let record = self.record(request, command.record)?;
        let ring = self.ring(request, command.ring, command.bytes(), false)?;
        let made = self.create_srq(command.attributes(ring, record));
        let places = (ring, command.ring);
        Ok(reply::number(self.with_ring(opcode::CREATE_RMP, places, command.record.umem, made)?))
    }

    /// MODIFY_RMP: arms the limit of a shared receive queue.
    fn modify_rmp(&mut self, request: &Request) -> Answer {
        if let Some(limit) = limit_of_rmp(request)? {
            self.arm_srq(request.u24(9)?, limit.into())?;
        }
        Ok(reply::done())
    }

    fn destroy_rmp(&mut self, number: u32) -> Answer {
        let ring = self.objects.srqs.get(number).map(|srq| srq.attributes.ring);
        self.destroy_srq(number)?;
        ring.into_iter().for_each(|ring| self.close_ring(opcode::CREATE_RMP, number, ring));
        Ok(reply::done())
    }

    /// Returns the number of a UAR page, if the page is allocated.
    pub(super) fn uar(&self, number: u32) -> Result<u32, Refused> {
        if self.interface.uars.contains(&number) { Ok(number) } else { Err(Refused::RESOURCE) }
    }

    fn create_eq(&mut self, request: &Request) -> Answer {
        let log_entries = request.u8(0x1c)? & 0x1f;
        let uar = self.uar(request.u24(0x1d)?)?;
        // The ring of an event queue has to begin at a page (the vfio selftest driver of Linux).
        if log_entries > LOG_MAX_EVENTS || request.u16(0x1a)? >> 6 & 0x3f != 0 {
            return Err(Refused::PARAMETER);
        }
        let number = free(EQS, |number| self.interface.eqs.contains_key(number))?;
        let mut events = [0; 4];
        for (word, at) in events.iter_mut().zip((0x58..).step_by(8)) {
            *word = request.u64(at)?;
        }
        let vector = request.u16(0x26)? & 0xfff;
        let place = Place::Pages { log_page: request.u8(0x28)? & 0x1f, offset: 0 };
        let ring = self.ring(request, place, ENTRY << log_entries, true)?;
        let mut owner = [0];
        let is_read = self.memory.read(ring + ENTRY - 1, &mut owner).is_ok();
        // The owner bit of an unwritten entry has to be 1. Otherwise the host would read the entry as an
        // event.
        if !is_read || owner != [1] {
            self.memory.close(ring);
            return Err(Refused::PARAMETER);
        }
        let eq = Eq { ring, log_entries, events, vector, producer: 0, consumer: 0, armed: false, uar };
        self.interface.eqs.insert(number, eq);
        Ok(reply::number(number))
    }

    fn destroy_eq(&mut self, number: u32) -> Answer {
        let eq = self.interface.eqs.remove(&number).ok_or(Refused::RESOURCE)?;
        self.memory.close(eq.ring);
        Ok(reply::done())
    }

    fn create_cq_on_pages(&mut self, request: &Request) -> Answer {
        let command = CqCommand::read(request)?;
        let (uar, eq) = (self.uar(command.uar)?, command.eq);
        if !self.interface.eqs.contains_key(&eq) {
            return Err(Refused::RESOURCE);
        }
        let record = self.record(request, command.record)?;
        let ring = self.ring(request, command.ring, command.bytes(), true)?;
        let made = self.create_cq(command.attributes(ring, record));
        let cq = self.with_ring(opcode::CREATE_CQ, (ring, command.ring), command.record.umem, made)?;
        if command.collapsed {
            self.collapse_cq(cq)?;
        }
        self.interface.cqs.insert(cq, Notify { eq, armed: None, uar });
        Ok(reply::number(cq))
    }

    /// MODIFY_CQ: takes the moderation of events (`cq_period`, `cq_max_count`), which permits the device to
    /// collect entries before an event. This device raises each event at once.
    fn moderate_cq(&self, number: u32, request: &Request) -> Answer {
        const PERIOD_AND_COUNT: u32 = 3;
        const RESIZE: u16 = 1;
        if self.objects.cqs.get(number).is_none() {
            return Err(Refused::RESOURCE);
        }
        if request.u16(6)? == RESIZE || request.u32(0xc)? & !PERIOD_AND_COUNT != 0 {
            return Err(Refused::PARAMETER);
        }
        Ok(reply::done())
    }

    fn destroy_cq_on_pages(&mut self, number: u32) -> Answer {
        let ring = self.objects.cqs.get(number).map(|cq| cq.attributes.ring);
        self.destroy_cq(number)?;
        self.interface.cqs.remove(&number);
        ring.into_iter().for_each(|ring| self.close_ring(opcode::CREATE_CQ, number, ring));
        Ok(reply::done())
    }

    fn create_mkey_by_command(&mut self, request: &Request) -> Answer {
        let MkeyCommand { attributes, space } = MkeyCommand::read(request)?;
        let MkeyAttributes { pd, tag, access, relaxed_ordering, .. } = attributes;
        self.known_pd(pd)?;
        let key = match space {
            KeySpace::Bus => {
                self.insert_mkey(Mkey { tag, relaxed_ordering, ..Mkey::region(pd, 0, 0, u64::MAX, access) })?
            }
            KeySpace::Pages { start, length, log_page, umr, entries } => {
                if attributes.translations > MOST_PAGE_ENTRIES {
                    return Err(Refused::PARAMETER);
                }
                let mut mkey = Mkey { start, length, umr, ..Mkey::on_pages(attributes, log_page) };
                if let Layout::Pages(_, pages) = &mut mkey.layout {
                    pages.extend(entries.into_iter().map(PageEntry));
                }
                self.insert_mkey(mkey)?
            }
            // A region in a umem is refused: a region of this device does not keep its umem from being
            // destroyed.
            KeySpace::Umem { .. } => return Err(Refused::PARAMETER),
            KeySpace::Umr => self.create_mkey(attributes)?,
            KeySpace::Entries(space) => self.create_mkey_over(attributes, space)?,
        };
        Ok(reply::number(key.index().get()))
    }

    fn create_dek_by_command(&mut self, request: &Request) -> Answer {
        // The command queue creates no logins, so a device that needs a login refuses the DEK.
        let opaque = opaque(request)?;
        let dek = self.create_dek(dek(request, self.profile().crypto, None)?)?;
        self.interface.opaques.insert(dek, opaque);
        Ok(reply::number(dek))
    }

    /// MODIFY_GENERAL_OBJECT: gives a DEK another value.
    fn modify_dek_by_command(&mut self, request: &Request) -> Answer {
        modifies_key(request)?;
        self.modify_dek(request.u32(8)?, dek(request, self.profile().crypto, None)?)?;
        Ok(reply::done())
    }
}
