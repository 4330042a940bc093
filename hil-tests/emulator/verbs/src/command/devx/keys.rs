//! Commands for data encryption keys (DEKs) and crypto logins, which are general objects.

use super::frame::Created;
use crate::command::call::Call;
use crate::state::object::{Devx, Object};
use mlx5_softdev::LoginState;
use mlx5_softdev::commands::reply::{self, HEADER};
use mlx5_softdev::commands::{self, Refused, Request};

pub(crate) fn create_dek(call: &mut Call<'_>, command: &Request) -> Created {
    let login = valid_login(call);
    let device = &mut call.state.device;
    let number = device.create_dek(commands::dek(command, device.profile().crypto, login)?)?;
    let opaque = commands::opaque(command)?;
    Ok((Object::Devx(Devx::Dek { number, opaque }), reply::number(number)))
}

/// Carries out MODIFY_GENERAL_OBJECT of a DEK: sets the key's value.
pub(crate) fn modify_dek(call: &mut Call<'_>, number: u32, command: &Request) -> Result<(), Refused> {
    commands::modifies_key(command)?;
    let login = valid_login(call);
    let device = &mut call.state.device;
    Ok(device.modify_dek(number, commands::dek(command, device.profile().crypto, login)?)?)
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

pub(crate) fn create_login(call: &mut Call<'_>, command: &Request) -> Created {
    let at = |offset: usize| HEADER + offset;
    let factory = call.state.factory.ok_or(Refused::OPCODE)?;
    // A context has at most one login (`mlx5dv_crypto_login_create(3)`). Assumption: the device refuses a
    // second login because of a limit.
    if call.context().is_ok_and(|context| context.objects().any(|object| login_number(object).is_some())) {
        return Err(Refused::LIMIT);
    }
    // The device got its credential and its key encryption keys when it was made. Commands name both by their
    // index, from 0 on.
    let known = |asked: u32, numbers: &[u32]| numbers.get(asked as usize).copied().ok_or(Refused::PARAMETER);
    let credential = known(command.u24(at(0x11))?, &[factory.credential])?;
    let kek = known(command.u24(at(0x15))?, &factory.keks)?;
    let wrapped = command.bytes(at(0x40), 48)?.try_into().map_err(|_| Refused::INPUT_LENGTH)?;
    let number = call.state.device.login(kek, credential, wrapped)?;
    Ok((Object::Devx(Devx::Login(number)), reply::number(number)))
}
