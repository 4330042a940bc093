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
/// Blocks are counted from the queue pair's start. Those from the producer on are not the device's to read: nothing that is
/// written there counts before it is committed.
pub(super) struct SqProducer<'r> {
    ring: Ring<'r, Wqebb>,
    /// The first block that is not committed.
    producer: u64,
    /// Up to this block, all blocks from `producer` on are free and contiguous, and no limit stands against filling them. Where
    /// it is before `producer`, none are known to be.
    contiguous_end: u64,
    /// The most work requests that may be outstanding.
    max_requests: u32,
    /// Takes what does not fit before the ring's end, until it is committed.
    scratch: [Block; MAX_BLOCKS],
}

impl<'r> SqProducer<'r> {
    /// Makes a producer whose next block is number `producer`.
    pub(super) const fn new(ring: Ring<'r, Wqebb>, producer: u64, max_requests: u32) -> Self {
        Self { ring, producer, contiguous_end: producer, max_requests, scratch: [ZEROS; MAX_BLOCKS] }
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
        // SAFETY: the pointer is that of a block of the ring, whatever the index (see `Ring::slot`), plain bytes without alignment.
        // Nobody else writes it, and a device reads no block before the doorbell record counts it, which takes `self` again: after this
        // borrow. The caller names blocks that were committed since.
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

    /// Returns how many work requests may still be posted.
    const fn free_requests(&self, in_flight: &InFlight) -> u32 {
        self.max_requests.saturating_sub(in_flight.outstanding())
    }

    /// Reserves blocks to write: in the ring, or in scratch space where too few are free before its end.
    ///
    /// A full ring is refused by [`SqProducer::commit`] and not here: a request that can never be posted is to be refused for that
    /// reason, which writing it finds.
    ///
    /// # Errors
    /// [`PostError::SendRingFull`] for more blocks than any request has, with the most that one may have for those free: no request asks
    /// for more.
    #[inline]
    pub(super) fn reserve(&mut self, blocks: usize, in_flight: &InFlight) -> Result<&mut [Block], PostError> {
        if !self.is_known_free(blocks) {
            self.look(in_flight);
        }
        let first = if self.is_known_free(blocks) {
            self.ring.block(self.producer)
        } else if blocks <= MAX_BLOCKS {
            self.scratch.as_mut_ptr()
        } else {
            return Err(PostError::SendRingFull { needed: blocks as u16, free: MAX_BLOCKS as u16 });
        };
        // SAFETY: in the ring all blocks from `producer` to `contiguous_end` are before the ring's end and free, that is not the
        // device's: `look` set the end so by the requests in flight of this queue, and since then `producer` has only moved on, or
        // `restart` has set both to 0, where no block is known to be free. In the scratch space there are as many blocks. Nobody else
        // uses them while `self` is borrowed, and they are plain bytes.
        Ok(unsafe { core::slice::from_raw_parts_mut(first, blocks) })
    }

    #[inline]
    const fn is_known_free(&self, blocks: usize) -> bool {
        self.producer + blocks as u64 <= self.contiguous_end
    }

    /// Looks how many blocks are free and contiguous; at most as many are counted as work requests may still be posted.
    #[inline]
    fn look(&mut self, in_flight: &InFlight) {
        // The ring's length is a power of two.
        let ring_end = (self.producer | self.ring.last()) + 1;
        let free = self.free(in_flight.tail()).min(self.free_requests(in_flight).into());
        self.contiguous_end = ring_end.min(self.producer + free);
    }

    /// Commits the blocks of `requests` work requests that were reserved and are written, up to the block before `end`.
    ///
    /// # Errors
    /// [`PostError::TooManyRequests`], [`PostError::SendRingFull`].
    #[inline]
    pub(super) fn commit(
        &mut self,
        end: u64,
        requests: usize,
        in_flight: &InFlight,
    ) -> Result<(), PostError> {
        if end > self.contiguous_end {
            self.copy_scratch(end, requests, in_flight)?;
        }
        self.producer = end;
        Ok(())
    }

    /// Copies blocks out of the scratch space, to both sides of the ring's end if that comes in between.
    #[cold]
    #[inline(never)]
    fn copy_scratch(&mut self, end: u64, requests: usize, in_flight: &InFlight) -> Result<(), PostError> {
        let free = self.free_requests(in_flight);
        if requests as u64 > free.into() {
            return Err(PostError::TooManyRequests { needed: requests as u16, free: free as u16 });
        }
        let (needed, free) = (end - self.producer, self.free(in_flight.tail()));
        if needed > free {
            return Err(PostError::SendRingFull { needed: needed as u16, free: free as u16 });
        }
        for (at, block) in (self.producer..end).zip(&self.scratch) {
            self.ring.write(at, zerocopy::transmute!(*block));
        }
        Ok(())
    }
}

crate::fmt::format_counters!(['r] SqProducer ['r] { producer });
