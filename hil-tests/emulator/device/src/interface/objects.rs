//! Commands that make, change and destroy objects.

use super::events::{Eq, Notify};
use super::reply::{self, HEADER, Refused};
use super::request::Request;
use crate::device::{Device, Error};
use crate::memory::Memory;
use crate::object::cq::CqAttributes;
use crate::object::dek::{DekAttributes, KeyMaterial, KeySize};
use crate::object::mkey::{Access, Mkey, MkeyAttributes, MkeySpace};
use crate::object::qp::{Peer, QpAttributes, QpState, ReceiveQueue, ReceiveRing, Retries, Transport};
use alloc::vec::Vec;
use mlx5_mkey::types::MkeyIndex;
use mlx5_mkey::wire::klm::Klm;
use zerocopy::FromBytes;

/// Opcodes.
mod opcode {
    pub(super) const CREATE_MKEY: u16 = 0x200;
    pub(super) const DESTROY_MKEY: u16 = 0x202;
    pub(super) const CREATE_EQ: u16 = 0x301;
    pub(super) const DESTROY_EQ: u16 = 0x302;
    pub(super) const CREATE_CQ: u16 = 0x400;
    pub(super) const DESTROY_CQ: u16 = 0x401;
    pub(super) const CREATE_QP: u16 = 0x500;
    pub(super) const DESTROY_QP: u16 = 0x501;
    pub(super) const RST2INIT_QP: u16 = 0x502;
    pub(super) const INIT2RTR_QP: u16 = 0x503;
    pub(super) const RTR2RTS_QP: u16 = 0x504;
    pub(super) const TO_ERR_QP: u16 = 0x507;
    pub(super) const TO_RST_QP: u16 = 0x50a;
    pub(super) const CREATE_PSV: u16 = 0x600;
    pub(super) const DESTROY_PSV: u16 = 0x601;
    pub(super) const ALLOC_PD: u16 = 0x800;
    pub(super) const DEALLOC_PD: u16 = 0x801;
    pub(super) const ALLOC_UAR: u16 = 0x802;
    pub(super) const DEALLOC_UAR: u16 = 0x803;
    pub(super) const CREATE_OBJECT: u16 = 0xa00;
    pub(super) const DESTROY_OBJECT: u16 = 0xa03;
}

/// The type of data encryption keys, and the purpose AES-XTS.
const DEK: u16 = 0xc;
const XTS: u8 = 3;

/// Where the list of pages begins in CREATE_EQ, CREATE_CQ and CREATE_QP.
const PAGES: usize = 0x110;
/// Bytes of an entry of an event or completion queue, and of a block of a send ring.
const ENTRY: u64 = 64;
/// Bytes of a doorbell record.
const RECORD: usize = 8;
/// Where the context of a queue pair begins.
const QPC: usize = 0x18;
/// Where the context of an mkey begins.
const MKC: usize = 0x10;

/// UAR pages: those below are the initialization segment's.
const UARS: core::ops::Range<u32> = 0x10..0x100;
const EQS: core::ops::Range<u32> = 1..0x100;
/// Logarithm of the most entries of an event queue.
const LOG_MAX_EVENTS: u8 = 22;

type Answer = Result<Vec<u8>, Refused>;

/// Returns the first number that is free.
fn free(mut range: core::ops::Range<u32>, is_used: impl Fn(&u32) -> bool) -> Result<u32, Refused> {
    Ok(range.find(|number| !is_used(number)).ok_or(Error::Exhausted)?)
}

impl<M: Memory> Device<M> {
    pub(super) fn object_command(&mut self, opcode: u16, request: &Request) -> Answer {
        let number = request.u24(9)?;
        let done = |outcome: Result<(), Error>| Ok(outcome.map(|()| reply::done())?);
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
            opcode::DESTROY_CQ => self.destroy_cq_on_pages(number),
            opcode::CREATE_QP => self.create_qp_on_pages(request),
            opcode::DESTROY_QP => self.destroy_qp_on_pages(number),
            opcode::RST2INIT_QP | opcode::INIT2RTR_QP | opcode::RTR2RTS_QP => {
                self.step(opcode, number, request)
            }
            opcode::TO_ERR_QP => done(self.modify(number, QpState::Error)),
            opcode::TO_RST_QP => done(self.modify(number, QpState::Reset)),
            opcode::CREATE_MKEY => self.create_mkey_by_command(request),
            opcode::DESTROY_MKEY => done(self.destroy_mkey(MkeyIndex::from_low_bits(number))),
            opcode::CREATE_PSV => {
                let psvs = self.create_psvs(number, u32::from(request.u8(8)? >> 4))?;
                let indices: Vec<u8> = psvs.iter().flat_map(|psv| psv.to_be_bytes()).collect();
                Ok(reply::with(0x20, 0x10, &indices))
            }
            opcode::DESTROY_PSV => done(self.destroy_psv(number)),
            opcode::CREATE_OBJECT if request.u16(6)? == DEK => self.create_dek_by_command(request),
            opcode::DESTROY_OBJECT if request.u16(6)? == DEK => done(self.destroy_dek(request.u32(8)?)),
            _ => Err(Refused::OPCODE),
        }
    }

    /// Returns where a ring of `bytes` is that begins `offset` blocks of 64 bytes into the first page of a
    /// list: whole, and memory. Pages may be anywhere.
    fn ring(&mut self, request: &Request, log_page: u8, offset: u16, bytes: u64) -> Result<u64, Refused> {
        let offset = u64::from(offset & 0x3f) * ENTRY;
        let page = 1_u64 << (12 + log_page);
        let count = (offset + bytes).div_ceil(page) as usize;
        // More pages than are needed are as good.
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

    /// Forgets where a ring is of which nothing has come.
    fn with_ring<T>(&mut self, ring: u64, made: Result<T, Error>) -> Result<T, Refused> {
        if made.is_err() {
            self.memory.close(ring);
        }
        Ok(made?)
    }

    fn record(&self, at: u64) -> Result<u64, Refused> {
        let is_memory = self.memory.read(at, &mut [0; RECORD]).is_ok();
        if at.is_multiple_of(RECORD as u64) && is_memory { Ok(at) } else { Err(Refused::PARAMETER) }
    }

    fn uar(&self, number: u32) -> Result<(), Refused> {
        if self.interface.uars.contains(&number) { Ok(()) } else { Err(Refused::RESOURCE) }
    }

    fn create_eq(&mut self, request: &Request) -> Answer {
        let log_entries = request.u8(0x1c)? & 0x1f;
        self.uar(request.u24(0x1d)?)?;
        // Its first page has no offset (the vfio selftest driver of Linux).
        if log_entries > LOG_MAX_EVENTS || request.u16(0x1a)? >> 6 & 0x3f != 0 {
            return Err(Refused::PARAMETER);
        }
        let number = free(EQS, |number| self.interface.eqs.contains_key(number))?;
        let mut events = [0; 4];
        for (word, at) in events.iter_mut().zip((0x58..).step_by(8)) {
            *word = request.u64(at)?;
        }
        let vector = request.u16(0x26)? & 0xfff;
        let ring = self.ring(request, request.u8(0x28)? & 0x1f, 0, ENTRY << log_entries)?;
        let mut owner = [0];
        let is_read = self.memory.read(ring + ENTRY - 1, &mut owner).is_ok();
        // An entry that is the host's would be taken for an event.
        if !is_read || owner != [1] {
            self.memory.close(ring);
            return Err(Refused::PARAMETER);
        }
        let eq = Eq { ring, log_entries, events, vector, producer: 0, consumer: 0, armed: false };
        self.interface.eqs.insert(number, eq);
        Ok(reply::number(number))
    }

    fn destroy_eq(&mut self, number: u32) -> Answer {
        let eq = self.interface.eqs.remove(&number).ok_or(Refused::RESOURCE)?;
        self.memory.close(eq.ring);
        Ok(reply::done())
    }

    fn create_cq_on_pages(&mut self, request: &Request) -> Answer {
        // `dbr_umem_valid`, `cqe_sz`; `cq_umem_valid`: there is no user memory.
        if request.u8(0x10)? & 0x02 != 0 || request.u8(0x11)? & 0xe0 != 0 || request.u8(0x5c)? & 0x80 != 0 {
            return Err(Refused::PARAMETER);
        }
        let log_entries = request.u8(0x1c)? & 0x1f;
        self.uar(request.u24(0x1d)?)?;
        let eq = request.u32(0x24)?;
        if !self.interface.eqs.contains_key(&eq) {
            return Err(Refused::RESOURCE);
        }
        let doorbell_record = self.record(request.u64(0x48)?)?;
        let (log_page, offset) = (request.u8(0x28)? & 0x1f, request.u16(0x1a)? >> 6);
        let ring = self.ring(request, log_page, offset, ENTRY << log_entries)?;
        let attributes = CqAttributes {
            ring,
            log_entries,
            entry_bytes: ENTRY as u8,
            doorbell_record,
            ignore_overrun: request.u8(0x11)? & 0x02 != 0,
        };
        let made = self.create_cq(attributes);
        let number = self.with_ring(ring, made)?;
        self.interface.cqs.insert(number, Notify { eq, armed: None });
        Ok(reply::number(number))
    }

    fn destroy_cq_on_pages(&mut self, number: u32) -> Answer {
        let ring = self.objects.cqs.get(number).map(|cq| cq.attributes.ring);
        self.destroy_cq(number)?;
        self.interface.cqs.remove(&number);
        ring.into_iter().for_each(|ring| self.memory.close(ring));
        Ok(reply::done())
    }

    fn destroy_qp_on_pages(&mut self, number: u32) -> Answer {
        let attributes = self.objects.qps.get(number).map(|qp| qp.attributes);
        self.destroy_qp(number)?;
        let rings = attributes.map(|attributes| match attributes.receive {
            ReceiveQueue::Own(ring) => ring.address,
            ReceiveQueue::None | ReceiveQueue::Shared(_) => attributes.sq,
        });
        rings.into_iter().for_each(|rings| self.memory.close(rings));
        self.want_pages();
        Ok(reply::done())
    }

    fn create_qp_on_pages(&mut self, request: &Request) -> Answer {
        let at = |offset: usize| QPC + offset;
        // `st`; `dbr_umem_valid`; `wq_umem_valid`.
        let is_reliable = request.u8(at(1))? == 0;
        let timestamps = request.u8(at(0xb))? >> 6;
        if !self.profile().timestamps.take(timestamps) {
            return Err(Refused::PARAMETER);
        }
        if !is_reliable || request.u8(at(0xd0))? & 0x10 != 0 || request.u8(0x10c)? & 0x80 != 0 {
            return Err(Refused::PARAMETER);
        }
        self.uar(request.u24(at(0xd))?)?;
        let (rq, sq) = (request.u8(at(9))?, request.u8(at(10))?);
        let (log_slots, stride, log_sq_blocks) = (rq >> 3 & 0xf, 16_u16 << (rq & 7), sq >> 3 & 0xf);
        let has_receives = match request.u8(at(0xac))? & 7 {
            0 => true,
            3 => false,
            _ => return Err(Refused::PARAMETER),
        };
        let receives =
            if has_receives { (u64::from(stride) << log_slots).next_multiple_of(ENTRY) } else { 0 };
        let recv_cqn = request.u24(at(0x9d))?;
        let attributes = QpAttributes {
            transport: Transport::ReliableConnection,
            pd: request.u24(at(5))?,
            sq: 0,
            log_sq_blocks,
            receive: ReceiveQueue::None,
            doorbell_record: self.record(request.u64(at(0xa0))?)?,
            send_cqn: request.u24(at(0x7d))?,
            recv_cqn: Some(recv_cqn).filter(|cqn| has_receives || *cqn != 0),
            user_index: request.u24(at(0x11))?,
            drain_sigerr: false,
            rnr_retry: Retries::Infinite,
        };
        let (log_page, offset) = (request.u8(at(0x14))? & 0x1f, request.u16(at(0x92))? >> 6);
        let rings = self.ring(request, log_page, offset, receives + (ENTRY << log_sq_blocks))?;
        let own = ReceiveQueue::Own(ReceiveRing { address: rings, log_slots, stride });
        let receive = if has_receives { own } else { ReceiveQueue::None };
        let made = self.create_qp(QpAttributes { sq: rings + receives, receive, ..attributes });
        let number = self.with_ring(rings, made)?;
        self.set_timestamps(number, timestamps)?;
        self.want_pages();
        Ok(reply::number(number))
    }

    /// RST2INIT, INIT2RTR, RTR2RTS: in this order and no other.
    fn step(&mut self, opcode: u16, qp: u32, request: &Request) -> Answer {
        let at = |offset: usize| QPC + offset;
        let (from, to) = match opcode {
            opcode::RST2INIT_QP => (QpState::Reset, QpState::Init),
            opcode::INIT2RTR_QP => (QpState::Init, QpState::ReadyToReceive),
            _ => (QpState::ReadyToReceive, QpState::ReadyToSend),
        };
        if self.query(qp)?.state != from {
            return Err(Refused::QP_STATE);
        }
        match to {
            QpState::Init => {
                let rights = request.u8(at(0x92))?;
                let allowed = Access {
                    remote_read: rights & 0x80 != 0,
                    remote_write: rights & 0x40 != 0,
                    remote_atomic: rights & 0x20 != 0,
                    ..Access::ALL
                };
                self.set_rights(qp, allowed)?;
            }
            QpState::ReadyToReceive => {
                // `fl`: the peer is on this device, and there is no other.
                let (log_message, log_reads) = (request.u8(at(8))? & 0x1f, request.u8(at(0x91))? >> 5);
                let profile = self.profile();
                let fits = log_message <= profile.log_max_message() && log_reads <= profile.log_max_reads;
                if request.u8(at(0x18))? & 0x80 == 0 || !fits {
                    return Err(Refused::PARAMETER);
                }
                self.connect(qp, Peer::Local(request.u24(at(0x15))?))?;
            }
            _ => {
                if request.u8(at(0x71))? >> 5 > self.profile().log_max_reads {
                    return Err(Refused::PARAMETER);
                }
                let retries = match request.u8(at(0x72))? >> 5 {
                    7 => Retries::Infinite,
                    count => Retries::Count(count),
                };
                self.set_rnr_retry(qp, retries)?;
            }
        }
        self.modify(qp, to)?;
        Ok(reply::done())
    }

    fn create_mkey_by_command(&mut self, request: &Request) -> Answer {
        let at = |offset: usize| MKC + offset;
        let (first, access, flags) = (request.u8(at(0))?, request.u8(at(2))?, request.u8(at(0xc))?);
        let (pd, tag, rights) = (request.u24(at(0xd))?, request.u8(at(7))?, Access::from_byte(access));
        self.known_pd(pd)?;
        let key = match (first & 0x1c, access & 3) {
            // By the addresses of the bus, all 64 bits of them.
            (0, 0) if flags & 0x80 != 0 => {
                self.insert_mkey(Mkey { tag, ..Mkey::region(pd, 0, 0, u64::MAX, rights) })?
            }
            // Entries of their own lengths, or of one length: a UMR writes them, or the command brings them.
            (0, mode @ (2 | 3)) => {
                let crypto = request.u8(at(0x3c))? >> 3 & 3 != 0;
                let bsf = if flags & 0x40 == 0 { 0 } else { request.u32(at(0x20))? };
                let attributes = MkeyAttributes {
                    translations: request.u32(at(0x34))?,
                    signature: bsf >= if crypto { 8 } else { 4 },
                    crypto,
                    access: rights,
                    tag,
                    remote_invalidate: flags & 0x01 != 0,
                    free: first & 0x40 != 0,
                    log_entry: if mode == 3 { Some(request.u8(at(0x3b))? & 0x1f) } else { None },
                    ..MkeyAttributes::new(pd, 0)
                };
                if access & 0x80 != 0 {
                    self.create_mkey(attributes)?
                } else if flags & 0x80 == 0 {
                    let entries = (0..request.u32(0x60)? as usize).map(|entry| {
                        let entry = request.bytes(0x110 + entry * 16, 16)?;
                        Klm::read_from_bytes(entry).map_err(|_| Refused::INPUT_LENGTH)
                    });
                    let entries = entries.collect::<Result<_, _>>()?;
                    let (start, length) = (request.u64(at(0x10))?, request.u64(at(0x18))?);
                    self.create_mkey_over(attributes, MkeySpace { start, length, entries })?
                } else {
                    return Err(Refused::PARAMETER);
                }
            }
            _ => return Err(Refused::PARAMETER),
        };
        Ok(reply::number(key.index().get()))
    }

    fn create_dek_by_command(&mut self, request: &Request) -> Answer {
        let at = |offset: usize| HEADER + offset;
        let flags = request.u8(at(0xb))?;
        if flags & 0xf != XTS {
            return Err(Refused::PARAMETER);
        }
        let (size, bytes) = match request.u8(at(0xa))? & 0xf {
            0 => (KeySize::Bits128, 32),
            1 => (KeySize::Bits256, 64),
            _ => return Err(Refused::PARAMETER),
        };
        let has_keytag = flags & 0x80 != 0;
        let length = if has_keytag { bytes + 8 } else { bytes };
        let key = KeyMaterial::Plaintext(request.bytes(at(0x40), length)?);
        let attributes = DekAttributes { pd: request.u24(at(0xd))?, size, has_keytag, key };
        Ok(reply::number(self.create_dek(attributes)?))
    }
}
