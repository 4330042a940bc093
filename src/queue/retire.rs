//! The end of a send request: retired by its completion, or cancelled before the device executes it.

use super::completed::CompletedSend;
use super::doorbell::Doorbell;
use super::in_flight::Retired;
use super::send::SendQueue;
use crate::wqe::error::PostError;

impl<D: Doorbell> SendQueue<'_, D> {
    /// Returns how many work requests are posted and not retired, by counting them one by one. A
    /// configuration counts for its UMR and for each of its SET_PSVs.
    pub fn outstanding(&self) -> u32 {
        self.state.ring.outstanding()
    }

    /// Retires the work request that a completion names by its first block modulo 2^16. Also retires all
    /// requests before it, which were silent. Their blocks are free again.
    ///
    /// Returns `None` and changes nothing if no published and outstanding work request begins at this block,
    /// or if the completion is of another queue pair.
    #[inline]
    pub fn retire(&mut self, done: CompletedSend<'_>) -> Option<Retired> {
        if done.qpn() != self.qpn() {
            return None;
        }
        self.state.ring.retire(done.counter())
    }

    /// Passes each outstanding work request to `each`, oldest first: published or not, silent or signalled.
    pub(crate) fn each_outstanding(&self, each: impl FnMut(Retired)) {
        self.state.ring.each_outstanding().for_each(each);
    }

    /// Starts again with an empty ring, and passes each outstanding work request to `each`, oldest first:
    /// published or not, silent or signalled. Call this only for a queue pair that was reset (2RST_QP),
    /// before it is made ready again: the device continues at block 0.
    pub fn restart(&mut self, each: impl FnMut(Retired)) {
        self.each_outstanding(each);
        self.state.ring.restart();
        self.record.set_send(0);
    }

    /// Turns every work request named `id` that was not executed into a NOP, and returns their number
    /// (`mlx5dv_qp_cancel_posted_send_wrs`). The NOP completes as the request would have. A configuration
    /// counts for its UMR and for each of its SET_PSVs.
    ///
    /// Call this only for a queue pair in state SQD. `hw_counter` is the block at which the device will
    /// continue, as QUERY_QP reports it (`hw_sq_wqebb_counter`). Call [`crate::mkey::Mkey::forget`] for an
    /// mkey whose configuration was cancelled. If an invalidation was cancelled, the pools accept no
    /// completion for the invalidations posted before this call: post them again.
    ///
    /// # Errors
    /// [`PostError::NotOutstanding`] if no outstanding request begins at `hw_counter`, and `hw_counter` is
    /// not the queue's end either.
    pub fn cancel(&mut self, id: u64, hw_counter: u16) -> Result<usize, PostError> {
        let ring = &mut self.state.ring;
        let published = ring.published;
        let next = if hw_counter == published as u16 {
            published
        } else {
            ring.begin(hw_counter).ok_or(PostError::NotOutstanding { counter: hw_counter })?
        };
        Ok(ring.cancel(next, id))
    }
}
