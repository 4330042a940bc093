//! Calls that make, modify, query and destroy queue pairs.

use super::steps::{self, mask};
use super::{address, memory};
use crate::command::call::Call;
use crate::command::numbers::{COMMAND, CORE_IN, CORE_OUT, EXTENDED, UHW_IN, UHW_OUT};
use crate::ground::abi::{
    CreateQp, CreateQpResponse, Destination, ModifyQp, QpCapabilities, QpValues, QueryQp, QueryQpResponse,
};
use crate::ground::errno::Errno;
use crate::ground::port::{gid_of_lid, is_link_local, subnet};
use crate::state::State;
use crate::state::object::{Common, Context, Object, Qp};
use mlx5_mkey::wire::prm::qp_context::{
    PathPort, Qpc, QpcPd, QpcReceive, QpcReceiveQueue, QpcRights, QpcScatter, QpcSizes,
};
use mlx5_softdev::{Access, Peer, QpAttributes, QpState, ReceiveQueue, ReceiveRing, Retries, Transport};
use zerocopy::{FromZeros, IntoBytes};

/// Kinds of queue pairs (`enum ib_uverbs_qp_type`), each with its transport service.
const KINDS: &[(u64, Transport)] = &[
    (2, Transport::ReliableConnection),
    (3, Transport::UnreliableConnection),
    (4, Transport::UnreliableDatagram),
];
/// The creation flag for a completion of every request (`IB_UVERBS_QP_CREATE_SQ_SIG_ALL`).
const SIGNAL_ALL: u64 = 1 << 12;
/// The creation flag against a sender's own multicast packets
/// (`IB_UVERBS_QP_CREATE_BLOCK_MULTICAST_LOOPBACK`). The flag has no effect on this device, which has no
/// multicast groups.
const NO_OWN_MULTICAST: u64 = 1 << 1;
/// All creation flags of the interface (`enum ib_uverbs_qp_create_flags`).
const FLAGS: u64 = NO_OWN_MULTICAST | 1 << 8 | 1 << 9 | 1 << 11 | SIGNAL_ALL;
/// The creation flags that only queue pairs for raw packets have: received packets keep their frame check
/// sequence, and lose their VLAN tags.
const OF_RAW_PACKETS: u64 = 1 << 8 | 1 << 9;
/// Kinds of queue pairs that this device lacks: raw packets, XRC, dynamic connections.
const LACKING: &[u64] = &[8, 9, 10, 0xff];

/// The driver's flags that ask for features which this device lacks: signatures of requests, dynamic
/// connections.
const LACKING_FLAGS: u32 = 1 << 0 | 1 << 4 | 1 << 5;
/// The driver's flags that have no effect on this device: scatter to CQE, an optional feature that this
/// device lacks, and the number of a doorbell page.
const HARMLESS_FLAGS: u32 = SCATTER_CQE | ALLOW_SCATTER_CQE | UAR_PAGE_INDEX;
/// The flag for flow control by packets (`MLX5_QP_FLAG_PACKET_BASED_CREDIT_MODE`), which only reliable
/// connections have. The flag has no effect on this device.
const PACKET_CREDITS: u32 = 1 << 9;
/// The flag of a call that names a doorbell page (`MLX5_QP_FLAG_UAR_PAGE_INDEX`).
const UAR_PAGE_INDEX: u32 = 1 << 10;
/// The user index that means none (`MLX5_IB_DEFAULT_UIDX`).
const NO_USER_INDEX: u32 = 0x00ff_ffff;
/// The flag that allows received data in completion entries (`MLX5_QP_FLAG_SCATTER_CQE`).
const SCATTER_CQE: u32 = 1 << 1;
/// The flag that also allows data of a requester in completion entries (`MLX5_QP_FLAG_ALLOW_SCATTER_CQE`).
const ALLOW_SCATTER_CQE: u32 = 1 << 8;
/// The most blocks of a send ring, or slots of a receive ring.
const MAX_RING: u32 = 1 << 15;
/// The value of `rnr_retry` that means "retry for ever".
const FOR_EVER: u8 = 7;
/// Bytes of a block of a send ring.
const BLOCK: u64 = 64;

/// Carries out QP_CREATE: makes a queue pair.
pub(super) fn create(call: &mut Call<'_>) -> Result<(), Errno> {
    let asked: CreateQp = call.request.structure(UHW_IN)?;
    let mut capabilities: QpCapabilities = call.request.structure(8)?;
    let flags = call.request.number(10);
    let kind = call.request.number(9);
    if LACKING.contains(&kind) {
        return Err(Errno::OPNOTSUPP);
    }
    let transport = KINDS.iter().find(|(number, _)| *number == kind).ok_or(Errno::INVAL)?.1;
    // Attribute 1 is an XRC domain, attribute 6 an indirection table. The supported kinds of queue pairs have
    // neither.
    if [1, 6].into_iter().any(|attribute| call.request.has(attribute)) {
        return Err(Errno::INVAL);
    }
    let pd = call.pd(call.request.handle(2)?)?;
    let send_cqn = call.cq(call.request.handle(4)?)?.number;
    let recv_cqn = call.cq(call.request.handle(5)?)?.number;
    let extra = flags & !SIGNAL_ALL;
    let is_datagram = transport == Transport::UnreliableDatagram;
    if flags & !FLAGS != 0 || extra != 0 && !is_datagram || extra & OF_RAW_PACKETS != 0 {
        return Err(Errno::INVAL);
    }
    let srq = match call.request.has(3) {
        true => Some(call.srq(call.request.handle(3)?)?.number),
        false => None,
    };
    let async_channel = call.async_channel(12)?;
    check_driver(call.context()?, &asked, transport)?;
    // This device supports neither a source queue pair number chosen by the program (attribute 11), nor
    // creation flags other than `SIGNAL_ALL` and `NO_OWN_MULTICAST`.
    if call.request.has(11) || extra & !NO_OWN_MULTICAST != 0 {
        return Err(Errno::OPNOTSUPP);
    }
    let ring = |count: u32| count == 0 || count.is_power_of_two() && count <= MAX_RING;
    let receives = srq.is_none() && capabilities.max_recv_wr != 0;
    let slots = match receives {
        true => asked.rq_slots > 0 && (4..=10).contains(&asked.rq_shift),
        false => asked.rq_slots == 0 && asked.rq_shift == 0,
    };
    if capabilities.max_recv_wr > MAX_RING || !slots || !ring(asked.sq_blocks) || !ring(asked.rq_slots) {
        return Err(Errno::INVAL);
    }
    // The queue pair reports the size of its receive ring, which may differ from the requested size.
    capabilities.max_recv_wr = asked.rq_slots;
    capabilities.max_recv_sge = if receives { 1 << (asked.rq_shift - 4) } else { 0 };
    let rq_bytes = u64::from(asked.rq_slots) << asked.rq_shift;
    let bytes = rq_bytes + u64::from(asked.sq_blocks) * BLOCK;
    if bytes > 0 {
        memory::pinned_ring(asked.buffer, bytes)?;
    }
    let sq = asked.buffer.wrapping_add(rq_bytes);
    memory::pinned(asked.doorbell_record, 8, true)?;
    let number = call.state.device.create_qp(QpAttributes {
        transport,
        pd,
        sq,
        log_sq_blocks: asked.sq_blocks.max(1).ilog2() as u8,
        receive: match srq {
            Some(number) => ReceiveQueue::Shared(number),
            None if receives => ReceiveQueue::Own(ReceiveRing {
                address: asked.buffer,
                log_slots: asked.rq_slots.ilog2() as u8,
                stride: 1 << asked.rq_shift,
            }),
            None => ReceiveQueue::None,
        },
        doorbell_record: asked.doorbell_record,
        send_cqn,
        recv_cqn: Some(recv_cqn),
        user_index: asked.user_index,
        drain_sigerr: false,
        rnr_retry: Retries::Infinite,
    })?;
    let mut context = Qpc::new_zeroed();
    let sizes = QpcSizes::new()
        .with_log_sq_size(asked.sq_blocks.max(1).ilog2() as u8)
        .with_no_sq(asked.sq_blocks == 0)
        .with_log_rq_size(asked.rq_slots.max(1).ilog2() as u8)
        .with_log_rq_stride(if receives { asked.rq_shift as u8 - 4 } else { 0 });
    let kind = match srq {
        Some(_) => QpcReceiveQueue::SHARED,
        None if receives => QpcReceiveQueue::REGULAR,
        None => QpcReceiveQueue::NONE,
    };
    let receive_queue = QpcReceiveQueue::new().with_rq_type(kind).with_srqn_rmpn_xrqn(srq.unwrap_or(0));
    context.pd.set(QpcPd::new().with_pd(pd).into_bits());
    context.sizes.set(sizes.into_bits());
    context.user_index.set(asked.user_index);
    context.cqn_snd.set(send_cqn);
    context.cqn_rcv.set(recv_cqn);
    context.dbr_addr.set(asked.doorbell_record);
    context.receive_queue.set(receive_queue.into_bits());
    context.scatter.set(scatter(call, &asked, flags)?.into_bits());
    // The attributes that a query returns before the program has set any (DEVICE.md, "Queue pairs in RESET").
    let values = QpValues { port: 1, ..QpValues::default() };
    describe(&mut context, &values);
    let qp = Qp {
        alone: None,
        number,
        transport,
        common: Common::of_verbs(call.request.number(7), async_channel),
        record: asked.doorbell_record,
        blocks: asked.sq_blocks,
        capabilities,
        signal_all: flags & SIGNAL_ALL != 0,
        context,
        destination: Destination::default(),
        values,
        linux_state: QpState::Reset,
    };
    call.publish(Object::Qp(Box::new(qp)), |request, handle| {
        request.answer(13, capabilities.as_bytes())?;
        request.answer(14, &number.to_ne_bytes())?;
        let response = CreateQpResponse { bfreg: asked.bfreg, ..CreateQpResponse::default() };
        request.answer(UHW_OUT, response.as_bytes())?;
        request.answer_object(0, handle.into())
    })
}

/// Checks the driver's input of QP_CREATE as Linux does: flags, user index, doorbell page.
fn check_driver(context: &Context, asked: &CreateQp, transport: Transport) -> Result<(), Errno> {
    let credits = if transport == Transport::ReliableConnection { PACKET_CREDITS } else { 0 };
    // `reserved` holds the bytes behind the last field that Linux knows. They must be zero
    // (`check_ucmd_data`).
    if asked.reserved != 0 || asked.flags & !(LACKING_FLAGS | HARMLESS_FLAGS | credits) != 0 {
        return Err(Errno::INVAL);
    }
    if asked.flags & LACKING_FLAGS != 0 {
        return Err(Errno::OPNOTSUPP);
    }
    let user_index = match context.cqe_version {
        0 => asked.user_index == NO_USER_INDEX,
        _ => asked.user_index < NO_USER_INDEX,
    };
    // A queue pair that names no doorbell page uses one of its context's static pages, if the context has
    // any.
    let page = asked.flags & UAR_PAGE_INDEX != 0 || context.static_pages.is_some();
    if user_index && page { Ok(()) } else { Err(Errno::INVAL) }
}

/// Returns the fields of the context that say which data the kernel lets the device write into completion
/// entries. The program must allow this by a flag. For the data of requesters, all requests must also be
/// signalled, or a second flag must be set.
fn scatter(call: &mut Call<'_>, asked: &CreateQp, flags: u64) -> Result<QpcScatter, Errno> {
    // The codes are MLX5_RES_SCAT_DATA32_CQE and _DATA64_CQE, MLX5_REQ_SCAT_DATA32_CQE and _DATA64_CQE.
    let code = |entry_bytes, [small, large]: [u8; 2]| if entry_bytes == 128 { large } else { small };
    let sends = call.cq(call.request.handle(4)?)?.entry_bytes;
    let receives = call.cq(call.request.handle(5)?)?.entry_bytes;
    let mut scatter = QpcScatter::new();
    if asked.flags & SCATTER_CQE != 0 {
        scatter.set_cs_res(code(receives, [0x01, 0x02]));
        if flags & SIGNAL_ALL != 0 || asked.flags & ALLOW_SCATTER_CQE != 0 {
            scatter.set_cs_req(code(sends, [0x11, 0x22]));
        }
    }
    Ok(scatter)
}

/// Carries out QP_DESTROY: destroys a queue pair, and answers with the number of its events that the program
/// has read.
pub(super) fn destroy(call: &mut Call<'_>) -> Result<(), Errno> {
    let handle = call.request.handle(0)?;
    let qp = call.qp(handle)?.clone();
    call.destroy(0, |_| true)?;
    let events = call.state.read_async_events(&qp.common);
    call.request.answer(1, &events.to_ne_bytes())
}

/// Carries out MODIFY_QP: changes state and attributes of a queue pair.
pub(super) fn modify(call: &mut Call<'_>) -> Result<(), Errno> {
    let asked: ModifyQp = call.request.structure(CORE_IN)?;
    let Qp { number, transport, linux_state, .. } = *call.verbs_qp(asked.handle)?;
    let is_extended = call.request.number(COMMAND) & EXTENDED != 0;
    let unknown = !(mask::KNOWN | if is_extended { mask::RATE_LIMIT } else { 0 });
    if asked.mask & unknown != 0 {
        return Err(Errno::OPNOTSUPP);
    }
    if asked.mask & mask::ADDRESS != 0 {
        let Destination { port, is_global, source_gid_index, gid, .. } = asked.destination;
        address::check_path(call.state, port, is_global, source_gid_index)?;
        // On Ethernet, the kernel asks the network for the MAC address of a GID, unless the GID contains the
        // address.
        if !call.state.port.is_infiniband() && !is_link_local(gid) {
            call.state.resolve(gid).ok_or(Errno::TIMEDOUT)?;
        }
    }
    // A program may name the state from which the transition starts. Linux does not check whether the queue
    // pair is in this state.
    let state = |bit, number| match asked.mask & bit {
        0 => Ok(None),
        // The device's list of states has the order of the kernel's numbers (`enum ib_qp_state`).
        _ => QpState::ALL.get(usize::from(number)).copied().map(Some).ok_or(Errno::INVAL),
    };
    let from = state(mask::CURRENT_STATE, asked.values.current_state)?.unwrap_or(linux_state);
    let next = state(mask::STATE, asked.values.state)?.unwrap_or(from);
    if !steps::is_allowed(asked.mask, transport, from, next) {
        return Err(Errno::INVAL);
    }
    steps::check_values(&asked, 1 << call.state.device.profile().log_max_reads)?;
    // The device refuses a transition from a state that the queue pair is not in. RESET and ERR are allowed
    // from any state.
    let ends = matches!(next, QpState::Reset | QpState::Error);
    if !ends && call.state.device.query(number)?.state != from {
        return Err(Errno::INVAL);
    }
    if ends || next != from {
        call.state.modify(number, next)?;
    }
    if asked.mask & mask::DESTINATION != 0 {
        let peer = call.state.peer(asked.values.destination_qpn & 0x00ff_ffff);
        let peer = if leads_nowhere(call.state, &asked) { Peer::NOBODY } else { peer };
        call.state.device.connect(number, peer)?;
    }
    if asked.mask & mask::QKEY != 0 {
        call.state.device.set_qkey(number, asked.values.qkey)?;
    }
    if asked.mask & mask::RNR_RETRIES != 0 {
        let retries = match asked.values.rnr_retry {
            FOR_EVER => Retries::Infinite,
            count => Retries::Count(count),
        };
        call.state.device.set_rnr_retry(number, retries)?;
    }
    if asked.mask & mask::MIN_RNR_TIMER != 0 {
        call.state.device.set_rnr_timer(number, asked.values.min_rnr_timer)?;
    }
    let qp = call.verbs_qp(asked.handle)?;
    qp.linux_state = next;
    remember(qp, &asked);
    describe(&mut qp.context, &qp.values);
    let rights = rights(&qp.values);
    if asked.mask & (mask::ACCESS | mask::MAX_DEST_RD_ATOMIC) != 0 {
        call.state.device.set_rights(number, rights)?;
    }
    call.state.touch();
    // The extended command answers with an empty mask and the answer's length (`struct
    // ib_uverbs_ex_modify_qp_resp`).
    call.request.answer(CORE_OUT, [0, 8].map(u32::to_ne_bytes).as_flattened())?;
    call.request.answer(UHW_OUT, &[0; 16])
}

/// Returns whether the path of a modification names a port that the InfiniBand subnet does not have. Linux
/// accepts such a path, and the packets get lost.
fn leads_nowhere(state: &State, asked: &ModifyQp) -> bool {
    let Destination { is_global, lid, gid, .. } = asked.destination;
    let is_there = if is_global == 0 { gid_of_lid(lid).is_some() } else { subnet().contains(&gid) };
    state.port.is_infiniband() && asked.mask & mask::ADDRESS != 0 && !is_there
}

/// Returns the rights that a queue pair's attributes give to its peer. Linux gives the rights to reads and
/// atomics only if the peer may have some in flight (`set_qpc_atomic_flags`).
fn rights(kept: &QpValues) -> Access {
    let asked = memory::access(kept.access);
    let reads = kept.max_dest_rd_atomic != 0;
    Access { remote_read: asked.remote_read && reads, remote_atomic: asked.remote_atomic && reads, ..asked }
}

/// Keeps the attributes of a modification for later queries.
fn remember(qp: &mut Qp, asked: &ModifyQp) {
    macro_rules! keep {
        ($($bit:ident => $($field:ident),+;)*) => {
            $(if asked.mask & mask::$bit != 0 { $(qp.values.$field = asked.values.$field;)+ })*
        };
    }
    if asked.mask & mask::ADDRESS != 0 {
        qp.destination = asked.destination;
    }
    keep! {
        ACCESS => access;
        PKEY => pkey_index;
        PORT => port;
        QKEY => qkey;
        MTU => path_mtu;
        TIMEOUT => timeout;
        RETRIES => retry_count;
        RNR_RETRIES => rnr_retry;
        RQ_PSN => rq_psn;
        MAX_RD_ATOMIC => max_rd_atomic;
        MIN_RNR_TIMER => min_rnr_timer;
        SQ_PSN => sq_psn;
        MAX_DEST_RD_ATOMIC => max_dest_rd_atomic;
        DESTINATION => destination_qpn;
        SQD_NOTIFY => sqd_notify;
    }
}

/// Copies the attributes that later commands need into the queue pair's context, which commands of the device
/// read.
fn describe(context: &mut Qpc, kept: &QpValues) {
    context.primary_path.port.set(PathPort::new().with_vhca_port_num(kept.port).into_bits());
    context.peer.set(kept.destination_qpn);
    context.next_send_psn.set(kept.sq_psn);
    let receive = QpcReceive::new().with_next_rcv_psn(kept.rq_psn).with_min_rnr_nak(kept.min_rnr_timer);
    context.receive.set(receive.into_bits());
    let rights = rights(kept);
    let rights = QpcRights::new()
        .with_rre(rights.remote_read)
        .with_rwe(rights.remote_write)
        .with_rae(rights.remote_atomic)
        .with_atomic_mode(if rights.remote_atomic { QpcRights::ATOMIC_MODE_8_BYTES } else { 0 });
    context.rights.set(rights.into_bits());
}

/// Carries out QUERY_QP: answers with state and attributes of a queue pair.
pub(super) fn query(call: &mut Call<'_>) -> Result<(), Errno> {
    let asked: QueryQp = call.request.structure(CORE_IN)?;
    let qp = call.verbs_qp(asked.handle)?.clone();
    let state = call.state.device.query(qp.number)?.state;
    call.verbs_qp(asked.handle)?.linux_state = state;
    let (state, signal_all) = (state as u8, qp.signal_all.into());
    let response = QueryQpResponse {
        destination: qp.destination,
        capabilities: qp.capabilities,
        values: QpValues { state, current_state: state, sqd_notify: 0, signal_all, ..qp.values },
        ..QueryQpResponse::default()
    };
    call.request.answer(CORE_OUT, response.as_bytes())
}

impl Call<'_> {
    /// Returns the queue pair with this handle.
    pub(super) fn qp(&mut self, handle: u32) -> Result<&mut Qp, Errno> {
        let Object::Qp(qp) = self.object(handle)? else { return Err(Errno::INVAL) };
        Ok(qp)
    }

    /// Returns the queue pair with this handle, unless a command of the device has made the queue pair.
    fn verbs_qp(&mut self, handle: u32) -> Result<&mut Qp, Errno> {
        Some(self.qp(handle)?).filter(|qp| qp.common.user_handle.is_some()).ok_or(Errno::INVAL)
    }
}
