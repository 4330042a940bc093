//! Lists of memory pages, named by their bus addresses. Commands contain such a list for a ring on bare
//! metal, where no kernel registers user memory.

use super::LogPageSize;
use crate::command::error::CommandError;
use zerocopy::big_endian::U64;

/// Checks that an address is a multiple of `alignment`, a power of two. `what` names the object at the
/// address, for the error.
pub(super) const fn aligned(what: &'static str, address: u64, alignment: u64) -> Result<(), CommandError> {
    if address & (alignment - 1) == 0 {
        Ok(())
    } else {
        Err(CommandError::Misaligned { what, address, alignment })
    }
}

/// The bus addresses of memory pages, which the device uses one after the other as one ring (PRM `pas`).
///
/// Memory that is contiguous on the bus can be one large page, if it is aligned to the page's size.
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
    /// Creates a list from the addresses of pages that all have one size.
    ///
    /// # Errors
    /// [`CommandError::Misaligned`] for a page whose address is no multiple of the size.
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

    /// Creates a list of pages that follow each other on the bus, from the address of the first.
    ///
    /// # Errors
    /// The errors of [`PageList::new`].
    pub fn contiguous(size: LogPageSize, first: u64) -> Result<Self, CommandError> {
        Self::new(size, core::array::from_fn(|page| first.wrapping_add((page as u64) << size.get())))
    }

    /// Returns the length of all pages in bytes.
    pub const fn bytes(&self) -> u64 {
        (PAGES as u64) << self.size.get()
    }

    /// Returns the size of a page.
    pub const fn size(&self) -> LogPageSize {
        self.size
    }

    /// Returns the bus addresses of the pages.
    pub const fn addresses(&self) -> &[u64; PAGES] {
        &self.addresses
    }

    /// Returns the addresses as commands contain them: 64 bits, big endian.
    pub(super) fn to_wire(self) -> [U64; PAGES] {
        self.addresses.map(U64::new)
    }

    /// Checks that the pages have at least `needed` bytes in total.
    pub(super) const fn hold(&self, needed: u64) -> Result<(), CommandError> {
        let bytes = self.bytes();
        if bytes < needed { Err(CommandError::TooFewPages { bytes, needed }) } else { Ok(()) }
    }
}
