//! Data encryption keys, and the logins and KEKs for wrapped ones (PRM objects 0x0c and 0x1f).

use crate::crypto::{UnwrapError, Xts, unwrap_key};
use crate::device::Error;
use crate::faults::Faults;
use crate::profile::CryptoMode;
use alloc::boxed::Box;
use alloc::vec::Vec;
use core::sync::atomic::AtomicBool;
use zeroize::Zeroizing;

/// AES key size (PRM `encryption_key.key_size`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeySize {
    /// The two keys of AES-XTS have 128 bits each.
    Bits128,
    /// The two keys of AES-XTS have 256 bits each.
    Bits256,
}

impl KeySize {
    const fn xts_bytes(self) -> usize {
        match self {
            Self::Bits128 => 32,
            Self::Bits256 => 64,
        }
    }
}

/// The bytes of a key, in plaintext or wrapped.
///
/// The bytes are key 1, key 2, then the optional keytag of 8 bytes. Wrapping adds 8 bytes.
#[derive(Clone, Copy)]
pub enum KeyMaterial<'a> {
    /// A key in plaintext: 32 or 64 bytes, with a keytag 40 or 72.
    Plaintext(&'a [u8]),
    /// A wrapped key: 40 or 72 bytes, with a keytag 48 or 80. The KEK of the login has wrapped it.
    Wrapped {
        /// The wrapped bytes.
        bytes: &'a [u8],
        /// Number of the login object.
        login: u32,
    },
}

/// The attributes of a new DEK (`struct mlx5dv_dek_init_attr`).
#[derive(Clone, Copy)]
pub struct DekAttributes<'a> {
    /// Protection domain.
    pub pd: u32,
    /// Key size.
    pub size: KeySize,
    /// The last 8 bytes of the plaintext are a keytag.
    pub has_keytag: bool,
    /// The key.
    pub key: KeyMaterial<'a>,
}

/// The reason why a command has no attributes of a DEK.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DekError {
    /// The command has too few bytes.
    Length,
    /// The device refuses the attributes.
    Refused(Error),
}

impl<'a> DekAttributes<'a> {
    /// Reads the attributes from a general object in a command (PRM `encryption_key`). `login` is the number
    /// of a valid login of the user, which a device of mode [`CryptoMode::Wrapped`] needs.
    ///
    /// # Errors
    /// [`DekError::Length`]; [`Error::BadAttribute`] for another purpose than AES-XTS, or an unknown size;
    /// [`Error::NoLogin`].
    pub fn read(object: &'a [u8], crypto: CryptoMode, login: Option<u32>) -> Result<Self, DekError> {
        const XTS: u8 = 3;
        const WRAPPING: usize = 8;
        let refused = |error| Err(DekError::Refused(error));
        let (Some([size, flags]), Some([a, b, c])) = (object.get(0xa..0xc), object.get(0xd..0x10)) else {
            return Err(DekError::Length);
        };
        if flags & 0xf != XTS {
            return refused(Error::BadAttribute("purpose of the key"));
        }
        let size = match size & 0xf {
            0 => KeySize::Bits128,
            1 => KeySize::Bits256,
            _ => return refused(Error::BadAttribute("size of the key")),
        };
        let has_keytag = flags & 0x80 != 0;
        let length = size.xts_bytes() + if has_keytag { 8 } else { 0 };
        let bytes = |length| object.get(0x40..0x40 + length).ok_or(DekError::Length);
        let key = match (crypto, login) {
            (CryptoMode::Wrapped, Some(login)) => {
                KeyMaterial::Wrapped { bytes: bytes(length + WRAPPING)?, login }
            }
            (CryptoMode::Wrapped, None) => return refused(Error::NoLogin),
            _ => KeyMaterial::Plaintext(bytes(length)?),
        };
        Ok(Self { pd: u32::from_be_bytes([0, *a, *b, *c]), size, has_keytag, key })
    }
}

/// State of a login (`enum mlx5dv_crypto_login_state`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LoginState {
    /// The credential matched.
    Valid,
    /// The credential did not match, or the KEK or credential of the login no longer exists.
    Invalid,
}

/// A KEK or a credential. Its bytes are wiped when dropped, and never printed.
pub(crate) struct Secret(pub(crate) Zeroizing<Vec<u8>>);

impl core::fmt::Debug for Secret {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("Secret(..)")
    }
}

#[derive(Debug)]
pub(crate) struct Login {
    pub(crate) kek: u32,
    pub(crate) credential: u32,
    pub(crate) state: LoginState,
}

#[derive(Debug)]
pub(crate) struct Dek {
    pub(crate) pd: u32,
    pub(crate) cipher: Xts,
    pub(crate) keytag: Option<[u8; 8]>,
    /// The login under which the key was loaded. This login may have ended.
    pub(crate) login: Option<u32>,
    /// The key was used since the last [`crate::Device::sync_crypto`].
    pub(crate) used: AtomicBool,
    /// The value from the next [`crate::Device::sync_crypto`] on.
    pub(crate) next: Option<Box<Dek>>,
}

impl Dek {
    /// Loads a key from plaintext. Returns `None` for a wrong length.
    pub(crate) fn load(
        pd: u32,
        size: KeySize,
        has_keytag: bool,
        plain: &[u8],
        faults: &Faults,
    ) -> Option<Self> {
        let (keys, tag) = plain.split_at_checked(size.xts_bytes())?;
        let keytag = match (has_keytag, tag.len()) {
            (true, 8) => Some(tag.try_into().ok()?),
            (false, 0) => None,
            _ => return None,
        };
        let cipher = if faults.dek256_as_128 && size == KeySize::Bits256 {
            let halves = [keys.get(..16)?, keys.get(32..48)?].concat();
            Xts::new(&Zeroizing::new(halves))?
        } else {
            Xts::new(keys)?
        };
        Some(Self { pd, cipher, keytag, login: None, used: AtomicBool::new(false), next: None })
    }

    /// Unwraps `bytes` with a KEK. Returns `None` if the length or the integrity check is wrong.
    pub(crate) fn unwrap(kek: &Secret, bytes: &[u8], faults: &Faults) -> Option<Secret> {
        match unwrap_key(&kek.0, bytes) {
            Ok(plain) => Some(Secret(plain)),
            Err(UnwrapError::Integrity) if faults.key_wrap_integrity_ignored => {
                Some(Secret(alloc::vec![0; bytes.len().saturating_sub(8)].into()))
            }
            Err(_) => None,
        }
    }
}
