//! Crypto capabilities of the device (PRM `crypto_caps`).

use crate::wire::low::low8;
use bitfield_struct::bitfield;
use zerocopy::big_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Whether DEKs must be wrapped (PRM `crypto_caps`, first word).
#[bitfield(u32, defmt = cfg(feature = "defmt"))]
#[derive(PartialEq, Eq)]
pub struct CryptoMode {
    /// Mask of the kinds of DEK that must be wrapped: [`CryptoMode::IMPORT_AES_XTS`].
    pub wrapped_import_method: u8,
    #[bits(20)]
    __: u32,
    /// The device has the command SYNC_CRYPTO.
    pub synchronize_dek: bool,
    #[bits(1)]
    __: u8,
    /// The device will be commissioned after the next reset.
    pub wrapped_crypto_going_to_commissioning: bool,
    /// The device is commissioned: DEKs must be wrapped, and a login lets the device unwrap them.
    pub wrapped_crypto_operational: bool,
}

impl CryptoMode {
    /// `wrapped_import_method`: AES-XTS keys must be wrapped.
    pub const IMPORT_AES_XTS: u8 = 1 << 2;
}

/// The largest numbers of crypto objects (PRM `crypto_caps`, second word).
#[bitfield(u32, defmt = cfg(feature = "defmt"))]
#[derive(PartialEq, Eq)]
pub struct CryptoLimits {
    /// Base-2 logarithm of the largest number of credentials.
    #[bits(5, into = low8::<5>)]
    pub log_max_num_creds: u8,
    #[bits(3)]
    __: u8,
    /// Base-2 logarithm of the largest number of import keys.
    #[bits(5, into = low8::<5>)]
    pub log_max_num_import_keks: u8,
    #[bits(3)]
    __: u8,
    /// Base-2 logarithm of the largest number of data encryption keys.
    #[bits(5, into = low8::<5>)]
    pub log_max_num_deks: u8,
    #[bits(11)]
    __: u16,
}

/// Crypto capabilities, 256 bytes (PRM `crypto_caps`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct CryptoCapabilityBits {
    /// Whether keys are wrapped, see [`CryptoMode`].
    pub mode: U32,
    /// The largest numbers of crypto objects, see [`CryptoLimits`].
    pub limits: U32,
    /// One bit per self-test that failed; 0 on a sound device.
    pub failed_selftests: U16,
    /// Number of import keys that outlive a reset.
    pub num_nv_import_keks: u8,
    /// Number of credentials that outlive a reset.
    pub num_nv_credentials: u8,
    /// Not read by this library.
    pub reserved: [U32; 61],
}

crate::fmt::defmt_as_bytes!(CryptoCapabilityBits);

const _: () = assert!(size_of::<CryptoCapabilityBits>() == 256);
const _: () = assert!(core::mem::offset_of!(CryptoCapabilityBits, failed_selftests) == 8);
const _: () = assert!(CryptoMode::new().with_synchronize_dek(true).into_bits() == 1 << 28);
const _: () = assert!(CryptoMode::new().with_wrapped_crypto_operational(true).into_bits() == 1 << 31);
