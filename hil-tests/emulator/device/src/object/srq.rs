//! Shared receive queues: receives for any number of queue pairs (PRM `rmpc`, `wq`).

/// In which order slots are taken (PRM `wq_type`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Topology {
    /// Each slot leads to the next one; completions name the slot.
    LinkedList,
    /// One after the other; completions count them, modulo 2^16.
    Cyclic,
}

/// What a shared receive queue is created with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SrqAttributes {
    /// Protection domain, of the buffers too.
    pub pd: u32,
    /// The order of the slots, from the first of them on.
    pub topology: Topology,
    /// Address of the slots.
    pub ring: u64,
    /// Logarithm of their number, 0 to 16.
    pub log_slots: u8,
    /// Size of a slot in bytes: a power of two from 32 to 1024. Its first 16 bytes lead to the next one of a
    /// linked list, and say nothing in a cyclic queue.
    pub stride: u16,
    /// Address of the doorbell record, a big-endian u32: count of receives that were posted, modulo 2^16.
    pub doorbell_record: u64,
}

#[derive(Clone, Debug)]
pub(crate) struct Srq {
    pub(crate) attributes: SrqAttributes,
    /// The slot of a linked list that is taken next.
    pub(crate) head: u16,
    /// Count of receives that were taken, modulo 2^16.
    pub(crate) taken: u16,
    /// With fewer receives than this an event is due; 0 for none.
    pub(crate) limit: u16,
    /// The list leads nowhere; nothing is taken any more.
    pub(crate) failed: bool,
}

impl Srq {
    pub(crate) const fn new(attributes: SrqAttributes) -> Self {
        Self { attributes, head: 0, taken: 0, limit: 0, failed: false }
    }

    /// Returns the slot that is taken next, and what its completion calls it.
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

    /// Whether a slot has this number.
    pub(crate) fn has(&self, slot: u16) -> bool {
        slot <= self.last()
    }
}
