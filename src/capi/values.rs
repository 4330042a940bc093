//! Types and constants that many functions for C use (arrays, access rights, ranges of memory), and their
//! conversion.

#![allow(unsafe_code)] // The functions read and write through pointers of the caller.

use super::error::Failure;
use crate::mkey::{Access, InterleavedEntry, KlmEntry, KsmEntry};
use crate::types::KsmEntrySize;
use crate::wqe::Sge;
use core::mem::{MaybeUninit, offset_of};

/// The owner may write: needed to receive into memory and to RDMA READ into it (IBV_ACCESS_LOCAL_WRITE).
pub const MLX5MK_LOCAL_WRITE: u32 = 1;
/// The peer may RDMA WRITE (IBV_ACCESS_REMOTE_WRITE).
pub const MLX5MK_REMOTE_WRITE: u32 = 2;
/// The peer may RDMA READ (IBV_ACCESS_REMOTE_READ).
pub const MLX5MK_REMOTE_READ: u32 = 4;
/// The peer may use atomics (IBV_ACCESS_REMOTE_ATOMIC).
pub const MLX5MK_REMOTE_ATOMIC: u32 = 8;

/// The memory domain of an mkey: data as they are in memory.
pub const MLX5MK_MEMORY: u32 = 0;
/// The wire domain of an mkey: data as they are sent to the peer and received from it.
pub const MLX5MK_WIRE: u32 = 1;

/// A range of memory under a key: an entry of an mkey's layout, or a data segment of a request. It has the
/// layout of `struct ibv_sge`.
#[repr(C)]
pub struct Range {
    /// Address of the range's first byte. If `key` is that of an mkey, this is an offset in the mkey's space,
    /// in bytes of the wire domain.
    pub address: u64,
    /// Length in bytes: 1 to 2^31 - 1 in a request, 1 to 2^31 in a layout.
    pub length: u32,
    /// Local key of the memory region, or key of the mkey.
    pub key: u32,
}

/// One stream of an interleaved layout (struct mlx5dv_mr_interleaved): each cycle maps its next `bytes`
/// bytes.
#[repr(C)]
pub struct Stream {
    /// Address of the stream's first byte, as in a range.
    pub address: u64,
    /// Bytes that each cycle maps.
    pub bytes: u16,
    /// Bytes that are skipped between the bytes of one cycle and those of the next. The sum of `skip` and
    /// `bytes` is at most 65535.
    pub skip: u16,
    /// Local key of the memory region.
    pub key: u32,
}

/// An entry of a list whose entries all have the same length. The length is given once for the list.
#[repr(C)]
pub struct Place {
    /// Address of the entry's first byte, as in a range. It need not be a multiple of the length.
    pub address: u64,
    /// Local key of the memory region.
    pub key: u32,
}

// The functions cast arrays of the C types to arrays of the library's types, so both must have the same
// layout.
const _: () = {
    assert!(size_of::<Stream>() == size_of::<InterleavedEntry>());
    assert!(align_of::<Stream>() == align_of::<InterleavedEntry>());
    assert!(offset_of!(Stream, bytes) == offset_of!(InterleavedEntry, bytes));
    assert!(offset_of!(Stream, skip) == offset_of!(InterleavedEntry, skip));
    assert!(offset_of!(Stream, key) == offset_of!(InterleavedEntry, key));
    assert!(size_of::<Place>() == size_of::<KsmEntry>() && align_of::<Place>() == align_of::<KsmEntry>());
    assert!(offset_of!(Place, address) == offset_of!(KsmEntry, address));
    assert!(offset_of!(Place, key) == offset_of!(KsmEntry, key));
    assert!(size_of::<Range>() == size_of::<Sge>() && size_of::<Range>() == size_of::<KlmEntry>());
    assert!(align_of::<Range>() == align_of::<Sge>() && align_of::<Range>() == align_of::<KlmEntry>());
    assert!(offset_of!(Range, length) == offset_of!(Sge, length));
    assert!(offset_of!(Range, length) == offset_of!(KlmEntry, length));
    assert!(
        offset_of!(Range, key) == offset_of!(Sge, lkey)
            && offset_of!(Range, key) == offset_of!(KlmEntry, key)
    );
};

/// Converts a sum of MLX5MK_LOCAL_WRITE and the other rights into access rights. Refuses unknown bits.
pub(super) fn access_of(bits: u32) -> Result<Access, Failure> {
    let known = MLX5MK_LOCAL_WRITE | MLX5MK_REMOTE_WRITE | MLX5MK_REMOTE_READ | MLX5MK_REMOTE_ATOMIC;
    only(bits, known, "access")?;
    let right = |bit, right| if bits & bit != 0 { right } else { Access::NONE };
    Ok(right(MLX5MK_LOCAL_WRITE, Access::LOCAL_WRITE)
        | right(MLX5MK_REMOTE_WRITE, Access::REMOTE_WRITE)
        | right(MLX5MK_REMOTE_READ, Access::REMOTE_READ)
        | right(MLX5MK_REMOTE_ATOMIC, Access::REMOTE_ATOMIC))
}

/// Checks the common length of a list's entries.
pub(super) fn entry_size(bytes: u32) -> Result<KsmEntrySize, Failure> {
    KsmEntrySize::new(bytes).map_err(|_| Failure::Value { what: "entry_size", value: bytes.into() })
}

/// Refuses bits that are not among the `known` ones. `what` names the argument in the error.
#[inline]
pub(super) fn only(bits: u32, known: u32, what: &'static str) -> Result<(), Failure> {
    if bits & !known == 0 { Ok(()) } else { Err(Failure::Value { what, value: bits.into() }) }
}

/// Returns an array of the caller. NULL is allowed if the array is empty.
///
/// # Safety
/// The caller ensures that `first` is NULL, or leads to `count` values, which nobody changes while the slice
/// lives, and that every sequence of bytes is a valid `T`.
#[inline]
pub(super) unsafe fn array<'a, T>(
    first: *const T,
    count: usize,
    name: &'static str,
) -> Result<&'a [T], Failure> {
    match (count, first.is_null()) {
        (0, _) => Ok(&[]),
        (_, true) => Err(Failure::Null(name)),
        // SAFETY: `first` is not NULL, so the caller ensures that it leads to `count` values.
        _ => Ok(unsafe { core::slice::from_raw_parts(first, count) }),
    }
}

/// Returns an array of the caller that the library writes to. NULL is allowed if the array is empty.
///
/// # Safety
/// The caller ensures that `first` is NULL, or leads to memory for `count` values, which nobody else uses
/// while the slice lives.
#[inline]
pub(super) unsafe fn room<'a, T>(
    first: *mut MaybeUninit<T>,
    count: usize,
    name: &'static str,
) -> Result<&'a mut [MaybeUninit<T>], Failure> {
    match (count, first.is_null()) {
        (0, _) => Ok(&mut []),
        (_, true) => Err(Failure::Null(name)),
        // SAFETY: `first` is not NULL, so the caller ensures that it leads to memory for `count` values.
        _ => Ok(unsafe { core::slice::from_raw_parts_mut(first, count) }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rights_have_the_bits_of_verbs() {
        assert_eq!(access_of(0).unwrap(), Access::NONE);
        assert_eq!(access_of(15).unwrap(), Access::ALL);
        assert_eq!(access_of(MLX5MK_REMOTE_READ).unwrap(), Access::REMOTE_READ);
        assert!(access_of(16).is_err());
    }

    #[test]
    fn entries_of_one_length_have_a_power_of_two() {
        assert_eq!(entry_size(1 << 21).unwrap().bytes(), 1 << 21);
        assert!(entry_size(0).is_err() && entry_size(4097).is_err());
    }
}
