//! Compares the block number and the queue pair of each request in a ring with the numbers of the request
//! before it.

use crate::wire::ctrl::{ControlSegment, Opcode};

/// The result of comparing a request with the earlier requests of the ring, and with the bytes of the ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub(super) struct Place {
    /// The expected block number, if the request has another one.
    pub(super) index: Option<u16>,
    /// Whether the block numbers are those of another lap of the ring, from this request on.
    pub(super) other_lap: bool,
    /// The queue pair of the earlier requests, if the request has another one.
    pub(super) queue_pair: Option<u32>,
    /// Whether all bytes of the block are 0: no request was ever written to the block.
    pub(super) unwritten: bool,
    /// Whether the bytes of the ring end before the end of the request.
    pub(super) cut: bool,
}

/// The state of the comparison after the requests so far.
#[derive(Clone, Debug)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub(super) struct Sequence {
    /// Number of blocks of the ring, if the given bytes are a whole ring.
    ring: usize,
    /// The block number that a request in the first block would have, and the queue pair, both according to
    /// the last request.
    before: Option<(u16, u32)>,
}

impl Sequence {
    pub(super) const fn new(ring: usize) -> Self {
        Self { ring, before: None }
    }

    /// Compares the request in a block with the earlier requests, and stores its numbers for the next one.
    ///
    /// NOPs are not compared: blocks of zeros, which were never written, read as NOPs, and drivers that fill
    /// up a queue with NOPs write only opcode and size.
    pub(super) fn next(&mut self, block: usize, control: &ControlSegment) -> Place {
        if Opcode(control.opcode_word().opcode()) == Opcode::NOP {
            return Place::default();
        }
        // Block numbers count modulo 2^16.
        let index = control.opcode_word().wqe_index();
        let (base, qpn) = (index.wrapping_sub(block as u16), control.qpn_ds_word().qpn());
        let Some((base_before, qpn_before)) = self.before.replace((base, qpn)) else {
            return Place::default();
        };
        let queue_pair = (qpn != qpn_before).then_some(qpn_before);
        if base == base_before || queue_pair.is_some() {
            return Place { queue_pair, ..Place::default() };
        }
        let laps = usize::from(base_before.wrapping_sub(base)).is_multiple_of(self.ring.max(1));
        let other_lap = self.ring.is_power_of_two() && self.ring > 1 && laps;
        let index = (!other_lap).then_some(base_before.wrapping_add(block as u16));
        Place { index, other_lap, ..Place::default() }
    }
}
