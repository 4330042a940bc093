//! A table of the queue pairs that complete to one completion queue.

use super::room::Room;
use super::router::{CompletionRouter, CqeOrigin, QpQueues, record};
use crate::mkey::{Mkey, SignatureFault};
use crate::types::Qpn;
use crate::types::QueueError;

/// The queue pairs that complete to one completion queue. The table has room for one queue pair in each slot
/// that the caller provides.
///
/// A completion finds its queue pair at once if the queue pair was created with its position in the table as
/// user index ([`QpTable::next_user_index`]). Otherwise the table searches the queue pair by its number. `Q`
/// implements [`QpQueues`]: a [`super::SendQueue`], a pair of send and receive queue, a `devx::QueuePair`, or
/// references to these types.
///
/// ```
/// use mlx5_mkey::error::CompletionError;
/// use mlx5_mkey::queue::{CompletionQueue, QpTable, SendQueue, UarDoorbell};
///
/// type Table<'r> = QpTable<'r, SendQueue<'r, UarDoorbell>>;
///
/// fn drain(completions: &mut CompletionQueue<'_>, table: &mut Table<'_>) -> Result<usize, CompletionError> {
///     let mut count = 0;
///     while let Some(completion) = completions.poll(&mut table.router(&mut [])) {
///         completion?;
///         count += 1;
///     }
///     Ok(count)
/// }
/// ```
pub struct QpTable<'m, Q> {
    slots: Room<'m, TableSlot<Q>>,
    /// The number of queue pairs. They fill the first slots.
    count: u32,
}

/// A place for one queue pair of a [`QpTable`], in memory that the caller provides.
///
/// ```
/// use mlx5_mkey::queue::{QpTable, SendQueue, TableSlot, UarDoorbell};
/// let mut slots = [const { TableSlot::EMPTY }; 64];
/// let table: QpTable<'_, SendQueue<'_, UarDoorbell>> = QpTable::new(&mut slots);
/// assert_eq!(table.next_user_index(), 0);
/// ```
pub struct TableSlot<Q> {
    queues: Option<Q>,
    /// The number of the queue pair, or [`NO_QPN`]. `queues` may return another one later.
    qpn: Qpn,
    /// The table is a hash table. `first` is the position of the first queue pair of the chain that begins at
    /// this slot, or [`NONE`]. For the number of each queue pair of the chain, [`head`] returns this slot.
    first: u32,
    /// The position of the next queue pair of the chain to which the queue pair of this slot belongs, or
    /// [`NONE`].
    next: u32,
}

/// The link that ends a chain.
const NONE: u32 = u32::MAX;

/// The number in a slot without a queue pair. No queue pair has this number, which addresses multicasts.
const NO_QPN: Qpn = Qpn::from_low_bits(0x00ff_ffff);

impl<Q> TableSlot<Q> {
    /// A slot without a queue pair.
    pub const EMPTY: Self = Self { queues: None, qpn: NO_QPN, first: NONE, next: NONE };
}

impl<'m, Q: QpQueues> QpTable<'m, Q> {
    /// Makes a table without queue pairs, with room for one in each slot. Queue pairs that the slots still
    /// hold from an earlier use are dropped.
    pub fn new(slots: impl Into<Room<'m, TableSlot<Q>>>) -> Self {
        let mut slots = slots.into();
        slots.as_mut().iter_mut().for_each(|slot| *slot = TableSlot::EMPTY);
        Self { slots, count: 0 }
    }

    /// Makes a table on the heap, without queue pairs, and with room for this many.
    #[cfg(feature = "alloc")]
    pub fn on_heap(capacity: usize) -> Self {
        let slots: alloc::vec::Vec<_> = (0..capacity).map(|_| TableSlot::EMPTY).collect();
        Self { slots: slots.into(), count: 0 }
    }

    /// Returns the position that [`QpTable::insert`] gives the next queue pair. Create the queue pair with
    /// this number as user index, so that its completions find it at once.
    pub const fn next_user_index(&self) -> u32 {
        self.count
    }

    /// Adds a queue pair.
    ///
    /// # Errors
    /// The queue pair, if the table is full ([`QueueError::TableFull`]) or already has a queue pair of this
    /// number ([`QueueError::QpnInUse`]).
    pub fn insert(&mut self, queues: Q) -> Result<(), (QueueError, Q)> {
        let (qpn, position) = (queues.qpn(), self.count);
        if self.position(qpn).is_some() {
            return Err((QueueError::QpnInUse { qpn }, queues));
        }
        let capacity = self.slots.as_ref().len();
        let Some(slot) = self.slots.as_mut().get_mut(position as usize) else {
            return Err((QueueError::TableFull { capacity }, queues));
        };
        (slot.queues, slot.qpn, slot.next) = (Some(queues), qpn, NONE);
        if let Some(end) = self.link(qpn, NONE) {
            *end = position;
        }
        self.count += 1;
        Ok(())
    }

    /// Removes a queue pair and returns it. Completions of the removed queue pair that arrive later are
    /// refused. The last queue pair of the table moves to the free position, and is found by its number from
    /// now on.
    pub fn remove(&mut self, qpn: Qpn) -> Option<Q> {
        let position = self.position(qpn)?;
        let removed = self.slots.as_mut().get_mut(position as usize)?;
        let (queues, next) = (removed.queues.take(), removed.next);
        removed.qpn = NO_QPN;
        *self.link(qpn, position)? = next;
        self.count -= 1;
        if position != self.count {
            let last = self.slots.as_mut().get_mut(self.count as usize)?;
            let qpn = core::mem::replace(&mut last.qpn, NO_QPN);
            let (queues, next) = (last.queues.take(), last.next);
            *self.link(qpn, self.count)? = position;
            let slot = self.slots.as_mut().get_mut(position as usize)?;
            (slot.queues, slot.qpn, slot.next) = (queues, qpn, next);
        }
        queues
    }

    /// Returns the queue pair with this number, for posting.
    pub fn get_mut(&mut self, qpn: Qpn) -> Option<&mut Q> {
        let position = self.position(qpn)?;
        self.slots.as_mut().get_mut(position as usize)?.queues.as_mut()
    }

    /// Returns all queue pairs.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut Q> {
        self.slots.as_mut().iter_mut().filter_map(|slot| slot.queues.as_mut())
    }

    /// Returns a router for [`super::CompletionQueue::poll`], with these queue pairs, and with the mkeys
    /// whose signature errors arrive at the completion queue. The mkeys are searched only when a signature
    /// error arrives.
    #[inline]
    pub const fn router<'t>(&'t mut self, mkeys: &'t mut [Mkey]) -> QpTableRouter<'t, 'm, Q> {
        QpTableRouter { table: self, mkeys }
    }

    /// Finds a queue pair: at the position that the entry names, or by its number.
    #[inline]
    fn find(&mut self, CqeOrigin { qpn, user_index }: CqeOrigin) -> Option<&mut Q> {
        let at = user_index as usize;
        if self.slots.as_ref().get(at).is_none_or(|slot| slot.qpn != qpn) {
            return self.get_mut(qpn);
        }
        self.slots.as_mut().get_mut(at)?.queues.as_mut()
    }

    /// Returns the position of the queue pair with this number.
    #[inline]
    fn position(&self, qpn: Qpn) -> Option<u32> {
        let slots = self.slots.as_ref();
        let mut position = slots.get(head(qpn, slots.len()))?.first;
        loop {
            let slot = slots.get(position as usize)?;
            if slot.qpn == qpn {
                return Some(position);
            }
            position = slot.next;
        }
    }

    /// Returns the link (`first` or `next` of a slot) that holds this position, in the chain of a queue
    /// pair's number. For the position [`NONE`], returns the last link of the chain.
    fn link(&mut self, qpn: Qpn, position: u32) -> Option<&mut u32> {
        let slots = self.slots.as_mut();
        let head = head(qpn, slots.len());
        let mut at = slots.get(head)?.first;
        if at == position {
            return slots.get_mut(head).map(|slot| &mut slot.first);
        }
        loop {
            let next = slots.get(at as usize)?.next;
            if next == position {
                return slots.get_mut(at as usize).map(|slot| &mut slot.next);
            }
            at = next;
        }
    }
}

/// Returns the slot where the chain of this number begins, in a table of `slots` slots.
#[inline]
const fn head(qpn: Qpn, slots: usize) -> usize {
    // The numbers of a device's queue pairs often follow one another. A multiplication by the golden ratio
    // spreads them over the slots.
    let spread = qpn.get().wrapping_mul(0x9e37_79b1);
    ((spread as u64 * slots as u64) >> 32) as usize
}

/// Routes the completions of the queue pairs of a [`QpTable`].
pub struct QpTableRouter<'t, 'm, Q> {
    table: &'t mut QpTable<'m, Q>,
    /// The mkeys whose signature errors arrive at the completion queue.
    pub mkeys: &'t mut [Mkey],
}

impl<Q: QpQueues> CompletionRouter for QpTableRouter<'_, '_, Q> {
    type Queues = Q;

    #[inline]
    fn queues(&mut self, origin: CqeOrigin) -> Option<&mut Q> {
        self.table.find(origin)
    }

    fn signature_error(&mut self, fault: &SignatureFault) -> Option<usize> {
        record(self.mkeys, fault)
    }
}

crate::fmt::format_counters!([Q] TableSlot [Q] { qpn });
crate::fmt::format_counters!(['m, Q] QpTable ['m, Q] { count });
crate::fmt::format_counters!(['t, 'm, Q] QpTableRouter ['t, 'm, Q] { table });

#[cfg(test)]
mod tests {
    use super::*;
    use crate::queue::{CompletedReceive, CompletedSend, Retired};
    use std::vec::Vec;

    /// A queue pair that only has a number.
    struct Numbered(Qpn);

    impl QpQueues for Numbered {
        fn qpn(&self) -> Qpn {
            self.0
        }

        fn retire_send(&mut self, _: CompletedSend<'_>) -> Option<Retired> {
            None
        }

        fn retire_receive(&mut self, _: CompletedReceive<'_>) -> Option<u64> {
            None
        }
    }

    #[test]
    fn queue_pairs_come_and_go() {
        // Tables of any size, also full ones, with numbers that follow one another and numbers that do not.
        // `list` has the expected queue pairs of the table, in their order.
        for (capacity, factor) in [(0, 1), (1, 1), (3, 0x10_0001), (8, 1), (13, 0x5_1235)] {
            let mut slots: Vec<_> = (0..capacity).map(|_| TableSlot::EMPTY).collect();
            let mut table = QpTable::new(&mut slots[..]);
            let (mut list, mut dice) = (Vec::new(), 1_u32);
            for _ in 0..5_000 {
                dice = dice.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                let qpn = Qpn::from_low_bits((dice >> 8) % 32 * factor);
                let at = list.iter().position(|known| *known == qpn);
                if dice >> 31 == 0 {
                    let refused = table.insert(Numbered(qpn)).map_err(|(error, _)| error);
                    let expected = match at {
                        Some(_) => Err(QueueError::QpnInUse { qpn }),
                        None if list.len() == capacity => Err(QueueError::TableFull { capacity }),
                        None => {
                            list.push(qpn);
                            Ok(())
                        }
                    };
                    assert_eq!(refused, expected);
                } else {
                    let removed = at.map(|at| list.swap_remove(at));
                    assert_eq!(table.remove(qpn).map(|queues| queues.0), removed);
                }
                assert!(table.iter_mut().map(|queues| queues.0).eq(list.iter().copied()));
                assert_eq!(table.next_user_index() as usize, list.len());
                for qpn in (0..32).map(|number| Qpn::from_low_bits(number * factor)) {
                    let known = list.contains(&qpn).then_some(qpn);
                    let user_index = dice >> 4 & 15;
                    assert_eq!(table.find(CqeOrigin { qpn, user_index }).map(|queues| queues.0), known);
                    assert_eq!(table.get_mut(qpn).map(|queues| queues.0), known);
                }
            }
        }
    }
}
