//! The memory of this program as a software device sees it: the device can access only ranges that this
//! module has allocated for it.

#![allow(unsafe_code)]

use alloc::alloc::{alloc, handle_alloc_error};
use alloc::collections::BTreeMap;
use core::alloc::Layout;
use core::ptr::{self, NonNull};
use core::slice;
use core::sync::atomic::{AtomicU8, Ordering};
use mlx5_softdev::{Fault, Memory};
use zerocopy::{FromBytes, FromZeros, IntoBytes};

/// The smallest alignment of rings and shared memory: a cache line, the unit in which devices access memory.
const LINE: usize = 64;
/// The size of a page. A range of this size or more begins at the start of a page, because devices take
/// addresses of rings in pages.
const PAGE: usize = 4096;

/// The ranges of this program's memory that a device may access. The device uses the program's own (virtual)
/// addresses.
#[derive(Debug)]
pub struct HostMemory {
    /// The length of each range in bytes, by its address.
    windows: BTreeMap<u64, u64>,
    source: unsafe fn(Layout) -> *mut u8,
}

/// Makes a `HostMemory` without ranges. Its functions allocate ranges from the global allocator.
impl Default for HostMemory {
    fn default() -> Self {
        // SAFETY: `new` requires less of an allocator than the contract of the global allocator promises.
        unsafe { Self::new(alloc) }
    }
}

impl HostMemory {
    /// Makes a `HostMemory` without ranges. Its functions allocate ranges from `source`, an allocator of
    /// memory that the device can access.
    ///
    /// # Safety
    /// The caller ensures that for a layout whose size is not 0, `source` returns null, or memory that
    /// nothing else ever uses.
    pub unsafe fn new(source: unsafe fn(Layout) -> *mut u8) -> Self {
        Self { windows: BTreeMap::new(), source }
    }

    /// Returns a `HostMemory` without ranges, for another device. It uses the same allocator.
    #[must_use]
    pub const fn another(&self) -> Self {
        Self { windows: BTreeMap::new(), source: self.source }
    }

    /// Allocates memory for `count` copies of `value`, writes them, and gives the device access forever.
    /// Returns a pointer to the first copy.
    fn place<T: Copy>(&mut self, value: T, count: usize) -> NonNull<T> {
        let layout = Layout::array::<T>(count).and_then(|layout| {
            let align = if layout.size() >= PAGE { PAGE } else { LINE };
            layout.align_to(align)
        });
        let layout = layout.expect("less than the address space");
        assert!(layout.size() > 0, "no memory asked for");
        // SAFETY: the size is not 0.
        let pointer = unsafe { (self.source)(layout) }.cast::<T>();
        let Some(first) = NonNull::new(pointer) else { handle_alloc_error(layout) };
        for index in 0..count {
            // SAFETY: the memory has room for `count` aligned values, and nothing else uses it.
            unsafe { first.add(index).write(value) };
        }
        let address = pointer.expose_provenance() as u64;
        self.windows.insert(address, layout.size() as u64);
        first
    }

    /// Allocates `count` slots that hold `value`, and gives the device access forever. Returns the slots and
    /// their address. The device may write any bytes to them, so any bytes must be a valid `T`.
    ///
    /// # Safety
    /// The device writes to the slots at any time, like hardware. The caller ensures that the reference goes
    /// into a queue of the library, which accesses the slots only through raw pointers, or that the reference
    /// is dropped and only the address is used.
    pub unsafe fn share<T>(&mut self, value: T, count: usize) -> (&'static mut [T], u64)
    where
        T: Copy + FromBytes + IntoBytes,
    {
        let first = self.place(value, count);
        // SAFETY: `place` has written `count` values to this memory. The values are exclusive and never
        // freed.
        let slots = unsafe { slice::from_raw_parts_mut(first.as_ptr(), count) };
        (slots, first.as_ptr().expose_provenance() as u64)
    }

    /// Allocates a doorbell record of zeros, and gives the device access forever. Returns the record and its
    /// address.
    ///
    /// # Safety
    /// The caller ensures that no code writes to this address through [`Memory::write`]. (Devices only read
    /// doorbell records.)
    pub unsafe fn share_record<R: FromZeros>(&mut self) -> (&'static R, u64) {
        const { assert!(size_of::<R>() <= LINE && align_of::<R>() <= 8) };
        let record = self.place([0_u64; LINE / 8], 1).cast::<R>();
        // SAFETY: zeros are a valid record; the memory has room for one and is never freed.
        (unsafe { record.as_ref() }, record.as_ptr().expose_provenance() as u64)
    }

    /// Allocates `length` bytes of zeros, aligned to a page, and gives the device access forever. Returns
    /// their address.
    pub fn alloc(&mut self, length: usize) -> u64 {
        #[derive(Clone, Copy)]
        #[repr(C, align(4096))]
        struct Page([u8; 4096]);
        let address = self.place(Page([0; 4096]), length.div_ceil(4096).max(1)).addr().get() as u64;
        self.windows.insert(address, length as u64);
        address
    }

    fn find(&self, address: u64, length: usize) -> Result<*mut u8, Fault> {
        let length = length as u64;
        let fault = Fault { address, length };
        let (start, window) = self.windows.range(..=address).next_back().ok_or(fault)?;
        let behind = window.checked_sub(address - start).ok_or(fault)?;
        if length > behind {
            return Err(fault);
        }
        Ok(ptr::with_exposed_provenance_mut(address as usize))
    }
}

impl Memory for HostMemory {
    fn read(&self, address: u64, out: &mut [u8]) -> Result<(), Fault> {
        let source = self.find(address, out.len())?;
        // SAFETY: `find` has checked that the range is inside leaked memory with an exposed address. As
        // `share` demands, no Rust reference accesses this memory: queues hold raw pointers, other code holds
        // addresses. Therefore `out` does not overlap with the range.
        unsafe { ptr::copy_nonoverlapping(source, out.as_mut_ptr(), out.len()) };
        Ok(())
    }

    fn write(&mut self, address: u64, bytes: &[u8]) -> Result<(), Fault> {
        let target = self.find(address, bytes.len())?;
        // SAFETY: `find` has checked that the range is inside leaked memory with an exposed address. As
        // `share` demands, no Rust reference accesses this memory. Therefore `bytes` does not overlap with
        // the range.
        unsafe { ptr::copy_nonoverlapping(bytes.as_ptr(), target, bytes.len()) };
        Ok(())
    }

    fn publish(&mut self, address: u64, byte: u8) -> Result<(), Fault> {
        let target = self.find(address, 1)?;
        // SAFETY: `find` has checked that the byte is inside leaked memory with an exposed address. As
        // `share` demands, no Rust reference accesses this memory. A byte needs no alignment.
        unsafe { AtomicU8::from_ptr(target).store(byte, Ordering::Release) };
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_device_reaches_what_it_was_told_of_and_nothing_else() {
        let mut memory = HostMemory::default();
        let address = memory.alloc(100);
        assert_eq!(address % 4096, 0);
        assert_eq!(memory.write(address + 98, &[1, 2]), Ok(()));
        let mut out = [0; 2];
        assert_eq!(memory.read(address + 98, &mut out), Ok(()));
        assert_eq!(out, [1, 2]);
        assert!(memory.write(address + 99, &[1, 2]).is_err());
        assert!(memory.read(address - 1, &mut out).is_err());
        assert!(memory.read(u64::MAX, &mut out).is_err());
    }
}
