//! Which memory stands behind an mkey, and in which order.

use crate::error::ConfigError;
use crate::types::{Key, OutOfRange};
use crate::wire::klm::Klm;
use crate::wire::strided::StridedEntry;
use zerocopy::big_endian::{U16, U32, U64};
use zerocopy::{Immutable, IntoBytes};

/// One piece of a list layout (`struct ibv_sge`), held in wire form so that posting copies it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, IntoBytes, Immutable)]
#[repr(transparent)]
pub struct ListEntry(Klm);

impl ListEntry {
    /// The longest piece, in bytes: 2 GiB (rdma-core `set_bind_wr`: "KLM support only 2GB").
    pub const MAX_BYTES: u32 = 1 << 31;

    /// Describes `length` bytes at `address` in the memory region with key `lkey`.
    ///
    /// # Errors
    /// [`OutOfRange`] for a length of 0 (no source says that the device takes it for nothing) or over
    /// [`ListEntry::MAX_BYTES`].
    ///
    /// ```
    /// use mlx5_mkey::{mkey::ListEntry, types::Key};
    /// let piece = ListEntry::new(0x7f00_0000_1000, 4096, Key::from_raw(0x1234_00))?;
    /// assert_eq!(piece.length(), 4096);
    /// # Ok::<(), mlx5_mkey::types::OutOfRange>(())
    /// ```
    pub const fn new(address: u64, length: u32, lkey: Key) -> Result<Self, OutOfRange> {
        if let Err(error) = OutOfRange::check_length("entry length", length, Self::MAX_BYTES) {
            return Err(error);
        }
        Ok(Self(Klm { byte_count: U32::new(length), mkey: U32::new(lkey.get()), address: U64::new(address) }))
    }

    /// Returns the length in bytes.
    pub const fn length(&self) -> u32 {
        self.0.byte_count.get()
    }

    /// Returns the wire form.
    pub const fn to_wire(self) -> Klm {
        self.0
    }
}

/// One stream of pieces of an interleaved layout (`struct mlx5dv_mr_interleaved`), held in wire form.
#[derive(Clone, Copy, Debug, PartialEq, Eq, IntoBytes, Immutable)]
#[repr(transparent)]
pub struct InterleavedEntry(StridedEntry);

impl InterleavedEntry {
    /// Describes pieces of `bytes` bytes with gaps of `skip` bytes, the first at `address` in the region `lkey`.
    ///
    /// # Errors
    /// [`OutOfRange`] where `bytes + skip`, the stride, has more than 16 bits. The reference provider cuts both off (D13).
    pub const fn new(address: u64, bytes: u32, skip: u32, lkey: Key) -> Result<Self, OutOfRange> {
        let stride = bytes as u64 + skip as u64;
        if stride > u16::MAX as u64 {
            return Err(OutOfRange {
                what: "stride (bytes + skip)",
                value: stride,
                min: 0,
                max: u16::MAX as u64,
            });
        }
        Ok(Self(StridedEntry {
            stride: U16::new(stride as u16),
            byte_count: U16::new(bytes as u16),
            mkey: U32::new(lkey.get()),
            address: U64::new(address),
        }))
    }

    /// Returns the bytes of one piece.
    pub const fn bytes(&self) -> u16 {
        self.0.byte_count.get()
    }

    /// Returns the wire form.
    pub const fn to_wire(self) -> StridedEntry {
        self.0
    }
}

#[cfg(feature = "defmt")]
impl defmt::Format for ListEntry {
    fn format(&self, f: defmt::Formatter<'_>) {
        self.0.format(f);
    }
}

#[cfg(feature = "defmt")]
impl defmt::Format for InterleavedEntry {
    fn format(&self, f: defmt::Formatter<'_>) {
        self.0.format(f);
    }
}

/// What an mkey maps, with its length in bytes already summed up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct Layout<'a> {
    pub(crate) entries: Entries<'a>,
    pub(crate) length: u64,
}

/// The entries of a layout.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub(crate) enum Entries<'a> {
    List(&'a [ListEntry]),
    Interleaved { repeat: u32, bytes_per_cycle: u32, entries: &'a [InterleavedEntry] },
}

impl<'a> Layout<'a> {
    /// Maps the pieces one after the other (`mlx5dv_wr_set_mkey_layout_list`).
    ///
    /// The device tells a list from an interleaved layout by the second word of the first entry, a key here: key 0x400, which
    /// no device gives out, would be taken for the header of an interleaved layout.
    ///
    /// ```
    /// use mlx5_mkey::{mkey::{Layout, ListEntry}, types::Key};
    /// let (mr1, mr2) = (Key::from_raw(0x100), Key::from_raw(0x200));
    /// let pieces = [ListEntry::new(0x1000, 64, mr1)?, ListEntry::new(0x9000, 4096, mr2)?];
    /// assert_eq!(Layout::list(&pieces).length(), 4160);
    /// # Ok::<(), mlx5_mkey::types::OutOfRange>(())
    /// ```
    pub fn list(entries: &'a [ListEntry]) -> Self {
        let length = entries.iter().map(|entry| u64::from(entry.length())).sum();
        Self { entries: Entries::List(entries), length }
    }

    /// Maps one piece of each entry in turn, `repeat` times over (`mlx5dv_wr_set_mkey_layout_interleaved`).
    ///
    /// # Errors
    /// [`ConfigError::TooManyEntries`] for more than 65535 entries: their number has 16 bits.
    ///
    /// ```
    /// use mlx5_mkey::{mkey::{InterleavedEntry, Layout}, types::Key};
    /// let (mr1, mr2) = (Key::from_raw(0x100), Key::from_raw(0x200));
    /// let data = InterleavedEntry::new(0x1000, 512, 4, mr1)?;
    /// let protection = InterleavedEntry::new(0x9000, 8, 0, mr2)?;
    /// assert_eq!(Layout::interleaved(2, &[data, protection])?.length(), 1040);
    /// # Ok::<(), mlx5_mkey::error::ConfigError>(())
    /// ```
    pub fn interleaved(repeat: u32, entries: &'a [InterleavedEntry]) -> Result<Self, ConfigError> {
        if entries.len() > usize::from(u16::MAX) {
            return Err(ConfigError::TooManyEntries { entries: entries.len(), max: usize::from(u16::MAX) });
        }
        let bytes_per_cycle = entries.iter().map(|entry| u32::from(entry.bytes())).sum();
        let length = u64::from(bytes_per_cycle) * u64::from(repeat);
        Ok(Self { entries: Entries::Interleaved { repeat, bytes_per_cycle, entries }, length })
    }

    /// Returns how many bytes of memory the layout maps.
    pub const fn length(&self) -> u64 {
        self.length
    }

    /// Returns the number of 16-byte translation entries, an interleaved layout's header included.
    pub(crate) const fn octowords(&self) -> usize {
        match self.entries {
            Entries::List(entries) => entries.len(),
            Entries::Interleaved { entries, .. } => entries.len() + 1,
        }
    }

    /// Returns the number of entries that the user gave.
    pub(crate) const fn count(&self) -> usize {
        match self.entries {
            Entries::List(entries) => entries.len(),
            Entries::Interleaved { entries, .. } => entries.len(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: Key = Key::from_raw(0x100);

    #[test]
    fn r50_a_stride_has_16_bits() {
        assert!(InterleavedEntry::new(0, 65535, 0, KEY).is_ok());
        assert!(InterleavedEntry::new(0, 65535, 1, KEY).is_err());
        assert!(InterleavedEntry::new(0, u32::MAX, u32::MAX, KEY).is_err());
    }

    #[test]
    fn list_entries_span_1_byte_to_2_gib() {
        assert!(ListEntry::new(0, 0, KEY).is_err());
        assert!(ListEntry::new(0, 1, KEY).is_ok());
        assert!(ListEntry::new(0, 1 << 31, KEY).is_ok());
        assert!(ListEntry::new(0, (1 << 31) + 1, KEY).is_err());
    }

    #[test]
    fn lengths_are_summed_in_64_bits() {
        let gib2 = [ListEntry(Klm { byte_count: U32::new(1 << 31), ..Klm::PADDING }); 4];
        assert_eq!(Layout::list(&gib2).length(), 1 << 33, "D24");
        let entry = [InterleavedEntry(StridedEntry { byte_count: U16::MAX_VALUE, ..StridedEntry::PADDING })];
        let layout = Layout::interleaved(u32::MAX, &entry).map(|layout| layout.length());
        assert_eq!(layout, Ok(65535 * u64::from(u32::MAX)));
    }
}
