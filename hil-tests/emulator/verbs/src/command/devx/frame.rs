//! The common parts of all commands of the device: their bytes, and their replies.

use crate::command::call::Call;
use crate::command::numbers::{DEVX, DEVX_OBJECT};
use crate::ground::errno::Errno;
use crate::state::object::Object;
use mlx5_softdev::Error;
use zeroize::Zeroizing;

/// Attributes of the methods that take a command of the device (`mlx5_user_ioctl_cmds.h`).
pub(crate) const OTHER_IN: u16 = 0x1000;
pub(crate) const OTHER_OUT: u16 = 0x1001;
pub(crate) const HANDLE: u16 = 0x1000;
pub(crate) const IN: u16 = 0x1001;
pub(crate) const OUT: u16 = 0x1002;

/// Opcodes of commands of the device.
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

/// Bytes of a command, and of its reply, before the body of a general object.
pub(crate) const HEADER: usize = 16;
/// Bytes of a general object's body.
pub(crate) const BODY: usize = 256;

/// The status byte and the syndrome of a reply that reports a refusal.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Status(pub(crate) u8, u32);

impl Status {
    pub(crate) const BAD_OPCODE: Self = Self(2, 0x1);
    pub(crate) const BAD_PARAMETER: Self = Self(3, 0x2);
    pub(crate) const BAD_LENGTH: Self = Self(0x50, 0x3);
    pub(crate) const BAD_RESOURCE: Self = Self(5, 0x4);
    pub(crate) const LIMIT: Self = Self(8, 0x19);
    pub(crate) const BAD_STATE: Self = Self(0x10, 0x18);
}

/// The bytes of a reply that reports success.
pub(crate) struct Answer(pub(crate) Vec<u8>);

impl Answer {
    /// Returns a reply with the number of the new object.
    pub(crate) fn number(number: u32) -> Self {
        Self(reply(HEADER, 8, &number.to_be_bytes()))
    }
}

impl From<Error> for Status {
    fn from(error: Error) -> Self {
        match error {
            Error::NoSuchObject { .. } => Self(5, 0x10),
            Error::BadAttribute(_) => Self(3, 0x11),
            Error::InUse => Self(6, 0x12),
            Error::BadTransition { .. } => Self(0x10, 0x13),
            Error::CryptoMode => Self(2, 0x14),
            Error::NoLogin => Self(3, 0x15),
            Error::BadKey => Self(3, 0x16),
            Error::Exhausted => Self(0xf, 0x17),
            Error::AtomicOverRelaxed => Self(3, 0x0045_d3a4),
        }
    }
}

/// The bytes of a command of the device. They are wiped when this value is dropped, since they may contain a
/// key.
pub(crate) struct Command(pub(crate) Zeroizing<Vec<u8>>);

impl Command {
    pub(crate) fn bytes(&self, at: usize, length: usize) -> Result<&[u8], Status> {
        let end = at.checked_add(length).ok_or(Status::BAD_LENGTH)?;
        self.0.get(at..end).ok_or(Status::BAD_LENGTH)
    }

    pub(crate) fn u8(&self, at: usize) -> Result<u8, Status> {
        self.0.get(at).copied().ok_or(Status::BAD_LENGTH)
    }

    pub(crate) fn u16(&self, at: usize) -> Result<u16, Status> {
        Ok(self.bytes(at, 2)?.iter().fold(0, |word, byte| word << 8 | u16::from(*byte)))
    }

    pub(crate) fn u24(&self, at: usize) -> Result<u32, Status> {
        Ok(self.bytes(at, 3)?.iter().fold(0, |word, byte| word << 8 | u32::from(*byte)))
    }

    pub(crate) fn u32(&self, at: usize) -> Result<u32, Status> {
        Ok(self.bytes(at, 4)?.iter().fold(0, |word, byte| word << 8 | u32::from(*byte)))
    }

    pub(crate) fn u64(&self, at: usize) -> Result<u64, Status> {
        Ok(self.bytes(at, 8)?.iter().fold(0, |word, byte| word << 8 | u64::from(*byte)))
    }

    pub(crate) fn opcode(&self) -> u16 {
        self.u16(0).unwrap_or(0)
    }
}

/// Makes a reply of zeros with `bytes` at an offset.
pub(crate) fn reply(length: usize, at: usize, bytes: &[u8]) -> Vec<u8> {
    let mut reply = vec![0; length];
    if let Some(place) = reply.get_mut(at..at + bytes.len()) {
        place.copy_from_slice(bytes);
    }
    reply
}

/// Writes the reply to a command into an attribute of the call. A refusal is also written, and makes the call
/// fail with EREMOTEIO.
pub(crate) fn answer(call: &Call<'_>, attribute: u16, outcome: Result<Vec<u8>, Status>) -> Result<(), Errno> {
    match outcome {
        Ok(bytes) => call.request.answer(attribute, &bytes),
        Err(status) => {
            call.request.answer(attribute, &refusal(status))?;
            Err(Errno::REMOTEIO)
        }
    }
}

/// Writes a refusal with `status` as the reply to the command in a call. Returns `None` if `status` is 0 or
/// the call carries no command.
pub(crate) fn refuse(call: &Call<'_>, status: u8) -> Option<Errno> {
    let output = match (call.request.object, call.request.method) {
        (DEVX, 0x1000) => OTHER_OUT,
        (DEVX_OBJECT, 0x1000 | 0x1002 | 0x1003) => OUT,
        _ => return None,
    };
    (status != 0).then(|| answer(call, output, Err(Status(status, 0xfa11))).err()).flatten()
}

pub(crate) fn refusal(Status(status, syndrome): Status) -> Vec<u8> {
    let mut bytes = vec![status, 0, 0, 0];
    bytes.extend_from_slice(&syndrome.to_be_bytes());
    bytes
}

/// The outcome of a command that makes an object: the object and the reply, or the status of the refusal.
pub(crate) type Created = Result<(Object, Vec<u8>), Status>;
