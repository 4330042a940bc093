//! Registered memory (memory regions). Functions return pieces of it as entries of layouts and as data
//! segments.

#![allow(unsafe_code)] // The caller vouches for registered memory; unsafe functions of `sys` rely on this.

use super::{DevxError, PieceError, ProtectionDomain, sys};
use crate::mkey::{Access, KlmEntry};
use crate::types::Key;
use crate::wqe::Sge;
use core::ops::Range;
use std::io;
use std::os::fd::BorrowedFd;

/// Returns the `IBV_ACCESS_*` bits for these rights.
pub(super) fn verbs_access(access: Access) -> u32 {
    [
        (Access::LOCAL_WRITE, 1),
        (Access::REMOTE_WRITE, 2),
        (Access::REMOTE_READ, 4),
        (Access::REMOTE_ATOMIC, 8),
    ]
    .into_iter()
    .filter(|(right, _)| access.contains(*right))
    .map(|(_, bit)| bit)
    .sum()
}

/// A memory region: registered memory that belongs to the caller or to a dma-buf. [`super::Buffer`] is
/// registered memory that the library allocates or takes over.
pub struct MemoryRegion {
    region: sys::Mr,
    address: u64,
    length: usize,
}

impl MemoryRegion {
    /// Ends the registration: the device cannot reach the memory any more.
    ///
    /// # Errors
    /// [`DevxError::Call`]. After this error the device may still access the memory, so the memory must stay
    /// mapped.
    pub fn deregister(self) -> Result<(), DevxError> {
        self.region.deregister()
    }

    /// Returns the address by which requests name the region's first byte.
    pub const fn address(&self) -> u64 {
        self.address
    }

    /// Returns the region's length in bytes.
    pub const fn len(&self) -> usize {
        self.length
    }

    /// Returns whether the region has no bytes.
    pub const fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// Returns the local key, for requests of this side.
    pub fn lkey(&self) -> Key {
        Key::from_raw(self.region.lkey())
    }

    /// Returns the remote key, for requests of the peer.
    pub fn rkey(&self) -> Key {
        Key::from_raw(self.region.rkey())
    }

    /// Returns a piece of the region as an entry of an mkey's layout, as [`super::Buffer::entry`] does.
    ///
    /// # Errors
    /// [`PieceError`].
    pub fn entry(&self, piece: Range<usize>) -> Result<KlmEntry, PieceError> {
        Ok(entry_of(self.sge(piece)?))
    }

    /// Returns a piece of the region as a data segment of a request, as [`super::Buffer::sge`] does.
    ///
    /// # Errors
    /// [`PieceError`].
    pub fn sge(&self, piece: Range<usize>) -> Result<Sge, PieceError> {
        sge_of(self.address, self.length, self.lkey(), piece)
    }
}

/// Returns a data segment for the bytes `start..end` of registered memory: `length` bytes at `address`.
pub(super) fn sge_of(
    address: u64,
    length: usize,
    lkey: Key,
    Range { start, end }: Range<usize>,
) -> Result<Sge, PieceError> {
    if start > end || end > length {
        return Err(PieceError::Outside { start, end, length });
    }
    let bytes = u32::try_from(end - start).map_err(|_| PieceError::TooLong { bytes: end - start })?;
    Ok(Sge { address: address.wrapping_add(start as u64), length: bytes, lkey })
}

/// Returns the memory of a data segment as an entry of an mkey's layout.
pub(super) const fn entry_of(Sge { address, length, lkey }: Sge) -> KlmEntry {
    KlmEntry { address, length, key: lkey }
}

impl ProtectionDomain {
    /// Registers `length` bytes at `address` for the device (`ibv_reg_mr`).
    ///
    /// # Errors
    /// [`DevxError::Call`] with the kernel's error.
    ///
    /// # Safety
    /// The caller ensures:
    /// - The memory stays mapped while the value lives, and for ever if [`MemoryRegion::deregister`] fails
    ///   (if dropping the value fails, only [`super::on_drop_error`] reports it).
    /// - Rust code does not use the memory in a way that conflicts with the device's reads and writes, as
    ///   long as the device may access it: until every request that names the region's key, or an mkey over
    ///   the memory, has completed; and as long as a peer has a key of the region or of such an mkey.
    pub unsafe fn register(
        &self,
        address: *mut u8,
        length: usize,
        access: Access,
    ) -> Result<MemoryRegion, DevxError> {
        // SAFETY: the caller vouches for the conditions of `Mr::register`.
        let region = unsafe { sys::Mr::register(&self.pd, (), address, length, verbs_access(access)) };
        let region = region.map_err(|(error, ())| error)?;
        Ok(MemoryRegion { region, address: address.expose_provenance() as u64, length })
    }

    /// Registers a piece of a dma-buf: memory that another driver, for example of a GPU, shares by a file
    /// descriptor. `piece` gives the bytes of the dma-buf to register. Requests and layouts name these bytes
    /// by addresses from `iova` on. `iova` may be any address with the same offset in a page of the kernel as
    /// `piece.start`.
    ///
    /// The kernel holds its own reference to the dma-buf (`dma_buf_get`) until the registration has ended. So
    /// the memory stays even if the program closes the descriptor.
    ///
    /// Before and after a program reads or writes the bytes through a mapping, it must call
    /// `DMA_BUF_IOCTL_SYNC`; otherwise it may see old bytes. The library does not order the accesses of
    /// different devices to the memory: the program has to.
    ///
    /// Source: ibv_reg_mr(3); in the kernel `uverbs_std_types_mr.c`, `umem_dmabuf.c`,
    /// `include/uapi/linux/dma-buf.h`.
    ///
    /// # Errors
    /// - [`DevxError::Library`]: libibverbs has no `ibv_reg_dmabuf_mr`, which came with version 34 of
    ///   rdma-core. All other functions work without it.
    /// - [`DevxError::Call`] where `piece` is empty, and with the kernel's or the exporter's error: EINVAL
    ///   where the descriptor is not of a dma-buf, `piece` reaches past its end, `iova` has another offset in
    ///   its page, or the peer may write and this side may not; EBADF where the descriptor only names a path
    ///   (`O_PATH`); EPROTONOSUPPORT or EOPNOTSUPP where the kernel is older, or was built without paging on
    ///   demand (`CONFIG_INFINIBAND_ON_DEMAND_PAGING`).
    ///
    /// # Safety
    /// The caller ensures that Rust code, in this process and in others that map the dma-buf, does not use
    /// the memory in a way that conflicts with the device's reads and writes, as long as the device may
    /// access it: until every request that names the region's key, or an mkey over the memory, has completed;
    /// and as long as a peer has a key of the region or of such an mkey. A region whose deregistration failed
    /// ([`MemoryRegion::deregister`]) still counts as registered. This contract does not cover accesses by
    /// other devices and drivers.
    ///
    /// ```no_run
    /// use mlx5_mkey::devx::{DevxError, MemoryRegion, ProtectionDomain};
    /// use mlx5_mkey::mkey::{Access, KlmEntry};
    /// use std::os::fd::{AsFd, OwnedFd};
    ///
    /// /// Registers the second MiB of a dma-buf, and returns 4096 bytes of it for an mkey's layout.
    /// fn second(pd: &ProtectionDomain, dmabuf: OwnedFd) -> Result<(MemoryRegion, KlmEntry), DevxError> {
    ///     let access = Access::LOCAL_WRITE | Access::REMOTE_READ;
    ///     // SAFETY: nobody maps this dma-buf.
    ///     let region = unsafe { pd.register_dmabuf(dmabuf.as_fd(), 1 << 20..2 << 20, 0, access)? };
    ///     let entry = region.entry(0..4096)?;
    ///     Ok((region, entry))
    /// }
    /// ```
    pub unsafe fn register_dmabuf(
        &self,
        dmabuf: BorrowedFd<'_>,
        piece: Range<usize>,
        iova: u64,
        access: Access,
    ) -> Result<MemoryRegion, DevxError> {
        if piece.is_empty() {
            // The kernel's answer to an empty piece would depend on the piece's offset in a page, so empty
            // pieces are refused here.
            return Err(DevxError::call("registration of a dma-buf", io::ErrorKind::InvalidInput.into()));
        }
        let length = piece.len();
        // SAFETY: the caller vouches for the conditions of `Mr::register_dmabuf`.
        let region =
            unsafe { sys::Mr::register_dmabuf(&self.pd, dmabuf, piece, iova, verbs_access(access))? };
        Ok(MemoryRegion { region, address: iova, length })
    }
}
