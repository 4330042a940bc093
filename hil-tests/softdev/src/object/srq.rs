//! Shared receive queues: a list of receives for any number of queue pairs (PRM `rmpc`, `wq` of type linked list).

/// What a shared receive queue is created with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SrqAttributes {
    /// Protection domain, of the buffers too.
    pub pd: u32,
    /// Address of the slots. The list begins with the first of them.
    pub ring: u64,
    /// Logarithm of their number, 0 to 16.
    pub log_slots: u8,
    /// Size of a slot in bytes: a power of two from 32 to 1024. Its first 16 bytes lead to the next one.
    pub stride: u16,
    /// Address of the doorbell record, a big-endian u32: count of receives that were posted, modulo 2^16.
    pub doorbell_record: u64,
}

#[derive(Clone, Debug)]
pub(crate) struct Srq {
    pub(crate) attributes: SrqAttributes,
    /// The slot that is taken next.
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

    /// Whether a slot has this number.
    pub(crate) fn has(&self, slot: u16) -> bool {
        u32::from(slot) < 1 << self.attributes.log_slots
    }
}
