//! Mkeys that a device command creates together with their list of entries.

#![allow(unsafe_code)] // `no_mangle` is unsafe, and so is the use of pointers of the caller.

use super::device::{Pd, hand_out};
use super::error::{Error, attempt, given};
use super::values::{self, Place, Range, access_of, array};
use crate::command::MkeyEntries;
use crate::devx;
use crate::mkey::{KlmEntry, KsmEntry};
use core::mem::MaybeUninit;
use std::boxed::Box;

/// An mkey that was created together with its list of entries. Requests cannot change it.
pub struct ListMkey(devx::ListMkey);

/// Creates an mkey over `count` ranges, one after the other. Its space begins at the address `start` and is
/// as long as all ranges together. Requests and the peer name the first byte by `start`. The mkey can be used
/// at once, with the access rights `access`: MLX5MK_LOCAL_WRITE and others. The array is read during the call
/// only. The caller ensures that the regions of the ranges belong to the protection domain `pd`, and keeps
/// them registered as long as the mkey is used.
///
/// Errors: MLX5MK_COMMAND where the device refuses, and for: no ranges, a range of 0 bytes or of more than
/// 2^31, more ranges than the device takes (the message has the limit), more than 4,076 ranges (the limit of
/// the kernel's interface), or a space that ends after 2^64; MLX5MK_ARGUMENT, MLX5MK_SYSTEM.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mlx5mk_list_mkey_create(
    pd: Option<&Pd>,
    access: u32,
    start: u64,
    entries: *const Range,
    count: u32,
    mkey: Option<&mut MaybeUninit<*mut ListMkey>>,
    error: Option<&mut MaybeUninit<Error>>,
) -> i32 {
    attempt(error, || {
        let (pd, mkey, access) = (given(pd, "pd")?, given(mkey, "mkey")?, access_of(access)?);
        // SAFETY: the caller ensures that `entries` leads to `count` values. A `Range` has the layout of a
        // `KlmEntry`.
        let entries = unsafe { array(entries.cast::<KlmEntry>(), count as usize, "entries")? };
        hand_out(mkey, ListMkey(pd.pd.create_list_mkey(access, start, MkeyEntries::Klm(entries))?))
    })
}

/// As mlx5mk_list_mkey_create, with entries of equal length: each has `entry_size` bytes, a power of two from
/// 4096 to 2^31. The device then finds the entry of an address without a search, however long the list is.
///
/// Errors: as mlx5mk_list_mkey_create; MLX5MK_COMMAND also where the device does not support entries of one
/// length.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mlx5mk_list_mkey_create_equal(
    pd: Option<&Pd>,
    access: u32,
    start: u64,
    entry_size: u32,
    entries: *const Place,
    count: u32,
    mkey: Option<&mut MaybeUninit<*mut ListMkey>>,
    error: Option<&mut MaybeUninit<Error>>,
) -> i32 {
    attempt(error, || {
        let (pd, mkey, access) = (given(pd, "pd")?, given(mkey, "mkey")?, access_of(access)?);
        let size = values::entry_size(entry_size)?;
        // SAFETY: the caller ensures that `entries` leads to `count` values. A `Place` has the layout of a
        // `KsmEntry`.
        let entries = unsafe { array(entries.cast::<KsmEntry>(), count as usize, "entries")? };
        hand_out(mkey, ListMkey(pd.pd.create_list_mkey(access, start, MkeyEntries::Ksm(size, entries))?))
    })
}

/// Writes to `key` the mkey's key, which is both local and remote, and to `length` the length of the mkey's
/// space in bytes. Either pointer may be NULL.
///
/// Errors: MLX5MK_ARGUMENT.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mlx5mk_list_mkey_key(
    mkey: Option<&ListMkey>,
    key: Option<&mut MaybeUninit<u32>>,
    length: Option<&mut MaybeUninit<u64>>,
) -> i32 {
    attempt(None, || {
        let ListMkey(mkey) = given(mkey, "mkey")?;
        if let Some(key) = key {
            key.write(mkey.key().get());
        }
        if let Some(length) = length {
            length.write(mkey.length());
        }
        Ok(0)
    })
}

/// Destroys an mkey. The caller ensures that no request uses it any more. NULL is ignored.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mlx5mk_list_mkey_destroy(mkey: Option<Box<ListMkey>>) {
    drop(mkey);
}
