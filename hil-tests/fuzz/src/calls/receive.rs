//! The receive queue and its model, a list of the posted requests.

use crate::input::Input;
use crate::memory::Shared;
use crate::values;
use hil_tests::model::retire_receive;
use mlx5_mkey::error::PostError;
use mlx5_mkey::queue::{DoorbellRecord, ReceiveQueue, ReceiveQueueConfig};
use mlx5_mkey::types::Qpn;
use mlx5_mkey::wire::data::DataSegment;
use std::collections::VecDeque;

/// The number of the queue pair whose queues a sequence of calls uses.
pub(super) const QPN: Qpn = Qpn::from_low_bits(0x00ab_cdef);

/// The ring and the doorbell record of the receive queue.
pub(super) struct Memory {
    ring: Shared<DataSegment>,
    ids: Shared<u64>,
    record: DoorbellRecord,
    entries_per_slot: u32,
    first: u16,
}

impl Memory {
    pub(super) fn new(input: &mut Input<'_>) -> Self {
        let (entries_per_slot, slots) = (1 << input.below(3), 1 << input.below(5));
        let ring = Shared::new(vec![DataSegment::default(); slots * entries_per_slot as usize]);
        let first = input.pick(&[0, 1, 0xfff8, 0xffff]);
        let ids = Shared::new(vec![0; slots]);
        Self { ring, ids, record: DoorbellRecord::new(), entries_per_slot, first }
    }
}

/// The receive queue and its model.
pub(super) struct Receives<'m> {
    pub(super) queue: ReceiveQueue<'m>,
    memory: &'m Memory,
    slots: usize,
    /// Number and id (`wr_id`) of each posted request, oldest first.
    posted: VecDeque<(u64, u64)>,
    next: u64,
    published: u64,
    next_id: u64,
}

impl<'m> Receives<'m> {
    pub(super) fn new(memory: &'m Memory) -> Self {
        let config = ReceiveQueueConfig { qpn: QPN, entries_per_slot: memory.entries_per_slot };
        let ring = memory.ring.slots();
        let slots = ring.len() / memory.entries_per_slot as usize;
        let queue =
            ReceiveQueue::new(config, ring, memory.ids.slots(), &memory.record).expect("powers of two");
        let first = u64::from(memory.first);
        let queue = queue.starting_at(memory.first);
        Self {
            queue,
            memory,
            slots,
            posted: VecDeque::new(),
            next: first,
            published: first,
            next_id: 1 << 40,
        }
    }

    pub(super) fn step(&mut self, input: &mut Input<'_>) {
        match input.below(8) {
            0..4 => self.post(input),
            4 | 5 => {
                self.queue.publish();
                self.published = self.next;
                let [record, _] = self.memory.record.bytes();
                assert_eq!(record, u32::from(self.next as u16).to_be_bytes());
            }
            6 => {
                let counter = self.counter(input);
                assert_eq!(retire_receive(&mut self.queue, counter), self.retire(counter));
            }
            _ => {
                let mut lost = Vec::new();
                self.queue.restart(|id| lost.push(id));
                assert!(lost.into_iter().eq(self.posted.drain(..).map(|(_, id)| id)));
                (self.next, self.published) = (0, 0);
                assert_eq!(self.memory.record.bytes()[0], [0; 4]);
            }
        }
        assert_eq!(self.queue.free_slots() as usize, self.slots - self.posted.len());
    }

    /// Chooses the request number in a completion entry (`wqe_counter`), mostly of a posted request.
    pub(super) fn counter(&self, input: &mut Input<'_>) -> u16 {
        let oldest = self.posted.front().map_or(self.next, |(number, _)| *number) as u16;
        if input.one_in(4) { input.any() } else { oldest.wrapping_add(input.below(6) as u16) }
    }

    fn post(&mut self, input: &mut Input<'_>) {
        let sges = values::sges(input);
        let max = self.memory.entries_per_slot as usize;
        let wrong = (0..).zip(&sges).find_map(|(index, sge)| match sge.length {
            0 => Some(PostError::SgeEmpty { index }),
            0x8000_0000.. => Some(PostError::SgeTooLong { index, mebibytes: (sge.length >> 20) as u16 }),
            _ => None,
        });
        let expected = match wrong {
            _ if sges.len() > max => Err(PostError::TooManySges { sges: sges.len() as u16, max: max as u16 }),
            Some(error) => Err(error),
            None if self.posted.len() == self.slots => {
                Err(PostError::ReceiveRingFull { slots: self.slots as u16 })
            }
            None => Ok(()),
        };
        self.next_id += 1;
        assert_eq!(self.queue.post(self.next_id, &sges), expected);
        if expected.is_err() {
            return;
        }
        let slot = self.next as usize % self.slots * max;
        for (at, sge) in sges.iter().enumerate() {
            let DataSegment { byte_count, lkey, address } = self.memory.ring.read(slot + at);
            assert_eq!(
                (byte_count.get(), lkey.get(), address.get()),
                (sge.length, sge.lkey.get(), sge.address)
            );
        }
        if sges.len() < max {
            assert_eq!(self.memory.ring.read(slot + sges.len()), DataSegment::END_OF_LIST);
        }
        self.posted.push_back((self.next, self.next_id));
        self.next += 1;
    }

    /// Retires a request and all earlier ones.
    pub(super) fn retire(&mut self, counter: u16) -> Option<u64> {
        let names = |(number, _): &(u64, u64)| *number as u16 == counter && *number < self.published;
        let at = self.posted.iter().position(names)?;
        self.posted.drain(..=at).next_back().map(|(_, id)| id)
    }
}
