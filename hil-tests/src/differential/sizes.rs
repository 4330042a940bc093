//! Sizes of rings and completion queues in the differential test.

/// The byte that fills libmlx5's ring before each chain of requests.
pub(super) const PATTERN: u8 = 0xcc;
/// The smallest and the largest ring of libmlx5, in blocks (powers of two).
pub(super) const MIN_BLOCKS: usize = 4;
pub(super) const MAX_BLOCKS: usize = 1 << 15;
/// Number of ring sizes from `MIN_BLOCKS` to `MAX_BLOCKS`, both included.
pub(super) const SIZES: usize = (MAX_BLOCKS / MIN_BLOCKS).ilog2() as usize + 1;
/// The number of entries that the test requests for libmlx5's completion queue.
pub(super) const ENTRIES: u16 = 1000;
/// The most completions that are passed to libmlx5 and the library at once.
pub(super) const COMPLETIONS: usize = 512;
