//! The end of a send request: retired by its completion, or cancelled before the device executes it.

use super::barrier;
use super::doorbell::Doorbell;
use super::in_flight::{Filed, Retired};
use super::send::SendQueue;
use crate::error::PostError;
use crate::wire::ctrl::{Opcode, OpcodeWord};
use zerocopy::big_endian::U64;

impl<D: Doorbell, const N: usize> SendQueue<'_, D, N> {
    /// Returns how many work requests are posted and not retired. A configuration counts for its UMR and for each of its
    /// SET_PSVs.
    pub const fn outstanding(&self) -> u32 {
        self.in_flight.outstanding()
    }

    /// Retires the work request that begins at block `counter` modulo 2^16 (`wqe_counter` of its completion), and all before
    /// it, which were silent: their blocks are free again.
    ///
    /// Returns `None`, and changes nothing, where no published and outstanding work request begins there.
    #[inline]
    pub fn retire(&mut self, counter: u16) -> Option<Retired> {
        self.in_flight.retire(counter)
    }

    /// Turns every unexecuted work request named `id` into a NOP, which completes as the request would have, and returns how
    /// many there were (`mlx5dv_qp_cancel_posted_send_wrs`). A configuration counts for its UMR and for each of its SET_PSVs.
    ///
    /// Only for a queue pair in state SQD: `hw_counter` is the block at which the device will go on, as QUERY_QP reports it
    /// (`hw_sq_wqebb_counter`). Call [`crate::mkey::Mkey::forget`] for an mkey whose configuration was cancelled.
    ///
    /// # Errors
    /// [`PostError::NotOutstanding`] where no outstanding request begins at `hw_counter`, and it is not the queue's end.
    pub fn cancel(&mut self, id: u64, hw_counter: u16) -> Result<usize, PostError> {
        let published = self.in_flight.published();
        let next = if hw_counter == published as u16 {
            published
        } else {
            self.in_flight.find(hw_counter).ok_or(PostError::NotOutstanding { counter: hw_counter })?.begin
        };
        Ok(self.cancel_from(next, id))
    }

    /// Turns every work request named `id` that begins at this block or behind it into a NOP, and returns how many there were.
    #[cold]
    #[inline(never)]
    fn cancel_from(&mut self, next: u64, id: u64) -> usize {
        let producer = self.ring.producer();
        let mut cancelled = 0;
        // To the end of what was posted: what is not published yet must not go out either.
        for filed in self.in_flight.before(producer).filter(|filed| filed.id == id && filed.begin >= next) {
            let nop = nop_at(filed);
            self.ring.ring_mut().write_word(filed.begin, nop.to_be_bytes());
            cancelled += 1;
            if filed.end() == producer && self.last_control != U64::ZERO {
                // The doorbell repeats the last request's first eight bytes.
                let second = self.last_control.get() & u64::from(u32::MAX);
                self.last_control = U64::new(u64::from(nop) << 32 | second);
            }
        }
        // The device reads on when the queue pair leaves SQD; it must not see the old words then.
        barrier::blocks_before_record();
        cancelled
    }
}

/// Returns the first word of a NOP in place of this work request.
const fn nop_at(filed: &Filed) -> u32 {
    OpcodeWord::new().with_opcode(Opcode::NOP.0).with_wqe_index(filed.begin as u16).into_bits()
}
