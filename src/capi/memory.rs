//! Memory regions and data encryption keys.

#![allow(unsafe_code)] // The names that C knows functions by, and what the caller's pointers lead to.

use super::device::{Pd, hand_out};
use super::error::{Error, Failure, attempt, given};
use super::values::{access, array, two, write_each};
use crate::command::{DekKey, XtsKey};
use crate::devx::{self, DevxError};
use crate::error::EqualHalves;
use crate::mkey::Keytag;
use crate::types::DekId;
use core::ffi::c_void;
use core::mem::MaybeUninit;
use core::ptr::NonNull;
use std::boxed::Box;
use std::os::fd::BorrowedFd;

/// Registered memory.
pub struct Mr(devx::MemoryRegion);

/// A data encryption key on the device.
pub struct Dek(pub(super) Owner);

/// Who destroys a key.
pub(super) enum Owner {
    /// The handle.
    Handle(devx::Dek),
    /// The cache that has lent it.
    Cache(devx::DekLease),
}

impl Owner {
    pub(super) const fn id(&self) -> DekId {
        match self {
            Self::Handle(dek) => dek.id(),
            Self::Cache(lease) => lease.id(),
        }
    }
}

/// The key is wrapped with the import key of the context's login (AES key wrap, RFC 3394). The program logs
/// in itself, by `mlx5dv_crypto_login_create` on a context that is adopted.
pub const MLX5MK_KEY_WRAPPED: u32 = 1;
/// The key has a tag, which mkeys must give: behind a wrapped key, in the wrapping; else it is `keytag`.
pub const MLX5MK_KEY_TAGGED: u32 = 2;

/// A key of AES-XTS, in one of the forms that the device takes (man page mlx5dv_dek_create).
#[repr(C)]
pub struct KeySpec {
    /// Both halves, one after the other.
    pub key: *const c_void,
    /// Bytes: 32 or 64 for halves of 128 and 256 bits; wrapped 40 and 72, with a tag 48 and 80.
    pub bytes: u32,
    /// MLX5MK_KEY_WRAPPED, MLX5MK_KEY_TAGGED.
    pub flags: u32,
    /// The tag of a key that is not wrapped.
    pub keytag: [u8; 8],
    /// Bytes of the caller's that the device keeps with the key.
    pub opaque: [u8; 8],
}

/// Registers `length` bytes at `address` with these rights (MLX5MK_LOCAL_WRITE and others). The memory stays
/// mapped until mlx5mk_mr_deregister has returned 0.
///
/// Errors: MLX5MK_SYSTEM.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mlx5mk_mr_register(
    pd: Option<&Pd>,
    address: *mut c_void,
    length: usize,
    rights: u32,
    mr: Option<&mut MaybeUninit<*mut Mr>>,
    error: Option<&mut MaybeUninit<Error>>,
) -> i32 {
    attempt(error, || {
        let (pd, mr, access) = (given(pd, "pd")?, given(mr, "mr")?, access(rights)?);
        if address.is_null() {
            return Err(Failure::Null("address"));
        }
        // SAFETY: the caller vouches for the memory, of which Rust code has no reference.
        let region = unsafe { pd.pd.register(address.cast(), length, access)? };
        hand_out(mr, Mr(region))
    })
}

/// Registers `length` bytes of a dma-buf, from `offset` on: memory that another driver shares by the
/// descriptor `fd`, a GPU's say. Requests and layouts name its bytes by addresses from `iova` on: any with
/// the same offset in a page as `offset`. The descriptor may be closed, the memory stays until
/// mlx5mk_mr_deregister has returned 0.
///
/// Errors: MLX5MK_ARGUMENT, MLX5MK_LIBRARY where libibverbs is older than version 34, MLX5MK_SYSTEM.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mlx5mk_mr_register_dmabuf(
    pd: Option<&Pd>,
    fd: i32,
    offset: usize,
    length: usize,
    iova: u64,
    rights: u32,
    mr: Option<&mut MaybeUninit<*mut Mr>>,
    error: Option<&mut MaybeUninit<Error>>,
) -> i32 {
    attempt(error, || {
        let (pd, mr, access) = (given(pd, "pd")?, given(mr, "mr")?, access(rights)?);
        let end =
            offset.checked_add(length).ok_or(Failure::Value { what: "length", value: length as u64 })?;
        if fd < 0 {
            return Err(Failure::Wanted("fd is a descriptor, 0 or more"));
        }
        // SAFETY: the caller vouches for the descriptor, and for the memory, of which Rust code has no
        // reference.
        let region = unsafe { pd.pd.register_dmabuf(BorrowedFd::borrow_raw(fd), offset..end, iova, access)? };
        hand_out(mr, Mr(region))
    })
}

/// Writes the local and the remote key of the memory. Either pointer may be NULL; they are not the same.
///
/// Errors: MLX5MK_ARGUMENT.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mlx5mk_mr_keys(
    mr: Option<&Mr>,
    lkey: Option<NonNull<u32>>,
    rkey: Option<NonNull<u32>>,
) -> i32 {
    attempt(None, || {
        let Mr(region) = given(mr, "mr")?;
        let places = two(lkey, rkey, "lkey and rkey are two places")?;
        // SAFETY: the caller vouches for the places.
        unsafe { write_each(places, [region.lkey().get(), region.rkey().get()]) };
        Ok(0)
    })
}

/// Ends the registration. The handle is gone in any case. NULL is ignored.
///
/// Errors: MLX5MK_SYSTEM: the device may still reach the memory, which has to stay mapped.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mlx5mk_mr_deregister(
    mr: Option<Box<Mr>>,
    error: Option<&mut MaybeUninit<Error>>,
) -> i32 {
    attempt(error, || {
        let Some(mr) = mr else { return Ok(0) };
        mr.0.deregister()?;
        Ok(0)
    })
}

/// Loads a data encryption key. Its bytes are wiped from all that this function makes of them; the caller's
/// copy is the caller's to wipe.
///
/// Errors: MLX5MK_ARGUMENT for a length that no form has and for equal halves, MLX5MK_COMMAND where the
/// device does not take keys in this form, or refuses.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mlx5mk_dek_create(
    pd: Option<&Pd>,
    spec: Option<&KeySpec>,
    dek: Option<&mut MaybeUninit<*mut Dek>>,
    error: Option<&mut MaybeUninit<Error>>,
) -> i32 {
    attempt(error, || {
        let (pd, spec, dek) = (given(pd, "pd")?, given(spec, "spec")?, given(dek, "dek")?);
        // SAFETY: the caller vouches for the bytes.
        let loaded = unsafe { load(&pd.pd, spec)? };
        hand_out(dek, Dek(Owner::Handle(loaded)))
    })
}

/// Loads a key.
///
/// # Safety
/// Its bytes are there.
pub(super) unsafe fn load(pd: &devx::ProtectionDomain, spec: &KeySpec) -> Result<devx::Dek, Failure> {
    // SAFETY: the caller vouches for the bytes.
    let key = unsafe { array(spec.key.cast::<u8>(), spec.bytes as usize, "key")? };
    Ok(pd.create_dek(key_of(key, spec.flags, Keytag(spec.keytag))?, spec.opaque)?)
}

/// Finds the form of a key.
fn key_of(bytes: &[u8], flags: u32, tag: Keytag) -> Result<DekKey<'_>, Failure> {
    let keytag = (flags & MLX5MK_KEY_TAGGED != 0).then_some(tag);
    let halves = |error: EqualHalves| Failure::Devx(DevxError::from(error));
    const WRAPPED_TAGGED: u32 = MLX5MK_KEY_WRAPPED | MLX5MK_KEY_TAGGED;
    let key = match flags {
        0 | MLX5MK_KEY_TAGGED => match (bytes.try_into(), bytes.try_into()) {
            (Ok(key), _) => Some(DekKey::Plain128 { key: XtsKey::new(key).map_err(halves)?, keytag }),
            (_, Ok(key)) => Some(DekKey::Plain256 { key: XtsKey::new(key).map_err(halves)?, keytag }),
            _ => None,
        },
        MLX5MK_KEY_WRAPPED => match (bytes.try_into(), bytes.try_into()) {
            (Ok(key), _) => Some(DekKey::Wrapped128(key)),
            (_, Ok(key)) => Some(DekKey::Wrapped256(key)),
            _ => None,
        },
        WRAPPED_TAGGED => match (bytes.try_into(), bytes.try_into()) {
            (Ok(key), _) => Some(DekKey::Wrapped128Tagged(key)),
            (_, Ok(key)) => Some(DekKey::Wrapped256Tagged(key)),
            _ => None,
        },
        _ => return Err(Failure::Value { what: "flags", value: flags.into() }),
    };
    key.ok_or(Failure::Value { what: "a key of this form with a length of", value: bytes.len() as u64 })
}

/// Destroys the key, which no request uses any more; of a cache's, gives it back. NULL is ignored.
///
/// The device gives the number of a key that is gone to the next key. An mkey whose configuration names the
/// number encrypts and decrypts with that other key then, and no error tells of it: configure such mkeys anew
/// before.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mlx5mk_dek_destroy(dek: Option<Box<Dek>>) {
    drop(dek);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_has_one_of_eight_forms() {
        let bytes: [u8; 80] = core::array::from_fn(|index| index as u8);
        for (flags, lengths) in [(0, [32, 64]), (2, [32, 64]), (1, [40, 72]), (3, [48, 80])] {
            for length in 0..=bytes.len() {
                let key = key_of(&bytes[..length], flags, Keytag::default());
                assert_eq!(key.is_ok(), lengths.contains(&length), "{flags} {length}");
                if let Ok(key) = key {
                    assert_eq!((key.is_wrapped(), key.has_keytag()), (flags & 1 != 0, flags & 2 != 0));
                }
            }
        }
        assert!(key_of(&bytes[..32], 4, Keytag::default()).is_err());
        assert!(key_of(&[7; 64], 0, Keytag::default()).is_err(), "equal halves");
    }
}
