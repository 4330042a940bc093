//! What a device that takes wrapped keys is commissioned with, so that tests can log in and wrap keys. Not secrets.

use crate::crypto::wrap_key;
use crate::device::{Device, Error};
use crate::memory::Memory;
use alloc::vec::Vec;

/// The 256-bit key that wraps keys and credentials.
pub const KEK: [u8; 32] = *b"mlx5 emulated key-encryption key";

/// The credential that a login must show.
pub const CREDENTIAL: [u8; 40] = *b"mlx5 emulated device: login credential..";

/// Commissions a device that takes wrapped keys; returns the numbers of its KEK and its credential.
///
/// # Errors
/// [`Error::CryptoMode`] for another device.
pub fn commission<M: Memory>(device: &mut Device<M>) -> Result<(u32, u32), Error> {
    Ok((device.import_kek(&KEK)?, device.import_credential(&CREDENTIAL)?))
}

/// Returns a key, credential or key with tag as a commissioned device wants it. `None` for lengths that cannot be wrapped.
pub fn wrapped(plain: &[u8]) -> Option<Vec<u8>> {
    wrap_key(&KEK, plain)
}
