//! Lists of entries in registered memory, for layouts that are too long for a request: the device reads the
//! entries from the list. The module also has functions that post requests which replace entries of a layout
//! or append entries to it.

#![allow(unsafe_code)] // `no_mangle` is unsafe, and so is a list that borrows memory of its handle.

use super::config::Prepared;
use super::device::{Pd, hand_out};
use super::error::{Error, Failure, attempt, given};
use super::group::{Pool, Qp, TakenMkey, flagged};
use super::values::{self, Place, Range, array};
use crate::devx::{Buffer, DevxError};
use crate::mkey::{Access, KlmEntry, KsmEntry, RegisteredList};
use crate::wire::{WQEBB_BYTES, Wqebb};
use core::mem::MaybeUninit;
use std::boxed::Box;

/// A list of entries in registered memory, for layouts that do not fit into a request.
pub struct List {
    // This field stands first, so that it is dropped before `_memory`, which it borrows.
    list: RegisteredList<'static>,
    _memory: Buffer,
}

/// Creates an empty list, with memory for `capacity` entries, 1 to 65532.
///
/// Errors: MLX5MK_ARGUMENT, MLX5MK_SYSTEM.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mlx5mk_list_create(
    pd: Option<&Pd>,
    capacity: u32,
    list: Option<&mut MaybeUninit<*mut List>>,
    error: Option<&mut MaybeUninit<Error>>,
) -> i32 {
    attempt(error, || {
        let (pd, list) = (given(pd, "pd")?, given(list, "list")?);
        if !(1..=RegisteredList::MAX_ENTRIES as u32).contains(&capacity) {
            return Err(Failure::Value { what: "capacity", value: capacity.into() });
        }
        let blocks = RegisteredList::blocks_for(capacity as usize);
        let memory = pd.pd.alloc_buffer(blocks * WQEBB_BYTES, Access::NONE)?;
        let first = core::ptr::with_exposed_provenance_mut::<Wqebb>(memory.address() as usize);
        // SAFETY: the memory has `blocks` blocks and begins at a page. Every bit pattern is a valid `Wqebb`.
        // The memory lives as long as the list that borrows it: both are in one handle. Nobody else has a
        // reference to the memory, and the device only reads it.
        let blocks = unsafe { core::slice::from_raw_parts_mut(first, blocks) };
        let empty = RegisteredList::new(blocks, memory.address(), memory.lkey());
        let empty = empty.map_err(|error| Failure::Devx(DevxError::Config(error)))?;
        hand_out(list, List { list: empty, _memory: memory })
    })
}

/// Replaces all entries of the list. Before this call, all requests that were posted with the list must have
/// completed, because the device reads the list when it executes them.
///
/// Errors: MLX5MK_CONFIG for more entries than the capacity, or an entry of 0 bytes or over 2^31;
/// MLX5MK_ARGUMENT. After an error the list is as before.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mlx5mk_list_write(
    list: Option<&mut List>,
    entries: *const Range,
    count: u32,
    error: Option<&mut MaybeUninit<Error>>,
) -> i32 {
    attempt(error, || {
        let list = given(list, "list")?;
        // SAFETY: the caller ensures that `entries` leads to `count` values. A `Range` has the layout of a
        // `KlmEntry`.
        let entries = unsafe { array(entries.cast::<KlmEntry>(), count as usize, "entries")? };
        list.list.write(entries)?;
        Ok(0)
    })
}

/// As mlx5mk_list_write, with entries of `entry_size` bytes each, for mkeys of a pool or store whose
/// `entry_size` is the same.
///
/// Errors: MLX5MK_CONFIG for more entries than the capacity, MLX5MK_ARGUMENT. After an error the list is as
/// before.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mlx5mk_list_write_equal(
    list: Option<&mut List>,
    entry_size: u32,
    entries: *const Place,
    count: u32,
    error: Option<&mut MaybeUninit<Error>>,
) -> i32 {
    attempt(error, || {
        let (list, size) = (given(list, "list")?, values::entry_size(entry_size)?);
        // SAFETY: the caller ensures that `entries` leads to `count` values. A `Place` has the layout of a
        // `KsmEntry`.
        let entries = unsafe { array(entries.cast::<KsmEntry>(), count as usize, "entries")? };
        list.list.write_ksm(size, entries)?;
        Ok(0)
    })
}

/// Destroys a list. The caller ensures that no request uses it any more. NULL is ignored.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mlx5mk_list_destroy(list: Option<Box<List>>) {
    drop(list);
}

/// As mlx5mk_post_configure, with the entries of a list. The list may have at most as many entries as the
/// field `max_entries` of the pool's properties allows. With an empty list, the mkey's space has 0 bytes. The
/// function writes the signature and crypto properties into the list's memory, behind the entries. So do not
/// write, post or destroy the list before the request has completed.
///
/// Errors: as mlx5mk_post_configure.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mlx5mk_post_configure_list(
    qp: Option<&mut Qp>,
    id: u64,
    flags: u32,
    pool: Option<&mut Pool>,
    mkey: TakenMkey,
    prepared: Option<&Prepared>,
    list: Option<&mut List>,
    error: Option<&mut MaybeUninit<Error>>,
) -> i32 {
    attempt(error, || {
        let (qp, pool) = (given(qp, "qp")?, given(pool, "pool")?);
        let Prepared(prepared) = given(prepared, "prepared")?;
        let (list, mkey) = (given(list, "list")?, pool.mkey(mkey)?);
        flagged(qp, id, flags)?.configure_mkey_by_pointer(mkey, prepared, &mut list.list)?;
        Ok(0)
    })
}

/// Replaces entries of the list layout of an mkey in use, beginning with the entry number `first`, a multiple
/// of 4. The rest of the layout and its length stay, so the new entries must have as many bytes in total as
/// the old ones. `count` is a multiple of 4, unless the new entries are the last of the layout. The array is
/// read during the call only.
///
/// Errors: MLX5MK_CONFIG, also for an mkey whose layout is not a list; MLX5MK_FULL, MLX5MK_ARGUMENT. After an
/// error queue pair and mkey are as before.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mlx5mk_post_replace(
    qp: Option<&mut Qp>,
    id: u64,
    flags: u32,
    pool: Option<&mut Pool>,
    mkey: TakenMkey,
    first: u32,
    entries: *const Range,
    count: u32,
    error: Option<&mut MaybeUninit<Error>>,
) -> i32 {
    attempt(error, || {
        let (qp, pool) = (given(qp, "qp")?, given(pool, "pool")?);
        // SAFETY: the caller ensures that `entries` leads to `count` values. A `Range` has the layout of a
        // `KlmEntry`.
        let entries = unsafe { array(entries.cast::<KlmEntry>(), count as usize, "entries")? };
        flagged(qp, id, flags)?.replace_entries(pool.mkey(mkey)?, first, entries)?;
        Ok(0)
    })
}

/// As mlx5mk_post_replace, with the entries of `list`, which may be more than a request can hold. Do not
/// change the list until the request has completed.
///
/// Errors: as mlx5mk_post_replace.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mlx5mk_post_replace_list(
    qp: Option<&mut Qp>,
    id: u64,
    flags: u32,
    pool: Option<&mut Pool>,
    mkey: TakenMkey,
    first: u32,
    list: Option<&List>,
    error: Option<&mut MaybeUninit<Error>>,
) -> i32 {
    attempt(error, || {
        let (qp, pool, list) = (given(qp, "qp")?, given(pool, "pool")?, given(list, "list")?);
        flagged(qp, id, flags)?.replace_entries_by_pointer(pool.mkey(mkey)?, first, &list.list)?;
        Ok(0)
    })
}

/// Appends the entries of a list to the layout of an mkey in use. The length of the mkey's space grows by the
/// length of the entries. The existing layout must come from a list as well (mlx5mk_post_configure_list), and
/// have a multiple of 4 entries. The mkey must have neither signature nor crypto. Use this function to build
/// layouts of more than 65532 entries in parts. Do not change the list until the request has completed.
///
/// Errors: as mlx5mk_post_replace.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mlx5mk_post_append_list(
    qp: Option<&mut Qp>,
    id: u64,
    flags: u32,
    pool: Option<&mut Pool>,
    mkey: TakenMkey,
    list: Option<&List>,
    error: Option<&mut MaybeUninit<Error>>,
) -> i32 {
    attempt(error, || {
        let (qp, pool, list) = (given(qp, "qp")?, given(pool, "pool")?, given(list, "list")?);
        flagged(qp, id, flags)?.append_entries_by_pointer(pool.mkey(mkey)?, &list.list)?;
        Ok(0)
    })
}
