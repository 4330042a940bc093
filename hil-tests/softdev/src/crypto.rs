//! AES-XTS over data units (IEEE 1619) and the unwrapping of keys (RFC 3394), on top of RustCrypto.

use aes::cipher::{Array, KeyInit};
use aes::{Aes128, Aes256};
use aes_kw::{KwAes128, KwAes256};
use alloc::boxed::Box;
use alloc::vec;
use alloc::vec::Vec;
use xts_mode::Xts128;

/// A length that AES-XTS cannot process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JobSize;

/// What to do with the bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// Plaintext to ciphertext.
    Encrypt,
    /// Ciphertext to plaintext.
    Decrypt,
}

/// An expanded AES-XTS key. It is wiped when dropped.
pub enum Xts {
    /// Two AES-128 keys.
    Aes128(Box<Xts128<Aes128>>),
    /// Two AES-256 keys.
    Aes256(Box<Xts128<Aes256>>),
}

impl core::fmt::Debug for Xts {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("Xts(..)")
    }
}

impl Xts {
    /// Expands key 1 followed by key 2: 32 or 64 bytes. `None` for other lengths.
    pub fn new(key: &[u8]) -> Option<Self> {
        let (first, second) = key.split_at_checked(key.len() / 2)?;
        match key.len() {
            32 => Some(Self::Aes128(Box::new(Xts128::new(
                Aes128::new_from_slice(first).ok()?,
                Aes128::new_from_slice(second).ok()?,
            )))),
            64 => Some(Self::Aes256(Box::new(Xts128::new(
                Aes256::new_from_slice(first).ok()?,
                Aes256::new_from_slice(second).ok()?,
            )))),
            _ => None,
        }
    }

    /// Processes a stream of data units of `unit` bytes in place; unit `i` uses `tweak + i`, or `tweak` if not `advance`.
    ///
    /// # Errors
    /// [`JobSize`] where the length breaks the rule of R166-R168 or leaves less than 16 bytes in the last unit (D8).
    pub fn apply(
        &self,
        direction: Direction,
        stream: &mut [u8],
        unit: u32,
        tweak: u128,
        advance: bool,
    ) -> Result<(), JobSize> {
        if !job_size_allowed(stream.len() as u64, unit) {
            return Err(JobSize);
        }
        for (index, bytes) in stream.chunks_mut(unit.max(1) as usize).enumerate() {
            // Assumption: the tweak carries beyond 64 bits (gap 4).
            let tweak = if advance { tweak.wrapping_add(index as u128) } else { tweak };
            self.unit(direction, bytes, tweak);
        }
        Ok(())
    }

    fn unit(&self, direction: Direction, bytes: &mut [u8], tweak: u128) {
        let tweak = Array(tweak.to_le_bytes());
        match (self, direction) {
            (Self::Aes128(xts), Direction::Encrypt) => xts.encrypt_sector(bytes, tweak),
            (Self::Aes128(xts), Direction::Decrypt) => xts.decrypt_sector(bytes, tweak),
            (Self::Aes256(xts), Direction::Encrypt) => xts.encrypt_sector(bytes, tweak),
            (Self::Aes256(xts), Direction::Decrypt) => xts.decrypt_sector(bytes, tweak),
        }
    }
}

/// Returns whether `job` bytes can be processed in units of `unit` bytes (R166-R168, D8).
pub fn job_size_allowed(job: u64, unit: u32) -> bool {
    let unit = u64::from(unit);
    if unit < 16 {
        return false;
    }
    let rest = job % unit;
    rest == 0 || (job.is_multiple_of(16) && (16..=unit - 16).contains(&rest))
}

/// Why a wrapped key was not unwrapped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UnwrapError {
    /// The lengths do not fit RFC 3394.
    Length,
    /// The integrity check failed: another KEK, or changed bytes.
    Integrity,
}

/// Unwraps a key with a KEK of 16 or 32 bytes (RFC 3394, default initial value).
///
/// # Errors
/// [`UnwrapError`].
pub fn unwrap_key(kek: &[u8], wrapped: &[u8]) -> Result<Vec<u8>, UnwrapError> {
    let mut key = vec![0; wrapped.len().saturating_sub(8)];
    let outcome = match kek.len() {
        16 => KwAes128::new_from_slice(kek).ok().map(|kw| kw.unwrap_key(wrapped, &mut key).map(drop)),
        32 => KwAes256::new_from_slice(kek).ok().map(|kw| kw.unwrap_key(wrapped, &mut key).map(drop)),
        _ => None,
    };
    match outcome {
        Some(Ok(())) => Ok(key),
        Some(Err(aes_kw::Error::IntegrityCheckFailed)) => Err(UnwrapError::Integrity),
        _ => Err(UnwrapError::Length),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hex(text: &str) -> Vec<u8> {
        (0..text.len()).step_by(2).map(|at| u8::from_str_radix(&text[at..at + 2], 16).unwrap()).collect()
    }

    #[test]
    fn ieee_1619_vectors() {
        let xts = Xts::new(&[[0x11; 16], [0x22; 16]].concat()).unwrap();
        let mut data = [0x44; 32];
        xts.apply(Direction::Encrypt, &mut data, 512, 0x33_3333_3333, true).unwrap();
        assert_eq!(data[..], hex("c454185e6a16936e39334038acef838bfb186fff7480adc4289382ecd6d394f0"));

        let key = hex("2718281828459045235360287471352631415926535897932384626433832795");
        let xts = Xts::new(&key).unwrap();
        let plain: Vec<u8> = (0..512).map(|i| i as u8).collect();
        let mut data = [plain.clone(), plain.clone()].concat();
        xts.apply(Direction::Encrypt, &mut data, 512, 0, true).unwrap();
        assert_eq!(data[..16], hex("27a7479befa1d476489f308cd4cfa6e2"));
        assert_eq!(data[496..512], hex("0a282df920147beabe421ee5319d0568"));
        xts.apply(Direction::Decrypt, &mut data, 512, 0, true).unwrap();
        assert_eq!(data, [plain.clone(), plain].concat());
    }

    #[test]
    fn ieee_1619_unit_one_advances() {
        // device.md 4.6: the plaintext of vector 5 is the ciphertext of vector 4.
        let xts = Xts::new(&hex("2718281828459045235360287471352631415926535897932384626433832795")).unwrap();
        let plain: Vec<u8> = (0..512).map(|i| i as u8).collect();
        let mut one = plain.clone();
        xts.apply(Direction::Encrypt, &mut one, 512, 1, true).unwrap();
        let mut two = [plain.clone(), plain].concat();
        xts.apply(Direction::Encrypt, &mut two, 512, 0, true).unwrap();
        assert_eq!(two[512..], one[..]);
        assert_eq!(one[..16], hex("bbf9d6a74a7465fee20f42adf9a623fc"));
    }

    #[test]
    fn rfc_3394_vector() {
        let kek: Vec<u8> = (0..32).collect();
        let data = hex("00112233445566778899aabbccddeeff000102030405060708090a0b0c0d0e0f");
        let mut wrapped =
            hex("28c9f404c4b810f4cbccb35cfb87f8263f5786e2d80ed326cbc7f0e71a99f43bfb988b9b7a02dd21");
        assert_eq!(unwrap_key(&kek, &wrapped), Ok(data));
        wrapped[9] ^= 1;
        assert_eq!(unwrap_key(&kek, &wrapped), Err(UnwrapError::Integrity));
        assert_eq!(unwrap_key(&kek[..8], &wrapped), Err(UnwrapError::Length));
    }

    #[test]
    fn job_sizes() {
        for (job, unit, allowed) in [
            (512, 512, true),
            (128, 512, true),
            (47, 512, false),
            (520, 520, true),
            (496, 520, true),
            (512, 520, false),
            (528, 520, false),
            (1568, 520, false),
        ] {
            assert_eq!(job_size_allowed(job, unit), allowed, "{job} in {unit}");
        }
    }
}
