//! Memory for rings and doorbell records, and its registration with the device.

#![allow(unsafe_code)]

use super::super::abi::{DevxUmem, DevxUmemIn, UMEM_DMABUF};
use super::allocation::Allocation;
use super::context::Context;
use super::errno::{check, last_error};
use crate::command::{UmemId, UmemSlice};
use crate::devx::error::{DevxError, drop_failed};
use core::mem::ManuallyDrop;
use core::ptr::NonNull;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::sync::Arc;
use zerocopy::FromZeros;

/// A registration of memory that the device may use for rings and doorbell records. Dropping the value does
/// not end the registration: its owner calls `deregister` once.
pub(in crate::devx) struct Umem {
    context: Arc<Context>,
    raw: NonNull<DevxUmem>,
}

// SAFETY: libibverbs and libmlx5 lock their objects; all their functions may be called from any thread.
unsafe impl Send for Umem {}
// SAFETY: libibverbs and libmlx5 lock their objects; all their functions may be called from any thread.
unsafe impl Sync for Umem {}

impl Umem {
    /// Registers memory for rings and doorbell records. The device may read it and write to it.
    ///
    /// # Safety
    /// As for [`Mr::register`](super::Mr::register).
    pub(super) unsafe fn register(
        context: &Arc<Context>,
        address: *mut u8,
        length: usize,
    ) -> Result<Self, DevxError> {
        const LOCAL_WRITE: u32 = 1;
        // SAFETY: the context is open; the caller vouches for the memory.
        let raw = unsafe {
            (context.api.mlx5dv_devx_umem_reg)(context.raw.as_ptr(), address.cast(), length, LOCAL_WRITE)
        };
        let raw = NonNull::new(raw).ok_or_else(|| last_error("mlx5dv_devx_umem_reg"))?;
        Ok(Self { context: context.clone(), raw })
    }

    /// Registers memory. If `dmabuf` is given, registers a piece of that dma-buf, and `address` is the offset
    /// of the piece in the dma-buf. The device maps the memory in pages of one of the sizes `page_sizes` (a
    /// bit for each size).
    ///
    /// # Safety
    /// As for [`Mr::register`](super::Mr::register).
    pub(in crate::devx) unsafe fn register_ex(
        context: &Arc<Context>,
        (address, length): (*mut u8, usize),
        access: u32,
        page_sizes: u64,
        dmabuf: Option<BorrowedFd<'_>>,
    ) -> Result<Self, DevxError> {
        const NAME: &str = "mlx5dv_devx_umem_reg_ex";
        let register = context
            .api
            .mlx5dv_devx_umem_reg_ex
            .as_ref()
            .map_err(|error| DevxError::Library(error.clone()))?;
        let mut input = DevxUmemIn {
            addr: address.cast(),
            size: length,
            access,
            pgsz_bitmap: page_sizes,
            comp_mask: if dmabuf.is_some() { UMEM_DMABUF } else { 0 },
            dmabuf_fd: dmabuf.map_or(-1, |dmabuf| dmabuf.as_raw_fd()),
        };
        // SAFETY: the context is open, and the structure is read during the call; the caller vouches for the
        // memory.
        let raw = unsafe { register(context.raw.as_ptr(), &mut input) };
        let raw = NonNull::new(raw).ok_or_else(|| last_error(NAME))?;
        Ok(Self { context: context.clone(), raw })
    }

    pub(in crate::devx) fn id(&self) -> u32 {
        // SAFETY: the structure lives until it is deregistered.
        unsafe { self.raw.as_ref().umem_id }
    }

    /// Ends the registration.
    ///
    /// # Safety
    /// The caller ensures that the value is not used after a success of this function.
    pub(in crate::devx) unsafe fn deregister(&self) -> Result<(), DevxError> {
        // SAFETY: the memory was registered at creation, and the caller vouches that this is the end.
        let result = unsafe { (self.context.api.mlx5dv_devx_umem_dereg)(self.raw.as_ptr()) };
        check("mlx5dv_devx_umem_dereg", result)
    }
}

/// Memory for rings and doorbell records. It is aligned to pages and registered with the device, and freed
/// with the value.
pub(in crate::devx) struct Dma {
    umem: Umem,
    /// The memory, which is dropped after the registration has ended. If the registration cannot be ended,
    /// the memory is never dropped.
    memory: ManuallyDrop<Allocation>,
}

impl Dma {
    /// Allocates zeroed memory.
    pub(in crate::devx) fn alloc(context: &Arc<Context>, length: usize) -> Result<Self, DevxError> {
        // If rounding up to pages overflows, `usize::MAX` makes the allocation fail.
        let length = length.max(1).checked_next_multiple_of(Allocation::PAGE).unwrap_or(usize::MAX);
        let memory = Allocation::zeroed(length, "allocation of a ring")?;
        // SAFETY: the memory stays allocated until `drop` below, which ends the registration first. Rust code
        // uses the memory through `slots` and `record` only.
        let umem = unsafe { Umem::register(context, memory.base().as_ptr(), memory.length())? };
        Ok(Self { umem, memory: ManuallyDrop::new(memory) })
    }

    /// Returns the position of the byte at `offset`, as commands name it: the number of the umem and the
    /// offset.
    pub(in crate::devx) fn at(&self, offset: usize) -> UmemSlice {
        UmemSlice { umem: UmemId(self.umem.id()), offset: offset as u64 }
    }

    /// Returns the address of the byte at `offset` in this process.
    pub(in crate::devx) fn address(&self, offset: usize) -> u64 {
        self.memory.base().as_ptr().expose_provenance() as u64 + offset as u64
    }

    /// Returns `count` slots of a ring that begins at `offset`. Each slot is set to `value`.
    ///
    /// # Safety
    /// The caller ensures that the slots are used only while the memory lives, and that no other reference to
    /// these bytes exists.
    pub(in crate::devx) unsafe fn slots<T: Copy>(
        &self,
        offset: usize,
        count: usize,
        value: T,
    ) -> Result<&'static mut [T], DevxError> {
        // SAFETY: the caller vouches for the conditions of `Allocation::slots`.
        unsafe { self.memory.slots(offset, count, value) }
    }

    /// Returns the doorbell record at `offset`, with both words 0.
    ///
    /// # Safety
    /// The caller ensures that the record is used only while the memory lives, and that none of its bytes is
    /// part of a slice that [`Dma::slots`] has returned.
    pub(in crate::devx) unsafe fn record<R: FromZeros>(
        &self,
        offset: usize,
    ) -> Result<&'static R, DevxError> {
        let record = self.memory.place::<R>(offset, 1)?;
        // SAFETY: `place` has checked size and alignment; the caller vouches for the lifetime. Zero bytes are
        // a valid record. From here on the record is changed through atomics only.
        unsafe {
            record.write_bytes(0, 1);
            Ok(record.as_ref())
        }
    }
}

impl Drop for Dma {
    fn drop(&mut self) {
        // SAFETY: the value is not used afterwards. Objects that use the memory keep this value alive, so
        // they are gone now.
        match unsafe { self.umem.deregister() } {
            // SAFETY: the memory is dropped once, here; the device cannot reach it any more.
            Ok(()) => unsafe { ManuallyDrop::drop(&mut self.memory) },
            // The device may still write to the memory, so the memory is leaked.
            Err(error) => drop_failed(&error),
        }
    }
}
