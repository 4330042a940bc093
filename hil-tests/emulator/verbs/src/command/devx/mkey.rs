//! Mkeys that a program makes by a command of the device (DEVX).

use super::queue;
use crate::command::call::Call;
use crate::ground::notice;
use crate::state::object::{Devx, Object};
use mlx5_softdev::commands::{KeySpace, MkeyCommand, Refused, Request};
use mlx5_softdev::{Access, Placement};

/// The number of bytes of a page.
const PAGE: u64 = 4096;

/// Carries out CREATE_MKEY: makes an mkey whose entries a later UMR writes, or whose entries are in the
/// command, or which maps registered memory (umem). Returns the mkey and its number.
pub(crate) fn create(call: &mut Call<'_>, command: &Request) -> Result<(Object, u32), Refused> {
    let MkeyCommand { attributes, space } = MkeyCommand::read(command)?;
    let device = &mut call.state.device;
    let key = match space {
        KeySpace::Umem { start, length, number, offset } => {
            let memory = queue::inside(call, number, offset, length)?;
            // The region's first address in requests (`start`) and the address of its memory must have the
            // same offset in a page.
            if memory.address % PAGE != start % PAGE {
                return Err(Refused::PARAMETER);
            }
            let mut attributes = attributes;
            if !memory.writable {
                let reads = attributes.access;
                attributes.access =
                    Access { local_write: false, remote_write: false, remote_atomic: false, ..reads };
            }
            let place = Placement { address: memory.address, start, length };
            let key = call.state.device.register_with(attributes, place)?;
            let region = Devx::Region { index: key.index(), umem: number - 1 };
            return Ok((Object::Devx(region), key.index().get()));
        }
        KeySpace::Umr => device.create_mkey(attributes)?,
        KeySpace::Entries(space) => device.create_mkey_over(attributes, space)?,
        // A program knows only its own virtual addresses, no addresses on the bus.
        KeySpace::Bus | KeySpace::Pages { .. } => {
            notice::once("a program cannot make mkeys over addresses of the bus");
            return Err(Refused::PARAMETER);
        }
    };
    Ok((Object::Devx(Devx::Mkey(key.index())), key.index().get()))
}
