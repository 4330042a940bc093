//! Shared receive queues: receive requests for any number of queue pairs (PRM `rmpc`, `wq`).

/// The order in which slots are taken (PRM `wq_type`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Topology {
    /// Each slot names the next slot. Completions name the slot.
    LinkedList,
    /// Slots are taken one after the other. Completions count the receive requests, modulo 2^16.
    Cyclic,
}

/// The attributes of a new shared receive queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SrqAttributes {
    /// Protection domain of the queue and of the buffers.
    pub pd: u32,
    /// The order of the slots. The first slot is taken first.
    pub topology: Topology,
    /// Address of the slots.
    pub ring: u64,
    /// Logarithm of the number of slots, 0 to 16.
    pub log_slots: u8,
    /// Size of a slot in bytes: a power of two from 32 to 1024. In a linked list, the first 16 bytes name the
    /// next slot. In a cyclic queue they are ignored.
    pub stride: u16,
    /// Address of the doorbell record: the count of posted receive requests, modulo 2^16, as a big-endian
    /// u32.
    pub doorbell_record: u64,
}

#[derive(Clone, Debug)]
pub(crate) struct Srq {
    pub(crate) attributes: SrqAttributes,
    /// The slot of a linked list that is taken next.
    pub(crate) head: u16,
    /// Count of receive requests that were taken, modulo 2^16.
    pub(crate) taken: u16,
    /// An event is raised when fewer receive requests than this limit are left. 0 means no limit.
    pub(crate) limit: u16,
    /// Whether a link of the list names a slot that does not exist. The device then takes no more receive
    /// requests.
    pub(crate) failed: bool,
}

impl Srq {
    pub(crate) const fn new(attributes: SrqAttributes) -> Self {
        Self { attributes, head: 0, taken: 0, limit: 0, failed: false }
    }

    /// Returns the next slot, and the number of the receive request in its completion.
    pub(crate) fn next(&self) -> (u16, u16) {
        match self.attributes.topology {
            Topology::LinkedList => (self.head, self.head),
            Topology::Cyclic => (self.taken & self.last(), self.taken),
        }
    }

    /// Returns the number of the last slot.
    fn last(&self) -> u16 {
        ((1_u32 << self.attributes.log_slots.min(16)) - 1) as u16
    }

    /// Returns whether a slot has this number.
    pub(crate) fn has(&self, slot: u16) -> bool {
        slot <= self.last()
    }
}
