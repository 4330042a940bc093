//! Tests that calls of a completion queue return even if a device never stops writing entries.

use super::*;
use crate::queue::ring::Line;
use core::sync::atomic::Ordering;

/// More entries than any call may take before it returns.
const TOO_MANY: u64 = 100;

/// A device that writes the next entry whenever one was taken.
struct Endless<'r> {
    ring: &'r [Line],
    taken: u64,
    kind: RequestKind,
}

impl Endless<'_> {
    fn write(&self, index: u64) {
        let lap = index / self.ring.len() as u64;
        let words: [u64; 8] = transmute!(cqe(CqeOpcode::REQUESTER, 0, (lap & 1) as u8));
        let line = &self.ring[(index % self.ring.len() as u64) as usize];
        line.0.iter().zip(words).for_each(|(place, word)| place.store(word, Ordering::Relaxed));
    }
}

impl QpQueues for Endless<'_> {
    fn qpn(&self) -> Qpn {
        QPN
    }

    fn retire_send(&mut self, _: CompletedSend<'_>) -> Option<Retired> {
        self.taken += 1;
        assert!(self.taken < TOO_MANY, "it takes entries for ever");
        self.write(self.taken);
        Some(Retired { id: self.taken, kind: self.kind, number: RequestNumber::NONE })
    }

    fn retire_receive(&mut self, _: CompletedReceive<'_>) -> Option<u64> {
        None
    }
}

/// Passes `take` a completion queue whose device always writes another entry. Returns the result of `take`
/// and the number of entries that it took.
fn taking<T>(
    kind: RequestKind,
    take: impl FnOnce(&mut CompletionQueue<'_>, &mut QpRouter<'_, &mut Endless<'_>>) -> T,
) -> (T, u64) {
    let (ring, record) = ([(); 4].map(|()| Line::default()), CqDoorbellRecord::new());
    let mut device = Endless { ring: &ring, taken: 0, kind };
    device.write(0);
    let mut completions = CompletionQueue {
        ring: Ring::over(&ring),
        record: &record,
        consumer: 0,
        events: 0,
        unclaimed: Unclaimed::default(),
    };
    let result = take(&mut completions, &mut QpRouter { queues: &mut device, mkeys: &mut [] });
    assert_eq!(record.bytes()[0], (device.taken as u32).to_be_bytes(), "slots given back");
    (result, device.taken)
}

#[test]
fn entries_that_nobody_sees_end_a_poll() {
    let (completion, taken) =
        taking(RequestKind::MkeyConfigurePart, |completions, router| completions.poll(router));
    assert_eq!((completion, taken), (None, 1 + 4), "as many as the ring has, and one");
    let (count, taken) = taking(RequestKind::MkeyConfigurePart, |completions, router| {
        completions.poll_batch(7, router, |completion| panic!("{completion:?}"))
    });
    assert_eq!((count, taken), (0, 1 + 4));
}

#[test]
fn completions_without_end_end_a_batch() {
    let (count, taken) = taking(RequestKind::Nop, |completions, router| {
        completions.poll_batch(7, router, |completion| assert!(completion.is_ok()))
    });
    assert_eq!((count, taken), (7, 7));
}
