//! Data encryption keys, and the logins and KEKs for wrapped keys (PRM objects 0x0c and 0x1f).

use crate::crypto::{UnwrapError, Xts, unwrap_key};
use crate::faults::Faults;
use crate::wiped::Wiped;
use alloc::boxed::Box;
use core::sync::atomic::AtomicBool;

/// AES key size (PRM `encryption_key.key_size`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeySize {
    /// The two keys of AES-XTS have 128 bits each.
    Bits128,
    /// The two keys of AES-XTS have 256 bits each.
    Bits256,
}

impl KeySize {
    pub(crate) const fn xts_bytes(self) -> usize {
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
    /// Whether the last 8 bytes of the plaintext are a keytag.
    pub has_keytag: bool,
    /// The key.
    pub key: KeyMaterial<'a>,
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
pub(crate) struct Secret(pub(crate) Wiped);

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
    /// The login under which the key was loaded, if any. This login may have ended.
    pub(crate) login: Option<u32>,
    /// Whether the key was used since the last [`crate::Device::sync_crypto`].
    pub(crate) used: AtomicBool,
    /// The value that the next [`crate::Device::sync_crypto`] puts in force.
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
            Xts::new(&Wiped::from(halves))?
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
