//! Memory from the allocator, for rings and buffers.

#![allow(unsafe_code)]

use crate::devx::error::DevxError;
use core::alloc::Layout;
use core::mem::ManuallyDrop;
use core::ptr::NonNull;
use std::io;
use std::vec::Vec;

/// Bytes of a huge page.
const HUGE_PAGE: usize = 2 << 20;

/// Memory from the allocator, freed with the value. Only its owner creates references to it.
pub(in crate::devx) struct Allocation {
    base: NonNull<u8>,
    layout: Layout,
    length: usize,
}

// SAFETY: the value is a pointer to plain memory; only its owner decides who accesses the memory, and from
// which thread.
unsafe impl Send for Allocation {}
// SAFETY: as for `Send`: the owner decides who uses the memory.
unsafe impl Sync for Allocation {}

impl Allocation {
    /// The smallest alignment of memory from [`Allocation::zeroed`], in bytes: the device's smallest page.
    pub(in crate::devx) const PAGE: usize = 4096;

    /// Allocates zeroed memory, aligned to pages. From 2 MiB on, the memory is aligned to huge pages, and the
    /// kernel is asked for them. `what` names the allocation in the error when memory is used up.
    pub(in crate::devx) fn zeroed(length: usize, what: &'static str) -> Result<Self, DevxError> {
        let out_of_memory = || DevxError::call(what, io::ErrorKind::OutOfMemory.into());
        let align = if length >= HUGE_PAGE { HUGE_PAGE } else { Self::PAGE };
        let layout =
            Layout::from_size_align(length.max(1), align).map_err(|_| out_of_memory())?.pad_to_align();
        // SAFETY: the size is not 0.
        let base = NonNull::new(unsafe { std::alloc::alloc(layout) }).ok_or_else(out_of_memory)?;
        if align == HUGE_PAGE {
            // The call must come before the first access to the memory, because that access assigns the
            // pages. A failure is ignored: small pages work as well.
            // SAFETY: the advice does not change the bytes that a program sees.
            unsafe { libc::madvise(base.as_ptr().cast(), layout.size(), libc::MADV_HUGEPAGE) };
        }
        // SAFETY: the memory was just allocated with this size.
        unsafe { base.write_bytes(0, layout.size()) };
        Ok(Self { base, layout, length })
    }

    /// Returns the address of `count` values at `offset`, or an error if they do not fit into the memory or
    /// are misaligned.
    pub(super) fn place<T>(&self, offset: usize, count: usize) -> Result<NonNull<T>, DevxError> {
        const { assert!(align_of::<T>() <= Self::PAGE, "the base would not be aligned") };
        let bytes = count.checked_mul(size_of::<T>());
        let inside = bytes
            .and_then(|bytes| bytes.checked_add(offset))
            .is_some_and(|end| end <= self.length && offset.is_multiple_of(align_of::<T>()));
        if !inside {
            return Err(DevxError::call("laying out of a ring", io::ErrorKind::InvalidInput.into()));
        }
        // SAFETY: the address is inside the allocation, as just checked.
        Ok(unsafe { self.base.add(offset) }.cast())
    }

    /// Returns `count` values at `offset`, each set to `value`.
    ///
    /// # Safety
    /// The caller ensures that the slice is used only while the memory lives, and that no other slice or
    /// reference to these bytes exists.
    pub(in crate::devx) unsafe fn slots<T: Copy>(
        &self,
        offset: usize,
        count: usize,
        value: T,
    ) -> Result<&'static mut [T], DevxError> {
        let first = self.place::<T>(offset, count)?.as_ptr();
        // SAFETY: `place` has checked size and alignment; the caller vouches for lifetime and exclusive use.
        unsafe {
            for index in 0..count {
                first.add(index).write(value);
            }
            Ok(core::slice::from_raw_parts_mut(first, count))
        }
    }

    /// Takes the memory of a vector. An empty vector is returned as the error.
    pub(in crate::devx) fn of_vec(bytes: Vec<u8>) -> Result<Self, Vec<u8>> {
        let mut bytes = ManuallyDrop::new(bytes);
        match (NonNull::new(bytes.as_mut_ptr()), Layout::array::<u8>(bytes.capacity()), bytes.len()) {
            (Some(base), Ok(layout), length @ 1..) => Ok(Self { base, layout, length }),
            _ => Err(ManuallyDrop::into_inner(bytes)),
        }
    }

    /// Returns the vector that [`Allocation::of_vec`] took.
    ///
    /// # Safety
    /// The caller ensures that the memory came from [`Allocation::of_vec`].
    pub(in crate::devx) unsafe fn into_vec(self) -> Vec<u8> {
        let this = ManuallyDrop::new(self);
        // SAFETY: these are the parts of a vector that `of_vec` took apart; the memory has no other owner.
        unsafe { Vec::from_raw_parts(this.base.as_ptr(), this.length, this.layout.size()) }
    }

    /// Returns the address of the first byte.
    pub(in crate::devx) const fn base(&self) -> NonNull<u8> {
        self.base
    }

    /// Returns the number of bytes that the caller asked for, or the length of the vector that was taken.
    pub(in crate::devx) const fn length(&self) -> usize {
        self.length
    }
}

impl Drop for Allocation {
    fn drop(&mut self) {
        // SAFETY: the memory came from the allocator with this layout. Its owner is dropped, so nobody uses
        // the memory any more.
        unsafe { std::alloc::dealloc(self.base.as_ptr(), self.layout) };
    }
}
