//! Bytes that are wiped when dropped.

use alloc::vec::Vec;
use core::ops::{Deref, DerefMut};
use zeroize::Zeroize;

/// Bytes that may contain a key. All memory of the vector is wiped when the value is dropped.
///
/// `Zeroizing<Vec<u8>>` would need the feature `alloc` of zeroize. For bare metal, cargo would then compile
/// `mlx5-mkey` twice: with this feature for the software device, without it for other programs.
#[derive(Clone, PartialEq, Eq)]
pub struct Wiped(Vec<u8>);

impl From<Vec<u8>> for Wiped {
    fn from(bytes: Vec<u8>) -> Self {
        Self(bytes)
    }
}

impl core::fmt::Debug for Wiped {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("Wiped(..)")
    }
}

impl Deref for Wiped {
    type Target = Vec<u8>;

    fn deref(&self) -> &Vec<u8> {
        &self.0
    }
}

impl DerefMut for Wiped {
    fn deref_mut(&mut self) -> &mut Vec<u8> {
        &mut self.0
    }
}

impl Drop for Wiped {
    fn drop(&mut self) {
        // Bytes behind the end of the vector are left from a truncation.
        self.0.resize(self.0.capacity(), 0);
        self.0.as_mut_slice().zeroize();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::{format, vec};

    #[test]
    fn the_bytes_are_not_printed() {
        assert_eq!(format!("{:?}", Wiped::from(vec![1, 2, 3])), "Wiped(..)");
    }
}
