//! The common parts of all commands of the device (DEVX): the attributes of the calls that carry them, and
//! their answers.

use crate::command::call::Call;
use crate::command::numbers::{DEVX, DEVX_OBJECT};
use crate::ground::errno::Errno;
use crate::state::object::Object;
use mlx5_softdev::commands::{Refused, Request};

/// Attributes of the methods that take a command of the device (`mlx5_user_ioctl_cmds.h`): command and reply
/// of DEVX_OTHER; object, command and reply of the methods for one object.
pub(crate) const OTHER_IN: u16 = 0x1000;
pub(crate) const OTHER_OUT: u16 = 0x1001;
pub(crate) const HANDLE: u16 = 0x1000;
pub(crate) const IN: u16 = 0x1001;
pub(crate) const OUT: u16 = 0x1002;

/// Opcodes of commands of the device (PRM).
pub(crate) mod opcode {
    pub(crate) const QUERY_HCA_CAP: u16 = 0x100;
    pub(crate) const CREATE_MKEY: u16 = 0x200;
    pub(crate) const CREATE_CQ: u16 = 0x400;
    pub(crate) const CREATE_QP: u16 = 0x500;
    pub(crate) const QUERY_QP: u16 = 0x50b;
    pub(crate) const CREATE_PSV: u16 = 0x600;
    pub(crate) const CREATE_RMP: u16 = 0x90c;
    pub(crate) const MODIFY_RMP: u16 = 0x90d;
    pub(crate) const QUERY_NIC_VPORT_CONTEXT: u16 = 0x754;
    pub(crate) const QUERY_LAG: u16 = 0x842;
    pub(crate) const CREATE_OBJECT: u16 = 0xa00;
    pub(crate) const MODIFY_OBJECT: u16 = 0xa01;
    pub(crate) const SYNC_CRYPTO: u16 = 0xb12;
    pub(crate) const QUERY_OBJECT: u16 = 0xa02;
}

/// Types of general objects in commands of the device.
pub(crate) const TYPE_DEK: u16 = 0x0c;
pub(crate) const TYPE_LOGIN: u16 = 0x1f;

/// The number of the only event queue for completions.
pub(crate) const EVENT_QUEUE: u32 = 1;

/// Returns the command of the device that an attribute of the call contains.
pub(crate) fn command(call: &Call<'_>, attribute: u16) -> Result<Request, Errno> {
    Ok(Request(call.request.bytes(attribute)?.into()))
}

/// Writes the reply to a command into an attribute of the call. A refusal is also written, and makes the call
/// fail with EREMOTEIO.
pub(crate) fn answer(
    call: &Call<'_>,
    attribute: u16,
    outcome: Result<Vec<u8>, Refused>,
) -> Result<(), Errno> {
    match outcome {
        Ok(bytes) => call.request.answer(attribute, &bytes),
        Err(refused) => {
            call.request.answer(attribute, &refused.reply())?;
            Err(Errno::REMOTEIO)
        }
    }
}

/// Writes a refusal with `status` as the reply to the command in a call, and returns the errno of the call.
/// Returns `None` if `status` is 0 or the call carries no command.
pub(crate) fn refuse(call: &Call<'_>, status: u8) -> Option<Errno> {
    let output = match (call.request.object, call.request.method) {
        (DEVX, 0x1000) => OTHER_OUT,
        (DEVX_OBJECT, 0x1000 | 0x1002 | 0x1003) => OUT,
        _ => return None,
    };
    (status != 0).then(|| answer(call, output, Err(Refused::planned(status))).err()).flatten()
}

/// The outcome of a command that makes an object: the object and the reply, or the refusal.
pub(crate) type Created = Result<(Object, Vec<u8>), Refused>;
