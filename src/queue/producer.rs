//! The producer of a send queue: reserves free blocks of the ring, and commits the blocks once they are
//! written.

#![allow(unsafe_code)]

use super::in_flight::InFlight;
use super::ring::Ring;
use crate::wire::{Block, MAX_WHOLE_BLOCKS, Wqebb, ZEROS};
use crate::wqe::error::PostError;

/// The most blocks that are reserved at once: those of a UMR and its two SET_PSVs, or of one data-path
/// request.
const MAX_BLOCKS: usize = MAX_WHOLE_BLOCKS + 2;

/// Hands out blocks of a ring for writing, one after the other.
///
/// Blocks are counted from the queue pair's start. The device does not read blocks from the producer on:
/// their contents have no effect before they are committed.
pub(super) struct SqProducer<'r> {
    ring: Ring<'r, Wqebb>,
    /// The first block that is not committed.
    producer: u64,
    /// All blocks from `producer` up to this block are free and contiguous, and no limit of requests forbids
    /// filling them. If the value is less than `producer`, no block is known to be free.
    contiguous_end: u64,
    /// Holds a request that does not fit before the ring's end, until the request is committed.
    scratch: [Block; MAX_BLOCKS],
}

impl<'r> SqProducer<'r> {
    /// Makes a producer whose next block is number `producer`.
    pub(super) const fn new(ring: Ring<'r, Wqebb>, producer: u64) -> Self {
        Self { ring, producer, contiguous_end: producer, scratch: [ZEROS; MAX_BLOCKS] }
    }

    /// Starts again at block 0.
    pub(super) const fn restart(&mut self) {
        (self.producer, self.contiguous_end) = (0, 0);
    }

    /// Returns the ring.
    pub(super) const fn ring(&self) -> &Ring<'r, Wqebb> {
        &self.ring
    }

    /// Returns the ring, for changes of blocks that were committed or published.
    pub(super) const fn ring_mut(&mut self) -> &mut Ring<'r, Wqebb> {
        &mut self.ring
    }

    /// Returns a block that is committed and not published, for changes.
    pub(super) fn unpublished(&mut self, index: u64) -> &mut Block {
        // SAFETY: whatever the index, the pointer is that of a block of the ring (see `Ring::slot`): plain
        // bytes that need no alignment. Nobody else writes the block. A device reads a block only after the
        // doorbell record counts it. The caller names a block that was committed after the last count, and
        // the next count needs `self`, so it comes after this borrow.
        unsafe { &mut *self.ring.block(index) }
    }

    /// Returns the first block that is not committed.
    #[inline]
    pub(super) const fn producer(&self) -> u64 {
        self.producer
    }

    /// Returns how many blocks are free, if those from `tail` up to the producer are not.
    pub(super) const fn free(&self, tail: u64) -> u64 {
        tail + self.ring.len() as u64 - self.producer
    }

    /// Reserves blocks for writing: in the ring, or in scratch space if too few blocks are free before the
    /// ring's end.
    ///
    /// This call does not refuse a full ring; [`SqProducer::commit`] does. In between the request is written,
    /// which finds the reason why a request can never be posted. The user then gets this reason instead of a
    /// full ring.
    ///
    /// # Errors
    /// [`PostError::SendRingFull`] for more blocks than any request has. The error gives the most blocks of a
    /// request as free. No request of this library asks for more.
    #[inline]
    pub(super) fn reserve(
        &mut self,
        blocks: usize,
        in_flight: &InFlight<'_>,
    ) -> Result<&mut [Block], PostError> {
        let first = if self.is_known_free(blocks) || self.finds_free(blocks, in_flight) {
            self.ring.block(self.producer)
        } else if blocks <= MAX_BLOCKS {
            self.scratch.as_mut_ptr()
        } else {
            return Err(PostError::SendRingFull { needed: blocks as u16, free: MAX_BLOCKS as u16 });
        };
        // SAFETY: in the ring, all blocks from `producer` to `contiguous_end` are before the ring's end and
        // free: the device does not read them. `finds_free` or `copy_scratch` has computed `contiguous_end`
        // from the requests in flight of this queue. Since then `producer` has only moved on, or `restart`
        // has set both to 0, where no block is known to be free. The scratch space has at least `blocks`
        // blocks. Nobody else uses the blocks while `self` is borrowed, and they are plain bytes.
        Ok(unsafe { core::slice::from_raw_parts_mut(first, blocks) })
    }

    #[inline]
    const fn is_known_free(&self, blocks: usize) -> bool {
        self.producer + blocks as u64 <= self.contiguous_end
    }

    /// Determines how many free blocks are contiguous, and returns whether they are enough.
    #[inline]
    fn finds_free(&mut self, blocks: usize, in_flight: &InFlight<'_>) -> bool {
        // A queue with a limit of requests counts them when this request is committed.
        if in_flight.is_limited() {
            return false;
        }
        self.contiguous_end = self.ring_end().min(self.producer + self.free(in_flight.tail()));
        self.is_known_free(blocks)
    }

    /// Returns the block after the last one of this lap.
    #[inline]
    const fn ring_end(&self) -> u64 {
        // The ring's length is a power of two.
        (self.producer | self.ring.last()) + 1
    }

    /// Commits the reserved and written blocks of `requests` work requests. `end` is the block after the last
    /// one.
    ///
    /// # Errors
    /// [`PostError::TooManyRequests`], [`PostError::SendRingFull`].
    #[inline]
    pub(super) fn commit(
        &mut self,
        end: u64,
        requests: usize,
        in_flight: &mut InFlight<'_>,
    ) -> Result<(), PostError> {
        if end > self.contiguous_end {
            return self.copy_scratch(end, requests, in_flight);
        }
        self.producer = end;
        Ok(())
    }

    /// Commits blocks in the scratch space by copying them to the ring, on both sides of the ring's end if
    /// necessary. With a limit of requests, at most as many blocks are then known to be free as requests may
    /// still be posted, since a request may have only one block.
    #[cold]
    #[inline(never)]
    fn copy_scratch(
        &mut self,
        end: u64,
        requests: usize,
        in_flight: &mut InFlight<'_>,
    ) -> Result<(), PostError> {
        let free_requests = in_flight.free_requests(self.producer);
        if requests as u64 > free_requests.into() {
            return Err(PostError::TooManyRequests { needed: requests as u16, free: free_requests as u16 });
        }
        let (needed, free) = (end - self.producer, self.free(in_flight.tail()));
        if needed > free {
            return Err(PostError::SendRingFull { needed: needed as u16, free: free as u16 });
        }
        for (at, block) in (self.producer..end).zip(&self.scratch) {
            self.ring.write(at, zerocopy::transmute!(*block));
        }
        self.producer = end;
        if in_flight.is_limited() {
            let requests = free_requests.saturating_sub(requests as u32);
            self.contiguous_end = self.ring_end().min(end + self.free(in_flight.tail()).min(requests.into()));
        }
        Ok(())
    }
}

crate::fmt::format_counters!(['r] SqProducer ['r] { producer });
