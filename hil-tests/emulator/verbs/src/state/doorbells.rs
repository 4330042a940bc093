//! Doorbell records, which are memory of the program. The device reads the records regularly, since the
//! program changes them without a call.

use crate::ground::process_memory::ProcessMemory;
use crate::state::events::Subject;
use mlx5_softdev::Memory as _;

/// A doorbell record that the device watches.
#[derive(Clone, Copy, Debug)]
struct Watched {
    queue: Subject,
    address: u64,
    last: [u8; 8],
}

/// The watched doorbell records, with the contents that were seen last.
#[derive(Debug, Default)]
pub(super) struct Doorbells(Vec<Watched>);

impl Doorbells {
    /// Replaces the watched records. The next [`Doorbells::look`] returns each of them as changed.
    pub(super) fn watch(&mut self, records: impl Iterator<Item = (Subject, u64)>) {
        self.0 = records.map(|(queue, address)| Watched { queue, address, last: [0xff; 8] }).collect();
    }

    /// Returns whether no record is watched.
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the records that have changed since the last call, each with its queue.
    pub(super) fn look(&mut self) -> Vec<(Subject, [u8; 8])> {
        let mut changed = Vec::new();
        for watched in &mut self.0 {
            let mut record = [0; 8];
            if ProcessMemory.read(watched.address, &mut record).is_ok() && record != watched.last {
                watched.last = record;
                changed.push((watched.queue, record));
            }
        }
        changed
    }
}
