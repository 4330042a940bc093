//! Layouts to translation entries (PRM `klm`, `struct mlx5_wqe_umr_repeat_block_seg`).
//!
//! Entries stay as the user has them until they are in the ring: what is written is checked and summed up on the way.

use crate::error::ConfigError;
use crate::mkey::{InterleavedEntry, KlmEntry, Layout};
use crate::wire::klm::Klm;
use crate::wire::strided::StridedHeader;
use crate::wire::{Block, OCTOWORDS_PER_BLOCK, Octoword, ZEROS};
use zerocopy::big_endian::U64;
use zerocopy::transmute;

/// Writes a layout, padded with zeros to whole blocks, and returns how many bytes it maps.
///
/// # Errors
/// [`ConfigError::EntryLength`], [`ConfigError::StrideOver16Bits`].
#[inline]
pub(crate) fn write(blocks: &mut [Block], layout: &Layout<'_>) -> Result<u64, ConfigError> {
    // What the entries do not fill of the last block is zero.
    if !layout.octowords().is_multiple_of(OCTOWORDS_PER_BLOCK)
        && let Some(last) = blocks.last_mut()
    {
        *last = ZEROS;
    }
    let slots = blocks.as_flattened_mut();
    let entries = match *layout {
        Layout::Unchanged => return Ok(0),
        Layout::List(entries) => entries,
        Layout::Interleaved { repeat, entries } => return interleaved(slots, repeat, entries),
    };
    let (mut length, mut lengths_less_1) = (0, 0);
    for (slot, entry) in slots.iter_mut().zip(entries) {
        let (byte_count, key) = entry.length_and_key();
        *slot = transmute!([U64::new(u64::from(byte_count) << 32 | u64::from(key)), U64::new(entry.address)]);
        length += u64::from(byte_count);
        // Lengths of 1 to 2^31, less 1, have bit 31 clear: in the end it shows whether one was out of range.
        lengths_less_1 |= byte_count.wrapping_sub(1);
    }
    if lengths_less_1 >= KlmEntry::MAX_BYTES { Err(wrong_length(slots)) } else { Ok(length) }
}

/// Names the first entry written whose length is out of range.
#[cold]
fn wrong_length(slots: &[Octoword]) -> ConfigError {
    let lengths = slots.iter().map(|slot| transmute!(*slot)).map(|klm: Klm| klm.byte_count.get());
    let (index, length) = KlmEntry::first_wrong(lengths).unwrap_or_default();
    ConfigError::EntryLength { index: index as u16, length }
}

/// Writes the header and the entries of an interleaved layout.
fn interleaved(
    slots: &mut [Octoword],
    repeat: u32,
    entries: &[InterleavedEntry],
) -> Result<u64, ConfigError> {
    let Some((header, slots)) = slots.split_first_mut() else { return Ok(0) };
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
        write(&mut [ZEROS; 2], &layout)
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
            write(&mut blocks, &Layout::List(&entries[..count])).unwrap();
            assert!(blocks.as_flattened()[count..].iter().all(|slot| *slot == [0; 16]), "{count}");
            assert!(blocks.as_flattened()[..count].iter().all(|slot| slot[8..] == [0xff; 8]), "{count}");
        }
    }
}
