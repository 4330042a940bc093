//! Memory that a device shares: a power of two of slots, reached by a running index. The only code that touches them.

#![allow(unsafe_code)]

use crate::error::QueueError;
use crate::wire::{Block, OCTOWORD_BYTES, OCTOWORDS_PER_BLOCK, blocks_of};
use crate::wqe::{Room, Sink, padded};
use core::marker::PhantomData;
use core::ptr::NonNull;
use zerocopy::{FromBytes, Immutable, IntoBytes, Unaligned};

/// A ring of slots that both the CPU and a device access.
///
/// It takes the slots by exclusive reference, so no other Rust code can reach them while it lives, and keeps a raw
/// pointer, since the device changes them behind the reference's back. All slot types are plain bytes: whatever the
/// device leaves there is a valid value.
pub(super) struct Ring<'r, T> {
    base: NonNull<T>,
    /// The distance in bytes between the first and the last slot: its bits are those of the distances of all.
    mask: usize,
    /// Of all slots: the bit of a distance that tells one lap from the next.
    bytes: usize,
    memory: PhantomData<&'r mut [T]>,
}

// SAFETY: a ring has its slots to itself, as `&mut [T]` is; it may move to another thread where that may.
unsafe impl<T: Send> Send for Ring<'_, T> {}

impl<'r, T: Copy + FromBytes + IntoBytes + Immutable> Ring<'r, T> {
    /// Bytes of a slot.
    const SLOT: usize = {
        assert!(size_of::<T>().is_power_of_two());
        size_of::<T>()
    };

    /// Takes up to `max` slots, which is at most 2^31.
    pub(super) fn new(slots: &'r mut [T], max: usize) -> Result<Self, QueueError> {
        let entries = slots.len();
        if !entries.is_power_of_two() || entries > max {
            return Err(QueueError::Size { entries, max });
        }
        let bytes = entries * Self::SLOT;
        Ok(Self { base: NonNull::from(slots).cast(), mask: bytes - Self::SLOT, bytes, memory: PhantomData })
    }

    /// Lends the ring out by value, so that writing many slots does not read pointer and mask again each time.
    #[inline(always)]
    pub(super) fn lend(&mut self) -> Ring<'_, T> {
        Ring { base: self.base, mask: self.mask, bytes: self.bytes, memory: PhantomData }
    }

    /// Returns the number of slots.
    pub(super) const fn len(&self) -> u32 {
        self.last() as u32 + 1
    }

    /// Returns the number of the last slot.
    #[inline(always)]
    pub(super) const fn last(&self) -> u64 {
        (self.mask / Self::SLOT) as u64
    }

    #[inline(always)]
    fn slot(&self, index: u64) -> *mut T {
        self.slot_at((index as usize).wrapping_mul(Self::SLOT))
    }

    #[inline(always)]
    fn slot_at(&self, distance: usize) -> *mut T {
        // SAFETY: the number of slots and their size are powers of two, and `mask` is that of the slice that `new` took: any
        // distance masked by it is that of a slot of the slice, which stays borrowed for 'r.
        unsafe { self.base.as_ptr().byte_add(distance & self.mask) }
    }

    /// Writes a slot.
    #[inline(always)]
    pub(super) fn write(&mut self, index: u64, value: T) {
        // SAFETY: the pointer is that of a slot (see `slot`), aligned, and ours to write. A plain store: the device looks
        // only after the barrier and the doorbell that follow.
        unsafe { self.slot(index).write(value) }
    }

    /// Writes a part of a slot, at a distance in bytes from the first slot.
    #[inline(always)]
    fn write_part<B: IntoBytes + Unaligned>(&mut self, distance: usize, part: B) {
        let within = distance % Self::SLOT;
        debug_assert!(
            within + size_of::<B>() <= Self::SLOT,
            "no part of a request goes on in the next block"
        );
        if within + size_of::<B>() <= Self::SLOT {
            // SAFETY: as in `write`; all of it is in the slot, as asked above, and it needs no alignment.
            unsafe { self.slot_at(distance).cast::<u8>().add(within).cast::<B>().write(part) }
        }
    }

    /// Writes the first four bytes of a slot.
    pub(super) fn write_word(&mut self, index: u64, word: [u8; 4]) {
        const { assert!(size_of::<T>() >= 4) };
        // SAFETY: as in `write`; the slot has at least four bytes, and bytes need no alignment.
        unsafe { self.slot(index).cast::<[u8; 4]>().write(word) }
    }

    /// Returns a slot to read.
    #[inline(always)]
    pub(super) fn peek(&self, index: u64) -> Slot<'_, T> {
        let distance = (index as usize).wrapping_mul(Self::SLOT);
        let owner = u64::from(distance & self.bytes != 0);
        Slot { at: self.slot_at(distance), owner, memory: PhantomData }
    }

    /// Copies a slot out.
    #[inline(always)]
    pub(super) fn read(&self, index: u64) -> T {
        // SAFETY: as in `write`; any bytes are a valid T. A device that breaks the protocol and writes now can only make
        // the copy wrong, and nothing trusts it.
        unsafe { self.slot(index).read_volatile() }
    }
}

/// A slot that is read.
#[derive(Clone, Copy)]
pub(super) struct Slot<'q, T> {
    at: *mut T,
    /// See [`Slot::owner`].
    owner: u64,
    memory: PhantomData<&'q [T]>,
}

impl<T: Copy + FromBytes + IntoBytes + Immutable> Slot<'_, T> {
    /// Returns the owner bit of what the device writes in this lap of a completion queue: 0 in the first, 1 in the second, and
    /// so on.
    #[inline(always)]
    pub(super) const fn owner(self) -> u64 {
        self.owner
    }

    /// Copies eight bytes out, those from number `AT` on, with one load: the fields of an entry have no alignment, and are
    /// read byte by byte otherwise. As [`Ring::read`].
    #[inline(always)]
    pub(super) fn read_u64<const AT: usize>(self) -> [u8; 8] {
        const { assert!(AT.is_multiple_of(8) && AT + 8 <= size_of::<T>() && align_of::<T>() >= 8) };
        // SAFETY: `at` is a slot, see `Ring::peek`. The place is within it, and aligned as slots are. The rest as in `Ring::read`.
        unsafe { self.at.cast::<u64>().byte_add(AT).read_volatile() }.to_ne_bytes()
    }
}

/// The side of a ring that fills it.
///
/// It knows how far slots are free and stand in one piece. One question then tells that a request fits, and its parts are
/// written one behind the other without a look at the ring's end.
pub(super) struct Filling<'r, T> {
    ring: Ring<'r, T>,
    /// Slots given out, counted from the start. Behind it they are the queue's to write.
    producer: u64,
    /// Where the next slot is, unless it is at the ring's end.
    at: *mut u8,
    /// Up to here slots are free; from `producer` to here the ring's end does not come in between. No further than `producer`
    /// where nothing is known.
    end: u64,
}

/// The same, for who posts many requests and has the ring to itself meanwhile: what it knows is its own, so that a compiler may
/// keep it in registers.
///
/// What is written through it is in the ring, which is borrowed for 'r.
pub(super) struct Run<'r> {
    producer: u64,
    at: *mut u8,
    /// Slots from `producer` to `end`.
    left: u64,
    memory: PhantomData<&'r mut [u8]>,
}

// SAFETY: as `Ring`, of which `at` is a place.
unsafe impl<T: Send> Send for Filling<'_, T> {}

// SAFETY: as the ring that it is a run of, whose slots are plain bytes; who has the run has that ring to itself.
unsafe impl Send for Run<'_> {}

impl Run<'_> {
    /// Returns how many slots were given out, counted from the start.
    #[inline(always)]
    pub(super) const fn producer(&self) -> u64 {
        self.producer
    }

    /// Offers slots in one piece, if that many are known to be free. What is offered must be accepted.
    #[inline(always)]
    pub(super) fn take(&mut self, room: Room) -> Option<Piece<'_>> {
        self.left = self.left.checked_sub(room.blocks() as u64)?;
        let (at, after) = (self.at, self.producer + room.blocks() as u64);
        Some(Piece::new(room, (&mut self.producer, &mut self.at), at, after))
    }
}

impl<'r, T: Copy + FromBytes + IntoBytes + Immutable> Filling<'r, T> {
    /// Goes on filling a ring at this slot.
    pub(super) fn new(ring: Ring<'r, T>, producer: u64) -> Self {
        let at = ring.slot(producer).cast();
        Self { ring, producer, at, end: producer }
    }

    /// Returns the ring.
    pub(super) const fn ring(&self) -> &Ring<'r, T> {
        &self.ring
    }

    /// Returns the ring, to change slots that were given out.
    pub(super) const fn ring_mut(&mut self) -> &mut Ring<'r, T> {
        &mut self.ring
    }

    /// Returns how many slots were given out, counted from the start.
    #[inline(always)]
    pub(super) const fn producer(&self) -> u64 {
        self.producer
    }

    /// Begins a run. What it gives out is given out once it is [put back](Self::put_back).
    #[inline(always)]
    pub(super) const fn run(&self) -> Run<'r> {
        const { assert!(Ring::<T>::SLOT == size_of::<Block>()) };
        let Self { producer, at, end, .. } = *self;
        Run { producer, at, left: end.saturating_sub(producer), memory: PhantomData }
    }

    /// Takes up where a run of it ended. It is a run of this one, and nothing else has given slots out since it began.
    #[inline(always)]
    pub(super) const fn put_back(&mut self, run: &Run<'r>) {
        // To write it as well would keep it in a register to the end (2 instructions of `sge1`, 16 to a doorbell).
        debug_assert!(run.producer + run.left == self.end, "the end is still where the run has it");
        (self.producer, self.at) = (run.producer, run.at);
    }

    /// Notes that up to here slots are free.
    pub(super) fn set_known(&mut self, free: u64) {
        self.end = self.lap_end(self.producer).min(free);
        self.at = self.ring.slot(self.producer).cast();
    }

    /// Returns where the lap of this slot ends: with the ring, whose length is a power of two.
    #[inline(always)]
    const fn lap_end(&self, slot: u64) -> u64 {
        (slot | self.ring.last()) + 1
    }

    /// Offers slots in one piece, if that many are known to be free.
    #[inline(always)]
    pub(super) fn take(&mut self, room: Room) -> Option<Piece<'_>> {
        const { assert!(Ring::<T>::SLOT == size_of::<Block>()) };
        let after = self.producer + room.blocks() as u64;
        if after > self.end {
            return None;
        }
        // SAFETY: a field, read as any other, but for one thing: the compiler does not remember what it read, and adds to it where
        // it stands when the request is accepted. That takes one instruction; to add to what it remembers, and write, takes two
        // (all requests of the benchmarks, on x86-64).
        let at = unsafe { core::ptr::from_ref(&self.at).read_volatile() };
        Some(Piece::new(room, (&mut self.producer, &mut self.at), at, after))
    }

    /// Offers slots that may lie on both sides of the ring's end; they are free, as others up to here are.
    #[inline(always)]
    pub(super) fn take_around(&mut self, slots: usize, free: u64) -> Around<'_, T> {
        let distance = (self.producer as usize).wrapping_mul(Ring::<T>::SLOT);
        let after = self.producer + slots as u64;
        let end = self.lap_end(after).min(free);
        let Self { ring, producer, at, end: known } = self;
        Around { ring: ring.lend(), place: (producer, at, known), distance, entries_at: distance, after, end }
    }
}

/// What is written into slots that are on offer. They are given out with the last word.
pub(super) trait Offer: Sink {
    /// Returns the slot behind them, counted as the producer's.
    fn after(&self) -> u64;

    /// Gives the slots out.
    fn accept(self);
}

/// Slots on offer, in one piece: takes what is to be written there, front to back.
///
/// What is left of them is counted, and nothing is written behind. Counted apart, it costs nothing: of the one number the
/// compiler knows the value, of the other that it is that of the blocks to be written.
pub(super) struct Piece<'q> {
    at: *mut u8,
    /// Bytes for parts, and blocks for entries.
    fixed: usize,
    entries: usize,
    /// The blocks that were left for entries.
    entries_at: *mut u8,
    left: usize,
    /// `producer` and `at`, and what the first is to be.
    place: (&'q mut u64, &'q mut *mut u8),
    after: u64,
    /// All of them.
    bytes: usize,
}

impl<'q> Piece<'q> {
    #[inline(always)]
    fn new(room: Room, place: (&'q mut u64, &'q mut *mut u8), at: *mut u8, after: u64) -> Self {
        let fixed = room.fixed * size_of::<Block>();
        let bytes = room.entries * size_of::<Block>() + fixed;
        Self { at, fixed, entries: room.entries, entries_at: at, left: 0, place, after, bytes }
    }

    /// Goes on behind so many bytes.
    ///
    /// # Safety
    /// They have been taken off what is left.
    #[inline(always)]
    unsafe fn past(at: &mut *mut u8, bytes: usize) -> *mut u8 {
        // SAFETY: what is left is of slots in one piece which are borrowed with `producer`: `take` has found them between it and
        // `end`, which is within one lap of the ring wherever it is set (`lap_end`). The pointer goes no further than one past the
        // last. A run counts the slots to `end` instead, and both numbers move together.
        core::mem::replace(at, unsafe { at.add(bytes) })
    }
}

impl Sink for Piece<'_> {
    #[inline(always)]
    fn put<B: IntoBytes + Immutable + Unaligned>(&mut self, part: B) {
        debug_assert!(size_of::<B>() <= self.fixed, "a request is as long as its room");
        if let Some(left) = self.fixed.checked_sub(size_of::<B>()) {
            self.fixed = left;
            // SAFETY: taken off above. B has no alignment, and any bytes are a valid slot.
            unsafe { Self::past(&mut self.at, size_of::<B>()).cast::<B>().write(part) };
        }
    }

    #[inline(always)]
    fn leave_entries(&mut self, blocks: usize) {
        if blocks <= self.entries {
            self.entries -= blocks;
            self.left = blocks;
            // SAFETY: taken off above.
            self.entries_at = unsafe { Self::past(&mut self.at, blocks * size_of::<Block>()) };
        }
    }

    #[inline(always)]
    fn put_entries<T: Copy + IntoBytes + Immutable + Unaligned>(&mut self, entries: &[T]) {
        const { assert!(size_of::<T>() == OCTOWORD_BYTES) };
        let needed = blocks_of(entries.len());
        debug_assert!(needed <= self.left, "a request is as long as its room");
        if needed > self.left {
            return;
        }
        self.left -= needed;
        let (blocks, rest) = entries.as_chunks::<OCTOWORDS_PER_BLOCK>();
        // SAFETY: taken off above, and by `leave_entries` before. As in `put`.
        let at = unsafe { Self::past(&mut self.entries_at, needed * size_of::<Block>()) };
        // SAFETY: there is room for all blocks, and behind them for one more if there is a rest.
        unsafe {
            write_blocks(at.cast(), blocks);
            if !rest.is_empty() {
                at.cast::<Block>().add(blocks.len()).write_unaligned(padded(rest));
            }
        }
    }

    #[inline(always)]
    fn skip(&mut self, octowords: usize) {
        let bytes = self.fixed.min(octowords * OCTOWORD_BYTES);
        self.fixed -= bytes;
        // SAFETY: taken off above.
        unsafe { Self::past(&mut self.at, bytes) };
    }
}

impl Offer for Piece<'_> {
    #[inline(always)]
    fn after(&self) -> u64 {
        self.after
    }

    #[inline(always)]
    fn accept(self) {
        let (producer, at) = self.place;
        *producer = self.after;
        // SAFETY: see `past`.
        *at = unsafe { at.add(self.bytes) };
    }
}

/// Blocks that are written one by one: a loop takes longer to begin than they to copy.
const FEW_BLOCKS: usize = 4;

/// Writes blocks.
///
/// # Safety
/// There is room for all of them from `at` on.
#[inline(always)]
unsafe fn write_blocks<B: IntoBytes>(mut at: *mut B, mut blocks: &[B]) {
    for _ in 0..FEW_BLOCKS {
        let [block, others @ ..] = blocks else { return };
        // SAFETY: the caller's.
        unsafe {
            write_block(at, block);
            at = at.add(1);
        }
        blocks = others;
    }
    if !blocks.is_empty() {
        // SAFETY: the caller's.
        unsafe { write_many(at, blocks) };
    }
}

/// Writes a block, by words, which the compiler joins. Measured (`sge1` on x86-64): 2 instructions less than as a whole, for
/// which it makes both addresses ready first.
///
/// # Safety
/// There is room for it.
#[inline(always)]
unsafe fn write_block<B: IntoBytes>(at: *mut B, block: &B) {
    const { assert!(size_of::<B>() == size_of::<Block>()) };
    let (from, to) = (core::ptr::from_ref(block).cast::<u64>(), at.cast::<u64>());
    // SAFETY: eight words are a block, and they need no alignment. What they are made of is initialised, since B is `IntoBytes`.
    unsafe {
        let words = [0, 1, 2, 3, 4, 5, 6, 7].map(|word| from.add(word).read_unaligned());
        for (at, word) in words.iter().enumerate() {
            to.add(at).write_unaligned(*word);
        }
    }
}

/// Writes more blocks. Apart, since a loop would take registers from what is written before.
///
/// # Safety
/// There is room for all of them from `at` on.
#[inline(never)]
unsafe fn write_many<B: IntoBytes>(mut at: *mut B, blocks: &[B]) {
    for block in blocks {
        // SAFETY: the caller's.
        unsafe {
            write_block(at, block);
            at = at.add(1);
        }
    }
}

/// Slots on offer, perhaps on both sides of the ring's end.
pub(super) struct Around<'q, T> {
    /// By value: behind each store through a raw pointer the compiler would read again what a reference leads to.
    ring: Ring<'q, T>,
    /// `producer`, `at` and `end` of the side that fills it, and what the first and the last are to be.
    place: (&'q mut u64, &'q mut *mut u8, &'q mut u64),
    after: u64,
    end: u64,
    distance: usize,
    entries_at: usize,
}

impl<T: Copy + FromBytes + IntoBytes + Immutable> Offer for Around<'_, T> {
    fn after(&self) -> u64 {
        self.after
    }

    fn accept(self) {
        let (producer, at, end) = self.place;
        (*producer, *at, *end) = (self.after, self.ring.slot(self.after).cast(), self.end);
    }
}

impl<T: Copy + FromBytes + IntoBytes + Immutable> Around<'_, T> {
    /// Writes at this distance, and returns the one behind.
    #[inline(always)]
    fn write<B: IntoBytes + Unaligned>(&mut self, distance: usize, part: B) -> usize {
        self.ring.write_part(distance, part);
        distance.wrapping_add(size_of::<B>())
    }
}

impl<T: Copy + FromBytes + IntoBytes + Immutable> Sink for Around<'_, T> {
    #[inline(always)]
    fn put<B: IntoBytes + Immutable + Unaligned>(&mut self, part: B) {
        self.distance = self.write(self.distance, part);
    }

    #[inline(always)]
    fn leave_entries(&mut self, blocks: usize) {
        self.entries_at = self.distance;
        self.distance = self.distance.wrapping_add(blocks * size_of::<T>());
    }

    #[inline(always)]
    fn put_entries<E: Copy + IntoBytes + Immutable + Unaligned>(&mut self, entries: &[E]) {
        const { assert!(size_of::<E>() == OCTOWORD_BYTES) };
        let (mut blocks, rest) = entries.as_chunks::<OCTOWORDS_PER_BLOCK>();
        // As in `write_blocks`.
        for _ in 0..FEW_BLOCKS {
            let [block, others @ ..] = blocks else { break };
            self.entries_at = self.write(self.entries_at, *block);
            blocks = others;
        }
        for block in blocks {
            self.entries_at = self.write(self.entries_at, *block);
        }
        if !rest.is_empty() {
            self.entries_at = self.write(self.entries_at, padded(rest));
        }
    }

    fn skip(&mut self, octowords: usize) {
        self.distance = self.distance.wrapping_add(octowords * OCTOWORD_BYTES);
    }
}

crate::fmt::format_counters!(['r] Run ['r] { producer });
crate::fmt::format_counters!(['r, T] Filling ['r, T] { producer });
