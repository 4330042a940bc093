//! Commands of the device itself, carried through as bytes (DEVX): big endian, at the places that the PRM gives.

use super::{Call, devx_mkey, devx_queue, devx_shared_receive, methods};
use crate::ground::errno::Errno;
use crate::ground::{descriptors, notice, sys, sysfs};
use crate::state::channel::Kind;
use crate::state::events::{self, Subject, Target};
use crate::state::object::{Devx, Object};
use mlx5_softdev::capabilities::{capabilities, nic_vport};
use mlx5_softdev::{CryptoMode, DekAttributes, Error, KeyMaterial, KeySize, LoginState};
use std::os::fd::RawFd;
use std::sync::Arc;
use zeroize::Zeroizing;

/// Attributes of the methods that take a command (`mlx5_user_ioctl_cmds.h`).
const OTHER_IN: u16 = 0x1000;
const OTHER_OUT: u16 = 0x1001;
pub(super) const HANDLE: u16 = 0x1000;
pub(super) const IN: u16 = 0x1001;
pub(super) const OUT: u16 = 0x1002;

/// Opcodes.
pub(super) mod opcode {
    pub(super) const QUERY_HCA_CAP: u16 = 0x100;
    pub(super) const CREATE_MKEY: u16 = 0x200;
    pub(in super::super) const CREATE_CQ: u16 = 0x400;
    pub(in super::super) const CREATE_QP: u16 = 0x500;
    pub(in super::super) const QUERY_QP: u16 = 0x50b;
    pub(super) const CREATE_PSV: u16 = 0x600;
    pub(in super::super) const CREATE_RMP: u16 = 0x90c;
    pub(super) const MODIFY_RMP: u16 = 0x90d;
    pub(super) const QUERY_NIC_VPORT_CONTEXT: u16 = 0x754;
    pub(super) const QUERY_LAG: u16 = 0x842;
    pub(super) const CREATE_OBJECT: u16 = 0xa00;
    pub(super) const MODIFY_OBJECT: u16 = 0xa01;
    pub(super) const SYNC_CRYPTO: u16 = 0xb12;
    pub(in super::super) const QUERY_OBJECT: u16 = 0xa02;
}

/// Types of general objects.
const TYPE_DEK: u16 = 0x0c;
const TYPE_LOGIN: u16 = 0x1f;

/// Bytes before the body of a general object.
pub(super) const HEADER: usize = 16;
/// Bytes of an object's body.
pub(super) const BODY: usize = 256;

/// Purpose of a key: AES-XTS.
const PURPOSE_XTS: u8 = 3;

/// The status byte of a reply and its syndrome.
#[derive(Clone, Copy, Debug)]
pub(super) struct Status(pub(super) u8, u32);

impl Status {
    pub(super) const BAD_OPCODE: Self = Self(2, 0x1);
    pub(super) const BAD_PARAMETER: Self = Self(3, 0x2);
    pub(super) const BAD_LENGTH: Self = Self(0x50, 0x3);
    pub(super) const BAD_RESOURCE: Self = Self(5, 0x4);
    pub(super) const LIMIT: Self = Self(8, 0x19);
    pub(super) const BAD_STATE: Self = Self(0x10, 0x18);
}

/// A good reply.
pub(super) struct Answer(Vec<u8>);

impl Answer {
    /// A reply that names the new object.
    pub(super) fn number(number: u32) -> Self {
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
        }
    }
}

/// A command's bytes, wiped when dropped: there may be a key among them.
pub(super) struct Command(pub(super) Zeroizing<Vec<u8>>);

impl Command {
    pub(super) fn bytes(&self, at: usize, length: usize) -> Result<&[u8], Status> {
        let end = at.checked_add(length).ok_or(Status::BAD_LENGTH)?;
        self.0.get(at..end).ok_or(Status::BAD_LENGTH)
    }

    pub(super) fn u8(&self, at: usize) -> Result<u8, Status> {
        self.0.get(at).copied().ok_or(Status::BAD_LENGTH)
    }

    pub(super) fn u16(&self, at: usize) -> Result<u16, Status> {
        Ok(self.bytes(at, 2)?.iter().fold(0, |word, byte| word << 8 | u16::from(*byte)))
    }

    pub(super) fn u24(&self, at: usize) -> Result<u32, Status> {
        Ok(self.bytes(at, 3)?.iter().fold(0, |word, byte| word << 8 | u32::from(*byte)))
    }

    pub(super) fn u32(&self, at: usize) -> Result<u32, Status> {
        Ok(self.bytes(at, 4)?.iter().fold(0, |word, byte| word << 8 | u32::from(*byte)))
    }

    pub(super) fn u64(&self, at: usize) -> Result<u64, Status> {
        Ok(self.bytes(at, 8)?.iter().fold(0, |word, byte| word << 8 | u64::from(*byte)))
    }

    pub(super) fn opcode(&self) -> u16 {
        self.u16(0).unwrap_or(0)
    }
}

/// Makes a reply of zeros with `bytes` at a place.
pub(super) fn reply(length: usize, at: usize, bytes: &[u8]) -> Vec<u8> {
    let mut reply = vec![0; length];
    if let Some(place) = reply.get_mut(at..at + bytes.len()) {
        place.copy_from_slice(bytes);
    }
    reply
}

/// Hands a reply to the program. A refusal is an answer as well, and the call fails with EREMOTEIO.
pub(super) fn answer(call: &Call<'_>, attribute: u16, outcome: Result<Vec<u8>, Status>) -> Result<(), Errno> {
    match outcome {
        Ok(bytes) => call.request.answer(attribute, &bytes),
        Err(status) => {
            call.request.answer(attribute, &refusal(status))?;
            Err(Errno::REMOTEIO)
        }
    }
}

/// Writes the refusal of a command that the device is to refuse with `status`. `None` where the call carries none.
pub(super) fn refuse(call: &Call<'_>, status: u8) -> Option<Errno> {
    let output = match (call.request.object, call.request.method) {
        (methods::DEVX, 0x1000) => OTHER_OUT,
        (methods::DEVX_OBJECT, 0x1000 | 0x1002 | 0x1003) => OUT,
        _ => return None,
    };
    (status != 0).then(|| answer(call, output, Err(Status(status, 0xfa11))).err()).flatten()
}

pub(super) fn refusal(Status(status, syndrome): Status) -> Vec<u8> {
    let mut bytes = vec![status, 0, 0, 0];
    bytes.extend_from_slice(&syndrome.to_be_bytes());
    bytes
}

/// DEVX_OTHER: commands without an object.
pub(super) fn other(call: &mut Call<'_>) -> Result<(), Errno> {
    let command = Command(call.request.bytes(OTHER_IN)?.into());
    let outcome = match command.opcode() {
        opcode::QUERY_HCA_CAP => command.u16(6).and_then(|kind| {
            let caps = capabilities(kind, call.state.device.profile());
            Ok(reply(HEADER + 0x1000, HEADER, &caps.ok_or(Status::BAD_PARAMETER)?))
        }),
        opcode::QUERY_NIC_VPORT_CONTEXT => match command.u32(8) {
            // The function's own, which has no number; there is no other.
            Ok(0) => {
                let context = nic_vport(u64::from_be_bytes(sysfs::GUID), sysfs::mac());
                Ok(reply(HEADER + 0x100, HEADER, &context))
            }
            Ok(_) => Err(Status::BAD_PARAMETER),
            Err(status) => Err(status),
        },
        // One port is bound to no other.
        opcode::QUERY_LAG => Ok(vec![0; HEADER]),
        opcode::SYNC_CRYPTO => match command.u16(0xe) {
            Ok(1) if call.state.device.profile().crypto != CryptoMode::None => {
                call.state.device.sync_crypto();
                Ok(vec![0; HEADER])
            }
            _ => Err(Status::BAD_PARAMETER),
        },
        // The kernel lets through only commands that it knows to be harmless.
        _ => return Err(unknown(&command)),
    };
    answer(call, OTHER_OUT, outcome)
}

/// DEVX_QUERY_UAR: the page's own number.
pub(super) fn query_uar(call: &mut Call<'_>) -> Result<(), Errno> {
    let number = call.request.number(0x1000) as u32;
    call.request.answer(0x1001, &number.to_ne_bytes())
}

/// DEVX_QUERY_EQN: there is one vector, with one event queue.
pub(super) fn query_eqn(call: &mut Call<'_>) -> Result<(), Errno> {
    if call.request.number(0x1000) != 0 {
        return Err(Errno::INVAL);
    }
    call.request.answer(0x1001, &1u32.to_ne_bytes())
}

/// The most numbers of events in one call.
const MAX_EVENTS: usize = 16;

/// `MLX5_IB_UAPI_DEVX_CR_EV_CH_FLAGS_OMIT_DATA`.
const OMIT_DATA: u64 = 1;

/// DEVX_ASYNC_EVENT_FD_ALLOC.
pub(super) fn alloc_event_channel(call: &mut Call<'_>) -> Result<(), Errno> {
    let flags = call.request.number(0x1001);
    if flags & !OMIT_DATA != 0 {
        return Err(Errno::INVAL);
    }
    let kind = Kind::Devx { omit_data: flags & OMIT_DATA != 0 };
    let (_, descriptor) = call.open_channel(kind)?;
    call.request.answer_object(0x1000, descriptor.into())
}

/// DEVX_SUBSCRIBE_EVENT: of an object that a command made, on a channel or by an eventfd. Events of the device as a whole there are
/// none here.
pub(super) fn subscribe(call: &mut Call<'_>) -> Result<(), Errno> {
    let descriptor = call.request.descriptor(0x1000).ok_or(Errno::INVAL)?;
    let Some((channel, Kind::Devx { .. })) = call.state.channel_of(descriptor) else {
        return Err(Errno::BADF);
    };
    if !call.request.has(0x1001) {
        return Err(Errno::OPNOTSUPP);
    }
    let signals = call.request.has(0x1003);
    if signals && call.request.has(0x1004) {
        return Err(Errno::INVAL);
    }
    let subject = match call.object(call.request.handle(0x1001)?)? {
        Object::Qp(qp) if qp.user_handle.is_none() => Subject::Qp(qp.number),
        Object::Cq(cq) if cq.user_handle.is_none() => Subject::Cq(cq.number),
        Object::Srq(srq) if srq.user_handle.is_none() => Subject::Srq(srq.number),
        _ => return Err(Errno::NOENT),
    };
    let bytes = call.request.bytes(0x1002)?;
    let (numbers, rest) = bytes.as_chunks();
    let numbers: Vec<u16> = numbers.iter().map(|number| u16::from_ne_bytes(*number)).collect();
    let good = rest.is_empty() && numbers.len() <= MAX_EVENTS;
    if !good || !numbers.iter().all(|number| events::is_askable(*number)) {
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
    call.state.subscriptions.add(channel, subject, &numbers, &target);
    // A completion queue may now have a doorbell to watch.
    call.state.touch();
    Ok(())
}

/// Names a command that is not known, and returns what the kernel says of one.
fn unknown(command: &Command) -> Errno {
    notice::once(&format!("the device does not know the command {:#05x}", command.opcode()));
    Errno::INVAL
}

/// OBJ_CREATE.
pub(super) fn create(call: &mut Call<'_>) -> Result<(), Errno> {
    let mut command = Command(call.request.bytes(IN)?.into());
    devx_queue::in_umems(&mut command);
    let outcome = match command.opcode() {
        opcode::CREATE_MKEY => {
            devx_mkey::create(call, &command).map(|(object, Answer(reply))| (object, reply))
        }
        opcode::CREATE_PSV => create_psvs(call, &command),
        opcode::CREATE_OBJECT => match command.u16(6) {
            Ok(TYPE_DEK) => create_dek(call, &command),
            Ok(TYPE_LOGIN) => create_login(call, &command),
            _ => Err(Status::BAD_PARAMETER),
        },
        opcode::CREATE_CQ => {
            devx_queue::create_cq(call, &command.0).map(|(object, Answer(reply))| (object, reply))
        }
        opcode::CREATE_QP => {
            devx_queue::create_qp(call, &command.0).map(|(object, Answer(reply))| (object, reply))
        }
        opcode::CREATE_RMP => {
            devx_shared_receive::create(call, &command).map(|(object, Answer(reply))| (object, reply))
        }
        _ => return Err(unknown(&command)),
    };
    match outcome {
        Ok((object, reply)) => call.publish(object, |request, handle| {
            request.answer(OUT, &reply)?;
            request.answer_object(HANDLE, handle.into())
        }),
        Err(status) => answer(call, OUT, Err(status)),
    }
}

type Created = Result<(Object, Vec<u8>), Status>;

fn create_psvs(call: &mut Call<'_>, command: &Command) -> Created {
    let count = u32::from(command.u8(8)? >> 4);
    let numbers = call.state.device.create_psvs(command.u24(9)?, count)?;
    let indexes: Vec<u8> = numbers.iter().flat_map(|number| number.to_be_bytes()).collect();
    Ok((Object::Devx(Devx::Psvs(numbers)), reply(0x20, 0x10, &indexes)))
}

fn create_dek(call: &mut Call<'_>, command: &Command) -> Created {
    let attributes = dek_attributes(call, command)?;
    let number = call.state.device.create_dek(attributes)?;
    let mut opaque = [0; 8];
    opaque.copy_from_slice(command.bytes(HEADER + 0x30, 8)?);
    Ok((Object::Devx(Devx::Dek { number, opaque }), reply(HEADER, 8, &number.to_be_bytes())))
}

/// MODIFY_GENERAL_OBJECT of a key: its value, and nothing else of it.
fn modify_dek(call: &mut Call<'_>, number: u32, command: &Command) -> Result<(), Status> {
    const KEY: u64 = 1;
    if command.u64(HEADER)? != KEY {
        return Err(Status::BAD_PARAMETER);
    }
    let attributes = dek_attributes(call, command)?;
    Ok(call.state.device.modify_dek(number, attributes)?)
}

/// Returns the key in a command.
fn dek_attributes<'c>(call: &mut Call<'_>, command: &'c Command) -> Result<DekAttributes<'c>, Status> {
    let at = |offset: usize| HEADER + offset;
    let (size, flags) = (command.u8(at(0xa))? & 0xf, command.u8(at(0xb))?);
    if flags & 0xf != PURPOSE_XTS {
        return Err(Status::BAD_PARAMETER);
    }
    let has_keytag = flags & 0x80 != 0;
    let (size, mut length) = match size {
        0 => (KeySize::Bits128, 32),
        1 => (KeySize::Bits256, 64),
        _ => return Err(Status::BAD_PARAMETER),
    };
    if has_keytag {
        length += 8;
    }
    let pd = command.u24(at(0xd))?;
    let key = match call.state.device.profile().crypto {
        CryptoMode::Wrapped => {
            let login = valid_login(call).ok_or(Status::from(Error::NoLogin))?;
            KeyMaterial::Wrapped { bytes: command.bytes(at(0x40), length + 8)?, login }
        }
        _ => KeyMaterial::Plaintext(command.bytes(at(0x40), length)?),
    };
    Ok(DekAttributes { pd, size, has_keytag, key })
}

/// Finds a login of this context that holds.
pub(super) fn valid_login(call: &mut Call<'_>) -> Option<u32> {
    let logins: Vec<u32> = call.context().ok()?.objects().filter_map(login_number).collect();
    logins.into_iter().find(|login| call.state.device.query_login(*login) == Ok(LoginState::Valid))
}

const fn login_number(object: &Object) -> Option<u32> {
    match object {
        Object::Devx(Devx::Login(number)) => Some(*number),
        _ => None,
    }
}

fn create_login(call: &mut Call<'_>, command: &Command) -> Created {
    let at = |offset: usize| HEADER + offset;
    let factory = call.state.factory.ok_or(Status::BAD_OPCODE)?;
    // `mlx5dv_crypto_login_create(3)`: one for each context. Assumption: who else asks gets this status.
    if call.context().is_ok_and(|context| context.objects().any(|object| login_number(object).is_some())) {
        return Err(Status::LIMIT);
    }
    // What the device was built with is numbered from 0.
    let known =
        |asked: u32, numbers: &[u32]| numbers.get(asked as usize).copied().ok_or(Status::BAD_PARAMETER);
    let credential = known(command.u24(at(0x11))?, &[factory.credential])?;
    let kek = known(command.u24(at(0x15))?, &factory.keks)?;
    let wrapped = command.bytes(at(0x40), 48)?.try_into().map_err(|_| Status::BAD_LENGTH)?;
    let number = call.state.device.login(kek, credential, wrapped)?;
    Ok((Object::Devx(Devx::Login(number)), reply(HEADER, 8, &number.to_be_bytes())))
}

/// OBJ_DESTROY.
pub(super) fn destroy(call: &mut Call<'_>) -> Result<(), Errno> {
    let handle = call.request.handle(HANDLE)?;
    call.destroy(handle, |object| {
        matches!(object, Object::Devx(_) | Object::Qp(_) | Object::Cq(_) | Object::Srq(_))
    })
}

/// OBJ_MODIFY: of a queue pair, a shared receive queue or a key, by its own handle.
pub(super) fn modify(call: &mut Call<'_>) -> Result<(), Errno> {
    let command = Command(call.request.bytes(IN)?.into());
    let handle = call.request.handle(HANDLE)?;
    if command.opcode() == opcode::MODIFY_RMP {
        let number = call.srq(handle)?.number;
        if command.u24(9).ok() != Some(number) {
            return Err(Errno::INVAL);
        }
        let outcome = devx_shared_receive::modify(call, number, &command).map(|()| vec![0; HEADER]);
        return answer(call, OUT, outcome);
    }
    if command.opcode() == opcode::MODIFY_OBJECT {
        let number = match call.object(handle)? {
            Object::Devx(Devx::Dek { number, .. }) => *number,
            _ => return Err(Errno::INVAL),
        };
        if command.u16(6).ok() != Some(TYPE_DEK) || command.u32(8).ok() != Some(number) {
            return Err(Errno::INVAL);
        }
        let outcome = modify_dek(call, number, &command).map(|()| vec![0; HEADER]);
        return answer(call, OUT, outcome);
    }
    let number = call.qp(handle)?.number;
    if !devx_queue::changes_qp(command.opcode()) || command.u24(9).ok() != Some(number) {
        return Err(Errno::INVAL);
    }
    let outcome = devx_queue::modify(call, command.opcode(), handle, &command.0).map(|()| vec![0; HEADER]);
    answer(call, OUT, outcome)
}
