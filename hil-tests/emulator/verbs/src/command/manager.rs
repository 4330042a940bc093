//! Commands that a program writes to the rdma_cm file, `/dev/infiniband/rdma_cm` (`rdma/rdma_user_cm.h`;
//! kernel `drivers/infiniband/core/ucma.c`).

use super::steps::mask;
use crate::fabric::connection::Parameters;
use crate::ground::errno::Errno;
use crate::ground::missing::{self, Missing};
use crate::ground::netlink::{u16_at, u32_at};
use crate::ground::port;
use crate::ground::process_memory::ProcessMemory;
use crate::state::State;
use crate::state::connection::{CONSUMER, QKEY};
use crate::state::identifier::{ACK_TIMEOUT, Event, Id, Shown, Step};
use crate::state::port::NUMBER;
use mlx5_softdev::Memory;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

/// The most bytes of a command.
pub(crate) const LONGEST: usize = 1 << 10;

/// Bytes of `struct rdma_ucm_cmd_hdr`.
const HEADER: usize = 8;
/// Bytes of `struct sockaddr_in6`.
const ADDRESS: usize = 28;
/// The address family of `struct sockaddr_ib`.
const AF_IB: i32 = 27;
/// Bytes of `struct rdma_ucm_conn_param` and of its private data.
const PARAMETERS: usize = 272;
const DATA: usize = 256;
/// Bytes of `struct rdma_ucm_event_resp`, and its bytes in older versions of librdmacm.
const EVENT: usize = 336;
const OLD_EVENT: usize = 324;

/// The number of the command that takes an event (`enum` of `rdma/rdma_user_cm.h`).
pub(crate) const GET_EVENT: u32 = 12;

/// The attributes (`attr_mask`) with which a connection's queue pair goes to INIT, RTR and RTS. The step to
/// INIT also needs access rights, or a Q_Key for datagrams.
const INIT: u32 = mask::STATE | mask::PKEY | mask::PORT;
const READY_TO_RECEIVE: u32 = mask::STATE
    | mask::ADDRESS
    | mask::MTU
    | mask::RQ_PSN
    | mask::MIN_RNR_TIMER
    | mask::MAX_DEST_RD_ATOMIC
    | mask::DESTINATION;
const READY_TO_SEND: u32 =
    mask::STATE | mask::TIMEOUT | mask::RETRIES | mask::RNR_RETRIES | mask::MAX_RD_ATOMIC | mask::SQ_PSN;

/// The hop limit of the packets of a connection (kernel `IPV6_DEFAULT_HOPLIMIT`).
const HOPS: u8 = 64;

/// A command that a program has written to the rdma_cm file.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Command<'a> {
    pub(crate) number: u32,
    /// The bytes of the command's structure. Missing bytes at the end read as zero.
    body: &'a [u8],
    /// The room for the command's answer, in bytes.
    room: usize,
}

impl<'a> Command<'a> {
    /// Reads the header of the command in `bytes`.
    ///
    /// # Errors
    /// The errno with which the kernel refuses the call.
    pub(crate) fn new(bytes: &'a [u8]) -> Result<Self, Errno> {
        let header = || Some((u32_at(bytes, 0)?, u16_at(bytes, 4)?, u16_at(bytes, 6)?));
        let (number, length, room) = header().ok_or(Errno::INVAL)?;
        let body = bytes.get(HEADER..HEADER + usize::from(length)).ok_or(Errno::INVAL)?;
        Ok(Self { number, body, room: room.into() })
    }

    fn byte(&self, at: usize) -> u8 {
        self.body.get(at).copied().unwrap_or(0)
    }

    fn u16(&self, at: usize) -> u16 {
        u16::from_ne_bytes([self.byte(at), self.byte(at + 1)])
    }

    pub(crate) fn u32(&self, at: usize) -> u32 {
        u32::from_ne_bytes(std::array::from_fn(|index| self.byte(at + index)))
    }

    fn u64(&self, at: usize) -> u64 {
        u64::from_ne_bytes(std::array::from_fn(|index| self.byte(at + index)))
    }

    /// Writes an answer to the address that the command's structure holds at offset `at`. Bytes beyond the
    /// room are cut off.
    pub(crate) fn answer(&self, at: usize, bytes: &[u8]) -> Result<(), Errno> {
        let fits = bytes.get(..bytes.len().min(self.room)).unwrap_or_default();
        ProcessMemory.write(self.u64(at), fits).map_err(|_| Errno::FAULT)
    }

    /// Checks that the program has room for at least `least` bytes of answer.
    pub(crate) fn has_room(&self, least: usize) -> Result<(), Errno> {
        if self.room < least { Err(Errno::NOSPC) } else { Ok(()) }
    }

    /// Reads the socket address at offset `at`. Returns `None` for an unspecified family.
    fn address(&self, at: usize) -> Result<Option<SocketAddr>, Errno> {
        let port = u16::from_be_bytes([self.byte(at + 2), self.byte(at + 3)]);
        match i32::from(self.u16(at)) {
            0 => Ok(None),
            libc::AF_INET => {
                let ip: [u8; 4] = std::array::from_fn(|index| self.byte(at + 4 + index));
                Ok(Some(SocketAddr::new(IpAddr::from(ip), port)))
            }
            libc::AF_INET6 => {
                let ip: [u8; 16] = std::array::from_fn(|index| self.byte(at + 8 + index));
                Ok(Some(SocketAddr::new(IpAddr::from(ip), port)))
            }
            family => {
                if family == AF_IB {
                    missing::met(Missing::InfinibandAddress);
                }
                Err(Errno(libc::EAFNOSUPPORT))
            }
        }
    }

    fn parameters(&self, at: usize) -> Result<Parameters, Errno> {
        let length = usize::from(self.byte(at + 8 + DATA));
        let rest = |index| self.byte(at + 9 + DATA + index);
        Ok(Parameters {
            qpn: self.u32(at) & 0x00ff_ffff,
            qkey: self.u32(at + 4),
            data: (0..length).map(|index| self.byte(at + 8 + index)).collect(),
            shared_receives: rest(0),
            responder_resources: rest(1),
            initiator_depth: rest(2),
            flow_control: rest(3),
            retries: rest(4) & 7,
            rnr_retries: rest(5) & 7,
            ..Parameters::default()
        })
    }
}

/// Carries out a command, except GET_EVENT: the layer `process` waits for an event, and [`tell`] answers.
///
/// # Errors
/// The errno with which the kernel refuses the call.
pub(crate) fn dispatch(state: &mut State, file: u32, command: &Command<'_>) -> Result<(), Errno> {
    let outcome = carry_out(state, file, command);
    state.manage_connections();
    outcome
}

fn carry_out(state: &mut State, file: u32, command: &Command<'_>) -> Result<(), Errno> {
    match command.number {
        0 => {
            command.has_room(4)?;
            let space = command.u16(16);
            if !matches!(space, 0x0002 | 0x0106 | 0x0111 | 0x013f) {
                return Err(Errno::INVAL);
            }
            let number = state.create_id(file, command.u64(0), space)?;
            command.answer(8, &number.to_ne_bytes()).inspect_err(|_| {
                let _ = state.destroy_id(file, number);
            })
        }
        1 => {
            command.has_room(4)?;
            let taken = state.destroy_id(file, command.u32(8))?;
            command.answer(0, &taken.to_ne_bytes())
        }
        2 => {
            let address = command.address(8)?.ok_or(Errno(libc::EAFNOSUPPORT))?;
            state.bind_id(file, command.u32(8 + ADDRESS), address)
        }
        3 => {
            let (number, limit) = (command.u32(2 * ADDRESS), command.u32(2 * ADDRESS + 4));
            let (source, destination) = (command.address(0)?, command.address(ADDRESS)?.ok_or(Errno::INVAL)?);
            // The program chooses the time limit. A longer limit than 2^30 milliseconds is shortened to this
            // value, so that an `Instant` can represent the end of the wait.
            let limit = Duration::from_millis(limit.min(1 << 30).into());
            state.resolve_address(file, number, source, destination, limit)
        }
        4 => state.resolve_route(file, command.u32(0)),
        5 => query_route(state, file, command),
        6 => {
            let parameters = command.parameters(0)?;
            if command.byte(PARAMETERS - 1) == 0 {
                return Err(Errno::INVAL);
            }
            state.connect_id(file, command.u32(PARAMETERS), parameters)
        }
        7 => state.listen(file, command.u32(0), command.u32(4)),
        8 => {
            let is_valid = command.byte(8 + PARAMETERS - 1) != 0;
            let parameters = if is_valid { Some(command.parameters(8)?) } else { None };
            state.accept_id(file, command.u32(8 + PARAMETERS), command.u64(0), parameters)
        }
        9 => {
            let length = usize::from(command.byte(4));
            let reason = if command.byte(5) == 0 { CONSUMER } else { command.byte(5).into() };
            let data = (0..length).map(|index| command.byte(8 + index)).collect();
            state.reject_id(file, command.u32(0), reason, data)
        }
        10 => state.disconnect_id(file, command.u32(0)),
        11 => queue_pair(state, file, command),
        14 => set_option(state, file, command),
        15 => state.notify_id(file, command.u32(0), command.u32(4)),
        16 | 17 | 22 => {
            missing::met(Missing::Multicast);
            Err(Errno::OPNOTSUPP)
        }
        18 => {
            let taken = state.migrate_id(command.u32(12), file, command.u32(8))?;
            command.answer(0, &taken.to_ne_bytes())
        }
        // 19 to 21 are QUERY, BIND and RESOLVE_ADDR, which also take addresses of the family AF_IB. At its
        // start, librdmacm tries one of them, and uses none after the refusal.
        19..=21 => Err(Errno(libc::EAFNOSUPPORT)),
        // 13 is GET_OPTION. The kernel has no function for this number, and refuses it with the same errno.
        13 => Err(Errno(libc::ENOSYS)),
        _ => Err(Errno::INVAL),
    }
}

/// Returns an address as `struct sockaddr_in` or `struct sockaddr_in6`, filled up with zeros.
fn shown_address(address: Option<SocketAddr>) -> Vec<u8> {
    let mut bytes = Vec::new();
    if let Some(address) = address {
        let family = if address.is_ipv4() { libc::AF_INET } else { libc::AF_INET6 } as u16;
        bytes.extend(family.to_ne_bytes());
        bytes.extend(address.port().to_be_bytes());
        match address.ip() {
            IpAddr::V4(ip) => bytes.extend(ip.octets()),
            IpAddr::V6(ip) => bytes.extend([&[0; 4][..], &ip.octets()].concat()),
        }
    }
    bytes.resize(ADDRESS, 0);
    bytes
}

/// Returns the GIDs of both ends of a connection: this side's, then the peer's.
fn ends(state: &State, id: &Id) -> [port::Gid; 2] {
    let own = id.source.map_or([0; 16], |source| state.own_gid(source.ip()));
    let other = match id.destination {
        _ if id.theirs.gid != [0; 16] => id.theirs.gid,
        Some(to) if to.ip().is_loopback() => state.own_gid(to.ip()),
        Some(to) => port::gid(to.ip()),
        None => [0; 16],
    };
    [own, other]
}

/// Carries out QUERY_ROUTE: answers with the addresses and the path of an `rdma_cm_id`.
fn query_route(state: &mut State, file: u32, command: &Command<'_>) -> Result<(), Errno> {
    // The answer needs room for all fields before the index of the device.
    command.has_room(8 + 2 * 64 + 2 * ADDRESS + 8)?;
    let id = state.book.of_file(file, command.u32(8))?.clone();
    let [own, other] = ends(state, &id);
    let device = state.device_of(&id);
    let mut out = device.map_or(vec![0; 8], |device| port::guid(device).to_vec());
    let has_path = id.has_device && id.destination.is_some();
    let mut path = Vec::new();
    if has_path {
        path.extend([other, own].concat());
        path.extend([0; 4 + 4 + 4]); // LIDs, raw traffic, flow label
        path.extend(1_u32.to_ne_bytes()); // reversible
        path.extend(u32::from(state.mtu_of(device)).to_ne_bytes());
        path.extend(0xffff_u16.to_be_bytes()); // partition key
        path.extend([HOPS, 0, 1, 0]); // traffic class, number of paths, service level
        // The bytes are: MTU selector, rate selector and rate, lifetime selector and lifetime, preference.
        // The selector 2 marks an exact value. The rate 16 is 100 Gb/s.
        path.extend([2, 2, 16, 2, ACK_TIMEOUT, 0]);
    }
    path.resize(2 * 64, 0);
    out.extend(path);
    out.extend(shown_address(id.source));
    out.extend(shown_address(id.destination));
    out.extend(u32::from(has_path).to_ne_bytes());
    out.extend([if id.has_device { NUMBER } else { 0 }, 0, 0, 0]);
    out.extend((device.unwrap_or_default() as u32).to_ne_bytes());
    out.extend([0; 4]);
    command.answer(0, &out)
}

/// Carries out INIT_QP_ATTR: answers with the attributes of the queue pair's next state, as
/// `struct ib_uverbs_qp_attr`.
fn queue_pair(state: &mut State, file: u32, command: &Command<'_>) -> Result<(), Errno> {
    command.has_room(144)?;
    let id = state.book.of_file(file, command.u32(8))?.clone();
    let next = command.u32(12);
    if !id.has_device {
        return Err(Errno::INVAL);
    }
    let datagrams = id.is_for_datagrams();
    let is_known = id.theirs.qpn != 0;
    let mask = match (next, datagrams) {
        (1, true) => INIT | mask::QKEY,
        (1, false) => INIT | mask::ACCESS,
        (2, true) => mask::STATE,
        (2, false) if is_known => READY_TO_RECEIVE,
        (3, true) => mask::STATE | mask::SQ_PSN,
        (3, false) if is_known => READY_TO_SEND,
        _ => return Err(Errno::INVAL),
    };
    // The side that accepts a request takes its two values from the request: its responder resources are the
    // peer's initiator depth, and the reverse. The requester uses its own values.
    let accepts = matches!(id.step, Step::Asked);
    let (resources, depth) = match accepts {
        true => (id.theirs.initiator_depth, id.theirs.responder_resources),
        false => (id.own.responder_resources, id.own.initiator_depth),
    };
    let rights = match (id.step, resources) {
        (Step::Idle | Step::Bound | Step::Resolving(_) | Step::Resolved | Step::Routed, _) => 0,
        (_, 0) => 0b0010,
        _ => 0b1110,
    };
    let [own, other] = ends(state, &id);
    let to = address_handle(state.gid_index(own), other);
    let words = [
        mask,
        next,
        next,
        state.mtu_of(state.device_of(&id)).into(),
        0,
        QKEY,
        id.theirs.first_psn,
        id.own.first_psn,
        id.theirs.qpn,
        rights,
    ];
    let mut out: Vec<u8> = words.into_iter().flat_map(u32::to_ne_bytes).collect();
    out.extend(if datagrams { vec![0; 32] } else { to });
    out.extend([0; 32 + 20 + 4]);
    let (retries, rnr) = match accepts {
        true => (id.theirs.retries, id.theirs.rnr_retries),
        false => (id.own.retries, if is_known { id.theirs.rnr_retries } else { id.own.rnr_retries }),
    };
    let deepest = state.device.profile().log_max_reads;
    let limited = |depth: u8| depth.min(1 << deepest.min(7));
    out.extend([0, 0, limited(depth), limited(resources), 0, NUMBER, id.ack_timeout, retries, rnr, 0, 0]);
    out.resize(144, 0);
    command.answer(0, &out)
}

/// Returns the address of a peer as `struct ib_uverbs_ah_attr`. `index` is the index of this side's GID in
/// the port's GID table.
fn address_handle(index: u8, gid: port::Gid) -> Vec<u8> {
    let mut out = gid.to_vec();
    out.extend([0, 0, 0, 0, index, HOPS, 0, 0]);
    out.extend([0, 0, 0, 0, 0, 1, NUMBER, 0]);
    out
}

/// Carries out SET_OPTION: sets an option of an `rdma_cm_id`. The shared use of a port and the timeout of
/// acknowledgements have an effect; other known options are accepted.
fn set_option(state: &mut State, file: u32, command: &Command<'_>) -> Result<(), Errno> {
    let id = state.book.of_file(file, command.u32(8))?;
    let length = command.u32(20) as usize;
    let value = |size: usize| {
        let mut bytes = [0; 4];
        if length != size {
            return Err(Errno::INVAL);
        }
        let place = bytes.get_mut(..size).ok_or(Errno::INVAL)?;
        ProcessMemory.read(command.u64(0), place).map_err(|_| Errno::FAULT)?;
        Ok(u32::from_ne_bytes(bytes))
    };
    match (command.u32(12), command.u32(16)) {
        // Option 0 is the type of service. It has no effect here.
        (0, 0) => value(1).map(|_| ()),
        (0, 1) => {
            id.may_share_port = value(4)? != 0;
            Ok(())
        }
        // Option 2 restricts the `rdma_cm_id` to IPv6. It has no effect here.
        (0, 2) => value(4).map(|_| ()),
        (0, 3) => {
            let timeout = value(1)? as u8;
            // A datagram service has no acknowledgements.
            if id.is_for_datagrams() {
                return Err(Errno::INVAL);
            }
            id.ack_timeout = timeout;
            Ok(())
        }
        // Level 1 has the options of InfiniBand; its only option is a path.
        (1, 1) => {
            missing::met(Missing::Path);
            Err(Errno(libc::ENOSYS))
        }
        _ => Err(Errno(libc::ENOSYS)),
    }
}

/// Answers GET_EVENT with an event, as `struct rdma_ucm_event_resp`. `name` is the program's name for the
/// `rdma_cm_id`.
///
/// # Errors
/// [`Errno::FAULT`] for an unmapped address.
pub(crate) fn tell(command: &Command<'_>, name: u64, event: &Event) -> Result<(), Errno> {
    let mut out = name.to_ne_bytes().to_vec();
    let words = [event.told, event.kind as u32, event.status.cast_unsigned()];
    out.extend(words.into_iter().flat_map(u32::to_ne_bytes));
    let data = |parameters: &Parameters| {
        let mut data = parameters.data.clone();
        data.resize(DATA, 0);
        data.push(parameters.data.len() as u8);
        data
    };
    let numbers = |shown: &Parameters| {
        [shown.qpn, shown.qkey].into_iter().flat_map(u32::to_ne_bytes).collect::<Vec<_>>()
    };
    match &event.shown {
        Shown::Nothing => {}
        Shown::Connection(shown) => {
            out.extend(numbers(shown));
            out.extend(data(shown));
            out.extend([shown.shared_receives, shown.responder_resources, shown.initiator_depth]);
            out.extend([shown.flow_control, shown.retries, shown.rnr_retries, 1]);
        }
        Shown::Datagrams(shown, index) => {
            out.extend(numbers(shown));
            out.extend(address_handle(*index, shown.gid));
            out.extend(data(shown));
        }
    }
    out.resize(EVENT, 0);
    command.answer(0, &out)
}

/// Checks that GET_EVENT has room for an event.
pub(crate) fn takes_events(command: &Command<'_>) -> Result<(), Errno> {
    command.has_room(OLD_EVENT)
}
