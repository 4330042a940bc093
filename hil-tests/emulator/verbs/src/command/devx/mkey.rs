//! Mkeys that a program makes by a command of the device (DEVX).

use crate::command::call::Call;
use crate::ground::notice;
use crate::state::object::{Devx, Object};
use mlx5_softdev::commands::{KeySpace, MkeyCommand, Refused, Request};

/// Carries out CREATE_MKEY: makes an mkey whose entries a later UMR writes, or whose entries are in the
/// command. Returns it with its number.
pub(crate) fn create(call: &mut Call<'_>, command: &Request) -> Result<(Object, u32), Refused> {
    let MkeyCommand { attributes, space } = MkeyCommand::read(command)?;
    let device = &mut call.state.device;
    let key = match space {
        KeySpace::Umr => device.create_mkey(attributes)?,
        KeySpace::Entries(space) => device.create_mkey_over(attributes, space)?,
        // A program registers regions by verbs, not by commands: it does not know addresses on the bus.
        KeySpace::Bus | KeySpace::Pages { .. } => {
            notice::once("a program cannot make mkeys over addresses of the bus");
            return Err(Refused::PARAMETER);
        }
    };
    Ok((Object::Devx(Devx::Mkey(key.index())), key.index().get()))
}
