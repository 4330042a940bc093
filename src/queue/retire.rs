//! The end of a send request: retired by its completion, or cancelled before the device executes it.

use super::barrier;
use super::completed::CompletedSend;
use super::doorbell::Doorbell;
use super::in_flight::{Filed, Retired};
use super::send::SendQueue;
use super::send_state::SendState;
use crate::wqe::control;
use crate::wqe::error::PostError;

impl<D: Doorbell> SendQueue<'_, D> {
    /// Returns how many work requests are posted and not retired, by counting them one by one. A
    /// configuration counts for its UMR and for each of its SET_PSVs.
    pub fn outstanding(&self) -> u32 {
        self.state.in_flight.outstanding(self.state.producer.producer())
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
        self.state.in_flight.retire(done.counter())
    }

    /// Passes each outstanding work request to `each`, oldest first: published or not, silent or signalled.
    pub(crate) fn each_outstanding(&self, mut each: impl FnMut(Retired)) {
        let in_flight = &self.state.in_flight;
        for (_, filed) in in_flight.before(self.state.producer.producer()) {
            each(in_flight.retired(&filed));
        }
    }

    /// Starts again with an empty ring, and passes each outstanding work request to `each`, oldest first:
    /// published or not, silent or signalled. Call this only for a queue pair that was reset (2RST_QP),
    /// before it is made ready again: the device continues at block 0.
    pub fn restart(&mut self, each: impl FnMut(Retired)) {
        self.each_outstanding(each);
        self.state.restart();
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
        let in_flight = &self.state.in_flight;
        let published = in_flight.published();
        let next = if hw_counter == published as u16 {
            published
        } else {
            in_flight.begin(hw_counter).ok_or(PostError::NotOutstanding { counter: hw_counter })?
        };
        Ok(self.state.cancel_from(next, id))
    }
}

impl SendState<'_> {
    /// Turns every work request named `id` that begins at block `next` or later into a NOP, and returns their
    /// number.
    // A function of its own, so that `cargo xtask test aarch64` finds its barrier.
    #[inline(never)]
    fn cancel_from(&mut self, next: u64, id: u64) -> usize {
        let Self { producer: ring, in_flight, .. } = self;
        let producer = ring.producer();
        let (mut cancelled, mut any_invalidation) = (0, false);
        // Up to the producer: requests that are posted but not yet published are cancelled too.
        let is_named = |(begin, filed): &(u64, Filed)| filed.id == id && *begin >= next;
        for (begin, filed) in in_flight.before(producer).filter(is_named) {
            ring.ring_mut().write_word(begin, control::nop_start(begin));
            cancelled += 1;
            any_invalidation |= filed.is_invalidation();
        }
        if any_invalidation {
            // The NOP completes as the invalidation would have, but its completion must not prove that the
            // key is out of service.
            in_flight.begin_life();
        }
        // When the queue pair leaves SQD, the device continues to read requests, and must see the NOPs.
        barrier::blocks_before_record();
        cancelled
    }
}
