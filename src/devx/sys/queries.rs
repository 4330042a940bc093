//! Queries whose answers arrive later, on a file descriptor.

#![allow(unsafe_code)]

use super::super::abi::CommandChannelRaw;
use super::context::Context;
use super::errno::{check, last_error};
use super::object::Object;
use super::wait::{ENDED, NONE, wait};
use crate::devx::error::DevxError;
use core::ffi::c_int;
use core::ptr::NonNull;
use core::sync::atomic::{AtomicUsize, Ordering};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};
use std::vec;
use std::vec::Vec;

/// Length in bytes of the header before each answer. The header is the `id` of the query.
const HEADER: usize = 8;

/// A channel for the answers to queries.
pub(in crate::devx) struct CommandChannel {
    context: Arc<Context>,
    raw: NonNull<CommandChannelRaw>,
    /// Length in bytes of the longest answer to a query that was sent so far. A buffer for answers must be
    /// that long, because the kernel does not write an answer into a shorter one.
    longest: AtomicUsize,
}

// SAFETY: libibverbs and libmlx5 lock their objects; all their functions may be called from any thread.
unsafe impl Send for CommandChannel {}
// SAFETY: libibverbs and libmlx5 lock their objects; all their functions may be called from any thread.
unsafe impl Sync for CommandChannel {}

impl CommandChannel {
    pub(in crate::devx) fn create(context: &Arc<Context>) -> Result<Self, DevxError> {
        // SAFETY: the context is open.
        let raw = unsafe { (context.api.mlx5dv_devx_create_cmd_comp)(context.raw.as_ptr()) };
        let raw = NonNull::new(raw).ok_or_else(|| last_error("mlx5dv_devx_create_cmd_comp"))?;
        let channel = Self { context: context.clone(), raw, longest: AtomicUsize::new(0) };
        // If an answer wakes several threads, one of them gets it. With O_NONBLOCK the others do not block in
        // the kernel.
        // SAFETY: the descriptor is open as long as the channel lives; the call accesses no memory.
        let result = unsafe { libc::fcntl(channel.fd(), libc::F_SETFL, libc::O_NONBLOCK) };
        check("fcntl of a command channel", result)?;
        Ok(channel)
    }

    /// Runs a query command on an object. The answer of `output` bytes will arrive at this channel with `id`.
    pub(in crate::devx) fn query(
        &self,
        object: &Object<impl Sized>,
        input: &[u8],
        output: usize,
        id: u64,
    ) -> Result<(), DevxError> {
        let object = object.made()?;
        self.longest.fetch_max(output, Ordering::Relaxed);
        // SAFETY: object and channel live; the mailbox is valid for its length during the call.
        let result = unsafe {
            (self.context.api.mlx5dv_devx_obj_query_async)(
                object.as_ptr(),
                input.as_ptr().cast(),
                input.len(),
                output,
                id,
                self.raw.as_ptr(),
            )
        };
        check("mlx5dv_devx_obj_query_async", result)
    }

    /// Returns the next answer and the `id` of its query. Returns `None` after `timeout`. Waits without limit
    /// if no `timeout` is given.
    pub(in crate::devx) fn next(
        &self,
        timeout: Option<Duration>,
    ) -> Result<Option<(u64, Vec<u8>)>, DevxError> {
        // If `Instant` cannot represent the end of the timeout, the wait has no limit.
        let end = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        loop {
            if let Some(answer) = self.take()? {
                return Ok(Some(answer));
            }
            let left = end.map(|end| end.saturating_duration_since(Instant::now()));
            let [events, _] = wait([self.fd(), NONE], left)?;
            // The descriptor of a device that is gone stays readable, but only answers that arrived earlier
            // can be read.
            if events & ENDED != 0 {
                return self.take()?.map(Some).ok_or(DevxError::EventsClosed);
            }
            if left.is_some_and(|left| left.is_zero()) {
                return self.take();
            }
        }
    }

    /// Takes an answer that has arrived, or returns `None` if there is none.
    fn take(&self) -> Result<Option<(u64, Vec<u8>)>, DevxError> {
        let mut answer = vec![0_u8; HEADER + self.longest.load(Ordering::Relaxed)];
        // SAFETY: the channel lives; the buffer is valid for its length.
        let result = unsafe {
            (self.context.api.mlx5dv_devx_get_async_cmd_comp)(
                self.raw.as_ptr(),
                answer.as_mut_ptr().cast(),
                answer.len(),
            )
        };
        match check("mlx5dv_devx_get_async_cmd_comp", result) {
            Ok(()) => {
                let (id, reply) = answer.split_first_chunk().ok_or(DevxError::ShortEvent)?;
                Ok(Some((u64::from_ne_bytes(*id), reply.to_vec())))
            }
            Err(DevxError::Call { cause, .. })
                if matches!(cause.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) =>
            {
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    fn fd(&self) -> c_int {
        // SAFETY: the structure lives until the channel is destroyed.
        unsafe { self.raw.as_ref().fd }
    }
}

impl AsFd for CommandChannel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        // SAFETY: the descriptor is open as long as the channel lives.
        unsafe { BorrowedFd::borrow_raw(self.fd()) }
    }
}

impl Drop for CommandChannel {
    fn drop(&mut self) {
        // SAFETY: `create` created the channel, and nobody uses it any more.
        unsafe { (self.context.api.mlx5dv_devx_destroy_cmd_comp)(self.raw.as_ptr()) };
    }
}
