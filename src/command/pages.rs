//! Memory by the addresses that the device reaches it at, in pages: for rings where nobody registers user
//! memory.

use super::LogPageSize;
use crate::error::CommandError;
use zerocopy::big_endian::U64;

/// Refuses an address that is not a multiple of `alignment`, a power of two.
pub(super) const fn aligned(what: &'static str, address: u64, alignment: u64) -> Result<(), CommandError> {
    if address & (alignment - 1) == 0 {
        Ok(())
    } else {
        Err(CommandError::Misaligned { what, address, alignment })
    }
}

/// Pages of memory, one behind the other as the device sees them: their addresses on the bus (PRM `pas`).
///
/// Memory that is contiguous there can be one large page, where it is aligned to that.
///
/// ```
/// use mlx5_mkey::command::{LogPageSize, PageList};
/// let pages = PageList::new(LogPageSize::P4K, [0x8000_0000, 0x8000_5000])?;
/// assert_eq!(pages.bytes(), 8192);
/// let pages = PageList::new(LogPageSize::P4K, [0x8000_0000, 0x8000_1000])?;
/// assert_eq!(PageList::contiguous(LogPageSize::P4K, 0x8000_0000)?, pages);
/// let error = PageList::new(LogPageSize::P64K, [0x8000_1000]).unwrap_err();
/// assert_eq!(error.to_string(), "page at 0x80001000: its address is no multiple of 65536");
/// # Ok::<(), mlx5_mkey::error::CommandError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct PageList<const PAGES: usize> {
    size: LogPageSize,
    addresses: [u64; PAGES],
}

impl<const PAGES: usize> PageList<PAGES> {
    /// Takes pages of one size.
    ///
    /// # Errors
    /// [`CommandError::Misaligned`] where one does not begin at a multiple of it.
    pub const fn new(size: LogPageSize, addresses: [u64; PAGES]) -> Result<Self, CommandError> {
        let mut rest = addresses.as_slice();
        while let [address, behind @ ..] = rest {
            if let Err(error) = aligned("page", *address, 1 << size.get()) {
                return Err(error);
            }
            rest = behind;
        }
        Ok(Self { size, addresses })
    }

    /// Takes pages that begin at one address and follow each other.
    ///
    /// # Errors
    /// As [`PageList::new`].
    pub fn contiguous(size: LogPageSize, first: u64) -> Result<Self, CommandError> {
        Self::new(size, core::array::from_fn(|page| first.wrapping_add((page as u64) << size.get())))
    }

    /// Returns the bytes of all pages.
    pub const fn bytes(&self) -> u64 {
        (PAGES as u64) << self.size.get()
    }

    /// Returns the size of a page.
    pub const fn size(&self) -> LogPageSize {
        self.size
    }

    /// Returns the addresses.
    pub const fn addresses(&self) -> &[u64; PAGES] {
        &self.addresses
    }

    /// Returns the addresses as a request carries them.
    pub(super) fn to_wire(self) -> [U64; PAGES] {
        self.addresses.map(U64::new)
    }

    /// Refuses pages that are too few.
    pub(super) const fn hold(&self, needed: u64) -> Result<(), CommandError> {
        let bytes = self.bytes();
        if bytes < needed { Err(CommandError::TooFewPages { bytes, needed }) } else { Ok(()) }
    }
}
