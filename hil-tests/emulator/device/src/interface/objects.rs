//! Commands that make, change and destroy objects.

use super::queue_pairs::steps;
use super::reply::{self, HEADER, Refused, free};
use super::request::Request;
use super::rings::{ENTRY, PAGES, Place};
use super::{ethernet, opcode};
use crate::device::{Device, Error};
use crate::interface_state::{Eq, Notify};
use crate::keys::DekError;
use crate::memory::Memory;
use crate::object::cq::CqAttributes;
use crate::object::dek::DekAttributes;
use crate::object::mkey::{Layout, Mkey, MkeyAttributes, MkeySpace, PageEntry};
use crate::object::srq::{SrqAttributes, Topology};
use crate::profile::{CryptoMode, Port};
use alloc::vec::Vec;
use mlx5_mkey::types::{Key, MkeyIndex};
use mlx5_mkey::wire::klm::Klm;
use mlx5_mkey::wire::mkey_context::MkeyContext;
use zerocopy::FromBytes;

/// The commands that create objects of a number alone: receive queues and domains of XRC, which no queue pair
/// of this device uses. CREATE_UCTX also makes a number alone.
const NUMBERS: &[u16] = &[opcode::CREATE_XRC_SRQ, opcode::ALLOC_XRCD];

/// The object type of data encryption keys.
const DEK: u16 = 0xc;
/// The number of bytes of a general object in a reply.
const OBJECT: usize = 256;

/// Offset of the context of an mkey in a command.
const MKC: usize = 0x10;

/// The numbers of UAR pages, which are their places in BAR 0. Lower pages belong to the initialization
/// segment.
const UARS: core::ops::Range<u32> = 0x10..0x100;
const EQS: core::ops::Range<u32> = 1..0x100;
/// Logarithm of the most entries of an event queue or of a completion queue.
const LOG_MAX_EVENTS: u8 = 22;

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
            opcode if steps(opcode) => self.step(opcode, number, request),
            opcode if is_number(&opcode) => self.make_number(opcode),
            opcode::CREATE_MKEY => self.create_mkey_by_command(request),
            opcode::DESTROY_MKEY => done(self.destroy_mkey(MkeyIndex::from_low_bits(number))),
            opcode::CREATE_PSV => {
                let psvs = self.create_psvs(number, u32::from(request.u8(8)? >> 4))?;
                let indices: Vec<u8> = psvs.iter().flat_map(|psv| psv.to_be_bytes()).collect();
                Ok(reply::with(0x20, 0x10, &indices))
            }
            opcode::DESTROY_PSV => done(self.destroy_psv(number)),
            opcode::CREATE_UMEM => self.create_umem(request),
            opcode::DESTROY_UMEM => self.destroy_umem(number),
            opcode::CREATE_OBJECT if request.u16(6)? == DEK => self.create_dek_by_command(request),
            opcode::MODIFY_OBJECT if request.u16(6)? == DEK => self.modify_dek_by_command(request),
            opcode::QUERY_OBJECT if request.u16(6)? == DEK => {
                let opaque = self.interface.opaques.get(&request.u32(8)?).ok_or(Refused::RESOURCE)?;
                // The reply has state 0 (ready) and the opaque bytes. The key itself is left out.
                Ok(reply::with(HEADER + OBJECT, HEADER + 0x30, opaque))
            }
            opcode::DESTROY_OBJECT if request.u16(6)? == DEK => {
                let dek = request.u32(8)?;
                self.destroy_dek(dek)?;
                self.interface.opaques.remove(&dek);
                Ok(reply::done())
            }
            opcode::SYNC_CRYPTO => {
                // `crypto_type` 1 selects all DEKs.
                if request.u16(0xe)? != 1 || self.profile().crypto == CryptoMode::None {
                    return Err(Refused::PARAMETER);
                }
                self.sync_crypto();
                Ok(reply::done())
            }
            _ => match opcode::maker(opcode).filter(is_number) {
                Some(makes) if self.interface.numbers.remove(&(makes, number)) => Ok(reply::done()),
                Some(_) => Err(Refused::RESOURCE),
                None => Err(Refused::OPCODE),
            },
        }
    }

    /// Creates an object that is only a number. Receive queues of XRC share one range of numbers with shared
    /// receive queues, whose numbers are below 0x10_0000 on this device.
    pub(super) fn make_number(&mut self, opcode: u16) -> Answer {
        let numbers = match opcode {
            opcode::CREATE_XRC_SRQ => 0x10_0000..0x20_0000,
            // A counter has a byte for its number.
            opcode::ALLOC_Q_COUNTER => 1..0x100,
            _ => 1..0xffff,
        };
        let number = free(numbers, |number| self.interface.numbers.contains(&(opcode, *number)))?;
        self.interface.numbers.insert((opcode, number));
        Ok(reply::number(number))
    }

    /// CREATE_RMP: creates a shared receive queue on pages (PRM `rmpc`, `wq`).
    fn create_rmp(&mut self, request: &Request) -> Answer {
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
        let doorbell_record = self.record(request, at(0x10), record)?;
        let pd = request.u24(at(9))?;
        let place = match request.umem(valid & 0x40 != 0, at(0x2c))? {
            Some(number) => Place::Umem { number, offset: request.u64(at(0x30))? },
            None => Place::Pages {
                log_page: request.u8(at(0x22))? & 0x1f,
                offset: (request.u8(at(5))? & 0x1f).into(),
            },
        };
        let ring = self.ring(request, place, 1 << (log_slots + log_stride), false)?;
        let stride = 1 << log_stride;
        let made = self.create_srq(SrqAttributes { pd, topology, ring, log_slots, stride, doorbell_record });
        Ok(reply::number(self.with_ring(opcode::CREATE_RMP, (ring, place), record, made)?))
    }

    /// MODIFY_RMP: arms the limit of a shared receive queue.
    fn modify_rmp(&mut self, request: &Request) -> Answer {
        const LIMIT: u8 = 1;
        if request.u8(0x17)? & LIMIT != 0 {
            self.arm_srq(request.u24(9)?, request.u16(0x56)?.into())?;
        }
        Ok(reply::done())
    }

    fn destroy_rmp(&mut self, number: u32) -> Answer {
        let ring = self.objects.srqs.get(number).map(|srq| srq.attributes.ring);
        self.destroy_srq(number)?;
        ring.into_iter().for_each(|ring| self.close_ring(opcode::CREATE_RMP, number, ring));
        Ok(reply::done())
    }

    /// Creates a region on pages (access mode MTT). The command lists the pages, unless the region is free: a
    /// UMR then writes them. With `pg_access`, the lowest bits of a page entry are rights. Without
    /// `pg_access`, an entry has all rights.
    fn create_region(
        &mut self,
        request: &Request,
        attributes: MkeyAttributes,
        umr: bool,
    ) -> Result<Key, Refused> {
        let at = |offset: usize| MKC + offset;
        let (start, length) = (request.u64(at(0x10))?, request.u64(at(0x18))?);
        let log_page = request.u8(at(0x3b))? & 0x1f;
        // Assumption: a free key needs `umr_en`, since only a UMR can fill it.
        if log_page < 12 || attributes.free && !umr {
            return Err(Refused::PARAMETER);
        }
        let page = 1_u64 << log_page;
        let end = (start & (page - 1)).checked_add(length).ok_or(Refused::PARAMETER)?;
        start.checked_add(length).ok_or(Refused::PARAMETER)?;
        let mut mkey = Mkey { start, length, umr, ..Mkey::on_pages(attributes, log_page) };
        if let Layout::Pages(_, pages) = &mut mkey.layout
            && !attributes.free
        {
            let count = usize::try_from(end.div_ceil(page)).map_err(|_| Refused::INPUT_LENGTH)?;
            let listed = request.bytes(PAGES, count.checked_mul(8).ok_or(Refused::INPUT_LENGTH)?)?;
            let has_rights = request.u8(0xc)? & 0x80 != 0;
            let entry = |word: &[u8; 8]| PageEntry(u64::from_be_bytes(*word));
            let (words, _) = listed.as_chunks();
            pages.extend(words.iter().map(entry).map(|one| if has_rights { one } else { one.with_rights() }));
        }
        Ok(self.insert_mkey(mkey)?)
    }

    /// Returns the number of a doorbell page, if the page is allocated.
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
        // The owner bit of an unwritten entry has to be 1. Otherwise the host would take the entry for an
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
        let log_entries = request.u8(0x1c)? & 0x1f;
        // Refuses entries of more than 128 bytes (`cqe_sz`), and too many entries.
        if request.u8(0x11)? & 0xc0 != 0 || log_entries > LOG_MAX_EVENTS {
            return Err(Refused::PARAMETER);
        }
        let uar = self.uar(request.u24(0x1d)?)?;
        let eq = request.u32(0x24)?;
        if !self.interface.eqs.contains_key(&eq) {
            return Err(Refused::RESOURCE);
        }
        let record = request.umem(request.u8(0x10)? & 0x02 != 0, 0x14)?;
        let doorbell_record = self.record(request, 0x48, record)?;
        let place = match request.umem(request.u8(0x5c)? & 0x80 != 0, 0x58)? {
            Some(number) => Place::Umem { number, offset: request.u64(0x50)? },
            None => Place::Pages { log_page: request.u8(0x28)? & 0x1f, offset: request.u16(0x1a)? >> 6 },
        };
        let entry_bytes = (ENTRY as u8) << (request.u8(0x11)? >> 5 & 1);
        let ring = self.ring(request, place, u64::from(entry_bytes) << log_entries, true)?;
        let attributes = CqAttributes {
            ring,
            log_entries,
            entry_bytes,
            doorbell_record,
            ignore_overrun: request.u8(0x11)? & 0x02 != 0,
        };
        let made = self.create_cq(attributes);
        let number = self.with_ring(opcode::CREATE_CQ, (ring, place), record, made)?;
        self.interface.cqs.insert(number, Notify { eq, armed: None, uar });
        Ok(reply::number(number))
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
        let context = MkeyContext::read_from_bytes(request.bytes(MKC, size_of::<MkeyContext>())?);
        let context = context.map_err(|_| Refused::INPUT_LENGTH)?;
        let (is_whole_space, is_filled_by_umr) =
            (context.flags_pd_word().length64(), context.access & 0x80 != 0);
        let attributes = MkeyAttributes::of_context(&context);
        let MkeyAttributes { pd, tag, access, relaxed_ordering, .. } = attributes;
        self.known_pd(pd)?;
        let key = match (context.free & 0x1c, context.access & 3) {
            // A key over all addresses of the bus.
            (0, 0) if is_whole_space => {
                self.insert_mkey(Mkey { tag, relaxed_ordering, ..Mkey::region(pd, 0, 0, u64::MAX, access) })?
            }
            (0, 1) => {
                let attributes = MkeyAttributes { signature: false, crypto: false, ..attributes };
                self.create_region(request, attributes, is_filled_by_umr)?
            }
            // Entries with their own lengths (KLM), or of one length (KSM). A UMR writes them, or the command
            // contains them.
            (0, 2 | 3) if is_filled_by_umr => self.create_mkey(attributes)?,
            (0, 2 | 3) if !is_whole_space => {
                let entries = (0..request.u32(0x60)? as usize).map(|entry| {
                    let entry = request.bytes(0x110 + entry * 16, 16)?;
                    Klm::read_from_bytes(entry).map_err(|_| Refused::INPUT_LENGTH)
                });
                let entries = entries.collect::<Result<_, _>>()?;
                let (start, length) = (context.start_addr.get(), context.len.get());
                self.create_mkey_over(attributes, MkeySpace { start, length, entries })?
            }
            _ => return Err(Refused::PARAMETER),
        };
        Ok(reply::number(key.index().get()))
    }

    fn create_dek_by_command(&mut self, request: &Request) -> Answer {
        let number = self.create_dek(self.dek(request)?)?;
        let mut opaque = [0; 8];
        opaque.copy_from_slice(request.bytes(HEADER + 0x30, 8)?);
        self.interface.opaques.insert(number, opaque);
        Ok(reply::number(number))
    }

    /// MODIFY_GENERAL_OBJECT: gives a DEK another value. No other field can change.
    fn modify_dek_by_command(&mut self, request: &Request) -> Answer {
        const KEY: u64 = 1;
        if request.u64(HEADER)? != KEY {
            return Err(Refused::PARAMETER);
        }
        self.modify_dek(request.u32(8)?, self.dek(request)?)?;
        Ok(reply::done())
    }

    /// Returns the attributes of the DEK in a command. The command queue has no logins.
    fn dek<'r>(&self, request: &'r Request) -> Result<DekAttributes<'r>, Refused> {
        let object = request.bytes(HEADER, request.0.len().saturating_sub(HEADER))?;
        DekAttributes::read(object, self.profile().crypto, None).map_err(|error| match error {
            DekError::Length => Refused::INPUT_LENGTH,
            DekError::Refused(error) => error.into(),
        })
    }
}
