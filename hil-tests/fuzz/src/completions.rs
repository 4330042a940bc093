//! Fuzz target for completion queues whose memory another thread writes all the time, in the role of the
//! device. Polling must end, and must report each posted request at most once.

use crate::input::Input;
use crate::memory::Shared;
use hil_scenarios::board::NoTime;
use hil_scenarios::doorbell::Silent;
use mlx5_mkey::error::CompletionError;
use mlx5_mkey::mkey::{Mkey, MkeyAttributes, SignatureAttributes};
use mlx5_mkey::queue::{
    ArmFor, Completion, CompletionQueue, CqDoorbellRecord, DoorbellRecord, Outcome, QpTable, ReceiveQueue,
    ReceiveQueueConfig, SendQueue, SendQueueConfig, SendSlot, TableSlot,
};
use mlx5_mkey::types::{Key, PsvIndex, Qpn};
use mlx5_mkey::wire::Wqebb;
use mlx5_mkey::wire::cqe::{Cqe, Cqe128, CqeOpcode, CqeSlot};
use mlx5_mkey::wire::data::DataSegment;
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Once, PoisonError};
use std::thread;
use std::time::Duration;
use zerocopy::byteorder::big_endian::{U16, U32};

/// The number of entries of the completion queue's ring.
const ENTRIES: usize = 8;
/// Number of blocks of a send queue, and of slots of a receive queue. Both queues start just before the
/// 16-bit counter wraps.
const SLOTS: usize = 8;
const FIRST: u16 = 0xfffa;
/// Numbers of the queue pairs.
const QPNS: [u32; 2] = [0x40, 0x41];
/// This bit marks the id (`wr_id`) of a receive request.
const RECEIVE: u64 = 1 << 40;
/// Index of the mkey that signature errors are for.
const MKEY: u32 = 0x1234;

/// A ring of completion entries, and the state of the generator that makes the entries.
struct Ring<E> {
    slots: Shared<E>,
    state: AtomicU64,
}

/// A ring that the device thread writes to.
trait Written: Send + Sync {
    /// Writes some entries, valid and invalid.
    fn write(&self);
}

impl<E: CqeSlot> Written for Ring<E> {
    fn write(&self) {
        let mut state = self.state.load(Ordering::Relaxed);
        for _ in 0..128 {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            self.slots.write((state >> 60) as usize % ENTRIES, E::of(entry(state)));
        }
        self.state.store(state, Ordering::Relaxed);
    }
}

/// Selects the ring that the device thread writes to, or none. The first call starts the thread.
fn set_written(ring: Option<Arc<dyn Written>>) {
    static RING: Mutex<Option<Arc<dyn Written>>> = Mutex::new(None);
    static WRITER: Once = Once::new();
    let written = || RING.lock().unwrap_or_else(PoisonError::into_inner);
    *written() = ring;
    WRITER.call_once(|| {
        thread::spawn(move || {
            loop {
                let ring = written().clone();
                if let Some(ring) = ring {
                    ring.write();
                }
                // The pause lets other threads run on this core.
                thread::sleep(Duration::from_micros(10));
            }
        });
    });
}

/// Makes an entry from random bits.
fn entry(bits: u64) -> Cqe {
    let opcode = match bits & 7 {
        0..4 => CqeOpcode::REQUESTER.0,
        4 => CqeOpcode::SIGNATURE_ERROR.0,
        _ => (bits >> 8) as u8 & 0xf,
    };
    // The owner bit is random. One entry in eight has a random format, too.
    let low = (bits >> 16) as u8 & if bits >> 24 & 7 == 0 { 0xf } else { 1 };
    let word = U32::new(match opcode == CqeOpcode::SIGNATURE_ERROR.0 {
        true => MKEY << 8,
        false => QPNS[(bits >> 32) as usize & 1] + u32::from(bits >> 33 & 15 == 0),
    });
    Cqe {
        user_index: U32::new((bits >> 40) as u32 & 3),
        wqe_counter: U16::new(FIRST.wrapping_add((bits >> 44) as u16 & 15)),
        byte_count: U32::new(bits as u32),
        imm_inval: word,
        sop_qpn: word,
        op_own: opcode << 4 | low,
        ..Cqe::UNWRITTEN
    }
}

/// The rings and record of a queue pair.
struct Memory {
    send: Shared<Wqebb>,
    receive: Shared<DataSegment>,
    slots: Shared<SendSlot>,
    ids: Shared<u64>,
    record: DoorbellRecord,
}

impl Memory {
    fn new() -> Self {
        let (send, receive) = (vec![Wqebb::ZERO; SLOTS], vec![DataSegment::default(); SLOTS]);
        let (slots, ids) = (Shared::new(vec![SendSlot::EMPTY; SLOTS]), Shared::new(vec![0; SLOTS]));
        let (send, receive) = (Shared::new(send), Shared::new(receive));
        Self { send, receive, slots, ids, record: DoorbellRecord::new() }
    }

    /// Makes the queues of a queue pair.
    fn queues(&self, qpn: Qpn) -> Pair<'_> {
        let config = SendQueueConfig { first_block: FIRST.into(), ..SendQueueConfig::new(qpn) };
        let send =
            SendQueue::new(config, self.send.slots(), self.slots.slots(), &self.record, Silent).unwrap();
        let config = ReceiveQueueConfig { qpn, entries_per_slot: 1 };
        let receive =
            ReceiveQueue::new(config, self.receive.slots(), self.ids.slots(), &self.record).unwrap();
        (send, receive.starting_at(FIRST))
    }
}

/// The two queues of a queue pair.
type Pair<'m> = (SendQueue<'m, Silent>, ReceiveQueue<'m>);

/// The queue pairs and mkeys of the completion queue, and the ids (`wr_id`) of outstanding sends and receives
/// of each queue pair. Ids increase.
struct World<'m> {
    table: QpTable<'m, Pair<'m>>,
    mkeys: [Mkey; 1],
    sends: [BTreeSet<u64>; 2],
    receives: [BTreeSet<u64>; 2],
    next_id: u64,
}

impl World<'_> {
    /// Posts to both queues of a queue pair while they have room.
    fn post(&mut self, which: usize, count: u32) {
        let (send, receive) = self.table.get_mut(Qpn::from_low_bits(QPNS[which])).unwrap();
        for _ in 0..count {
            let id = self.next_id;
            self.next_id += 1;
            let posted = match id % 3 {
                0 => send.request(id).invalidate(Key::from_raw(0x500)),
                1 => send.request(id).nop(),
                _ => send.request(id).signaled().nop(),
            };
            if posted.is_ok() {
                self.sends[which].insert(id);
            }
            if receive.post(id | RECEIVE, &[]).is_ok() {
                self.receives[which].insert(id | RECEIVE);
            }
        }
        send.ring_doorbell();
        receive.publish();
    }

    /// Records a completion, which also retires all earlier requests of the same queue.
    fn note(&mut self, completion: &Result<Completion, CompletionError>) {
        match completion {
            Ok(Completion::Work(work)) => {
                let which = QPNS.iter().position(|qpn| *qpn == work.qpn.get());
                let which = which.expect("a queue pair of the table");
                let received = work.id & RECEIVE != 0;
                match work.outcome {
                    Outcome::Sent { .. } => assert!(!received),
                    Outcome::Received { .. } => assert!(received),
                    Outcome::Failed(_) => {}
                }
                let names = if received { &mut self.receives } else { &mut self.sends };
                assert!(retire(&mut names[which], work.id), "{work:?} is outstanding");
            }
            Ok(Completion::SignatureError { mkey, position }) => {
                assert_eq!((mkey.get(), *position), (MKEY, 0));
            }
            Err(error) => assert!(!error.to_string().is_empty()),
        }
    }

    /// Asserts that each queue has as many outstanding requests as `World` lists ids for it.
    fn check(&mut self) {
        for (which, qpn) in QPNS.into_iter().enumerate() {
            let (send, receive) = self.table.get_mut(Qpn::from_low_bits(qpn)).unwrap();
            assert_eq!(send.outstanding() as usize, self.sends[which].len());
            assert_eq!(SLOTS - receive.free_slots() as usize, self.receives[which].len());
        }
    }
}

/// Removes an id and all earlier ids from a list. Returns whether the list had the id.
fn retire(names: &mut BTreeSet<u64>, id: u64) -> bool {
    let there = names.contains(&id);
    if there {
        *names = names.split_off(&(id + 1));
    }
    there
}

pub(crate) fn run(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    if input.any() { over::<Cqe128>(&mut input) } else { over::<Cqe>(&mut input) }
}

/// Polls entries of one size while another thread writes them. The sequence of entries depends on the input
/// only, and the initial entries are always the same.
fn over<E: CqeSlot>(input: &mut Input<'_>) {
    let slots = Shared::new(vec![E::of(Cqe::UNWRITTEN); ENTRIES]);
    // The state of the generator must not be 0, because it would stay 0 forever.
    let state = AtomicU64::new(input.any::<u64>().max(1));
    let ring = Arc::new(Ring { slots, state });
    ring.write();
    set_written(Some(ring.clone()));
    take(input, &ring.slots);
    set_written(None);
}

/// Makes queue pairs, an mkey and a completion queue over the ring. Takes steps until the input ends.
fn take<E: CqeSlot>(input: &mut Input<'_>, ring: &Shared<E>) {
    let memory = [Memory::new(), Memory::new()];
    let record = CqDoorbellRecord::new();
    let psvs = SignatureAttributes::new(PsvIndex::from_low_bits(1), PsvIndex::from_low_bits(2));
    let attributes =
        MkeyAttributes { signature: Some(psvs), ..MkeyAttributes::plain(Key::from_raw(MKEY << 8), 4) };
    let mut slots = [const { TableSlot::EMPTY }; 2];
    let mut world = World {
        table: QpTable::new(&mut slots),
        mkeys: [Mkey::new(attributes)],
        sends: Default::default(),
        receives: Default::default(),
        next_id: 0,
    };
    for (memory, qpn) in memory.iter().zip(QPNS) {
        let inserted = world.table.insert(memory.queues(Qpn::from_low_bits(qpn)));
        assert!(inserted.is_ok(), "there is room");
    }
    let words = [input.any(), input.any()];
    let mut completions = CompletionQueue::new(ring.slots(), &record).unwrap().starting_at(words);
    for _ in 0..64 {
        if input.is_empty() {
            break;
        }
        step(input, &mut world, &mut completions);
        world.check();
    }
}

/// Takes a step: posts, polls in one of several ways, waits, discards entries, or arms the completion queue.
fn step<E: CqeSlot>(input: &mut Input<'_>, world: &mut World<'_>, completions: &mut CompletionQueue<'_, E>) {
    let mut found = Vec::new();
    let mut router = world.table.router(&mut world.mkeys);
    match input.below(8) {
        0 | 1 => {
            let which = input.below(2) as usize;
            let count = input.below(9);
            return world.post(which, count);
        }
        2 => found.extend(completions.poll(&mut router)),
        3 => {
            let max = input.below(20) as usize;
            let count = completions.poll_batch(max, &mut router, |completion| found.push(completion));
            assert!(count == found.len() && count <= max);
        }
        4 => found.extend(completions.poll_or_arm(&mut router, &mut Silent)),
        5 => {
            let attempts = input.below(4);
            let completion = completions.wait(&mut router, &mut NoTime, attempts, 1);
            found.extend((completion != Err(CompletionError::TimedOut)).then_some(completion));
        }
        6 => {
            let bit = input.below(8);
            let stale = completions.discard(|entry| entry.wqe_counter.get() >> bit & 1 == 0);
            assert!(stale <= ENTRIES);
        }
        _ => {
            completions.arm(&mut Silent, ArmFor::Solicited);
            completions.event_received();
            let _ = (completions.is_empty(), completions.take_entry());
            completions.release();
        }
    }
    found.iter().for_each(|completion| world.note(completion));
    let wrong = |completion: &_| matches!(completion, Ok(Completion::SignatureError { .. }));
    assert_eq!(world.mkeys[0].take_error() != Ok(None), found.iter().any(wrong), "the mkey has recorded it");
}
