//! Memory regions and data encryption keys.

#![allow(unsafe_code)] // `no_mangle` is unsafe, and so is the use of pointers of the caller.

use super::device::{Device, Pd, hand_out};
use super::error::{Error, Failure, attempt, given};
use super::values::{access_of, array};
use crate::command::error::EqualHalves;
use crate::command::{DekKey, XtsKey};
use crate::devx::{self, DevxError};
use crate::mkey::Keytag;
use crate::types::DekId;
use core::ffi::c_void;
use core::mem::MaybeUninit;
use std::boxed::Box;
use std::os::fd::BorrowedFd;

/// Registered memory.
pub struct Mr(devx::MemoryRegion);

/// A data encryption key on the device.
pub struct Dek(pub(super) Owner);

/// Who destroys a key on the device.
pub(super) enum Owner {
    /// The handle owns the key.
    Handle(devx::Dek),
    /// A cache owns the key, and has lent it.
    Cache(devx::DekLease),
}

/// State of a data encryption key: the device has loaded it, and mkeys can use it.
pub const MLX5MK_DEK_READY: u32 = 0;
/// State of a data encryption key: the device could not load it.
pub const MLX5MK_DEK_ERROR: u32 = 1;

impl Dek {
    /// Returns the key if the handle owns it, or an error if a cache has lent it.
    pub(super) const fn own(&self) -> Result<&devx::Dek, Failure> {
        match &self.0 {
            Owner::Handle(dek) => Ok(dek),
            Owner::Cache(_) => Err(LENT),
        }
    }
}

const LENT: Failure = Failure::Wanted("a cache has lent the key: only mlx5mk_dek_cache_erase changes it");

impl Owner {
    pub(super) const fn id(&self) -> DekId {
        match self {
            Self::Handle(dek) => dek.id(),
            Self::Cache(lease) => lease.id(),
        }
    }
}

/// Flag of a key: it is wrapped with the import key of the login (AES key wrap, RFC 3394). See
/// mlx5mk_login_create.
pub const MLX5MK_KEY_WRAPPED: u32 = 1;
/// Flag of a key: it has a tag, which configurations of mkeys must state. A wrapped key has the tag inside
/// the wrapping; the tag of a plain key is `keytag`.
pub const MLX5MK_KEY_TAGGED: u32 = 2;

/// A key of AES-XTS, in one of the forms that the device takes (man page mlx5dv_dek_create).
#[repr(C)]
pub struct KeySpec {
    /// The two halves of the key, one after the other; with MLX5MK_KEY_WRAPPED, the wrapped key.
    pub key: *const c_void,
    /// Length of `key` in bytes: 32 or 64 for halves of 128 or 256 bits. A wrapped key has 40 or 72 bytes,
    /// and 48 or 80 if it contains a tag.
    pub bytes: u32,
    /// A sum of the flags MLX5MK_KEY_WRAPPED and MLX5MK_KEY_TAGGED, or 0.
    pub flags: u32,
    /// The tag of a key that is not wrapped.
    pub keytag: [u8; 8],
    /// Bytes that the device keeps with the key, for the caller's use.
    pub opaque: [u8; 8],
}

/// Registers `length` bytes at `address` with these rights (MLX5MK_LOCAL_WRITE and others). The caller keeps
/// the memory mapped until mlx5mk_mr_deregister has returned 0.
///
/// Errors: MLX5MK_SYSTEM.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mlx5mk_mr_register(
    pd: Option<&Pd>,
    address: *mut c_void,
    length: usize,
    access: u32,
    mr: Option<&mut MaybeUninit<*mut Mr>>,
    error: Option<&mut MaybeUninit<Error>>,
) -> i32 {
    attempt(error, || {
        let (pd, mr, access) = (given(pd, "pd")?, given(mr, "mr")?, access_of(access)?);
        if address.is_null() {
            return Err(Failure::Null("address"));
        }
        // SAFETY: the caller vouches that the memory stays mapped; Rust code has no reference to it.
        let region = unsafe { pd.pd.register(address.cast(), length, access)? };
        hand_out(mr, Mr(region))
    })
}

/// Registers `length` bytes of a dma-buf, from `offset` on. A dma-buf is memory that another driver, for
/// example of a GPU, shares by the descriptor `fd`. Requests and layouts name its bytes by addresses from
/// `iova` on; `iova` may be any address with the same offset in a page as `offset`. The program may close the
/// descriptor after the call: the dma-buf exists until mlx5mk_mr_deregister has returned 0.
///
/// Errors: MLX5MK_ARGUMENT, MLX5MK_LIBRARY where rdma-core is older than version 34, MLX5MK_SYSTEM.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mlx5mk_mr_register_dmabuf(
    pd: Option<&Pd>,
    fd: i32,
    offset: usize,
    length: usize,
    iova: u64,
    access: u32,
    mr: Option<&mut MaybeUninit<*mut Mr>>,
    error: Option<&mut MaybeUninit<Error>>,
) -> i32 {
    attempt(error, || {
        let (pd, mr, access) = (given(pd, "pd")?, given(mr, "mr")?, access_of(access)?);
        let end =
            offset.checked_add(length).ok_or(Failure::Value { what: "length", value: length as u64 })?;
        if fd < 0 {
            return Err(Failure::Wanted("fd is a descriptor, 0 or more"));
        }
        // SAFETY: the caller ensures that `fd` is open. Rust code has no reference to the memory, and the
        // caller vouches for all other uses of the memory.
        let region = unsafe { pd.pd.register_dmabuf(BorrowedFd::borrow_raw(fd), offset..end, iova, access)? };
        hand_out(mr, Mr(region))
    })
}

/// Returns the local key of the memory, for entries of layouts and data segments; 0 for NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mlx5mk_mr_lkey(mr: Option<&Mr>) -> u32 {
    mr.map_or(0, |mr| mr.0.lkey().get())
}

/// Returns the remote key of the memory, for the peer; 0 for NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mlx5mk_mr_rkey(mr: Option<&Mr>) -> u32 {
    mr.map_or(0, |mr| mr.0.rkey().get())
}

/// Ends the registration. The handle is destroyed even after an error. NULL is ignored.
///
/// Errors: MLX5MK_SYSTEM. After this error the device may still access the memory, so the memory must stay
/// mapped.
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

/// Loads a data encryption key. The library wipes all of its copies of the key's bytes; the caller wipes its
/// own copy.
///
/// Errors: MLX5MK_ARGUMENT for a length that no form of a key has and for equal halves, MLX5MK_COMMAND where
/// the device does not take keys in this form, or refuses.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mlx5mk_dek_create(
    pd: Option<&Pd>,
    spec: Option<&KeySpec>,
    dek: Option<&mut MaybeUninit<*mut Dek>>,
    error: Option<&mut MaybeUninit<Error>>,
) -> i32 {
    attempt(error, || {
        let (pd, spec, dek) = (given(pd, "pd")?, given(spec, "spec")?, given(dek, "dek")?);
        // SAFETY: the caller ensures that `spec.key` leads to `spec.bytes` bytes.
        let loaded = unsafe { load(&pd.pd, spec)? };
        hand_out(dek, Dek(Owner::Handle(loaded)))
    })
}

/// Loads the key that `spec` describes.
///
/// # Safety
/// The caller ensures that `spec.key` leads to `spec.bytes` bytes.
pub(super) unsafe fn load(pd: &devx::ProtectionDomain, spec: &KeySpec) -> Result<devx::Dek, Failure> {
    // SAFETY: the caller ensures that `spec.key` leads to `spec.bytes` bytes.
    let key = unsafe { array(spec.key.cast::<u8>(), spec.bytes as usize, "key")? };
    Ok(pd.create_dek(key_of(key, spec.flags, Keytag(spec.keytag))?, spec.opaque)?)
}

/// Returns the key in the form that its flags and its length select: plain or wrapped, 128 or 256 bits, with
/// or without a tag.
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

/// Asks the device for the key's state (`mlx5dv_dek_query`), and returns MLX5MK_DEK_READY or
/// MLX5MK_DEK_ERROR. Writes to `opaque` the 8 bytes that the program gave as `opaque` when it loaded the key.
///
/// Errors: MLX5MK_COMMAND, for example for a wrapped key without a login; MLX5MK_ARGUMENT for a key that a
/// cache has lent.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mlx5mk_dek_query(
    dek: Option<&Dek>,
    opaque: Option<&mut MaybeUninit<[u8; 8]>>,
    error: Option<&mut MaybeUninit<Error>>,
) -> i32 {
    attempt(error, || {
        let (dek, opaque) = (given(dek, "dek")?, given(opaque, "opaque")?);
        let info = dek.own()?.query()?;
        opaque.write(info.opaque);
        Ok(info.state.0.into())
    })
}

/// Gives the key another value; `opaque` of `spec` is ignored. The key keeps its number, and mkeys that were
/// configured with the key use the new value. If the key was used, take the completions of all requests that
/// use the old value, then call mlx5mk_sync_crypto, then this function.
///
/// Errors: MLX5MK_COMMAND where the device cannot replace keys, or refuses; MLX5MK_ARGUMENT, also for a key
/// that a cache has lent. After an error the key keeps its value.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mlx5mk_dek_replace(
    dek: Option<&mut Dek>,
    spec: Option<&KeySpec>,
    error: Option<&mut MaybeUninit<Error>>,
) -> i32 {
    attempt(error, || {
        let (dek, spec) = (given(dek, "dek")?, given(spec, "spec")?);
        // SAFETY: the caller ensures that `spec.key` leads to `spec.bytes` bytes.
        let key = unsafe { array(spec.key.cast::<u8>(), spec.bytes as usize, "key")? };
        match &mut dek.0 {
            Owner::Handle(dek) => dek.replace(key_of(key, spec.flags, Keytag(spec.keytag))?)?,
            Owner::Cache(_) => return Err(LENT),
        }
        Ok(0)
    })
}

/// Makes the device forget its cached values of keys (SYNC_CRYPTO). Call it before mlx5mk_dek_replace gives
/// another value to a key that was used.
///
/// Errors: MLX5MK_COMMAND where the device has no such command, or refuses.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mlx5mk_sync_crypto(
    device: Option<&Device>,
    error: Option<&mut MaybeUninit<Error>>,
) -> i32 {
    attempt(error, || {
        given(device, "device")?.0.sync_crypto()?;
        Ok(0)
    })
}

/// Destroys the key, or gives it back if a cache has lent it. The caller ensures that no request uses the key
/// any more. NULL is ignored.
///
/// The device may give the number of a destroyed key to the next key. An mkey whose configuration still names
/// the number then encrypts and decrypts with the other key, without any error. Before this call, configure
/// such mkeys anew.
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
