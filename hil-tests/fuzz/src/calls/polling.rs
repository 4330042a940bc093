//! Steps that write completion entries, poll, wait or discard entries, and compare the results with the
//! model.

use super::completions::{Bell, Completions, Polled, Subjects, be, unnumbered};
use super::receive::QPN;
use super::world::World;
use crate::input::Input;
use hil_scenarios::board::NoTime;
use mlx5_mkey::error::CompletionError;
use mlx5_mkey::queue::QpRouter;

impl World<'_> {
    /// Writes entries in the role of the device: for an outstanding request, or with random fields.
    pub(super) fn device_writes(&mut self, input: &mut Input<'_>) {
        for _ in 0..1 + input.below(4) {
            let bytes = self.entry(input);
            self.completions.write(input, bytes);
        }
    }

    fn entry(&self, input: &mut Input<'_>) -> [u8; 64] {
        let mut bytes = [0; 64];
        let opcode = match input.below(8) {
            0..4 => 0,
            4 => input.pick(&[1, 2, 3, 4, 14]),
            5 => 13,
            6 => 12,
            _ => input.below(16) as u8,
        };
        if input.one_in(4) {
            bytes[..48].copy_from_slice(&input.bytes(48));
        }
        let receives = matches!(opcode, 1..=4 | 14);
        let counter = if receives { self.receives.counter(input) } else { self.counter(input) };
        let qpn = if input.one_in(16) { input.any() } else { QPN.get() };
        bytes[44..48].copy_from_slice(&input.any::<u32>().to_be_bytes());
        if opcode == 12 {
            let index = input.below(4) << 4;
            bytes[36..40].copy_from_slice(&(index << 8).to_be_bytes());
            bytes[32..36].copy_from_slice(&[
                1 << input.below(6),
                0,
                input.below(2) as u8,
                input.below(3) as u8,
            ]);
        }
        bytes[52..56].copy_from_slice(&input.any::<u32>().to_be_bytes());
        bytes[56..60].copy_from_slice(&qpn.to_be_bytes());
        bytes[60..62].copy_from_slice(&counter.to_be_bytes());
        let low = if input.one_in(8) { input.any::<u8>() & 0xf } else { 0 };
        bytes[63] = opcode << 4 | low;
        bytes
    }

    /// Polls in one of several ways. Compares the result with the expected one, which the model derives from
    /// the bytes of the entries.
    pub(super) fn poll(&mut self, input: &mut Input<'_>) {
        let way = input.below(if self.all { 4 } else { 3 });
        if way == 1 {
            return self.poll_batch(input);
        }
        let before = self.completions.consumer;
        let mut expected = if way == 3 { self.expect_within(0) } else { self.expect() };
        let Self { completions, queue, receives, mkeys, .. } = self;
        let mut router = QpRouter { queues: (queue, &mut receives.queue), mkeys };
        let mut bell = Bell::default();
        let polled = match way {
            0 => completions.queue.poll(&mut router),
            3 => {
                let polled = completions.queue.poll_with_entry(&mut router);
                polled.map(|(entry, completion)| {
                    let last = completions.consumer.wrapping_sub(1) % completions.entries;
                    assert_eq!(entry, completions.memory.ring.read(last as usize));
                    completion
                })
            }
            _ => completions.queue.poll_or_arm(&mut router, &mut bell),
        };
        // `poll_or_arm` polls a second time after it has written the arm word.
        if way == 2 && expected.is_none() {
            assert!(bell.0.is_some());
            expected = self.expect();
        }
        assert_eq!(polled.map(unnumbered), expected);
        if self.completions.consumer != before {
            self.completions.check_record();
        }
    }

    fn poll_batch(&mut self, input: &mut Input<'_>) {
        let max = input.below(8) as usize;
        let expected: Vec<_> = (0..max).map_while(|_| self.expect()).collect();
        let Self { completions, queue, receives, mkeys, .. } = self;
        let mut router = QpRouter { queues: (queue, &mut receives.queue), mkeys };
        let mut polled = Vec::new();
        let count =
            completions.queue.poll_batch(max, &mut router, |completion| polled.push(unnumbered(completion)));
        assert_eq!((count, polled), (expected.len(), expected));
    }

    pub(super) fn wait(&mut self, input: &mut Input<'_>) {
        let attempts = input.below(3);
        let expected = (0..attempts).find_map(|_| self.expect()).unwrap_or(Err(CompletionError::TimedOut));
        let Self { completions, queue, receives, mkeys, .. } = self;
        let mut router = QpRouter { queues: (queue, &mut receives.queue), mkeys };
        let waited = completions.queue.wait(&mut router, &mut NoTime, attempts, 1);
        assert_eq!(unnumbered(waited), expected);
    }

    /// Returns the expected result of polling, and retires its request in the model.
    fn expect(&mut self) -> Polled {
        // One poll takes at most as many entries as the queue has slots. Entries that the user never sees
        // count as well. If the first entry is a successful send, this entry does not count.
        let first = self.completions.entry(self.completions.consumer)?;
        let is_send = first[63] >> 4 == 0 && first[63] >> 2 & 3 == 0;
        self.expect_within(u64::from(is_send))
    }

    /// As `expect`: one poll takes at most `more` entries above the size of the queue.
    fn expect_within(&mut self, more: u64) -> Polled {
        let Self { completions, model, receives, known, .. } = self;
        let mut subjects = Subjects { sends: model, receives, mkeys: known };
        for _ in 0..completions.entries + more {
            let entry = completions.entry(completions.consumer)?;
            completions.consumer += 1;
            let completed = subjects.complete(&entry);
            if completed.is_some() {
                return completed;
            }
        }
        None
    }

    /// Discards some completion entries. Asserts that the others keep their order.
    pub(super) fn discard(&mut self, input: &mut Input<'_>) {
        let bit = input.below(16);
        let stale = |counter: u16| counter >> bit & 1 == 0;
        let Completions { consumer, entries, .. } = self.completions;
        let found: Vec<_> =
            (consumer..consumer + entries).map_while(|number| self.completions.entry(number)).collect();
        let kept: Vec<_> = found.iter().filter(|bytes| !stale(be::<2>(bytes, 60) as u16)).collect();
        let dropped = found.len() - kept.len();
        assert_eq!(self.completions.queue.discard(|entry| stale(entry.wqe_counter.get())), dropped);
        let completions = &mut self.completions;
        completions.consumer += dropped as u64;
        if dropped > 0 {
            completions.check_record();
        }
        for (number, bytes) in (completions.consumer..).zip(kept) {
            let mut expected = *bytes;
            expected[63] = expected[63] & !1 | completions.owner(number);
            assert_eq!(completions.entry(number), Some(expected));
        }
        assert_eq!(completions.queue.is_empty(), completions.entry(completions.consumer).is_none());
    }
}
