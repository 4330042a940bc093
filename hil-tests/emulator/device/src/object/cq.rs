//! Completion queues: a ring that the device fills and the host empties (PRM `cqc`).

/// The attributes of a new completion queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CqAttributes {
    /// Address of the ring.
    pub ring: u64,
    /// Logarithm of the number of entries, 0 to 22.
    pub log_entries: u8,
    /// Size of an entry in bytes, 64 or 128. In an entry of 128 bytes, the completion is in the second half.
    pub entry_bytes: u8,
    /// Address of the doorbell record: big-endian u32 consumer index, then the arm word.
    pub doorbell_record: u64,
    /// Whether the device overwrites entries that the host has not taken (PRM `oi`).
    pub ignore_overrun: bool,
}

#[derive(Clone, Debug)]
pub(crate) struct Cq {
    pub(crate) attributes: CqAttributes,
    /// Whether each entry is written over the first entry (PRM `cc`).
    pub(crate) collapsed: bool,
    /// Count of entries written, without wrap at the ring's size.
    pub(crate) producer: u32,
    /// Count of entries that the host has taken, when its doorbell record was last read.
    pub(crate) consumer: u32,
    /// Count of entries up to the last solicited or error entry.
    pub(crate) solicited: u32,
    /// Whether the queue counts as full, independent of the consumer index ([`crate::Device::fill`]).
    pub(crate) full: bool,
    /// Whether the queue has overrun. The device then writes no more entries.
    pub(crate) overrun: bool,
}

impl Cq {
    pub(crate) const fn new(attributes: CqAttributes) -> Self {
        Self {
            attributes,
            collapsed: false,
            producer: 0,
            consumer: 0,
            solicited: 0,
            full: false,
            overrun: false,
        }
    }

    pub(crate) const fn entries(&self) -> u32 {
        1 << self.attributes.log_entries
    }
}
