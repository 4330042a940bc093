//! Converts the faults of a plan into decisions that the software device asks for: whether a completion entry
//! is lost, repeated, delayed or preceded by an invalid entry, and whether a request fails or waits.

use crate::plan::Visit;
use mlx5_faults::{Fault, Place};
use mlx5_mkey::wire::cqe::Syndrome;
use mlx5_softdev::{Passage, Ruling};

/// Offsets in a CQE: the first byte of the request's counter, the first byte of the queue pair number, the
/// opcode.
const COUNTER: usize = 60;
const QPN: usize = 57;
const OPCODE: usize = 63;

/// Returns the visit that happens when the device writes this completion entry.
pub fn visit(entry: &[u8; 64]) -> Visit {
    let queue_pair = entry.get(QPN..QPN + 3).into_iter().flatten();
    let queue_pair = queue_pair.fold(0, |number, byte| number << 8 | u32::from(*byte));
    if is_of_mkey(entry) { Visit::to(Place::Signature) } else { Visit::of(Place::Completion, queue_pair) }
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

/// Returns whether a completion entry reports a signature error, which concerns an mkey instead of a request.
fn is_of_mkey(entry: &[u8; 64]) -> bool {
    const SIGNATURE_ERROR: u8 = 12;
    entry.get(OPCODE).is_some_and(|byte| byte >> 4 == SIGNATURE_ERROR)
}

/// Makes an entry invalid. `way` selects the change: 0 a queue pair that does not exist, 1 a request that is
/// not outstanding, 2 an opcode that no completion has. A signature error always gets the invalid opcode,
/// because it names neither a queue pair nor a request.
fn stranger(mut entry: [u8; 64], way: u64) -> [u8; 64] {
    let is_of_mkey = is_of_mkey(&entry);
    let (at, bits) = match way {
        0 if !is_of_mkey => (QPN, 0x80),
        1 if !is_of_mkey => (COUNTER, 0x80),
        _ => (OPCODE, 0),
    };
    if let Some(byte) = entry.get_mut(at) {
        *byte = if bits == 0 { 0x50 } else { *byte ^ bits };
    }
    entry
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stranger_comes_before_the_entry() {
        let mut entry = [7; 64];
        entry[OPCODE] = 0;
        assert_eq!(visit(&entry), Visit::of(Place::Completion, 0x07_0707));
        let mut other = entry;
        other[QPN] = 0x87;
        assert_eq!(passage(Some(Fault::Stranger), &entry, |_| 0), Passage::Behind(other));
        entry[OPCODE] = 12 << 4;
        assert_eq!(visit(&entry), Visit::to(Place::Signature));
        // The entry of a signature error names no queue pair, so only its opcode changes.
        let mut other = entry;
        other[OPCODE] = 0x50;
        assert_eq!(passage(Some(Fault::Stranger), &entry, |_| 0), Passage::Behind(other));
        assert_eq!(passage(None, &entry, |_| 0), Passage::Once);
    }
}
