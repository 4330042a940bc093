//! The producer's side of a send queue: reserves free blocks, and commits them once they are written.

#![allow(unsafe_code)]

use super::ring::Ring;
use crate::error::PostError;
use crate::wire::{Block, MAX_WHOLE_BLOCKS, Wqebb, ZEROS};

/// The most blocks that are reserved at once: a UMR and its two SET_PSVs, or one data-path request.
const MAX_BLOCKS: usize = MAX_WHOLE_BLOCKS + 2;

/// Hands out blocks of a ring to write, one after the other.
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
    /// Takes what does not fit before the ring's end. [`SqProducer::commit_checked`] copies it.
    scratch: [Block; MAX_BLOCKS],
}

impl<'r> SqProducer<'r> {
    /// Goes on filling a ring at this block.
    pub(super) const fn new(ring: Ring<'r, Wqebb>, producer: u64) -> Self {
        Self { ring, producer, contiguous_end: producer, free_end: producer, scratch: [ZEROS; MAX_BLOCKS] }
    }

    /// Begins anew at block 0.
    pub(super) const fn restart(&mut self) {
        (self.producer, self.contiguous_end, self.free_end) = (0, 0, 0);
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

    /// Returns whether this many blocks are known to be free and contiguous.
    #[inline]
    pub(super) const fn is_known_free(&self, blocks: usize) -> bool {
        self.producer + blocks as u64 <= self.contiguous_end
    }

    /// Looks how many blocks are free and contiguous. Those from `tail` on are not free; at most as many are counted as work
    /// requests may still be posted.
    #[inline]
    pub(super) fn look(&mut self, tail: u64, requests: u32) {
        self.free_end = self.producer + self.free(tail).min(requests.into());
        self.contiguous_end = self.ring_end().min(self.free_end);
    }

    /// Reserves blocks to write, if they are known to be free and contiguous. [`SqProducer::commit_fast`] commits them.
    #[inline]
    pub(super) fn reserve_fast(&mut self, blocks: usize) -> Option<&mut [Block]> {
        if !self.is_known_free(blocks) {
            return None;
        }
        let first = self.ring.block(self.producer);
        // SAFETY: all blocks from `producer` to `contiguous_end` are free, that is not the device's, and before the ring's end:
        // `look` and `commit_checked` set it so, and `producer` only moves on. Nobody else uses them while `self` is borrowed, and
        // they are plain bytes.
        Some(unsafe { core::slice::from_raw_parts_mut(first, blocks) })
    }

    /// Reserves blocks to write, and says whether there is room: where `room` tells of a limit, or too few are free, there is none.
    /// They are blocks of the ring, or of the scratch space where there is no room or the ring's end comes in between.
    /// [`SqProducer::commit_checked`] commits them.
    ///
    /// # Errors
    /// [`PostError::SendRingFull`] for more blocks than any request has.
    pub(super) fn reserve_checked(
        &mut self,
        blocks: usize,
        tail: u64,
        room: Result<(), PostError>,
    ) -> Result<(&mut [Block], Result<(), PostError>), PostError> {
        let (free, ring_end) = (self.free(tail), self.ring_end());
        let full = PostError::SendRingFull { needed: blocks as u16, free: free as u16 };
        let room = room.and(if blocks as u64 > free { Err(full) } else { Ok(()) });
        let scratch = self.scratch.get_mut(..blocks).ok_or(full)?.as_mut_ptr();
        let in_ring = room.is_ok() && self.producer + blocks as u64 <= ring_end;
        let first = if in_ring { self.ring.block(self.producer) } else { scratch };
        // SAFETY: in the scratch space there are as many blocks. In the ring they are free (`room`), that is not the device's, and
        // before its end. Nobody else uses them while `self` is borrowed, and they are plain bytes.
        Ok((unsafe { core::slice::from_raw_parts_mut(first, blocks) }, room))
    }

    /// Returns the first block after the ring's end: its length is a power of two.
    #[inline]
    const fn ring_end(&self) -> u64 {
        (self.producer | self.ring.last()) + 1
    }

    /// Commits blocks that were reserved and are written, from the producer to the block before `end`.
    #[inline]
    pub(super) const fn commit_fast(&mut self, end: u64) {
        debug_assert!(self.producer <= end && end <= self.contiguous_end, "no more than was reserved");
        self.producer = end;
    }

    /// Commits blocks that were reserved and are written.
    pub(super) fn commit_checked(&mut self, blocks: usize) {
        if self.producer + blocks as u64 > self.ring_end() {
            self.copy_scratch(blocks);
        }
        self.producer += blocks as u64;
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
