//! Mkeys that a program makes by a command of the device (DEVX).

use super::frame::{Answer, Command, Status};
use crate::command::call::Call;
use crate::ground::notice;
use crate::state::object::{Devx, Object};
use mlx5_mkey::wire::klm::Klm;
use mlx5_mkey::wire::mkey_context::MkeyContext;
use mlx5_softdev::{MkeyAttributes, MkeySpace};
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

/// Bit of the context's access byte: UMRs may change the mkey (PRM `mkc.umr_en`).
const UMR_EN: u8 = 0x80;

/// Carries out CREATE_MKEY: makes an mkey whose entries a later UMR writes, or whose entries are in the
/// command.
pub(crate) fn create(call: &mut Call<'_>, command: &Command) -> Result<(Object, Answer), Status> {
    let context = command.bytes(CONTEXT, size_of::<MkeyContext>())?;
    let context = MkeyContext::read_from_bytes(context).map_err(|_| Status::BAD_LENGTH)?;
    match context.free & 0x1c | context.access & 3 {
        KLM | KSM => {}
        mode => return Err(unknown(&format!("access mode {mode}"))),
    }
    let attributes = MkeyAttributes::of_context(&context);
    let device = &mut call.state.device;
    let key = if context.access & UMR_EN != 0 {
        device.create_mkey(attributes)?
    } else if context.flags_pd_word().length64() {
        return Err(unknown("a space of 2^64 bytes"));
    } else {
        let (start, length) = (context.start_addr.get(), context.len.get());
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
