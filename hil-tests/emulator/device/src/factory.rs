//! What a device that takes wrapped keys is commissioned with, so that tests can log in and wrap keys. Not
//! secrets.

use crate::crypto::wrap_key;
use crate::device::{Device, Error};
use crate::memory::Memory;
use alloc::vec::Vec;

/// The 256-bit key that wraps keys and credentials: number 0 of the device.
pub const KEK: [u8; 32] = *b"mlx5 emulated key-encryption key";

/// Number 1, of 128 bits: the vectors of DPDK's tests are wrapped with it.
pub const ZERO_KEK: [u8; 16] = [0; 16];

/// The credential that a login must show.
pub const CREDENTIAL: [u8; 40] = *b"mlx5 emulated device: login credential..";

/// What a device was commissioned with, as the device calls it.
#[derive(Clone, Copy, Debug)]
pub struct Numbers {
    /// [`KEK`] and [`ZERO_KEK`].
    pub keks: [u32; 2],
    /// [`CREDENTIAL`].
    pub credential: u32,
}

/// Commissions a device that takes wrapped keys.
///
/// # Errors
/// [`Error::CryptoMode`] for another device.
pub fn commission<M: Memory>(device: &mut Device<M>) -> Result<Numbers, Error> {
    let keks = [device.import_kek(&KEK)?, device.import_kek(&ZERO_KEK)?];
    Ok(Numbers { keks, credential: device.import_credential(&CREDENTIAL)? })
}

/// Returns a key, credential or key with tag as a commissioned device wants it. `None` for lengths that
/// cannot be wrapped.
pub fn wrapped(plain: &[u8]) -> Option<Vec<u8>> {
    wrap_key(&KEK, plain)
}
