//! Doorbell registers.

#![allow(unsafe_code)]

use super::abi::DevxUar;
use super::context::Context;
use super::errno::last_error;
use crate::devx::error::DevxError;
use core::ptr::NonNull;
use std::sync::Arc;

/// A page of doorbell registers.
pub(in crate::devx) struct Uar {
    context: Arc<Context>,
    raw: NonNull<DevxUar>,
}

// SAFETY: as for Context.
unsafe impl Send for Uar {}
// SAFETY: as for Context.
unsafe impl Sync for Uar {}

impl Uar {
    /// `MLX5_IB_UAPI_UAR_ALLOC_TYPE_NC`.
    const NON_CACHED: u32 = 1;

    /// Allocates a page that is not cached.
    pub(in crate::devx) fn alloc(context: &Arc<Context>) -> Result<Arc<Self>, DevxError> {
        // SAFETY: the context is open.
        let raw = unsafe { (context.api.mlx5dv_devx_alloc_uar)(context.raw.as_ptr(), Self::NON_CACHED) };
        let raw = NonNull::new(raw).ok_or_else(|| last_error("mlx5dv_devx_alloc_uar"))?;
        Ok(Arc::new(Self { context: context.clone(), raw }))
    }

    pub(in crate::devx) fn page(&self) -> u32 {
        // SAFETY: the structure lives until the page is freed.
        unsafe { self.raw.as_ref().page_id }
    }

    /// Returns the first doorbell register, valid while the value lives.
    pub(in crate::devx) fn register(&self) -> Option<NonNull<u64>> {
        // SAFETY: as above.
        NonNull::new(unsafe { self.raw.as_ref().reg_addr }.cast())
    }
}

impl Drop for Uar {
    fn drop(&mut self) {
        // SAFETY: allocated by `alloc`; queues that ring it held an Arc of this value and are gone.
        unsafe { (self.context.api.mlx5dv_devx_free_uar)(self.raw.as_ptr()) };
    }
}
