//! The keys and the credential of a device that imports wrapped keys, after its commissioning. Tests log in
//! and wrap keys with them. These values are not secret.

use crate::crypto::wrap_key;
use crate::device::{Device, Error};
use crate::memory::Memory;
use alloc::vec::Vec;

/// The 256-bit key that wraps keys and credentials. The command that creates a login names it by number 0.
pub const KEK: [u8; 32] = *b"mlx5 emulated key-encryption key";

/// The 128-bit key with which the vectors of DPDK's tests are wrapped. The command that creates a login names
/// it by number 1.
pub const ZERO_KEK: [u8; 16] = [0; 16];

/// The credential that a user must present to create a login.
pub const CREDENTIAL: [u8; 40] = *b"mlx5 emulated device: login credential..";

/// The numbers that the software device has given to the keys and to the credential.
#[derive(Clone, Copy, Debug)]
pub struct Numbers {
    /// The numbers of [`KEK`] and [`ZERO_KEK`].
    pub keks: [u32; 2],
    /// The number of [`CREDENTIAL`].
    pub credential: u32,
}

/// Commissions a device that takes wrapped keys: imports the keys and the credential of this module.
///
/// # Errors
/// [`Error::CryptoMode`] for a device that does not take wrapped keys.
pub fn commission<M: Memory>(device: &mut Device<M>) -> Result<Numbers, Error> {
    let keks = [device.import_kek(&KEK)?, device.import_kek(&ZERO_KEK)?];
    Ok(Numbers { keks, credential: device.import_credential(&CREDENTIAL)? })
}

/// Wraps with [`KEK`] a key, a credential, or a key and its tag. Returns `None` for lengths that cannot be
/// wrapped.
pub fn wrapped(plain: &[u8]) -> Option<Vec<u8>> {
    wrap_key(&KEK, plain)
}
