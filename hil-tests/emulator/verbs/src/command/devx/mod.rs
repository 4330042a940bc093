//! Commands of the device itself, which a program sends as bytes (DEVX). The fields are in big endian, at the
//! offsets of the PRM.

pub(crate) mod frame;
mod keys;
mod linux;
mod mkey;
pub(crate) mod query;
pub(crate) mod queue;
mod shared_receive;

use crate::command::call::Call;
use crate::ground::errno::Errno;
use crate::ground::{descriptors, notice, sys};
use crate::state::channel::Kind;
use crate::state::events::{self, Target};
use crate::state::object::{Devx, Object};
use frame::{
    Created, EVENT_QUEUE, HANDLE, IN, OTHER_IN, OTHER_OUT, OUT, TYPE_DEK, TYPE_LOGIN, answer, command, opcode,
};
use keys::{create_dek, create_login, modify_dek};
use mlx5_softdev::capabilities::{capabilities, nic_vport};
use mlx5_softdev::commands::reply::{self, HEADER, with};
use mlx5_softdev::commands::{PsvCommand, Refused, Request, psv_reply, steps, syncs_crypto};
use std::os::fd::RawFd;
use std::sync::Arc;

/// Carries out DEVX_OTHER: a command of the device without an object.
pub(crate) fn other(call: &mut Call<'_>) -> Result<(), Errno> {
    let command = command(call, OTHER_IN)?;
    linux::general(call, &command)?;
    let outcome = match command.opcode() {
        opcode::QUERY_HCA_CAP => command.u16(6).and_then(|kind| {
            let caps = capabilities(kind, call.state.device.profile());
            Ok(with(HEADER + 0x1000, HEADER, &caps.ok_or(Refused::PARAMETER)?))
        }),
        opcode::QUERY_NIC_VPORT_CONTEXT => match command.u32(8) {
            // The only vport is the PCI function's own, with number 0.
            Ok(0) => {
                let context = nic_vport(u64::from_be_bytes(call.state.guid()), call.state.port.interface.mac);
                Ok(with(HEADER + 0x100, HEADER, &context))
            }
            Ok(_) => Err(Refused::PARAMETER),
            Err(status) => Err(status),
        },
        // A device with one port has no link aggregation.
        opcode::QUERY_LAG => Ok(vec![0; HEADER]),
        opcode::SYNC_CRYPTO => syncs_crypto(&command, call.state.device.profile()).map(|()| {
            call.state.device.sync_crypto();
            vec![0; HEADER]
        }),
        _ => Err(unknown(&command)),
    };
    answer(call, OTHER_OUT, outcome)
}

/// Carries out DEVX_QUERY_UAR: answers with the number of the doorbell page that the call names.
pub(crate) fn query_uar(call: &mut Call<'_>) -> Result<(), Errno> {
    let number = call.request.number(0x1000) as u32;
    call.request.answer(0x1001, &number.to_ne_bytes())
}

/// Carries out DEVX_QUERY_EQN: answers with the number of the only event queue, which belongs to the only
/// completion vector.
pub(crate) fn query_eqn(call: &mut Call<'_>) -> Result<(), Errno> {
    if call.request.number(0x1000) != 0 {
        return Err(Errno::NOENT);
    }
    call.request.answer(0x1001, &EVENT_QUEUE.to_ne_bytes())
}

/// The most event numbers in one call of DEVX_SUBSCRIBE_EVENT.
const MAX_EVENTS: usize = 16;

/// The flag of an event channel whose events carry no data (`MLX5_IB_UAPI_DEVX_CR_EV_CH_FLAGS_OMIT_DATA`).
const OMIT_DATA: u64 = 1;

/// Carries out DEVX_ASYNC_EVENT_FD_ALLOC: makes a channel for events of the device.
pub(crate) fn alloc_event_channel(call: &mut Call<'_>) -> Result<(), Errno> {
    let flags = call.request.number(0x1001);
    if flags & !OMIT_DATA != 0 {
        return Err(Errno::INVAL);
    }
    let kind = Kind::Devx { omit_data: flags & OMIT_DATA != 0 };
    let (_, descriptor) = call.open_channel(kind)?;
    call.request.answer_object(0x1000, descriptor.into())
}

/// Carries out DEVX_SUBSCRIBE_EVENT: subscribes to events of an object that a command made. An event arrives
/// on a channel, or signals an eventfd. A call without an object can only subscribe to port changes. This
/// call succeeds, but the stand-in never reports port changes to subscribers.
pub(crate) fn subscribe(call: &mut Call<'_>) -> Result<(), Errno> {
    let channel = call.channel(0x1000, |kind| matches!(kind, Kind::Devx { .. }))?.ok_or(Errno::INVAL)?;
    let subject = match call.request.has(0x1001) {
        false => None,
        true => Some(match call.object(call.request.handle(0x1001)?)? {
            object if !object.is_of_command() => return Err(Errno::INVAL),
            // Objects of other kinds than queues have no events.
            object => object.subject(),
        }),
    };
    linux::has_devx(call)?;
    let signals = call.request.has(0x1003);
    if signals && call.request.has(0x1004) {
        return Err(Errno::INVAL);
    }
    let bytes = call.request.bytes(0x1002)?;
    let (numbers, rest) = bytes.as_chunks();
    let numbers: Vec<u16> = numbers.iter().map(|number| u16::from_ne_bytes(*number)).collect();
    let may_ask = if subject.is_some() { events::is_askable } else { events::is_askable_of_the_device };
    let good = rest.is_empty() && (1..=MAX_EVENTS).contains(&numbers.len());
    if !good || !numbers.iter().all(|number| may_ask(*number)) {
        return Err(Errno::INVAL);
    }
    let target = match signals {
        true => {
            let eventfd = sys::eventfd(call.request.number(0x1003) as RawFd)?;
            descriptors::keep(&eventfd);
            Target::Signal(Arc::new(eventfd))
        }
        false => Target::Cookie(call.request.number(0x1004)),
    };
    let Some(subject) = subject.flatten() else { return Ok(()) };
    call.state.subscriptions.add(channel, subject, &numbers, &target);
    // If a completion queue now has a subscriber, its doorbell record must be watched.
    call.state.touch();
    Ok(())
}

/// Reports an unknown command, and returns the device's refusal.
fn unknown(command: &Request) -> Refused {
    notice::once(&format!("the device does not know the command {:#05x}", command.opcode()));
    Refused::OPCODE
}

/// Carries out OBJ_CREATE: a command of the device that makes an object.
pub(crate) fn create(call: &mut Call<'_>) -> Result<(), Errno> {
    let mut command = command(call, IN)?;
    linux::create(call, &command)?;
    queue::in_umems(&mut command);
    if let Err(refused) = owns(call, &command) {
        return answer(call, OUT, Err(refused));
    }
    let numbered = |made: Result<(Object, u32), Refused>| made.map(|(object, n)| (object, reply::number(n)));
    let outcome = match command.opcode() {
        opcode::CREATE_MKEY => numbered(mkey::create(call, &command)),
        opcode::CREATE_PSV => create_psvs(call, &command),
        opcode::CREATE_OBJECT => match command.u16(6) {
            Ok(TYPE_DEK) => create_dek(call, &command),
            Ok(TYPE_LOGIN) => create_login(call, &command),
            _ => Err(Refused::PARAMETER),
        },
        opcode::CREATE_CQ => numbered(queue::create_cq(call, &command)),
        opcode::CREATE_QP => numbered(queue::create_qp(call, &command)),
        opcode::CREATE_RMP => numbered(shared_receive::create(call, &command)),
        _ => Err(unknown(&command)),
    };
    match outcome {
        Ok((object, reply)) => call.publish(object, |request, handle| {
            request.answer(OUT, &reply)?;
            request.answer_object(HANDLE, handle.into())
        }),
        Err(refused) => answer(call, OUT, Err(refused)),
    }
}

/// Protection domains, completion queues and shared receive queues that commands name: the opcode, the offset
/// of the number, and the kind. The number 0 of a completion queue for receives means none.
const NAMES: &[(u16, usize, Named)] = &[
    (opcode::CREATE_MKEY, 0x1d, Named::Pd),
    (opcode::CREATE_PSV, 0x09, Named::Pd),
    (opcode::CREATE_OBJECT, 0x1d, Named::Pd),
    (opcode::CREATE_RMP, 0x59, Named::Pd),
    (opcode::CREATE_QP, 0x1d, Named::Pd),
    (opcode::CREATE_QP, 0x95, Named::Cq),
    (opcode::CREATE_QP, 0xb5, Named::ReceiveCq),
    (opcode::CREATE_QP, 0xc5, Named::Srq),
];

#[derive(Clone, Copy)]
enum Named {
    Pd,
    Cq,
    ReceiveCq,
    Srq,
}

/// Refuses a command that names an object of another context. On Linux, the kernel writes the number of the
/// context into each command (`uid`). The device then refuses objects that a command with another `uid` has
/// made (hil-tests/DEVICE.md, "User contexts").
fn owns(call: &mut Call<'_>, command: &Request) -> Result<(), Refused> {
    const SHARED: u8 = 1;
    let opcode = command.opcode();
    let is_login = opcode == opcode::CREATE_OBJECT && command.u16(6)? != TYPE_DEK;
    for (_, at, kind) in NAMES.iter().filter(|(known, ..)| *known == opcode && !is_login) {
        let number = command.u24(*at)?;
        match kind {
            Named::ReceiveCq if number == 0 => continue,
            Named::Srq if command.u8(0xc4)? & 7 != SHARED => continue,
            _ => {}
        }
        let is_it = |object: &Object| match (kind, object) {
            (Named::Pd, Object::Pd(known)) => *known == number,
            (Named::Cq | Named::ReceiveCq, Object::Cq(cq)) => cq.number == number,
            (Named::Srq, Object::Srq(srq)) => srq.number == number,
            _ => false,
        };
        if !call.context().is_ok_and(|context| context.objects().any(is_it)) {
            return Err(Refused::RESOURCE);
        }
    }
    Ok(())
}

fn create_psvs(call: &mut Call<'_>, command: &Request) -> Created {
    let PsvCommand { pd, count } = PsvCommand::read(command)?;
    let numbers = call.state.device.create_psvs(pd, count)?;
    let reply = psv_reply(&numbers);
    Ok((Object::Devx(Devx::Psvs(numbers)), reply))
}

/// Carries out OBJ_MODIFY: a command that modifies a queue pair, a shared receive queue or a DEK. The call
/// names the object by its handle.
pub(crate) fn modify(call: &mut Call<'_>) -> Result<(), Errno> {
    let command = command(call, IN)?;
    let handle = call.request.handle(HANDLE)?;
    let object = call.object(handle)?.clone();
    linux::modify(call, &command, &object)?;
    let outcome = match (command.opcode(), object) {
        (opcode::MODIFY_RMP, Object::Srq(srq)) => shared_receive::modify(call, srq.number, &command),
        (opcode::MODIFY_OBJECT, Object::Devx(Devx::Dek { number, .. })) => modify_dek(call, number, &command),
        (opcode, Object::Qp(_)) if steps(opcode) => queue::modify(call, handle, &command),
        _ => Err(unknown(&command)),
    };
    answer(call, OUT, outcome.map(|()| vec![0; HEADER]))
}
