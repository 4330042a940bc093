//! Objects that commands make.

#![allow(unsafe_code)]

use super::abi::DevxObj;
use super::context::Context;
use super::errno::{check, last_error};
use crate::devx::error::DevxError;
use core::ffi::{c_int, c_void};
use core::ptr::NonNull;
use std::sync::Arc;

/// An object that a command made: the kernel destroys it by itself if the process ends.
pub(in crate::devx) struct Object {
    context: Arc<Context>,
    pub(super) raw: NonNull<DevxObj>,
}

// SAFETY: as for Context.
unsafe impl Send for Object {}
// SAFETY: as for Context.
unsafe impl Sync for Object {}

impl Object {
    /// Runs a create command. The reply is in `output` also when it fails, with status and syndrome.
    pub(in crate::devx) fn create(
        context: &Arc<Context>,
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
        Ok(Self { context: context.clone(), raw })
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

impl Drop for Object {
    fn drop(&mut self) {
        // SAFETY: created by `create`.
        unsafe { (self.context.api.mlx5dv_devx_obj_destroy)(self.raw.as_ptr()) };
    }
}
