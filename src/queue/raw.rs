//! Requests that the caller built, and copies in memory.

use super::in_flight::RequestKind;
use super::request::SendRequest;
use crate::wqe::Local;
use crate::wqe::error::PostError;
use crate::wqe::memcpy::Memcpy;
use crate::wqe::raw::RawWqe;

impl SendRequest<'_, '_> {
    /// Posts a work request that the caller built, for requests that no other method writes
    /// (`mlx5dv_wr_raw_wqe`).
    ///
    /// The control segment, the first 16 bytes, contains size, opcode and modifier, immediate data and flags
    /// of the request. Bytes after its size are ignored. This call replaces two fields of the control
    /// segment: the place in the ring and the number of the queue pair. The signature byte stays unchanged:
    /// queues of this library do not ask the device to check it.
    ///
    /// A fence in the control segment stays. Without one, the request gets the fence asked for here
    /// ([`SendRequest::fenced`]), or the fence after a change of an mkey. The request is signalled if its
    /// control segment says so, if the caller asks for a completion here, or if the queue signals each
    /// request.
    ///
    /// The request takes room, completes and is retired like all requests, as [`RequestKind::Raw`]. If it
    /// changes an mkey, the state in [`Mkey`](crate::mkey::Mkey) is not updated: call
    /// [`Mkey::forget`](crate::mkey::Mkey::forget). After a UMR or SET_PSV, the next request is fenced.
    ///
    /// [`WorkRequest::refusal`](crate::inspect::WorkRequest::refusal) finds faults that a device would
    /// refuse:
    ///
    /// ```
    /// use mlx5_mkey::inspect::{DeviceContext, WorkRequest};
    /// use mlx5_mkey::queue::{Doorbell, SendQueue};
    ///
    /// # use std::error::Error;
    /// fn post<D: Doorbell>(queue: &mut SendQueue<'_, D>, wqe: &[u8]) -> Result<(), Box<dyn Error>> {
    ///     if let Some(finding) = WorkRequest::parse(wqe)?.refusal(&DeviceContext::UNKNOWN) {
    ///         return Err(finding.into());
    ///     }
    ///     queue.request(1).signaled().raw(wqe)?;
    ///     queue.ring_doorbell();
    ///     Ok(())
    /// }
    /// ```
    ///
    /// # Errors
    /// [`PostError::RawSize`], [`PostError::RawTooShort`], [`PostError::SendRingFull`],
    /// [`PostError::TooManyRequests`].
    pub fn raw(mut self, wqe: &[u8]) -> Result<(), PostError> {
        let wqe = RawWqe::new(wqe)?;
        self.post_other(RequestKind::Raw, wqe.blocks(), |blocks, fields| {
            wqe.write(blocks, fields);
            Ok(())
        })?;
        if wqe.changes_mkey() {
            self.state.ring.fence_next();
        }
        Ok(())
    }

    /// Copies `bytes` bytes within the memory of this side, without the peer (`mlx5dv_wr_memcpy`). `bytes` is
    /// at least 1, and at most the limit in [`MemcpyConfig`](crate::wqe::MemcpyConfig).
    ///
    /// If a request needs the copied bytes, post it after the completion of the copy
    /// ([`signaled`](SendRequest::signaled)). Copies are not ordered with other requests: a request that is
    /// posted after a copy may read memory before the copied bytes are there. [`fenced`](SendRequest::fenced)
    /// does not help, since this fence waits for reads and atomics. UCX uses a strong fence after copies
    /// (`uct_gga_mlx5`), which this library does not offer.
    ///
    /// # Errors
    /// [`PostError::MemcpyUnsupported`] if the queue has no
    /// [`SendQueueConfig::memcpy`](super::SendQueueConfig::memcpy), [`PostError::MemcpyEmpty`],
    /// [`PostError::MemcpyTooLong`], [`PostError::SendRingFull`], [`PostError::TooManyRequests`].
    pub fn memcpy(mut self, to: Local, from: Local, bytes: u32) -> Result<(), PostError> {
        let copy = Memcpy::new(self.state.memcpy, to, from, bytes)?;
        self.post_other(RequestKind::Memcpy, Memcpy::BLOCKS, |blocks, fields| {
            copy.write(blocks, fields);
            Ok(())
        })
    }
}
