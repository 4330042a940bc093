//! The device's access to memory. A ring may consist of pages anywhere in memory. The bus gives such a ring a
//! window: a range of addresses in which its pages follow each other. Readers of rings therefore need no list
//! of pages.

use crate::memory::{Fault, Memory};
use alloc::collections::BTreeMap;
use alloc::vec::Vec;

/// The first address of windows. Memory of the host has lower addresses only.
const FIRST: u64 = 1 << 63;

/// The bytes between the beginnings of two windows. No window is longer.
const APART: u64 = 1 << 32;

/// The pages of a window, each of `1 << log_page` bytes. The window begins at an offset into the first page.
#[derive(Debug)]
struct Window {
    pages: Vec<u64>,
    log_page: u8,
    offset: u64,
}

impl Window {
    /// Calls `access` for each part of the range of `length` bytes at offset `from` of the window. A part
    /// does not cross the end of a page. `access` gets the address of the part in memory, and its place in
    /// the range.
    fn pieces(
        &self,
        from: u64,
        length: usize,
        mut access: impl FnMut(u64, core::ops::Range<usize>) -> Result<(), Fault>,
    ) -> Result<(), Fault> {
        let fault = Fault { address: from, length: length as u64 };
        let page = 1_u64 << self.log_page;
        let (mut at, mut done) = (self.offset.checked_add(from).ok_or(fault)?, 0_usize);
        while done < length {
            let number = usize::try_from(at >> self.log_page).map_err(|_| fault)?;
            let inside = at & (page - 1);
            let piece = (page - inside).min((length - done) as u64);
            let address = self.pages.get(number).and_then(|first| first.checked_add(inside)).ok_or(fault)?;
            let end = done + piece as usize;
            access(address, done..end)?;
            (at, done) = (at + piece, end);
        }
        Ok(())
    }
}

/// Memory of the host, and windows over its pages.
#[derive(Debug)]
pub(crate) struct Bus<M> {
    pub(crate) host: M,
    windows: BTreeMap<u64, Window>,
    /// The first address of the next window.
    next: u64,
}

impl<M> Bus<M> {
    pub(crate) const fn new(host: M) -> Self {
        Self { host, windows: BTreeMap::new(), next: FIRST }
    }

    /// Returns the address of a ring that begins `offset` bytes into the first of these pages. If the pages
    /// follow each other, the address is in memory. Otherwise the ring gets a new window. Returns `None` if
    /// no address is left for a window, or if the pages are larger than a window.
    pub(crate) fn open(&mut self, pages: &[u64], log_page: u8, offset: u64) -> Option<u64> {
        let (first, page) = (*pages.first()?, 1_u64.checked_shl(log_page.into())?);
        let mut numbered = pages.iter().zip(0_u64..);
        if numbered
            .all(|(at, number)| number.checked_mul(page).and_then(|far| first.checked_add(far)) == Some(*at))
        {
            return first.checked_add(offset);
        }
        let bytes = page.checked_mul(pages.len() as u64).filter(|bytes| *bytes <= APART);
        let address = bytes.map(|_| self.next)?;
        self.next = address.checked_add(APART)?;
        self.windows.insert(address, Window { pages: pages.to_vec(), log_page, offset });
        Some(address)
    }

    /// Removes the window that begins at an address, if there is one.
    pub(crate) fn close(&mut self, address: u64) {
        self.windows.remove(&address);
    }

    /// Removes all windows.
    pub(crate) fn close_all(&mut self) {
        self.windows.clear();
    }

    /// Returns the last window that begins at an address or before it, and the offset of the address from
    /// this beginning. Behind the end of the window, the window has no page.
    fn window(&self, address: u64) -> Option<(&Window, u64)> {
        if address < FIRST {
            return None;
        }
        let (first, window) = self.windows.range(..=address).next_back()?;
        Some((window, address - first))
    }
}

impl<M: Memory> Memory for Bus<M> {
    fn read(&self, address: u64, out: &mut [u8]) -> Result<(), Fault> {
        let Some((window, from)) = self.window(address) else { return self.host.read(address, out) };
        window.pieces(from, out.len(), |at, range| self.host.read(at, out.get_mut(range).unwrap_or_default()))
    }

    fn write(&mut self, address: u64, bytes: &[u8]) -> Result<(), Fault> {
        let mut pieces = Vec::new();
        match self.window(address) {
            None => return self.host.write(address, bytes),
            Some((window, from)) => window.pieces(from, bytes.len(), |at, range| {
                pieces.push((at, range));
                Ok(())
            })?,
        }
        pieces
            .into_iter()
            .try_for_each(|(at, range)| self.host.write(at, bytes.get(range).unwrap_or_default()))
    }

    fn publish(&mut self, address: u64, byte: u8) -> Result<(), Fault> {
        let mut place = address;
        if let Some((window, from)) = self.window(address) {
            window.pieces(from, 1, |at, _| {
                place = at;
                Ok(())
            })?;
        }
        self.host.publish(place, byte)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::Arena;
    use alloc::vec;

    const LOG_PAGE: u8 = 12;

    #[test]
    fn pages_in_any_order_are_one_range() {
        let mut bus = Bus::new(Arena::new(0x1000, 0x4000));
        let ring = bus.open(&[0x3000, 0x1000, 0x4000], LOG_PAGE, 0xf80).unwrap();
        let bytes: Vec<u8> = (0..0x1100_u32).map(|at| (at * 7) as u8).collect();
        assert_eq!(bus.write(ring, &bytes), Ok(()));
        let host = |at: u64, length: usize| bus.host.bytes(at, length).unwrap();
        assert_eq!(host(0x3f80, 0x80), &bytes[..0x80]);
        assert_eq!(host(0x1000, 0x1000), &bytes[0x80..0x1080]);
        assert_eq!(host(0x4000, 0x80), &bytes[0x1080..]);
        let mut back = vec![0; bytes.len()];
        assert_eq!(bus.read(ring, &mut back), Ok(()));
        assert_eq!(back, bytes);
        assert_eq!(bus.publish(ring + 0x1080, 0x99), Ok(()));
        assert_eq!(bus.host.bytes(0x4000, 1), Some(&[0x99][..]));
        // No page follows the last one, so the window ends there.
        assert!(bus.read(ring + 0x2080, &mut [0]).is_err());
        assert!(bus.write(ring + 0x207f, &[0; 2]).is_err());
        assert!(bus.read(ring + APART, &mut [0]).is_err());
        bus.close(ring);
        assert!(bus.read(ring, &mut [0]).is_err());
        let ring = bus.open(&[0x3000, 0x1000], LOG_PAGE, 0).unwrap();
        assert!(bus.read(ring, &mut [0]).is_ok());
        bus.close_all();
        assert!(bus.read(ring, &mut [0]).is_err());
    }

    #[test]
    fn pages_that_follow_each_other_need_no_window() {
        let mut bus = Bus::new(Arena::new(0x1000, 0x4000));
        assert_eq!(bus.open(&[0x2000, 0x3000], LOG_PAGE, 0x40), Some(0x2040));
        assert_eq!(bus.open(&[], LOG_PAGE, 0), None);
        // Two pages of 4 GiB do not fit a window.
        assert_eq!(bus.open(&[0, 0], 32, 0), None);
        assert_eq!(bus.open(&[u64::MAX - 0xfff, 0], LOG_PAGE, 0).map(|at| at & 0xffff_ffff), Some(0));
    }
}
