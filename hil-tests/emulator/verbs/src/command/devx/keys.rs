//! Commands for data encryption keys (DEKs) and crypto logins, which are general objects.

use super::frame::{Command, Created, HEADER, Status, reply};
use crate::command::call::Call;
use crate::state::object::{Devx, Object};
use mlx5_softdev::{DekAttributes, DekError, LoginState};

pub(crate) fn create_dek(call: &mut Call<'_>, command: &Command) -> Created {
    let attributes = dek_attributes(call, command)?;
    let number = call.state.device.create_dek(attributes)?;
    let mut opaque = [0; 8];
    opaque.copy_from_slice(command.bytes(HEADER + 0x30, 8)?);
    Ok((Object::Devx(Devx::Dek { number, opaque }), reply(HEADER, 8, &number.to_be_bytes())))
}

/// Carries out MODIFY_GENERAL_OBJECT of a DEK: sets the key's value. No other field can change.
pub(crate) fn modify_dek(call: &mut Call<'_>, number: u32, command: &Command) -> Result<(), Status> {
    const KEY: u64 = 1;
    if command.u64(HEADER)? != KEY {
        return Err(Status::BAD_PARAMETER);
    }
    let attributes = dek_attributes(call, command)?;
    Ok(call.state.device.modify_dek(number, attributes)?)
}

/// Returns the attributes of a DEK that a command contains.
fn dek_attributes<'c>(call: &mut Call<'_>, command: &'c Command) -> Result<DekAttributes<'c>, Status> {
    let login = valid_login(call);
    let object = command.bytes(HEADER, command.0.len().saturating_sub(HEADER))?;
    DekAttributes::read(object, call.state.device.profile().crypto, login).map_err(|error| match error {
        DekError::Length => Status::BAD_LENGTH,
        DekError::Refused(error) => error.into(),
    })
}

/// Returns the number of a valid login of this context, if there is one.
pub(crate) fn valid_login(call: &mut Call<'_>) -> Option<u32> {
    let logins: Vec<u32> = call.context().ok()?.objects().filter_map(login_number).collect();
    logins.into_iter().find(|login| call.state.device.query_login(*login) == Ok(LoginState::Valid))
}

const fn login_number(object: &Object) -> Option<u32> {
    match object {
        Object::Devx(Devx::Login(number)) => Some(*number),
        _ => None,
    }
}

pub(crate) fn create_login(call: &mut Call<'_>, command: &Command) -> Created {
    let at = |offset: usize| HEADER + offset;
    let factory = call.state.factory.ok_or(Status::BAD_OPCODE)?;
    // A context has at most one login (`mlx5dv_crypto_login_create(3)`). Assumption: a second login is
    // refused with this status.
    if call.context().is_ok_and(|context| context.objects().any(|object| login_number(object).is_some())) {
        return Err(Status::LIMIT);
    }
    // The device got its credential and its key encryption keys in the factory. Commands number both from 0.
    let known =
        |asked: u32, numbers: &[u32]| numbers.get(asked as usize).copied().ok_or(Status::BAD_PARAMETER);
    let credential = known(command.u24(at(0x11))?, &[factory.credential])?;
    let kek = known(command.u24(at(0x15))?, &factory.keks)?;
    let wrapped = command.bytes(at(0x40), 48)?.try_into().map_err(|_| Status::BAD_LENGTH)?;
    let number = call.state.device.login(kek, credential, wrapped)?;
    Ok((Object::Devx(Devx::Login(number)), reply(HEADER, 8, &number.to_be_bytes())))
}
