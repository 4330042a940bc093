//! Tests of polling: a completion queue returns the same results as a model that searches lists of
//! outstanding requests.

mod endless;
mod events;

use super::*;
use crate::mkey::{
    BlockSignature, Layout, Mkey, MkeyAttributes, MkeyConfig, Signature, SignatureAttributes,
    SignatureChange, SignatureError, SignatureErrorKind,
};
use crate::queue::{
    Doorbell, DoorbellRecord, Failure, LastRequest, Message, QpRouter, QpTable, ReceiveQueue,
    ReceiveQueueConfig, SendQueue, SendQueueConfig, SendSlot, TableSlot,
};
use crate::types::{BlockSize, DomainKind, Key, MkeyIndex, PsvIndex, Seed};
use crate::wire::Wqebb;
use crate::wire::cqe::{Cqe128, SignatureErrorCqe, Syndrome};
use crate::wire::ctrl::Opcode;
use crate::wire::data::DataSegment;
use crate::wqe::{PreparedConfig, Sge};
use embedded_hal_mock::eh1::delay::{CheckedDelay, Transaction};
use std::collections::VecDeque;
use std::vec;
use std::vec::Vec;
use zerocopy::big_endian::{U16, U32, U64};

struct Silent;

impl Doorbell for Silent {
    fn ring(&mut self, _: &LastRequest<'_>) {}
}

type Send<'r> = SendQueue<'r, Silent>;

const QPN: Qpn = Qpn::from_low_bits(0x42);

fn cqe(opcode: CqeOpcode, counter: u16, owner: u8) -> Cqe {
    Cqe {
        sop_qpn: U32::new(u32::from(Opcode::SEND.0) << 24 | QPN.get()),
        wqe_counter: U16::new(counter),
        op_own: opcode.0 << 4 | owner,
        ..Cqe::UNWRITTEN
    }
}

fn queue(entries: &[Cqe]) -> (Vec<Cqe>, CqDoorbellRecord) {
    (entries.to_vec(), CqDoorbellRecord::new())
}

fn send<'r>(qpn: Qpn, ring: &'r mut [Wqebb], record: &'r DoorbellRecord) -> Send<'r> {
    SendQueue::new(SendQueueConfig::new(qpn), ring, SendSlot::leaked(16), record, Silent).unwrap()
}

fn signature_mkey(key: Key) -> Mkey {
    let psv = PsvIndex::from_low_bits;
    let signature = Some(SignatureAttributes::new(psv(1), psv(2)));
    Mkey::new(MkeyAttributes { signature, ..MkeyAttributes::plain(key, 4) })
}

const CRC32: crate::mkey::Domain =
    crate::mkey::Domain { signature: Signature::Crc32(Seed::Zeros), block_size: BlockSize::B512 };

/// Returns a configuration that sets a signature of a [`signature_mkey`].
fn signing(signature: BlockSignature) -> PreparedConfig {
    let config = MkeyConfig { signature: SignatureChange::Set(signature), ..MkeyConfig::UNCHANGED };
    PreparedConfig::new(signature_mkey(Key::default()).kind(), &config).unwrap()
}

#[test]
fn m56_entries_of_the_other_lap_are_not_there_yet() {
    let (mut ring, record) = queue(&[cqe(CqeOpcode::REQUESTER, 1, 0), cqe(CqeOpcode::REQUESTER, 2, 1)]);
    let mut completions = CompletionQueue::new(&mut ring, &record).unwrap();
    assert!(completions.take_entry().is_some());
    assert_eq!(completions.take_entry(), None, "owner bit of the second lap");
    let (mut ring, record) = queue(&[cqe(CqeOpcode::REQUESTER, 1, 0); 2]);
    let mut completions = CompletionQueue::new(&mut ring, &record).unwrap();
    assert!(completions.take_entry().is_some() && completions.take_entry().is_some());
    assert_eq!(completions.take_entry(), None, "the first entry is of the first lap");
    assert_eq!(record.bytes()[0], [0; 4]);
    completions.release();
    assert_eq!(record.bytes()[0], [0, 0, 0, 2]);
    let (mut ring, record) = queue(&[Cqe::UNWRITTEN; 2]);
    assert_eq!(CompletionQueue::new(&mut ring, &record).unwrap().take_entry(), None);
}

#[test]
fn m56_entries_of_128_bytes_are_read_in_their_second_half() {
    let long = |counter, owner| Cqe128 {
        inline_64: [counter as u8; 64],
        cqe: cqe(CqeOpcode::RESPONDER_ERROR, counter, owner),
    };
    let (mut ring, record) =
        ([long(0, 0), long(1, 0), long(2, 0), Cqe128::UNWRITTEN], CqDoorbellRecord::new());
    let mut completions = CompletionQueue::new(&mut ring, &record).unwrap();
    let counters = |completions: &mut CompletionQueue<'_, Cqe128>| -> Vec<u16> {
        core::iter::from_fn(|| completions.take_entry()).map(|entry| entry.wqe_counter.get()).collect()
    };
    // Discarding moves the remaining entries without the unused first halves of their slots, which become
    // zeros.
    assert_eq!(completions.discard(|entry| entry.wqe_counter.get() == 1), 1);
    assert_eq!((counters(&mut completions), completions.is_empty()), (vec![0, 2], true));
    assert_eq!(ring.map(|slot| slot.inline_64[0]), [0; 4]);
    // A reader that starts in the second lap of the ring takes the entries of this lap.
    let mut ring = [long(4, 1), long(1, 0), long(2, 0), long(3, 0)];
    let mut completions = CompletionQueue::new(&mut ring, &record).unwrap().starting_at([3, 0]);
    assert_eq!(counters(&mut completions), [3, 4]);
}

#[test]
fn a_queue_continues_behind_another_reader() {
    let later = |counter, owner| cqe(CqeOpcode::REQUESTER, counter, owner);
    // In a ring of 4, entries 4 and 5 are taken, 6 is written, and 7 is still an entry of the lap before.
    let written = [later(4, 1), later(5, 1), later(6, 1), later(3, 0)];
    for laps in [0, 2, 0x3f_fffe] {
        let first = laps * 4;
        let (mut ring, record) = queue(&written);
        let mut completions = CompletionQueue::new(&mut ring, &record).unwrap().starting_at([first + 6, 0]);
        assert!(!completions.is_empty());
        assert_eq!(completions.take_entry().map(|entry| entry.wqe_counter.get()), Some(6));
        assert!(completions.is_empty());
        completions.release();
        assert_eq!(record.bytes()[0], (first + 7).to_be_bytes());
    }
    // For a reader in the first lap, whose entries have the other owner bit, the same entries are old.
    let (mut ring, record) = queue(&written);
    assert!(CompletionQueue::new(&mut ring, &record).unwrap().starting_at([2, 0]).is_empty());
}

#[test]
fn m62_a_signature_error_goes_to_its_mkey_and_the_poll_names_it() {
    let key = Key::from_raw(0x0012_3400);
    let mut mkeys = [signature_mkey(Key::from_raw(0x7700)), signature_mkey(key)];
    let error = SignatureErrorCqe {
        expected_trans_sig: U32::new(0x699a_ca21),
        actual_trans_sig: U32::new(0x969a_ca21),
        syndrome: U16::new(SignatureErrorCqe::SYNDROME_GUARD),
        // The queue reads only the low three bits of type and domain, so the test sets all other bits.
        sig_type: 0xf8,
        domain: 0xf8 | SignatureErrorCqe::DOMAIN_MEMORY,
        mkey: U32::new(0x0012_34ff),
        offset: U64::new(3 * 516 - 1),
        ..transmute!(cqe(CqeOpcode::SIGNATURE_ERROR, 0, 0))
    };
    let second = SignatureErrorCqe { offset: U64::new(515), ..error };
    let stranger = SignatureErrorCqe { mkey: U32::new(0x9900), ..error };
    let entries =
        [transmute!(error), transmute!(second), cqe(CqeOpcode::REQUESTER, 3, 0), transmute!(stranger)];
    let (mut ring, record) = queue(&entries);
    let mut completions = CompletionQueue::new(&mut ring, &record).unwrap();
    let (mut sq_ring, sq_record) = (vec![Wqebb::ZERO; 16], DoorbellRecord::new());
    let mut send = send(QPN, &mut sq_ring, &sq_record);
    let prepared = signing(BlockSignature::memory(CRC32));
    send.request(1).signaled().configure_mkey(&mut mkeys[1], &prepared, Layout::Unchanged).unwrap();
    send.ring_doorbell();
    let mut router = QpRouter { queues: &mut send, mkeys: &mut mkeys };
    let reported = Completion::SignatureError { mkey: key.index(), position: 1 };
    assert_eq!(completions.poll(&mut router), Some(Ok(reported)));
    assert_eq!(completions.poll(&mut router), Some(Ok(reported)));
    let outcome = Outcome::Sent { kind: RequestKind::MkeyConfigure, bytes: 0 };
    let done = WorkCompletion { id: 1, qpn: QPN, number: RequestNumber::NONE, outcome };
    let polled = completions.poll(&mut router).map(unnumbered);
    assert_eq!(polled, Some(Ok(Completion::Work(done))), "the SET_PSV completes");
    let unknown = CompletionError::UnknownMkey { index: 0x99 };
    assert_eq!(completions.poll(&mut router), Some(Err(unknown)));
    assert_eq!(completions.poll(&mut router), None);
    assert_eq!(record.bytes()[0], [0, 0, 0, 4]);
    let expected = SignatureError {
        kind: SignatureErrorKind::Guard,
        domain: DomainKind::Memory,
        found: 0x969a_ca21,
        computed: 0x699a_ca21,
        offset: 1547,
        stride: 516,
    };
    assert_eq!(expected.block_index(), 2);
    assert_eq!(mkeys[1].take_error(), Ok(Some(expected)), "the first is kept");
    assert_eq!(mkeys[1].take_error(), Ok(None), "and given once");
    assert_eq!(mkeys[0].take_error(), Ok(None));
    assert!(mkeys[1].error_count().is_some_and(|count| count.pending && count.seen == 3));
}

/// If the router lacks the mkey of an error, the queue keeps the error until the mkey is checked. Wrong data
/// never passes a check.
#[test]
fn an_error_that_the_router_has_no_mkey_for_is_told_when_the_mkey_is_asked() {
    let of = |key: u32| -> Cqe {
        let error = SignatureErrorCqe {
            syndrome: U16::new(SignatureErrorCqe::SYNDROME_GUARD),
            sig_type: SignatureErrorCqe::TYPE_BLOCK,
            domain: SignatureErrorCqe::DOMAIN_MEMORY,
            mkey: U32::new(key),
            offset: U64::new(2 * 516 - 1),
            ..transmute!(cqe(CqeOpcode::SIGNATURE_ERROR, 0, 0))
        };
        transmute!(error)
    };
    let [mut wrong, mut right, mut gone] =
        [0x100, 0x200, 0x300].map(|key| signature_mkey(Key::from_raw(key)));
    let mut entries = [Cqe::UNWRITTEN; 16];
    for (entry, key) in entries.iter_mut().zip([0x100, 0x100, 0x300]) {
        *entry = of(key);
    }
    for (entry, key) in entries[3..].iter_mut().zip(4..12) {
        *entry = of(key << 8);
    }
    let (mut ring, record) = queue(&entries);
    let mut completions = CompletionQueue::new(&mut ring, &record).unwrap();
    let (mut sq_ring, sq_record) = (vec![Wqebb::ZERO; 16], DoorbellRecord::new());
    let mut send = send(QPN, &mut sq_ring, &sq_record);
    let prepared = signing(BlockSignature::memory(CRC32));
    send.request(1).configure_mkey(&mut wrong, &prepared, Layout::Unchanged).unwrap();
    let mut poll = |completions: &mut CompletionQueue<'_>| {
        completions.poll(&mut QpRouter { queues: &mut send, mkeys: &mut [] })
    };
    for index in [1, 1, 3] {
        assert_eq!(poll(&mut completions), Some(Err(CompletionError::UnknownMkey { index })));
    }
    assert_eq!(wrong.take_error(), Ok(None), "nobody has told it");
    let told = completions.check(&mut wrong).unwrap().expect("an error");
    assert_eq!((told.kind, told.block_index()), (SignatureErrorKind::Guard, 1));
    assert_eq!(completions.check(&mut wrong), Ok(None), "once");
    assert!(wrong.error_count().is_some_and(|count| count.pending && count.seen == 2), "it is rearmed");
    assert_eq!(completions.check(&mut right), Ok(None));
    completions.forget_mkey(gone.key().index());
    assert_eq!(completions.check(&mut gone), Ok(None), "another mkey of that number");
    // The queue keeps the errors of 8 mkeys. After an error of one more, no check may call an mkey free of
    // errors, because the lost error may belong to any mkey.
    for _ in 4..12 {
        assert!(poll(&mut completions).is_some_and(|found| found.is_err()));
    }
    assert_eq!(completions.check(&mut right), Ok(None), "all are kept");
    let (mut ring, record) = queue(&entries);
    let mut completions = CompletionQueue::new(&mut ring, &record).unwrap();
    for _ in 0..11 {
        assert!(poll(&mut completions).is_some_and(|found| found.is_err()));
    }
    assert_eq!(completions.check(&mut right), Err(CheckError::ErrorsLost));
    assert_eq!(
        completions.check(&mut right),
        Err(CheckError::ErrorsLost),
        "until the program says otherwise"
    );
    completions.forget_lost_errors();
    assert_eq!(completions.check(&mut right), Ok(None));
}

#[test]
fn a_batch_gives_its_slots_back_at_once() {
    let (mut ring, record) = queue(&[cqe(CqeOpcode::RESPONDER_SEND, 0, 0); 4]);
    let mut completions = CompletionQueue::new(&mut ring, &record).unwrap();
    let mut slots = [const { TableSlot::EMPTY }; 2];
    let mut table = QpTable::<Send<'_>>::new(&mut slots);
    let mut seen = Vec::new();
    let count = completions.poll_batch(3, &mut table.router(&mut []), |completion| seen.push(completion));
    let unknown = CompletionError::UnknownQueuePair { qpn: QPN.get() };
    assert_eq!((count, seen), (3, vec![Err(unknown); 3]));
    assert_eq!(record.bytes()[0], [0, 0, 0, 3]);
    assert_eq!(completions.poll_batch(3, &mut table.router(&mut []), |_| ()), 1);
    assert_eq!(completions.poll_batch(3, &mut table.router(&mut []), |_| ()), 0);
}

/// The outstanding requests of a queue pair, in lists that are searched.
#[derive(Default)]
struct Model {
    /// First block, `wr_id` and kind of each send request.
    sends: VecDeque<(u32, u64, RequestKind)>,
    published: u32,
    /// Number and `wr_id` of each receive request.
    receives: VecDeque<(u16, u64)>,
    next_receive: u16,
}

impl Model {
    fn retire_send(&mut self, counter: u16) -> Option<(u64, RequestKind)> {
        let published = self.published;
        let at = self.sends.iter().position(|(begin, ..)| *begin as u16 == counter && *begin < published)?;
        self.sends.drain(..=at).next_back().map(|(_, id, kind)| (id, kind))
    }

    fn retire_receive(&mut self, counter: u16) -> Option<u64> {
        let at = self.receives.iter().position(|(number, _)| *number == counter)?;
        self.receives.drain(..=at).next_back().map(|(_, id)| id)
    }
}

/// Returns the result of a poll without the number of its request, which the model does not know.
fn unnumbered(polled: Result<Completion, CompletionError>) -> Result<Completion, CompletionError> {
    let number = RequestNumber::NONE;
    polled.map(|completion| match completion {
        Completion::Work(work) => Completion::Work(WorkCompletion { number, ..work }),
        reported @ Completion::SignatureError { .. } => reported,
    })
}

/// Returns four bytes of an entry as a number.
fn word(entry: &[u8; 64], at: usize) -> u32 {
    u32::from_be_bytes(entry[at..at + 4].try_into().unwrap())
}

/// Indices of the mkeys that the router has.
const MKEYS: [u32; 2] = [0x77, 0x78];

/// Reads an entry byte by byte, and retires its request in the model of its queue pair. Returns the expected
/// result of a poll, or `None` for an entry that polling takes but does not return.
fn expected(entry: &[u8; 64], models: &mut [(u32, Model)]) -> Option<Result<Completion, CompletionError>> {
    let (opcode, format) = (entry[63] >> 4, entry[63] >> 2 & 3);
    match opcode {
        12 => {
            let index = word(entry, 36) >> 8;
            let position = MKEYS.iter().position(|known| *known == index);
            let mkey = MkeyIndex::from_low_bits(index);
            let reported = position.map(|position| Completion::SignatureError { mkey, position });
            return Some(reported.ok_or(CompletionError::UnknownMkey { index }));
        }
        0..=4 if format != 0 => return Some(Err(CompletionError::UnsupportedFormat { format })),
        0..=4 | 13 | 14 => {}
        _ => return Some(Err(CompletionError::UnknownOpcode(CqeOpcode(opcode)))),
    }
    let (qpn, counter) = (word(entry, 56) & 0x00ff_ffff, (word(entry, 60) >> 16) as u16);
    let Some((_, model)) = models.iter_mut().find(|(known, _)| *known == qpn) else {
        return Some(Err(CompletionError::UnknownQueuePair { qpn }));
    };
    let retired = if matches!(opcode, 0 | 13) {
        model.retire_send(counter)
    } else {
        model.retire_receive(counter).map(|id| (id, RequestKind::Nop))
    };
    let Some((id, kind)) = retired else {
        return Some(Err(CompletionError::UnknownRequest { qpn, counter }));
    };
    if opcode == 0 && kind == RequestKind::MkeyConfigurePart {
        return None;
    }
    let (qpn, number) = (Qpn::from_low_bits(qpn), RequestNumber::NONE);
    let work = WorkCompletion { id, qpn, number, outcome: outcome(entry, kind) };
    Some(Ok(Completion::Work(work)))
}

/// Returns the outcome that an entry reports for a request of this kind.
fn outcome(entry: &[u8; 64], kind: RequestKind) -> Outcome {
    let (bytes, imm) = (word(entry, 44), word(entry, 36));
    let message = match entry[63] >> 4 {
        0 => return Outcome::Sent { kind, bytes },
        1 => Message::WriteImm(imm),
        2 => Message::Send,
        3 => Message::SendImm(imm),
        4 => Message::SendInvalidate(Key::from_raw(imm)),
        _ => {
            let [hardware, hardware_type, vendor, syndrome] = entry[52..56].try_into().unwrap();
            let syndrome = Syndrome(syndrome);
            return Outcome::Failed(Failure { syndrome, vendor, hardware, hardware_type });
        }
    };
    Outcome::Received { message, bytes }
}

/// Pseudorandom numbers.
struct Dice(u64);

impl Dice {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % end
    }

    fn bytes(&mut self) -> [u8; 64] {
        core::array::from_fn(|_| self.below(256) as u8)
    }
}

type Qp<'r> = (Send<'r>, ReceiveQueue<'r>);

/// Queue pairs that complete to one completion queue, with their models. Some queue pairs are temporarily not
/// in the table.
struct World<'r> {
    dice: Dice,
    table: QpTable<'r, Qp<'r>>,
    models: Vec<(u32, Model)>,
    away: Vec<(Qp<'r>, Model)>,
    mkeys: [Mkey; 2],
    ring: [Cqe; 8],
    record: CqDoorbellRecord,
    /// Entries that were written but not taken.
    pending: VecDeque<[u8; 64]>,
    consumer: u64,
    completed: usize,
    refused: usize,
}

impl World<'_> {
    /// Posts a request to one of the queue pairs of the table, if it fits, and publishes now and then.
    fn post(&mut self, id: u64) {
        let at = self.dice.below(self.models.len() as u64) as usize;
        let (qpn, model) = &mut self.models[at];
        let (send, receive) = self.table.get_mut(Qpn::from_low_bits(*qpn)).unwrap();
        let begin = send.producer();
        let prepared = signing(BlockSignature::both(CRC32, CRC32));
        let sge = Sge { address: 0, length: 1, lkey: Key::from_raw(0x500) };
        let part = RequestKind::MkeyConfigurePart;
        let parts: &[(u32, RequestKind)] = match self.dice.below(5) {
            0 if receive.post(id, &[]).is_ok() => {
                receive.publish();
                model.receives.push_back((model.next_receive, id));
                model.next_receive = model.next_receive.wrapping_add(1);
                &[]
            }
            1 if send
                .request(id)
                .configure_mkey(&mut self.mkeys[1], &prepared, Layout::Unchanged)
                .is_ok() =>
            {
                &[(0, part), (3, part), (4, RequestKind::MkeyConfigure)]
            }
            2 if send.request(id).send(&[sge; 11]).is_ok() => &[(0, RequestKind::Send)],
            3 | 4 if send.request(id).nop().is_ok() => &[(0, RequestKind::Nop)],
            _ => &[],
        };
        model.sends.extend(parts.iter().map(|(offset, kind)| (begin + offset, id, *kind)));
        if self.dice.below(2) == 0 {
            send.ring_doorbell();
            model.published = send.producer();
        }
    }

    /// Makes an entry: for an outstanding request, for any queue pair and counter, or of random bytes.
    fn entry(&mut self) -> [u8; 64] {
        let mut entry = self.dice.bytes();
        let at = self.dice.below(self.models.len() as u64) as usize;
        let (qpn, model) = &self.models[at];
        let way = self.dice.below(16);
        if way > 0 {
            let (of, opcode): (usize, _) = match way {
                1 => (0, 12),
                2..=6 => (model.receives.len(), [1, 2, 3, 4, 14][way as usize - 2]),
                7 => (model.sends.len(), 13),
                _ => (model.sends.len(), 0),
            };
            let place = self.dice.below(of.max(1) as u64) as usize;
            let counter = match opcode {
                0 | 13 => model.sends.get(place).map(|(begin, ..)| *begin as u16),
                _ => model.receives.get(place).map(|(number, _)| *number),
            };
            // Sometimes the counter names the middle of a request, or no outstanding request.
            let counter = counter.unwrap_or(7).wrapping_add(u16::from(self.dice.below(8) == 0));
            entry[60..62].copy_from_slice(&counter.to_be_bytes());
            let qpn = if self.dice.below(32) == 0 { 0x99 } else { *qpn };
            entry[57..60].copy_from_slice(&qpn.to_be_bytes()[1..]);
            entry[63] = opcode << 4;
            let user_index = self.dice.below(6) as u8;
            entry[32..36].copy_from_slice(&[0xee, 0, 0, user_index]);
        }
        if entry[63] >> 4 == 12 && self.dice.below(4) != 0 {
            entry[36..40].copy_from_slice(&[0, 0, [0x77, 0x78][at % 2], 0xff]);
        }
        entry
    }

    /// Writes an entry to the place where the device would write it, if there is room.
    fn write(&mut self) {
        let slots = self.ring.len() as u64;
        let index = self.consumer + self.pending.len() as u64;
        if self.pending.len() as u64 == slots {
            return;
        }
        let mut entry = self.entry();
        // Opcode 15 marks a slot that was never written, so entries get another opcode.
        let opcode = if entry[63] >> 4 == 15 { 5 << 4 } else { entry[63] & 0xf0 };
        entry[63] = opcode | entry[63] & 0x0e | (index / slots % 2) as u8;
        self.ring[(index % slots) as usize] = transmute!(entry);
        self.pending.push_back(entry);
    }

    /// Polls one completion or a batch, and compares the results with the models.
    fn poll(&mut self) {
        let mut completions = CompletionQueue::new(&mut self.ring, &self.record).unwrap();
        completions.consumer = self.consumer;
        let max = self.dice.below(6) as usize;
        let mut router = self.table.router(&mut self.mkeys);
        let mut found = Vec::new();
        if max == 0 {
            found.extend(completions.poll(&mut router).map(unnumbered));
        } else {
            let count =
                completions.poll_batch(max, &mut router, |completion| found.push(unnumbered(completion)));
            assert_eq!(count, found.len());
        }
        let mut wanted = Vec::new();
        while wanted.len() < max.max(1) {
            let Some(entry) = self.pending.pop_front() else { break };
            self.consumer += 1;
            wanted.extend(expected(&entry, &mut self.models));
        }
        assert_eq!(found, wanted);
        assert_eq!(completions.consumer, self.consumer);
        assert_eq!(self.record.bytes()[0], (self.consumer as u32).to_be_bytes());
        self.completed += found.iter().filter(|completion| completion.is_ok()).count();
        self.refused += found.iter().filter(|completion| completion.is_err()).count();
        for (qpn, model) in &self.models {
            let (send, receive) = self.table.get_mut(Qpn::from_low_bits(*qpn)).unwrap();
            assert_eq!(send.outstanding() as usize, model.sends.len());
            let tail = model.sends.front().map_or(send.producer(), |(begin, ..)| *begin);
            assert_eq!(send.free_blocks(), 16 - (send.producer() - tail));
            assert_eq!(receive.free_slots() as usize, 4 - model.receives.len());
        }
    }

    /// Takes a queue pair out of the table, or puts one back.
    fn come_and_go(&mut self) {
        if self.models.len() > 2 && self.dice.below(2) == 0 {
            let at = self.dice.below(self.models.len() as u64) as usize;
            let (qpn, model) = self.models.remove(at);
            let queues = self.table.remove(Qpn::from_low_bits(qpn)).unwrap();
            self.away.push((queues, model));
        } else if let Some((queues, model)) = self.away.pop() {
            self.models.push((queues.0.qpn().get(), model));
            assert!(self.table.insert(queues).is_ok());
        }
    }
}

#[test]
fn polling_retires_what_a_search_would() {
    // Five queue pairs complete to one queue of eight entries, over many laps. Some queue pairs are at the
    // position in the table that their user index names, others are not. Requests have one or more blocks,
    // and are silent or signalled. Some entries are valid, others are not.
    let mut rings = [[Wqebb::ZERO; 16]; 5];
    let mut receive_rings = [[DataSegment::default(); 4]; 5];
    let records = [const { DoorbellRecord::new() }; 5];
    let mut slots = [const { TableSlot::EMPTY }; 8];
    let mut world = World {
        dice: Dice(1),
        table: QpTable::new(&mut slots),
        models: Vec::new(),
        away: Vec::new(),
        mkeys: MKEYS.map(|index| signature_mkey(Key::from_raw(index << 8))),
        ring: [Cqe::UNWRITTEN; 8],
        record: CqDoorbellRecord::new(),
        pending: VecDeque::new(),
        consumer: 0,
        completed: 0,
        refused: 0,
    };
    let parts = rings.iter_mut().zip(&mut receive_rings).zip(&records);
    for (qpn, ((ring, receive_ring), record)) in [0x10, 0xff_fffe, 0x11, 0x50, 0x90].into_iter().zip(parts) {
        let config = ReceiveQueueConfig { qpn: Qpn::from_low_bits(qpn), entries_per_slot: 1 };
        let receive = ReceiveQueue::new(config, receive_ring, vec![0; 4].leak(), record).unwrap();
        assert!(world.table.insert((send(config.qpn, ring, record), receive)).is_ok());
        world.models.push((qpn, Model::default()));
    }
    for id in 0..60_000 {
        world.post(id);
        if world.dice.below(3) != 0 {
            world.write();
        }
        if world.dice.below(4) == 0 {
            world.poll();
        }
        if world.dice.below(64) == 0 {
            world.come_and_go();
        }
    }
    let World { completed, refused, .. } = world;
    assert!(completed > 10_000 && refused > 1000, "{completed} completed, {refused} refused");
}

#[test]
fn a_table_takes_what_it_has_room_for() {
    let mut rings = [[Wqebb::ZERO; 16]; 4];
    let records = [const { DoorbellRecord::new() }; 4];
    let mut slots = [const { TableSlot::EMPTY }; 2];
    let mut table = QpTable::<Send<'_>>::new(&mut slots);
    let mut memory = rings.iter_mut().zip(&records);
    let mut insert = |qpn| {
        let (ring, record) = memory.next().unwrap();
        table
            .insert(send(Qpn::from_low_bits(qpn), ring, record))
            .map_err(|(error, queue)| (error, queue.qpn().get()))
    };
    assert_eq!(insert(7), Ok(()));
    assert_eq!(insert(7), Err((QueueError::QpnInUse { qpn: Qpn::from_low_bits(7) }, 7)));
    assert_eq!(insert(8), Ok(()));
    assert_eq!(insert(9), Err((QueueError::TableFull { capacity: 2 }, 9)));
    assert_eq!(table.next_user_index(), 2);
    assert!(table.remove(Qpn::from_low_bits(7)).is_some() && table.remove(Qpn::from_low_bits(7)).is_none());
    assert_eq!(table.iter_mut().map(|queue| queue.qpn().get()).collect::<Vec<_>>(), [8]);
}

/// A router that finds the queues of a wrong queue pair.
struct Wrong<'q, 'r>(&'q mut Send<'r>);

impl<'r> CompletionRouter for Wrong<'_, 'r> {
    type Queues = Send<'r>;

    fn queues(&mut self, _: CqeOrigin) -> Option<&mut Send<'r>> {
        Some(self.0)
    }

    fn signature_error(&mut self, _: &crate::mkey::SignatureFault) -> Option<usize> {
        None
    }
}

#[test]
fn a_router_that_is_wrong_retires_nothing() {
    // The number of the second queue pair differs from that in the entry only in its highest byte.
    for other in [0x43, 1 << 16 | QPN.get()] {
        let (mut sq_ring, sq_record) = ([Wqebb::ZERO; 16], DoorbellRecord::new());
        let mut send = send(Qpn::from_low_bits(other), &mut sq_ring, &sq_record);
        send.request(1).nop().unwrap();
        send.ring_doorbell();
        for opcode in [CqeOpcode::REQUESTER, CqeOpcode::REQUESTER_ERROR] {
            let (mut ring, record) = queue(&[cqe(opcode, 0, 0)]);
            let mut completions = CompletionQueue::new(&mut ring, &record).unwrap();
            let unknown = CompletionError::UnknownQueuePair { qpn: QPN.get() };
            assert_eq!(completions.poll(&mut Wrong(&mut send)), Some(Err(unknown)));
            assert_eq!((send.outstanding(), record.bytes()[0]), (1, [0, 0, 0, 1]));
        }
    }
}

#[test]
fn a_table_tells_numbers_apart_by_all_their_bits() {
    let other = Qpn::from_low_bits(1 << 16 | QPN.get());
    let (mut rings, records) = ([[Wqebb::ZERO; 16]; 2], [(); 2].map(|()| DoorbellRecord::new()));
    let [first, second] = &mut rings;
    let mut slots = [const { TableSlot::EMPTY }; 2];
    let mut table = QpTable::<Send<'_>>::new(&mut slots);
    for queues in [send(other, first, &records[0]), send(QPN, second, &records[1])] {
        assert!(table.insert(queues).is_ok());
    }
    for queues in table.iter_mut() {
        queues.request(1).nop().unwrap();
        queues.ring_doorbell();
    }
    // The user index names the first queue pair, the queue pair number names the second.
    let (mut ring, record) = queue(&[Cqe { user_index: U32::new(0), ..cqe(CqeOpcode::REQUESTER, 0, 0) }]);
    let mut completions = CompletionQueue::new(&mut ring, &record).unwrap();
    let done = completions.poll(&mut table.router(&mut [])).unwrap().unwrap();
    assert_eq!(done.work().map(|work| work.qpn), Some(QPN));
    assert!(table.iter_mut().map(|queues| queues.outstanding()).eq([1, 0]));
}

#[test]
fn inner_requests_complete_unseen() {
    let (mut sq_ring, sq_record) = ([Wqebb::ZERO; 16], DoorbellRecord::new());
    let mut send = send(QPN, &mut sq_ring, &sq_record);
    let prepared = signing(BlockSignature::both(CRC32, CRC32));
    let mut mkey = signature_mkey(Key::from_raw(0x7700));
    for _ in 0..3 {
        send.request(1).configure_mkey(&mut mkey, &prepared, Layout::Unchanged).unwrap();
    }
    send.ring_doorbell();
    // Each entry completes a part of a configuration: the UMR, or the first of the two SET_PSVs.
    let (mut ring, record) = queue(&[0, 3, 5, 8].map(|counter| cqe(CqeOpcode::REQUESTER, counter, 0)));
    let mut completions = CompletionQueue::new(&mut ring, &record).unwrap();
    let mut router = QpRouter { queues: &mut send, mkeys: &mut [] };
    assert_eq!(completions.poll(&mut router), None);
    assert_eq!(record.bytes()[0], [0, 0, 0, 4], "their slots are given back");
    assert_eq!((send.outstanding(), send.free_blocks()), (4, 16 - 6));
}

#[test]
fn a_panic_of_the_user_loses_no_completion_and_takes_none_twice() {
    let (mut sq_ring, sq_record) = ([Wqebb::ZERO; 16], DoorbellRecord::new());
    let mut send = send(QPN, &mut sq_ring, &sq_record);
    for id in 0..4 {
        send.request(id).nop().unwrap();
    }
    send.ring_doorbell();
    let (mut ring, record) = queue(&[0, 1, 2, 3].map(|counter| cqe(CqeOpcode::REQUESTER, counter, 0)));
    let mut completions = CompletionQueue::new(&mut ring, &record).unwrap();
    let mut seen = Vec::new();
    let mut router = QpRouter { queues: &mut send, mkeys: &mut [] };
    let id = |completion: Result<Completion, _>| completion.unwrap().work().unwrap().id;
    let result = std::panic::catch_unwind(core::panic::AssertUnwindSafe(|| {
        completions.poll_batch(4, &mut router, |completion| {
            seen.push(id(completion));
            assert!(seen.len() != 2, "enough");
        })
    }));
    assert!(result.is_err());
    assert_eq!((router.queues.outstanding(), completions.consumer), (2, 2));
    completions.poll_batch(4, &mut router, |completion| seen.push(id(completion)));
    assert_eq!(seen, [0, 1, 2, 3]);
    assert_eq!(record.bytes()[0], [0, 0, 0, 4]);
}

#[test]
fn waiting_ends_with_a_completion_or_at_the_limit() {
    let (mut ring, record) = queue(&[cqe(CqeOpcode::RESPONDER_SEND, 0, 0), Cqe::UNWRITTEN]);
    let (mut rq_ring, rq_record) = (vec![DataSegment::default(); 2], DoorbellRecord::new());
    let config = ReceiveQueueConfig { qpn: QPN, entries_per_slot: 1 };
    let mut receive = ReceiveQueue::new(config, &mut rq_ring, vec![0; 2].leak(), &rq_record).unwrap();
    receive.post(21, &[]).unwrap();
    receive.publish();
    let mut router = QpRouter { queues: &mut receive, mkeys: &mut [] };
    let mut completions = CompletionQueue::new(&mut ring, &record).unwrap();
    let mut no_delay = CheckedDelay::new(&[]);
    let completion = completions.wait(&mut router, &mut no_delay, 3, 50).unwrap();
    assert_eq!(completion.work().map(|work| work.id), Some(21));
    no_delay.done();
    let mut delay = CheckedDelay::new(&[Transaction::delay_us(50), Transaction::delay_us(50)]);
    let timed_out = completions.wait(&mut router, &mut delay, 3, 50);
    assert_eq!(timed_out, Err(CompletionError::TimedOut));
    delay.done();
}

#[test]
fn what_is_discarded_leaves_the_rest_in_order() {
    // The ring holds entries of two queue pairs in every mixture. The first entry that was not taken is at
    // every place of the ring, in two laps.
    let other = Qpn::from_low_bits(0x43);
    let is_signature_error = |index: u64| index % 5 == 4;
    for (taken, mix) in (0..16_u64).flat_map(|taken| (0..256_u32).map(move |mix| (taken, mix))) {
        let written = mix.count_ones() as u64 % 3 + 6;
        let mut entries = vec![Cqe::UNWRITTEN; 8];
        for index in 0..taken + written {
            // A signature error names no queue pair, whatever the fields for the queue pair contain.
            let opcode =
                if is_signature_error(index) { CqeOpcode::SIGNATURE_ERROR } else { CqeOpcode::REQUESTER };
            let mut entry = cqe(opcode, index as u16, (index >> 3 & 1) as u8);
            if mix >> (index % 8) & 1 == 0 {
                entry.sop_qpn = U32::new(other.get());
            }
            entries[index as usize % 8] = entry;
        }
        let (mut ring, record) = queue(&entries);
        let mut completions = CompletionQueue::new(&mut ring, &record).unwrap();
        completions.consumer = taken;
        let expected: Vec<u16> = (taken..taken + written)
            .filter(|index| mix >> (index % 8) & 1 == 1 || is_signature_error(*index))
            .map(|index| index as u16)
            .collect();
        let discarded = completions.discard(|entry| entry.is_of(other));
        assert_eq!(discarded, written as usize - expected.len());
        if discarded > 0 {
            let consumed = u32::from_be_bytes(record.bytes()[0]);
            assert_eq!(u64::from(consumed), taken + discarded as u64, "their slots are free");
        }
        let mut left = Vec::new();
        while let Some(entry) = completions.take_entry() {
            left.push(entry.wqe_counter.get());
        }
        assert_eq!(left, expected, "{taken} {mix:#x}");
        assert_eq!(completions.consumer, taken + written);
    }
}

/// A router that records the queue pairs that entries name.
struct Origins(Vec<CqeOrigin>);

impl CompletionRouter for Origins {
    type Queues = Send<'static>;

    fn queues(&mut self, origin: CqeOrigin) -> Option<&mut Send<'static>> {
        self.0.push(origin);
        None
    }

    fn signature_error(&mut self, _: &crate::mkey::SignatureFault) -> Option<usize> {
        None
    }
}

#[test]
fn a_router_is_asked_for_number_and_user_index() {
    // The user index is the low 24 bits of its word. The router must not get the highest byte, which belongs
    // to another field.
    let entry = |opcode| Cqe { user_index: U32::new(0xa5_12_34_56), ..cqe(opcode, 0, 0) };
    let mut origins = Origins(Vec::new());
    for opcode in [CqeOpcode::REQUESTER, CqeOpcode::REQUESTER_ERROR] {
        let (mut ring, record) = queue(&[entry(opcode)]);
        let mut completions = CompletionQueue::new(&mut ring, &record).unwrap();
        assert!(completions.poll(&mut origins).is_some_and(|completion| completion.is_err()));
    }
    let expected = CqeOrigin { qpn: QPN, user_index: 0x12_34_56 };
    assert!(origins.0.len() >= 2 && origins.0.iter().all(|origin| *origin == expected), "{:x?}", origins.0);
}

#[test]
fn a_completion_comes_with_its_entry() {
    let timestamp = U64::new(0x0123_4567_89ab_cdef);
    let (mut ring, record) = queue(&[Cqe { timestamp, ..cqe(CqeOpcode::REQUESTER, 0, 0) }]);
    let mut completions = CompletionQueue::new(&mut ring, &record).unwrap();
    let (mut sq_ring, sq_record) = ([Wqebb::ZERO; 16], DoorbellRecord::new());
    let mut send = send(QPN, &mut sq_ring, &sq_record);
    send.request(7).signaled().nop().unwrap();
    send.ring_doorbell();
    let mut router = QpRouter { queues: &mut send, mkeys: &mut [] };
    let (entry, completion) = completions.poll_with_entry(&mut router).unwrap();
    assert_eq!((entry.timestamp, completion.unwrap().work().map(|work| work.id)), (timestamp, Some(7)));
    assert_eq!(record.bytes()[0], [0, 0, 0, 1], "its slot is given back");
    assert!(completions.poll_with_entry(&mut router).is_none());
}

#[test]
fn a_send_queue_alone_has_no_receives() {
    let (mut ring, record) = ([Wqebb::ZERO; 16], DoorbellRecord::new());
    let done = CompletedReceive::new(QPN, 0, CqIdentity(0));
    assert_eq!(QpQueues::retire_receive(&mut send(QPN, &mut ring, &record), done), None);
}
