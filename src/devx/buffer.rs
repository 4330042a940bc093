//! Buffers: memory that the library owns and that is registered with the device.

#![allow(unsafe_code)]

use super::memory_region::{entry_of, sge_of, verbs_access};
use super::{DevxError, PieceError, ProtectionDomain, sys};
use crate::mkey::{Access, KlmEntry};
use crate::types::Key;
use crate::wqe::Sge;
use core::ops::Range;
use core::ptr::NonNull;
use std::io;
use std::vec::Vec;

/// Memory that is registered with the device. It was allocated zeroed and aligned to pages, or taken from a
/// vector.
///
/// The device may read and write the memory at any time. Rust code therefore copies bytes in and out instead
/// of holding references. If the device writes during a copy, the copy may hold old and new bytes. A caller
/// who knows that the device writes nothing may borrow the bytes, see [`Buffer::slice`].
///
/// ```no_run
/// # use mlx5_mkey::devx::{DevxError, ProtectionDomain};
/// use mlx5_mkey::mkey::Access;
/// # fn example(pd: &ProtectionDomain) -> Result<(), DevxError> {
/// let mut buffer = pd.alloc_buffer(1 << 20, Access::LOCAL_WRITE | Access::REMOTE_READ)?;
/// buffer.write(4096, b"hello")?;
/// // Two pieces of the buffer, for an mkey's layout.
/// let entries = [buffer.entry(4096..4101)?, buffer.entry(8192..12288)?];
/// # let _ = entries;
/// # Ok(())
/// # }
/// ```
pub struct Buffer(sys::Mr<sys::Allocation>);

impl ProtectionDomain {
    /// Allocates `length` bytes of zeros, aligned to pages of 4096 bytes, and registers them. From 2 MiB on
    /// they are aligned to 2 MiB, and the function asks the kernel for huge pages (`madvise`, MADV_HUGEPAGE),
    /// so that the device keeps fewer translations. The kernel may use small pages nevertheless.
    ///
    /// # Errors
    /// [`DevxError::Call`]: memory is used up, or the kernel refuses.
    pub fn alloc_buffer(&self, length: usize, access: Access) -> Result<Buffer, DevxError> {
        let memory = sys::Allocation::zeroed(length, "allocation of a buffer")?;
        self.own(memory, access).map_err(|(error, _)| error)
    }

    /// Registers the bytes of a vector. The buffer takes over the vector.
    ///
    /// # Errors
    /// [`DevxError::Call`] where the vector is empty or the kernel refuses. The vector comes back unchanged.
    pub fn register_vec(&self, bytes: Vec<u8>, access: Access) -> Result<Buffer, (DevxError, Vec<u8>)> {
        let empty = || DevxError::call("registration of a vector", io::ErrorKind::InvalidInput.into());
        let memory = sys::Allocation::of_vec(bytes).map_err(|bytes| (empty(), bytes))?;
        // SAFETY: the memory was taken from a vector just above.
        self.own(memory, access).map_err(|(error, memory)| (error, unsafe { memory.into_vec() }))
    }

    fn own(&self, memory: sys::Allocation, access: Access) -> Result<Buffer, (DevxError, sys::Allocation)> {
        let (address, length) = (memory.base().as_ptr(), memory.length().max(1));
        // SAFETY: the allocation lives until the registration has ended, and for ever if ending it fails.
        // Rust code accesses the memory only through copies, or through `slice` and `slice_mut`, whose
        // callers vouch for the access.
        let region = unsafe { sys::Mr::register(&self.pd, memory, address, length, verbs_access(access))? };
        Ok(Buffer(region))
    }
}

impl Buffer {
    /// Returns the address of the buffer's first byte.
    pub fn address(&self) -> u64 {
        self.0.kept().base().as_ptr().expose_provenance() as u64
    }

    /// Returns the buffer's length in bytes.
    pub fn len(&self) -> usize {
        self.0.kept().length()
    }

    /// Returns whether the buffer has no bytes.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the local key, for requests of this side.
    pub fn lkey(&self) -> Key {
        Key::from_raw(self.0.lkey())
    }

    /// Returns the remote key, for requests of the peer.
    pub fn rkey(&self) -> Key {
        Key::from_raw(self.0.rkey())
    }

    /// Returns a piece of the buffer as an entry of an mkey's layout.
    ///
    /// # Errors
    /// [`PieceError`]: the piece reaches past the buffer's end, or its length does not fit an entry.
    pub fn entry(&self, piece: Range<usize>) -> Result<KlmEntry, PieceError> {
        Ok(entry_of(self.sge(piece)?))
    }

    /// Returns a piece of the buffer as a data segment of a request.
    ///
    /// # Errors
    /// As [`Buffer::entry`].
    pub fn sge(&self, piece: Range<usize>) -> Result<Sge, PieceError> {
        sge_of(self.address(), self.len(), self.lkey(), piece)
    }

    /// Copies bytes into the buffer, from `offset` on.
    ///
    /// # Errors
    /// [`PieceError`] where the bytes would reach past the buffer's end. No byte is copied then.
    pub fn write(&mut self, offset: usize, bytes: &[u8]) -> Result<(), PieceError> {
        let place = self.place(offset, bytes.len())?;
        // SAFETY: `place` has room for the bytes in the allocation, which Rust code reaches only through this
        // value. The device sees the bytes when it executes a request that is posted afterwards.
        unsafe { place.copy_from_nonoverlapping(NonNull::from(bytes).cast(), bytes.len()) };
        Ok(())
    }

    /// Copies bytes out of the buffer, from `offset` on. Each byte is read once, and later writes of the
    /// device or a peer do not change the copy. So a program that checks the copy uses the same bytes that it
    /// has checked.
    ///
    /// # Errors
    /// [`PieceError`] where the buffer has fewer bytes from `offset` on. No byte is copied then.
    pub fn read(&self, offset: usize, bytes: &mut [u8]) -> Result<(), PieceError> {
        let place = self.place(offset, bytes.len())?;
        // SAFETY: the allocation has that many bytes from `place` on, and they are initialised. Rust code can
        // write them only through an exclusive reference to this value.
        unsafe { sys::copy_out(place.as_ptr(), bytes) };
        Ok(())
    }

    /// Returns the address of the byte at `offset`, if the buffer has `length` bytes from there on.
    fn place(&self, offset: usize, length: usize) -> Result<NonNull<u8>, PieceError> {
        let end = offset.saturating_add(length);
        if end > self.len() {
            return Err(PieceError::Outside { start: offset, end, length: self.len() });
        }
        // SAFETY: the address is within the allocation, or at its end.
        Ok(unsafe { self.0.kept().base().add(offset) })
    }

    /// Returns the buffer's bytes.
    ///
    /// # Safety
    /// The caller ensures that while the reference lives, nobody writes to the memory: no request that writes
    /// to it is outstanding, and no peer has a key with the right to write to it or to an mkey over it.
    pub unsafe fn slice(&self) -> &[u8] {
        // SAFETY: the allocation has that length, and all its bytes are initialised; the caller vouches for
        // the rest.
        unsafe { core::slice::from_raw_parts(self.0.kept().base().as_ptr(), self.len()) }
    }

    /// Returns the buffer's bytes as a mutable slice.
    ///
    /// # Safety
    /// The caller ensures that while the reference lives, nobody else reads or writes the memory, as in
    /// [`Buffer::slice`].
    pub unsafe fn slice_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `slice`.
        unsafe { core::slice::from_raw_parts_mut(self.0.kept().base().as_ptr(), self.len()) }
    }
}
