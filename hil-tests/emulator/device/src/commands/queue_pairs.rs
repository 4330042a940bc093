//! Reads commands that create, change and query queue pairs (PRM `qpc`; `qp.c` of Linux's mlx5_ib).

use super::reply::{Refused, with};
use super::request::Request;
use super::{Place, Record};
use crate::interface_state::{Context, QPC_BYTES};
use crate::object::mkey::Access;
use crate::object::qp::{QpAttributes, QpState, QpView, ReceiveQueue, ReceiveRing, Retries, Transport};
use crate::profile::DeviceProfile;
use alloc::vec::Vec;

/// Offset of the queue pair's context in a command.
const QPC: usize = 0x18;

/// The number of bytes of a block of a send ring.
const BLOCK: u64 = 64;

/// The codes of path MTUs, 256 to 4096 bytes.
const MTUS: core::ops::RangeInclusive<u8> = 1..=5;

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
/// all), the new state, and the parts of the context that it sets.
struct Step {
    opcode: u16,
    from: Option<&'static [QpState]>,
    to: QpState,
    sets: &'static [core::ops::Range<usize>],
}

const STEPS: &[Step] = &[
    // RST2INIT_QP sets the path, the rights and the Q_Key. INIT2INIT_QP sets only fields of `OPTIONS`, and
    // the properties that the function `properties` reads.
    Step {
        opcode: 0x502,
        from: Some(&[QpState::Reset]),
        to: QpState::Init,
        sets: &[0x18..0x44, 0x91..0x93, 0xa8..0xac],
    },
    Step { opcode: 0x50e, from: Some(&[QpState::Init]), to: QpState::Init, sets: &[] },
    // INIT2RTR_QP sets the MTU, the longest message, the peer, the path and properties of the responder.
    Step {
        opcode: 0x503,
        from: Some(&[QpState::Init]),
        to: QpState::ReadyToReceive,
        sets: &[0x8..0x9, 0x15..0x44, 0x94..0x98],
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

/// The time-out for acknowledgements in a path: the offset of its byte in the context, and the mask of its
/// bits. RTR2RTS_QP sets these bits.
const TIME_OUT: (usize, u8) = (0x20, 0xf8);

/// The most RDMA READs of the peer in flight: the offset of the field's byte in the context, and the mask of
/// its bits. INIT2RTR_QP sets these bits. The other bits of the byte belong to the right to atomics
/// (`atomic_mode`).
const READS: (usize, u8) = (0x91, 0xf0);

/// The offset of the path's port number in a context (`vhca_port_num`). If INIT2RTR_QP has the number 0
/// there, the port stays as it is.
const PORT: usize = 0x3d;

/// Offset of the path in a context (PRM `ads`).
const PATH: usize = 0x18;

/// Optional fields of a state change, which bits of a mask select (`opt_param_mask`, `MLX5_QP_OPTPAR_*`): the
/// bit of the mask, the offset in the context, and the bits there. The fields are the peer's rights to read,
/// to do atomics and to write, and the Q_Key.
const OPTIONS: &[(u32, usize, &[u8])] = &[
    (1 << 1, 0x92, &[0x80]),
    (1 << 2, 0x91, &[0x0f, 0x20]),
    (1 << 3, 0x92, &[0x40]),
    (1 << 5, 0xa8, &[0xff; 4]),
];
/// Offset of the mask `opt_param_mask` in a command.
const OPTIONAL: usize = 0x10;

/// The lowest `atomic_mode` of a context that allows masked atomics, of up to 8 bytes
/// (`MLX5_ATOMIC_MODE_8B`). Assumption: a lower mode forbids them.
const MODE_8_BYTES: u8 = 3;

const INIT2INIT: u16 = 0x50e;
const INIT2RTR: u16 = 0x503;
const RTR2RTS: u16 = 0x504;

/// Returns whether a command changes the state of queue pairs.
pub fn steps(opcode: u16) -> bool {
    STEPS.iter().any(|step| step.opcode == opcode)
}

/// The fields of CREATE_QP, which creates a queue pair.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QpCommand {
    /// The place of both rings. The receive ring comes first. The send ring begins at the next multiple of 64
    /// bytes.
    pub rings: Place,
    /// The place of the doorbell record.
    pub record: Record,
    /// The number of the UAR page with the doorbells of the queue pair.
    pub uar: u32,
    /// The transport.
    pub transport: Transport,
    /// The number that the queue pair must have, if it is fixed: 0 or 1 for management packets.
    pub number: Option<u32>,
    /// The shared receive queue, if the queue pair uses one.
    pub shared: Option<u32>,
    /// The format of time stamps (PRM `ts_format`): 0 free-running, 1 the format that the device prefers, 2
    /// real time.
    pub timestamps: u8,
    /// Whether the queue pair may execute copies of memory (opcode MMO; PRM `mmo`).
    pub copies: bool,
    /// Whether doorbells announce requests without the doorbell record (PRM `send_dbr_mode`).
    pub doorbell_alone: bool,
    /// The context, as the command wrote it (PRM `qpc`).
    pub context: Context,
    has_receives: bool,
    has_sends: bool,
    log_slots: u8,
    stride: u16,
    log_sq_blocks: u8,
}

impl QpCommand {
    /// Reads the command.
    ///
    /// # Errors
    /// [`Refused`] for an unknown transport or kind of receive queue, and for a format of time stamps,
    /// copies, draining or doorbells that the device does not support.
    pub fn read(request: &Request, profile: &DeviceProfile) -> Result<Self, Refused> {
        let at = |offset: usize| QPC + offset;
        let (transport, number) = match request.u8(at(1))? {
            service::RELIABLE => (Transport::ReliableConnection, None),
            service::UMR => (Transport::Umr, None),
            service::UNRELIABLE => (Transport::UnreliableConnection, None),
            service::DATAGRAM => (Transport::UnreliableDatagram, None),
            // Management packets address these queue pairs by their fixed numbers, 0 and 1.
            service::MANAGEMENT_0 => (Transport::UnreliableDatagram, Some(0)),
            service::MANAGEMENT_1 => (Transport::UnreliableDatagram, Some(1)),
            _ => return Err(Refused::PARAMETER),
        };
        let (has_receives, is_shared) = match request.u8(at(0xac))? & 7 {
            0 => (true, false),
            1 => (false, true),
            3 => (false, false),
            _ => return Err(Refused::PARAMETER),
        };
        let timestamps = request.u8(at(0xb))? >> 6;
        let drains = request.u8(at(4))? & 0x04 != 0;
        if !profile.timestamps.take(timestamps) || drains && !profile.drain_sigerr {
            return Err(Refused::PARAMETER);
        }
        let doorbell_alone = match request.u8(at(0x10))? >> 6 {
            0 => false,
            1 | 2 if profile.doorbell_alone => true,
            _ => return Err(Refused::PARAMETER),
        };
        let record = request.umem(request.u8(at(0xd0))? & 0x10 != 0, at(0xe4))?;
        let rings = request.umem(request.u8(0x10c)? & 0x80 != 0, 0x108)?;
        let pages = (request.u8(at(0x14))? & 0x1f, request.u16(at(0x92))? >> 6);
        let (rq, sq) = (request.u8(at(9))?, request.u8(at(10))?);
        let has_sends = sq & 0x80 == 0;
        let mut context = [0; QPC_BYTES];
        context.copy_from_slice(request.bytes(QPC, QPC_BYTES)?);
        Ok(Self {
            rings: request.place(rings, 0x100, pages)?,
            record: request.record(record, at(0xa0))?,
            uar: request.u24(at(0xd))?,
            transport,
            number,
            shared: if is_shared { Some(request.u24(at(0xad))?) } else { None },
            timestamps,
            copies: copies(request, profile)?.unwrap_or(false),
            doorbell_alone,
            context,
            has_receives,
            has_sends,
            log_slots: rq >> 3 & 0xf,
            stride: 16 << (rq & 7),
            log_sq_blocks: if has_sends { sq >> 3 & 0xf } else { 0 },
        })
    }

    /// Returns the number of bytes of the receive ring, rounded up to a multiple of 64.
    fn receive_bytes(&self) -> u64 {
        let bytes = u64::from(self.stride) << self.log_slots;
        if self.has_receives { bytes.next_multiple_of(BLOCK) } else { 0 }
    }

    /// Returns the number of bytes of both rings.
    pub fn bytes(&self) -> u64 {
        self.receive_bytes() + if self.has_sends { BLOCK << self.log_sq_blocks } else { 0 }
    }

    /// Returns the attributes of the queue pair, with its rings and its doorbell record at these addresses.
    pub fn attributes(&self, rings: u64, doorbell_record: u64) -> QpAttributes {
        let byte = |at: usize| self.context.get(at).copied().unwrap_or_default();
        let u24 = |at: usize| u32::from_be_bytes([0, byte(at), byte(at + 1), byte(at + 2)]);
        let Self { log_slots, stride, .. } = *self;
        let receive = match self.shared {
            Some(shared) => ReceiveQueue::Shared(shared),
            None if self.has_receives => ReceiveQueue::Own(ReceiveRing { address: rings, log_slots, stride }),
            None => ReceiveQueue::None,
        };
        QpAttributes {
            transport: self.transport,
            pd: u24(5),
            sq: rings + self.receive_bytes(),
            log_sq_blocks: self.log_sq_blocks,
            receive,
            doorbell_record,
            send_cqn: u24(0x7d),
            // Without a receive queue, a completion queue number of 0 means none (DEVICE.md, "Queue pairs
            // without a receive queue").
            recv_cqn: Some(u24(0x9d)).filter(|cqn| receive != ReceiveQueue::None || *cqn != 0),
            user_index: u24(0x11),
            drain_sigerr: byte(4) & 0x04 != 0,
            rnr_retry: Retries::Infinite,
        }
    }
}

/// The fields of a command that changes the state of a queue pair.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QpStep {
    /// The new state.
    pub to: QpState,
    /// The new context (PRM `qpc`).
    pub context: Context,
    /// The number of the peer and the path to it (PRM `ads`), if the command connects the queue pair.
    pub peer: Option<(u32, [u8; 44])>,
    /// The accesses that the queue pair allows its peer (PRM `rre`, `rwe`, `rae`).
    pub rights: Access,
    /// Whether the atomics of the peer may have masks (PRM `atomic_mode`).
    pub masked_atomics: bool,
    /// The Q_Key.
    pub qkey: u32,
    /// The number of repetitions of a request while the peer has no receive request, if the command sets it
    /// (PRM `rnr_retry`).
    pub retries: Option<Retries>,
    /// The code for the time after which the peer may repeat a request for which there was no receive request
    /// (PRM `min_rnr_nak`).
    pub rnr_timer: u8,
    /// Whether a signature error stops the send queue, if the command selects this property (`drain_sigerr`).
    pub drains: Option<bool>,
    /// Whether the queue pair may execute copies of memory, if the command selects this property (`mmo`).
    pub copies: Option<bool>,
}

impl QpStep {
    /// Reads the command for a queue pair with this state, transport and context.
    ///
    /// # Errors
    /// [`Refused`] for a command that changes no state, for a transition that does not exist, and for
    /// properties that the device lacks.
    pub fn read(
        request: &Request,
        (state, transport): (QpState, Transport),
        context: &Context,
        profile: &DeviceProfile,
    ) -> Result<Self, Refused> {
        let opcode = request.opcode();
        let step = STEPS.iter().find(|step| step.opcode == opcode).ok_or(Refused::OPCODE)?;
        if step.from.is_some_and(|from| !from.contains(&state)) {
            return Err(Refused::QP_STATE);
        }
        let mut context = *context;
        let mut set = |at: usize, bits: &[u8]| {
            let new = request.bytes(QPC + at, bits.len())?;
            for ((to, from), bits) in context.iter_mut().skip(at).zip(new).zip(bits) {
                *to = *to & !bits | from & bits;
            }
            Ok::<(), Refused>(())
        };
        for range in step.sets {
            let names_port = request.u8(QPC + PORT)? != 0;
            for at in range.clone() {
                let is_port = matches!(at, 0x3c | PORT) && opcode == INIT2RTR;
                if names_port || !is_port {
                    set(at, &[0xff])?;
                }
            }
        }
        if opcode == RTR2RTS {
            set(TIME_OUT.0, &[TIME_OUT.1])?;
        }
        if opcode == INIT2RTR {
            set(READS.0, &[READS.1])?;
        }
        if step.from.is_some() {
            let mask = request.u32(OPTIONAL)?;
            for (_, at, bits) in OPTIONS.iter().filter(|(selected, ..)| mask & selected != 0) {
                set(*at, bits)?;
            }
        }
        let (drains, copies) = if opcode == INIT2INIT { properties(request, profile)? } else { (None, None) };
        if let Some(drains) = drains {
            context[4] = context[4] & !0x04 | if drains { 0x04 } else { 0 };
        }
        let byte = |at: usize| context.get(at).copied().unwrap_or_default();
        let is_connected = !matches!(transport, Transport::UnreliableDatagram | Transport::Umr);
        let (mut peer, mut retries) = (None, None);
        if opcode == INIT2RTR && is_connected {
            let (mtu, log_message, log_reads) = (byte(8) >> 5, byte(8) & 0x1f, byte(0x91) >> 5);
            let is_good = MTUS.contains(&mtu)
                && log_message <= profile.log_max_message()
                && log_reads <= profile.log_max_reads;
            let mut path = [0; 44];
            path.copy_from_slice(request.bytes(QPC + PATH, 44)?);
            peer = Some((u32::from_be_bytes([0, byte(0x15), byte(0x16), byte(0x17)]), path));
            if !is_good {
                return Err(Refused::PARAMETER);
            }
        }
        if opcode == RTR2RTS && transport == Transport::ReliableConnection {
            if byte(0x71) >> 5 > profile.log_max_reads {
                return Err(Refused::PARAMETER);
            }
            retries = Some(match byte(0x72) >> 5 {
                7 => Retries::Infinite,
                count => Retries::Count(count),
            });
        }
        let access = byte(0x92);
        let rights = Access {
            remote_read: access & 0x80 != 0,
            remote_write: access & 0x40 != 0,
            remote_atomic: access & 0x20 != 0,
            ..Access::ALL
        };
        let masked_atomics = byte(0x91) & 0xf >= MODE_8_BYTES;
        let qkey = u32::from_be_bytes([byte(0xa8), byte(0xa9), byte(0xaa), byte(0xab)]);
        let rnr_timer = byte(0x94) & 0x1f;
        Ok(Self {
            to: step.to,
            context,
            peer,
            rights,
            masked_atomics,
            qkey,
            retries,
            rnr_timer,
            drains,
            copies,
        })
    }
}

/// Returns whether the extension of a context permits copies of memory (`qpc_ext`, `mmo`; `prm.h` of DPDK and
/// `mlx5_ifc.h`). Returns `None` if the command has no extension.
fn copies(request: &Request, profile: &DeviceProfile) -> Result<Option<bool>, Refused> {
    if request.u8(8)? & 0x80 == 0 {
        return Ok(None);
    }
    let copies = request.u8(0x110)? & 0x20 != 0;
    let has_them = profile.log_max_copy.is_some();
    if copies && !has_them { Err(Refused::PARAMETER) } else { Ok(Some(copies)) }
}

/// Returns the properties `drain_sigerr` and `mmo` of INIT2INIT_QP, each if the masks of the command
/// select it. The masks may also select the properties that Linux lets a user change: the rights, the
/// P_Key's index, the Q_Key and the port (`opt_mask` of `qp.c`). If they select any other property, the
/// command is refused.
fn properties(request: &Request, profile: &DeviceProfile) -> Result<(Option<bool>, Option<bool>), Refused> {
    const DRAIN: u32 = 1 << 11;
    /// Bits 1 to 5, and bit 16.
    const USUAL: u32 = 0x0001_003e;
    const COPIES: u64 = 1 << 3;
    let selected = request.u32(OPTIONAL)? & !USUAL;
    let drain = request.u8(QPC + 4)? & 0x04 != 0;
    if selected & !DRAIN != 0 || selected != 0 && drain && !profile.drain_sigerr {
        return Err(Refused::PARAMETER);
    }
    let copies = match copies(request, profile)? {
        None => None,
        Some(copies) => match request.u64(0x108)? {
            0 => None,
            COPIES => Some(copies),
            _ => return Err(Refused::PARAMETER),
        },
    };
    Ok(((selected != 0).then_some(drain), copies))
}

/// Returns the reply to QUERY_QP: the context as commands have written it, with the queue pair's present
/// state and counters.
pub fn context_reply(context: &Context, view: &QpView) -> Vec<u8> {
    let state = match view.state {
        QpState::Reset => 0,
        QpState::Init => 1,
        QpState::ReadyToReceive => 2,
        QpState::ReadyToSend => 3,
        QpState::SendQueueError => 4,
        QpState::SendQueueDrained => 5,
        QpState::Error => 6,
    };
    let mut answer = with(QPC + QPC_BYTES, QPC, context);
    if let Some(byte) = answer.get_mut(QPC) {
        *byte = *byte & 0x0f | state << 4;
    }
    // `hw_sq_wqebb_counter` is the number of the next block that the device executes, and `hw_rq_counter` is
    // the number of the next receive request.
    answer.splice(QPC + 0xb4..QPC + 0xb6, view.hw_sq_wqebb_counter.to_be_bytes());
    answer.splice(QPC + 0xb8..QPC + 0xbc, u32::from(view.hw_rq_counter).to_be_bytes());
    answer
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    #[test]
    fn copies_are_asked_for_in_an_extension() {
        let profile = DeviceProfile::default();
        let none = DeviceProfile { log_max_copy: None, ..profile };
        let mut command = vec![0; 0x111];
        let told = |command: &[u8], profile: &DeviceProfile| {
            let request = Request(command.to_vec().into());
            let selected = properties(&request, profile).map(|(_, copies)| copies);
            [copies(&request, profile), selected].map(|told| told.map_err(Refused::status))
        };
        command[0x110] = 0x20;
        assert_eq!(told(&command, &profile), [Ok(None), Ok(None)], "no extension");
        command[8] = 0x80;
        assert_eq!(told(&command, &profile), [Ok(Some(true)), Ok(None)], "not selected");
        command[0x10f] = 8;
        assert_eq!(told(&command, &profile), [Ok(Some(true)), Ok(Some(true))]);
        assert_eq!(told(&command, &none), [Err(3), Err(3)]);
        assert_eq!(told(&command[..0x110], &profile), [Err(0x50), Err(0x50)]);
        command[0x110] = 0xdf;
        assert_eq!(told(&command, &none), [Ok(Some(false)), Ok(Some(false))]);
        command[0x108] = 1;
        assert_eq!(told(&command, &none), [Ok(Some(false)), Err(3)], "something else is selected");
    }

    /// A queue pair stops at a signature error if CREATE_QP asks for this, or INIT2INIT_QP, which has to
    /// select the property.
    #[test]
    fn a_queue_pair_drains_at_signature_errors_if_asked() {
        let can = DeviceProfile::default();
        let cannot = DeviceProfile { drain_sigerr: false, ..can };
        let command = |opcode: u16, mask: u32, flags: u8| {
            let mut command = vec![0; 0x120];
            command[..2].copy_from_slice(&opcode.to_be_bytes());
            command[OPTIONAL..OPTIONAL + 4].copy_from_slice(&mask.to_be_bytes());
            command[QPC + 4] = flags;
            Request(command.into())
        };
        let created = |flags, profile| {
            QpCommand::read(&command(0x500, 0, flags), profile).map(|made| made.attributes(0, 0).drain_sigerr)
        };
        let changed = |mask, flags, before, profile| {
            let (mut context, of) = ([0; QPC_BYTES], (QpState::Init, Transport::ReliableConnection));
            context[4] = before;
            let step = QpStep::read(&command(INIT2INIT, mask, flags), of, &context, profile);
            step.map(|step| (step.drains, step.context[4]))
        };
        for (flags, drains) in [(0x04, true), (0xfb, false)] {
            assert_eq!(created(flags, &can), Ok(drains));
            assert_eq!(changed(1 << 11, flags, 0xfb, &can), Ok((Some(drains), 0xfb | flags & 0x04)));
            assert_eq!(changed(1 << 11, flags, 0x04, &can), Ok((Some(drains), flags & 0x04)));
            assert_eq!(changed(0, flags, 0x0f, &cannot), Ok((None, 0x0f)), "not selected");
        }
        assert_eq!(created(0x04, &cannot), Err(Refused::PARAMETER));
        assert_eq!(created(0xfb, &cannot), Ok(false));
        assert_eq!(changed(1 << 11, 0x04, 0, &cannot), Err(Refused::PARAMETER));
        assert_eq!(changed(1 << 11, 0xfb, 0, &cannot), Ok((Some(false), 0)));
    }

    #[test]
    fn a_query_returns_the_context_with_the_present_state() {
        let mut context = [0; QPC_BYTES];
        context[..2].copy_from_slice(&[0xa5, 0x07]);
        let view =
            QpView { state: QpState::SendQueueError, hw_sq_wqebb_counter: 0x102, hw_rq_counter: 0x304 };
        let reply = context_reply(&context, &view);
        assert_eq!(reply[QPC..QPC + 2], [0x45, 0x07]);
        assert_eq!(reply[QPC + 0xb4..QPC + 0xbc], [1, 2, 0, 0, 0, 0, 3, 4]);
    }

    #[test]
    fn a_step_sets_the_fields_of_its_command() {
        let profile = DeviceProfile::default();
        let mut context = [0; QPC_BYTES];
        context[PORT] = 1;
        let read_for = |transport, opcode: u16, state, context: &Context, set: &[(usize, u8)]| {
            let mut command = vec![0; 0x120];
            command[..2].copy_from_slice(&opcode.to_be_bytes());
            set.iter().for_each(|(at, value)| command[QPC + at] = *value);
            let request = Request(command.into());
            QpStep::read(&request, (state, transport), context, &profile)
        };
        let read = |opcode, state, context: &Context, set: &[(usize, u8)]| {
            read_for(Transport::ReliableConnection, opcode, state, context, set)
        };
        let receive = [(8, 5 << 5 | 30), (0x17, 7), (0x91, 4 << 5)];
        let step = read(0x503, QpState::Init, &context, &receive).unwrap();
        assert_eq!((step.peer, step.retries), (Some((7, [0; 44])), None));
        assert_eq!((step.to, step.context[PORT]), (QpState::ReadyToReceive, 1), "the port stays");
        for wrong in [[(8, 30), (0x17, 7), (0x91, 0)], [(8, 5 << 5 | 31), (0x17, 7), (0x91, 0)]] {
            assert_eq!(read(0x503, QpState::Init, &context, &wrong), Err(Refused::PARAMETER));
        }
        assert_eq!(read(0x503, QpState::Reset, &context, &receive), Err(Refused::QP_STATE));
        let send = [(0x20, 0xff), (0x72, 7 << 5)];
        let step = read(0x504, QpState::ReadyToReceive, &step.context, &send).unwrap();
        assert_eq!((step.retries, step.context[0x20]), (Some(Retries::Infinite), 0xf8));
        // Only reliable connections read and retry.
        let many = [(0x71, 7 << 5), (0x72, 7 << 5)];
        let unreliable = Transport::UnreliableConnection;
        let step = read_for(unreliable, 0x504, QpState::ReadyToReceive, &context, &many).unwrap();
        assert_eq!(step.retries, None);
        assert_eq!(read(0x504, QpState::ReadyToReceive, &context, &many), Err(Refused::PARAMETER));
        assert_eq!(read(0x50c, QpState::ReadyToSend, &context, &[]), Err(Refused::OPCODE));
    }
}
