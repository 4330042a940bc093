//! Requests and replies that end with a list of pages (PRM `pas`), which are bus addresses of memory.

use zerocopy::big_endian::U64;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// A request or a reply, and the list of pages after it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct WithPages<T, const PAGES: usize> {
    /// The request or the reply.
    pub first: T,
    /// Bus addresses of the pages. Their low 12 bits are 0.
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
