//! The end of a send request: retired by its completion, or cancelled before the device executes it.

use super::barrier;
use super::completed::CompletedSend;
use super::doorbell::Doorbell;
use super::in_flight::{Filed, InFlight, Retired};
use super::send::SendQueue;
use super::send_state::SendState;
use crate::error::PostError;
use crate::wqe::control;

impl<D: Doorbell, const N: usize> SendQueue<'_, D, N> {
    /// Returns how many work requests are posted and not retired. A configuration counts for its UMR and for
    /// each of its SET_PSVs.
    ///
    /// They are counted one by one.
    pub fn outstanding(&self) -> u32 {
        let in_flight: &InFlight = &self.in_flight;
        in_flight.outstanding(self.state.producer.producer())
    }

    /// Retires the work request that a completion names by its first block modulo 2^16, and all before it,
    /// which were silent: their blocks are free again.
    ///
    /// Returns `None`, and changes nothing, where no published and outstanding work request begins there, or
    /// where the completion is of another queue pair.
    #[inline]
    pub fn retire(&mut self, done: CompletedSend<'_>) -> Option<Retired> {
        if done.qpn() != self.qpn() {
            return None;
        }
        let in_flight: &mut InFlight = &mut self.in_flight;
        in_flight.retire(done.counter())
    }

    /// Hands what is outstanding to `each`, oldest first: published or not, silent or signalled.
    pub(crate) fn each_outstanding(&self, mut each: impl FnMut(Retired)) {
        let in_flight: &InFlight = &self.in_flight;
        for (_, filed) in in_flight.before(self.state.producer.producer()) {
            each(filed.retired());
        }
    }

    /// Begins anew, with an empty ring, and hands what was outstanding to `each`, oldest first: published or
    /// not, silent or signalled. Only for a queue pair that was reset (2RST_QP), before it is made ready
    /// again: the device goes on at block 0.
    pub fn restart(&mut self, each: impl FnMut(Retired)) {
        self.each_outstanding(each);
        let in_flight: &mut InFlight = &mut self.in_flight;
        in_flight.restart();
        self.state.restart();
        self.record.set_send(0);
    }

    /// Turns every unexecuted work request named `id` into a NOP, which completes as the request would have,
    /// and returns how many there were (`mlx5dv_qp_cancel_posted_send_wrs`). A configuration counts for its
    /// UMR and for each of its SET_PSVs.
    ///
    /// Only for a queue pair in state SQD: `hw_counter` is the block at which the device will go on, as
    /// QUERY_QP reports it (`hw_sq_wqebb_counter`). Call [`crate::mkey::Mkey::forget`] for an mkey whose
    /// configuration was cancelled.
    ///
    /// # Errors
    /// [`PostError::NotOutstanding`] where no outstanding request begins at `hw_counter`, and it is not the
    /// queue's end.
    pub fn cancel(&mut self, id: u64, hw_counter: u16) -> Result<usize, PostError> {
        let in_flight: &InFlight = &self.in_flight;
        let published = in_flight.published();
        let next = if hw_counter == published as u16 {
            published
        } else {
            in_flight.begin(hw_counter).ok_or(PostError::NotOutstanding { counter: hw_counter })?
        };
        Ok(self.state.cancel_from(in_flight, next, id))
    }
}

impl SendState<'_> {
    /// Turns every work request named `id` that begins at this block or after it into a NOP, and returns how
    /// many there were.
    // Alone, so that `cargo xtask test aarch64` finds its barrier.
    #[inline(never)]
    fn cancel_from(&mut self, in_flight: &InFlight, next: u64, id: u64) -> usize {
        let producer = self.producer.producer();
        let mut cancelled = 0;
        // Up to the producer: a request that is posted and not yet published is cancelled, too.
        let is_named = |(begin, filed): &(u64, &Filed)| filed.id == id && *begin >= next;
        for (begin, _) in in_flight.before(producer).filter(is_named) {
            self.producer.ring_mut().write_word(begin, control::nop_start(begin));
            cancelled += 1;
        }
        // When the queue pair leaves SQD, the device goes on reading; it must see the new words then.
        barrier::blocks_before_record();
        cancelled
    }
}
