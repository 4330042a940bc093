//! Objects that commands make.

#![allow(unsafe_code)]

use super::abi::DevxObj;
use super::context::Context;
use super::errno::{check, last_error};
use crate::devx::error::{DevxError, drop_failed};
use core::ffi::{c_int, c_void};
use core::mem::ManuallyDrop;
use core::ptr::NonNull;
use std::sync::Arc;

/// An object that a command made, and what it uses: the kernel destroys it by itself if the process ends.
pub(in crate::devx) struct Object<K = ()> {
    context: Arc<Context>,
    pub(super) raw: NonNull<DevxObj>,
    /// Memory, pages and objects that the device uses as long as the object is there.
    kept: ManuallyDrop<K>,
}

// SAFETY: as for Context.
unsafe impl<K: Send> Send for Object<K> {}
// SAFETY: as for Context.
unsafe impl<K: Sync> Sync for Object<K> {}

impl<K> Object<K> {
    /// Runs a create command. The reply is in `output` also when it fails, with status and syndrome. What the object uses is
    /// dropped behind it, and never if it cannot be destroyed.
    pub(in crate::devx) fn create(
        context: &Arc<Context>,
        kept: K,
        input: &[u8],
        output: &mut [u8],
    ) -> Result<Self, DevxError> {
        // SAFETY: both mailboxes are valid for their lengths during the call.
        let raw = unsafe {
            (context.api.mlx5dv_devx_obj_create)(
                context.raw.as_ptr(),
                input.as_ptr().cast(),
                input.len(),
                output.as_mut_ptr().cast(),
                output.len(),
            )
        };
        let raw = NonNull::new(raw).ok_or_else(|| last_error("mlx5dv_devx_obj_create"))?;
        Ok(Self { context: context.clone(), raw, kept: ManuallyDrop::new(kept) })
    }

    /// Returns what the object uses.
    pub(in crate::devx) fn kept(&self) -> &K {
        &self.kept
    }

    /// Runs a query command on the object.
    pub(in crate::devx) fn query(&self, input: &[u8], output: &mut [u8]) -> Result<(), DevxError> {
        self.run("mlx5dv_devx_obj_query", self.context.api.mlx5dv_devx_obj_query, input, output)
    }

    /// Runs a modify command on the object.
    pub(in crate::devx) fn modify(&self, input: &[u8], output: &mut [u8]) -> Result<(), DevxError> {
        self.run("mlx5dv_devx_obj_modify", self.context.api.mlx5dv_devx_obj_modify, input, output)
    }

    fn run(
        &self,
        name: &'static str,
        command: unsafe extern "C" fn(*mut DevxObj, *const c_void, usize, *mut c_void, usize) -> c_int,
        input: &[u8],
        output: &mut [u8],
    ) -> Result<(), DevxError> {
        let (input_at, output_at) = (input.as_ptr().cast(), output.as_mut_ptr().cast());
        // SAFETY: the callers take `command` from libmlx5; the object lives; both mailboxes are valid for their lengths during the
        // call.
        check(name, unsafe { command(self.raw.as_ptr(), input_at, input.len(), output_at, output.len()) })
    }
}

impl<K> Drop for Object<K> {
    fn drop(&mut self) {
        // SAFETY: created by `create`, and destroyed here only.
        let result = unsafe { (self.context.api.mlx5dv_devx_obj_destroy)(self.raw.as_ptr()) };
        match check("mlx5dv_devx_obj_destroy", result) {
            // SAFETY: dropped once, here.
            Ok(()) => unsafe { ManuallyDrop::drop(&mut self.kept) },
            // The device may still write to what it uses: that is leaked.
            Err(error) => drop_failed(&error),
        }
    }
}
