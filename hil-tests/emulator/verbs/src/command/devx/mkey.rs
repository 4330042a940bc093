//! Mkeys that a program makes by a command of the device (DEVX).

use super::frame::{Answer, Command, Status};
use crate::command::call::Call;
use crate::ground::notice;
use crate::state::object::{Devx, Object};
use mlx5_mkey::wire::klm::Klm;
use mlx5_softdev::{Access, MkeyAttributes, MkeySpace};
use zerocopy::FromBytes;

/// Offset of the mkey's context in the command (PRM `create_mkey_in`).
const CONTEXT: usize = 0x10;
/// Offsets of the entry count and of the entries in the command.
const COUNT: usize = 0x60;
const ENTRIES: usize = 0x110;
/// Bytes of an entry, a KLM.
const ENTRY: usize = 16;

/// Access modes (PRM `mkc.access_mode_4_2`, `access_mode_1_0`): entries with individual lengths, and entries
/// with one common length.
const KLM: u8 = 2;
const KSM: u8 = 3;

/// Bits of the mkey's context, in its bytes 0, 1, 2, 0xc and 0x3b.
const FREE: u8 = 0x40;
const RELAXED_WRITE: u8 = 0x04;
const UMR_EN: u8 = 0x80;
const LENGTH_64: u8 = 0x80;
const BSF_EN: u8 = 0x40;
const EN_RINVAL: u8 = 0x01;
const RELAXED_READ: u8 = 0x40;

/// Carries out CREATE_MKEY: makes an mkey whose entries a later UMR writes, or whose entries are in the
/// command.
pub(crate) fn create(call: &mut Call<'_>, command: &Command) -> Result<(Object, Answer), Status> {
    let at = |offset: usize| CONTEXT + offset;
    let (first, access, flags) = (command.u8(at(0))?, command.u8(at(2))?, command.u8(at(0xc))?);
    let mode = first & 0x1c | access & 3;
    let crypto = command.u8(at(0x3c))? >> 3 & 3 != 0;
    let bsf = if flags & BSF_EN == 0 { 0 } else { command.u32(at(0x20))? };
    let log_entry = match mode {
        KLM => None,
        KSM => Some(command.u8(at(0x3b))? & 0x1f),
        _ => return Err(unknown(&format!("access mode {mode}"))),
    };
    let attributes = MkeyAttributes {
        translations: command.u32(at(0x34))?,
        // The mkey has one BSF of 4 octowords for each feature.
        signature: bsf >= if crypto { 8 } else { 4 },
        crypto,
        access: Access::from_byte(access),
        tag: command.u8(at(7))?,
        remote_invalidate: flags & EN_RINVAL != 0,
        free: first & FREE != 0,
        log_entry,
        relaxed_ordering: [
            command.u8(at(1))? & RELAXED_WRITE != 0,
            command.u8(at(0x3b))? & RELAXED_READ != 0,
        ],
        ..MkeyAttributes::new(command.u24(at(0xd))?, 0)
    };
    let device = &mut call.state.device;
    let key = if access & UMR_EN != 0 {
        device.create_mkey(attributes)?
    } else if flags & LENGTH_64 != 0 {
        return Err(unknown("a space of 2^64 bytes"));
    } else {
        let (start, length) = (command.u64(at(0x10))?, command.u64(at(0x18))?);
        device.create_mkey_over(attributes, MkeySpace { start, length, entries: entries(command)? })?
    };
    Ok((Object::Devx(Devx::Mkey(key.index())), Answer::number(key.index().get())))
}

/// Reports an unknown property of an mkey, and returns the status of the refusal.
fn unknown(what: &str) -> Status {
    notice::once(&format!("the device does not know mkeys with {what}"));
    Status::BAD_PARAMETER
}

/// Reads the entries of the mkey that CREATE_MKEY contains.
fn entries(command: &Command) -> Result<Vec<Klm>, Status> {
    let count = usize::try_from(command.u32(COUNT)?).map_err(|_| Status::BAD_LENGTH)?;
    let length = count.checked_mul(ENTRY).ok_or(Status::BAD_LENGTH)?;
    let (entries, _) = command.bytes(ENTRIES, length)?.as_chunks::<ENTRY>();
    entries.iter().map(|entry| Klm::read_from_bytes(entry).map_err(|_| Status::BAD_LENGTH)).collect()
}
