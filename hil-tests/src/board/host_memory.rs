//! This process's memory as a software device sees it: only what it was told of.

#![allow(unsafe_code)]

use mlx5_softdev::{Fault, Memory};
use std::ptr;
use std::sync::atomic::{AtomicU8, Ordering};

/// Windows of process memory that a device may reach, at their own addresses.
#[derive(Debug, Default)]
pub struct HostMemory {
    windows: Vec<Window>,
}

#[derive(Debug)]
struct Window {
    address: u64,
    length: u64,
}

impl HostMemory {
    /// Gives up `slice` to the device for good and returns its address.
    ///
    /// The caller gets the only reference that there will be; the device writes behind its back, as hardware does, so it
    /// belongs into a queue of the library, which never reads through it, or is dropped for the raw address.
    pub fn share<T>(&mut self, slice: Box<[T]>) -> (&'static mut [T], u64) {
        let length = size_of_val(&slice[..]) as u64;
        let slice = Box::leak(slice);
        let address = slice.as_mut_ptr().expose_provenance() as u64;
        self.windows.push(Window { address, length });
        (slice, address)
    }

    /// Shows `value` to the device for good and returns its address. It must be changed through atomics only.
    pub fn share_record<T: Sync>(&mut self, value: T) -> (&'static T, u64) {
        let value = Box::leak(Box::new(value));
        let address = ptr::from_mut(value).expose_provenance() as u64;
        self.windows.push(Window { address, length: size_of::<T>() as u64 });
        (value, address)
    }

    /// Gives `length` bytes of zeros, aligned to a page, to the device for good and returns their address.
    pub fn alloc(&mut self, length: usize) -> u64 {
        #[derive(Clone, Copy)]
        #[repr(align(4096))]
        struct Page([u8; 4096]);
        let pages = vec![Page([0; 4096]); length.div_ceil(4096).max(1)];
        debug_assert_eq!(pages[0].0[0], 0);
        let (_, address) = self.share(pages.into_boxed_slice());
        if let Some(window) = self.windows.last_mut() {
            window.length = length as u64;
        }
        address
    }

    fn find(&self, address: u64, length: usize) -> Result<*mut u8, Fault> {
        let length = length as u64;
        let inside = |window: &&Window| {
            address
                .checked_sub(window.address)
                .is_some_and(|offset| offset <= window.length && length <= window.length - offset)
        };
        // Newest first: what is used most was made last.
        match self.windows.iter().rev().find(inside) {
            Some(_) => Ok(ptr::with_exposed_provenance_mut(address as usize)),
            None => Err(Fault { address, length }),
        }
    }
}

impl Memory for HostMemory {
    fn read(&self, address: u64, out: &mut [u8]) -> Result<(), Fault> {
        let source = self.find(address, out.len())?;
        // SAFETY: `find` has checked that the range is inside memory that was leaked and its address exposed. No Rust
        // reference to it is used for access: queues hold raw pointers, all else holds addresses. `out` is elsewhere, since
        // nobody can hold a reference into a window.
        unsafe { ptr::copy_nonoverlapping(source, out.as_mut_ptr(), out.len()) };
        Ok(())
    }

    fn write(&mut self, address: u64, bytes: &[u8]) -> Result<(), Fault> {
        let target = self.find(address, bytes.len())?;
        // SAFETY: as in `read`.
        unsafe { ptr::copy_nonoverlapping(bytes.as_ptr(), target, bytes.len()) };
        Ok(())
    }

    fn publish(&mut self, address: u64, byte: u8) -> Result<(), Fault> {
        let target = self.find(address, 1)?;
        // SAFETY: as in `read`; a byte has no alignment.
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
