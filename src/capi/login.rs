//! Crypto logins. While a login is valid, the device accepts wrapped data encryption keys from the program.

#![allow(unsafe_code)] // `no_mangle` is unsafe, and so is the use of pointers of the caller.

use super::device::{Device, hand_out};
use super::error::{Error, attempt, given};
use super::values::array;
use crate::command::{Credential, CredentialId, ImportKekId};
use crate::devx;
use core::ffi::c_void;
use core::mem::MaybeUninit;
use std::boxed::Box;

/// State of a login: it is valid.
pub const MLX5MK_LOGIN_VALID: u32 = 0;
/// State of a login: its credential or its import key was revoked. Destroy the login and begin another.
pub const MLX5MK_LOGIN_INVALID: u32 = 1;

/// A crypto login. While it is valid, the program can load wrapped data encryption keys.
pub struct Login(devx::Login);

/// The credential with which a program logs in (struct mlx5dv_crypto_login_attr_ex).
#[repr(C)]
pub struct LoginSpec {
    /// The credential, plain or wrapped, as the device demands. A wrapped credential has 48 bytes.
    pub credential: *const c_void,
    /// Length of `credential` in bytes, at most 48.
    pub bytes: u32,
    /// Number of the credential on the device, below 2^24.
    pub credential_id: u32,
    /// Number of the import key on the device, below 2^24. Keys are wrapped with this key.
    pub import_kek_id: u32,
}

/// Begins a login (`mlx5dv_crypto_login_create`). While it is valid, the program can load wrapped keys. A
/// device handle has at most one login at a time. Keys that were loaded under the login stay valid after it.
/// The library wipes all of its copies of the credential; the caller wipes its own copy.
///
/// Errors: MLX5MK_ARGUMENT; MLX5MK_SYSTEM while the device handle already has a login; MLX5MK_COMMAND where
/// the device does not support logins, or refuses.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mlx5mk_login_create(
    device: Option<&Device>,
    spec: Option<&LoginSpec>,
    login: Option<&mut MaybeUninit<*mut Login>>,
    error: Option<&mut MaybeUninit<Error>>,
) -> i32 {
    attempt(error, || {
        let (Device(device), spec) = (given(device, "device")?, given(spec, "spec")?);
        let login = given(login, "login")?;
        // SAFETY: the caller ensures that `spec.credential` leads to `spec.bytes` bytes.
        let bytes = unsafe { array(spec.credential.cast::<u8>(), spec.bytes as usize, "credential")? };
        let begun = device.login(
            CredentialId::new(spec.credential_id)?,
            ImportKekId::new(spec.import_kek_id)?,
            Credential::new(bytes)?,
        )?;
        hand_out(login, Login(begun))
    })
}

/// Asks the device for the state of the login. Returns MLX5MK_LOGIN_VALID or MLX5MK_LOGIN_INVALID.
///
/// Errors: MLX5MK_COMMAND.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mlx5mk_login_query(
    login: Option<&Login>,
    error: Option<&mut MaybeUninit<Error>>,
) -> i32 {
    attempt(error, || Ok(given(login, "login")?.0.state()?.0.into()))
}

/// Ends the login. The handle is destroyed even after an error. NULL is ignored.
///
/// Errors: MLX5MK_SYSTEM. After this error the login lasts until the device is closed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mlx5mk_login_destroy(
    login: Option<Box<Login>>,
    error: Option<&mut MaybeUninit<Error>>,
) -> i32 {
    attempt(error, || {
        let Some(login) = login else { return Ok(0) };
        login.0.log_out().map_err(|(error, _)| error)?;
        Ok(0)
    })
}
