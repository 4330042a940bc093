//! Rings of slots, addressed by a running index. The number of slots is a power of two. A ring is shared with
//! a device (requests, completions), or private to the processor (records of outstanding requests). Only this
//! file and `send_ring.rs` access slots by raw pointers.

#![allow(unsafe_code)]

use crate::types::QueueError;
use crate::wire::cqe::{Cqe, CqeSlot};
use core::marker::PhantomData;
use core::ptr::NonNull;
use zerocopy::{FromBytes, Immutable, IntoBytes};

/// A ring of slots. Both the CPU and a device access it, or the CPU alone.
///
/// The ring takes the slots by exclusive reference, so no other Rust code can reach them during its life. It
/// keeps a raw pointer, because the device changes the slots without the compiler's knowledge. All slot types
/// are plain bytes: any bytes that the device writes are a valid value.
pub(crate) struct Ring<'r, T> {
    base: NonNull<T>,
    /// The distance in bytes from the first slot to the last. As a mask, this value reduces a distance over
    /// several laps to the distance of a slot from the first slot.
    mask: usize,
    /// Size of all slots together in bytes. As a mask, it selects the bit of a distance that changes with
    /// each lap.
    bytes: usize,
    memory: PhantomData<&'r mut [T]>,
}

// SAFETY: a ring has exclusive access to its slots, like `&mut [T]`. It may move to another thread if `T`
// may.
unsafe impl<T: Send> Send for Ring<'_, T> {}

impl<'r, T: Copy + FromBytes + IntoBytes + Immutable> Ring<'r, T> {
    /// Size of a slot in bytes, a power of two.
    const SLOT: usize = {
        assert!(size_of::<T>().is_power_of_two());
        size_of::<T>()
    };

    /// Makes a ring over `slots`. Refuses a number of slots that is no power of two or exceeds `max`, which
    /// is at most 2^31. `what` names the slots in the error.
    pub(crate) fn new(slots: &'r mut [T], what: &'static str, max: usize) -> Result<Self, QueueError> {
        let entries = slots.len();
        if !entries.is_power_of_two() || entries > max {
            return Err(QueueError::Size { what, entries, max });
        }
        let bytes = entries * Self::SLOT;
        Ok(Self { base: NonNull::from(slots).cast(), mask: bytes - Self::SLOT, bytes, memory: PhantomData })
    }

    /// Returns the number of slots.
    pub(crate) const fn len(&self) -> u32 {
        (self.bytes / Self::SLOT) as u32
    }

    /// Returns the address of the ring.
    #[inline]
    pub(super) fn address(&self) -> usize {
        self.base.addr().get()
    }

    /// Returns the pointer to a slot. The later slots up to the ring's end follow it in memory.
    #[inline]
    pub(super) fn slot(&self, index: u64) -> *mut T {
        let distance = (index as usize).wrapping_mul(Self::SLOT) & self.mask;
        // SAFETY: the number of slots and their size are powers of two, and `mask` is that of the slice that
        // `new` took. Any distance masked by it is therefore that of a slot of the slice, which stays
        // borrowed for 'r.
        unsafe { self.base.as_ptr().byte_add(distance) }
    }

    /// Writes a slot.
    #[inline]
    pub(crate) fn write(&mut self, index: u64, value: T) {
        // SAFETY: the pointer is that of a slot (see `slot`), aligned, and this ring may write it. The store
        // is plain: the device reads the slot only after the barrier and the doorbell that follow.
        unsafe { self.slot(index).write(value) }
    }

    /// Writes a slot directly from `value`, so that no other copy of its bytes stays on the stack.
    pub(crate) fn write_from(&mut self, index: u64, value: &T) {
        // SAFETY: the pointer is that of a slot, which this ring may write (see `write`). `value` does not
        // overlap the slot, since only this ring refers to its slots.
        unsafe { self.slot(index).copy_from_nonoverlapping(value, 1) }
    }

    /// Overwrites a slot with zeros. The compiler can neither leave the writes out, nor move them behind
    /// later code.
    pub(crate) fn wipe(&mut self, index: u64) {
        // SAFETY: the pointer is that of a slot, which this ring may write (see `write`), and zeros are a
        // valid value of `T`.
        unsafe { zeroize::zeroize_flat_type(self.slot(index)) }
    }

    /// Writes the first four bytes of a slot.
    pub(super) fn write_word(&mut self, index: u64, word: [u8; 4]) {
        const { assert!(size_of::<T>() >= 4) };
        // SAFETY: the pointer is that of a slot, which this ring may write (see `write`). The slot has at
        // least four bytes, and bytes need no alignment.
        unsafe { self.slot(index).cast::<[u8; 4]>().write(word) }
    }

    /// Returns a slot for reading.
    #[inline]
    pub(crate) fn peek(&self, index: u64) -> Slot<'_, T> {
        let owner = u64::from((index as usize).wrapping_mul(Self::SLOT) & self.bytes != 0);
        Slot { at: self.slot(index), owner, memory: PhantomData }
    }

    /// Copies a slot out.
    #[inline]
    pub(crate) fn read(&self, index: u64) -> T {
        // SAFETY: the pointer is that of a slot (see `slot`), aligned, and any bytes are a valid T. A device
        // that breaks the protocol and writes now can only make the copy wrong, and no code trusts the copy.
        unsafe { self.slot(index).read_volatile() }
    }
}

/// A slot for reading.
#[derive(Clone, Copy)]
pub(crate) struct Slot<'q, T> {
    at: *mut T,
    /// The owner bit of entries of this lap, see [`Slot::owner`].
    owner: u64,
    memory: PhantomData<&'q [T]>,
}

impl<T: Copy + FromBytes + IntoBytes + Immutable> Slot<'_, T> {
    /// Returns the owner bit of entries that the device writes in this lap of a completion queue: 0 in the
    /// first lap, 1 in the second, and so on in turn.
    #[inline]
    pub(super) const fn owner(self) -> u64 {
        self.owner
    }

    /// Copies the eight bytes from number `AT` on, with one load. The fields of an entry have no alignment,
    /// so the compiler would otherwise read them byte by byte. The copy is volatile, as in [`Ring::read`].
    #[inline]
    pub(crate) fn read_u64<const AT: usize>(self) -> [u8; 8] {
        const { assert!(AT.is_multiple_of(8) && AT + 8 <= size_of::<T>() && align_of::<T>() >= 8) };
        // SAFETY: `at` is a slot (see `Ring::peek`). The eight bytes are within the slot, and aligned. A
        // device that writes now can only make the copy wrong, and no code trusts the copy.
        unsafe { self.at.cast::<u64>().byte_add(AT).read_volatile() }.to_ne_bytes()
    }
}

impl<'q, E: CqeSlot> Slot<'q, E> {
    /// Returns the completion entry in the slot.
    #[inline]
    pub(super) fn cqe(self) -> Slot<'q, Cqe> {
        const { assert!(E::OFFSET.is_multiple_of(align_of::<Cqe>()) && E::OFFSET + 64 == size_of::<E>()) };
        // SAFETY: the entry is within the slot at `at` (see `Ring::peek`), and `E::OFFSET` keeps the
        // alignment.
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
    /// Makes a ring over slots that other code of a test writes. The caller ensures that the ring is only
    /// read.
    pub(super) fn over(lines: &'r [Line]) -> Self {
        assert!(lines.len().is_power_of_two());
        let bytes = size_of_val(lines);
        // A `Line` has the size and the alignment of an entry. The ring only reads the slots, eight bytes at
        // a time.
        Self { base: NonNull::from(lines).cast(), mask: bytes - 64, bytes, memory: PhantomData }
    }
}
