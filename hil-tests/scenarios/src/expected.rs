//! The expected bytes in memory and on the wire, computed without the device by direct calls of checksum and
//! cipher crates.
//!
//! This module shares no code with the software device, so that an error in either makes a scenario fail.

use aes::cipher::{BlockCipherDecrypt, BlockCipherEncrypt, BlockSizeUser, KeyInit, consts::U16};
use aes::{Aes128, Aes256};
use alloc::vec::Vec;
use crc::{Algorithm, Crc};
use mlx5_mkey::mkey::{BlockSignature, Crypto, Direction, Domain, Guard, Signature, SignatureOrder};
use mlx5_mkey::types::{BlockSize, Seed, Tweak};
use xts_mode::{Xts128, get_tweak_default};

const fn crc16(init: u16) -> Algorithm<u16> {
    Algorithm { width: 16, poly: 0x8bb7, init, refin: false, refout: false, xorout: 0, check: 0, residue: 0 }
}

const fn crc32(poly: u32, init: u32, refout: bool) -> Algorithm<u32> {
    Algorithm { width: 32, poly, init, refin: true, refout, xorout: u32::MAX, check: 0, residue: 0 }
}

const fn crc64(init: u64) -> Algorithm<u64> {
    let poly = 0xad93_d235_94c9_3659;
    Algorithm { width: 64, poly, init, refin: true, refout: true, xorout: u64::MAX, check: 0, residue: 0 }
}

// Each CRC has two tables: one for the seed of zeros, one for the seed of ones.
static T10: [Crc<u16>; 2] =
    [Crc::<u16>::new(&const { crc16(0) }), Crc::<u16>::new(&const { crc16(u16::MAX) })];
static FC: [Crc<u32>; 2] = [
    Crc::<u32>::new(&const { crc32(0x04c1_1db7, 0, false) }),
    Crc::<u32>::new(&const { crc32(0x04c1_1db7, u32::MAX, false) }),
];
static ISCSI: [Crc<u32>; 2] = [
    Crc::<u32>::new(&const { crc32(0x1edc_6f41, 0, true) }),
    Crc::<u32>::new(&const { crc32(0x1edc_6f41, u32::MAX, true) }),
];
static XP10: [Crc<u64>; 2] =
    [Crc::<u64>::new(&const { crc64(0) }), Crc::<u64>::new(&const { crc64(u64::MAX) })];

/// Computes the Internet checksum of RFC 1071. The seed is the start value of the sum. No source states
/// whether devices use the seed in this way (`gap01_internet_checksum` measures it). The start value changes
/// only the checksum of a block of zeros, and no scenario has such a block.
fn ip_checksum(block: &[u8], seed: Seed) -> u16 {
    let start = match seed {
        Seed::Zeros => 0,
        Seed::Ones => 0xffff,
    };
    let words =
        block.chunks(2).map(|pair| u64::from(pair[0]) << 8 | pair.get(1).map_or(0, |&low| u64::from(low)));
    let mut sum = start + words.sum::<u64>();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}

/// Returns the bytes of the signature of `block`, whose number is `index`, in their order in memory.
pub fn signature(signature: &Signature, block: &[u8], index: u64) -> Vec<u8> {
    let choose = |seed: &Seed| usize::from(*seed == Seed::Ones);
    match signature {
        Signature::T10Dif(dif) => {
            let guard = match dif.guard {
                Guard::Crc => T10[choose(&dif.seed)].checksum(block),
                Guard::IpChecksum => ip_checksum(block, dif.seed),
            };
            let ref_tag = if dif.ref_remap { dif.ref_tag.wrapping_add(index as u32) } else { dif.ref_tag };
            [&guard.to_be_bytes()[..], &dif.app_tag.to_be_bytes(), &ref_tag.to_be_bytes()].concat()
        }
        Signature::Crc32(seed) => FC[choose(seed)].checksum(block).to_be_bytes().to_vec(),
        Signature::Crc32c(seed) => ISCSI[choose(seed)].checksum(block).to_le_bytes().to_vec(),
        Signature::Crc64Xp10(seed) => XP10[choose(seed)].checksum(block).to_le_bytes().to_vec(),
    }
}

/// Returns the data with a signature after each block of the domain. Without a domain, returns the data
/// alone.
pub fn sign(data: &[u8], domain: Option<&Domain>) -> Vec<u8> {
    let Some(domain) = domain else { return data.to_vec() };
    let blocks = data.chunks(domain.block_size.bytes() as usize);
    blocks
        .enumerate()
        .flat_map(|(index, block)| [block, &signature(&domain.signature, block, index as u64)[..]].concat())
        .collect()
}

/// Encrypts data with AES-XTS; `key` holds both halves, 32 or 64 bytes.
pub fn encrypt(key: &[u8], unit: BlockSize, tweak: Tweak, data: &[u8]) -> Vec<u8> {
    cipher(true, key, unit, tweak, data)
}

/// Decrypts data with AES-XTS; `key` as in [`encrypt`].
pub fn decrypt(key: &[u8], unit: BlockSize, tweak: Tweak, data: &[u8]) -> Vec<u8> {
    cipher(false, key, unit, tweak, data)
}

fn cipher(encrypt: bool, key: &[u8], unit: BlockSize, tweak: Tweak, data: &[u8]) -> Vec<u8> {
    let mut data = data.to_vec();
    let (first, second) = key.split_at(key.len() / 2);
    match key.len() {
        32 => xts::<Aes128>(encrypt, first, second, unit, tweak, &mut data),
        64 => xts::<Aes256>(encrypt, first, second, unit, tweak, &mut data),
        other => panic!("an XTS key of {other} bytes"),
    }
    data
}

fn xts<C>(encrypt: bool, first: &[u8], second: &[u8], unit: BlockSize, tweak: Tweak, data: &mut [u8])
where
    C: KeyInit + BlockCipherEncrypt + BlockCipherDecrypt + BlockSizeUser<BlockSize = U16>,
{
    let cipher = |key: &[u8]| C::new_from_slice(key).expect("a key of the cipher's length");
    let xts = Xts128::new(cipher(first), cipher(second));
    let unit = unit.bytes() as usize;
    if encrypt {
        xts.encrypt_area(data, unit, tweak.get(), get_tweak_default);
    } else {
        xts.decrypt_area(data, unit, tweak.get(), get_tweak_default);
    }
}

/// The same data as they are in the memory of an mkey and on its wire.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Images {
    /// The bytes in memory.
    pub memory: Vec<u8>,
    /// The bytes on the wire.
    pub wire: Vec<u8>,
}

/// Returns the bytes that `data` (plaintext without signatures) have in memory and on the wire, by the table
/// in the man page of `mlx5dv_wr_set_mkey_crypto`.
pub fn images(data: &[u8], signature: Option<&BlockSignature>, crypto: Option<(&Crypto, &[u8])>) -> Images {
    let memory = signature.and_then(BlockSignature::memory_domain);
    let wire = signature.and_then(BlockSignature::wire_domain);
    let (memory, wire) = (memory.as_ref(), wire.as_ref());
    let Some((crypto, key)) = crypto else {
        return Images { memory: sign(data, memory), wire: sign(data, wire) };
    };
    let encrypt = |data: &[u8]| encrypt(key, crypto.data_unit, crypto.tweak, data);
    match (crypto.direction, crypto.order) {
        // Rows A, C, D, E of the man page's table: the cipher covers the signature of the wire.
        (Direction::EncryptOnTx, SignatureOrder::BeforeCryptoOnTx) => {
            Images { memory: sign(data, memory), wire: encrypt(&sign(data, wire)) }
        }
        // Rows A, B of the man page's table: the signature of the wire covers ciphertext.
        (Direction::EncryptOnTx, SignatureOrder::AfterCryptoOnTx) => {
            Images { memory: sign(data, memory), wire: sign(&encrypt(data), wire) }
        }
        // Rows F, G, H, I of the man page's table: the cipher covers the signature of memory.
        (Direction::DecryptOnTx, SignatureOrder::AfterCryptoOnTx) => {
            Images { memory: encrypt(&sign(data, memory)), wire: sign(data, wire) }
        }
        // Rows F, J of the man page's table: the signature of memory covers ciphertext.
        (Direction::DecryptOnTx, SignatureOrder::BeforeCryptoOnTx) => {
            Images { memory: sign(&encrypt(data), memory), wire: sign(data, wire) }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mlx5_mkey::mkey::{Escape, T10Dif};

    const DIF: T10Dif = T10Dif {
        guard: Guard::Crc,
        seed: Seed::Zeros,
        app_tag: 0x5678,
        ref_tag: u32::MAX,
        ref_remap: true,
        escape: Escape::Never,
    };

    #[test]
    fn published_check_values_of_signatures() {
        let block = [0xa5; 512];
        let of = |kind: Signature| signature(&kind, &block, 0);
        assert_eq!(of(Signature::Crc32(Seed::Zeros)), [0x69, 0x9a, 0xca, 0x21]);
        assert_eq!(of(Signature::Crc32(Seed::Ones)), [0x88, 0xcb, 0x60, 0x93]);
        assert_eq!(of(Signature::Crc32c(Seed::Zeros)), [0x42, 0x07, 0xe6, 0xb4]);
        assert_eq!(of(Signature::Crc32c(Seed::Ones)), [0x7d, 0x15, 0xe5, 0x7b]);
        assert_eq!(of(Signature::Crc64Xp10(Seed::Zeros)), [0x8c, 0x8a, 0xdb, 0x45, 0x0c, 0xce, 0x85, 0xaa]);
        assert_eq!(of(Signature::Crc64Xp10(Seed::Ones)), [0x9a, 0xf7, 0x83, 0xd2, 0xdb, 0x3f, 0x9c, 0x48]);
        assert_eq!(of(Signature::T10Dif(DIF)), [0x9e, 0xc6, 0x56, 0x78, 0xff, 0xff, 0xff, 0xff]);
        assert_eq!(of(Signature::T10Dif(T10Dif { seed: Seed::Ones, ..DIF }))[..2], [0xec, 0x7d]);
        assert_eq!(of(Signature::T10Dif(T10Dif { guard: Guard::IpChecksum, ..DIF }))[..2], [0x5a, 0x5a]);
        // The reference tag of block 0 is 2^32 - 1, so the reference tag of block 1 is 0.
        assert_eq!(signature(&Signature::T10Dif(DIF), &block, 1)[4..], [0, 0, 0, 0]);
        assert_eq!(ISCSI[1].checksum(b"123456789"), 0xe306_9283);
        assert_eq!(XP10[1].checksum(b"123456789"), 0xae8b_1486_0a79_9888);
        assert_eq!(T10[0].checksum(b"123456789"), 0xd0db);
        assert_eq!(T10[1].checksum(&[0; 512]), 0x72bb);
        assert_eq!(FC[1].checksum(b"123456789").reverse_bits(), 0xcbf4_3926);
    }

    #[test]
    fn published_check_values_of_xts() {
        // Key, tweak and data come from vector 2 of IEEE 1619.
        let key = [[0x11; 16], [0x22; 16]].concat();
        let cipher = encrypt(&key, BlockSize::B512, Tweak::new(0x33_3333_3333), &[0x44; 32]);
        let expected: [u8; 32] = [
            0xc4, 0x54, 0x18, 0x5e, 0x6a, 0x16, 0x93, 0x6e, 0x39, 0x33, 0x40, 0x38, 0xac, 0xef, 0x83, 0x8b,
            0xfb, 0x18, 0x6f, 0xff, 0x74, 0x80, 0xad, 0xc4, 0x28, 0x93, 0x82, 0xec, 0xd6, 0xd3, 0x94, 0xf0,
        ];
        assert_eq!(cipher, expected);
        assert_eq!(decrypt(&key, BlockSize::B512, Tweak::new(0x33_3333_3333), &cipher), [0x44; 32]);
    }
}
