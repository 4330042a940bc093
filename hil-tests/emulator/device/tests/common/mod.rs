//! A host for tests, and reference values that other crates compute.
#![allow(dead_code, unreachable_pub, missing_docs, clippy::indexing_slicing, clippy::unwrap_used)]

mod commands;

pub use commands::*;
pub use mlx5_testing::host::*;

/// Returns T10-DIF protection information. The crate `crc` computes its guard.
pub fn pi(block: &[u8], app: u16, reference: u32) -> [u8; 8] {
    let guard = crc::Crc::<u16>::new(&crc::CRC_16_T10_DIF).checksum(block);
    (u64::from(guard) << 48 | u64::from(app) << 32 | u64::from(reference)).to_be_bytes()
}

/// Appends protection information to each block of 512 bytes. The reference tag grows by one for each block.
pub fn with_pi(data: &[u8], app: u16, reference: u32) -> Vec<u8> {
    data.chunks(512)
        .enumerate()
        .flat_map(|(at, block)| {
            let pi = pi(block, app, reference.wrapping_add(at as u32));
            [block, &pi].concat()
        })
        .collect()
}

/// Encrypts with AES-128-XTS, computed by the crates `aes` and `xts-mode`. Data units have `unit` bytes. The
/// first data unit has this tweak.
pub fn xts128(key: &[u8; 32], data: &[u8], unit: usize, tweak: u128) -> Vec<u8> {
    use aes::cipher::{Array, KeyInit};
    let half = |at: usize| aes::Aes128::new_from_slice(&key[at..at + 16]).unwrap();
    let xts = xts_mode::Xts128::new(half(0), half(16));
    let mut bytes = data.to_vec();
    for (at, chunk) in bytes.chunks_mut(unit).enumerate() {
        xts.encrypt_sector(chunk, Array(tweak.wrapping_add(at as u128).to_le_bytes()));
    }
    bytes
}
