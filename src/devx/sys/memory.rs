//! Protection domains of libibverbs, and memory regions in them.

#![allow(unsafe_code)]

use super::super::abi::{Described, IbvMr, IbvPd, Mlx5dvObj, Mlx5dvPd, OBJ_PD};
use super::context::Context;
use super::errno::{check, last_error};
use crate::devx::error::{DevxError, drop_failed};
use core::ffi::{c_int, c_void};
use core::mem::ManuallyDrop;
use core::ops::Range;
use core::ptr::NonNull;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::sync::Arc;

/// A protection domain.
pub(in crate::devx) struct Pd {
    pub(super) context: Arc<Context>,
    pub(super) raw: NonNull<IbvPd>,
    number: u32,
    /// Whether this library allocated the domain, and so has to free it. An adopted domain belongs to the
    /// caller.
    owned: bool,
}

// SAFETY: libibverbs and libmlx5 lock their objects; all their functions may be called from any thread.
unsafe impl Send for Pd {}
// SAFETY: libibverbs and libmlx5 lock their objects; all their functions may be called from any thread.
unsafe impl Sync for Pd {}

impl Pd {
    pub(in crate::devx) fn alloc(context: &Arc<Context>) -> Result<Arc<Self>, DevxError> {
        // SAFETY: the context is open.
        let raw = unsafe { (context.api.ibv_alloc_pd)(context.raw.as_ptr()) };
        Self::with(context, NonNull::new(raw).ok_or_else(|| last_error("ibv_alloc_pd"))?, true)
    }

    /// Takes over a domain that the caller has allocated.
    ///
    /// # Safety
    /// The caller ensures that `raw` is a `struct ibv_pd`, and keeps it allocated while the value or an
    /// object made in it lives.
    pub(in crate::devx) unsafe fn adopt(
        context: &Arc<Context>,
        raw: NonNull<c_void>,
    ) -> Result<Arc<Self>, DevxError> {
        let raw = raw.cast::<IbvPd>();
        // SAFETY: the caller ensures that `raw` is a `struct ibv_pd`.
        context.expect(unsafe { raw.as_ref() }.context)?;
        Self::with(context, raw, false)
    }

    fn with(context: &Arc<Context>, raw: NonNull<IbvPd>, owned: bool) -> Result<Arc<Self>, DevxError> {
        let mut pd = Self { context: context.clone(), raw, number: 0, owned };
        let mut out = Mlx5dvPd::default();
        let mut obj = Mlx5dvObj { pd: Described { object: raw.as_ptr(), out: &mut out }, ..Mlx5dvObj::NONE };
        // SAFETY: with OBJ_PD the function accesses only the field `pd`. It names a live protection domain
        // and memory for its description.
        check("mlx5dv_init_obj", unsafe { (context.api.mlx5dv_init_obj)(&mut obj, OBJ_PD) })?;
        pd.number = out.pdn;
        Ok(Arc::new(pd))
    }

    /// Returns the number by which commands name the domain.
    pub(in crate::devx) fn number(&self) -> u32 {
        self.number
    }
}

impl Drop for Pd {
    fn drop(&mut self) {
        if !self.owned {
            return;
        }
        // SAFETY: the domain was allocated by `alloc`. Every object made in it held an Arc of this value and
        // is gone.
        let result = unsafe { (self.context.api.ibv_dealloc_pd)(self.raw.as_ptr()) };
        check("ibv_dealloc_pd", result).unwrap_or_else(|error| drop_failed(&error));
    }
}

/// A registered memory region. `K` is the memory if the region owns it, otherwise `()`.
pub(in crate::devx) struct Mr<K = ()> {
    raw: NonNull<IbvMr>,
    /// The memory and the domain, which are dropped after the registration has ended. If the registration
    /// cannot be ended, they are never dropped.
    kept: ManuallyDrop<(K, Arc<Pd>)>,
}

// SAFETY: libibverbs and libmlx5 lock their objects; all their functions may be called from any thread.
unsafe impl<K: Send> Send for Mr<K> {}
// SAFETY: libibverbs and libmlx5 lock their objects; all their functions may be called from any thread.
unsafe impl<K: Sync> Sync for Mr<K> {}

impl<K> Mr<K> {
    /// Registers memory. If the kernel refuses, the error contains `kept`.
    ///
    /// # Safety
    /// The caller ensures that the memory stays mapped, and that Rust code does not use it in a way that
    /// conflicts with the device's accesses, while the value lives and, if ending the registration fails, for
    /// ever.
    pub(in crate::devx) unsafe fn register(
        pd: &Arc<Pd>,
        kept: K,
        address: *mut u8,
        length: usize,
        access: u32,
    ) -> Result<Self, (DevxError, K)> {
        // SAFETY: the PD is live; the caller vouches for the memory. The kernel checks that it is mapped.
        let raw =
            unsafe { (pd.context.api.ibv_reg_mr)(pd.raw.as_ptr(), address.cast(), length, access as c_int) };
        Self::made("ibv_reg_mr", raw, pd, kept)
    }

    /// Converts `raw`, the result of a libibverbs function that registers memory: null is an error.
    fn made(what: &'static str, raw: *mut IbvMr, pd: &Arc<Pd>, kept: K) -> Result<Self, (DevxError, K)> {
        match NonNull::new(raw) {
            Some(raw) => Ok(Self { raw, kept: ManuallyDrop::new((kept, pd.clone())) }),
            None => Err((last_error(what), kept)),
        }
    }

    /// Returns the memory that the region owns.
    pub(in crate::devx) fn kept(&self) -> &K {
        let (kept, _) = &*self.kept;
        kept
    }

    pub(in crate::devx) fn lkey(&self) -> u32 {
        // SAFETY: the structure lives until ibv_dereg_mr.
        unsafe { self.raw.as_ref().lkey }
    }

    pub(in crate::devx) fn rkey(&self) -> u32 {
        // SAFETY: the structure lives until ibv_dereg_mr.
        unsafe { self.raw.as_ref().rkey }
    }
}

impl Mr {
    /// Registers a piece of a dma-buf. The kernel then holds its own reference to the dma-buf.
    ///
    /// # Safety
    /// The caller ensures that Rust code does not use the memory in a way that conflicts with the device's
    /// accesses, while the value lives or, if ending the registration fails, for ever.
    pub(in crate::devx) unsafe fn register_dmabuf(
        pd: &Arc<Pd>,
        dmabuf: BorrowedFd<'_>,
        piece: Range<usize>,
        iova: u64,
        access: u32,
    ) -> Result<Self, DevxError> {
        let register = pd.context.api.ibv_reg_dmabuf_mr.as_ref();
        let register = register.map_err(|error| DevxError::Library(error.clone()))?;
        let (offset, length) = (piece.start as u64, piece.len());
        // SAFETY: the PD is live and the descriptor open; the caller vouches for the memory. The kernel
        // checks the numbers.
        let raw =
            unsafe { register(pd.raw.as_ptr(), offset, length, iova, dmabuf.as_raw_fd(), access as c_int) };
        Self::made("ibv_reg_dmabuf_mr", raw, pd, ()).map_err(|(error, ())| error)
    }
}

impl<K> Mr<K> {
    /// Ends the registration. If the kernel refuses, the memory is leaked, because the device may still write
    /// to it.
    pub(in crate::devx) fn deregister(self) -> Result<(), DevxError> {
        ManuallyDrop::new(self).end()
    }

    /// Ends the registration, and drops the memory after that. The caller calls this function once.
    fn end(&mut self) -> Result<(), DevxError> {
        let (_, pd) = &*self.kept;
        // SAFETY: the region is registered, and only this call ends the registration.
        check("ibv_dereg_mr", unsafe { (pd.context.api.ibv_dereg_mr)(self.raw.as_ptr()) })?;
        // SAFETY: the field is dropped once, here.
        unsafe { ManuallyDrop::drop(&mut self.kept) };
        Ok(())
    }
}

impl<K> Drop for Mr<K> {
    fn drop(&mut self) {
        self.end().unwrap_or_else(|error| drop_failed(&error));
    }
}
