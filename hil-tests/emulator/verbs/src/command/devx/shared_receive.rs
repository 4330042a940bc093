//! Shared receive queues that a program makes by commands of the device (DEVX). The device calls them receive
//! memory pools (RMP).

use super::queue::{base, place, record};
use crate::command::call::Call;
use crate::state::object::{Common, Object, Srq};
use mlx5_softdev::commands::{Refused, Request, RmpCommand, limit_of_rmp};

/// Carries out CREATE_RMP: makes a shared receive queue. Returns the queue and its number.
pub(crate) fn create(call: &mut Call<'_>, command: &Request) -> Result<(Object, u32), Refused> {
    let command = RmpCommand::read(command)?;
    let ring = place(call, command.ring, command.bytes())?;
    let doorbell_record = record(call, command.record)?;
    let base = base(call, [command.ring.umem(), command.record.umem], None)?;
    let attributes = command.attributes(ring, doorbell_record);
    let number = call.state.device.create_srq(attributes)?;
    let (receives, segments) = ((1 << attributes.log_slots) - 1, u32::from(attributes.stride) / 16 - 1);
    let srq = Srq { number, common: Common::of_command(base), receives, segments };
    Ok((Object::Srq(srq), number))
}

/// Carries out MODIFY_RMP: sets the limit of a shared receive queue.
pub(crate) fn modify(call: &mut Call<'_>, number: u32, command: &Request) -> Result<(), Refused> {
    if let Some(limit) = limit_of_rmp(command)? {
        call.state.device.arm_srq(number, limit.into())?;
        call.state.touch();
    }
    Ok(())
}
