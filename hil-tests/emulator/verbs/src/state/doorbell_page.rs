//! Doorbell pages that UAR_ALLOC makes. The device reads them only for queue pairs without a doorbell record
//! for requests (PRM `send_dbr_mode`): the other queue pairs announce requests by their records.

use crate::ground::errno::Errno;
use crate::ground::sys::{self, Mapping};
use mlx5_softdev::announced;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};

/// The bytes of a page.
const PAGE: u64 = 4096;

/// The offset, behind the page itself, of the word that stands for the doorbell record of the page's queue
/// pair without a record.
const RECORD: u64 = PAGE;

/// The offsets of the send doorbells in a page (`DB_BF_DBR_LESS_BUF_OFFSET` of rdma-core's tests, and the
/// buffers of `MLX5_BF_OFFSET` of Linux, which drivers use in turn).
const DOORBELLS: [u64; 5] = [0x600, 0x800, 0x900, 0xa00, 0xb00];

/// A doorbell page, which the program maps, and the word that only the device knows.
#[derive(Debug)]
pub(crate) struct DoorbellPage {
    file: OwnedFd,
    bytes: Mapping,
}

impl DoorbellPage {
    /// Makes a page of zeros.
    ///
    /// # Errors
    /// [`Errno::NOMEM`] if no memory or no descriptor is left.
    pub(crate) fn new() -> Result<Self, Errno> {
        let file = sys::memory(c"mlx5-doorbells", 2 * PAGE)?;
        let bytes = Mapping::new(file.as_raw_fd(), 2 * PAGE, true)?;
        Ok(Self { file, bytes })
    }

    /// Returns the file whose first page the program maps.
    pub(crate) fn descriptor(&self) -> RawFd {
        self.file.as_raw_fd()
    }

    /// Returns the address of the word that stands for the doorbell record.
    pub(crate) fn record(&self) -> u64 {
        self.bytes.address() + RECORD
    }

    /// Forgets all doorbells. The caller ensures that the queue pair executes no requests.
    pub(crate) fn clear(&self) {
        DOORBELLS.iter().chain([&RECORD]).for_each(|at| self.bytes.store(*at, 0));
    }

    /// Brings the word that stands for the doorbell record up to date with the doorbells of the queue pair
    /// `number`, whose send ring has `blocks` blocks. Ignores a doorbell that announces no new request, or
    /// more than the ring has.
    pub(crate) fn take(&self, number: u32, blocks: u32) {
        let before = self.word(RECORD) as u16;
        let news = DOORBELLS.iter().filter_map(|at| {
            let word = self.word(*at);
            let (queue_pair, end) = announced((word >> 32) as u32, word as u32);
            let new = end.wrapping_sub(before);
            (queue_pair == number && (1..=blocks).contains(&new.into())).then_some(new)
        });
        if let Some(new) = news.max() {
            self.bytes.store(RECORD, u64::from(before.wrapping_add(new)).to_be());
        }
    }

    /// Returns a word of the page, which is in big endian.
    fn word(&self, at: u64) -> u64 {
        u64::from_be(self.bytes.load(at))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn doorbells_announce_blocks_of_their_queue_pair() {
        let page = DoorbellPage::new().unwrap();
        let ring = |at, index: u16, number: u32, octowords: u8| {
            let [high, low] = index.to_be_bytes();
            let [_, a, b, c] = number.to_be_bytes();
            page.bytes.store(at, u64::from_ne_bytes([0, high, low, 0, a, b, c, octowords]));
            page.take(7, 16);
            page.word(RECORD)
        };
        assert_eq!(ring(0x600, 0, 7, 4), 1, "the beginning of a request of one block");
        assert_eq!(ring(0x800, 1, 7, 5), 3, "of two blocks");
        assert_eq!(ring(0x900, 5, 7, 0), 5, "the next block");
        assert_eq!(ring(0x800, 4, 7, 0), 5, "an older doorbell");
        assert_eq!(ring(0xa00, 22, 7, 0), 5, "more than the ring has");
        assert_eq!(ring(0xa00, 6, 8, 0), 5, "of another queue pair");
        assert_eq!(ring(0xb00, 21, 7, 0), 21);
        assert_eq!(ring(0xc00, 22, 7, 0), 21, "not a doorbell");
        page.clear();
        assert_eq!(ring(0x600, 1, 7, 0), 1);
    }
}
