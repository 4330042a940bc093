//! Converts the faults of a plan into decisions that the software device asks for: whether a completion entry
//! is lost, repeated, delayed or preceded by an invalid entry, and whether a request fails or waits.

use crate::plan::Visit;
use mlx5_faults::{Fault, Place};
use mlx5_mkey::wire::cqe::{Cqe, CqeOpcode, Syndrome};
use mlx5_softdev::{Passage, Ruling};
use zerocopy::transmute;

/// Returns the visit that happens when the device writes this completion entry.
pub fn visit(entry: &[u8; 64]) -> Visit {
    let entry: Cqe = transmute!(*entry);
    match entry.opcode() {
        CqeOpcode::SIGNATURE_ERROR => Visit::to(Place::Signature),
        _ => Visit::of(Place::Completion, entry.opcode_qpn().qpn()),
    }
}

/// Returns how the device writes a completion entry with this fault: once, twice, later, never, after a wrong
/// entry, or with an overrun. `below` returns a number below its argument. The number selects one of the
/// three kinds of wrong entries.
pub fn passage(fault: Option<Fault>, entry: &[u8; 64], below: impl FnOnce(u64) -> u64) -> Passage {
    match fault {
        None => Passage::Once,
        Some(Fault::Twice) => Passage::Twice,
        Some(Fault::Dropped) => Passage::Never,
        Some(Fault::Stranger) => Passage::Behind(stranger(*entry, below(3))),
        Some(Fault::Overrun) => Passage::Overrun,
        Some(_) => Passage::Later,
    }
}

/// Returns how the device treats a send or receive request with this fault. The device counts delays in ticks
/// of 1 ns.
pub fn ruling(fault: Option<Fault>) -> Ruling {
    const TICKS: u64 = 1000;
    match fault {
        Some(Fault::Completes(status)) => Ruling::Fails(Syndrome(status.syndrome())),
        Some(Fault::Lost) => Ruling::Lost,
        Some(Fault::NotReady(attempts)) => Ruling::NotReady(attempts.get()),
        Some(Fault::Delayed(microseconds)) => Ruling::After(microseconds.saturating_mul(TICKS)),
        Some(Fault::Hangs) => Ruling::Hangs,
        _ => Ruling::Good,
    }
}

/// Makes an entry invalid. `way` selects the change: 0 a queue pair that does not exist, 1 a request that is
/// not outstanding, 2 an opcode that no completion has. A signature error always gets the invalid opcode,
/// because it names neither a queue pair nor a request.
fn stranger(entry: [u8; 64], way: u64) -> [u8; 64] {
    let mut entry: Cqe = transmute!(entry);
    match (entry.opcode(), way) {
        (CqeOpcode::SIGNATURE_ERROR, _) | (_, 2..) => entry.op_own = 0x50,
        (_, 1) => entry.wqe_counter.set(entry.wqe_counter.get() ^ 0x8000),
        (_, 0) => entry.sop_qpn.set(entry.sop_qpn.get() ^ 0x0080_0000),
    }
    transmute!(entry)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stranger_comes_before_the_entry() {
        // The last eight bytes of an entry: a byte, queue pair number (3), counter (2), a byte, opcode.
        let mut entry = [7; 64];
        entry[63] = 0;
        assert_eq!(visit(&entry), Visit::of(Place::Completion, 0x07_0707));
        let mut other = entry;
        other[57] = 0x87;
        assert_eq!(passage(Some(Fault::Stranger), &entry, |_| 0), Passage::Behind(other));
        entry[63] = 12 << 4;
        assert_eq!(visit(&entry), Visit::to(Place::Signature));
        // The entry of a signature error names no queue pair, so only its opcode changes.
        let mut other = entry;
        other[63] = 0x50;
        assert_eq!(passage(Some(Fault::Stranger), &entry, |_| 0), Passage::Behind(other));
        assert_eq!(passage(None, &entry, |_| 0), Passage::Once);
    }
}
