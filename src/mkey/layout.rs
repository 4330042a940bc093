//! The ranges of memory that an mkey maps, and their order in its space.

use crate::types::Key;
use crate::wire::klm::Klm;
use crate::wire::strided::StridedEntry;
use zerocopy::{Immutable, IntoBytes};

/// One entry of a list layout (PRM `klm`). The memory layout is that of `struct ibv_sge`.
///
/// Posting refuses a length outside of 1 to [`KlmEntry::MAX_BYTES`].
///
/// ```
/// use mlx5_mkey::{mkey::KlmEntry, types::Key};
/// let entry = KlmEntry { address: 0x7f00_0000_1000, length: 4096, key: Key::from_raw(0x1234_00) };
/// assert!(entry.length <= KlmEntry::MAX_BYTES);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
#[derive(IntoBytes, Immutable)]
#[repr(C)]
pub struct KlmEntry {
    /// Address of the first byte (`addr` of `struct ibv_sge`): the virtual address that the memory region was
    /// registered with. For an mkey or a zero-based region, the address is an offset.
    pub address: u64,
    /// Length in bytes, 1 to [`KlmEntry::MAX_BYTES`].
    pub length: u32,
    /// Key of the memory: the local key (`lkey`) of a memory region, or the key of an mkey.
    pub key: Key,
}

impl KlmEntry {
    /// The largest length of an entry in bytes, 2 GiB (rdma-core `set_bind_wr`: "KLM support only 2GB").
    pub const MAX_BYTES: u32 = Klm::MAX_BYTES;

    /// Returns the number and the length of the first entry with an invalid length.
    pub(crate) fn wrong_length(entries: &[Self]) -> Option<(usize, u32)> {
        Self::first_wrong(entries.iter().map(|entry| entry.length))
    }

    /// Returns the number and the value of the first invalid length.
    pub(crate) fn first_wrong(lengths: impl Iterator<Item = u32>) -> Option<(usize, u32)> {
        lengths.enumerate().find(|(_, length)| !(1..=Self::MAX_BYTES).contains(length))
    }

    /// Returns the entry in wire form.
    pub(crate) fn to_wire(self) -> Klm {
        Klm { byte_count: self.length.into(), mkey: self.key.get().into(), address: self.address.into() }
    }
}

/// One stream of an interleaved layout (`struct mlx5dv_mr_interleaved`). Each cycle maps the stream's next
/// `bytes` bytes, and then skips `skip` bytes.
///
/// The stride, `bytes + skip`, is at most 65,535. For a larger one, posting returns
/// [`ConfigError::StrideOver16Bits`](crate::error::ConfigError::StrideOver16Bits). This is the only check:
/// `bytes` may even be 0.
///
/// ```
/// use mlx5_mkey::mkey::{InterleavedEntry, Layout};
/// use mlx5_mkey::types::Key;
/// // One buffer has blocks of 512 bytes, another one the 8 bytes of each block. The mkey maps 8 blocks, each
/// // followed by its 8 bytes.
/// let blocks = InterleavedEntry { address: 0x1_0000, bytes: 512, skip: 0, key: Key::from_raw(0x5600) };
/// let fields = InterleavedEntry { address: 0x2_0000, bytes: 8, skip: 0, key: Key::from_raw(0x5700) };
/// let layout = Layout::Interleaved { repeat: 8, entries: &[blocks, fields] };
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
#[repr(C)]
pub struct InterleavedEntry {
    /// Address of the first byte (`addr` of `struct ibv_sge`): the virtual address that the memory region was
    /// registered with. For an mkey or a zero-based region, the address is an offset.
    pub address: u64,
    /// Number of bytes that each cycle maps.
    pub bytes: u16,
    /// Number of bytes between the end of one cycle's bytes and the beginning of the next cycle's.
    pub skip: u16,
    /// Key of the memory: the local key (`lkey`) of a memory region, or the key of an mkey.
    pub key: Key,
}

impl InterleavedEntry {
    /// Returns the number and the stride of the first entry whose stride has more than 16 bits.
    pub(crate) fn wrong_stride(entries: &[Self]) -> Option<(usize, u32)> {
        let strides = entries.iter().map(|entry| u32::from(entry.bytes) + u32::from(entry.skip));
        strides.enumerate().find(|(_, stride)| *stride > u32::from(u16::MAX))
    }

    /// Returns the entry in wire form, with the low 16 bits of its stride.
    pub(crate) fn to_wire(self) -> StridedEntry {
        StridedEntry {
            stride: self.bytes.wrapping_add(self.skip).into(),
            byte_count: self.bytes.into(),
            mkey: self.key.get().into(),
            address: self.address.into(),
        }
    }
}

/// The memory that an mkey maps.
///
/// Slices and arrays of [`KlmEntry`] convert to a list layout. Two limits apply: the mkey's room for entries
/// ([`MkeyAttributes::max_entries`](super::MkeyAttributes::max_entries)), and the room of a request for
/// layout and BSFs (`max_inline_data` of the queue plus 4 bytes). In a request with BSFs, the layout counts
/// with its padding to 64 bytes, and each BSF counts 64 bytes.
///
/// ```
/// use mlx5_mkey::mkey::{KlmEntry, Layout};
/// use mlx5_mkey::types::Key;
/// let key = Key::from_raw(0x5600);
/// let entries = [0x1_0000, 0x9_0000].map(|address| KlmEntry { address, length: 4096, key });
/// assert_eq!(Layout::from(&entries), Layout::List(&entries));
/// // For a configuration that changes access rights only.
/// let same = Layout::Unchanged;
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub enum Layout<'a> {
    /// The layout in force stays.
    #[default]
    Unchanged,
    /// The mkey maps the entries one after the other (`mlx5dv_wr_set_mkey_layout_list`).
    ///
    /// The device distinguishes a list from an interleaved layout by bytes 4 to 7 of the first entry. In a
    /// list, they are a key. A list that begins with key 0x400 would count as an interleaved layout, but no
    /// device gives out this key.
    List(&'a [KlmEntry]),
    /// The mkey maps `repeat` cycles, each of which maps the next bytes of each entry in turn
    /// (`mlx5dv_wr_set_mkey_layout_interleaved`).
    Interleaved {
        /// Number of cycles. Posting accepts any number.
        repeat: u32,
        /// The streams, in the order in which a cycle maps them.
        entries: &'a [InterleavedEntry],
    },
}

/// The kind and the size of a layout.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct LayoutForm {
    pub(crate) kind: LayoutKind,
    /// Number of translation entries, with the header of an interleaved layout. Each takes one octoword.
    pub(crate) octowords: usize,
}

/// The kind of a layout that a request writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub(crate) enum LayoutKind {
    /// The request writes no layout, so the layout in force stays.
    Unchanged,
    List,
    Interleaved,
}

impl<'a> From<&'a [KlmEntry]> for Layout<'a> {
    #[inline]
    fn from(entries: &'a [KlmEntry]) -> Self {
        Self::List(entries)
    }
}

impl<'a, const N: usize> From<&'a [KlmEntry; N]> for Layout<'a> {
    #[inline]
    fn from(entries: &'a [KlmEntry; N]) -> Self {
        Self::List(entries)
    }
}
