//! Layouts in registered memory, from which the device reads them. They may be too long for a request.

use super::state::Mapped;
use super::{InterleavedEntry, KlmEntry, KsmEntry};
use crate::mkey::error::ConfigError;
use crate::types::{Key, KsmEntrySize};
use crate::wire::klm::Klm;
use crate::wire::strided::StridedHeader;
use crate::wire::umr::UmrControlSegment;
use crate::wire::{OCTOWORD_BYTES, OCTOWORDS_PER_BLOCK, Octoword, WQEBB_BYTES, Wqebb, blocks_of};
use zerocopy::transmute;

/// The largest number of BSFs behind a list: one for a signature, one for crypto properties.
const BSFS: usize = 2;

/// A list or an interleaved layout in registered memory, for
/// [`configure_mkey_by_pointer`](crate::queue::SendRequest::configure_mkey_by_pointer) and
/// [`replace_entries_by_pointer`](crate::queue::SendRequest::replace_entries_by_pointer). The second function
/// accepts only lists.
///
/// The value borrows the memory as the processor sees it, and holds the address and the key by which the
/// device reads the memory when it executes the request. The memory has to stay registered and unchanged
/// until this request, or a later one of its queue, has completed. The borrowed memory may also be a copy of
/// the registered memory. The caller then writes the copy ([`RegisteredList::blocks`]) to the registered
/// memory between posting and ringing the doorbell.
///
/// ```
/// use mlx5_mkey::error::PostError;
/// use mlx5_mkey::mkey::{KlmEntry, Mkey, RegisteredList};
/// use mlx5_mkey::queue::{Doorbell, SendQueue};
/// use mlx5_mkey::types::Key;
/// use mlx5_mkey::wire::Wqebb;
/// use mlx5_mkey::wqe::PreparedConfig;
///
/// /// Lays an mkey over hundreds of pages. `memory` is registered under `lkey`, and begins at `address`.
/// fn lay<D: Doorbell>(
///     queue: &mut SendQueue<'_, D>,
///     mkey: &mut Mkey,
///     prepared: &PreparedConfig,
///     pages: &[KlmEntry],
///     (memory, address, lkey): (&mut [Wqebb], u64, Key),
/// ) -> Result<(), PostError> {
///     let mut list = RegisteredList::new(memory, address, lkey)?;
///     list.write(pages)?;
///     queue.request(1).configure_mkey_by_pointer(mkey, prepared, &mut list)
/// }
/// ```
#[derive(Debug, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct RegisteredList<'m> {
    blocks: &'m mut [Wqebb],
    address: u64,
    key: Key,
    entries: u16,
    entry_size: Option<KsmEntrySize>,
    interleaved: bool,
    length: u64,
}

impl<'m> RegisteredList<'m> {
    /// Alignment of the list's address in bytes (DPDK `MLX5_UMR_KLM_PTR_ALIGN`: "as PRM describes").
    pub const ALIGNMENT: u64 = UmrControlSegment::POINTER_ALIGNMENT;

    /// The largest number of entries of a list: a UMR counts entries with 16 bits, rounded up to a multiple
    /// of 4.
    pub const MAX_ENTRIES: usize = 65_532;

    /// Returns how many blocks of 64 bytes a list of `entries` entries takes in memory, with room for the
    /// BSFs behind the entries.
    pub const fn blocks_for(entries: usize) -> usize {
        blocks_of(entries) + BSFS
    }

    /// Creates a list without entries. The device will read the memory by `address` and `key`, the memory's
    /// local key (`lkey`).
    ///
    /// # Errors
    /// [`ConfigError::ListAddress`] for an address that is no multiple of [`RegisteredList::ALIGNMENT`].
    pub const fn new(memory: &'m mut [Wqebb], address: u64, key: Key) -> Result<Self, ConfigError> {
        if !address.is_multiple_of(Self::ALIGNMENT) {
            return Err(ConfigError::ListAddress { past: (address % Self::ALIGNMENT) as u16 });
        }
        Ok(Self { blocks: memory, address, key, entries: 0, entry_size: None, interleaved: false, length: 0 })
    }

    /// Returns how many entries the memory has room for, at most [`RegisteredList::MAX_ENTRIES`].
    pub const fn capacity(&self) -> usize {
        let room = self.blocks.len().saturating_sub(BSFS).saturating_mul(OCTOWORDS_PER_BLOCK);
        if room < Self::MAX_ENTRIES { room } else { Self::MAX_ENTRIES }
    }

    /// Replaces the layout by a list of `entries`, padded with zeros to a multiple of 64 bytes.
    ///
    /// # Errors
    /// [`ConfigError::TooManyEntries`], [`ConfigError::EntryLength`]. The list is then as before.
    pub fn write(&mut self, entries: &[KlmEntry]) -> Result<(), ConfigError> {
        ConfigError::check_entries(entries.len(), self.capacity())?;
        if let Some((index, length)) = KlmEntry::wrong_length(entries) {
            return Err(ConfigError::EntryLength { index: index as u16, length });
        }
        self.fill(entries.len(), entries.iter().map(|entry| transmute!(entry.to_wire())));
        self.length = entries.iter().map(|entry| u64::from(entry.length)).sum();
        (self.entry_size, self.interleaved) = (None, false);
        Ok(())
    }

    /// Replaces the layout by a list of `entries` that all have the length `size`, for mkeys that were
    /// created for this length (KSM, [`MkeyFeatures::entry_size`](crate::command::MkeyFeatures::entry_size)).
    /// Addresses need not be multiples of the length: the device adds the offset within an entry to the
    /// entry's address. For example, entries of the kernel's `mlx5e_build_shampo_hd_umr` begin behind a
    /// headroom.
    /// # Errors
    /// [`ConfigError::TooManyEntries`]. The list is then as before.
    pub fn write_ksm(&mut self, size: KsmEntrySize, entries: &[KsmEntry]) -> Result<(), ConfigError> {
        ConfigError::check_entries(entries.len(), self.capacity())?;
        self.fill(entries.len(), entries.iter().map(|entry| transmute!(entry.to_wire())));
        self.length = u64::from(size.bytes()) * entries.len() as u64;
        (self.entry_size, self.interleaved) = (Some(size), false);
        Ok(())
    }

    /// Replaces the layout by an interleaved one, whose header counts as an entry. `repeat` cycles map the
    /// streams in turn ([`Layout::Interleaved`](super::Layout::Interleaved); UCC
    /// `umr_strided_seg_create_noninline`).
    ///
    /// # Errors
    /// [`ConfigError::TooManyEntries`], [`ConfigError::StrideOver16Bits`], [`ConfigError::LengthOver62Bits`].
    /// The layout is then as before.
    ///
    /// ```
    /// use mlx5_mkey::error::ConfigError;
    /// use mlx5_mkey::mkey::{InterleavedEntry, RegisteredList};
    /// use mlx5_mkey::types::Key;
    /// use mlx5_mkey::wire::Wqebb;
    /// // The mkey maps every other 512 bytes of each of 8 buffers, 100 times over.
    /// let buffers: [_; 8] = core::array::from_fn(|number| {
    ///     let address = 0x10_0000 * (1 + number as u64);
    ///     InterleavedEntry { address, bytes: 512, skip: 512, key: Key::from_raw(0x5600) }
    /// });
    /// let mut memory = [Wqebb::ZERO; RegisteredList::blocks_for(9)];
    /// let mut list = RegisteredList::new(&mut memory, 0x7f00_0000_0800, Key::from_raw(0x5700))?;
    /// list.write_interleaved(100, &buffers)?;
    /// assert_eq!((list.entries(), list.length()), (9, 100 * 8 * 512));
    /// # Ok::<(), ConfigError>(())
    /// ```
    pub fn write_interleaved(
        &mut self,
        repeat: u32,
        streams: &[InterleavedEntry],
    ) -> Result<(), ConfigError> {
        let entries = streams.len().saturating_add(1);
        ConfigError::check_entries(entries, self.capacity())?;
        if let Some((index, stride)) = InterleavedEntry::wrong_stride(streams) {
            return Err(ConfigError::StrideOver16Bits { index: index as u16, stride });
        }
        // There are at most 65,531 streams, and each length has 16 bits, so the sum fits 32 bits.
        let cycle: u32 = streams.iter().map(|stream| u32::from(stream.bytes)).sum();
        let length = u64::from(cycle) * u64::from(repeat);
        if length > Mapped::MAX_BYTES {
            return Err(ConfigError::LengthOver62Bits { pebibytes: (length >> 50) as u16 });
        }
        let header = transmute!(StridedHeader::new(repeat, cycle, streams.len() as u16));
        let wire = streams.iter().map(|stream| transmute!(stream.to_wire()));
        self.fill(entries, core::iter::once(header).chain(wire));
        self.length = length;
        (self.entry_size, self.interleaved) = (None, true);
        Ok(())
    }

    /// Writes `count` entries, padded with zeros to a multiple of 64 bytes. The caller ensures that they fit
    /// into the memory.
    fn fill(&mut self, count: usize, mut entries: impl Iterator<Item = Octoword>) {
        for block in self.blocks.iter_mut().take(blocks_of(count)) {
            *block = Wqebb::ZERO;
            let (slots, _) = block.0.as_chunks_mut::<OCTOWORD_BYTES>();
            for (slot, entry) in slots.iter_mut().zip(entries.by_ref()) {
                *slot = entry;
            }
        }
        self.entries = count as u16;
    }

    /// Returns whether the layout is interleaved ([`RegisteredList::write_interleaved`]).
    pub const fn is_interleaved(&self) -> bool {
        self.interleaved
    }

    /// Checks that the layout is a list, since entries of an interleaved layout can neither replace entries
    /// of a list nor be appended to it.
    pub(crate) const fn check_list(&self) -> Result<(), ConfigError> {
        if self.interleaved { Err(ConfigError::InterleavedInList) } else { Ok(()) }
    }

    /// Returns the number of entries, including the header of an interleaved layout.
    pub const fn entries(&self) -> u16 {
        self.entries
    }

    /// Returns the length of all entries, if [`RegisteredList::write_ksm`] wrote them.
    pub const fn entry_size(&self) -> Option<KsmEntrySize> {
        self.entry_size
    }

    /// Returns how many bytes the entries map.
    pub const fn length(&self) -> u64 {
        self.length
    }

    /// Returns the address by which the device reads the list.
    pub const fn address(&self) -> u64 {
        self.address
    }

    /// Returns the blocks that the device may read: the entries, and room for the BSFs that a post writes.
    pub fn blocks(&self) -> &[Wqebb] {
        self.blocks.get(..Self::blocks_for(self.entries.into())).unwrap_or_default()
    }

    /// Returns the pointer to the list, as a request contains it. The device ignores the length in this
    /// pointer.
    pub(crate) fn pointer(&self) -> Klm {
        let bytes = self.octowords() * OCTOWORD_BYTES;
        Klm { byte_count: (bytes as u32).into(), mkey: self.key.get().into(), address: self.address.into() }
    }

    /// Returns the number of octowords that the entries take, rounded up to a multiple of 4.
    pub(crate) const fn octowords(&self) -> usize {
        (self.entries as usize).next_multiple_of(OCTOWORDS_PER_BLOCK)
    }

    /// Returns the blocks behind the entries, which have room for BSFs.
    pub(crate) fn behind(&mut self) -> impl Iterator<Item = &mut [u8; WQEBB_BYTES]> {
        self.blocks.iter_mut().skip(blocks_of(self.entries.into())).map(|block| &mut block.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: Key = Key::from_raw(0x1234_5678);

    fn entry(length: u32) -> KlmEntry {
        KlmEntry { address: 0x1122_3344_5566_7788, length, key: KEY }
    }

    #[test]
    fn m79_a_list_is_written_in_whole_blocks() {
        let mut memory = [Wqebb([0xa5; 64]); 5];
        let mut list = RegisteredList::new(&mut memory, 0x7f00_0000_0800, KEY).unwrap();
        assert_eq!((list.capacity(), RegisteredList::blocks_for(12)), (12, 5));
        list.write(&[entry(1), entry(2), entry(3), entry(4), entry(1 << 31)]).unwrap();
        assert_eq!((list.entries(), list.length(), list.octowords()), (5, (1 << 31) + 10, 8));
        assert_eq!(list.blocks().len(), 4);
        let golden = [0x80, 0, 0, 0, 0x12, 0x34, 0x56, 0x78, 0x11, 0x22, 0x33, 0x44, 0x55, 0x66, 0x77, 0x88];
        assert_eq!(list.blocks()[1].0[..16], golden);
        assert_eq!(list.blocks()[1].0[16..], [0; 48]);
        let pointer = list.pointer();
        assert_eq!((pointer.byte_count.get(), pointer.address.get()), (128, 0x7f00_0000_0800));
        assert_eq!(memory[2..], [Wqebb([0xa5; 64]); 3]);
    }

    #[test]
    fn m85_an_interleaved_layout_is_header_and_entries() {
        let mut memory = [Wqebb([0xa5; 64]); 4];
        let mut list = RegisteredList::new(&mut memory, 0x7f00_0000_0800, KEY).unwrap();
        let stream = |bytes, skip| InterleavedEntry { address: 0x1122_3344_5566_7788, bytes, skip, key: KEY };
        let streams = [stream(512, 8), stream(8, 0), stream(65535, 0), stream(1, 65534)];
        list.write_interleaved(7, &streams).unwrap();
        let cycle = 512 + 8 + 65535 + 1;
        assert_eq!((list.entries(), list.octowords(), list.length()), (5, 8, 7 * cycle));
        assert!(list.is_interleaved() && list.entry_size().is_none());
        assert_eq!(list.check_list(), Err(ConfigError::InterleavedInList));
        let header = [0, 1, 2, 8, 0, 0, 4, 0, 0, 0, 0, 7, 0, 0, 0, 4];
        let first = [2, 8, 2, 0, 0x12, 0x34, 0x56, 0x78, 0x11, 0x22, 0x33, 0x44, 0x55, 0x66, 0x77, 0x88];
        assert_eq!(list.blocks()[0].0[..32], [header, first].concat());
        assert_eq!(list.blocks()[1].0[16..], [0; 48]);
        let refused = list.write_interleaved(1, &[stream(1, 0), stream(65535, 1)]);
        assert_eq!(refused, Err(ConfigError::StrideOver16Bits { index: 1, stride: 65536 }));
        assert_eq!(
            list.write_interleaved(1, &[stream(1, 0); 8]),
            Err(ConfigError::TooManyEntries { max: 8 })
        );
        assert_eq!((list.entries(), list.length()), (5, 7 * cycle));
        // `Mapped` keeps the length in the low 62 bits of a word. A longer length would overlap its flag
        // bits.
        let mut long = std::vec![Wqebb::ZERO; RegisteredList::blocks_for(16_386)];
        let mut long = RegisteredList::new(&mut long, 0x7f00_0000_0800, KEY).unwrap();
        let streams = std::vec![stream(65535, 0); 16_385];
        long.write_interleaved(u32::MAX - 1, &streams[..16_384]).unwrap();
        let most = long.length();
        assert_eq!(most & Mapped::MAX_BYTES, most);
        let refused = long.write_interleaved(u32::MAX, &streams);
        assert_eq!(refused, Err(ConfigError::LengthOver62Bits { pebibytes: 4096 }));
        assert_eq!((long.entries(), long.length()), (16_385, most));
        list.write(&[entry(1)]).unwrap();
        assert!(!list.is_interleaved() && list.check_list().is_ok());
    }

    #[test]
    fn m79_lists_that_cannot_be_are_refused() {
        let mut memory = [Wqebb::ZERO; 3];
        for past in [0x7ff, 0x400, 1] {
            let refused = RegisteredList::new(&mut memory, 0x1800 + u64::from(past), KEY);
            assert_eq!(refused.map(|list| list.entries()), Err(ConfigError::ListAddress { past }));
        }
        let mut list = RegisteredList::new(&mut memory, 0, KEY).unwrap();
        list.write(&[entry(1); 4]).unwrap();
        assert_eq!(list.write(&[entry(1); 5]), Err(ConfigError::TooManyEntries { max: 4 }));
        for length in [0, (1 << 31) + 1] {
            assert_eq!(
                list.write(&[entry(1), entry(length)]),
                Err(ConfigError::EntryLength { index: 1, length })
            );
        }
        assert_eq!((list.entries(), list.length()), (4, 4));
        let mut many = std::vec![Wqebb::ZERO; 16386];
        let list = RegisteredList::new(&mut many, 0, KEY).unwrap();
        assert_eq!(list.capacity(), 65532);
        assert_eq!(RegisteredList::new(&mut [], 0, KEY).unwrap().capacity(), 0);
    }
}
