//! Memory that a device shares: a power of two of slots, reached by a running index. The only code that touches them.

#![allow(unsafe_code)]

use crate::error::QueueError;
use core::marker::PhantomData;
use core::ptr::NonNull;
use core::sync::atomic::{AtomicU8, Ordering};
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
        Ok(Self { base: NonNull::from(slots).cast(), mask: (entries - 1) * Self::SLOT, memory: PhantomData })
    }

    /// Lends the ring out by value, so that writing many slots does not read pointer and mask again each time.
    #[inline(always)]
    pub(super) fn lend(&mut self) -> Ring<'_, T> {
        Ring { base: self.base, mask: self.mask, memory: PhantomData }
    }

    /// Returns the number of slots.
    pub(super) const fn len(&self) -> u32 {
        (self.mask / Self::SLOT) as u32 + 1
    }

    /// Returns how far a slot is from that of index 0, in bytes: what those who write slots one after the other count in.
    #[inline(always)]
    pub(super) const fn distance(index: u64) -> usize {
        (index as usize).wrapping_mul(Self::SLOT)
    }

    #[inline(always)]
    fn slot(&self, index: u64) -> *mut T {
        self.slot_at(Self::distance(index))
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

    /// Writes the slot at a distance whole, from any bytes of its size.
    #[inline(always)]
    pub(super) fn write_block<B: IntoBytes + Immutable + Unaligned>(&mut self, distance: usize, block: B) {
        const { assert!(size_of::<B>() == size_of::<T>()) };
        // SAFETY: as in `write`; B has the size of a slot and no alignment, and any bytes are a valid T.
        unsafe { self.slot_at(distance).cast::<B>().write(block) }
    }

    /// Writes 16 bytes of the slot at a distance: the octoword number `at`, modulo the octowords of a slot.
    #[inline(always)]
    pub(super) fn write_octoword(&mut self, distance: usize, at: usize, value: [u8; 16]) {
        let octowords = const {
            assert!(size_of::<T>().is_multiple_of(16) && (size_of::<T>() / 16).is_power_of_two());
            size_of::<T>() / 16
        };
        // SAFETY: as in `write`; `at` is reduced to an octoword of the slot, and bytes need no alignment.
        unsafe { self.slot_at(distance).cast::<[u8; 16]>().add(at & (octowords - 1)).write(value) }
    }

    /// Writes the first four bytes of a slot.
    pub(super) fn write_word(&mut self, index: u64, word: [u8; 4]) {
        const { assert!(size_of::<T>() >= 4) };
        // SAFETY: as in `write`; the slot has at least four bytes, and bytes need no alignment.
        unsafe { self.slot(index).cast::<[u8; 4]>().write(word) }
    }

    /// Reads the last byte of a slot, in which the device says whose the slot is.
    #[inline(always)]
    pub(super) fn last_byte(&self, index: u64) -> u8 {
        const { assert!(size_of::<T>() > 0) };
        // SAFETY: the pointer is within the slot. The device may write the byte at any time; an atomic access allows that.
        unsafe {
            let byte = self.slot(index).cast::<u8>().add(size_of::<T>() - 1);
            AtomicU8::from_ptr(byte).load(Ordering::Relaxed)
        }
    }

    /// Copies eight bytes of a slot out, those from number `AT` on, with one load. As [`Ring::read`].
    ///
    /// Measured (`poll16` on x86-64): polling went from 244 to 71 instructions for a completion when it read two words this way
    /// and left the rest of the entry. A copy of an entry, whose fields have no alignment, goes byte by byte.
    #[inline(always)]
    pub(super) fn read_u64<const AT: usize>(&self, index: u64) -> [u8; 8] {
        const { assert!(AT.is_multiple_of(8) && AT + 8 <= size_of::<T>() && align_of::<T>() >= 8) };
        // SAFETY: the place is within the slot, and aligned as slots are. The rest as in `read`.
        unsafe { self.slot(index).cast::<u64>().byte_add(AT).read_volatile() }.to_ne_bytes()
    }

    /// Copies a slot out.
    #[inline(always)]
    pub(super) fn read(&self, index: u64) -> T {
        // SAFETY: as in `write`; any bytes are a valid T. A device that breaks the protocol and writes now can only make
        // the copy wrong, and nothing trusts it.
        unsafe { self.slot(index).read_volatile() }
    }
}
