//! Removes entries of a destroyed or reset queue pair from a completion queue.

use super::completion_queue::{CompletionQueue, entry};
use crate::wire::cqe::{Cqe, CqeSlot};

impl<E: CqeSlot> CompletionQueue<'_, E> {
    /// Drops the entries that were not taken and for which `is_stale` returns true. Returns their number. The
    /// other entries stay in order.
    ///
    /// Call this for entries of a queue pair that was reset or destroyed ([`Cqe::is_of`]). Otherwise an old
    /// entry could be taken for the entry of a later request: on the same queue pair, or on the next queue
    /// pair with the same number.
    pub fn discard(&mut self, mut is_stale: impl FnMut(&Cqe) -> bool) -> usize {
        self.discard_entries(&mut is_stale)
    }

    /// Does the same as [`CompletionQueue::discard`], compiled once for all closures. Additions wrap, so that
    /// no overflow check is compiled in.
    fn discard_entries(&mut self, is_stale: &mut dyn FnMut(&Cqe) -> bool) -> usize {
        let mut index = self.consumer;
        while index.wrapping_sub(self.consumer) < self.ring.len().into()
            && entry(self.ring.peek(index).cqe()).is_some()
        {
            index = index.wrapping_add(1);
        }
        // From the last entry backwards, each remaining entry moves to the end, over the dropped ones.
        let mut target = index;
        while index != self.consumer {
            index = index.wrapping_sub(1);
            let Some(mut found) = entry(self.ring.peek(index).cqe()) else { continue };
            if is_stale(&found) {
                continue;
            }
            target = target.wrapping_sub(1);
            let owner = self.ring.peek(target).owner() as u8;
            found.op_own = found.op_own_bits().with_owner(owner != 0).into_bits();
            self.ring.write(target, E::of(found));
        }
        let discarded = target.wrapping_sub(self.consumer);
        if discarded > 0 {
            self.consumer = target;
            self.release();
        }
        discarded as usize
    }
}
