//! A cache of data encryption keys: the program finds a key by an identity that it chooses, such as a volume.

#![allow(unsafe_code)] // `no_mangle` is unsafe, and so is the use of pointers of the caller.

use super::device::{Pd, hand_out};
use super::error::{Error, Failure, attempt, given};
use super::memory::{Dek, KeySpec, Owner, load};
use super::values::array;
use crate::devx;
use core::ffi::c_void;
use core::mem::MaybeUninit;
use std::boxed::Box;
use std::vec::Vec;

/// A cache of data encryption keys on the device, one for each identity, for example of a volume or a tenant.
/// The caller ensures that only one thread at a time uses the cache.
pub struct DekCache(devx::DekCache<Vec<u8>>);

/// Creates a cache without keys.
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

/// Lends the key of an identity. The identity consists of `bytes` bytes, which may have any values. If the
/// cache lacks the key, the function loads the key that `spec` describes. If `spec` is NULL, it loads no key
/// and fails. Give the handle back by mlx5mk_dek_destroy, after the last mkey has stopped using the key.
///
/// Errors: MLX5MK_ARGUMENT, also where the cache lacks the key and `spec` is NULL; those of
/// mlx5mk_dek_create. After an error the cache is as before.
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
        // SAFETY: the caller ensures that `identity` leads to `bytes` bytes.
        let identity = unsafe { array(identity.cast::<u8>(), bytes, "identity")? };
        let lease = cache.lease(identity.to_vec(), |pd| {
            let spec = spec.ok_or(Failure::Wanted("there is no key of this identity: give spec"))?;
            // SAFETY: the caller ensures that `spec.key` leads to `spec.bytes` bytes.
            unsafe { load(pd, spec) }
        })?;
        hand_out(dek, Dek(Owner::Cache(lease)))
    })
}

/// Destroys the key of an identity at once, even if it is lent. Returns 1, or 0 where the cache has no such
/// key. Do not use handles of the destroyed key any more, except to destroy them. The device may give the
/// number of the destroyed key to the next key. So before you load another key, configure anew the mkeys that
/// use the destroyed key, or invalidate them.
///
/// Errors: MLX5MK_SYSTEM where the device refuses. After this error the key still exists.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mlx5mk_dek_cache_erase(
    cache: Option<&mut DekCache>,
    identity: *const c_void,
    bytes: usize,
    error: Option<&mut MaybeUninit<Error>>,
) -> i32 {
    attempt(error, || {
        let DekCache(cache) = given(cache, "cache")?;
        // SAFETY: the caller ensures that `identity` leads to `bytes` bytes.
        let identity = unsafe { array(identity.cast::<u8>(), bytes, "identity")? };
        Ok(cache.erase(identity)?.into())
    })
}

/// Destroys the keys that are not lent, and returns their number.
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

/// Destroys the cache and its keys. The caller ensures that no request uses the keys any more. NULL is
/// ignored.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mlx5mk_dek_cache_destroy(cache: Option<Box<DekCache>>) {
    drop(cache);
}
