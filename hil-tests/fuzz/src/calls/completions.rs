//! The completion queue: its device writes entries good and bad, and what polling makes of them is worked out from the bytes.

use super::mkey::MkeyModel;
use super::receive::Receives;
use super::{QPN, World};
use crate::input::Input;
use crate::memory::Shared;
use embedded_hal::delay::DelayNs;
use hil_tests::model::QueueModel;
use mlx5_mkey::error::CompletionError;
use mlx5_mkey::mkey::SignatureFault;
use mlx5_mkey::queue::{
    ArmFor, Completion, CompletionQueue, CqDoorbell, CqDoorbellRecord, Failure, Message, Outcome, QpRouter,
    RequestKind, Retired, WorkCompletion,
};
use mlx5_mkey::types::{Key, MkeyIndex, Qpn};
use mlx5_mkey::wire::cqe::{Cqe, CqeOpcode, Syndrome};
use zerocopy::transmute;

/// Its ring and record, and where another has left it.
pub(super) struct Memory {
    ring: Shared<Cqe>,
    record: CqDoorbellRecord,
    words: [u32; 2],
}

impl Memory {
    pub(super) fn new(input: &mut Input<'_>) -> Self {
        let ring = Shared::new(vec![Cqe::UNWRITTEN; 1 << input.below(6)]);
        let words = [input.pick(&[0, 1, 0x00ff_fffe, 0x00ff_ffff, 77]), input.any()];
        Self { ring, record: CqDoorbellRecord::new(), words }
    }
}

/// The queue and its model.
pub(super) struct Completions<'m> {
    queue: CompletionQueue<'m>,
    memory: &'m Memory,
    entries: u64,
    /// Entries taken, and written in order.
    consumer: u64,
    written: u64,
    /// The sequence number of the next arm word.
    sequence: u32,
}

/// Takes arm words.
#[derive(Default)]
struct Bell(Option<[u8; 4]>);

impl CqDoorbell for Bell {
    fn ring(&mut self, arm: [u8; 4]) {
        self.0 = Some(arm);
    }
}

/// Does not wait.
struct NoDelay;

impl DelayNs for NoDelay {
    fn delay_ns(&mut self, _: u32) {}
}

/// What polling returns.
type Polled = Option<Result<Completion, CompletionError>>;

impl<'m> Completions<'m> {
    pub(super) fn new(memory: &'m Memory) -> Self {
        let ring = memory.ring.slots();
        let entries = ring.len() as u64;
        let queue = CompletionQueue::new(ring, &memory.record).expect("a power of two");
        let [consumer, arm] = memory.words;
        let first = u64::from(consumer & 0x00ff_ffff);
        let queue = queue.starting_at(memory.words);
        Self { queue, memory, entries, consumer: first, written: first, sequence: ((arm >> 28) + 1) & 3 }
    }

    pub(super) fn arm(&mut self, input: &mut Input<'_>) {
        let (entries, solicited) = input.pick(&[(ArmFor::Any, 0), (ArmFor::Solicited, 1 << 24)]);
        let mut bell = Bell::default();
        self.queue.arm(&mut bell, entries);
        let word = self.sequence << 28 | solicited | self.consumer as u32 & 0x00ff_ffff;
        assert_eq!((bell.0, self.memory.record.bytes()[1]), (Some(word.to_be_bytes()), word.to_be_bytes()));
        self.check_record();
        if input.any() {
            self.queue.event_received();
            self.sequence = (self.sequence + 1) & 3;
        }
    }

    /// The record says how much was taken.
    fn check_record(&self) {
        let [consumer, _] = self.memory.record.bytes();
        assert_eq!(consumer, (self.consumer as u32 & 0x00ff_ffff).to_be_bytes());
    }

    /// The owner bit of the entry with this number.
    fn owner(&self, number: u64) -> u8 {
        ((number / self.entries) & 1) as u8
    }

    /// The entry with this number, if the device has written it.
    fn entry(&self, number: u64) -> Option<[u8; 64]> {
        let bytes: [u8; 64] = transmute!(self.memory.ring.read((number % self.entries) as usize));
        (bytes[63] >> 4 != 0xf && bytes[63] & 1 == self.owner(number)).then_some(bytes)
    }

    /// The device writes an entry: in its place, or anywhere.
    fn write(&mut self, input: &mut Input<'_>, mut bytes: [u8; 64]) {
        let number = if input.one_in(16) { input.any::<u8>().into() } else { self.written };
        if number == self.written {
            if self.written - self.consumer.min(self.written) >= self.entries {
                return;
            }
            self.written += 1;
            bytes[63] = bytes[63] & !1 | self.owner(number);
        }
        self.memory.ring.write((number % self.entries) as usize, transmute!(bytes));
    }
}

/// What the entries of a completion queue are about.
struct Subjects<'a, 'm> {
    sends: &'a mut QueueModel,
    receives: &'a mut Receives<'m>,
    mkeys: &'a mut [MkeyModel],
}

fn be<const N: usize>(bytes: &[u8; 64], at: usize) -> u64 {
    bytes[at..at + N].iter().fold(0, |number, byte| number << 8 | u64::from(*byte))
}

impl Subjects<'_, '_> {
    /// What an entry is for the user; nothing for a part of a configuration.
    fn complete(&mut self, bytes: &[u8; 64]) -> Polled {
        let (opcode, format) = (bytes[63] >> 4, bytes[63] >> 2 & 3);
        let count = be::<4>(bytes, 44) as u32;
        let imm = be::<4>(bytes, 36) as u32;
        let failure = Outcome::Failed(Failure {
            syndrome: Syndrome(bytes[55]),
            vendor: bytes[54],
            hardware: bytes[52],
            hardware_type: bytes[53],
        });
        let received = |message| Outcome::Received { message, bytes: count };
        // Of what fails the kind does not count.
        let outcome = match opcode {
            0..=4 if format != 0 => return Some(Err(CompletionError::UnsupportedFormat { format })),
            0 => None,
            1 => Some(received(Message::WriteImm(imm))),
            2 => Some(received(Message::Send)),
            3 => Some(received(Message::SendImm(imm))),
            4 => Some(received(Message::SendInvalidate(Key::from_raw(imm)))),
            12 => return Some(self.signature_error(bytes)),
            13 | 14 => Some(failure),
            _ => return Some(Err(CompletionError::UnknownOpcode(CqeOpcode(opcode)))),
        };
        let qpn = be::<4>(bytes, 56) as u32 & 0x00ff_ffff;
        if qpn != QPN.get() {
            return Some(Err(CompletionError::UnknownQueuePair { qpn }));
        }
        let counter = be::<2>(bytes, 60) as u16;
        let unknown = Err(CompletionError::UnknownRequest { qpn, counter });
        let (id, outcome) = match (outcome, opcode) {
            (None, _) => match self.sends.retire(counter) {
                None => return Some(unknown),
                Some(Retired { kind: RequestKind::MkeyConfigurePart, .. }) => return None,
                Some(Retired { id, kind }) => (id, Outcome::Sent { kind, bytes: count }),
            },
            (Some(outcome), 13) => match self.sends.retire(counter) {
                None => return Some(unknown),
                Some(Retired { id, .. }) => (id, outcome),
            },
            (Some(outcome), _) => match self.receives.retire(counter) {
                None => return Some(unknown),
                Some(id) => (id, outcome),
            },
        };
        Some(Ok(Completion::Work(WorkCompletion { id, qpn: Qpn::from_low_bits(qpn), outcome })))
    }

    fn signature_error(&mut self, bytes: &[u8; 64]) -> Result<Completion, CompletionError> {
        let index = be::<4>(bytes, 36) as u32 >> 8;
        let fault = SignatureFault {
            mkey: MkeyIndex::from_low_bits(index),
            syndrome: be::<2>(bytes, 32) as u16,
            sig_type: bytes[34] & 7,
            domain: bytes[35] & 7,
            expected: be::<4>(bytes, 16) << 32 | be::<4>(bytes, 24),
            actual: be::<4>(bytes, 20) << 32 | be::<4>(bytes, 28),
            offset: be::<8>(bytes, 40),
        };
        let position = self.mkeys.iter_mut().position(|mkey| mkey.record(&fault));
        let error = position.map(|position| Completion::SignatureError { mkey: fault.mkey, position });
        error.ok_or(CompletionError::UnknownMkey { index })
    }
}

impl<const N: usize> World<'_, N> {
    /// The device writes an entry: of something outstanding, or of whatever the input says.
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

    /// Polls, and compares what that returns with what the bytes say.
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
        // It polls once more behind the arm word.
        if way == 2 && expected.is_none() {
            assert!(bell.0.is_some());
            expected = self.expect();
        }
        assert_eq!(polled, expected);
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
        let count = completions.queue.poll_batch(max, &mut router, |completion| polled.push(completion));
        assert_eq!((count, polled), (expected.len(), expected));
    }

    pub(super) fn wait(&mut self, input: &mut Input<'_>) {
        let attempts = input.below(3);
        let expected = (0..attempts).find_map(|_| self.expect()).unwrap_or(Err(CompletionError::TimedOut));
        let Self { completions, queue, receives, mkeys, .. } = self;
        let mut router = QpRouter { queues: (queue, &mut receives.queue), mkeys };
        assert_eq!(completions.queue.wait(&mut router, &mut NoDelay, attempts, 1), expected);
    }

    /// What polling must return, and what it retires.
    fn expect(&mut self) -> Polled {
        // A success of a send that stands first is not counted with those that the user does not see.
        let first = self.completions.entry(self.completions.consumer)?;
        let is_send = first[63] >> 4 == 0 && first[63] >> 2 & 3 == 0;
        self.expect_within(u64::from(is_send))
    }

    /// The same, where at most this number of entries more than the queue has are taken.
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

    /// Drops entries; the others stay in order.
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
