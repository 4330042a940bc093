//! Stores of mkeys, from which the pools of several threads take mkeys.

#![allow(unsafe_code)] // `no_mangle` is unsafe, and so is the use of pointers to completion queues.

use super::device::{Pd, hand_out};
use super::error::{Error, Failure, attempt, given};
use super::group::{Cq, Mkeys, Pool};
use super::pool::{PoolSpec, join, mkeys};
use crate::devx::{MkeyCache, MkeyStore};
use core::mem::MaybeUninit;
use core::ptr::NonNull;
use std::boxed::Box;

/// A store of mkeys with the same properties. Pools take mkeys from it and return them, several at a time.
pub struct Store {
    store: MkeyStore,
    cq: Option<NonNull<Cq>>,
}

/// Creates a store of `spec.count` mkeys. The arguments are those of mlx5mk_pool_create, without shared PSVs.
/// A store with signatures, and its pools, belong to the group of `cq`. A store without signatures may be
/// used by several threads at once.
///
/// Errors: those of mlx5mk_pool_create.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mlx5mk_store_create(
    pd: Option<&Pd>,
    cq: Option<NonNull<Cq>>,
    spec: Option<&PoolSpec>,
    store: Option<&mut MaybeUninit<*mut Store>>,
    error: Option<&mut MaybeUninit<Error>>,
) -> i32 {
    attempt(error, || {
        let (pd, spec, place) = (given(pd, "pd")?, given(spec, "spec")?, given(store, "store")?);
        if !spec.psvs.is_null() {
            return Err(Failure::Wanted("mkeys of a store have PSVs of their own"));
        }
        // SAFETY: the caller ensures that `cq` is the handle of a completion queue.
        let wanted = mkeys(spec, 1 << 16, cq.map(|cq| unsafe { &cq.as_ref().cq }))?;
        let store = MkeyStore::new(&pd.pd, spec.count as usize, wanted)?;
        if let Some(mut cq) = cq {
            // SAFETY: the caller ensures that `cq` is the handle of a completion queue, and makes all calls
            // of the group one after the other.
            unsafe { cq.as_mut() }.members.stores += 1;
        }
        hand_out(place, Store { store, cq })
    })
}

/// Creates a pool that takes mkeys from a store when it needs them, and gives back surplus mkeys. At most
/// `most` mkeys of the pool, 1 to 65536, are in use at a time. Taking and putting back an mkey needs a lock
/// only when the pool exchanges mkeys with the store, several at a time. An mkey that was put back
/// (mlx5mk_pool_put) may next be taken by another thread.
///
/// Errors: MLX5MK_ARGUMENT.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mlx5mk_pool_of_store(
    store: Option<&Store>,
    most: u32,
    pool: Option<&mut MaybeUninit<*mut Pool>>,
    error: Option<&mut MaybeUninit<Error>>,
) -> i32 {
    attempt(error, || {
        let (Store { store, cq }, place) = (given(store, "store")?, given(pool, "pool")?);
        if !(1..=1 << 16).contains(&most) {
            return Err(Failure::Value { what: "most", value: most.into() });
        }
        let mkeys = Mkeys::OfStore(MkeyCache::new(store, most as usize));
        let kind = store.kind().ok_or(Failure::Wanted("a store has mkeys"))?;
        let pool = Pool { mkeys, _handles: std::vec![], kind, cq: *cq };
        // SAFETY: the completion queue cannot be destroyed while stores report to it, and no other call of
        // its group runs now.
        Ok(unsafe { join(pool, place) })
    })
}

/// Gives the store up. Its mkeys exist until its pools are destroyed. NULL is ignored.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mlx5mk_store_destroy(store: Option<Box<Store>>) {
    if let Some(mut cq) = store.and_then(|store| store.cq) {
        // SAFETY: the completion queue cannot be destroyed while stores report to it, and no other call uses
        // it.
        unsafe { cq.as_mut() }.members.stores -= 1;
    }
}
