//! Memory that owns its registration.

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

/// Memory that is registered with the device: zeroed and aligned to pages, or what was a vector.
///
/// The device may read and write it at any time. So there are no references to it, only copies in and out:
/// bytes that the device writes meanwhile may be seen or not. Who knows that it does not may borrow the
/// bytes, see [`Buffer::slice`].
///
/// ```no_run
/// # use mlx5_mkey::devx::{DevxError, ProtectionDomain};
/// use mlx5_mkey::mkey::Access;
/// # fn example(pd: &ProtectionDomain) -> Result<(), DevxError> {
/// let mut buffer = pd.alloc_buffer(1 << 20, Access::LOCAL_WRITE | Access::REMOTE_READ)?;
/// buffer.write(4096, b"hello")?;
/// // Two pieces of it, for an mkey's layout.
/// let entries = [buffer.entry(4096..4101)?, buffer.entry(8192..12288)?];
/// # let _ = entries;
/// # Ok(())
/// # }
/// ```
pub struct Buffer(sys::Mr<sys::Allocation>);

impl ProtectionDomain {
    /// Allocates `length` bytes of zeros, aligned to pages of 4096 bytes, and registers them. From 2 MiB on
    /// they are aligned to that, and the kernel is asked for huge pages, which it has or has not (`madvise`,
    /// MADV_HUGEPAGE): the device keeps fewer translations then.
    ///
    /// # Errors
    /// [`DevxError::Call`]: memory is used up, or the kernel refuses.
    pub fn alloc_buffer(&self, length: usize, access: Access) -> Result<Buffer, DevxError> {
        let memory = sys::Allocation::zeroed(length, "allocation of a buffer")?;
        self.own(memory, access).map_err(|(error, _)| error)
    }

    /// Registers the bytes of a vector, which becomes the buffer's.
    ///
    /// # Errors
    /// [`DevxError::Call`], and the vector as it was: it is empty, or the kernel refuses.
    pub fn register_vec(&self, bytes: Vec<u8>, access: Access) -> Result<Buffer, (DevxError, Vec<u8>)> {
        let empty = || DevxError::call("registration of a vector", io::ErrorKind::InvalidInput.into());
        let memory = sys::Allocation::of_vec(bytes).map_err(|bytes| (empty(), bytes))?;
        // SAFETY: it was a vector just now.
        self.own(memory, access).map_err(|(error, memory)| (error, unsafe { memory.into_vec() }))
    }

    fn own(&self, memory: sys::Allocation, access: Access) -> Result<Buffer, (DevxError, sys::Allocation)> {
        let (address, length) = (memory.base().as_ptr(), memory.length().max(1));
        // SAFETY: the allocation lives until the registration is over, and for ever if that cannot be ended.
        // Rust code reaches it through copies only, or vouches for what it does.
        let region = unsafe { sys::Mr::register(&self.pd, memory, address, length, verbs_access(access))? };
        Ok(Buffer(region))
    }
}

impl Buffer {
    /// Returns the address of its first byte.
    pub fn address(&self) -> u64 {
        self.0.kept().base().as_ptr().expose_provenance() as u64
    }

    /// Returns how many bytes it has.
    pub fn len(&self) -> usize {
        self.0.kept().length()
    }

    /// Returns whether it has none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the key for requests of this side.
    pub fn lkey(&self) -> Key {
        Key::from_raw(self.0.lkey())
    }

    /// Returns the key for requests of the peer.
    pub fn rkey(&self) -> Key {
        Key::from_raw(self.0.rkey())
    }

    /// Returns a piece as the layout of an mkey has it.
    ///
    /// # Errors
    /// [`PieceError`]: the piece reaches past the buffer's end, or is longer than an entry can say.
    pub fn entry(&self, piece: Range<usize>) -> Result<KlmEntry, PieceError> {
        Ok(entry_of(self.sge(piece)?))
    }

    /// Returns a piece as requests have it.
    ///
    /// # Errors
    /// As [`Buffer::entry`].
    pub fn sge(&self, piece: Range<usize>) -> Result<Sge, PieceError> {
        sge_of(self.address(), self.len(), self.lkey(), piece)
    }

    /// Copies bytes in, from `offset` on.
    ///
    /// # Errors
    /// [`PieceError`] where there is no room for all of them: none was copied.
    pub fn write(&mut self, offset: usize, bytes: &[u8]) -> Result<(), PieceError> {
        let place = self.place(offset, bytes.len())?;
        // SAFETY: `place` has room for them in the allocation, which Rust code reaches through this value
        // only. The device is not Rust code: whoever wants it to see the bytes posts afterwards.
        unsafe { place.copy_from_nonoverlapping(NonNull::from(bytes).cast(), bytes.len()) };
        Ok(())
    }

    /// Copies bytes out, from `offset` on. Each byte is read once: whatever device and peers write
    /// afterwards, the copy stays as it is. What is checked in it is what is used.
    ///
    /// # Errors
    /// [`PieceError`] where there are fewer from there on: none was copied.
    pub fn read(&self, offset: usize, bytes: &mut [u8]) -> Result<(), PieceError> {
        let place = self.place(offset, bytes.len())?;
        // SAFETY: as many bytes are in the allocation from there on, and initialised. Rust code writes them
        // through an exclusive reference to this value only.
        unsafe { sys::copy_out(place.as_ptr(), bytes) };
        Ok(())
    }

    /// Returns where a byte is behind which, with it, there are `length`.
    fn place(&self, offset: usize, length: usize) -> Result<NonNull<u8>, PieceError> {
        let end = offset.saturating_add(length);
        if end > self.len() {
            return Err(PieceError::Outside { start: offset, end, length: self.len() });
        }
        // SAFETY: within the allocation, or at its end.
        Ok(unsafe { self.0.kept().base().add(offset) })
    }

    /// Returns its bytes.
    ///
    /// # Safety
    /// While the reference lives, nobody writes to the memory: no request that does is outstanding, and no
    /// peer has a key to it, or to an mkey over it, with the right to write.
    pub unsafe fn slice(&self) -> &[u8] {
        // SAFETY: the allocation has that length, and all its bytes are initialised; the caller vouches for
        // the rest.
        unsafe { core::slice::from_raw_parts(self.0.kept().base().as_ptr(), self.len()) }
    }

    /// Returns its bytes, to be changed.
    ///
    /// # Safety
    /// While the reference lives, nobody else reads or writes the memory, as in [`Buffer::slice`].
    pub unsafe fn slice_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `slice`.
        unsafe { core::slice::from_raw_parts_mut(self.0.kept().base().as_ptr(), self.len()) }
    }
}
