//! Queues that a program makes by commands of the device (DEVX), over memory that it has registered (umem).

use super::frame::{Answer, Command, Status, opcode};
use super::linux;
use crate::command::call::Call;
use crate::command::completion::never_armed;
use crate::command::{address, memory};
use crate::ground::abi::{ModifyQp, QpCapabilities};
use crate::ground::errno::Errno;
use crate::ground::sys::Mapping;
use crate::state::State;
use crate::state::object::{Base, Cq, Object, Qp, Umem};
use mlx5_mkey::command::PathMtu;
use mlx5_mkey::wire::prm::cq::{CqcFlags, CqcSize, CreateCqRequest};
use mlx5_mkey::wire::prm::qp::{CreateQpRequest, ModifyQpRequest, QpOptional};
use mlx5_mkey::wire::prm::qp_context::{
    PathHops, PathPort, Qpc, QpcPd, QpcPeer, QpcReceiveQueue, QpcRetry, QpcRights, QpcSizes, QpcState, QpcUar,
};
use mlx5_softdev::{
    Access, CqAttributes, DeviceProfile, Peer, QpAttributes, QpState, ReceiveQueue, ReceiveRing, Retries,
    Transport,
};
use std::sync::Arc;
use zerocopy::FromBytes;

/// Access flags that a umem may have: local write, remote write, remote read.
const UMEM_ACCESS: u64 = 0x7;
const LOCAL_WRITE: u64 = 0x1;
const REMOTE_WRITE: u64 = 0x2;
/// The number of bytes of a page.
const PAGE: u64 = 4096;
/// The number of bytes of a block (WQEBB) of a send ring.
const BLOCK: u64 = 64;
/// The value of `rnr_retry` that means "retry for ever".
const FOR_EVER: u8 = 7;
/// Bytes of a doorbell record.
const RECORD: u64 = 8;

/// Carries out UMEM_REG: registers memory of the program, or a dma-buf, for queues that commands make. Any
/// file that can be mapped stands for a dma-buf, as for REG_DMABUF_MR.
pub(crate) fn register_umem(call: &mut Call<'_>) -> Result<(), Errno> {
    let (address, length) = (call.request.number(0x1001), call.request.number(0x1002));
    let access = call.request.number(0x1003);
    linux::has_devx(call)?;
    // Remote write access requires local write access (`ib_check_mr_access`).
    if access & (REMOTE_WRITE | LOCAL_WRITE) == REMOTE_WRITE {
        return Err(Errno::INVAL);
    }
    if length == 0 || access & !UMEM_ACCESS != 0 {
        return Err(Errno::INVAL);
    }
    // Attribute 0x1005 is a bitmap of the page sizes that the program accepts. This process cannot know which
    // pages are contiguous, so a umem always has pages of 4096 bytes. A bitmap without this size is refused.
    if call.request.has(0x1005) && call.request.number(0x1005) & PAGE == 0 {
        return Err(Errno::INVAL);
    }
    let umem = match call.request.descriptor(0x1006)? {
        Some(descriptor) => {
            let end = address.checked_add(length).ok_or(Errno::INVAL)?;
            let mapping = Mapping::new(descriptor, end, access & 1 != 0)?;
            let address = mapping.address() + address;
            Umem { address, length, _mapping: Some(Arc::new(mapping)) }
        }
        None => {
            memory::pinned(address, length, access & LOCAL_WRITE != 0)?;
            Umem { address, length, _mapping: None }
        }
    };
    call.publish(Object::Umem(umem), |request, handle| {
        request.answer(0x1004, &handle.wrapping_add(1).to_ne_bytes())?;
        request.answer_object(0x1000, handle.into())
    })
}

/// Carries out UMEM_DEREG: ends the registration of a umem.
pub(crate) fn deregister_umem(call: &mut Call<'_>) -> Result<(), Errno> {
    let handle = call.request.handle(0x1000)?;
    call.destroy(handle, |object| matches!(object, Object::Umem(_)))
}

/// Returns the address of `length` bytes at an offset of a umem. The number of a umem is its handle plus one.
pub(crate) fn place(call: &mut Call<'_>, umem: u32, offset: u64, length: u64) -> Result<u64, Status> {
    let handle = umem.checked_sub(1).ok_or(Status::BAD_RESOURCE)?;
    let Ok(Object::Umem(umem)) = call.object(handle) else { return Err(Status::BAD_RESOURCE) };
    let end = offset.checked_add(length).ok_or(Status::BAD_PARAMETER)?;
    if end > umem.length {
        return Err(Status::BAD_PARAMETER);
    }
    umem.address.checked_add(offset).ok_or(Status::BAD_PARAMETER)
}

/// Returns the objects that a queue depends on: the umems, which [`place`] has found before, and the doorbell
/// page, which must exist if the command names one. The number of an object is its handle plus one.
pub(crate) fn base(call: &mut Call<'_>, umems: [u32; 2], uar_page: Option<u32>) -> Result<Base, Status> {
    let umems = umems.map(|umem| umem.checked_sub(1));
    let Some(page) = uar_page else { return Ok(Base { umems, uar: None }) };
    let uar = page.checked_sub(1).ok_or(Status::BAD_RESOURCE)?;
    match call.object(uar) {
        Ok(Object::Uar) => Ok(Base { umems, uar: Some(uar) }),
        _ => Err(Status::BAD_RESOURCE),
    }
}

/// Bits by which commands say that rings and doorbell records are in umems. Each row has the opcode, the
/// offset of the byte, and the bits.
const IN_UMEMS: &[(u16, usize, u8)] = &[
    // The bits are `cqc.dbr_umem_valid` and `cq_umem_valid`.
    (opcode::CREATE_CQ, 0x10, 0x02),
    (opcode::CREATE_CQ, 0x5c, 0x80),
    // The bits are `qpc.dbr_umem_valid` and `wq_umem_valid`.
    (opcode::CREATE_QP, 0xe8, 0x10),
    (opcode::CREATE_QP, 0x10c, 0x80),
    // The bits are `wq.dbr_umem_valid` and `wq.wq_umem_valid`.
    (opcode::CREATE_RMP, 0x74, 0xc0),
];

/// Sets the bits of [`IN_UMEMS`] in a command. The kernel always sets them, and UCX leaves them clear (kernel
/// `devx.c`, `devx_set_umem_valid`).
pub(crate) fn in_umems(command: &mut Command) {
    let opcode = command.opcode();
    for (_, at, bits) in IN_UMEMS.iter().filter(|(known, ..)| *known == opcode) {
        if let Some(byte) = command.0.get_mut(*at) {
            *byte |= bits;
        }
    }
}

/// Carries out CREATE_CQ: makes a completion queue.
pub(crate) fn create_cq(call: &mut Call<'_>, command: &[u8]) -> Result<(Object, Answer), Status> {
    let (request, _) = CreateCqRequest::ref_from_prefix(command).map_err(|_| Status::BAD_LENGTH)?;
    let flags = CqcFlags::from_bits(request.cqc.flags.get());
    let size = CqcSize::from_bits(request.cqc.size.get());
    // The device does not compress entries, so a command that enables compression is refused.
    let entry_bytes: u8 = match flags.cqe_sz() {
        CqcFlags::BYTES_64 => 64,
        CqcFlags::BYTES_128 => 128,
        _ => return Err(Status::BAD_PARAMETER),
    };
    if flags.cqe_comp_en() || size.log_cq_size() > 22 {
        return Err(Status::BAD_PARAMETER);
    }
    let entries = 1_u32 << size.log_cq_size();
    let bytes = u64::from(entries) * u64::from(entry_bytes);
    let ring = place(call, request.cq_umem_id.get(), request.cq_umem_offset.get(), bytes)?;
    let record = place(call, request.cqc.dbr_umem_id.get(), request.cqc.dbr_addr.get(), RECORD)?;
    let umems = [request.cq_umem_id.get(), request.cqc.dbr_umem_id.get()];
    let base = base(call, umems, Some(CqcSize::from_bits(request.cqc.size.get()).uar_page()))?;
    never_armed(record).ok_or(Status::BAD_PARAMETER)?;
    let number = call.state.device.create_cq(CqAttributes {
        ring,
        log_entries: size.log_cq_size(),
        entry_bytes,
        doorbell_record: record,
        ignore_overrun: flags.oi(),
    })?;
    let cq = Cq {
        number,
        user_handle: None,
        base,
        channel: None,
        ring,
        entries,
        entry_bytes: entry_bytes.into(),
        record,
        fired: None,
        completion_events: 0,
        async_events: 0,
        async_channel: None,
    };
    Ok((Object::Cq(cq), Answer::number(number)))
}

/// Carries out CREATE_QP: makes a queue pair, which must be a reliable connection.
pub(crate) fn create_qp(call: &mut Call<'_>, command: &[u8]) -> Result<(Object, Answer), Status> {
    let (request, _) = CreateQpRequest::ref_from_prefix(command).map_err(|_| Status::BAD_LENGTH)?;
    let qpc = &request.qpc;
    let sizes = QpcSizes::from_bits(qpc.sizes.get());
    let reliable = QpcState::from_bits(qpc.state.get()).st() == QpcState::RELIABLE_CONNECTION;
    if !reliable {
        return Err(Status::BAD_PARAMETER);
    }
    if !call.state.device.profile().timestamps.take(sizes.ts_format()) {
        return Err(Status::BAD_PARAMETER);
    }
    let copies = copies(command, call.state.device.profile())?.unwrap_or(false);
    let receive_queue = QpcReceiveQueue::from_bits(qpc.receive_queue.get());
    let stride = 16_u16 << sizes.log_rq_stride();
    let own = receive_queue.rq_type() == QpcReceiveQueue::REGULAR;
    let rq_bytes = if own { u64::from(stride) << sizes.log_rq_size() } else { 0 };
    // The send ring begins at the first whole block after the receive ring.
    let sq_at = rq_bytes.next_multiple_of(BLOCK);
    let sq_bytes = BLOCK << sizes.log_sq_size();
    let rings = place(call, request.wq_umem_id.get(), request.wq_umem_offset.get(), sq_at + sq_bytes)?;
    let record = place(call, qpc.dbr_umem_id.get(), qpc.dbr_addr.get(), RECORD)?;
    let umems = [request.wq_umem_id.get(), qpc.dbr_umem_id.get()];
    let base = base(call, umems, Some(QpcUar::from_bits(qpc.uar.get()).uar_page()))?;
    let receive = match receive_queue.rq_type() {
        QpcReceiveQueue::REGULAR => {
            ReceiveQueue::Own(ReceiveRing { address: rings, log_slots: sizes.log_rq_size(), stride })
        }
        QpcReceiveQueue::SHARED => ReceiveQueue::Shared(receive_queue.srqn_rmpn_xrqn()),
        QpcReceiveQueue::NONE => ReceiveQueue::None,
        _ => return Err(Status::BAD_PARAMETER),
    };
    let number = call.state.device.create_qp(QpAttributes {
        transport: Transport::ReliableConnection,
        pd: QpcPd::from_bits(qpc.pd.get()).pd(),
        sq: rings + sq_at,
        log_sq_blocks: sizes.log_sq_size(),
        receive,
        doorbell_record: record,
        send_cqn: qpc.cqn_snd.get() & 0x00ff_ffff,
        // Without a receive queue, a completion queue number of 0 means none (DEVICE.md, "Queue pairs without
        // a receive queue").
        recv_cqn: Some(qpc.cqn_rcv.get() & 0x00ff_ffff)
            .filter(|cqn| receive != ReceiveQueue::None || *cqn != 0),
        user_index: qpc.user_index.get() & 0x00ff_ffff,
        drain_sigerr: false,
        rnr_retry: Retries::Infinite,
    })?;
    call.state.device.set_copies(number, copies)?;
    call.state.device.set_timestamps(number, sizes.ts_format())?;
    let qp = Qp {
        number,
        transport: Transport::ReliableConnection,
        user_handle: None,
        base,
        record,
        sq: rings + sq_at,
        blocks: 1 << sizes.log_sq_size(),
        logged: 0,
        async_events: 0,
        async_channel: None,
        capabilities: QpCapabilities::default(),
        signal_all: false,
        context: *qpc,
        attributes: ModifyQp::default(),
        linux_state: QpState::Reset,
    };
    Ok((Object::Qp(Box::new(qp)), Answer::number(number)))
}

/// The commands that change a queue pair, each with the new state. INIT2INIT keeps the state.
const STEPS: &[(u16, Option<QpState>)] = &[
    (0x502, Some(QpState::Init)),
    (0x503, Some(QpState::ReadyToReceive)),
    (0x504, Some(QpState::ReadyToSend)),
    (0x507, Some(QpState::Error)),
    (0x50a, Some(QpState::Reset)),
    (0x50e, None),
];

const RST2INIT: u16 = 0x502;
const INIT2RTR: u16 = 0x503;
const RTR2RTS: u16 = 0x504;
const INIT2INIT: u16 = 0x50e;

/// A peer that does not exist: no process has a queue pair with this number.
const NOBODY: Peer = Peer::Remote(u32::MAX);

/// Returns whether a command with this opcode changes a queue pair.
pub(crate) fn changes_qp(opcode: u16) -> bool {
    STEPS.iter().any(|(known, _)| *known == opcode)
}

/// Carries out a command that changes a queue pair. A refused command changes nothing.
pub(crate) fn modify(call: &mut Call<'_>, opcode: u16, handle: u32, command: &[u8]) -> Result<(), Status> {
    let Qp { number, mut context, .. } = *call.qp(handle).map_err(|_| Status::BAD_RESOURCE)?;
    if opcode == INIT2INIT && call.state.device.query(number)?.state != QpState::Init {
        return Err(Status::BAD_STATE);
    }
    let asked = if matches!(opcode, RST2INIT | INIT2RTR | RTR2RTS | INIT2INIT) {
        let (request, _) = ModifyQpRequest::ref_from_prefix(command).map_err(|_| Status::BAD_LENGTH)?;
        let mask = QpOptional::from_bits(request.opt_param_mask.get());
        merge(opcode, &mut context, &request.qpc, mask, call.state)?;
        Some((request, mask))
    } else {
        None
    };
    let copies = match opcode {
        INIT2INIT => selected_copies(command, call.state.device.profile())?,
        _ => None,
    };
    let drain = QpcPd::from_bits(context.pd.get()).drain_sigerr();
    if drain && !call.state.device.profile().drain_sigerr {
        return Err(Status::BAD_PARAMETER);
    }
    if let Some((_, Some(state))) = STEPS.iter().find(|(known, _)| *known == opcode) {
        call.state.modify(number, *state)?;
        call.state.touch();
    }
    match (opcode, asked) {
        (RST2INIT, _) => set_rights(call, number, &context)?,
        (INIT2RTR, _) => {
            set_rights(call, number, &context)?;
            let answers = address::leads_to_a_port(call.state, &context.primary_path) == Some(true);
            let peer = call.state.peer(QpcPeer::from_bits(context.peer.get()).remote_qpn());
            call.state.device.connect(number, if answers { peer } else { NOBODY })?;
        }
        (RTR2RTS, _) => {
            let retries = match QpcRetry::from_bits(context.retry.get()).rnr_retry() {
                FOR_EVER => Retries::Infinite,
                count => Retries::Count(count),
            };
            call.state.device.set_rnr_retry(number, retries)?;
        }
        (INIT2INIT, Some((_, mask))) if mask.drain_sigerr() => {
            call.state.device.set_drain_sigerr(number, drain)?;
        }
        _ => {}
    }
    if let Some(copies) = copies {
        call.state.device.set_copies(number, copies)?;
    }
    call.qp(handle).map_err(|_| Status::BAD_RESOURCE)?.context = context;
    Ok(())
}

/// Returns whether a command permits its queue pair to copy memory, or `None` if the command lacks the
/// context's extension (`qpc_ext`, `mmo`).
fn copies(command: &[u8], profile: &DeviceProfile) -> Result<Option<bool>, Status> {
    // Two flags of CREATE_QP and INIT2INIT, each as the offset of a byte and a bit in it: the extension is
    // present, and copies are permitted (`prm.h` of DPDK and `mlx5_ifc.h`).
    const PRESENT: (usize, u8) = (8, 0x80);
    const MMO: (usize, u8) = (0x110, 0x20);
    if command.get(PRESENT.0).is_none_or(|byte| byte & PRESENT.1 == 0) {
        return Ok(None);
    }
    let copies = command.get(MMO.0).ok_or(Status::BAD_LENGTH)? & MMO.1 != 0;
    if copies && profile.log_max_copy.is_none() { Err(Status::BAD_PARAMETER) } else { Ok(Some(copies)) }
}

/// Returns the result of [`copies`] for a command whose mask selects this part of the extension. Returns
/// `None` if the mask selects nothing.
fn selected_copies(command: &[u8], profile: &DeviceProfile) -> Result<Option<bool>, Status> {
    const MASK: usize = 0x108;
    const SELECT_MMO: u64 = 1 << 3;
    let Some(copies) = copies(command, profile)? else { return Ok(None) };
    let rest = command.get(MASK..).and_then(|rest| rest.split_first_chunk());
    match u64::from_be_bytes(*rest.ok_or(Status::BAD_LENGTH)?.0) {
        0 => Ok(None),
        SELECT_MMO => Ok(Some(copies)),
        _ => Err(Status::BAD_PARAMETER),
    }
}

/// Sets the rights of a queue pair's peer to the rights in the queue pair's context.
fn set_rights(call: &mut Call<'_>, number: u32, context: &Qpc) -> Result<(), Status> {
    let rights = QpcRights::from_bits(context.rights.get());
    let access = Access {
        remote_read: rights.rre(),
        remote_write: rights.rwe(),
        remote_atomic: rights.rae(),
        ..Access::ALL
    };
    Ok(call.state.device.set_rights(number, access)?)
}

/// Copies the fields that a command with this opcode sets from `asked` into the queue pair's context.
fn merge(
    opcode: u16,
    context: &mut Qpc,
    asked: &Qpc,
    mask: QpOptional,
    state: &mut State,
) -> Result<(), Status> {
    let profile = *state.device.profile();
    match opcode {
        RST2INIT => {
            (context.primary_path, context.rights) = (asked.primary_path, asked.rights);
        }
        INIT2RTR => {
            let (sizes, rights) =
                (QpcSizes::from_bits(asked.sizes.get()), QpcRights::from_bits(asked.rights.get()));
            let good = PathMtu::from_code(sizes.mtu()).is_some()
                && sizes.log_msg_max() <= profile.log_max_message()
                && rights.log_rra_max() <= profile.log_max_reads;
            if !good || address::leads_to_a_port(state, &asked.primary_path).is_none() {
                return Err(Status::BAD_PARAMETER);
            }
            let own = QpcSizes::from_bits(context.sizes.get());
            context.sizes.set(own.with_mtu(sizes.mtu()).with_log_msg_max(sizes.log_msg_max()).into_bits());
            let mut own = QpcRights::from_bits(context.rights.get()).with_log_rra_max(rights.log_rra_max());
            if mask.remote_read() {
                own.set_rre(rights.rre());
            }
            if mask.remote_write() {
                own.set_rwe(rights.rwe());
            }
            if mask.atomic() {
                own.set_rae(rights.rae());
            }
            context.rights.set(own.into_bits());
            let port = context.primary_path.port;
            (context.peer, context.primary_path, context.receive) =
                (asked.peer, asked.primary_path, asked.receive);
            if PathPort::from_bits(asked.primary_path.port.get()).vhca_port_num() == 0 {
                context.primary_path.port = port;
            }
        }
        RTR2RTS => {
            if QpcRetry::from_bits(asked.retry.get()).log_sra_max() > profile.log_max_reads {
                return Err(Status::BAD_PARAMETER);
            }
            (context.retry, context.next_send_psn) = (asked.retry, asked.next_send_psn);
            let timeout = PathHops::from_bits(asked.primary_path.hops.get()).ack_timeout();
            let hops = &mut context.primary_path.hops;
            hops.set(PathHops::from_bits(hops.get()).with_ack_timeout(timeout).into_bits());
        }
        _ if mask.with_drain_sigerr(false) != QpOptional::new() => return Err(Status::BAD_PARAMETER),
        _ if mask.drain_sigerr() => {
            let drain = QpcPd::from_bits(asked.pd.get()).drain_sigerr();
            context.pd.set(QpcPd::from_bits(context.pd.get()).with_drain_sigerr(drain).into_bits());
        }
        _ => {}
    }
    Ok(())
}

#[cfg(test)]
#[allow(clippy::indexing_slicing)]
mod tests {
    use super::*;

    #[test]
    fn copies_are_asked_for_in_an_extension() {
        let profile = DeviceProfile::default();
        let none = DeviceProfile { log_max_copy: None, ..profile };
        let mut command = vec![0; 0x111];
        let said = |command: &[u8], profile| {
            [copies(command, profile), selected_copies(command, profile)]
                .map(|said| said.map_err(|status| status.0))
        };
        command[0x110] = 0x20;
        assert_eq!(said(&command, &profile), [Ok(None), Ok(None)], "no extension");
        command[8] = 0x80;
        assert_eq!(said(&command, &profile), [Ok(Some(true)), Ok(None)], "not selected");
        command[0x10f] = 8;
        assert_eq!(said(&command, &profile), [Ok(Some(true)), Ok(Some(true))]);
        assert_eq!(said(&command, &none), [Err(3), Err(3)]);
        assert_eq!(said(&command[..0x110], &profile), [Err(0x50), Err(0x50)]);
        command[0x110] = 0xdf;
        assert_eq!(said(&command, &none), [Ok(Some(false)), Ok(Some(false))]);
        command[0x108] = 1;
        assert_eq!(said(&command, &none), [Ok(Some(false)), Err(3)], "something else is selected");
    }
}
