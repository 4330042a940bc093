//! The memory that the device reads and writes.

use alloc::vec;
use alloc::vec::Vec;

/// An access that reached outside of the memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fault {
    /// First address of the access.
    pub address: u64,
    /// Length of the access in bytes.
    pub length: u64,
}

/// Memory as the device sees it through the bus. An address is a number that a work request or a command
/// contains.
///
/// Rings, doorbell records and data are all in this memory. Implementations must not panic for any address.
pub trait Memory {
    /// Fills `out` from `address` on.
    ///
    /// # Errors
    /// [`Fault`] where part of the range is outside of the memory; `out` is then unspecified.
    fn read(&self, address: u64, out: &mut [u8]) -> Result<(), Fault>;

    /// Appends `length` bytes from `address` on to `out`. Memory that can fill new bytes without zeros first
    /// has its own implementation.
    ///
    /// # Errors
    /// [`Fault`] where part of the range is outside of the memory; `out` is then unspecified.
    fn append(&self, address: u64, length: usize, out: &mut Vec<u8>) -> Result<(), Fault> {
        let start = out.len();
        out.resize(start.saturating_add(length), 0);
        self.read(address, out.get_mut(start..).unwrap_or_default())
    }

    /// Stores `bytes` from `address` on.
    ///
    /// # Errors
    /// [`Fault`] where part of the range is outside of the memory.
    fn write(&mut self, address: u64, bytes: &[u8]) -> Result<(), Fault>;

    /// Stores one byte, ordered after all earlier writes.
    ///
    /// The device uses this call for the last byte of a completion entry, the owner byte: the host reads the
    /// other bytes when this byte changes. Shared memory needs a release store here. Memory of one thread
    /// does not.
    ///
    /// # Errors
    /// [`Fault`] where `address` is outside of the memory.
    fn publish(&mut self, address: u64, byte: u8) -> Result<(), Fault> {
        self.write(address, &[byte])
    }

    /// Stores an entry: first the bytes of `body` from `address` on, then `last` as the byte after them.
    ///
    /// # Errors
    /// [`Fault`] where part of the entry is outside of the memory.
    fn publish_entry(&mut self, address: u64, body: &[u8], last: u8) -> Result<(), Fault> {
        self.write(address, body)?;
        self.publish(address.wrapping_add(body.len() as u64), last)
    }
}

/// Memory in one owned array that starts at a chosen address: for tests and for firmware.
///
/// ```
/// use mlx5_softdev::{Arena, Memory};
/// let mut arena = Arena::new(0x1000, 64);
/// arena.write(0x1008, &[1, 2])?;
/// assert_eq!(arena.bytes(0x1008, 2), Some(&[1, 2][..]));
/// assert!(arena.write(0x103f, &[1, 2]).is_err());
/// # Ok::<(), mlx5_softdev::Fault>(())
/// ```
#[derive(Clone, Debug)]
pub struct Arena {
    base: u64,
    bytes: Vec<u8>,
}

impl Arena {
    /// Makes `length` bytes of zeros at address `base`.
    pub fn new(base: u64, length: usize) -> Self {
        Self { base, bytes: vec![0; length] }
    }

    /// Returns `length` bytes at `address`. `None` if any of them is outside of the array.
    pub fn bytes(&self, address: u64, length: usize) -> Option<&[u8]> {
        let start = self.index(address)?;
        self.bytes.get(start..start.checked_add(length)?)
    }

    /// Returns `length` bytes at `address`, mutably. `None` if any of them is outside of the array.
    pub fn bytes_mut(&mut self, address: u64, length: usize) -> Option<&mut [u8]> {
        let start = self.index(address)?;
        self.bytes.get_mut(start..start.checked_add(length)?)
    }

    fn index(&self, address: u64) -> Option<usize> {
        usize::try_from(address.checked_sub(self.base)?).ok()
    }
}

impl Memory for Arena {
    fn read(&self, address: u64, out: &mut [u8]) -> Result<(), Fault> {
        let fault = Fault { address, length: out.len() as u64 };
        out.copy_from_slice(self.bytes(address, out.len()).ok_or(fault)?);
        Ok(())
    }

    fn write(&mut self, address: u64, bytes: &[u8]) -> Result<(), Fault> {
        let fault = Fault { address, length: bytes.len() as u64 };
        self.bytes_mut(address, bytes.len()).ok_or(fault)?.copy_from_slice(bytes);
        Ok(())
    }
}
