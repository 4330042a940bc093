//! The completion queue with its model. The device of the test writes valid and invalid entries; the model
//! derives the result of polling from the bytes of each entry.

use super::mkey::MkeyModel;
use super::receive::{QPN, Receives};
use crate::input::Input;
use crate::memory::Shared;
use hil_tests::model::QueueModel;
use mlx5_mkey::error::CompletionError;
use mlx5_mkey::mkey::SignatureFault;
use mlx5_mkey::queue::{
    ArmFor, Completion, CompletionQueue, CqDoorbell, CqDoorbellRecord, Failure, Message, Outcome,
    RequestKind, RequestNumber, WorkCompletion,
};
use mlx5_mkey::types::{Key, MkeyIndex, Qpn};
use mlx5_mkey::wire::cqe::{Cqe, CqeOpcode, Syndrome};
use zerocopy::transmute;

/// The ring and the doorbell record of the completion queue, and the counters that an earlier reader has left
/// in the record.
pub(super) struct Memory {
    pub(super) ring: Shared<Cqe>,
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

pub(super) struct Completions<'m> {
    pub(super) queue: CompletionQueue<'m>,
    pub(super) memory: &'m Memory,
    pub(super) entries: u64,
    /// The number of entries that the queue has taken.
    pub(super) consumer: u64,
    /// The number of entries that the test's device has written in order.
    written: u64,
    /// The sequence number of the next arm word.
    sequence: u32,
}

/// A doorbell of the completion queue that keeps the last written arm word (the word that requests an event).
#[derive(Default)]
pub(super) struct Bell(pub(super) Option<[u8; 4]>);

impl CqDoorbell for Bell {
    fn ring(&mut self, arm: [u8; 4]) {
        self.0 = Some(arm);
    }
}

/// The result of polling, `None` if no entry is complete.
pub(super) type Polled = Option<Result<Completion, CompletionError>>;

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

    /// Asserts that the doorbell record holds the number of entries taken.
    pub(super) fn check_record(&self) {
        let [consumer, _] = self.memory.record.bytes();
        assert_eq!(consumer, (self.consumer as u32 & 0x00ff_ffff).to_be_bytes());
    }

    /// Returns the owner bit of the entry with this number.
    pub(super) fn owner(&self, number: u64) -> u8 {
        ((number / self.entries) & 1) as u8
    }

    /// Returns the entry with this number if the device has written it.
    pub(super) fn entry(&self, number: u64) -> Option<[u8; 64]> {
        let bytes: [u8; 64] = transmute!(self.memory.ring.read((number % self.entries) as usize));
        (bytes[63] >> 4 != 0xf && bytes[63] & 1 == self.owner(number)).then_some(bytes)
    }

    /// Writes an entry in the role of the device: at the next place, or at a random one.
    pub(super) fn write(&mut self, input: &mut Input<'_>, mut bytes: [u8; 64]) {
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

/// The models of the queues and mkeys that a completion entry may refer to.
pub(super) struct Subjects<'a, 'm> {
    pub(super) sends: &'a mut QueueModel,
    pub(super) receives: &'a mut Receives<'m>,
    pub(super) mkeys: &'a mut [MkeyModel],
}

/// Returns the result of a poll without the [`RequestNumber`], which the model does not know.
pub(super) fn unnumbered(polled: Result<Completion, CompletionError>) -> Result<Completion, CompletionError> {
    let number = RequestNumber::NONE;
    polled.map(|completion| match completion {
        Completion::Work(work) => Completion::Work(WorkCompletion { number, ..work }),
        reported @ Completion::SignatureError { .. } => reported,
    })
}

pub(super) fn be<const N: usize>(bytes: &[u8; 64], at: usize) -> u64 {
    bytes[at..at + N].iter().fold(0, |number, byte| number << 8 | u64::from(*byte))
}

impl Subjects<'_, '_> {
    /// Returns the expected completion for an entry. Returns `None` for a part of a configuration, whose
    /// successful completion the user never sees.
    pub(super) fn complete(&mut self, bytes: &[u8; 64]) -> Polled {
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
        // If a part of a configuration succeeds, nothing is reported. If it fails, the failure is reported.
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
                Some((_, RequestKind::MkeyConfigurePart)) => return None,
                Some((id, kind)) => (id, Outcome::Sent { kind, bytes: count }),
            },
            (Some(outcome), 13) => match self.sends.retire(counter) {
                None => return Some(unknown),
                Some((id, _)) => (id, outcome),
            },
            (Some(outcome), _) => match self.receives.retire(counter) {
                None => return Some(unknown),
                Some(id) => (id, outcome),
            },
        };
        let (qpn, number) = (Qpn::from_low_bits(qpn), RequestNumber::NONE);
        Some(Ok(Completion::Work(WorkCompletion { id, qpn, number, outcome })))
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
