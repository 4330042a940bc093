//! Memory that a queue shares with a device. Either side may write at any time.
#![allow(unsafe_code)]

use mlx5_mkey::hca::CommandMemory;
use zerocopy::{FromBytes, IntoBytes};

/// Makes the allocator take large blocks from the kernel, which fills pages with zeros at their first use.
/// Otherwise, clearing the 16 MiB of a software device's memory would take most of the time of an input.
pub(crate) fn zeros_are_of_the_kernel() {
    static ONCE: std::sync::Once = std::sync::Once::new();
    // SAFETY: the call changes the source of later allocations only.
    ONCE.call_once(|| assert_eq!(unsafe { libc::mallopt(libc::M_MMAP_THRESHOLD, 1 << 20) }, 1));
}

/// The slots of a queue. The device of a test may write them at any time.
#[derive(Debug)]
pub(crate) struct Shared<T> {
    first: *mut T,
    count: usize,
}

// SAFETY: the slots are plain bytes, stay allocated, and are accessed by volatile loads and stores only.
unsafe impl<T: Send> Send for Shared<T> {}
// SAFETY: the slots are plain bytes, stay allocated, and are accessed by volatile loads and stores only. A
// read during a write returns a mixture of the old and the new value, which is a valid value of plain bytes.
unsafe impl<T: Send> Sync for Shared<T> {}

impl<T: Copy + FromBytes + IntoBytes> Shared<T> {
    /// Moves the slots to memory of their own, which `drop` frees.
    pub(crate) fn new(slots: Vec<T>) -> Self {
        let slots = Box::leak(slots.into_boxed_slice());
        Self { count: slots.len(), first: slots.as_mut_ptr() }
    }

    /// Returns the slots for the queue that takes them.
    #[expect(clippy::mut_from_ref, reason = "the device has them too, as hardware has")]
    pub(crate) fn slots(&self) -> &mut [T] {
        // SAFETY: the slots are plain bytes and live as long as `self`. A queue turns the reference into a
        // pointer at once, because hardware writes the memory. No two queues take the same slots.
        unsafe { core::slice::from_raw_parts_mut(self.first, self.count) }
    }

    /// Writes a slot in the role of the device.
    pub(crate) fn write(&self, at: usize, value: T) {
        self.write_at(at * size_of::<T>(), value);
    }

    /// Reads a slot in the role of the device.
    pub(crate) fn read(&self, at: usize) -> T {
        self.read_at(at * size_of::<T>())
    }

    /// Reads a value at this offset in the role of the device.
    pub(crate) fn read_at<U: FromBytes>(&self, at: usize) -> U {
        // SAFETY: `place` has checked the offset, and all bytes are a valid value.
        unsafe { self.place::<U>(at).read_volatile() }
    }

    /// Writes a value at this offset in the role of the device.
    pub(crate) fn write_at<U: IntoBytes>(&self, at: usize, value: U) {
        // SAFETY: `place` has checked the offset, and the value is plain bytes.
        unsafe { self.place::<U>(at).write_volatile(value) }
    }

    fn place<U>(&self, at: usize) -> *mut U {
        assert!(at + size_of::<U>() <= self.count * size_of::<T>() && at.is_multiple_of(align_of::<U>()));
        // SAFETY: the offset is within the slots, which stay allocated as long as `self`.
        unsafe { self.first.byte_add(at).cast() }
    }
}

/// A page of a command queue's memory.
#[derive(Clone, Copy, FromBytes, IntoBytes)]
#[repr(C, align(4096))]
pub(crate) struct Page([u8; 4096]);

impl Page {
    pub(crate) const fn new() -> Self {
        // Code that wrongly relies on zeroed memory fails with this pattern.
        Self([0xa5; 4096])
    }
}

impl Shared<Page> {
    /// Returns all pages as the memory of a command queue.
    #[expect(clippy::mut_from_ref, reason = "as in `slots`")]
    pub(crate) fn commands<const BLOCKS: usize>(&self) -> &mut CommandMemory<BLOCKS> {
        assert!(size_of::<CommandMemory<BLOCKS>>() <= self.count * size_of::<Page>());
        // SAFETY: size and alignment suffice, and the memory has no invalid bytes. For the references see
        // `slots`.
        unsafe { &mut *self.first.cast() }
    }
}

impl<T> Drop for Shared<T> {
    fn drop(&mut self) {
        // SAFETY: `new` has leaked this allocation.
        drop(unsafe { Box::from_raw(core::ptr::slice_from_raw_parts_mut(self.first, self.count)) });
    }
}
