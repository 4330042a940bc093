//! Sizes of rings and completion queues.

/// The fill byte of the reference's ring.
pub(super) const PATTERN: u8 = 0xcc;
/// The smallest and the largest ring of the reference, in blocks (powers of two).
pub(super) const MIN_BLOCKS: usize = 4;
pub(super) const MAX_BLOCKS: usize = 1 << 15;
/// Number of ring sizes.
pub(super) const SIZES: usize = (MAX_BLOCKS / MIN_BLOCKS).ilog2() as usize + 1;
/// The number of entries that the reference requests for its completion queue.
pub(super) const ENTRIES: u16 = 1000;
/// The most completions that are taken at once.
pub(super) const COMPLETIONS: usize = 512;
