//! The ring of a send queue, and the records of its requests. The states of a block follow one another in a
//! cycle: free, reserved, committed, published, and free again when a completion retires its request.
//!
//! Each work request is filed in the slot of its first block, so that a completion finds it by the
//! completion's counter. A completion retires its request and all silent requests before it: the tail, which
//! is the first block of the oldest outstanding request, moves behind the request. Retiring takes equally
//! long for any number of silent requests. A queue with a limit of requests counts them only when it looks
//! for room.

#![allow(unsafe_code)]

use super::doorbell::LastRequest;
use super::in_flight::{RequestKind, RequestNumber, Retired};
use super::ring::Ring;
use super::send_config::SendQueueConfig;
use super::{MAX_SLOTS, barrier};
use crate::types::QueueError;
use crate::wire::low::{low8, low64};
use crate::wire::{Block, MAX_WHOLE_BLOCKS, Wqebb, ZEROS};
use crate::wqe::control::{self, ControlFields, Request, RequestFlags};
use crate::wqe::error::PostError;
use crate::wqe::umr;
use bitfield_struct::bitfield;
use zerocopy::{FromBytes, Immutable, IntoBytes};

/// The most blocks that are reserved at once: 15 full blocks of a UMR, and one block for each of its two
/// SET_PSVs. A data-path request takes fewer, at most 16.
const MAX_BLOCKS: usize = MAX_WHOLE_BLOCKS + 2;

/// The names of a send queue's sizes in errors.
const BLOCKS: &str = "blocks of a send queue";
const SLOTS: &str = "slots of a send queue";

/// The record of one block of a send ring: name, kind and size of the work request that begins there. A
/// [`SendQueue`](super::SendQueue) needs one for each block of its ring, in memory that the device does not
/// reach.
///
/// ```
/// use mlx5_mkey::queue::SendSlot;
/// // On a bare machine, the number is checked when the program is compiled.
/// let slots: [SendSlot; 256] = SendSlot::array();
/// // With a heap, the number may come from a configuration.
/// let depth = 1024;
/// let slots = vec![SendSlot::EMPTY; depth];
/// ```
#[derive(Clone, Copy, Debug, FromBytes, Immutable, IntoBytes)]
#[repr(C)]
pub struct SendSlot {
    id: u64,
    place: u64,
}

impl SendSlot {
    /// A slot without a request.
    pub const EMPTY: Self = Self { id: 0, place: u64::MAX };

    /// Returns slots for a ring of `N` blocks. Compiles only if a send queue can have a ring of this size:
    /// `N` is a power of two, at most 32768.
    pub const fn array<const N: usize>() -> [Self; N] {
        const { assert!(N.is_power_of_two() && N <= MAX_SLOTS, "the size of a send ring") };
        [Self::EMPTY; N]
    }
}

#[cfg(test)]
impl SendSlot {
    /// Returns slots that live as long as the tests.
    pub(crate) fn leaked(count: usize) -> &'static mut [Self] {
        std::vec![Self::EMPTY; count].leak()
    }
}

#[cfg(feature = "defmt")]
impl defmt::Format for SendSlot {
    fn format(&self, f: defmt::Formatter<'_>) {
        defmt::write!(f, "SendSlot");
    }
}

/// A work request, as the slot of its first block holds it.
#[derive(Clone, Copy, Debug)]
struct Filed {
    /// The user's name of the request (`wr_id`).
    id: u64,
    place: Place,
}

/// Place and kind of a work request in one word, so that posting writes one word.
#[bitfield(u64)]
#[derive(PartialEq, Eq)]
struct Place {
    #[bits(4)]
    kind: RequestKind,
    /// Blocks of 64 bytes that the request fills, 1 to 16.
    #[bits(5, into = low8::<5>)]
    blocks: u8,
    /// The request's first block, counted from the queue pair's start.
    #[bits(55, into = low64::<55>)]
    begin: u64,
}

impl Filed {
    #[inline]
    const fn begin(&self) -> u64 {
        self.place.begin()
    }

    /// Returns whether the request takes a key out of service.
    const fn is_invalidation(&self) -> bool {
        matches!(self.place.kind(), RequestKind::LocalInvalidate)
    }

    /// Returns the block after the request.
    #[inline]
    const fn end(&self) -> u64 {
        self.begin() + self.place.blocks() as u64
    }
}

const _: () = assert!(size_of::<SendSlot>() == 16);

/// The ring of a send queue, and the records of its requests.
///
/// Blocks are counted from the queue pair's start. Outstanding requests begin at block `tail` or later, and
/// fill at most a lap, so each has its own slot. A slot may still hold a request of an earlier lap, with
/// another `begin`. The device does not read blocks from the producer on: their contents have no effect
/// before they are committed.
pub(super) struct SendRing<'r> {
    pub(super) blocks: Ring<'r, Wqebb>,
    /// The number of the ring's last block.
    last_block: u32,
    /// The records of the requests, each in the slot of the request's first block. There are as many slots as
    /// blocks.
    filed: Ring<'r, SendSlot>,
    /// The number of the queue pair, at its place in control segments.
    qpn: u64,
    /// The flags that each request gets beside its own (`signal_all`).
    pub(super) flags: RequestFlags,
    /// The same flags with a fence, for a request after a change of an mkey.
    flags_after_umr: RequestFlags,
    /// The flags that the next request gets beside its own: `flags` or `flags_after_umr`.
    pub(super) next_flags: RequestFlags,
    /// The first block that is not committed.
    pub(super) producer: u64,
    /// All blocks from `producer` to before this block are free and contiguous, and no limit of requests
    /// forbids filling them. If the value is less than `producer`, no block is known to be free.
    contiguous_end: u64,
    /// The first 8 bytes of the last committed work request, for the doorbell.
    last: [u8; 8],
    /// The block after the last published one.
    pub(super) published: u64,
    /// The first block of the oldest outstanding work request.
    tail: u64,
    /// The number of the request at block 0.
    numbers: RequestNumber,
    /// The identity of the queue: the first value of `numbers`, which no other queue of the program has.
    /// Queue pairs of two devices may have the same number, but no two queues have the same identity. A
    /// restart keeps it.
    pub(super) queue: u64,
    limit: Limit,
    /// Holds a request that does not fit before the ring's end, until the request is committed.
    scratch: [Block; MAX_BLOCKS],
}

/// The limit of outstanding work requests. Few queues have a limit, so posting and retiring do not count
/// requests. A queue with a limit counts its requests again when `contiguous_end` leaves no room for the next
/// request.
struct Limit {
    /// The most work requests that may be outstanding; `u32::MAX` if the queue has no limit.
    most: u32,
    /// Number of work requests that begin at blocks from `from` up to, but without, `to`. The slots still
    /// hold the records of all of them: the requests are counted again before a request reuses the slot of
    /// block `from`.
    counted: u32,
    from: u64,
    to: u64,
}

impl Limit {
    const fn new(most: u32, first_block: u64) -> Self {
        Self { most, counted: 0, from: first_block, to: first_block }
    }
}

impl<'r> SendRing<'r> {
    /// Makes an empty ring of these blocks, with the records of its requests in these slots.
    ///
    /// # Errors
    /// [`QueueError::Size`], [`QueueError::TooFewSlots`].
    pub(super) fn new(
        config: &SendQueueConfig,
        blocks: &'r mut [Wqebb],
        slots: &'r mut [SendSlot],
    ) -> Result<Self, QueueError> {
        let (needed, given) = (blocks.len(), slots.len());
        let blocks = Ring::new(blocks, BLOCKS, MAX_SLOTS)?;
        let few = QueueError::TooFewSlots { what: SLOTS, needed, slots: given };
        let mut filed = Ring::new(slots.get_mut(..needed).ok_or(few)?, SLOTS, MAX_SLOTS)?;
        empty(&mut filed);
        let first = u64::from(config.first_block);
        let flags = if config.signal_all { RequestFlags::SIGNALED } else { RequestFlags::NONE };
        let flags_after_umr = flags.with(config.umr_fence_flags());
        let numbers = RequestNumber::of_new_life(RequestNumber::NONE);
        Ok(Self {
            last_block: blocks.len() - 1,
            blocks,
            filed,
            qpn: control::qpn_bits(config.qpn),
            flags,
            flags_after_umr,
            next_flags: if config.small_fence { flags_after_umr } else { flags },
            producer: first,
            contiguous_end: first,
            last: [0; 8],
            published: first,
            tail: first,
            numbers,
            queue: numbers.to_bits(),
            limit: Limit::new(config.max_requests, first),
            scratch: [ZEROS; MAX_BLOCKS],
        })
    }

    /// Forgets all work requests. The next one begins at block 0.
    pub(super) fn restart(&mut self) {
        self.numbers = RequestNumber::of_new_life(self.next_number());
        (self.producer, self.contiguous_end, self.published, self.tail) = (0, 0, 0, 0);
        (self.next_flags, self.limit) = (self.flags, Limit::new(self.limit.most, 0));
        // Blocks are counted from 0 again, so slots must not name earlier requests.
        empty(&mut self.filed);
    }

    /// Posts a work request of `blocks` blocks, and `psvs` SET_PSVs after it, all named `id`: reserves the
    /// blocks, writes them, and commits them. `own` are the flags of the request beside those of the queue.
    ///
    /// The blocks are in the ring, or in scratch space if too few blocks are free before the ring's end. A
    /// full ring is refused only after the request was written, because writing also checks the request: for
    /// a request that can never be posted, the user gets the reason instead of [`PostError::SendRingFull`].
    ///
    /// # Errors
    /// The errors of writing the request; [`PostError::TooManyRequests`]; [`PostError::SendRingFull`], also
    /// for more blocks than any request has. In the latter case, the error names the most blocks of a request
    /// as the free ones. No request of this library asks for more.
    // Inlined: with a call, an RDMA WRITE takes 200 % more instructions on x86-64, and a list of 1 entry
    // 100 % more. On Cortex-A72, the posts that the benchmarks measure take 31 to 140 % more.
    #[inline(always)]
    pub(super) fn post(
        &mut self,
        id: u64,
        own: RequestFlags,
        kind: RequestKind,
        blocks: usize,
        psvs: usize,
        request: &mut impl Request,
    ) -> Result<(), PostError> {
        let (begin, count) = (self.producer, blocks + psvs);
        let end = begin + count as u64;
        let is_free = end <= self.contiguous_end
            // Only a queue without a limit of requests looks for free blocks here. A queue with a limit uses
            // the scratch space, and `copy_scratch` counts its requests.
            || self.limit.most == u32::MAX && {
                let last_block = u64::from(self.last_block);
                // The number of blocks is a power of two, so `begin | last_block` is the last block of this
                // lap.
                self.contiguous_end = ((begin | last_block) + 1).min(self.tail + last_block + 1);
                end <= self.contiguous_end
            };
        let first = if is_free {
            self.blocks.slot(begin).cast()
        } else if count <= MAX_BLOCKS {
            self.scratch.as_mut_ptr()
        } else {
            return Err(PostError::SendRingFull { needed: count as u16, free: MAX_BLOCKS as u16 });
        };
        // SAFETY: in the ring, all blocks from `producer` to `contiguous_end` are before the ring's end and
        // free: the device does not read them. `contiguous_end` was computed here or in `copy_scratch` from
        // the requests in flight of this queue. Since then `producer` has only moved on, or `restart` has set
        // both to 0, where no block is known to be free. The scratch space has at least `count` blocks.
        // Nobody else uses the blocks before they are committed below, and they are plain bytes.
        let space = unsafe { core::slice::from_raw_parts_mut(first, count) };
        let flags = own.with_default(self.next_flags);
        let fields = ControlFields {
            qpn: self.qpn,
            begin,
            // The last SET_PSV carries the completion, so a UMR with SET_PSVs is silent.
            flags: if psvs == 0 { flags } else { flags.silent() },
            set_psv: own.with_default(RequestFlags::AFTER_UMR),
            always: self.flags,
            psvs,
        };
        request.write(space, fields)?;
        let last = if psvs == 0 { space.first() } else { space.last() };
        let start = last.and_then(|[control, ..]| control.first_chunk()).copied().unwrap_or_default();
        self.commit(begin, id, kind, blocks, psvs, start)
    }

    /// Commits reserved and written blocks from block `begin` on, the first one that is not committed: a work
    /// request of `blocks` blocks, and `psvs` SET_PSVs after it. The last one carries the completion that the
    /// user waits for. `last` is the first 8 bytes of the last work request.
    ///
    /// # Errors
    /// [`PostError::TooManyRequests`], [`PostError::SendRingFull`].
    // With `#[inline]` alone, the benchmark of a whole I/O takes up to 2 % more instructions on x86-64, and a
    // refusal takes 3 % more there and 5 % more on Cortex-A72.
    #[inline(always)]
    fn commit(
        &mut self,
        begin: u64,
        id: u64,
        kind: RequestKind,
        blocks: usize,
        psvs: usize,
        last: [u8; 8],
    ) -> Result<(), PostError> {
        let end = begin + (blocks + psvs) as u64;
        if end > self.contiguous_end {
            self.copy_scratch(end, 1 + psvs)?;
        }
        self.producer = end;
        self.last = last;
        // The next request may use the mkey or the PSV that this one changes, so it may need a fence.
        self.next_flags = match kind {
            RequestKind::MkeyConfigure
            | RequestKind::SetPsv
            | RequestKind::LocalInvalidate
            | RequestKind::BindWindow => self.flags_after_umr,
            _ => self.flags,
        };
        let (mut at, mut blocks) = (begin, blocks);
        for psv in 0..=psvs {
            let kind = if psv == psvs { kind } else { RequestKind::MkeyConfigurePart };
            // The shifts make the same bits as the setters of `Place`, but without their checks. The number
            // of blocks needs no check: a work request has 1 to 16 blocks, and the field has 5 bits.
            let place = ((at << 5) + blocks as u64) << 4 | kind as u64;
            // SAFETY: the pointer is that of a slot, and this ring alone uses its slots.
            unsafe { self.filed.slot(at).write(SendSlot { id, place }) };
            (at, blocks) = (at + blocks as u64, 1);
        }
        Ok(())
    }

    /// Copies the scratch space to the ring up to block `end`, on both sides of the ring's end if necessary.
    /// The blocks hold `requests` work requests. With a limit of requests, `contiguous_end` then allows only
    /// as many blocks as requests may still be posted, since each request may have only one block.
    #[cold]
    #[inline(never)]
    fn copy_scratch(&mut self, end: u64, requests: usize) -> Result<(), PostError> {
        let free_requests = self.free_requests();
        if requests as u64 > free_requests.into() {
            return Err(PostError::TooManyRequests { needed: requests as u16, free: free_requests as u16 });
        }
        let (needed, free) = (end - self.producer, self.free());
        if needed > free {
            return Err(PostError::SendRingFull { needed: needed as u16, free: free as u16 });
        }
        for (at, block) in (self.producer..end).zip(&self.scratch) {
            self.blocks.write(at, zerocopy::transmute!(*block));
        }
        if self.limit.most != u32::MAX {
            let room = (free - needed).min(free_requests.saturating_sub(requests as u32).into());
            self.contiguous_end = (end | u64::from(self.last_block)).saturating_add(1).min(end + room);
        }
        Ok(())
    }

    /// Adds a count of signature errors to a UMR that is committed and not published. The UMR and its
    /// SET_PSVs are the last `blocks` committed blocks.
    #[cold]
    #[inline(never)]
    pub(super) fn tell_error_count(&mut self, blocks: usize, count: u32) {
        let begin = self.producer.wrapping_sub(blocks as u64);
        umr::select_error_count(self.committed(begin));
        umr::write_error_count(self.committed(begin.wrapping_add(1)), count);
    }

    /// Returns a block that is committed and not published, for changes.
    fn committed(&mut self, index: u64) -> &mut Block {
        // SAFETY: whatever the index, the pointer is that of a block of the ring (see `Ring::slot`): plain
        // bytes that need no alignment. Nobody else writes the block. The device reads a block only after it
        // was published in the doorbell record. The caller names a block that is not published. Publishing
        // needs `self`, so no block is published while this borrow lives.
        unsafe { &mut *self.blocks.slot(index).cast() }
    }

    /// Gives the next request a fence, so that the request waits for a change of an mkey before it.
    pub(super) const fn fence_next(&mut self) {
        self.next_flags = self.flags_after_umr;
    }

    /// Returns how many blocks are free.
    pub(super) const fn free(&self) -> u64 {
        self.tail + self.last_block as u64 + 1 - self.producer
    }

    /// Returns the last request, for the doorbell. `published` is the first block that was not published
    /// before.
    #[inline]
    pub(super) const fn last_request(&self, published: u64) -> LastRequest<'_> {
        LastRequest { ring: &self.blocks, control: self.last, published, end: self.producer }
    }

    /// Returns the number that the next request will have.
    pub(super) const fn next_number(&self) -> RequestNumber {
        self.numbers.after(self.producer)
    }

    /// Returns name, kind and number of a request that the queue gives back to the user.
    #[inline]
    const fn retired(&self, filed: &Filed) -> Retired {
        Retired { id: filed.id, kind: filed.place.kind(), number: self.numbers.after(filed.begin()) }
    }

    /// Returns the request that the slot of a block holds. It may be a request of an earlier lap, which began
    /// at another block.
    #[inline]
    fn filed(&self, block: u64) -> Filed {
        let slot = self.filed.peek(block);
        let [id, place] = [slot.read_u64::<0>(), slot.read_u64::<8>()].map(u64::from_ne_bytes);
        Filed { id, place: Place::from_bits(place) }
    }

    /// Returns the number of outstanding work requests, by counting them one by one.
    pub(super) fn outstanding(&self) -> u32 {
        self.count(self.tail, self.producer)
    }

    /// Returns how many work requests may still be posted.
    fn free_requests(&mut self) -> u32 {
        if self.limit.most == u32::MAX {
            return u32::MAX;
        }
        let Limit { most, counted, from, to } = self.limit;
        let retired = self.count(from, self.tail);
        let counted = counted + self.count(to, self.producer) - retired;
        self.limit = Limit { most, counted, from: self.tail, to: self.producer };
        most.saturating_sub(counted)
    }

    /// Counts the work requests that begin at blocks from `first` up to, but without, `end`.
    fn count(&self, first: u64, end: u64) -> u32 {
        self.filed_from(first, end).count() as u32
    }

    /// Returns the outstanding and published work request that begins at the block with this number modulo
    /// 2^16, or `None`.
    #[inline]
    fn find(&self, counter: u16) -> Option<Filed> {
        // At most 2^15 blocks are outstanding, so at most one of them has this counter.
        let begin = self.tail + u64::from(counter.wrapping_sub(self.tail as u16));
        let filed = self.filed(begin);
        (begin < self.published && filed.begin() == begin).then_some(filed)
    }

    /// Returns the first block of the request that [`SendRing::find`] finds.
    pub(super) fn begin(&self, counter: u16) -> Option<u64> {
        self.find(counter).map(|filed| filed.begin())
    }

    /// Retires the work request that [`SendRing::find`] finds, and all requests before it. If there is none,
    /// nothing changes.
    #[inline]
    pub(super) fn retire(&mut self, counter: u16) -> Option<Retired> {
        let filed = self.find(counter)?;
        self.tail = filed.end();
        Some(self.retired(&filed))
    }

    /// Iterates over the outstanding work requests, published or not, oldest first.
    pub(super) fn each_outstanding(&self) -> impl Iterator<Item = Retired> {
        self.filed_from(self.tail, self.producer).map(|filed| self.retired(&filed))
    }

    /// Turns every work request named `id` that begins at block `next` or later into a NOP, and returns their
    /// number. Includes requests that are committed and not published.
    // A function of its own, so that `cargo xtask test aarch64` finds its barrier.
    #[inline(never)]
    pub(super) fn cancel(&mut self, next: u64, id: u64) -> usize {
        let (mut begin, mut cancelled, mut any_invalidation) = (self.tail, 0, false);
        while let Some(filed) = self.filed_at(begin, self.producer) {
            if filed.id == id && begin >= next {
                let nop = control::nop_start(begin);
                self.blocks.write_word(begin, nop);
                if let (true, [first @ .., _, _, _, _]) = (filed.end() == self.producer, &mut self.last) {
                    *first = nop;
                }
                cancelled += 1;
                any_invalidation |= filed.is_invalidation();
            }
            begin = filed.end();
        }
        if any_invalidation {
            // The NOP completes as the invalidation would have, but its completion must not prove that the
            // key is out of service. Therefore all requests get other numbers.
            self.numbers = RequestNumber::of_new_life(self.next_number());
        }
        // When the queue pair leaves SQD, the device continues to read requests, and must see the NOPs.
        barrier::blocks_before_record();
        cancelled
    }

    /// Returns the work request that begins at block `begin`, or `None` if no request begins there, or if
    /// `begin` is not before `end`.
    fn filed_at(&self, begin: u64, end: u64) -> Option<Filed> {
        let filed = self.filed(begin);
        (begin < end && filed.begin() == begin).then_some(filed)
    }

    /// Iterates over the work requests that begin at blocks from `next` up to, but without, `end`.
    fn filed_from(&self, mut next: u64, end: u64) -> impl Iterator<Item = Filed> {
        core::iter::from_fn(move || {
            let filed = self.filed_at(next, end)?;
            next = filed.end();
            Some(filed)
        })
    }
}

crate::fmt::format_counters!(['r] SendRing ['r] { producer });

/// Empties all slots.
fn empty(filed: &mut Ring<'_, SendSlot>) {
    for index in 0..filed.len().into() {
        filed.write(index, SendSlot::EMPTY);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::Qpn;
    use std::collections::VecDeque;

    /// The outstanding requests, as a list that the model searches. An item has first block, name, kind and
    /// number of blocks.
    #[derive(Default)]
    struct Model(VecDeque<(u64, u64, RequestKind, u64)>);

    impl Model {
        fn retire(&mut self, counter: u16, published: u64) -> Option<(u64, RequestKind)> {
            let at = self.0.iter().position(|(begin, ..)| *begin as u16 == counter && *begin < published)?;
            self.0.drain(..=at).next_back().map(|(_, id, kind, _)| (id, kind))
        }
    }

    #[test]
    fn completions_retire_what_a_search_would() {
        // Requests of 1 to 16 blocks in rings of several sizes, over many laps and over the overflow of
        // 16-bit and 32-bit counters. Some completions name outstanding requests, others have any counter.
        for first_block in [0, 0xfff0, u64::from(u32::MAX) - 100] {
            for ring in [1, 2, 16, 64] {
                let most = 1 << 16;
                let (mut blocks, mut slots) = ([Wqebb::ZERO; 64], SendSlot::array::<64>());
                let config = SendQueueConfig {
                    first_block: first_block as u32,
                    max_requests: most,
                    ..SendQueueConfig::new(Qpn::default())
                };
                let mut table = SendRing::new(&config, &mut blocks[..ring as usize], &mut slots).unwrap();
                let mut model = Model::default();
                let mut dice = 7_u32;
                for id in 0..20_000 {
                    dice = dice.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                    let (blocks, producer) = (1 + u64::from(dice >> 28), table.producer);
                    if blocks <= table.free() {
                        // A queue with a limit also calls `free_requests` when it looks for room.
                        assert_eq!(table.free_requests() as usize, most as usize - model.0.len());
                        let kind = if dice >> 9 & 1 == 0 {
                            RequestKind::Send
                        } else {
                            RequestKind::MkeyConfigurePart
                        };
                        table.commit(producer, id, kind, blocks as usize, 0, [0; 8]).unwrap();
                        model.0.push_back((producer, id, kind, blocks));
                    }
                    if dice >> 8 & 1 == 0 {
                        table.published = table.producer;
                    }
                    let producer = table.producer;
                    let counter = match dice >> 16 & 3 {
                        0 => (dice >> 5) as u16,
                        1 => (producer as u16).wrapping_sub((dice >> 20 & 0x3f) as u16),
                        2 => model.0.get(dice as usize >> 18 & 7).map_or(0, |(begin, ..)| *begin as u16),
                        _ => continue,
                    };
                    let retired = table.retire(counter).map(|retired| (retired.id, retired.kind));
                    assert_eq!(retired, model.retire(counter, table.published));
                    assert_eq!(table.outstanding() as usize, model.0.len());
                    assert_eq!(table.tail, model.0.front().map_or(producer, |(begin, ..)| *begin));
                    let begins = table.filed_from(table.tail, producer).map(|filed| filed.begin());
                    assert!(begins.eq(model.0.iter().map(|(begin, ..)| *begin)));
                }
                assert!(ring < 16 || table.producer > first_block + 10_000, "few requests were posted");
            }
        }
    }
}
