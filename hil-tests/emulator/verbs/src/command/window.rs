//! Calls for memory windows. A window is an mkey with room for one range of memory. A program binds the
//! window by UMRs.

use crate::command::call::Call;
use crate::command::numbers::{CORE_IN, CORE_OUT, UHW_IN};
use crate::ground::abi::{AllocWindow, AllocWindowDriver};
use crate::ground::errno::Errno;
use crate::state::object::Object;
use mlx5_softdev::{Access, MkeyAttributes};

/// Kinds of memory windows (`enum ib_mw_type`). Type 1 is bound by a verbs call. Type 2 is bound by work
/// requests of a queue pair, and then belongs to this queue pair.
const TYPE_1: u8 = 1;
const TYPE_2: u8 = 2;

/// The number of entries of an mkey is a multiple of this number.
const BLOCK: u32 = 4;

/// Carries out ALLOC_MW: makes a memory window.
pub(super) fn alloc(call: &mut Call<'_>) -> Result<(), Errno> {
    let asked: AllocWindow = call.request.structure(CORE_IN)?;
    let driver: AllocWindowDriver = call.request.structure(UHW_IN)?;
    if driver.comp_mask != 0 || driver.reserved0 != 0 || driver.reserved1 != 0 {
        return Err(Errno::OPNOTSUPP);
    }
    let pd = call.pd(asked.pd)?;
    if !matches!(asked.kind, TYPE_1 | TYPE_2) {
        return Err(Errno::INVAL);
    }
    let entries = u32::from(driver.entries.max(1)).next_multiple_of(BLOCK);
    let key = call.state.device.create_mkey(MkeyAttributes {
        access: Access::LOCAL_READ,
        remote_invalidate: asked.kind == TYPE_2,
        ..MkeyAttributes::new(pd, entries)
    })?;
    call.publish(Object::Window(key.index()), |request, handle| {
        request.answer(CORE_OUT, [handle, key.get()].map(u32::to_ne_bytes).as_flattened())
    })
}
