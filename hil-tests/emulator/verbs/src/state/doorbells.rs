//! Doorbell records, which are memory of the program. The device reads the records regularly, since the
//! program changes them without a call.

use crate::ground::process_memory::ProcessMemory;
use crate::state::doorbell_page::DoorbellPage;
use crate::state::events::Subject;
use crate::state::object::Object;
use mlx5_softdev::Memory as _;
use std::sync::Arc;

/// A doorbell record that the device watches.
#[derive(Clone, Debug)]
struct Watched {
    queue: Subject,
    address: u64,
    last: [u8; 8],
    /// The page and the number of blocks of a queue pair without a doorbell record for requests.
    alone: Option<(Arc<DoorbellPage>, u32)>,
}

/// A doorbell record that has changed.
#[derive(Debug)]
pub(super) struct Rung {
    pub(super) queue: Subject,
    /// The low half of the record's second word: a queue pair's count of send blocks.
    pub(super) sent: u16,
    /// Whether the program has only posted receives: no other part of a queue pair's record has changed.
    pub(super) only_receives: bool,
}

/// The watched doorbell records, with the contents that were seen last.
#[derive(Debug, Default)]
pub(super) struct Doorbells(Vec<Watched>);

impl Doorbells {
    /// Replaces the watched records. The next [`Doorbells::look`] returns each of them as changed.
    pub(super) fn watch<'a>(&mut self, queues: impl Iterator<Item = &'a Object>) {
        let watched = queues.filter_map(|object| {
            let (address, alone) = match object {
                Object::Qp(qp) => (qp.record, qp.alone.clone().map(|page| (page, qp.blocks))),
                Object::Cq(cq) => (cq.record, None),
                _ => return None,
            };
            Some(Watched { queue: object.subject()?, address, last: [0xff; 8], alone })
        });
        self.0 = watched.collect();
    }

    /// Returns whether no record is watched.
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the records that have changed since the last call.
    pub(super) fn look(&mut self) -> Vec<Rung> {
        let mut changed = Vec::new();
        for watched in &mut self.0 {
            if let (Some((page, blocks)), Subject::Qp(number)) = (&watched.alone, watched.queue) {
                page.take(number, *blocks);
            }
            let mut record = [0; 8];
            if ProcessMemory.read(watched.address, &mut record).is_ok() && record != watched.last {
                let [.., high, low] = record;
                let only_receives =
                    matches!(watched.queue, Subject::Qp(_)) && record[4..] == watched.last[4..];
                watched.last = record;
                changed.push(Rung {
                    queue: watched.queue,
                    sent: u16::from_be_bytes([high, low]),
                    only_receives,
                });
            }
        }
        changed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn receives_are_told_from_requests() {
        let record = Box::leak(Box::new([0_u8; 8]));
        let address = record.as_ptr().expose_provenance() as u64;
        let watched = Watched { queue: Subject::Qp(1), address, last: [0xff; 8], alone: None };
        let mut doorbells = Doorbells(vec![watched]);
        let mut look = || doorbells.look().first().map(|rung| (rung.sent, rung.only_receives));
        assert_eq!(look(), Some((0, false)), "the first look finds all changed");
        assert_eq!(look(), None);
        ProcessMemory.write(address, &[0, 0, 0, 5]).unwrap();
        assert_eq!(look(), Some((0, true)));
        ProcessMemory.write(address + 4, &[0, 0, 3, 7]).unwrap();
        assert_eq!(look(), Some((0x307, false)));
    }
}
