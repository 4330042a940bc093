//! Queries of objects by commands of the device (DEVX), answered at once or through a descriptor.

use super::frame::{HANDLE, IN, OUT, answer, command, opcode};
use super::keys::valid_login;
use super::linux;
use crate::command::call::Call;
use crate::ground::errno::Errno;
use crate::state::channel::Kind;
use crate::state::object::{Devx, Object, Qp};
use mlx5_softdev::commands::reply::{HEADER, with};
use mlx5_softdev::commands::{Refused, context_reply, dek_reply};
use mlx5_softdev::{CryptoMode, Error, LoginState};
use zerocopy::IntoBytes;

/// Attributes of OBJ_ASYNC_QUERY (`mlx5_ib_devx_obj_query_async_attrs`).
const CHANNEL: u16 = 0x1002;
const USER_ID: u16 = 0x1003;
const OUT_LENGTH: u16 = 0x1004;

/// The most bytes of an answer through a descriptor.
const LONGEST: u64 = 1 << 16;

/// Carries out OBJ_QUERY: a command that queries a queue pair or a general object.
pub(crate) fn query(call: &mut Call<'_>) -> Result<(), Errno> {
    let outcome = ask(call)?;
    answer(call, OUT, outcome)
}

/// Carries out OBJ_ASYNC_QUERY: a query whose answer the program reads from a descriptor. The program's own
/// number for the query ([`USER_ID`]) comes before the answer. The answer is ready when the call returns.
///
/// The kernel refuses a query when 1 MiB of answers is unread. The stand-in's limit is the room in a socket.
/// A read with too little room cuts off the stand-in's answer, while the kernel keeps the answer.
pub(crate) fn query_later(call: &mut Call<'_>) -> Result<(), Errno> {
    let channel = call.channel(CHANNEL, |kind| kind == Kind::Commands)?.ok_or(Errno::INVAL)?;
    let length = call.request.number(OUT_LENGTH);
    if length > LONGEST {
        return Err(Errno::INVAL);
    }
    // A refusal by the device is an answer as well.
    let mut bytes = ask(call)?.unwrap_or_else(Refused::reply);
    bytes.resize(length as usize, 0);
    let user_id = call.request.number(USER_ID);
    let channel = call.state.channel(channel).ok_or(Errno::BADF)?;
    channel.flush();
    if channel.is_behind() {
        return Err(Errno::AGAIN);
    }
    channel.push(&[user_id.to_ne_bytes().as_slice(), &bytes].concat());
    Ok(())
}

/// Carries out DEVX_ASYNC_CMD_FD_ALLOC: makes the channel from which a program reads answers to
/// OBJ_ASYNC_QUERY.
pub(crate) fn alloc_channel(call: &mut Call<'_>) -> Result<(), Errno> {
    let (_, descriptor) = call.open_channel(Kind::Commands)?;
    call.request.answer_object(HANDLE, descriptor.into())
}

/// Carries out the query in a call. Returns the device's answer or its refusal.
fn ask(call: &mut Call<'_>) -> Result<Result<Vec<u8>, Refused>, Errno> {
    let command = command(call, IN)?;
    let object = call.object(call.request.handle(HANDLE)?)?.clone();
    linux::query(call, &command, &object)?;
    Ok(match (command.opcode(), object) {
        (opcode::QUERY_QP, Object::Qp(qp)) => query_qp(call, &qp),
        (opcode::QUERY_OBJECT, Object::Devx(Devx::Dek { opaque, .. })) => {
            // A device that imports wrapped keys answers a query of a DEK only with a valid login.
            let wrapped = call.state.device.profile().crypto == CryptoMode::Wrapped;
            if wrapped && valid_login(call).is_none() {
                Err(Error::NoLogin.into())
            } else {
                Ok(dek_reply(&opaque))
            }
        }
        (opcode::QUERY_OBJECT, Object::Devx(Devx::Login(number))) => {
            call.state.device.query_login(number).map_err(Refused::from).map(|state| {
                let state = u8::from(state != LoginState::Valid);
                with(HEADER + 0x100, HEADER + 0x10, &[state])
            })
        }
        _ => Err(Refused::OPCODE),
    })
}

fn query_qp(call: &mut Call<'_>, qp: &Qp) -> Result<Vec<u8>, Refused> {
    let view = call.state.device.query(qp.number)?;
    let context = qp.context.as_bytes().try_into().map_err(|_| Refused::INPUT_LENGTH)?;
    Ok(context_reply(context, &view))
}
