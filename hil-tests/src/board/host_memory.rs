//! This process's memory as a software device sees it: only what it was told of.

#![allow(unsafe_code)]

use mlx5_mkey::queue::DoorbellRecord;
use mlx5_softdev::{Fault, Memory};
use std::ptr;
use std::sync::atomic::{AtomicU8, Ordering};
use zerocopy::{FromBytes, IntoBytes};

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
    /// Gives up `slice` to the device for good and returns its address. Whatever bytes the device leaves in it are a `T`.
    ///
    /// # Safety
    /// The reference is the only one that there will be, and the device writes behind its back, as hardware does: it goes
    /// into a queue of the library, which never reads through it, or is dropped for the raw address.
    pub unsafe fn share<T: FromBytes + IntoBytes>(&mut self, slice: Box<[T]>) -> (&'static mut [T], u64) {
        let length = size_of_val(&slice[..]) as u64;
        let slice = Box::leak(slice);
        let address = slice.as_mut_ptr().expose_provenance() as u64;
        self.windows.push(Window { address, length });
        (slice, address)
    }

    /// Shows a doorbell record to the device for good and returns its address.
    ///
    /// # Safety
    /// Nobody writes to that address through [`Memory::write`]: a device only reads records.
    pub unsafe fn share_record(&mut self) -> (&'static DoorbellRecord, u64) {
        let record = Box::leak(Box::new(DoorbellRecord::new()));
        let address = ptr::from_mut(record).expose_provenance() as u64;
        self.windows.push(Window { address, length: size_of::<DoorbellRecord>() as u64 });
        (record, address)
    }

    /// Gives `length` bytes of zeros, aligned to a page, to the device for good and returns their address.
    pub fn alloc(&mut self, length: usize) -> u64 {
        #[derive(Clone, Copy, FromBytes, IntoBytes)]
        #[repr(C, align(4096))]
        struct Page([u8; 4096]);
        let pages = vec![Page([0; 4096]); length.div_ceil(4096).max(1)];
        debug_assert_eq!(pages[0].0[0], 0);
        // SAFETY: the reference is dropped at once.
        let (_, address) = unsafe { self.share(pages.into_boxed_slice()) };
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
        // reference to it is used for access, as the callers of `share` vouch: queues hold raw pointers, all else holds
        // addresses. So `out` is elsewhere.
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
