//! Memory that commands name by a number, and objects of commands that the shim has no function for.

#![allow(unsafe_code)] // What the device does with memory is the caller's promise.

use super::error::drop_failed;
use super::memory_region::verbs_access;
use super::{Device, DevxError, Queries, carry, sys};
use crate::command::{Command, UarPage, UmemId, UmemSlice};
use crate::mkey::Access;
use crate::types::OutOfRange;
use core::mem::ManuallyDrop;
use core::ops::Range;
use core::ptr::NonNull;
use std::io;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

/// The sizes of pages in which the device may see memory: a bit for each, from 4 KiB on (`pgsz_bitmap`).
///
/// ```
/// use mlx5_mkey::devx::PageSizes;
/// let huge = PageSizes::new((2 << 20) | (1 << 30))?;
/// assert!(huge.bitmap() & 4096 == 0 && PageSizes::ANY.bitmap() & 4096 != 0);
/// assert!(PageSizes::new(512).is_err());
/// # Ok::<(), mlx5_mkey::types::OutOfRange>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PageSizes(u64);

impl PageSizes {
    /// The smallest page of the device, in bytes (`MLX5_ADAPTER_PAGE_SIZE`).
    pub const MIN: u64 = 4096;

    /// Whatever suits the memory, as `mlx5dv_devx_umem_reg` has it.
    pub const ANY: Self = Self(!(Self::MIN - 1));

    /// Takes a sum of sizes in bytes, powers of two.
    ///
    /// # Errors
    /// [`OutOfRange`] for none, and with sizes below [`PageSizes::MIN`].
    pub const fn new(bitmap: u64) -> Result<Self, OutOfRange> {
        if bitmap == 0 || !bitmap.is_multiple_of(Self::MIN) {
            return Err(OutOfRange { what: "page sizes", value: bitmap, min: Self::MIN, max: Self::ANY.0 });
        }
        Ok(Self(bitmap))
    }

    /// Returns the sum of the sizes.
    pub const fn bitmap(self) -> u64 {
        self.0
    }
}

/// How memory is registered for commands.
///
/// ```
/// use mlx5_mkey::devx::{PageSizes, UmemSpec};
/// // Rings that the device writes to, in huge pages or not at all.
/// let spec = UmemSpec { page_sizes: PageSizes::new(2 << 20)?, ..UmemSpec::default() };
/// # Ok::<(), mlx5_mkey::types::OutOfRange>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UmemSpec {
    /// What the device may do with it, beside reading: writing, for a completion queue. By default that.
    pub access: Access,
    /// In which pages. By default any.
    pub page_sizes: PageSizes,
}

impl Default for UmemSpec {
    fn default() -> Self {
        Self { access: Access::LOCAL_WRITE, page_sizes: PageSizes::ANY }
    }
}

/// Memory of the caller's, or of a dma-buf, that commands name by a number (`mlx5dv_devx_umem`): rings and
/// doorbell records of queues that [`Device::create_object`] makes. The shim's own queues have memory of
/// their own.
pub struct Umem(ManuallyDrop<sys::Umem>);

impl Device {
    /// Registers `length` bytes at `address` for commands (`mlx5dv_devx_umem_reg_ex`).
    ///
    /// # Errors
    /// [`DevxError::Library`]: libmlx5 has no `mlx5dv_devx_umem_reg_ex`, which came with version 35 of
    /// rdma-core.
    /// [`DevxError::Call`]: the memory is not mapped like that (EFAULT), or has no page size that was asked
    /// for (EINVAL).
    ///
    /// # Safety
    /// - The memory stays mapped while the value lives, and for ever if [`Umem::deregister`] fails (dropping
    ///   the value tells [`super::on_drop_error`] of that, and nobody else).
    /// - Rust code does not use it in a way that conflicts with what objects over it do, as long as they are
    ///   on the device.
    pub unsafe fn register_umem(
        &self,
        address: *mut u8,
        length: usize,
        spec: UmemSpec,
    ) -> Result<Umem, DevxError> {
        let (access, sizes) = (verbs_access(spec.access), spec.page_sizes.0);
        // SAFETY: the caller vouches for the same.
        let umem = unsafe { sys::Umem::register_ex(&self.context, (address, length), access, sizes, None)? };
        Ok(Umem(ManuallyDrop::new(umem)))
    }

    /// Registers a piece of a dma-buf for commands, in bytes of the dma-buf. Offset 0 of the [`Umem`] is
    /// where it begins. The kernel pins the memory, and holds a reference of its own until the registration
    /// has ended.
    ///
    /// Source: mlx5dv_devx_umem_reg(3), `MLX5DV_UMEM_MASK_DMABUF`.
    ///
    /// # Errors
    /// [`DevxError::Library`] as [`Device::register_umem`]; [`DevxError::Call`]: the piece is empty or not in
    /// the dma-buf, its exporter
    /// does not let it be pinned, libmlx5 knows no dma-bufs here (EOPNOTSUPP), or there is no page size that
    /// was asked for (EINVAL).
    ///
    /// # Safety
    /// Rust code, in this process and in others that map the dma-buf, does not use it in a way that conflicts
    /// with what objects over it do, as long as they are on the device.
    ///
    /// ```no_run
    /// use mlx5_mkey::devx::{Device, DevxError, Umem, UmemSpec};
    /// use std::os::fd::{AsFd, OwnedFd};
    /// /// Registers the first 64 KiB of a dma-buf, for rings that another device reads.
    /// fn rings(device: &Device, dmabuf: &OwnedFd) -> Result<Umem, DevxError> {
    ///     // SAFETY: nobody maps this dma-buf.
    ///     unsafe { device.register_umem_dmabuf(dmabuf.as_fd(), 0..65536, UmemSpec::default()) }
    /// }
    /// ```
    pub unsafe fn register_umem_dmabuf(
        &self,
        dmabuf: BorrowedFd<'_>,
        piece: Range<usize>,
        spec: UmemSpec,
    ) -> Result<Umem, DevxError> {
        if piece.is_empty() {
            return Err(DevxError::call("registration of a dma-buf", io::ErrorKind::InvalidInput.into()));
        }
        let place = (core::ptr::without_provenance_mut(piece.start), piece.len());
        let (access, sizes) = (verbs_access(spec.access), spec.page_sizes.0);
        // SAFETY: the caller vouches for the same.
        let umem = unsafe { sys::Umem::register_ex(&self.context, place, access, sizes, Some(dmabuf))? };
        Ok(Umem(ManuallyDrop::new(umem)))
    }
}

impl Umem {
    /// Returns the number that commands have.
    pub fn id(&self) -> UmemId {
        UmemId(self.0.id())
    }

    /// Returns where a byte of it is, for commands.
    pub fn at(&self, offset: u64) -> UmemSlice {
        UmemSlice { umem: self.id(), offset }
    }

    /// Ends the registration: the device cannot reach the memory any more.
    ///
    /// # Errors
    /// [`DevxError::Call`], and the registration, which is still there: an object is over it, say.
    pub fn deregister(self) -> Result<(), (DevxError, Self)> {
        // SAFETY: the end, unless it fails; then the value is as before.
        match unsafe { self.0.deregister() } {
            Ok(()) => {
                let mut this = ManuallyDrop::new(self);
                // SAFETY: once, here: the value itself is not dropped.
                unsafe { ManuallyDrop::drop(&mut this.0) };
                Ok(())
            }
            Err(error) => Err((error, self)),
        }
    }
}

impl Drop for Umem {
    fn drop(&mut self) {
        // SAFETY: this is the end.
        match unsafe { self.0.deregister() } {
            // SAFETY: dropped once, here.
            Ok(()) => unsafe { ManuallyDrop::drop(&mut self.0) },
            Err(error) => drop_failed(&error),
        }
    }
}

/// A page of doorbell registers (`struct mlx5dv_devx_uar`), for queues that [`Device::create_object`] makes.
#[derive(Clone)]
pub struct Uar(Arc<sys::Uar>);

impl Device {
    /// Allocates a page of doorbell registers (`mlx5dv_devx_alloc_uar`).
    ///
    /// # Errors
    /// [`DevxError::Call`].
    pub fn alloc_uar(&self) -> Result<Uar, DevxError> {
        Ok(Uar(sys::Uar::alloc(&self.context)?))
    }
}

impl Uar {
    /// Returns its number, for commands.
    ///
    /// # Errors
    /// [`DevxError::OutOfRange`] where it is none that commands can have.
    pub fn number(&self) -> Result<UarPage, DevxError> {
        Ok(UarPage::new(self.0.page())?)
    }

    /// Returns where it begins, for [`UarCqDoorbell`](crate::queue::UarCqDoorbell). It is mapped as long as
    /// the value and its clones live.
    ///
    /// # Errors
    /// [`DevxError::Call`]: it is not mapped.
    pub fn base(&self) -> Result<NonNull<u64>, DevxError> {
        self.0.base()
    }

    /// Returns the first register of send queues, for [`UarDoorbell`](crate::queue::UarDoorbell).
    ///
    /// # Errors
    /// As [`Uar::base`].
    pub fn register(&self) -> Result<NonNull<u64>, DevxError> {
        self.0.register()
    }
}

/// An object that a command of the caller's has made, and what it uses. It is gone from the device when the
/// value is dropped, and `K` behind it, or never if it cannot be destroyed.
pub struct DevxObject<K = ()>(sys::Object<K>);

impl Device {
    /// Carries a command that makes an object to the device (`mlx5dv_devx_obj_create`), and returns the
    /// object and the reply. The kernel lets through those that it can undo.
    ///
    /// ```no_run
    /// use mlx5_mkey::command::{CqSize, CqeSize, CreateCq, LogPageSize};
    /// use mlx5_mkey::devx::{Device, DevxError, DevxObject, Uar, Umem};
    /// use mlx5_mkey::types::Cqn;
    /// /// Makes a completion queue of 64 entries in memory of the caller's, whose entries are unwritten;
    /// /// nobody arms it.
    /// ///
    /// /// # Safety
    /// /// The first 4104 bytes of the memory are the queue's.
    /// unsafe fn create(
    ///     device: &Device,
    ///     umem: Umem,
    ///     uar: Uar,
    /// ) -> Result<(DevxObject<(Umem, Uar)>, Cqn), DevxError> {
    ///     let command = CreateCq {
    ///         size: CqSize::new(64)?,
    ///         cqe_size: CqeSize::B64,
    ///         uar: uar.number()?,
    ///         event_queue: 0,
    ///         entries: umem.at(0),
    ///         doorbell: umem.at(4096),
    ///         page_size: LogPageSize::P4K,
    ///         ignore_overrun: false,
    ///     };
    ///     // SAFETY: the memory is kept with the object; the caller vouches for the rest.
    ///     unsafe { device.create_object(&command, (umem, uar)) }
    /// }
    /// ```
    ///
    /// # Errors
    /// [`DevxError::Command`] where the device refuses, [`DevxError::Call`] where the kernel does not let the
    /// command through (EINVAL).
    ///
    /// # Safety
    /// What the command has the device read and write, from now on or when it is asked to, is `K`'s, or stays
    /// as long as the object is on the device.
    pub unsafe fn create_object<C: Command, K>(
        &self,
        command: &C,
        kept: K,
    ) -> Result<(DevxObject<K>, C::Reply), DevxError> {
        let (object, reply) =
            carry(command, |request, reply| sys::Object::create(&self.context, kept, request, reply))?;
        Ok((DevxObject(object), reply))
    }
}

impl<K> DevxObject<K> {
    /// Returns what the object uses.
    pub fn kept(&self) -> &K {
        self.0.kept()
    }

    /// Carries a command that asks for something of the object (`mlx5dv_devx_obj_query`).
    ///
    /// # Errors
    /// [`DevxError::Command`] where the device refuses, [`DevxError::Call`] where the kernel does not let the
    /// command through: it asks for nothing, or names another object.
    pub fn query<C: Command>(&self, command: &C) -> Result<C::Reply, DevxError> {
        Ok(carry(command, |request, reply| self.0.query(request, reply))?.1)
    }

    /// Carries such a command, and does not wait for the answer: see [`super::QpControl::query_later`].
    ///
    /// # Errors
    /// [`DevxError::Call`].
    pub fn query_later<C: Command>(&self, queries: &Queries, command: &C, id: u64) -> Result<(), DevxError> {
        queries.ask(&self.0, command, id)
    }

    /// Carries a command that changes the object (`mlx5dv_devx_obj_modify`).
    ///
    /// # Errors
    /// As [`DevxObject::query`].
    ///
    /// # Safety
    /// As of [`Device::create_object`].
    pub unsafe fn modify<C: Command>(&self, command: &C) -> Result<C::Reply, DevxError> {
        Ok(carry(command, |request, reply| self.0.modify(request, reply))?.1)
    }

    /// Destroys the object on the device.
    ///
    /// # Errors
    /// [`DevxError::Call`], and the object, which is still there.
    pub fn destroy(self) -> Result<(), (DevxError, Self)> {
        self.0.destroy().map_err(|(error, object)| (error, Self(object)))
    }
}
