//! Queues that a program makes by commands of the device (DEVX), over memory that it has registered (umem).

use super::frame::opcode;
use super::linux;
use crate::command::call::Call;
use crate::command::completion::never_armed;
use crate::command::{address, memory};
use crate::ground::abi::{Destination, QpCapabilities, QpValues};
use crate::ground::errno::Errno;
use crate::ground::sys::Mapping;
use crate::state::doorbell_page::DoorbellPage;
use crate::state::object::{Base, Common, Cq, Object, Qp, Umem};
use mlx5_mkey::wire::prm::qp_context::{AddressPath, Qpc};
use mlx5_softdev::commands::{CqCommand, Place, QpCommand, QpStep, Record, Refused, Request};
use mlx5_softdev::{Peer, QpState, Transport};
use std::sync::Arc;
use zerocopy::{FromBytes, IntoBytes};

/// Access flags that a umem may have: local write, remote write, remote read.
const UMEM_ACCESS: u64 = 0x7;
const LOCAL_WRITE: u64 = 0x1;
const REMOTE_WRITE: u64 = 0x2;
/// The number of bytes of a page.
const PAGE: u64 = 4096;
/// Bytes of a doorbell record.
const RECORD: u64 = 8;

/// Carries out UMEM_REG: registers memory of the program, or a dma-buf, for queues that commands make. Any
/// file that can be mapped is accepted as a dma-buf, as by REG_DMABUF_MR.
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
    let writable = access & LOCAL_WRITE != 0;
    let umem = match call.request.descriptor(0x1006)? {
        Some(descriptor) => {
            let end = address.checked_add(length).ok_or(Errno::INVAL)?;
            let mapping = Mapping::new(descriptor, end, writable)?;
            let address = mapping.address() + address;
            Umem { address, length, writable, _mapping: Some(Arc::new(mapping)) }
        }
        None => {
            memory::pinned(address, length, writable)?;
            Umem { address, length, writable, _mapping: None }
        }
    };
    call.publish(Object::Umem(umem), |request, handle| {
        request.answer(0x1004, &handle.wrapping_add(1).to_ne_bytes())?;
        request.answer_object(0x1000, handle.into())
    })
}

/// Returns the address of a ring of `length` bytes in a umem. Commands name a umem by its handle plus one.
pub(crate) fn place(call: &mut Call<'_>, ring: Place, length: u64) -> Result<u64, Refused> {
    // The caller has set the bits of `IN_UMEMS` in the command, as Linux does. A ring outside a umem is
    // refused.
    let Place::Umem { number, offset } = ring else { return Err(Refused::PARAMETER) };
    inside(call, number, offset, length).map(|memory| memory.address)
}

/// Returns the address of a doorbell record.
pub(crate) fn record(call: &mut Call<'_>, record: Record) -> Result<u64, Refused> {
    inside(call, record.umem.ok_or(Refused::PARAMETER)?, record.offset, RECORD).map(|memory| memory.address)
}

/// A part of a umem.
pub(crate) struct Inside {
    pub(crate) address: u64,
    /// Whether the umem was registered for writes.
    pub(crate) writable: bool,
}

/// Returns the part of `length` bytes at an offset in a umem. Commands name a umem by its handle plus one.
pub(crate) fn inside(call: &mut Call<'_>, umem: u32, offset: u64, length: u64) -> Result<Inside, Refused> {
    let handle = umem.checked_sub(1).ok_or(Refused::RESOURCE)?;
    let Ok(Object::Umem(umem)) = call.object(handle) else { return Err(Refused::RESOURCE) };
    let end = offset.checked_add(length).ok_or(Refused::PARAMETER)?;
    if end > umem.length {
        return Err(Refused::PARAMETER);
    }
    let address = umem.address.checked_add(offset).ok_or(Refused::PARAMETER)?;
    Ok(Inside { address, writable: umem.writable })
}

/// Returns the objects that a queue depends on: its umems and its doorbell page. Commands name each of these
/// objects by its handle plus one. The caller has checked the umems by [`place`] and [`record`]. This
/// function checks that the doorbell page exists, if the command names one.
pub(crate) fn base(
    call: &mut Call<'_>,
    umems: [Option<u32>; 2],
    uar_page: Option<u32>,
) -> Result<Base, Refused> {
    let umems = umems.map(|umem| umem?.checked_sub(1));
    let Some(page) = uar_page else { return Ok(Base { umems, uar: None }) };
    let uar = page.checked_sub(1).ok_or(Refused::RESOURCE)?;
    match call.object(uar) {
        Ok(Object::Uar(_)) => Ok(Base { umems, uar: Some(uar) }),
        _ => Err(Refused::RESOURCE),
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
    // The bit is `mkey_umem_valid`.
    (opcode::CREATE_MKEY, 0xc, 0x40),
    // The bits are `wq.dbr_umem_valid` and `wq.wq_umem_valid`.
    (opcode::CREATE_RMP, 0x74, 0xc0),
];

/// Sets the bits of [`IN_UMEMS`] in a command. The kernel always sets them, and UCX leaves them clear (kernel
/// `devx.c`, `devx_set_umem_valid`).
pub(crate) fn in_umems(command: &mut Request) {
    // The byte holds the lowest two bits of the access mode. Their value 1 means a region of pages (MTT).
    let is_region = |request: &Request| request.u8(0x12).is_ok_and(|access| access & 3 == 1);
    let opcode = command.opcode();
    if opcode == opcode::CREATE_MKEY && !is_region(command) {
        return;
    }
    for (_, at, bits) in IN_UMEMS.iter().filter(|(known, ..)| *known == opcode) {
        if let Some(byte) = command.0.get_mut(*at) {
            *byte |= bits;
        }
    }
}

/// Carries out CREATE_CQ: makes a completion queue. Returns the queue and its number.
pub(crate) fn create_cq(call: &mut Call<'_>, command: &Request) -> Result<(Object, u32), Refused> {
    let command = CqCommand::read(command)?;
    let ring = place(call, command.ring, command.bytes())?;
    let record = record(call, command.record)?;
    let base = base(call, [command.ring.umem(), command.record.umem], Some(command.uar))?;
    never_armed(record).ok_or(Refused::PARAMETER)?;
    let attributes = command.attributes(ring, record);
    let number = call.state.device.create_cq(attributes)?;
    if command.collapsed {
        call.state.device.collapse_cq(number)?;
    }
    let cq = Cq {
        number,
        common: Common::of_command(base),
        collapsed: command.collapsed,
        ring,
        entries: 1 << attributes.log_entries,
        entry_bytes: attributes.entry_bytes.into(),
        record,
        ..Cq::default()
    };
    Ok((Object::Cq(cq), number))
}

/// Returns the doorbell page of a new queue pair without a doorbell record for requests (`alone`). Refuses to
/// let such a queue pair share its page with another queue pair, because one doorbell could overwrite another
/// before the device reads the page.
fn own_page(call: &mut Call<'_>, base: &Base, alone: bool) -> Result<Option<Arc<DoorbellPage>>, Refused> {
    let context = call.context().map_err(|_| Refused::RESOURCE)?;
    let is_shared = context.objects().any(|object| match object {
        Object::Qp(qp) => qp.common.base.uar == base.uar && (alone || qp.alone.is_some()),
        _ => false,
    });
    match base.uar.and_then(|handle| context.get(handle)) {
        _ if is_shared => Err(Refused::RESOURCE),
        Some(Object::Uar(page)) if alone => {
            page.clear();
            Ok(Some(page.clone()))
        }
        _ => Ok(None),
    }
}

/// Carries out CREATE_QP: makes a queue pair, which must be a reliable connection. Returns the queue pair and
/// its number.
pub(crate) fn create_qp(call: &mut Call<'_>, command: &Request) -> Result<(Object, u32), Refused> {
    let command = QpCommand::read(command, call.state.device.profile())?;
    if command.transport != Transport::ReliableConnection {
        return Err(Refused::PARAMETER);
    }
    let rings = place(call, command.rings, command.bytes())?;
    let record = record(call, command.record)?;
    let base = base(call, [command.rings.umem(), command.record.umem], Some(command.uar))?;
    let attributes = command.attributes(rings, record);
    let alone = own_page(call, &base, command.doorbell_alone)?;
    let context = Qpc::read_from_bytes(&command.context).map_err(|_| Refused::INPUT_LENGTH)?;
    let number = call.state.device.create_qp(attributes)?;
    call.state.device.set_copies(number, command.copies)?;
    call.state.device.set_timestamps(number, command.timestamps)?;
    let qp = Qp {
        number,
        transport: attributes.transport,
        common: Common::of_command(base),
        record: alone.as_ref().map_or(record, |page| page.record()),
        alone,
        blocks: 1 << attributes.log_sq_blocks,
        capabilities: QpCapabilities::default(),
        signal_all: false,
        context,
        destination: Destination::default(),
        values: QpValues::default(),
        linux_state: QpState::Reset,
    };
    Ok((Object::Qp(Box::new(qp)), number))
}

/// Carries out a command that changes a queue pair. A refused command changes nothing.
pub(crate) fn modify(call: &mut Call<'_>, handle: u32, command: &Request) -> Result<(), Refused> {
    let Qp { number, transport, context, .. } = *call.qp(handle).map_err(|_| Refused::RESOURCE)?;
    let state = call.state.device.query(number)?.state;
    let context = context.as_bytes().try_into().map_err(|_| Refused::INPUT_LENGTH)?;
    let step = QpStep::read(command, (state, transport), context, call.state.device.profile())?;
    let peer = match step.peer {
        None => None,
        Some((peer, path)) => {
            let path = AddressPath::read_from_bytes(&path).map_err(|_| Refused::INPUT_LENGTH)?;
            let answers = address::leads_to_a_port(call.state, &path).ok_or(Refused::PARAMETER)?;
            Some(if answers { call.state.peer(peer) } else { Peer::NOBODY })
        }
    };
    call.state.modify(number, step.to)?;
    call.state.device.set_step(number, &step, peer)?;
    call.state.touch();
    let context = Qpc::read_from_bytes(&step.context).map_err(|_| Refused::INPUT_LENGTH)?;
    call.qp(handle).map_err(|_| Refused::RESOURCE)?.context = context;
    Ok(())
}
