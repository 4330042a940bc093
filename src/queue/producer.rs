//! The producer's side of a send queue: reserves free blocks, and takes them over once they are written.

#![allow(unsafe_code)]

use super::ring::Ring;
use crate::error::PostError;
use crate::wire::{Block, MAX_WHOLE_BLOCKS, Wqebb, ZEROS};

/// The most blocks that are reserved at once: a UMR and its two SET_PSVs, or one data-path request.
const MAX_BLOCKS: usize = MAX_WHOLE_BLOCKS + 2;

/// Writes whole blocks into a ring, one after the other.
///
/// Blocks are counted from the queue pair's start. Those from the producer on are not the device's to read: nothing that is
/// written there counts before it is committed.
pub(super) struct SqProducer<'r> {
    ring: Ring<'r, Wqebb>,
    /// The first block that is not committed.
    producer: u64,
    /// Up to this block, all blocks from `producer` on are free and contiguous, and no limit stands against filling them. Where
    /// it is before `producer`, none are known to be.
    contiguous_end: u64,
    /// The same, but that the ring's end may come in between.
    free_end: u64,
    /// Takes what does not fit before the ring's end. [`SqProducer::commit_reserved`] copies it.
    scratch: [Block; MAX_BLOCKS],
}

impl<'r> SqProducer<'r> {
    /// Goes on filling a ring at this block.
    pub(super) const fn new(ring: Ring<'r, Wqebb>, producer: u64) -> Self {
        Self { ring, producer, contiguous_end: producer, free_end: producer, scratch: [ZEROS; MAX_BLOCKS] }
    }

    /// Returns the ring.
    pub(super) const fn ring(&self) -> &Ring<'r, Wqebb> {
        &self.ring
    }

    /// Returns the ring, to change blocks that are committed.
    pub(super) const fn ring_mut(&mut self) -> &mut Ring<'r, Wqebb> {
        &mut self.ring
    }

    /// Returns the first block that is not committed.
    #[inline]
    pub(super) const fn producer(&self) -> u64 {
        self.producer
    }

    /// Returns how many blocks are free, where those from `tail` on are not.
    pub(super) const fn free(&self, tail: u64) -> u64 {
        tail + self.ring.len() as u64 - self.producer
    }

    /// Reserves blocks to write, if they are known to be free and contiguous. [`SqProducer::commit`] takes them over.
    #[inline(always)]
    pub(super) fn reserve_at_once(&mut self, blocks: usize) -> Option<&mut [Block]> {
        if self.producer + blocks as u64 > self.contiguous_end {
            return None;
        }
        let first = self.ring.block(self.producer);
        // SAFETY: all blocks from `producer` to `contiguous_end` are free, that is not the device's, and before the ring's end
        // (`reserve`). Nobody else uses them while `self` is borrowed, and they are plain bytes.
        Some(unsafe { core::slice::from_raw_parts_mut(first, blocks) })
    }

    /// Reserves blocks to write, where those from `tail` on are not free yet, and notes how many are free and contiguous: at
    /// most `requests`, the work requests that may still be posted. Each has a block or more, so that their number needs no
    /// check of its own. [`SqProducer::commit_reserved`] takes the blocks over.
    ///
    /// # Errors
    /// [`PostError::RingFull`].
    pub(super) fn reserve(
        &mut self,
        blocks: usize,
        tail: u64,
        requests: u32,
    ) -> Result<&mut [Block], PostError> {
        let free = self.free(tail);
        let full = PostError::RingFull { needed: blocks as u16, free: free as u16 };
        if blocks as u64 > free {
            return Err(full);
        }
        self.free_end = self.producer + free.min(requests.into());
        self.contiguous_end = self.ring_end().min(self.free_end);
        if self.producer + blocks as u64 <= self.ring_end() {
            // SAFETY: as in `reserve_at_once`.
            return Ok(unsafe { core::slice::from_raw_parts_mut(self.ring.block(self.producer), blocks) });
        }
        Ok(self.scratch(blocks))
    }

    /// Returns blocks to write that are in no ring.
    pub(super) fn scratch(&mut self, blocks: usize) -> &mut [Block] {
        self.scratch.get_mut(..blocks).unwrap_or_default()
    }

    /// Returns the first block behind the ring's end: its length is a power of two.
    const fn ring_end(&self) -> u64 {
        (self.producer | self.ring.last()) + 1
    }

    /// Takes over blocks that were reserved at once and are written.
    #[inline(always)]
    pub(super) const fn commit(&mut self, blocks: usize) {
        self.producer += blocks as u64;
    }

    /// Takes over blocks that were reserved and are written.
    pub(super) fn commit_reserved(&mut self, blocks: usize) {
        if self.producer + blocks as u64 > self.ring_end() {
            self.copy_scratch(blocks);
        }
        self.commit(blocks);
        self.contiguous_end = self.ring_end().min(self.free_end);
    }

    /// Copies blocks that do not fit before the ring's end to both sides of it.
    fn copy_scratch(&mut self, blocks: usize) {
        for (at, block) in (self.producer..).zip(self.scratch.iter().take(blocks)) {
            self.ring.write(at, zerocopy::transmute!(*block));
        }
    }
}

crate::fmt::format_counters!(['r] SqProducer ['r] { producer });
