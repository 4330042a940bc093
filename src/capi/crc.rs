//! Functions that combine the CRCs of single blocks into the CRC of all data.

#![allow(unsafe_code)] // `no_mangle` is unsafe, and so is the use of pointers of the caller.

use super::config::seed;
use super::error::{Error, attempt, given};
use super::values::array;
use crate::mkey::{Crc32cCombine, Crc64Combine};
use core::mem::MaybeUninit;

/// Writes to `crc` the CRC32C of data that consist of a first part and `count` blocks of `block_bytes` bytes
/// each. `blocks` are the CRCs of the blocks, as MLX5MK_CRC32C writes them (little endian in memory). `seed`
/// is the start value of all these CRCs, MLX5MK_SEED_ZEROS or MLX5MK_SEED_ONES. `first` is the CRC of the
/// first part. If there is no first part, `first` is the CRC of no data: 0 with MLX5MK_SEED_ONES, UINT32_MAX
/// with MLX5MK_SEED_ZEROS. The function needs only the CRCs, not the data. For each block, the function
/// multiplies two polynomials of 32 bits.
///
/// Errors: MLX5MK_ARGUMENT.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mlx5mk_crc32c_combine(
    first: u32,
    blocks: *const u32,
    count: u32,
    block_bytes: u64,
    seed: u32,
    crc: Option<&mut MaybeUninit<u32>>,
    error: Option<&mut MaybeUninit<Error>>,
) -> i32 {
    attempt(error, || {
        let crc = given(crc, "crc")?;
        // SAFETY: the caller ensures that `blocks` leads to `count` values.
        let blocks = unsafe { array(blocks, count as usize, "blocks")? };
        let behind = Crc32cCombine::behind(block_bytes, self::seed(seed)?);
        crc.write(blocks.iter().fold(first, |all, block| behind.combine(all, *block)));
        Ok(0)
    })
}

/// As mlx5mk_crc32c_combine, for CRCs as MLX5MK_CRC64_XP10 writes them (CRC-64/NVME, little endian in
/// memory). With MLX5MK_SEED_ZEROS, the CRC of no data is UINT64_MAX.
///
/// Errors: MLX5MK_ARGUMENT.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mlx5mk_crc64_combine(
    first: u64,
    blocks: *const u64,
    count: u32,
    block_bytes: u64,
    seed: u32,
    crc: Option<&mut MaybeUninit<u64>>,
    error: Option<&mut MaybeUninit<Error>>,
) -> i32 {
    attempt(error, || {
        let crc = given(crc, "crc")?;
        // SAFETY: the caller ensures that `blocks` leads to `count` values.
        let blocks = unsafe { array(blocks, count as usize, "blocks")? };
        let behind = Crc64Combine::behind(block_bytes, self::seed(seed)?);
        crc.write(blocks.iter().fold(first, |all, block| behind.combine(all, *block)));
        Ok(0)
    })
}
