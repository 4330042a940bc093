//! Shared receive queues that a program makes by commands of the device (DEVX). The device calls them receive
//! memory pools (RMP).

use super::frame::{Answer, Command, Status};
use super::queue::{base, place};
use crate::command::call::Call;
use crate::state::object::{Object, Srq};
use mlx5_softdev::{SrqAttributes, Topology};

/// Offset of the pool's work queue in CREATE_RMP and MODIFY_RMP (PRM `create_rmp_in`, `rmpc`, `wq`).
const WQ: usize = 0x50;
/// Values of `wq_type`, each with its kind of queue. The device lacks strided queues and signatures of slots.
const TOPOLOGIES: &[(u8, Topology)] = &[(0x00, Topology::LinkedList), (0x10, Topology::Cyclic)];
/// Bytes of a doorbell record.
const RECORD: u64 = 8;
/// The bit of MODIFY_RMP's mask for the limit.
const LIMIT: u8 = 1;

/// Carries out CREATE_RMP: makes a shared receive queue.
pub(crate) fn create(call: &mut Call<'_>, command: &Command) -> Result<(Object, Answer), Status> {
    let at = |offset: usize| WQ + offset;
    let kind = command.u8(at(0))? & 0xf8;
    let topology = TOPOLOGIES.iter().find(|(known, _)| *known == kind).ok_or(Status::BAD_PARAMETER)?.1;
    let (log_slots, log_stride) = (command.u8(at(0x23))? & 0x1f, command.u8(at(0x21))? & 0xf);
    if log_slots > 16 {
        return Err(Status::BAD_PARAMETER);
    }
    let umems = [command.u32(at(0x2c))?, command.u32(at(0x28))?];
    let [ring, record] = umems;
    let ring = place(call, ring, command.u64(at(0x30))?, 1 << (log_slots + log_stride))?;
    let doorbell_record = place(call, record, command.u64(at(0x10))?, RECORD)?;
    let base = base(call, umems, None)?;
    let number = call.state.device.create_srq(SrqAttributes {
        pd: command.u24(at(9))?,
        topology,
        ring,
        log_slots,
        stride: 1 << log_stride,
        doorbell_record,
    })?;
    let (receives, segments) = ((1 << log_slots) - 1, (1 << log_stride) / 16 - 1);
    let srq =
        Srq { number, user_handle: None, base, receives, segments, async_events: 0, async_channel: None };
    Ok((Object::Srq(srq), Answer::number(number)))
}

/// Carries out MODIFY_RMP: sets the limit of a shared receive queue.
pub(crate) fn modify(call: &mut Call<'_>, number: u32, command: &Command) -> Result<(), Status> {
    const MASK: usize = 0x17;
    if command.u8(MASK)? & LIMIT != 0 {
        call.state.device.arm_srq(number, command.u16(WQ + 6)?.into())?;
        call.state.touch();
    }
    Ok(())
}
