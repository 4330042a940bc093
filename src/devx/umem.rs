//! Memory that commands name by a number (umem), UAR pages, and objects that the caller's own commands
//! create.

#![allow(unsafe_code)] // The caller vouches for the device's accesses to memory.

use super::error::drop_failed;
use super::memory_region::verbs_access;
use super::{Device, DevxError, Queries, carry, sys};
#[cfg(feature = "capi")]
use super::{carry_bytes, fits};
use crate::command::{Command, UarPage, UmemId, UmemSlice};
use crate::mkey::Access;
use crate::types::OutOfRange;
use core::mem::ManuallyDrop;
use core::ops::Range;
use core::ptr::NonNull;
use std::io;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

/// A set of page sizes in which the device may map memory. The set is a number: the sum of the sizes in
/// bytes, which are powers of two from 4 KiB on (`pgsz_bitmap`).
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

    /// The set of all page sizes. `mlx5dv_devx_umem_reg` accepts all page sizes, too.
    pub const ANY: Self = Self(!(Self::MIN - 1));

    /// Creates the set from the sum of its sizes in bytes, all powers of two.
    ///
    /// # Errors
    /// [`OutOfRange`] for 0, and for a sum with sizes below [`PageSizes::MIN`].
    pub const fn new(bitmap: u64) -> Result<Self, OutOfRange> {
        if bitmap == 0 || !bitmap.is_multiple_of(Self::MIN) {
            return Err(OutOfRange { what: "page sizes", value: bitmap, min: Self::MIN, max: Self::ANY.0 });
        }
        Ok(Self(bitmap))
    }

    /// Returns the set as the sum of its page sizes in bytes: each bit that is set is a size.
    pub const fn bitmap(self) -> u64 {
        self.0
    }
}

/// The properties of a [`Umem`]: the device's rights, and the accepted page sizes.
///
/// ```
/// use mlx5_mkey::devx::{PageSizes, UmemSpec};
/// // Rings that the device writes to. Only huge pages are accepted.
/// let spec = UmemSpec { page_sizes: PageSizes::new(2 << 20)?, ..UmemSpec::default() };
/// # Ok::<(), mlx5_mkey::types::OutOfRange>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UmemSpec {
    /// The device's rights to the memory, in addition to reading. A completion queue needs writing, which is
    /// the default.
    pub access: Access,
    /// The accepted page sizes. All by default.
    pub page_sizes: PageSizes,
}

impl Default for UmemSpec {
    fn default() -> Self {
        Self { access: Access::LOCAL_WRITE, page_sizes: PageSizes::ANY }
    }
}

/// A registration of memory of the caller, or of a dma-buf, that commands name by a number
/// (`mlx5dv_devx_umem`). It is meant for rings and doorbell records of queues that [`Device::create_object`]
/// creates. For queues of [`Device::create_cq`] and [`Device::create_qp`], the library allocates the memory
/// itself.
pub struct Umem(ManuallyDrop<sys::Umem>);

impl Device {
    /// Registers `length` bytes at `address` for commands (`mlx5dv_devx_umem_reg_ex`).
    ///
    /// # Errors
    /// [`DevxError::Library`]: libmlx5 has no `mlx5dv_devx_umem_reg_ex`, which came with version 35 of
    /// rdma-core.
    /// [`DevxError::Call`]: the memory is not mapped with these rights (EFAULT), or has none of the accepted
    /// page sizes (EINVAL).
    ///
    /// # Safety
    /// The caller ensures:
    /// - The memory stays mapped while the value lives, and for ever if [`Umem::deregister`] fails (if
    ///   dropping the value fails, only [`super::on_drop_error`] reports it).
    /// - As long as objects over the memory are on the device, Rust code does not use the memory in a way
    ///   that conflicts with the accesses of the device for these objects.
    pub unsafe fn register_umem(
        &self,
        address: *mut u8,
        length: usize,
        spec: UmemSpec,
    ) -> Result<Umem, DevxError> {
        let (access, sizes) = (verbs_access(spec.access), spec.page_sizes.0);
        // SAFETY: the caller vouches for the conditions of `Umem::register_ex`.
        let umem = unsafe { sys::Umem::register_ex(&self.context, (address, length), access, sizes, None)? };
        Ok(Umem(ManuallyDrop::new(umem)))
    }

    /// Registers a piece of a dma-buf for commands. `piece` gives the bytes of the dma-buf to register;
    /// offset 0 of the [`Umem`] is the first of them. The kernel pins the memory, and holds its own reference
    /// to the dma-buf until the registration has ended.
    ///
    /// Source: mlx5dv_devx_umem_reg(3), `MLX5DV_UMEM_MASK_DMABUF`.
    ///
    /// # Errors
    /// [`DevxError::Library`] as [`Device::register_umem`]. [`DevxError::Call`]: the piece is empty or
    /// reaches outside the dma-buf, the exporter does not allow pinning, this libmlx5 does not support
    /// dma-bufs here (EOPNOTSUPP), or the memory has none of the accepted page sizes (EINVAL).
    ///
    /// # Safety
    /// The caller ensures that as long as objects over the memory are on the device, Rust code, in this
    /// process and in others that map the dma-buf, does not use the memory in a way that conflicts with the
    /// accesses of the device for these objects.
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
        // SAFETY: the caller vouches for the conditions of `Umem::register_ex`.
        let umem = unsafe { sys::Umem::register_ex(&self.context, place, access, sizes, Some(dmabuf))? };
        Ok(Umem(ManuallyDrop::new(umem)))
    }
}

impl Umem {
    /// Returns the number by which commands name the memory.
    pub fn id(&self) -> UmemId {
        UmemId(self.0.id())
    }

    /// Returns the position of the byte at `offset`, as commands name it.
    pub fn at(&self, offset: u64) -> UmemSlice {
        UmemSlice { umem: self.id(), offset }
    }

    /// Ends the registration: the device cannot reach the memory any more.
    ///
    /// # Errors
    /// [`DevxError::Call`], with the registration, which still exists, for example because an object uses the
    /// memory.
    pub fn deregister(self) -> Result<(), (DevxError, Self)> {
        // SAFETY: the value is not used after a success. After an error it is still registered.
        match unsafe { self.0.deregister() } {
            Ok(()) => {
                let mut this = ManuallyDrop::new(self);
                // SAFETY: the field is dropped once, here: the value itself is not dropped.
                unsafe { ManuallyDrop::drop(&mut this.0) };
                Ok(())
            }
            Err(error) => Err((error, self)),
        }
    }
}

impl Drop for Umem {
    fn drop(&mut self) {
        // SAFETY: the value is not used afterwards.
        match unsafe { self.0.deregister() } {
            // SAFETY: the field is dropped once, here.
            Ok(()) => unsafe { ManuallyDrop::drop(&mut self.0) },
            Err(error) => drop_failed(&error),
        }
    }
}

/// A page of doorbell registers (`struct mlx5dv_devx_uar`), for queues that [`Device::create_object`]
/// creates.
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

    /// Returns the number of the event queue that the kernel has for a completion vector
    /// (`mlx5dv_devx_query_eqn`). Completion queues that [`Device::create_object`] creates need this number.
    /// Linux refuses a queue with another number. Vector 0 always exists.
    ///
    /// # Errors
    /// [`DevxError::Call`].
    pub fn event_queue(&self, vector: u32) -> Result<u32, DevxError> {
        self.context.event_queue(vector)
    }
}

impl Uar {
    /// Returns the number by which commands name the page.
    ///
    /// # Errors
    /// [`DevxError::OutOfRange`] where the number does not fit the field of commands.
    pub fn number(&self) -> Result<UarPage, DevxError> {
        Ok(UarPage::new(self.0.page())?)
    }

    /// Returns the beginning of the page, for [`UarCqDoorbell`](crate::queue::UarCqDoorbell). The page is
    /// mapped as long as the value or a clone lives.
    ///
    /// # Errors
    /// [`DevxError::Call`]: the page is not mapped.
    pub fn base(&self) -> Result<NonNull<u64>, DevxError> {
        self.0.base()
    }

    /// Returns the page's first register for send queues, for [`UarDoorbell`](crate::queue::UarDoorbell).
    ///
    /// # Errors
    /// As [`Uar::base`].
    pub fn register(&self) -> Result<NonNull<u64>, DevxError> {
        self.0.register()
    }
}

/// An object that a command of the caller has created, and the resources `K` that it uses. Dropping the value
/// destroys the object and then drops `K`. If the object cannot be destroyed, `K` is never dropped.
pub struct DevxObject<K = ()>(sys::Object<K>);

impl Device {
    /// Sends the device a command that creates an object (`mlx5dv_devx_obj_create`). Returns the object and
    /// the reply. The kernel passes a command on only if it knows how to destroy the object.
    ///
    /// ```no_run
    /// use mlx5_mkey::command::{CqSize, CqeSize, CreateCq, LogPageSize};
    /// use mlx5_mkey::devx::{Device, DevxError, DevxObject, Uar, Umem};
    /// use mlx5_mkey::types::Cqn;
    /// /// Creates a completion queue of 64 entries in the caller's memory, whose entries are unwritten.
    /// /// Nobody arms the queue.
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
    ///         event_queue: device.event_queue(0)?,
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
    /// The caller ensures that all memory that the command lets the device read or write, now or later,
    /// belongs to `kept` or stays valid as long as the object is on the device.
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
    /// Returns the resources that the object uses.
    pub fn kept(&self) -> &K {
        self.0.kept()
    }

    /// Sends the device a query of the object (`mlx5dv_devx_obj_query`).
    ///
    /// # Errors
    /// [`DevxError::Command`] where the device refuses, [`DevxError::Call`] where the kernel does not let the
    /// command through, because it is no query or names another object.
    pub fn query<C: Command>(&self, command: &C) -> Result<C::Reply, DevxError> {
        Ok(carry(command, |request, reply| self.0.query(request, reply))?.1)
    }

    /// Sends the device a query of the object, and does not wait for the answer: see
    /// [`super::QpControl::query_later`].
    ///
    /// # Errors
    /// [`DevxError::Call`].
    pub fn query_later<C: Command>(&self, queries: &Queries, command: &C, id: u64) -> Result<(), DevxError> {
        queries.ask(&self.0, command, id)
    }

    /// Sends the device a command that changes the object (`mlx5dv_devx_obj_modify`).
    ///
    /// # Errors
    /// As [`DevxObject::query`].
    ///
    /// # Safety
    /// The duties of the caller are those of [`Device::create_object`].
    pub unsafe fn modify<C: Command>(&self, command: &C) -> Result<C::Reply, DevxError> {
        Ok(carry(command, |request, reply| self.0.modify(request, reply))?.1)
    }

    /// Destroys the object on the device.
    ///
    /// # Errors
    /// [`DevxError::Call`], with the object, which still exists.
    pub fn destroy(self) -> Result<(), (DevxError, Self)> {
        self.0.destroy().map_err(|(error, object)| (error, Self(object)))
    }
}

/// Functions that take commands as bytes. The library for C uses them, because C programs build the bytes of
/// commands themselves.
#[cfg(feature = "capi")]
impl Device {
    /// Does the same as [`Device::create_object`], with the bytes of the command and of its reply.
    ///
    /// # Errors
    /// As [`Device::create_object`].
    ///
    /// # Safety
    /// The caller ensures that all memory that the command lets the device read or write, now or later, stays
    /// valid as long as the object is on the device.
    pub(crate) unsafe fn create_object_from(
        &self,
        request: &[u8],
        reply: &mut [u8],
    ) -> Result<DevxObject, DevxError> {
        let create =
            |request: &[u8], reply: &mut [u8]| sys::Object::create(&self.context, (), request, reply);
        Ok(DevxObject(carry_bytes(request, reply, create)?))
    }
}

#[cfg(feature = "capi")]
impl DevxObject {
    /// Does the same as [`DevxObject::query`], with the bytes of the command and of its reply.
    ///
    /// # Errors
    /// As [`DevxObject::query`].
    pub(crate) fn query_from(&self, request: &[u8], reply: &mut [u8]) -> Result<(), DevxError> {
        carry_bytes(request, reply, |request, reply| self.0.query(request, reply))
    }

    /// Does the same as [`DevxObject::modify`], with the bytes of the command and of its reply.
    ///
    /// # Errors
    /// As [`DevxObject::modify`].
    ///
    /// # Safety
    /// The duties of the caller are those of [`Device::create_object_from`].
    pub(crate) unsafe fn modify_from(&self, request: &[u8], reply: &mut [u8]) -> Result<(), DevxError> {
        carry_bytes(request, reply, |request, reply| self.0.modify(request, reply))
    }

    /// Does the same as [`DevxObject::query_later`], with the bytes of the command. The answer will have
    /// `output` bytes.
    ///
    /// # Errors
    /// As [`DevxObject::query_later`].
    pub(crate) fn query_later_from(
        &self,
        queries: &Queries,
        request: &[u8],
        output: usize,
        id: u64,
    ) -> Result<(), DevxError> {
        fits(crate::wire::prm::command::Opcode(0), output)?;
        queries.ask_bytes(&self.0, request, output, id)
    }
}
