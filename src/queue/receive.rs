//! The receive queue: posts buffers for messages of the peer.

use super::completed::CompletedReceive;
use super::doorbell::DoorbellRecord;
use super::ring::Ring;
use super::{MAX_SLOTS, barrier};
use crate::types::Qpn;
use crate::types::QueueError;
use crate::wire::data::DataSegment;
use crate::wqe::Sge;
use crate::wqe::error::PostError;

/// The most entries of a slot, the place of one receive request. An entry has 16 bytes, and a request at
/// most 2048 (PRM `log_rq_stride`).
const MAX_ENTRIES_PER_SLOT: usize = 128;

/// The name of a receive queue's size in errors.
const SLOTS: &str = "slots of a receive queue";

/// Properties of a queue pair that its receive queue needs.
///
/// ```
/// use mlx5_mkey::queue::ReceiveQueueConfig;
/// use mlx5_mkey::types::Qpn;
/// // Each message goes into up to 4 buffers: slots of 64 bytes.
/// let config = ReceiveQueueConfig { qpn: Qpn::new(0x77)?, entries_per_slot: 4 };
/// # Ok::<(), mlx5_mkey::types::OutOfRange>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct ReceiveQueueConfig {
    /// Number of the queue pair.
    pub qpn: Qpn,
    /// Number of entries of 16 bytes in a slot, the place of one request in the ring: a power of two (PRM
    /// `log_rq_stride`). Each buffer of a request takes one entry.
    pub entries_per_slot: u32,
}

/// A receive queue over the caller's ring. The caller also lends a place for the name (`wr_id`) of each
/// slot's request. The size of the ring is known at run time.
///
/// ```
/// use mlx5_mkey::queue::{DoorbellRecord, ReceiveQueue, ReceiveQueueConfig};
/// use mlx5_mkey::types::{Key, Qpn};
/// use mlx5_mkey::wire::data::DataSegment;
/// use mlx5_mkey::wqe::Sge;
/// let (mut ring, mut ids) = ([DataSegment::default(); 128], [0; 64]);
/// let record = DoorbellRecord::new();
/// let config = ReceiveQueueConfig { qpn: Qpn::new(0x77)?, entries_per_slot: 2 };
/// let mut queue = ReceiveQueue::new(config, &mut ring, &mut ids, &record)?;
/// queue.post(1, &[Sge { address: 0x1_0000, length: 512, lkey: Key::from_raw(0x5600) }])?;
/// queue.publish();
/// assert_eq!(queue.free_slots(), 63);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct ReceiveQueue<'r> {
    ring: Ring<'r, DataSegment>,
    record: &'r DoorbellRecord,
    /// The user's names of the requests (`wr_id`), each at the index of its request's slot.
    ids: Ring<'r, u64>,
    qpn: Qpn,
    entries_per_slot: u32,
    /// Numbers of the next slot to post, to publish and to retire, and the number at which the ring is full.
    /// All are counted from the queue pair's start.
    producer: u64,
    published: u64,
    consumer: u64,
    limit: u64,
}

impl<'r> ReceiveQueue<'r> {
    /// Makes a receive queue over `ring`, with which the queue pair was or will be created.
    ///
    /// # Errors
    /// [`QueueError::Size`] unless entries per slot and slots are powers of two, with at most 128 entries per
    /// slot, and at most 32768 slots; [`QueueError::TooFewSlots`] if `ids` has fewer places than the ring has
    /// slots.
    pub fn new(
        config: ReceiveQueueConfig,
        ring: &'r mut [DataSegment],
        ids: &'r mut [u64],
        record: &'r DoorbellRecord,
    ) -> Result<Self, QueueError> {
        let ReceiveQueueConfig { qpn, entries_per_slot } = config;
        let entries = ring.len();
        let stride = entries_per_slot as usize;
        let most = MAX_ENTRIES_PER_SLOT.min(entries);
        if !entries_per_slot.is_power_of_two() || stride > most {
            return Err(QueueError::Size { what: "entries of a receive slot", entries: stride, max: most });
        }
        let slots = entries / stride;
        if slots > MAX_SLOTS {
            return Err(QueueError::Size { what: SLOTS, entries: slots, max: MAX_SLOTS });
        }
        let few =
            QueueError::TooFewSlots { what: "names of receive requests", needed: slots, slots: ids.len() };
        let ids = Ring::new(ids.get_mut(..slots).ok_or(few)?, SLOTS, MAX_SLOTS)?;
        let (ring, limit) = (Ring::new(ring, SLOTS, entries)?, slots as u64);
        let (producer, published, consumer) = (0, 0, 0);
        Ok(Self { ring, record, ids, qpn, entries_per_slot, producer, published, consumer, limit })
    }

    /// Continues where other code has stopped posting. No request of that code may be outstanding.
    /// `first_slot` is the number of the next slot: the receive counter of the doorbell record, 16 bits.
    #[must_use]
    pub const fn starting_at(mut self, first_slot: u16) -> Self {
        self.empty_at(first_slot as u64);
        self
    }

    /// Empties the queue. The next request goes into the slot with number `first`.
    const fn empty_at(&mut self, first: u64) {
        let slots = self.limit - self.consumer;
        (self.producer, self.published, self.consumer, self.limit) = (first, first, first, first + slots);
    }

    /// Returns the number of the queue pair.
    pub const fn qpn(&self) -> Qpn {
        self.qpn
    }

    /// Returns how many slots are free. Each receive request takes one slot.
    pub const fn free_slots(&self) -> u32 {
        (self.limit - self.producer) as u32
    }

    /// Posts buffers for one message. The completion will carry `id`. A buffer under key 0x100, which no
    /// device gives out, would end the list ([`DataSegment::END_OF_LIST_KEY`]).
    ///
    /// # Errors
    /// [`PostError::TooManySges`] for more buffers than a slot has entries, [`PostError::SgeEmpty`],
    /// [`PostError::SgeTooLong`], [`PostError::ReceiveRingFull`].
    #[inline]
    pub fn post(&mut self, id: u64, sges: &[Sge]) -> Result<(), PostError> {
        let max = self.entries_per_slot as usize;
        if sges.len() > max {
            return Err(PostError::TooManySges { sges: sges.len().min(0xffff) as u16, max: max as u16 });
        }
        if self.producer == self.limit {
            // A request that can never be posted gets its own error, even if the ring is full.
            for (at, sge) in sges.iter().enumerate() {
                sge.check_length(at)?;
            }
            return Err(PostError::ReceiveRingFull { slots: (self.limit - self.consumer) as u16 });
        }
        let mut index = self.producer * u64::from(self.entries_per_slot);
        for (at, sge) in sges.iter().enumerate() {
            sge.check_length(at)?;
            self.ring.write(index, sge.to_wire());
            index += 1;
        }
        if sges.len() < max {
            self.ring.write(index, DataSegment::END_OF_LIST);
        }
        self.ids.write(self.producer, id);
        self.producer += 1;
        Ok(())
    }

    /// Publishes all requests posted since the last call. The device reads the record; a receive queue has no
    /// doorbell.
    #[inline]
    pub fn publish(&mut self) {
        self.published = self.producer;
        barrier::blocks_before_record();
        self.record.set_receive(self.producer as u16);
    }

    /// Retires the request that a completion names by its number modulo 2^16, and all requests before it.
    /// Returns the user's name of the request (`wr_id`).
    ///
    /// Returns `None` and changes nothing if no published and outstanding request has that number, or if the
    /// completion is of another queue pair.
    #[inline]
    pub fn retire(&mut self, done: CompletedReceive<'_>) -> Option<u64> {
        if done.qpn() != self.qpn {
            return None;
        }
        let counter = done.counter();
        let number = self.consumer + u64::from(counter.wrapping_sub(self.consumer as u16));
        if number >= self.published {
            return None;
        }
        let id = self.ids.read(number);
        let slots = self.limit - self.consumer;
        self.consumer = number + 1;
        self.limit = self.consumer + slots;
        Some(id)
    }

    /// Passes the name of each outstanding request to `each`, oldest first.
    pub(crate) fn each_outstanding(&self, mut each: impl FnMut(u64)) {
        for number in self.consumer..self.producer {
            each(self.ids.read(number));
        }
    }

    /// Starts again with an empty ring, and passes the name of each outstanding request to `each`, oldest
    /// first. Call this only for a queue pair that was reset (2RST_QP), before it is made ready again.
    pub fn restart(&mut self, each: impl FnMut(u64)) {
        self.each_outstanding(each);
        self.empty_at(0);
        self.record.set_receive(0);
    }
}

crate::fmt::format_counters!(
    ['r] ReceiveQueue ['r] { qpn, producer, published, consumer }
);

#[cfg(test)]
mod tests;
