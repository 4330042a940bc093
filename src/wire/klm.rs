//! The translation entry of a list layout (PRM `klm`).

use crate::types::{Key, OutOfRange};
use zerocopy::big_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// One piece of memory behind an mkey, 16 bytes (PRM `klm`, `struct mlx5_wqe_umr_klm_seg`).
///
/// Held in wire form from the moment it is made, so that posting copies it.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[repr(C)]
pub struct Klm {
    /// Length in bytes.
    pub byte_count: U32,
    /// Key of the memory region that holds the piece.
    pub mkey: U32,
    /// Address of the first byte.
    pub address: U64,
}

impl Klm {
    /// The longest piece, in bytes: 2 GiB (rdma-core `set_bind_wr`: "KLM support only 2GB").
    pub const MAX_BYTES: u32 = 1 << 31;

    /// The entry that fills a list up to a whole block.
    pub const PADDING: Self = Self { byte_count: U32::ZERO, mkey: U32::ZERO, address: U64::ZERO };

    /// Describes `length` bytes at `address` in the memory region with key `lkey`.
    ///
    /// # Errors
    /// [`OutOfRange`] for a length of 0 (no device source says that it maps nothing) or over [`Klm::MAX_BYTES`].
    ///
    /// ```
    /// use mlx5_mkey::{types::Key, wire::klm::Klm};
    /// let piece = Klm::new(0x7f00_0000_1000, 4096, Key::from_raw(0x1234_00))?;
    /// assert_eq!(piece.byte_count.get(), 4096);
    /// # Ok::<(), mlx5_mkey::types::OutOfRange>(())
    /// ```
    pub const fn new(address: u64, length: u32, lkey: Key) -> Result<Self, OutOfRange> {
        if length == 0 || length > Self::MAX_BYTES {
            return Err(OutOfRange {
                what: "entry length (1 or more)",
                value: length as u64,
                max: Self::MAX_BYTES as u64,
            });
        }
        Ok(Self { byte_count: U32::new(length), mkey: U32::new(lkey.get()), address: U64::new(address) })
    }
}

crate::fmt::defmt_as_bytes!(Klm);

const _: () = assert!(size_of::<Klm>() == 16);
