//! Memory of the allocator's, for rings and buffers.

#![allow(unsafe_code)]

use crate::devx::error::DevxError;
use core::alloc::Layout;
use core::mem::ManuallyDrop;
use core::ptr::NonNull;
use std::io;
use std::vec::Vec;

/// Bytes of a huge page.
const HUGE_PAGE: usize = 2 << 20;

/// Memory of the allocator's, which is freed with the value. There are no references to it but those that its
/// owner makes.
pub(in crate::devx) struct Allocation {
    base: NonNull<u8>,
    layout: Layout,
    length: usize,
}

// SAFETY: plain memory behind a pointer; its owner says who uses it.
unsafe impl Send for Allocation {}
// SAFETY: as above.
unsafe impl Sync for Allocation {}

impl Allocation {
    /// Alignment in bytes: the smallest page of the device.
    pub(in crate::devx) const PAGE: usize = 4096;

    /// Allocates zeros, aligned to pages; from 2 MiB on to huge pages, which the kernel is asked for. `what`
    /// is what cannot be allocated where memory is used up.
    pub(in crate::devx) fn zeroed(length: usize, what: &'static str) -> Result<Self, DevxError> {
        let out_of_memory = || DevxError::call(what, io::ErrorKind::OutOfMemory.into());
        let align = if length >= HUGE_PAGE { HUGE_PAGE } else { Self::PAGE };
        let layout =
            Layout::from_size_align(length.max(1), align).map_err(|_| out_of_memory())?.pad_to_align();
        // SAFETY: the size is not 0.
        let base = NonNull::new(unsafe { std::alloc::alloc(layout) }).ok_or_else(out_of_memory)?;
        if align == HUGE_PAGE {
            // Before the memory is touched: that is when it gets its pages. Whether the kernel has huge ones
            // is of no account. SAFETY: the advice changes nothing that a program can see in its memory.
            unsafe { libc::madvise(base.as_ptr().cast(), layout.size(), libc::MADV_HUGEPAGE) };
        }
        // SAFETY: just allocated, with this size.
        unsafe { base.write_bytes(0, layout.size()) };
        Ok(Self { base, layout, length })
    }

    /// Takes the memory of a vector that is not empty; the vector comes back where it is.
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
    /// It is from there.
    pub(in crate::devx) unsafe fn into_vec(self) -> Vec<u8> {
        let this = ManuallyDrop::new(self);
        // SAFETY: these are the parts of a vector, which was given up for them; the memory has no other
        // owner.
        unsafe { Vec::from_raw_parts(this.base.as_ptr(), this.length, this.layout.size()) }
    }

    /// Returns its first byte.
    pub(in crate::devx) const fn base(&self) -> NonNull<u8> {
        self.base
    }

    /// Returns how many bytes were asked for.
    pub(in crate::devx) const fn length(&self) -> usize {
        self.length
    }
}

impl Drop for Allocation {
    fn drop(&mut self) {
        // SAFETY: from the allocator with this layout; whoever used it is gone with its owner.
        unsafe { std::alloc::dealloc(self.base.as_ptr(), self.layout) };
    }
}
