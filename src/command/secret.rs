//! Types that hold keys and credentials: they wipe the bytes after use and never print them.

use core::fmt;
use core::ops::{Deref, DerefMut};
use zeroize::Zeroize;

/// Overwrites bytes with zeros, in a way that the compiler cannot optimise away.
///
/// The function is meant for code that makes copies of a request with a secret on the way to the device.
pub fn wipe(bytes: &mut [u8]) {
    bytes.zeroize();
}

/// A key or credential of `N` bytes. Its memory is wiped when the value is dropped, and `Debug` hides its
/// bytes.
///
/// Moving a value copies its bytes and leaves the old ones unwiped. Therefore create a secret where it stays,
/// and pass on only references to its bytes ([`Secret::expose`]).
///
/// ```
/// use mlx5_mkey::command::Secret;
/// let key = Secret::new([0x11; 32]);
/// assert_eq!(format!("{key:?}"), "Secret(..)");
/// assert_eq!(key.expose()[0], 0x11);
/// ```
pub struct Secret<const N: usize>([u8; N]);

impl<const N: usize> Secret<N> {
    /// Creates the value from the bytes of a secret. The caller has to wipe its own copy of the bytes.
    /// [`Secret::take`] wipes that copy as well.
    pub const fn new(bytes: [u8; N]) -> Self {
        Self(bytes)
    }

    /// Creates the value from a secret in the caller's memory, and wipes this memory.
    pub fn take(bytes: &mut [u8; N]) -> Self {
        let secret = Self(*bytes);
        bytes.zeroize();
        secret
    }

    /// Returns the bytes of the secret.
    pub const fn expose(&self) -> &[u8; N] {
        &self.0
    }

    /// Returns the bytes of the secret, for a caller that fills them in.
    pub const fn expose_mut(&mut self) -> &mut [u8; N] {
        &mut self.0
    }

    /// Overwrites the secret with zeros.
    pub fn wipe(&mut self) {
        self.0.zeroize();
    }
}

impl<const N: usize> Drop for Secret<N> {
    fn drop(&mut self) {
        self.wipe();
    }
}

impl<const N: usize> fmt::Debug for Secret<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(..)")
    }
}

#[cfg(feature = "defmt")]
impl<const N: usize> defmt::Format for Secret<N> {
    fn format(&self, f: defmt::Formatter<'_>) {
        defmt::write!(f, "Secret(..)");
    }
}

/// The bytes of an encoded request in the caller's mailbox. If the request holds a secret, dropping this
/// value wipes the bytes.
///
/// The caller must keep the value until the device has taken the request.
#[must_use = "a request with a secret is wiped when this is dropped"]
pub struct EncodedRequest<'m> {
    bytes: &'m mut [u8],
    secret: bool,
}

impl<'m> EncodedRequest<'m> {
    pub(super) const fn new(bytes: &'m mut [u8], secret: bool) -> Self {
        Self { bytes, secret }
    }

    /// Returns whether the request holds a secret. If so, its bytes are wiped when this value is dropped.
    pub const fn is_secret(&self) -> bool {
        self.secret
    }
}

impl Deref for EncodedRequest<'_> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.bytes
    }
}

impl DerefMut for EncodedRequest<'_> {
    fn deref_mut(&mut self) -> &mut [u8] {
        self.bytes
    }
}

impl Drop for EncodedRequest<'_> {
    fn drop(&mut self) {
        if self.secret {
            self.bytes.zeroize();
        }
    }
}

impl fmt::Debug for EncodedRequest<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.secret {
            write!(f, "EncodedRequest({} bytes with a secret)", self.bytes.len())
        } else {
            write!(f, "EncodedRequest({:02x?})", self.bytes)
        }
    }
}

#[cfg(feature = "defmt")]
impl defmt::Format for EncodedRequest<'_> {
    fn format(&self, f: defmt::Formatter<'_>) {
        if self.secret {
            defmt::write!(f, "EncodedRequest({=usize} bytes with a secret)", self.bytes.len());
        } else {
            defmt::write!(f, "EncodedRequest({=[u8]:02x})", self.bytes);
        }
    }
}

#[cfg(test)]
mod tests {
    extern crate std;

    use super::*;
    use std::format;
    use std::os::unix::fs::FileExt;

    #[test]
    fn m66_secrets_are_wiped_and_not_printed() {
        let mut bytes = [0x5a; 16];
        let mut secret = Secret::take(&mut bytes);
        assert_eq!(bytes, [0; 16], "the caller's copy");
        assert_eq!(secret.expose(), &[0x5a; 16]);
        assert_eq!(format!("{secret:?}"), "Secret(..)");
        secret.wipe();
        assert_eq!(secret.expose(), &[0; 16]);
        assert!(core::mem::needs_drop::<Secret<16>>());
    }

    #[test]
    fn m66_a_secret_is_wiped_when_it_is_dropped() {
        // The test reads the secret's memory after it was freed. It reads the middle of a large allocation,
        // because the allocator does not overwrite this part soon.
        let memory = std::fs::File::open("/proc/self/mem").unwrap();
        let secret = std::boxed::Box::new(Secret::new([0x5a; 4096]));
        let address = secret.expose().as_ptr() as u64 + 2048;
        let mut bytes = [0; 64];
        memory.read_exact_at(&mut bytes, address).unwrap();
        assert_eq!(bytes, [0x5a; 64]);
        drop(secret);
        memory.read_exact_at(&mut bytes, address).unwrap();
        assert_eq!(bytes, [0; 64]);
    }
}
