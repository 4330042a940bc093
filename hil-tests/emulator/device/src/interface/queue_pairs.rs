//! Commands on queue pairs: creation on pages, transitions between states, queries (PRM `qpc`; `qp.c` of
//! Linux's mlx5_ib).

use super::opcode;
use super::reply::{self, Refused};
use super::request::Request;
use super::rings::{ENTRY, Place};
use crate::device::Device;
use crate::interface_state::{Kind, QPC_BYTES};
use crate::memory::Memory;
use crate::object::mkey::Access;
use crate::object::qp::{Peer, Qp, QpAttributes, QpState, ReceiveQueue, ReceiveRing, Retries, Transport};
use crate::profile::{LID, Port};
use alloc::vec::Vec;

type Answer = Result<Vec<u8>, Refused>;

/// Offset of the queue pair's context in a command.
const QPC: usize = 0x18;

/// Transport services of queue pairs (`st`, `MLX5_QP_ST_*`).
mod service {
    pub(super) const RELIABLE: u8 = 0;
    pub(super) const UNRELIABLE: u8 = 1;
    pub(super) const DATAGRAM: u8 = 2;
    pub(super) const MANAGEMENT_0: u8 = 7;
    pub(super) const MANAGEMENT_1: u8 = 8;
    pub(super) const UMR: u8 = 12;
}

/// A command that changes the state of queue pairs: its opcode, the states in which it is allowed (`None` for
/// all), the new state, and the bytes of the context that it sets.
struct Step {
    opcode: u16,
    from: Option<&'static [QpState]>,
    to: QpState,
    sets: &'static [core::ops::Range<usize>],
}

const STEPS: &[Step] = &[
    // RST2INIT_QP sets the path, the rights and the Q_Key. INIT2INIT_QP sets none of them.
    Step {
        opcode: 0x502,
        from: Some(&[QpState::Reset]),
        to: QpState::Init,
        sets: &[0x18..0x44, 0x92..0x93, 0xa8..0xac],
    },
    Step { opcode: 0x50e, from: Some(&[QpState::Init]), to: QpState::Init, sets: &[] },
    // INIT2RTR_QP sets sizes, the peer, the path and properties of the responder.
    Step {
        opcode: 0x503,
        from: Some(&[QpState::Init]),
        to: QpState::ReadyToReceive,
        sets: &[0x8..0x9, 0x15..0x44, 0x91..0x92, 0x94..0x98],
    },
    // RTR2RTS_QP sets properties of the requester. RTS2RTS_QP and SQERR2RTS_QP set only fields of `OPTIONS`.
    Step {
        opcode: 0x504,
        from: Some(&[QpState::ReadyToReceive]),
        to: QpState::ReadyToSend,
        sets: &[0x70..0x74, 0x78..0x7c],
    },
    Step { opcode: 0x505, from: Some(&[QpState::ReadyToSend]), to: QpState::ReadyToSend, sets: &[] },
    Step { opcode: 0x506, from: Some(&[QpState::SendQueueError]), to: QpState::ReadyToSend, sets: &[] },
    // 2ERR_QP and 2RST_QP are allowed in all states, and set no field.
    Step { opcode: 0x507, from: None, to: QpState::Error, sets: &[] },
    Step { opcode: 0x50a, from: None, to: QpState::Reset, sets: &[] },
];

/// Optional fields of a step, which bits of a mask select (`opt_param_mask`, `MLX5_QP_OPTPAR_*`): the bit,
/// the offset in the context, and the bits there. The fields are the rights to read, to do atomics and to
/// write, and the Q_Key.
const OPTIONS: &[(u32, usize, &[u8])] =
    &[(1 << 1, 0x92, &[0x80]), (1 << 2, 0x92, &[0x20]), (1 << 3, 0x92, &[0x40]), (1 << 5, 0xa8, &[0xff; 4])];
/// Offset of the mask `opt_param_mask` in a command.
const OPTIONAL: usize = 0x10;

/// The opcode of INIT2INIT_QP.
const INIT2INIT: u16 = 0x50e;

/// Returns whether a command changes the state of queue pairs.
pub(super) fn steps(opcode: u16) -> bool {
    STEPS.iter().any(|step| step.opcode == opcode)
}

impl<M: Memory> Device<M> {
    pub(super) fn create_qp_on_pages(&mut self, request: &Request) -> Answer {
        let at = |offset: usize| QPC + offset;
        let service = request.u8(at(1))?;
        let (transport, fixed) = match service {
            service::RELIABLE => (Transport::ReliableConnection, None),
            service::UMR => (Transport::Umr, None),
            service::UNRELIABLE => (Transport::UnreliableConnection, None),
            service::DATAGRAM => (Transport::UnreliableDatagram, None),
            // Management packets address these queue pairs by their fixed numbers, 0 and 1.
            service::MANAGEMENT_0 => (Transport::UnreliableDatagram, Some(0)),
            service::MANAGEMENT_1 => (Transport::UnreliableDatagram, Some(1)),
            _ => return Err(Refused::PARAMETER),
        };
        let timestamps = request.u8(at(0xb))? >> 6;
        if !self.profile().timestamps.take(timestamps) {
            return Err(Refused::PARAMETER);
        }
        let record = request.umem(request.u8(at(0xd0))? & 0x10 != 0, at(0xe4))?;
        let copies = self.copies(request)?.unwrap_or(false);
        self.uar(request.u24(at(0xd))?)?;
        let (rq, sq) = (request.u8(at(9))?, request.u8(at(10))?);
        let (log_slots, stride, log_sq_blocks) = (rq >> 3 & 0xf, 16_u16 << (rq & 7), sq >> 3 & 0xf);
        let has_sends = sq & 0x80 == 0;
        let kind = request.u8(at(0xac))? & 7;
        let receives = if kind == 0 { (u64::from(stride) << log_slots).next_multiple_of(ENTRY) } else { 0 };
        let recv_cqn = request.u24(at(0x9d))?;
        let has_receives = match kind {
            0 | 1 => true,
            3 => false,
            _ => return Err(Refused::PARAMETER),
        };
        let attributes = QpAttributes {
            transport,
            pd: request.u24(at(5))?,
            sq: 0,
            log_sq_blocks: if has_sends { log_sq_blocks } else { 0 },
            receive: ReceiveQueue::None,
            doorbell_record: self.record(request, at(0xa0), record)?,
            send_cqn: request.u24(at(0x7d))?,
            recv_cqn: Some(recv_cqn).filter(|cqn| has_receives || *cqn != 0),
            user_index: request.u24(at(0x11))?,
            drain_sigerr: request.u8(at(4))? & 0x04 != 0,
            rnr_retry: Retries::Infinite,
        };
        let shared = request.u24(at(0xad))?;
        let mut context = [0; QPC_BYTES];
        context.copy_from_slice(request.bytes(QPC, QPC_BYTES)?);
        if kind == 1 {
            self.may_name(request.uid()?, Kind(opcode::CREATE_RMP), shared)?;
        }
        let place = match request.umem(request.u8(0x10c)? & 0x80 != 0, 0x108)? {
            Some(number) => Place::Umem { number, offset: request.u64(0x100)? },
            None => {
                Place::Pages { log_page: request.u8(at(0x14))? & 0x1f, offset: request.u16(at(0x92))? >> 6 }
            }
        };
        let sends = if has_sends { ENTRY << log_sq_blocks } else { 0 };
        let rings = self.ring(request, place, receives + sends, false)?;
        let receive = match kind {
            0 => ReceiveQueue::Own(ReceiveRing { address: rings, log_slots, stride }),
            1 => ReceiveQueue::Shared(shared),
            _ => ReceiveQueue::None,
        };
        let attributes = QpAttributes { sq: rings + receives, receive, ..attributes };
        let made = self.create_qp_numbered(attributes, fixed);
        let number = self.with_ring(opcode::CREATE_QP, (rings, place), record, made)?;
        self.set_timestamps(number, timestamps)?;
        self.set_copies(number, copies)?;
        self.interface.contexts.insert(number, context);
        self.want_pages();
        Ok(reply::number(number))
    }

    pub(super) fn destroy_qp_on_pages(&mut self, number: u32) -> Answer {
        let attributes = self.objects.qps.get(number).map(|qp| qp.attributes);
        self.destroy_qp(number)?;
        self.interface.contexts.remove(&number);
        let rings = attributes.map(|attributes| match attributes.receive {
            ReceiveQueue::Own(ring) => ring.address,
            ReceiveQueue::None | ReceiveQueue::Shared(_) => attributes.sq,
        });
        rings.into_iter().for_each(|rings| self.close_ring(opcode::CREATE_QP, number, rings));
        self.want_pages();
        Ok(reply::done())
    }

    /// Changes the state of a queue pair. Only the transitions of `STEPS` are allowed. A refused command
    /// changes nothing.
    pub(super) fn step(&mut self, opcode: u16, qp: u32, request: &Request) -> Answer {
        let step = STEPS.iter().find(|step| step.opcode == opcode).ok_or(Refused::OPCODE)?;
        let state = self.query(qp)?.state;
        if step.from.is_some_and(|from| !from.contains(&state)) {
            return Err(Refused::QP_STATE);
        }
        let mut context = *self.interface.contexts.get(&qp).ok_or(Refused::RESOURCE)?;
        for range in step.sets {
            let new = request.bytes(QPC + range.start, range.len())?;
            context.iter_mut().skip(range.start).zip(new).for_each(|(to, from)| *to = *from);
        }
        if step.from.is_some() {
            let mask = request.u32(OPTIONAL)?;
            for (_, at, bits) in OPTIONS.iter().filter(|(selected, ..)| mask & selected != 0) {
                let new = request.bytes(QPC + at, bits.len())?;
                for ((to, from), bits) in context.iter_mut().skip(*at).zip(new).zip(*bits) {
                    *to = *to & !bits | from & bits;
                }
            }
        }
        let properties = if opcode == INIT2INIT { self.properties(request)? } else { (None, None) };
        let transport = self.qp_mut(qp)?.attributes.transport;
        let byte = |at: usize| context.get(at).copied().unwrap_or_default();
        match opcode {
            0x503 if !matches!(transport, Transport::UnreliableDatagram | Transport::Umr) => {
                let (log_message, log_reads) = (byte(8) & 0x1f, byte(0x91) >> 5);
                let profile = self.profile();
                if log_message > profile.log_max_message() || log_reads > profile.log_max_reads {
                    return Err(Refused::PARAMETER);
                }
                let peer = u32::from_be_bytes([0, byte(0x15), byte(0x16), byte(0x17)]);
                let is_here = self.leads_here(context.get(0x18..).unwrap_or_default());
                self.connect(qp, if is_here { Peer::Local(peer) } else { NOBODY })?;
            }
            0x504 if transport == Transport::ReliableConnection => {
                if byte(0x71) >> 5 > self.profile().log_max_reads {
                    return Err(Refused::PARAMETER);
                }
                let retries = match byte(0x72) >> 5 {
                    7 => Retries::Infinite,
                    count => Retries::Count(count),
                };
                self.set_rnr_retry(qp, retries)?;
            }
            _ => {}
        }
        let rights = byte(0x92);
        let allowed = Access {
            remote_read: rights & 0x80 != 0,
            remote_write: rights & 0x40 != 0,
            remote_atomic: rights & 0x20 != 0,
            ..Access::ALL
        };
        let qkey = u32::from_be_bytes([byte(0xa8), byte(0xa9), byte(0xaa), byte(0xab)]);
        self.modify(qp, step.to)?;
        self.set_rights(qp, allowed)?;
        self.set_qkey(qp, qkey)?;
        if let (Some(drain), _) = properties {
            self.set_drain_sigerr(qp, drain)?;
        }
        if let (_, Some(copies)) = properties {
            self.set_copies(qp, copies)?;
        }
        self.interface.contexts.insert(qp, context);
        Ok(reply::done())
    }

    /// Returns whether the extension of a context permits copies. `None` if the command has no extension
    /// (`qpc_ext`, `mmo`).
    fn copies(&self, request: &Request) -> Result<Option<bool>, Refused> {
        if request.u8(8)? & 0x80 == 0 {
            return Ok(None);
        }
        let copies = request.u8(0x110)? & 0x20 != 0;
        let has_them = self.profile().log_max_copy.is_some();
        if copies && !has_them { Err(Refused::PARAMETER) } else { Ok(Some(copies)) }
    }

    /// Returns the properties `drain_sigerr` and `mmo` of INIT2INIT_QP, each if the masks of the command
    /// select it. The masks may also select the properties that Linux lets a user change: the rights, the
    /// P_Key's index, the Q_Key and the port (`opt_mask` of `qp.c`). If they select any other property, the
    /// command is refused.
    fn properties(&self, request: &Request) -> Result<(Option<bool>, Option<bool>), Refused> {
        const DRAIN: u32 = 1 << 11;
        const USUAL: u32 = 1 << 1 | 1 << 2 | 1 << 3 | 1 << 4 | 1 << 5 | 1 << 16;
        const COPIES: u64 = 1 << 3;
        let selected = request.u32(OPTIONAL)? & !USUAL;
        let drain = request.u8(QPC + 4)? & 0x04 != 0;
        if selected & !DRAIN != 0 || selected != 0 && drain && !self.profile().drain_sigerr {
            return Err(Refused::PARAMETER);
        }
        let copies = match self.copies(request)? {
            None => None,
            Some(copies) => match request.u64(0x108)? {
                0 => None,
                COPIES => Some(copies),
                _ => return Err(Refused::PARAMETER),
            },
        };
        Ok(((selected != 0).then_some(drain), copies))
    }

    /// Returns whether a path (PRM `ads`) leads to this port, which is the only one.
    fn leads_here(&self, path: &[u8]) -> bool {
        let byte = |at: usize| path.get(at).copied().unwrap_or_default();
        let stays = byte(0) & 0x80 != 0;
        let is_global = byte(5) & 0x80 != 0 || self.profile().port == Port::Ethernet;
        let gid = path.get(0x10..0x20).and_then(|gid| gid.try_into().ok());
        let is_own = gid.is_some_and(|gid| self.gids.is_own(gid));
        stays || if is_global { is_own } else { u16::from_be_bytes([byte(6), byte(7)]) == LID }
    }

    /// QUERY_QP: returns the context as commands have written it, with the current state.
    pub(super) fn query_qp(&self, number: u32) -> Answer {
        let view = self.query(number)?;
        let state = match view.state {
            QpState::Reset => 0,
            QpState::Init => 1,
            QpState::ReadyToReceive => 2,
            QpState::ReadyToSend => 3,
            QpState::SendQueueError => 4,
            QpState::SendQueueDrained => 5,
            QpState::Error => 6,
        };
        let mut answer =
            reply::with(QPC + QPC_BYTES, QPC, self.interface.contexts.get(&number).ok_or(Refused::RESOURCE)?);
        if let Some(byte) = answer.get_mut(QPC) {
            *byte = *byte & 0x0f | state << 4;
        }
        // `hw_sq_wqebb_counter` and `hw_rq_counter` are the next send block and the next receive of the
        // device.
        answer.splice(QPC + 0xb4..QPC + 0xb6, view.hw_sq_wqebb_counter.to_be_bytes());
        answer.splice(QPC + 0xb8..QPC + 0xbc, u32::from(view.hw_rq_counter).to_be_bytes());
        Ok(answer)
    }

    /// Creates a queue pair, and returns its number. `number` is its fixed number, if it has one.
    fn create_qp_numbered(
        &mut self,
        attributes: QpAttributes,
        number: Option<u32>,
    ) -> Result<u32, crate::device::Error> {
        let Some(number) = number else { return self.create_qp(attributes) };
        let made = self.create_qp(attributes)?;
        let qp = self.objects.qps.remove(made).unwrap_or_else(|| Qp::new(attributes));
        self.objects.qps.insert_at(number, qp).ok_or(crate::device::Error::InUse)
    }
}

/// A peer that does not exist.
const NOBODY: Peer = Peer::Remote(u32::MAX);
