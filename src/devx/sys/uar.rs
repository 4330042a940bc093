//! Pages of doorbell registers (UAR pages).

#![allow(unsafe_code)]

use super::super::abi::DevxUar;
use super::context::Context;
use super::errno::last_error;
use crate::devx::error::DevxError;
use core::ffi::c_void;
use core::ptr::NonNull;
use std::io;
use std::sync::Arc;

/// A page of doorbell registers.
pub(in crate::devx) struct Uar {
    context: Arc<Context>,
    raw: NonNull<DevxUar>,
}

// SAFETY: libibverbs and libmlx5 lock their objects; all their functions may be called from any thread.
unsafe impl Send for Uar {}
// SAFETY: libibverbs and libmlx5 lock their objects; all their functions may be called from any thread.
unsafe impl Sync for Uar {}

impl Uar {
    /// Value of the kernel's `MLX5_IB_UAPI_UAR_ALLOC_TYPE_BF`: a page that is mapped write-combining.
    const WRITE_COMBINING: u32 = 0;
    /// Value of the kernel's `MLX5_IB_UAPI_UAR_ALLOC_TYPE_NC`: a page that is mapped without caching.
    const NON_CACHED: u32 = 1;

    /// Allocates a page of doorbell registers whose mapping is not cached.
    pub(in crate::devx) fn alloc(context: &Arc<Context>) -> Result<Arc<Self>, DevxError> {
        Self::alloc_as(context, Self::NON_CACHED)
    }

    /// Allocates a write-combining page, for BlueFlame. libmlx5 gives each such page to one user only.
    /// Returns `None` where the kernel offers no write-combining pages (EOPNOTSUPP): on some machines, the
    /// kernel's test of write combining fails (`mlx5_ib_test_wc`).
    pub(in crate::devx) fn alloc_write_combining(
        context: &Arc<Context>,
    ) -> Result<Option<Arc<Self>>, DevxError> {
        match Self::alloc_as(context, Self::WRITE_COMBINING) {
            Ok(uar) => Ok(Some(uar)),
            Err(DevxError::Call { cause, .. }) if cause.raw_os_error() == Some(libc::EOPNOTSUPP) => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn alloc_as(context: &Arc<Context>, kind: u32) -> Result<Arc<Self>, DevxError> {
        // SAFETY: the context is open.
        let raw = unsafe { (context.api.mlx5dv_devx_alloc_uar)(context.raw.as_ptr(), kind) };
        let raw = NonNull::new(raw).ok_or_else(|| last_error("mlx5dv_devx_alloc_uar"))?;
        Ok(Arc::new(Self { context: context.clone(), raw }))
    }

    pub(in crate::devx) fn page(&self) -> u32 {
        // SAFETY: the structure lives until the page is freed.
        unsafe { self.raw.as_ref().page_id }
    }

    /// Returns the beginning of the mapped page, valid while the value lives.
    pub(in crate::devx) fn base(&self) -> Result<NonNull<u64>, DevxError> {
        // SAFETY: the structure lives until the page is freed.
        mapped(unsafe { self.raw.as_ref().base_addr })
    }

    /// Returns the first doorbell register of send queues, valid while the value lives.
    pub(in crate::devx) fn register(&self) -> Result<NonNull<u64>, DevxError> {
        // SAFETY: the structure lives until the page is freed.
        mapped(unsafe { self.raw.as_ref().reg_addr })
    }
}

fn mapped(address: *mut c_void) -> Result<NonNull<u64>, DevxError> {
    NonNull::new(address.cast())
        .ok_or_else(|| DevxError::call("mapping of a UAR page", io::ErrorKind::AddrNotAvailable.into()))
}

impl Drop for Uar {
    fn drop(&mut self) {
        // SAFETY: the page was allocated by `alloc_as`. Queues that ring its doorbells held an Arc of this
        // value and are gone.
        unsafe { (self.context.api.mlx5dv_devx_free_uar)(self.raw.as_ptr()) };
    }
}
