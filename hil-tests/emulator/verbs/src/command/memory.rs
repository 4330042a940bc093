//! Calls for protection domains, registered memory and doorbell pages.

use crate::command::call::Call;
use crate::command::numbers::{CORE_IN, CORE_OUT, UHW_OUT};
use crate::ground::abi::{RegisterRequest, RegisterResponse, ReregisterRequest};
use crate::ground::errno::Errno;
use crate::ground::process_memory;
use crate::ground::sys::Mapping;
use crate::state::doorbell_page::DoorbellPage;
use crate::state::object::{Mr, Object};
use crate::state::pages;
use mlx5_softdev::{Access, Placement, RegionChange};
use std::sync::Arc;
use zerocopy::IntoBytes;

/// Access flags of memory regions (`enum ib_uverbs_access_flags`).
const LOCAL_WRITE: u32 = 1;
const REMOTE_WRITE: u32 = 1 << 1;
const REMOTE_READ: u32 = 1 << 2;
const REMOTE_ATOMIC: u32 = 1 << 3;
const MW_BIND: u32 = 1 << 4;
const ZERO_BASED: u32 = 1 << 5;
const ON_DEMAND: u32 = 1 << 6;
const HUGETLB: u32 = 1 << 7;
const RELAXED_ORDERING: u32 = 1 << 20;
/// Flags that a device may ignore (`IB_UVERBS_ACCESS_OPTIONAL_RANGE`).
const OPTIONAL: u32 = 0x3ff0_0000;

const KNOWN: u32 = LOCAL_WRITE
    | REMOTE_WRITE
    | REMOTE_READ
    | REMOTE_ATOMIC
    | MW_BIND
    | ZERO_BASED
    | ON_DEMAND
    | HUGETLB
    | OPTIONAL;

/// Flags for the parts of a region that REREG_MR changes (`enum ib_uverbs_rereg_mr_flags`).
const CHANGE_TRANSLATION: u32 = 1;
const CHANGE_PD: u32 = 1 << 1;
const CHANGE_ACCESS: u32 = 1 << 2;
const CHANGES: u32 = CHANGE_TRANSLATION | CHANGE_PD | CHANGE_ACCESS;

/// Access flags that a region over a dma-buf may have.
const DMABUF: u32 = LOCAL_WRITE | REMOTE_WRITE | REMOTE_READ | REMOTE_ATOMIC | RELAXED_ORDERING;

const PAGE: u64 = 4096;

/// Checks that memory of the program can be pinned for the device (`ib_umem_get`).
///
/// # Errors
/// [`Errno::INVAL`] for a length of 0, or if the end, rounded up to a page, is beyond the last address;
/// [`Errno::FAULT`] for memory that is not mapped with the needed rights.
pub(super) fn pinned(address: u64, length: u64, write: bool) -> Result<(), Errno> {
    let end = address.checked_add(length).and_then(|end| end.checked_next_multiple_of(PAGE));
    if end.is_none() || length == 0 {
        return Err(Errno::INVAL);
    }
    if process_memory::mapped(address, length, write) { Ok(()) } else { Err(Errno::FAULT) }
}

/// Checks that a ring can be pinned for the device. The ring must begin at a multiple of 64
/// (`mlx5_umem_find_best_quantized_pgoff`).
///
/// # Errors
/// [`Errno::INVAL`] for another address, and the errors of [`pinned`].
pub(super) fn pinned_ring(address: u64, length: u64) -> Result<(), Errno> {
    pinned(address, length, true)?;
    if address.is_multiple_of(64) { Ok(()) } else { Err(Errno::INVAL) }
}

/// Returns whether a region with these access flags needs writable memory (`ib_access_writable`).
const fn needs_writable(flags: u32) -> bool {
    flags & (LOCAL_WRITE | REMOTE_WRITE | REMOTE_ATOMIC | MW_BIND) != 0
}

/// Carries out ALLOC_PD: makes a protection domain.
pub(super) fn alloc_pd(call: &mut Call<'_>) -> Result<(), Errno> {
    call.request.structure::<u64>(CORE_IN)?;
    let number = call.state.device.alloc_pd()?;
    call.publish(Object::Pd(number), |request, handle| {
        request.answer(CORE_OUT, &handle.to_ne_bytes())?;
        request.answer(UHW_OUT, &number.to_ne_bytes())
    })
}

/// Carries out REG_MR: registers memory of the program.
pub(super) fn register(call: &mut Call<'_>) -> Result<(), Errno> {
    let asked: RegisterRequest = call.request.structure(CORE_IN)?;
    let pd = call.pd(asked.pd)?;
    let flags = asked.access;
    check_access(flags, KNOWN)?;
    if asked.start % PAGE != asked.hca_va % PAGE {
        return Err(Errno::INVAL);
    }
    pinned(asked.start, asked.length, needs_writable(flags))?;
    let RegisterRequest { start: address, length, .. } = asked;
    let device = &mut call.state.device;
    let key = device.register_at(pd, address, asked.hca_va, length, access(flags))?;
    device.set_relaxed_order(key.index(), flags & RELAXED_ORDERING != 0)?;
    let mr = Mr { key, address, length, access: flags, mapping: None };
    call.publish(Object::Mr(mr), |request, handle| {
        let response = RegisterResponse { handle, lkey: key.get(), rkey: key.get() };
        request.answer(CORE_OUT, response.as_bytes())
    })
}

/// Carries out REREG_MR: changes a region. The region keeps its key and all properties that the call does not
/// name.
pub(super) fn reregister(call: &mut Call<'_>) -> Result<(), Errno> {
    let asked: ReregisterRequest = call.request.structure(CORE_IN)?;
    let has = |flag: u32| asked.flags & flag != 0;
    if asked.flags == 0 {
        return Err(Errno::INVAL);
    }
    if has(!CHANGES) {
        return Err(Errno::OPNOTSUPP);
    }
    if has(CHANGE_TRANSLATION) && (asked.start % PAGE != asked.hca_va % PAGE || asked.length == 0) {
        return Err(Errno::INVAL);
    }
    let mut mr = call.mr(asked.handle)?.clone();
    if has(CHANGE_ACCESS) {
        check_access(asked.access, KNOWN)?;
        mr.access = asked.access;
    }
    let pd = match has(CHANGE_PD) {
        true => Some(call.pd(asked.pd)?),
        false => None,
    };
    if has(CHANGE_TRANSLATION) {
        (mr.address, mr.length, mr.mapping) = (asked.start, asked.length, None);
    }
    let placed = Placement { address: mr.address, start: asked.hca_va, length: mr.length };
    let writable = needs_writable(mr.access);
    if has(CHANGE_TRANSLATION) || has(CHANGE_ACCESS) && writable {
        pinned(mr.address, mr.length, writable)?;
    }
    let change = RegionChange {
        pd,
        placement: has(CHANGE_TRANSLATION).then_some(placed),
        access: has(CHANGE_ACCESS).then_some(access(mr.access)),
    };
    let key = mr.key;
    call.state.device.reregister(key.index(), change)?;
    call.state.device.set_relaxed_order(key.index(), mr.access & RELAXED_ORDERING != 0)?;
    *call.mr(asked.handle)? = mr;
    let keys = [key.get(), key.get()].map(u32::to_ne_bytes);
    call.request.answer(CORE_OUT, keys.as_flattened())
}

/// Carries out REG_DMABUF_MR: registers the memory of a dma-buf. Any file that can be mapped, such as a
/// memfd, is accepted as a dma-buf. The file's pages are mapped in this process as long as the region exists,
/// so that the device finds them by address. The descriptor may be closed afterwards. The kernel ignores how
/// a dma-buf's descriptor was opened. The stand-in refuses writes to a region whose descriptor was opened for
/// reading only.
pub(super) fn register_dmabuf(call: &mut Call<'_>) -> Result<(), Errno> {
    let pd = call.pd(call.request.handle(1)?).map_err(|_| Errno::INVAL)?;
    let [offset, length, iova, descriptor, flags] = [2, 3, 4, 5, 6].map(|id| call.request.number(id));
    let flags = flags as u32;
    if offset % PAGE != iova % PAGE {
        return Err(Errno::INVAL);
    }
    check_access(flags, DMABUF)?;
    let end = offset.checked_add(length).filter(|end| *end != offset).ok_or(Errno::INVAL)?;
    let mapping = Mapping::new(descriptor as i32, end, needs_writable(flags))?;
    let address = mapping.address() + offset;
    let key = call.state.device.register_at(pd, address, iova, length, access(flags))?;
    let mr = Mr { key, address, length, access: flags, mapping: Some(Arc::new(mapping)) };
    call.publish(Object::Mr(mr), |request, handle| {
        request.answer(7, &key.get().to_ne_bytes())?;
        request.answer(8, &key.get().to_ne_bytes())?;
        request.answer_object(0, handle.into())
    })
}

/// Checks the access flags of a region. `possible` are the flags that a region of this kind may have
/// (`ib_check_mr_access`).
fn check_access(flags: u32, possible: u32) -> Result<(), Errno> {
    let changes = flags & (REMOTE_WRITE | REMOTE_ATOMIC) != 0;
    if flags & !possible != 0 || changes && flags & LOCAL_WRITE == 0 {
        return Err(Errno::INVAL);
    }
    // This device has no paging on demand.
    if flags & ON_DEMAND != 0 { Err(Errno::OPNOTSUPP) } else { Ok(()) }
}

/// Returns the rights that access flags give.
pub(super) const fn access(flags: u32) -> Access {
    Access {
        local_read: true,
        local_write: flags & LOCAL_WRITE != 0,
        remote_read: flags & REMOTE_READ != 0,
        remote_write: flags & REMOTE_WRITE != 0,
        remote_atomic: flags & REMOTE_ATOMIC != 0,
    }
}

impl Call<'_> {
    fn mr(&mut self, handle: u32) -> Result<&mut Mr, Errno> {
        let Object::Mr(mr) = self.object(handle)? else { return Err(Errno::INVAL) };
        Ok(mr)
    }
}

/// Carries out UAR_ALLOC: makes a doorbell page.
pub(super) fn alloc_uar(call: &mut Call<'_>) -> Result<(), Errno> {
    /// Types of doorbell pages: `MLX5_IB_UAPI_UAR_ALLOC_TYPE_BF`, `_NC`.
    const GATHERING: u64 = 0;
    const NOT_CACHED: u64 = 1;
    match call.request.number(0x1001) {
        GATHERING if call.state.write_combining => {}
        NOT_CACHED => {}
        _ => return Err(Errno::OPNOTSUPP),
    }
    let page = Arc::new(DoorbellPage::new()?);
    pages::offer(call.context, &page);
    call.publish(Object::Uar(page), |request, handle| {
        request.answer(0x1002, &pages::DOORBELLS.to_ne_bytes())?;
        request.answer(0x1003, &(PAGE as u32).to_ne_bytes())?;
        request.answer(0x1004, &handle.wrapping_add(1).to_ne_bytes())?;
        request.answer_object(0x1000, handle.into())
    })
}
