//! Which memory stands behind an mkey, and in which order.

use crate::error::ConfigError;
use crate::types::{Key, OutOfRange};
use crate::wire::klm::Klm;
use crate::wire::strided::{StridedEntry, StridedHeader};
use crate::wire::umr::LayoutSize;
use crate::wire::{Block, OCTOWORDS_PER_BLOCK, ZEROS, blocks_of};
use zerocopy::big_endian::{U16, U32, U64};
use zerocopy::{Immutable, IntoBytes, Unaligned, transmute};

/// One piece of a list layout (`struct ibv_sge`), held in wire form so that posting copies it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, IntoBytes, Immutable, Unaligned)]
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
        // By words, as it is copied.
        let start = U64::new((length as u64) << 32 | lkey.get() as u64);
        Ok(Self(transmute!([start, U64::new(address)])))
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
#[derive(Clone, Copy, Debug, PartialEq, Eq, IntoBytes, Immutable, Unaligned)]
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

/// What an mkey maps, with its length in bytes already summed up, and its size as a request has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct Layout<'a> {
    pub(crate) entries: Entries<'a>,
    shape: Shape,
}

/// The entries of a layout.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub(crate) enum Entries<'a> {
    List(&'a [ListEntry]),
    Interleaved(StridedHeader, &'a [InterleavedEntry]),
    /// Whole blocks, padded and with any header.
    Blocks(&'a [Block]),
}

/// How many entries a layout has, and how much they map: whatever their form, posting asks for no more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
struct Shape {
    /// Octowords in use, an interleaved layout's header included.
    octowords: usize,
    /// Bytes of memory.
    length: u64,
    /// Of the blocks.
    size: LayoutSize,
    /// There is a header.
    interleaved: bool,
}

impl Shape {
    const fn new(octowords: usize, length: u64, interleaved: bool) -> Self {
        Self { octowords, length, size: size(blocks_of(octowords)), interleaved }
    }

    /// Returns a copy, made field by field: copied as a whole, it would be in memory on its way. What it is the caller knows, and
    /// so the compiler.
    #[inline(always)]
    const fn copied(&self, interleaved: bool) -> Self {
        let Self { octowords, length, size, .. } = *self;
        Self { octowords, length, size, interleaved }
    }
}

/// Returns the size of so many blocks.
#[inline(always)]
const fn size(blocks: usize) -> LayoutSize {
    LayoutSize::new((blocks * OCTOWORDS_PER_BLOCK) as u16)
}

/// A list layout in the caller's hands: entries are added one by one, summed up on the way, and kept as the blocks that
/// posting copies. Room for `4 * BLOCKS` entries.
///
/// ```
/// use mlx5_mkey::{mkey::{List, ListEntry}, types::Key};
/// let mut list = List::<1>::new();
/// list.push(ListEntry::new(0x1000, 64, Key::from_raw(0x100))?)?;
/// list.push(ListEntry::new(0x9000, 4096, Key::from_raw(0x200))?)?;
/// assert_eq!(list.layout().length(), 4160);
/// # Ok::<(), mlx5_mkey::error::ConfigError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct List<const BLOCKS: usize> {
    blocks: Blocks<BLOCKS>,
    shape: Shape,
}

type Blocks<const BLOCKS: usize> = heapless::Vec<Block, BLOCKS>;

impl<const BLOCKS: usize> List<BLOCKS> {
    /// An empty list.
    pub const fn new() -> Self {
        Self { blocks: Blocks::new(), shape: Shape::new(0, 0, false) }
    }

    /// Adds a piece at the end.
    ///
    /// # Errors
    /// [`ConfigError::TooManyEntries`] where the list is full.
    #[inline]
    pub fn push(&mut self, entry: ListEntry) -> Result<(), ConfigError> {
        let Self { blocks, shape } = self;
        let used = shape.octowords;
        let full = ConfigError::TooManyEntries { entries: used + 1, max: OCTOWORDS_PER_BLOCK * BLOCKS };
        if used == OCTOWORDS_PER_BLOCK * blocks.len() {
            blocks.push(ZEROS).map_err(|_| full)?;
            shape.size = size(blocks.len());
        }
        *blocks.as_flattened_mut().get_mut(used).ok_or(full)? = transmute!(entry);
        shape.octowords += 1;
        shape.length += u64::from(entry.length());
        Ok(())
    }

    /// Takes all pieces out.
    pub fn clear(&mut self) {
        *self = Self::new();
    }

    /// Returns the number of pieces.
    pub const fn len(&self) -> usize {
        self.shape.octowords
    }

    /// Returns whether there is no piece.
    pub const fn is_empty(&self) -> bool {
        self.shape.octowords == 0
    }

    /// Returns the layout that maps the pieces one after the other.
    #[inline]
    pub fn layout(&self) -> Layout<'_> {
        Layout { entries: Entries::Blocks(&self.blocks), shape: self.shape.copied(false) }
    }
}

impl<const BLOCKS: usize> Default for List<BLOCKS> {
    fn default() -> Self {
        Self::new()
    }
}

/// An interleaved layout in the caller's hands, kept as the blocks that posting copies. Room for `4 * BLOCKS - 1` entries.
///
/// ```
/// use mlx5_mkey::{mkey::{Interleaved, InterleavedEntry}, types::Key};
/// let data = InterleavedEntry::new(0x1000, 512, 4, Key::from_raw(0x100))?;
/// let protection = InterleavedEntry::new(0x9000, 8, 0, Key::from_raw(0x200))?;
/// assert_eq!(Interleaved::<1>::new(2, &[data, protection])?.layout().length(), 1040);
/// # Ok::<(), mlx5_mkey::error::ConfigError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct Interleaved<const BLOCKS: usize> {
    blocks: Blocks<BLOCKS>,
    shape: Shape,
}

impl<const BLOCKS: usize> Interleaved<BLOCKS> {
    /// Maps one piece of each entry in turn, `repeat` times over.
    ///
    /// # Errors
    /// [`ConfigError::TooManyEntries`] for more entries than there is room for.
    pub fn new(repeat: u32, entries: &[InterleavedEntry]) -> Result<Self, ConfigError> {
        let (header, shape) = interleaved(repeat, entries)?;
        let max = (OCTOWORDS_PER_BLOCK * BLOCKS).saturating_sub(1);
        let full = ConfigError::TooManyEntries { entries: entries.len(), max };
        let mut blocks = Blocks::new();
        blocks.resize(blocks_of(shape.octowords), ZEROS).map_err(|_| full)?;
        let (first, rest) = blocks.as_flattened_mut().split_first_mut().ok_or(full)?;
        *first = transmute!(header);
        rest.iter_mut().zip(entries).for_each(|(slot, entry)| *slot = transmute!(*entry));
        Ok(Self { blocks, shape })
    }

    /// Returns the layout.
    #[inline]
    pub fn layout(&self) -> Layout<'_> {
        Layout { entries: Entries::Blocks(&self.blocks), shape: self.shape.copied(true) }
    }
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
    #[inline]
    pub fn list(entries: &'a [ListEntry]) -> Self {
        let sum = |pieces: &[ListEntry]| pieces.iter().map(|piece| u64::from(piece.length())).sum::<u64>();
        let (mut length, mut rest) = (0, entries);
        // By blocks, as they are copied.
        while let Some((block, others)) = rest.split_first_chunk::<OCTOWORDS_PER_BLOCK>() {
            length += sum(block);
            rest = others;
        }
        length += sum(rest);
        Self { entries: Entries::List(entries), shape: Shape::new(entries.len(), length, false) }
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
        let (header, shape) = interleaved(repeat, entries)?;
        Ok(Self { entries: Entries::Interleaved(header, entries), shape })
    }

    /// Returns how many bytes of memory the layout maps.
    #[inline]
    pub const fn length(&self) -> u64 {
        self.shape.length
    }

    /// Returns the number of 16-byte translation entries, an interleaved layout's header included.
    #[inline(always)]
    pub(crate) const fn octowords(&self) -> usize {
        self.shape.octowords
    }

    /// Returns the size as a request has it.
    #[inline(always)]
    pub(crate) const fn size(&self) -> LayoutSize {
        self.shape.size
    }

    /// Returns the number of 64-byte blocks that the translation entries fill.
    #[inline(always)]
    pub(crate) const fn blocks(&self) -> usize {
        match self.entries {
            // It is the same, and so the compiler knows.
            Entries::Blocks(blocks) => blocks.len(),
            Entries::List(_) | Entries::Interleaved(..) => blocks_of(self.shape.octowords),
        }
    }

    /// Returns whether pieces of the entries take turns.
    pub(crate) const fn is_interleaved(&self) -> bool {
        self.shape.interleaved
    }

    /// Returns the number of entries that the user gave.
    pub(crate) const fn count(&self) -> usize {
        self.shape.octowords - self.shape.interleaved as usize
    }
}

/// Sums up an interleaved layout. At most 65535 entries have each at most as many bytes.
fn interleaved(repeat: u32, entries: &[InterleavedEntry]) -> Result<(StridedHeader, Shape), ConfigError> {
    if entries.len() > usize::from(u16::MAX) {
        return Err(ConfigError::TooManyEntries { entries: entries.len(), max: usize::from(u16::MAX) });
    }
    let bytes_per_cycle = entries.iter().map(|entry| u32::from(entry.bytes())).sum();
    let shape = Shape::new(1 + entries.len(), u64::from(bytes_per_cycle) * u64::from(repeat), true);
    Ok((StridedHeader::new(repeat, bytes_per_cycle, entries.len() as u16), shape))
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
        let entry =
            [InterleavedEntry(StridedEntry { byte_count: U16::MAX_VALUE, ..StridedEntry::default() })];
        let layout = Layout::interleaved(u32::MAX, &entry).map(|layout| layout.length());
        assert_eq!(layout, Ok(65535 * u64::from(u32::MAX)));
    }
}
