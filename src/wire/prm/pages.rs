//! Requests with a list of pages behind them (PRM `pas`): addresses of memory as the device reaches it.

use zerocopy::big_endian::U64;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// A request, or a reply, and the pages behind it. The low 12 bits of an address are 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct WithPages<T, const PAGES: usize> {
    /// What comes first.
    pub first: T,
    /// Addresses.
    pub pages: [U64; PAGES],
}

#[cfg(feature = "defmt")]
impl<T: defmt::Format, const PAGES: usize> defmt::Format for WithPages<T, PAGES> {
    fn format(&self, f: defmt::Formatter<'_>) {
        defmt::write!(f, "{} {=[u8]:02x}", self.first, self.pages.as_bytes());
    }
}

const _: () = assert!(size_of::<WithPages<[u8; 16], 3>>() == 40);
const _: () = assert!(core::mem::offset_of!(WithPages<[u8; 16], 3>, pages) == 16);
