//! AES-XTS keys in the forms in which devices accept them: plaintext or wrapped, with a keytag or without.

use super::{CryptoReport, KeyImport, Pdn};
use crate::command::error::{CommandError, EqualHalves};
use crate::mkey::Keytag;
use crate::wire::prm::command::Opcode;
use crate::wire::prm::encryption_key::{EncryptionKey, KeyFlags};
use core::fmt;
use subtle::ConstantTimeEq;

/// An AES-XTS key in plaintext: two halves of `N / 2` bytes, one after the other. `N`, the number of bytes,
/// is 32 or 64.
///
/// XTS with equal halves is open to a chosen-ciphertext attack, and FIPS 140-3 requires that equal halves are
/// refused (Implementation Guidance C.I). One published test vector has equal halves (IEEE 1619, vector 1);
/// [`XtsKey::allowing_equal_halves`] accepts it.
///
/// ```
/// use mlx5_mkey::command::{Secret, XtsKey};
/// let mut secret = Secret::new([0x11; 32]);
/// assert!(XtsKey::new(secret.expose()).is_err());
/// secret.expose_mut()[16..].fill(0x22);
/// let key = XtsKey::new(secret.expose())?;
/// assert_eq!(format!("{key:?}"), "XtsKey(..)");
/// # Ok::<(), mlx5_mkey::error::EqualHalves>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct XtsKey<'a, const N: usize>(&'a [u8; N]);

impl<'a, const N: usize> XtsKey<'a, N> {
    /// Creates a key whose halves differ. The comparison of the halves runs in constant time.
    ///
    /// # Errors
    /// [`EqualHalves`].
    pub fn new(key: &'a [u8; N]) -> Result<Self, EqualHalves> {
        let (front, back) = key.split_at(N / 2);
        if front.ct_eq(back).into() { Err(EqualHalves) } else { Ok(Self::allowing_equal_halves(key)) }
    }

    /// Creates a key whose halves may be equal, as in a published test vector. [`XtsKey`] says why real data
    /// needs other keys.
    pub const fn allowing_equal_halves(key: &'a [u8; N]) -> Self {
        const { assert!(N == 32 || N == 64, "two halves of 128 or 256 bits") };
        Self(key)
    }
}

impl<const N: usize> fmt::Debug for XtsKey<'_, N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("XtsKey(..)")
    }
}

#[cfg(feature = "defmt")]
impl<const N: usize> defmt::Format for XtsKey<'_, N> {
    fn format(&self, f: defmt::Formatter<'_>) {
        defmt::write!(f, "XtsKey(..)");
    }
}

/// An AES-XTS key in one of the eight forms that devices accept (man page `mlx5dv_dek_create`).
///
/// Wrapped keys are encrypted with the import key of the login (AES key wrap, RFC 3394). A wrapped key
/// contains the key, or key and keytag, in the same order as in plaintext. The library cannot read a wrapped
/// key, so the caller ensures that the key's halves differ. The types fix the lengths: a key of another
/// length does not compile.
///
/// ```
/// use mlx5_mkey::command::{DekKey, Secret, XtsKey};
/// let secret = Secret::new(core::array::from_fn(|index| index as u8));
/// let plain = DekKey::Plain256 { key: XtsKey::new(secret.expose())?, keytag: None };
/// assert!(plain.bits() == 256 && !plain.is_wrapped());
/// // A key with its tag, as the holder of the import key has wrapped it.
/// let wrapped = [0x5a; 80];
/// assert!(DekKey::Wrapped256Tagged(&wrapped).has_keytag());
/// # Ok::<(), mlx5_mkey::error::EqualHalves>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum DekKey<'a> {
    /// A key in plaintext: two halves of 128 bits.
    Plain128 {
        /// The key: both halves, one after the other.
        key: XtsKey<'a, 32>,
        /// The keytag that the configuration of each mkey must repeat, so that the device can check it;
        /// `None` for a key without keytag.
        keytag: Option<Keytag>,
    },
    /// A key in plaintext: two halves of 256 bits.
    Plain256 {
        /// The key: both halves, one after the other.
        key: XtsKey<'a, 64>,
        /// The keytag that the configuration of each mkey must repeat, so that the device can check it;
        /// `None` for a key without keytag.
        keytag: Option<Keytag>,
    },
    /// A wrapped key: two halves of 128 bits.
    Wrapped128(&'a [u8; 40]),
    /// A wrapped key: two halves of 128 bits and a keytag.
    Wrapped128Tagged(&'a [u8; 48]),
    /// A wrapped key: two halves of 256 bits.
    Wrapped256(&'a [u8; 72]),
    /// A wrapped key: two halves of 256 bits and a keytag.
    Wrapped256Tagged(&'a [u8; 80]),
}

impl<'a> DekKey<'a> {
    /// Returns whether the key is wrapped.
    pub const fn is_wrapped(&self) -> bool {
        !matches!(self, Self::Plain128 { .. } | Self::Plain256 { .. })
    }

    /// Returns whether the key has a keytag, which configurations of mkeys must then contain.
    pub const fn has_keytag(&self) -> bool {
        match self {
            Self::Plain128 { keytag, .. } | Self::Plain256 { keytag, .. } => keytag.is_some(),
            Self::Wrapped128Tagged(_) | Self::Wrapped256Tagged(_) => true,
            Self::Wrapped128(_) | Self::Wrapped256(_) => false,
        }
    }

    /// Returns the number of bits of each half: 128 or 256.
    pub const fn bits(&self) -> u16 {
        match self {
            Self::Plain128 { .. } | Self::Wrapped128(_) | Self::Wrapped128Tagged(_) => 128,
            Self::Plain256 { .. } | Self::Wrapped256(_) | Self::Wrapped256Tagged(_) => 256,
        }
    }

    /// Returns the bytes of the key, plain or wrapped, and the plain keytag that follows them.
    fn parts(&self) -> (&'a [u8], Option<Keytag>) {
        match *self {
            Self::Plain128 { key, keytag } => (key.0, keytag),
            Self::Plain256 { key, keytag } => (key.0, keytag),
            Self::Wrapped128(key) => (key, None),
            Self::Wrapped128Tagged(key) => (key, None),
            Self::Wrapped256(key) => (key, None),
            Self::Wrapped256Tagged(key) => (key, None),
        }
    }

    /// Checks that the device accepts the form of the key: plaintext or wrapped. The error names `command`.
    pub(super) fn check(&self, device: &CryptoReport, command: Opcode) -> Result<(), CommandError> {
        let what = match (device.key_import(), self.is_wrapped()) {
            (KeyImport::Plaintext, false) | (KeyImport::Wrapped, true) => return Ok(()),
            (KeyImport::Plaintext, true) => "wrapped keys: it is not commissioned",
            (KeyImport::Wrapped, false) => "plaintext keys: it is commissioned",
            (KeyImport::Unavailable(_), _) => "keys for AES-XTS",
        };
        Err(CommandError::Unsupported { command, what })
    }

    /// Writes the key, its flags and its protection domain into a general object.
    pub(super) fn write(&self, pd: Pdn, object: &mut EncryptionKey) {
        let size = if self.bits() == 128 { KeyFlags::SIZE_128 } else { KeyFlags::SIZE_256 };
        let flags = KeyFlags::new()
            .with_key_size(size)
            .with_has_keytag(self.has_keytag())
            .with_key_purpose(KeyFlags::PURPOSE_AES_XTS);
        object.flags.set(flags.into_bits());
        object.pd.set(pd.get());
        let (key, keytag) = self.parts();
        let tag = keytag.as_ref().map_or(&[][..], |tag| &tag.0);
        // The longest key with its tag has 80 bytes, and the field has 128. So the loop writes all bytes of
        // the key.
        for (byte, value) in object.key.0.iter_mut().zip(key.iter().chain(tag)) {
            *byte = *value;
        }
    }

    const fn kind(&self) -> &'static str {
        match self {
            Self::Plain128 { .. } => "Plain128(..)",
            Self::Plain256 { .. } => "Plain256(..)",
            Self::Wrapped128(_) => "Wrapped128(..)",
            Self::Wrapped128Tagged(_) => "Wrapped128Tagged(..)",
            Self::Wrapped256(_) => "Wrapped256(..)",
            Self::Wrapped256Tagged(_) => "Wrapped256Tagged(..)",
        }
    }
}

impl fmt::Debug for DekKey<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.kind())
    }
}

#[cfg(feature = "defmt")]
impl defmt::Format for DekKey<'_> {
    fn format(&self, f: defmt::Formatter<'_>) {
        defmt::write!(f, "{=str}", self.kind());
    }
}
