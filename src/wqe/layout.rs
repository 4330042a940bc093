//! Encodes layouts as translation entries (PRM `klm`, `struct mlx5_wqe_umr_repeat_block_seg`).
//!
//! Entries keep the caller's form until they are copied into the ring. The copy also checks the entries and
//! sums up their lengths.

use crate::mkey::error::ConfigError;
use crate::mkey::{InterleavedEntry, KlmEntry, Layout, LayoutForm, LayoutKind};
use crate::wire::klm::Klm;
use crate::wire::strided::StridedHeader;
use crate::wire::{Block, OCTOWORDS_PER_BLOCK, Octoword, ZEROS};
use zerocopy::big_endian::U64;
use zerocopy::transmute;

/// A layout that a request can write into an mkey: a [`Layout`], or a list of entries as a slice or an array.
/// Only this library implements the trait.
// This is a trait instead of a closure, because the compiler may call a closure instead of inlining it. With
// these calls, a list of 4 entries takes 75 % more instructions on x86-64.
pub trait AnyLayout {
    /// Returns the kind of the layout, and its number of entries.
    #[doc(hidden)]
    fn form(&self) -> LayoutForm;

    /// Writes the layout, padded with zeros to a multiple of 64 bytes. Returns the number of bytes that the
    /// layout maps.
    ///
    /// # Errors
    /// [`ConfigError::EntryLength`], [`ConfigError::StrideOver16Bits`].
    #[doc(hidden)]
    fn write_entries(&self, blocks: &mut [Block]) -> Result<u64, ConfigError>;
}

impl AnyLayout for Layout<'_> {
    #[inline(always)]
    fn form(&self) -> LayoutForm {
        match self {
            Self::Unchanged => LayoutForm { kind: LayoutKind::Unchanged, octowords: 0 },
            Self::List(entries) => entries.form(),
            Self::Interleaved { entries, .. } => {
                LayoutForm { kind: LayoutKind::Interleaved, octowords: 1 + entries.len() }
            }
        }
    }

    #[inline(always)]
    fn write_entries(&self, blocks: &mut [Block]) -> Result<u64, ConfigError> {
        match *self {
            Self::Unchanged => Ok(0),
            Self::List(entries) => entries.write_entries(blocks),
            Self::Interleaved { repeat, entries } => interleaved(blocks, repeat, entries),
        }
    }
}

impl AnyLayout for &[KlmEntry] {
    #[inline(always)]
    fn form(&self) -> LayoutForm {
        LayoutForm { kind: LayoutKind::List, octowords: self.len() }
    }

    #[inline(always)]
    fn write_entries(&self, blocks: &mut [Block]) -> Result<u64, ConfigError> {
        list(blocks, self, |entry| *entry)
    }
}

impl<const N: usize> AnyLayout for &[KlmEntry; N] {
    #[inline(always)]
    fn form(&self) -> LayoutForm {
        self.as_slice().form()
    }

    #[inline(always)]
    fn write_entries(&self, blocks: &mut [Block]) -> Result<u64, ConfigError> {
        self.as_slice().write_entries(blocks)
    }
}

/// A list layout whose entries have a type of the caller.
pub(crate) struct ListOf<'a, T, F> {
    pub(crate) entries: &'a [T],
    /// Converts the caller's entry to a KLM entry.
    pub(crate) to_klm: F,
}

impl<T, F: Fn(&T) -> KlmEntry> AnyLayout for ListOf<'_, T, F> {
    #[inline(always)]
    fn form(&self) -> LayoutForm {
        LayoutForm { kind: LayoutKind::List, octowords: self.entries.len() }
    }

    #[inline(always)]
    fn write_entries(&self, blocks: &mut [Block]) -> Result<u64, ConfigError> {
        list(blocks, self.entries, &self.to_klm)
    }
}

/// Writes a list, block by block. Only the last block may have fewer than four entries. `to_klm` converts the
/// caller's entry to a KLM entry.
///
/// # Errors
/// [`ConfigError::EntryLength`].
#[inline(always)]
pub(crate) fn list<T>(
    blocks: &mut [Block],
    entries: &[T],
    to_klm: impl Fn(&T) -> KlmEntry,
) -> Result<u64, ConfigError> {
    // Sum and bitwise OR of all lengths, each less 1. A valid length is 1 to 2^31, so bit 31 of the length
    // less 1 is 0. Bit 31 of the OR thus shows whether any length is invalid.
    let (mut sum, mut any) = (0_u64, 0_u32);
    let mut to_wire = |entry: &T| -> Octoword {
        // Length and key are adjacent in a KLM entry, so one load of 8 bytes reads both.
        let [address, both]: [u64; 2] = transmute!(to_klm(entry));
        let [length, key]: [u32; 2] = transmute!(both);
        let less_1 = length.wrapping_sub(1);
        sum += u64::from(less_1);
        any |= less_1;
        transmute!([U64::new(u64::from(length) << 32 | u64::from(key)), U64::new(address)])
    };
    let (fours, rest) = entries.as_chunks::<OCTOWORDS_PER_BLOCK>();
    // The request has reserved blocks for all entries, so the split does not fail.
    let Some((whole, partial)) = blocks.split_at_mut_checked(fours.len()) else { return Ok(0) };
    for (four, block) in fours.iter().zip(whole) {
        for (slot, entry) in block.iter_mut().zip(four) {
            *slot = to_wire(entry);
        }
    }
    if let [block, ..] = partial {
        *block = ZEROS;
        for (slot, entry) in block.iter_mut().zip(rest) {
            *slot = to_wire(entry);
        }
    }
    if any >= KlmEntry::MAX_BYTES {
        return Err(wrong_length(blocks.as_flattened()));
    }
    Ok(sum + entries.len() as u64)
}

/// Returns the error that names the first written entry with a length out of range.
#[cold]
fn wrong_length(slots: &[Octoword]) -> ConfigError {
    let lengths = slots.iter().map(|slot| transmute!(*slot)).map(|klm: Klm| klm.byte_count.get());
    let (index, length) = KlmEntry::first_wrong(lengths).unwrap_or_default();
    ConfigError::EntryLength { index: index as u16, length }
}

/// Writes the header and the entries of an interleaved layout.
fn interleaved(blocks: &mut [Block], repeat: u32, entries: &[InterleavedEntry]) -> Result<u64, ConfigError> {
    if let Some(last) = blocks.last_mut() {
        *last = ZEROS;
    }
    let Some((header, slots)) = blocks.as_flattened_mut().split_first_mut() else {
        return Ok(0);
    };
    let mut bytes_per_cycle = 0;
    for (index, (slot, entry)) in slots.iter_mut().zip(entries).enumerate() {
        let InterleavedEntry { address, bytes, skip, key } = *entry;
        let stride = u32::from(bytes) + u32::from(skip);
        if stride > u32::from(u16::MAX) {
            return Err(ConfigError::StrideOver16Bits { index: index as u16, stride });
        }
        let start = u64::from(stride) << 48 | u64::from(bytes) << 32 | u64::from(key.get());
        *slot = transmute!([U64::new(start), U64::new(address)]);
        bytes_per_cycle += u32::from(bytes);
    }
    *header = transmute!(StridedHeader::new(repeat, bytes_per_cycle, entries.len() as u16));
    Ok(u64::from(bytes_per_cycle) * u64::from(repeat))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::Key;
    use std::vec;

    const KEY: Key = Key::from_raw(0x5600);

    fn written(layout: Layout<'_>) -> Result<u64, ConfigError> {
        layout.write_entries(&mut [ZEROS; 2])
    }

    #[test]
    fn r50_a_stride_has_16_bits() {
        let of = |bytes, skip| {
            let entry = InterleavedEntry { address: 0, bytes, skip, key: KEY };
            written(Layout::Interleaved {
                repeat: 1,
                entries: &[InterleavedEntry { skip: 0, ..entry }, entry],
            })
        };
        assert_eq!(of(65535, 0), Ok(2 * 65535));
        assert_eq!(of(1, 65534), Ok(2));
        assert_eq!(of(65535, 1), Err(ConfigError::StrideOver16Bits { index: 1, stride: 65536 }));
    }

    #[test]
    fn list_entries_span_1_byte_to_2_gib() {
        let of = |length| {
            let entry = |length| KlmEntry { address: 0, length, key: KEY };
            written(Layout::List(&[entry(1), entry(length), entry(7), entry(7), entry(7)]))
        };
        assert_eq!(of(1), Ok(23));
        assert_eq!(of(1 << 31), Ok(22 + (1 << 31)));
        for length in [0, (1 << 31) + 1, u32::MAX] {
            assert_eq!(of(length), Err(ConfigError::EntryLength { index: 1, length }));
        }
    }

    #[test]
    fn lengths_are_summed_in_64_bits() {
        let entries = [KlmEntry { address: 0, length: 1 << 31, key: KEY }; 4];
        assert_eq!(written(Layout::List(&entries)), Ok(1 << 33), "lengths are summed in 64 bits");
        let entries = [InterleavedEntry { address: 0, bytes: u16::MAX, skip: 0, key: KEY }];
        let length = written(Layout::Interleaved { repeat: u32::MAX, entries: &entries });
        assert_eq!(length, Ok(65535 * u64::from(u32::MAX)));
    }

    #[test]
    fn what_entries_leave_of_the_last_block_is_zero() {
        let entries = [KlmEntry { address: u64::MAX, length: 1, key: KEY }; 6];
        for count in 0..=entries.len() {
            let mut blocks = vec![[[0xa5; 16]; 4]; count.div_ceil(4)];
            Layout::List(&entries[..count]).write_entries(&mut blocks).unwrap();
            assert!(blocks.as_flattened()[count..].iter().all(|slot| *slot == [0; 16]), "{count}");
            assert!(blocks.as_flattened()[..count].iter().all(|slot| slot[8..] == [0xff; 8]), "{count}");
        }
    }
}
