//! Requests that the caller built, and copies in memory.

use super::in_flight::RequestKind;
use super::request::SendRequest;
use crate::error::PostError;
use crate::wqe::Local;
use crate::wqe::memcpy::Memcpy;
use crate::wqe::raw::RawWqe;

impl SendRequest<'_, '_> {
    /// Posts a work request that the caller built, for what no other method writes (`mlx5dv_wr_raw_wqe`).
    ///
    /// Its size, opcode and modifier, immediate data and flags stand in its control segment, the first 16
    /// bytes. Bytes after its size are ignored. Written here are its place in the ring and the number of the
    /// queue pair, whatever it has there. Where its control segment has a fence, that stays; else it gets the
    /// fence asked for here ([`SendRequest::fenced`]), or the one that a request after a change of an mkey
    /// gets. It is signalled if its control segment says so, if that is asked for here, or if the queue
    /// signals each request. The signature byte stays as it is; queues of this library do not have it
    /// checked.
    ///
    /// It takes room, completes and is retired as all requests are, as [`RequestKind::Raw`]. What it does is
    /// the caller's business: an [`Mkey`](crate::mkey::Mkey) whose mkey it changes knows nothing of it, so
    /// call [`Mkey::forget`](crate::mkey::Mkey::forget) for it. After a UMR or SET_PSV the next request is
    /// fenced.
    ///
    /// [`WorkRequest::refusal`](crate::inspect::WorkRequest::refusal) finds what a device would refuse in it:
    ///
    /// ```
    /// use mlx5_mkey::inspect::{DeviceContext, WorkRequest};
    /// use mlx5_mkey::queue::{Doorbell, SendQueue};
    ///
    /// # use std::error::Error;
    /// fn post<D: Doorbell>(queue: &mut SendQueue<'_, D, 64>, wqe: &[u8]) -> Result<(), Box<dyn Error>> {
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
        let (blocks, fields) = self.reserve(wqe.blocks())?;
        wqe.write(blocks, fields);
        self.commit(fields.begin, RequestKind::Raw, wqe.blocks(), 0)?;
        if wqe.changes_mkey() {
            self.state.fence_next();
        }
        Ok(())
    }

    /// Copies `bytes` of memory from one place to another of this side, without the peer
    /// (`mlx5dv_wr_memcpy`): 1 to what [`MemcpyConfig`](crate::wqe::MemcpyConfig) allows.
    ///
    /// Post a request that needs the copied bytes when the copy has completed
    /// ([`signaled`](SendRequest::signaled)). The order of copies is independent of that of other requests:
    /// one that is posted behind a copy may read memory before the bytes are there. Being
    /// [`fenced`](SendRequest::fenced) does not help, since that waits for reads and atomics; UCX puts a
    /// strong fence behind copies (`uct_gga_mlx5`), which no request of this library asks for.
    ///
    /// # Errors
    /// [`PostError::MemcpyUnsupported`] where the queue has no
    /// [`SendQueueConfig::memcpy`](super::SendQueueConfig::memcpy), [`PostError::MemcpyEmpty`],
    /// [`PostError::MemcpyTooLong`], [`PostError::SendRingFull`], [`PostError::TooManyRequests`].
    pub fn memcpy(mut self, to: Local, from: Local, bytes: u32) -> Result<(), PostError> {
        let copy = Memcpy::new(self.state.memcpy, to, from, bytes)?;
        let (blocks, fields) = self.reserve(Memcpy::BLOCKS)?;
        copy.write(blocks, fields);
        self.commit(fields.begin, RequestKind::Memcpy, Memcpy::BLOCKS, 0)
    }
}
