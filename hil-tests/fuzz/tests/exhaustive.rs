//! Tests a send queue with all sequences of ten steps, on rings of up to eight blocks. A step posts a
//! request, posts one that must be refused, or completes the oldest or the newest request.
//!
//! A model, a list of requests, gives the expected result of each step. A refused request must leave no
//! trace. If two sequences lead to the same state of the queue, byte by byte, only one of them is continued.
#![allow(unsafe_code, missing_docs, clippy::unwrap_used, clippy::indexing_slicing)]

use hil_scenarios::doorbell::Silent;
use hil_tests::model::{QueueModel, Work, retire_send};
use mlx5_mkey::error::PostError;
use mlx5_mkey::queue::{DoorbellRecord, RequestKind, SendQueue, SendQueueConfig, SendSlot};
use mlx5_mkey::types::{Key, Qpn};
use mlx5_mkey::wire::Wqebb;
use mlx5_mkey::wqe::{Remote, Sge};
use std::arch::asm;
use std::collections::HashSet;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::mem::MaybeUninit;
use zerocopy::IntoBytes;

const STEPS: u32 = 10;

const BLOCKS: usize = 8;

type Queue<'r> = SendQueue<'r, Silent>;

#[derive(Clone, Copy, Debug)]
enum Step {
    /// Posts a request of one block.
    Short,
    /// Posts a request of three blocks.
    Long,
    /// Posts a request of three blocks whose last data segment is refused.
    Refuse,
    /// Publishes, and completes the oldest request.
    Oldest,
    /// Completes the newest published request and all earlier ones.
    Newest,
}

const ALL: [Step; 5] = [Step::Short, Step::Long, Step::Refuse, Step::Oldest, Step::Newest];

const COUNT: u64 = ALL.len() as u64;

const REMOTE: Remote = Remote { address: 0, rkey: Key::from_raw(0x500) };

/// Returns ten data segments, the last with the length `last`. With control segment and remote address they
/// fill three blocks.
const fn segments(last: u32) -> [Sge; 10] {
    let mut sges = [Sge { address: 0x1000, length: 1, lkey: Key::from_raw(0x600) }; 10];
    sges[9].length = last;
    sges
}

/// A queue with its model, and the number of completed sequences.
struct Walk<'r> {
    queue: Queue<'r>,
    /// The ring that the queue borrows.
    ring: *mut [Wqebb; BLOCKS],
    /// The slots that the queue borrows.
    slots: *mut [SendSlot; BLOCKS],
    model: QueueModel,
    /// The steps from the start to the current state.
    taken: Vec<Step>,
    /// Hashes of the states that sequences have reached, with the remaining steps.
    seen: HashSet<u64>,
    ended: u64,
}

impl Walk<'_> {
    fn step(&mut self, step: Step) {
        let Self { queue, model, .. } = self;
        let id = model.producer();
        let (long, refused) = (segments(1), segments(0));
        match step {
            Step::Short => {
                let room = model.room(1, 1);
                assert_eq!(queue.request(id).nop(), room, "{:?}", self.taken);
                if room.is_ok() {
                    model.post(id, &[(RequestKind::Nop, 1)]);
                }
            }
            Step::Long => {
                let room = model.room(1, 3);
                assert_eq!(queue.request(id).rdma_write(REMOTE, &long), room, "{:?}", self.taken);
                if room.is_ok() {
                    model.post(id, &[(RequestKind::RdmaWrite, 3)]);
                }
            }
            Step::Refuse => {
                let error = PostError::SgeEmpty { index: 9 };
                assert_eq!(queue.request(id).rdma_write(REMOTE, &refused), Err(error), "{:?}", self.taken);
            }
            Step::Oldest => {
                queue.ring_doorbell();
                model.publish();
                let counter = model.works().front().map_or(model.producer(), |work| work.begin) as u16;
                assert_eq!(retire_send(queue, counter), model.retire(counter), "{:?}", self.taken);
            }
            Step::Newest => {
                let published = |work: &&Work| work.begin < model.published();
                let newest = model.works().iter().rfind(published).or(model.works().back());
                let counter = newest.map_or(model.producer(), |work| work.begin) as u16;
                assert_eq!(retire_send(queue, counter), model.retire(counter), "{:?}", self.taken);
            }
        }
        assert_eq!(queue.free_blocks(), model.free_blocks(), "{:?}", self.taken);
        assert_eq!(queue.outstanding(), model.outstanding(), "{:?}", self.taken);
        assert_eq!(queue.producer(), model.producer() as u32, "{:?}", self.taken);
        self.check_ring();
    }

    /// Asserts that each outstanding request begins with its block number and size.
    fn check_ring(&self) {
        for work in self.model.works() {
            let block = self.queue.block(work.begin as u32).0;
            let octowords = if work.blocks == 1 { 1 } else { 12 };
            let number = [block[1], block[2]];
            assert_eq!(
                (number, block[7]),
                ((work.begin as u16).to_be_bytes(), octowords),
                "{:?}",
                self.taken
            );
            if work.blocks == 3 {
                // The first data segment is in the first block, the last one in the last block.
                let last = self.queue.block(work.begin as u32 + 2).0;
                assert_eq!((block[35], last[51]), (1, 1), "{:?}", self.taken);
            }
        }
    }

    /// Returns whether no sequence has reached this state of queue, ring and model with this number of
    /// remaining steps.
    fn is_new(&mut self, left: u32) -> bool {
        // There are at most 30,000 states. Two of them have the same hash with a probability of 1 in 10^10.
        let mut hash = DefaultHasher::new();
        let queue = &raw mut self.queue;
        // SAFETY: the assembly does nothing. It makes the compiler treat all bytes as written, also the bytes
        // of padding.
        unsafe { asm!("/* {} */", in(reg) queue, options(nostack, preserves_flags)) };
        // SAFETY: these are the bytes of the queue. No other code changes them during the call.
        hash.write(unsafe { std::slice::from_raw_parts(queue.cast(), size_of::<Queue<'_>>()) });
        // SAFETY: the ring lives as long as the queue, which does not access it here.
        hash.write(unsafe { self.ring.read_volatile() }.as_bytes());
        // SAFETY: the slots live as long as the queue, which does not access them here.
        hash.write(unsafe { self.slots.read_volatile() }.as_bytes());
        let works = self.model.works().iter().map(|work| (work.id, work.begin, work.blocks, work.kind));
        works.for_each(|work| work.hash(&mut hash));
        (self.model.producer(), self.model.published(), left).hash(&mut hash);
        self.seen.insert(hash.finish())
    }

    /// Takes each of the steps from this state, and then all sequences of `left - 1` further steps. Restores
    /// the state after each.
    fn walk(&mut self, left: u32) {
        if left == 0 || !self.is_new(left) {
            self.ended += COUNT.pow(left);
            return;
        }
        for step in ALL {
            let mut kept = MaybeUninit::<Queue<'_>>::uninit();
            let model = self.model.clone();
            // SAFETY: the queue consists of references and numbers and owns nothing. The copy only restores
            // the queue.
            unsafe { kept.as_mut_ptr().copy_from_nonoverlapping(&raw const self.queue, 1) };
            // SAFETY: the ring lives as long as the queue, which does not access it here.
            let blocks = unsafe { self.ring.read_volatile() };
            // SAFETY: the slots live as long as the queue, which does not access them here.
            let slots = unsafe { self.slots.read_volatile() };
            self.taken.push(step);
            self.step(step);
            self.walk(left - 1);
            self.taken.pop();
            // SAFETY: `kept` holds a copy of the queue. The queue owns nothing, so the overwritten value
            // needs no drop.
            unsafe { (&raw mut self.queue).copy_from_nonoverlapping(kept.as_ptr(), 1) };
            // SAFETY: the ring lives as long as the queue, which does not access it here.
            unsafe { self.ring.write_volatile(blocks) };
            // SAFETY: the slots live as long as the queue, which does not access them here.
            unsafe { self.slots.write_volatile(slots) };
            self.model = model;
        }
    }
}

/// Walks through all sequences on a ring of `blocks` blocks. The first request begins at the last block, so
/// that requests wrap around the end of the ring.
fn all_on(blocks: usize) {
    let (mut ring, record) = ([Wqebb::ZERO; BLOCKS], DoorbellRecord::new());
    let first_block = 0xffff;
    let config = SendQueueConfig { first_block, ..SendQueueConfig::new(Qpn::from_low_bits(1)) };
    let all = &raw mut ring;
    // SAFETY: the array outlives the queue, and no other reference to it exists.
    let part = unsafe { &mut (&mut *all)[..blocks] };
    let mut slots = SendSlot::array::<BLOCKS>();
    let all_slots = &raw mut slots;
    // SAFETY: the array of slots outlives the queue, and no other reference to it exists.
    let queue = Queue::new(config, part, unsafe { &mut *all_slots }, &record, Silent).unwrap();
    let model = QueueModel::new(blocks as u32, u32::MAX, first_block.into());
    let mut walk =
        Walk { queue, ring: all, slots: all_slots, model, taken: Vec::new(), seen: HashSet::new(), ended: 0 };
    walk.walk(STEPS);
    assert_eq!(walk.ended, COUNT.pow(STEPS));
}

#[test]
fn all_sequences_on_one_and_two_blocks() {
    all_on(1);
    all_on(2);
}

#[test]
fn all_sequences_on_four_blocks() {
    all_on(4);
}

#[test]
fn all_sequences_on_eight_blocks() {
    all_on(8);
}
