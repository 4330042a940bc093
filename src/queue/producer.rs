//! The producer's side of a send queue: reserves free blocks, and commits them once they are written.

#![allow(unsafe_code)]

use super::in_flight::InFlight;
use super::ring::Ring;
use crate::error::PostError;
use crate::wire::{Block, MAX_WHOLE_BLOCKS, Wqebb, ZEROS};

/// The most blocks that are reserved at once: a UMR and its two SET_PSVs, or one data-path request.
const MAX_BLOCKS: usize = MAX_WHOLE_BLOCKS + 2;

/// Hands out blocks of a ring to write, one after the other.
///
/// Blocks are counted from the queue pair's start. Those from the producer on are not the device's to read:
/// nothing that is written there counts before it is committed.
pub(super) struct SqProducer<'r> {
    ring: Ring<'r, Wqebb>,
    /// The first block that is not committed.
    producer: u64,
    /// Up to this block, all blocks from `producer` on are free and contiguous, and no limit stands against
    /// filling them. Where it is before `producer`, none are known to be.
    contiguous_end: u64,
    /// Takes what does not fit before the ring's end, until it is committed.
    scratch: [Block; MAX_BLOCKS],
}

impl<'r> SqProducer<'r> {
    /// Makes a producer whose next block is number `producer`.
    pub(super) const fn new(ring: Ring<'r, Wqebb>, producer: u64) -> Self {
        Self { ring, producer, contiguous_end: producer, scratch: [ZEROS; MAX_BLOCKS] }
    }

    /// Begins anew at block 0.
    pub(super) const fn restart(&mut self) {
        (self.producer, self.contiguous_end) = (0, 0);
    }

    /// Returns the ring.
    pub(super) const fn ring(&self) -> &Ring<'r, Wqebb> {
        &self.ring
    }

    /// Returns the ring, to change blocks that are published.
    pub(super) const fn ring_mut(&mut self) -> &mut Ring<'r, Wqebb> {
        &mut self.ring
    }

    /// Returns a block that is committed and not published, to change it.
    pub(super) fn unpublished(&mut self, index: u64) -> &mut Block {
        // SAFETY: the pointer is that of a block of the ring, whatever the index (see `Ring::slot`), plain
        // bytes without alignment. Nobody else writes it, and a device reads no block before the doorbell
        // record counts it, which takes `self` again: after this borrow. The caller names blocks that were
        // committed since.
        unsafe { &mut *self.ring.block(index) }
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

    /// Reserves blocks to write: in the ring, or in scratch space where too few are free before its end.
    ///
    /// A full ring is refused by [`SqProducer::commit`] and not here: a request that can never be posted is
    /// to be refused for that reason, which writing it finds.
    ///
    /// # Errors
    /// [`PostError::SendRingFull`] for more blocks than any request has, with the most that one may have for
    /// those free: no request asks for more.
    #[inline]
    pub(super) fn reserve(&mut self, blocks: usize, in_flight: &InFlight) -> Result<&mut [Block], PostError> {
        let first = if self.is_known_free(blocks) || self.finds_free(blocks, in_flight) {
            self.ring.block(self.producer)
        } else if blocks <= MAX_BLOCKS {
            self.scratch.as_mut_ptr()
        } else {
            return Err(PostError::SendRingFull { needed: blocks as u16, free: MAX_BLOCKS as u16 });
        };
        // SAFETY: in the ring all blocks from `producer` to `contiguous_end` are before the ring's end and
        // free, that is not the device's: `finds_free` or `copy_scratch` set the end so by the requests in
        // flight of this queue, and since then `producer` has only moved on, or `restart` has set both to 0,
        // where no block is known to be free. In the scratch space there are as many blocks. Nobody else uses
        // them while `self` is borrowed, and they are plain bytes.
        Ok(unsafe { core::slice::from_raw_parts_mut(first, blocks) })
    }

    #[inline]
    const fn is_known_free(&self, blocks: usize) -> bool {
        self.producer + blocks as u64 <= self.contiguous_end
    }

    /// Looks how many blocks are free and contiguous, and returns whether these are.
    #[inline]
    fn finds_free(&mut self, blocks: usize, in_flight: &InFlight) -> bool {
        // Where there is a limit, requests are counted when this one is committed.
        if in_flight.is_limited() {
            return false;
        }
        self.contiguous_end = self.ring_end().min(self.producer + self.free(in_flight.tail()));
        self.is_known_free(blocks)
    }

    /// Returns the block behind the last one of this lap.
    #[inline]
    const fn ring_end(&self) -> u64 {
        // The ring's length is a power of two.
        (self.producer | self.ring.last()) + 1
    }

    /// Commits the blocks of `requests` work requests that were reserved and are written, up to the block
    /// before `end`.
    ///
    /// # Errors
    /// [`PostError::TooManyRequests`], [`PostError::SendRingFull`].
    #[inline]
    pub(super) fn commit(
        &mut self,
        end: u64,
        requests: usize,
        in_flight: &mut InFlight,
    ) -> Result<(), PostError> {
        if end > self.contiguous_end {
            return self.copy_scratch(end, requests, in_flight);
        }
        self.producer = end;
        Ok(())
    }

    /// Commits blocks of the scratch space: copies them, to both sides of the ring's end if that comes in
    /// between. Where there is a limit of requests, as many blocks are known to be free then as requests may
    /// still be posted.
    #[cold]
    #[inline(never)]
    fn copy_scratch(&mut self, end: u64, requests: usize, in_flight: &mut InFlight) -> Result<(), PostError> {
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
