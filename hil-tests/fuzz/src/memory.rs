//! Memory that a device shares with a queue: both write it, each behind the other's back.
#![allow(unsafe_code)]

use mlx5_mkey::hca::CommandMemory;
use zerocopy::{FromBytes, IntoBytes};

/// Has the kernel give large memory, which is zeros already: to fill an arena of 16 MiB with them took most of an input's time.
pub(crate) fn zeros_are_of_the_kernel() {
    static ONCE: std::sync::Once = std::sync::Once::new();
    // SAFETY: it changes where memory comes from, and nothing of what there is.
    ONCE.call_once(|| assert_eq!(unsafe { libc::mallopt(libc::M_MMAP_THRESHOLD, 1 << 20) }, 1));
}

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

/// A page of the memory of a command queue.
#[derive(Clone, Copy, FromBytes, IntoBytes)]
#[repr(C, align(4096))]
pub(crate) struct Page([u8; 4096]);

impl Page {
    pub(crate) const fn new() -> Self {
        // Nothing relies on zeros.
        Self([0xa5; 4096])
    }
}

impl Shared<Page> {
    /// Returns them all as the memory of a command queue, which takes it.
    #[expect(clippy::mut_from_ref, reason = "as in `slots`")]
    pub(crate) fn commands<const BLOCKS: usize>(&self) -> &mut CommandMemory<BLOCKS> {
        assert!(size_of::<CommandMemory<BLOCKS>>() <= self.count * size_of::<Page>());
        // SAFETY: there are as many bytes, pages are aligned as the memory is, and any bytes are such memory. As in `slots`.
        unsafe { &mut *self.first.cast() }
    }

    /// Reads what is this many bytes behind the beginning, as the device.
    pub(crate) fn read_at<U: FromBytes>(&self, at: usize) -> U {
        // SAFETY: `place` has looked; any bytes are a value.
        unsafe { self.place::<U>(at).read_volatile() }
    }

    /// Writes there, as the device.
    pub(crate) fn write_at<U: IntoBytes>(&self, at: usize, value: U) {
        // SAFETY: `place` has looked; bytes of a value are bytes of a page.
        unsafe { self.place::<U>(at).write_volatile(value) }
    }

    fn place<U>(&self, at: usize) -> *mut U {
        assert!(at + size_of::<U>() <= self.count * size_of::<Page>() && at.is_multiple_of(align_of::<U>()));
        // SAFETY: it is within the pages.
        unsafe { self.first.byte_add(at).cast() }
    }
}

impl<T> Drop for Shared<T> {
    fn drop(&mut self) {
        // SAFETY: this is what `new` has leaked.
        drop(unsafe { Box::from_raw(core::ptr::slice_from_raw_parts_mut(self.first, self.count)) });
    }
}
