//! Handles of objects on the device, which commands have created or which this library has taken over from
//! the caller.

#![allow(unsafe_code)]

use super::super::abi::{DevxObj, IbvQp, IbvQpAttr};
use super::context::Context;
use super::errno::{check, last_error};
use crate::devx::error::{AdoptError, DevxError, drop_failed};
use core::ffi::{c_int, c_void};
use core::mem::ManuallyDrop;
use core::ptr::NonNull;
use std::sync::Arc;

/// An object on the device, and the resources that it uses. The kernel destroys the object when the process
/// ends.
pub(in crate::devx) struct Object<K = ()> {
    context: Arc<Context>,
    raw: Raw,
    /// Memory, doorbell pages and other objects that the device uses as long as the object exists.
    kept: ManuallyDrop<K>,
}

/// The handle by which libmlx5 knows an object.
#[derive(Clone, Copy)]
enum Raw {
    /// A command created the object. Dropping the value destroys the object.
    Made(NonNull<DevxObj>),
    /// A queue pair of the caller, which this library does not destroy.
    Qp(NonNull<IbvQp>),
    /// Another object of the caller, such as a completion queue, to which this library sends no commands.
    Other,
}

// SAFETY: libibverbs and libmlx5 lock their objects; all their functions may be called from any thread.
unsafe impl<K: Send> Send for Object<K> {}
// SAFETY: libibverbs and libmlx5 lock their objects; all their functions may be called from any thread.
unsafe impl<K: Sync> Sync for Object<K> {}

impl<K> Object<K> {
    /// Runs a create command. `output` receives the reply even if the command fails, with status and
    /// syndrome. `kept` is dropped after the object is destroyed, and never if the object cannot be
    /// destroyed.
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
        Ok(Self { context: context.clone(), raw: Raw::Made(raw), kept: ManuallyDrop::new(kept) })
    }

    /// Takes over a queue pair of the caller.
    ///
    /// # Safety
    /// The caller ensures that `qp` is a `struct ibv_qp` of this context, and does not destroy it while the
    /// value lives.
    pub(in crate::devx) unsafe fn of_qp(context: &Arc<Context>, kept: K, qp: NonNull<c_void>) -> Self {
        Self { context: context.clone(), raw: Raw::Qp(qp.cast()), kept: ManuallyDrop::new(kept) }
    }

    /// Makes a value for an object of the caller to which no commands are sent.
    pub(in crate::devx) fn of_other(context: &Arc<Context>, kept: K) -> Self {
        Self { context: context.clone(), raw: Raw::Other, kept: ManuallyDrop::new(kept) }
    }

    /// Returns libmlx5's handle of the object if a command created it, or an error.
    pub(super) fn made(&self) -> Result<NonNull<DevxObj>, DevxError> {
        match self.raw {
            Raw::Made(raw) => Ok(raw),
            _ => Err(AdoptError::NotMadeHere.into()),
        }
    }

    /// Returns the resources that the object uses.
    pub(in crate::devx) fn kept(&self) -> &K {
        &self.kept
    }

    /// Returns the context of the device that the object belongs to.
    pub(in crate::devx) const fn context(&self) -> &Arc<Context> {
        &self.context
    }

    /// Runs a query command on the object.
    pub(in crate::devx) fn query(&self, input: &[u8], output: &mut [u8]) -> Result<(), DevxError> {
        let api = self.context.api;
        match self.raw {
            // SAFETY: the object lives, and the function takes objects of this type.
            Raw::Made(raw) => unsafe {
                run("mlx5dv_devx_obj_query", api.mlx5dv_devx_obj_query, raw, input, output)
            },
            // SAFETY: the queue pair lives, and the function takes `struct ibv_qp`.
            Raw::Qp(raw) => unsafe {
                run("mlx5dv_devx_qp_query", api.mlx5dv_devx_qp_query, raw, input, output)
            },
            Raw::Other => Err(AdoptError::NotMadeHere.into()),
        }
    }

    /// Runs a modify command on the object.
    pub(in crate::devx) fn modify(&self, input: &[u8], output: &mut [u8]) -> Result<(), DevxError> {
        let api = self.context.api;
        match self.raw {
            // SAFETY: the object lives, and the function takes objects of this type.
            Raw::Made(raw) => unsafe {
                run("mlx5dv_devx_obj_modify", api.mlx5dv_devx_obj_modify, raw, input, output)
            },
            // SAFETY: the queue pair lives, and the function takes `struct ibv_qp`.
            Raw::Qp(raw) => unsafe {
                run("mlx5dv_devx_qp_modify", api.mlx5dv_devx_qp_modify, raw, input, output)
            },
            Raw::Other => Err(AdoptError::NotMadeHere.into()),
        }
    }
}

/// libibverbs' numbers of the states RTS (ready to send) and SQD (drained): `IBV_QPS_RTS`, `IBV_QPS_SQD`.
const READY_TO_SEND: u32 = 3;
const DRAINED: u32 = 4;
/// The mask of the attributes that `ibv_modify_qp` gets: `IBV_QP_STATE` and `IBV_QP_CUR_STATE`.
const STATES: c_int = 1 << 0 | 1 << 1;

impl<K> Object<K> {
    /// Resumes a drained queue pair of the caller, through libibverbs. Linux does not pass on the command
    /// SQD_RTS_QP of a program, but sends this command itself when the program calls `ibv_modify_qp`. The
    /// call states SQD as the current state, because Linux does not notice that the device has drained the
    /// queue. Returns `None` for an object that is no queue pair of the caller.
    pub(in crate::devx) fn resume(&self) -> Option<Result<(), DevxError>> {
        let Raw::Qp(raw) = self.raw else { return None };
        let mut attr = IbvQpAttr { state: READY_TO_SEND, current_state: DRAINED, ..IbvQpAttr::default() };
        // SAFETY: the queue pair lives, and the structure is no shorter than libibverbs' own.
        let result = unsafe { (self.context.api.ibv_modify_qp)(raw.as_ptr(), &mut attr, STATES) };
        Some(check("ibv_modify_qp", result))
    }
}

/// Runs a query or modify command on an object by the libmlx5 function `command`.
///
/// # Safety
/// The caller ensures that `command` is a function of libmlx5 for objects of the type `T`, and that the
/// object exists.
unsafe fn run<T>(
    name: &'static str,
    command: unsafe extern "C" fn(*mut T, *const c_void, usize, *mut c_void, usize) -> c_int,
    object: NonNull<T>,
    input: &[u8],
    output: &mut [u8],
) -> Result<(), DevxError> {
    let (input_at, output_at) = (input.as_ptr().cast(), output.as_mut_ptr().cast());
    // SAFETY: the caller vouches for function and object; both mailboxes are valid for their lengths during
    // the call.
    check(name, unsafe { command(object.as_ptr(), input_at, input.len(), output_at, output.len()) })
}

impl<K> Object<K> {
    /// Destroys the object.
    ///
    /// # Errors
    /// The kernel refused. The error contains the object, which still exists.
    pub(in crate::devx) fn destroy(mut self) -> Result<(), (DevxError, Self)> {
        match self.end() {
            Ok(()) => {
                // The object is destroyed, so dropping the value only frees the resources that it used.
                self.raw = Raw::Other;
                Ok(())
            }
            Err(error) => Err((error, self)),
        }
    }

    /// Destroys the object on the device, if a command created it. The caller must not call this function
    /// again after a success.
    fn end(&self) -> Result<(), DevxError> {
        match self.raw {
            // SAFETY: the object was created by `create`, and the callers do not use it any more.
            Raw::Made(raw) => check("mlx5dv_devx_obj_destroy", unsafe {
                (self.context.api.mlx5dv_devx_obj_destroy)(raw.as_ptr())
            }),
            Raw::Qp(_) | Raw::Other => Ok(()),
        }
    }
}

impl<K> Drop for Object<K> {
    fn drop(&mut self) {
        match self.end() {
            // SAFETY: the field is dropped once, here.
            Ok(()) => unsafe { ManuallyDrop::drop(&mut self.kept) },
            // The device may still write to the resources, so they are leaked.
            Err(error) => drop_failed(&error),
        }
    }
}
