//! CRCs of blocks, combined into the CRC of all their data.

#![allow(unsafe_code)] // Unmangled names for C, and arrays of the caller.

use super::config::seed;
use super::error::{Error, attempt, given};
use super::values::array;
use crate::mkey::{Crc32cCombine, Crc64Combine};
use core::mem::MaybeUninit;

/// Writes the CRC32C of data that consists of a first part with the CRC `first`, and `count` blocks of
/// `block_bytes` bytes each with the CRCs `blocks`, as MLX5MK_CRC32C writes them (little endian in memory).
/// `first` is 0 if the blocks are all the data. `seed` is that of the CRCs, MLX5MK_SEED_ZEROS or
/// MLX5MK_SEED_ONES. The computation needs no data. Its cost is that of a multiplication of 32 bits by table
/// or bit for each block.
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
        // SAFETY: the caller vouches for the array.
        let blocks = unsafe { array(blocks, count as usize, "blocks")? };
        let behind = Crc32cCombine::behind(block_bytes, self::seed(seed)?);
        crc.write(blocks.iter().fold(first, |all, block| behind.combine(all, *block)));
        Ok(0)
    })
}

/// As mlx5mk_crc32c_combine, for CRCs as MLX5MK_CRC64_XP10 writes them (CRC-64/NVME, little endian in
/// memory).
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
        // SAFETY: the caller vouches for the array.
        let blocks = unsafe { array(blocks, count as usize, "blocks")? };
        let behind = Crc64Combine::behind(block_bytes, self::seed(seed)?);
        crc.write(blocks.iter().fold(first, |all, block| behind.combine(all, *block)));
        Ok(0)
    })
}
