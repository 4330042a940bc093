//! Memory that a device shares: a power of two of slots, reached by a running index. Only this file and
//! `producer.rs` touch it.

#![allow(unsafe_code)]

use crate::error::QueueError;
use crate::wire::cqe::{Cqe, CqeSlot};
use crate::wire::{Block, Wqebb};
use core::marker::PhantomData;
use core::ptr::NonNull;
use zerocopy::{FromBytes, Immutable, IntoBytes};

/// A ring of slots that both the CPU and a device access.
///
/// It takes the slots by exclusive reference, so no other Rust code can reach them while it lives, and keeps
/// a raw pointer, since the device changes them behind the reference's back. All slot types are plain bytes:
/// whatever the device leaves there is a valid value.
pub(crate) struct Ring<'r, T> {
    base: NonNull<T>,
    /// The distance in bytes between the first and the last slot: its bits are those of the distances of all.
    mask: usize,
    /// Of all slots: the bit of a distance that differs from one lap to the next.
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
    pub(crate) fn new(slots: &'r mut [T], max: usize) -> Result<Self, QueueError> {
        let entries = slots.len();
        if !entries.is_power_of_two() || entries > max {
            return Err(QueueError::Size { entries, max });
        }
        let bytes = entries * Self::SLOT;
        Ok(Self { base: NonNull::from(slots).cast(), mask: bytes - Self::SLOT, bytes, memory: PhantomData })
    }

    /// Returns the number of slots.
    pub(crate) const fn len(&self) -> u32 {
        self.last() as u32 + 1
    }

    /// Returns where it begins.
    #[inline]
    pub(super) fn address(&self) -> usize {
        self.base.addr().get()
    }

    /// Returns the number of the last slot.
    #[inline]
    pub(super) const fn last(&self) -> u64 {
        (self.mask / Self::SLOT) as u64
    }

    #[inline]
    fn slot(&self, index: u64) -> *mut T {
        self.slot_at((index as usize).wrapping_mul(Self::SLOT))
    }

    #[inline]
    fn slot_at(&self, distance: usize) -> *mut T {
        // SAFETY: the number of slots and their size are powers of two, and `mask` is that of the slice that
        // `new` took: any distance masked by it is that of a slot of the slice, which stays borrowed for 'r.
        unsafe { self.base.as_ptr().byte_add(distance & self.mask) }
    }

    /// Writes a slot.
    #[inline]
    pub(crate) fn write(&mut self, index: u64, value: T) {
        // SAFETY: the pointer is that of a slot (see `slot`), aligned, and ours to write. A plain store: the
        // device looks only after the barrier and the doorbell that follow.
        unsafe { self.slot(index).write(value) }
    }

    /// Writes a slot from where its bytes are, with no other copy of them, which would be left on the stack.
    pub(crate) fn write_from(&mut self, index: u64, value: &T) {
        // SAFETY: as in `write`; the value is no slot, which are ours.
        unsafe { self.slot(index).copy_from_nonoverlapping(value, 1) }
    }

    /// Overwrites a slot with zeros, in a way that the compiler does not leave out, nor do later than what
    /// follows.
    pub(crate) fn wipe(&mut self, index: u64) {
        // SAFETY: as in `write`; zeros are a valid T.
        unsafe { zeroize::zeroize_flat_type(self.slot(index)) }
    }

    /// Writes the first four bytes of a slot.
    pub(super) fn write_word(&mut self, index: u64, word: [u8; 4]) {
        const { assert!(size_of::<T>() >= 4) };
        // SAFETY: as in `write`; the slot has at least four bytes, and bytes need no alignment.
        unsafe { self.slot(index).cast::<[u8; 4]>().write(word) }
    }

    /// Returns a slot to read.
    #[inline]
    pub(crate) fn peek(&self, index: u64) -> Slot<'_, T> {
        let distance = (index as usize).wrapping_mul(Self::SLOT);
        let owner = u64::from(distance & self.bytes != 0);
        Slot { at: self.slot_at(distance), owner, memory: PhantomData }
    }

    /// Copies a slot out.
    #[inline]
    pub(crate) fn read(&self, index: u64) -> T {
        // SAFETY: as in `write`; any bytes are a valid T. A device that breaks the protocol and writes now
        // can only make the copy wrong, and nothing trusts it.
        unsafe { self.slot(index).read_volatile() }
    }
}

impl Ring<'_, Wqebb> {
    /// Returns where a block is, and those after it up to the ring's end.
    #[inline]
    pub(super) fn block(&mut self, index: u64) -> *mut Block {
        self.slot(index).cast()
    }
}

/// A slot that is read.
#[derive(Clone, Copy)]
pub(crate) struct Slot<'q, T> {
    at: *mut T,
    /// See [`Slot::owner`].
    owner: u64,
    memory: PhantomData<&'q [T]>,
}

impl<T: Copy + FromBytes + IntoBytes + Immutable> Slot<'_, T> {
    /// Returns the owner bit of what the device writes in this lap of a completion queue: 0 in the first, 1
    /// in the second, and so on.
    #[inline]
    pub(super) const fn owner(self) -> u64 {
        self.owner
    }

    /// Copies eight bytes out, those from number `AT` on, with one load: the fields of an entry have no
    /// alignment, and are read byte by byte otherwise. As [`Ring::read`].
    #[inline]
    pub(crate) fn read_u64<const AT: usize>(self) -> [u8; 8] {
        const { assert!(AT.is_multiple_of(8) && AT + 8 <= size_of::<T>() && align_of::<T>() >= 8) };
        // SAFETY: `at` is a slot, see `Ring::peek`. The place is within it, and aligned as slots are. The
        // rest as in `Ring::read`.
        unsafe { self.at.cast::<u64>().byte_add(AT).read_volatile() }.to_ne_bytes()
    }
}

impl<'q, E: CqeSlot> Slot<'q, E> {
    /// Returns the completion entry in the slot.
    #[inline]
    pub(super) fn cqe(self) -> Slot<'q, Cqe> {
        const { assert!(E::OFFSET.is_multiple_of(align_of::<Cqe>()) && E::OFFSET + 64 == size_of::<E>()) };
        // SAFETY: within the slot, see `Ring::peek`, and aligned as entries are.
        let at = unsafe { self.at.byte_add(E::OFFSET) };
        Slot { at: at.cast(), owner: self.owner, memory: PhantomData }
    }
}

/// A slot that a test writes as a device does, while a queue reads it.
#[cfg(test)]
#[derive(Default)]
#[repr(align(64))]
pub(super) struct Line(pub(super) [core::sync::atomic::AtomicU64; 8]);

#[cfg(test)]
impl<'r> Ring<'r, Cqe> {
    /// A ring for reading alone.
    pub(super) fn over(lines: &'r [Line]) -> Self {
        assert!(lines.len().is_power_of_two());
        let bytes = size_of_val(lines);
        // Slots are read only, eight bytes at a time, and lines are as large and as aligned as they.
        Self { base: NonNull::from(lines).cast(), mask: bytes - 64, bytes, memory: PhantomData }
    }
}
