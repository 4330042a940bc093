//! Data encryption keys by the program's own names.

#![allow(unsafe_code)] // The names that C knows functions by, and bytes of the caller's.

use super::device::{Pd, hand_out};
use super::error::{Error, Failure, attempt, given};
use super::memory::{Dek, KeySpec, Owner, load};
use super::values::array;
use crate::devx;
use core::ffi::c_void;
use core::mem::MaybeUninit;
use std::boxed::Box;
use std::vec::Vec;

/// Keys on the device, one for each identity: a volume, a tenant. It is used by one thread at a time.
pub struct DekCache(devx::DekCache<Vec<u8>>);

/// Makes a cache without keys.
///
/// Errors: MLX5MK_ARGUMENT.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mlx5mk_dek_cache_create(
    pd: Option<&Pd>,
    cache: Option<&mut MaybeUninit<*mut DekCache>>,
    error: Option<&mut MaybeUninit<Error>>,
) -> i32 {
    attempt(error, || {
        let (pd, cache) = (given(pd, "pd")?, given(cache, "cache")?);
        hand_out(cache, DekCache(devx::DekCache::new(pd.pd.clone())))
    })
}

/// Lends the key of an identity, which is any `bytes` bytes. Where the cache has none, `spec` is loaded; NULL
/// asks for one that is there. The handle is given back by mlx5mk_dek_destroy, when no mkey uses the key any
/// more.
///
/// Errors: MLX5MK_ARGUMENT also where there is no key and no `spec`; as mlx5mk_dek_create. The cache is then
/// as before.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mlx5mk_dek_cache_lease(
    cache: Option<&mut DekCache>,
    identity: *const c_void,
    bytes: usize,
    spec: Option<&KeySpec>,
    dek: Option<&mut MaybeUninit<*mut Dek>>,
    error: Option<&mut MaybeUninit<Error>>,
) -> i32 {
    attempt(error, || {
        let (DekCache(cache), dek) = (given(cache, "cache")?, given(dek, "dek")?);
        // SAFETY: the caller vouches for the bytes.
        let identity = unsafe { array(identity.cast::<u8>(), bytes, "identity")? };
        let lease = cache.lease(identity.to_vec(), |pd| {
            let spec = spec.ok_or(Failure::Wanted("there is no key of this identity: give spec"))?;
            // SAFETY: as above.
            unsafe { load(pd, spec) }
        })?;
        hand_out(dek, Dek(Owner::Cache(lease)))
    })
}

/// Destroys the key of an identity at once, whether it is lent or not, and returns 1, or 0 where there is
/// none. Handles of it are void: mkeys that use them are configured anew, or invalidated, before another key
/// is loaded.
///
/// Errors: MLX5MK_SYSTEM where the device refuses: the key is still there.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mlx5mk_dek_cache_erase(
    cache: Option<&mut DekCache>,
    identity: *const c_void,
    bytes: usize,
    error: Option<&mut MaybeUninit<Error>>,
) -> i32 {
    attempt(error, || {
        let DekCache(cache) = given(cache, "cache")?;
        // SAFETY: the caller vouches for the bytes.
        let identity = unsafe { array(identity.cast::<u8>(), bytes, "identity")? };
        Ok(cache.erase(identity)?.into())
    })
}

/// Destroys the keys that are not lent, and returns how many there were.
///
/// Errors: MLX5MK_ARGUMENT.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mlx5mk_dek_cache_remove_unused(
    cache: Option<&mut DekCache>,
    error: Option<&mut MaybeUninit<Error>>,
) -> i32 {
    attempt(error, || {
        let DekCache(cache) = given(cache, "cache")?;
        Ok(i32::try_from(cache.remove_unused()).unwrap_or(i32::MAX))
    })
}

/// Destroys the cache with its keys, which no request uses any more. NULL is ignored.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mlx5mk_dek_cache_destroy(cache: Option<Box<DekCache>>) {
    drop(cache);
}
