//! Memory that a device shares with a queue: both write it, each behind the other's back.
#![allow(unsafe_code)]

use zerocopy::{FromBytes, IntoBytes};

/// Slots that a queue has taken, and that the device of a test may write at any time.
#[derive(Debug)]
pub(crate) struct Shared<T> {
    first: *mut T,
    count: usize,
}

// SAFETY: the slots are plain bytes that stay allocated, and are accessed by volatile loads and stores only.
unsafe impl<T: Send> Send for Shared<T> {}
// SAFETY: as above. Whoever reads while another writes gets bytes of both, which are bytes nevertheless.
unsafe impl<T: Send> Sync for Shared<T> {}

impl<T: Copy + FromBytes + IntoBytes> Shared<T> {
    /// Makes slots. They are freed with the value, after everything that has borrowed them.
    pub(crate) fn new(slots: Vec<T>) -> Self {
        let slots = Box::leak(slots.into_boxed_slice());
        Self { count: slots.len(), first: slots.as_mut_ptr() }
    }

    /// Returns the slots, for the queue that takes them.
    #[expect(clippy::mut_from_ref, reason = "the device has them too, as hardware has")]
    pub(crate) fn slots(&self) -> &mut [T] {
        // SAFETY: they are allocated as long as `self` lives, and plain bytes. A queue turns the reference into a pointer at once, as it
        // must where hardware writes; each of them is taken once.
        unsafe { core::slice::from_raw_parts_mut(self.first, self.count) }
    }

    /// Writes a slot, as the device.
    pub(crate) fn write(&self, at: usize, value: T) {
        assert!(at < self.count);
        // SAFETY: the slot is there.
        unsafe { self.first.add(at).write_volatile(value) }
    }

    /// Reads a slot, as the device.
    pub(crate) fn read(&self, at: usize) -> T {
        assert!(at < self.count);
        // SAFETY: as in `write`.
        unsafe { self.first.add(at).read_volatile() }
    }
}

impl<T> Drop for Shared<T> {
    fn drop(&mut self) {
        // SAFETY: this is what `new` has leaked.
        drop(unsafe { Box::from_raw(core::ptr::slice_from_raw_parts_mut(self.first, self.count)) });
    }
}
