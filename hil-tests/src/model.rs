//! A model of a send queue in the simplest form: one list of work requests, searched from the front. Fuzzing
//! and property tests compare the library's queue with this model.

use mlx5_mkey::error::PostError;
use mlx5_mkey::mkey::Mkey;
use mlx5_mkey::queue::{
    CompletedReceive, CompletedSend, CompletionQueue, CqDoorbellRecord, QpQueues, QpRouter, RequestKind,
    Retired,
};
use mlx5_mkey::types::Qpn;
use mlx5_mkey::wire::cqe::{Cqe, CqeOpcode, OpOwn};
use std::collections::VecDeque;
use zerocopy::big_endian::{U16, U32};

/// A work request in the model. A configuration consists of several: its UMR, and each of its SET_PSVs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Work {
    /// The id that the user gave (`wr_id`).
    pub id: u64,
    /// The kind of request.
    pub kind: RequestKind,
    /// Number of the first block, counted from the start of the queue pair.
    pub begin: u64,
    /// Number of blocks.
    pub blocks: u32,
    /// Whether the request gets a completion of its own.
    pub signaled: bool,
}

/// The model of a send queue.
#[derive(Clone, Debug)]
pub struct QueueModel {
    ring: u32,
    max_requests: u32,
    producer: u64,
    published: u64,
    executed: u64,
    works: VecDeque<Work>,
}

impl QueueModel {
    /// Makes an empty queue over a ring of `ring` blocks. Its first request begins at block `first_block`.
    pub fn new(ring: u32, max_requests: u32, first_block: u64) -> Self {
        let (producer, published, executed) = (first_block, first_block, first_block);
        Self { ring, max_requests, producer, published, executed, works: VecDeque::new() }
    }

    /// Returns the number of the next block to post.
    pub fn producer(&self) -> u64 {
        self.producer
    }

    /// Returns the number of the first block that is not published.
    pub fn published(&self) -> u64 {
        self.published
    }

    /// Returns the posted requests that are not retired, oldest first.
    pub fn works(&self) -> &VecDeque<Work> {
        &self.works
    }

    /// Returns the blocks that no outstanding request fills.
    pub fn free_blocks(&self) -> u32 {
        let tail = self.works.front().map_or(self.producer, |work| work.begin);
        self.ring - (self.producer - tail) as u32
    }

    /// Returns the number of outstanding work requests.
    pub fn outstanding(&self) -> u32 {
        self.works.len() as u32
    }

    /// Checks whether work requests of this many blocks together fit.
    ///
    /// # Errors
    /// [`PostError::TooManyRequests`] or [`PostError::SendRingFull`], as the library's queue returns them.
    pub fn room(&self, requests: u32, blocks: u32) -> Result<(), PostError> {
        let free = self.max_requests.saturating_sub(self.outstanding());
        if requests > free {
            return Err(PostError::TooManyRequests { needed: requests as u16, free: free as u16 });
        }
        if blocks > self.free_blocks() {
            return Err(PostError::SendRingFull { needed: blocks as u16, free: self.free_blocks() as u16 });
        }
        Ok(())
    }

    /// Posts the parts of a request, each with its blocks. Only the last part may be signalled.
    pub fn post(&mut self, id: u64, signaled: bool, parts: &[(RequestKind, u32)]) {
        for (at, (kind, blocks)) in parts.iter().enumerate() {
            let signaled = signaled && at + 1 == parts.len();
            let work = Work { id, kind: *kind, begin: self.producer, blocks: *blocks, signaled };
            self.works.push_back(work);
            self.producer += u64::from(*blocks);
        }
    }

    /// Publishes all posted requests to the device.
    pub fn publish(&mut self) {
        self.published = self.producer;
    }

    /// Executes all published requests.
    pub fn execute(&mut self) {
        self.executed = self.published;
    }

    /// Retires the request whose block has this number modulo 2^16, and all earlier ones.
    pub fn retire(&mut self, counter: u16) -> Option<(u64, RequestKind)> {
        let at = self.find(counter)?;
        self.works.drain(..=at).next_back().map(|Work { id, kind, .. }| (id, kind))
    }

    /// Returns the ids of all signalled requests that were executed, and retires these requests with all
    /// earlier ones.
    pub fn poll(&mut self) -> Vec<u64> {
        let done = |work: &Work| work.begin < self.executed && work.signaled;
        let gone = self.works.iter().rposition(done).map_or(0, |last| last + 1);
        self.works.drain(..gone).filter(|work| work.signaled).map(|work| work.id).collect()
    }

    /// Returns the first block of each request that a cancellation replaces. It replaces the requests with
    /// this `id` from the block with the number `counter` (modulo 2^16) on. The model stays unchanged.
    ///
    /// # Errors
    /// [`PostError::NotOutstanding`] if no published request begins at this block.
    pub fn cancel(&self, id: u64, counter: u16) -> Result<Vec<u64>, PostError> {
        let next = match self.find(counter) {
            _ if counter == self.published as u16 => self.published,
            Some(at) => self.works[at].begin,
            None => return Err(PostError::NotOutstanding { counter }),
        };
        let named = self.works.iter().filter(|work| work.id == id && work.begin >= next);
        Ok(named.map(|work| work.begin).collect())
    }

    /// Restarts at block 0. Returns the outstanding requests.
    pub fn restart(&mut self) -> Vec<(u64, RequestKind)> {
        let lost = self.works.iter().map(|Work { id, kind, .. }| (*id, *kind)).collect();
        *self = Self::new(self.ring, self.max_requests, 0);
        lost
    }

    fn find(&self, counter: u16) -> Option<usize> {
        let begins = |work: &Work| work.begin as u16 == counter && work.begin < self.published;
        self.works.iter().position(begins)
    }
}

/// Retires a send request by a completion with this counter.
pub fn retire_send(queue: &mut impl QpQueues, counter: u16) -> Option<(u64, RequestKind)> {
    complete(queue, CqeOpcode::REQUESTER, counter).0.map(|Retired { id, kind, .. }| (id, kind))
}

/// Retires a receive request by a completion with this counter.
pub fn retire_receive(queue: &mut impl QpQueues, counter: u16) -> Option<u64> {
    complete(queue, CqeOpcode::RESPONDER_SEND, counter).1
}

/// Polls an entry for a queue pair, and returns the retired request.
fn complete(queues: &mut impl QpQueues, opcode: CqeOpcode, counter: u16) -> (Option<Retired>, Option<u64>) {
    let mut entries = [Cqe {
        sop_qpn: U32::new(queues.qpn().get()),
        wqe_counter: U16::new(counter),
        op_own: OpOwn::new().with_opcode(opcode.0).into_bits(),
        ..Cqe::UNWRITTEN
    }];
    let record = CqDoorbellRecord::new();
    let mut completions = CompletionQueue::new(&mut entries, &record).expect("a ring of one entry");
    let mut none: [Mkey; 0] = [];
    let mut router = QpRouter { queues: Told { queues, retired: (None, None) }, mkeys: &mut none };
    let _ = completions.poll(&mut router);
    router.queues.retired
}

/// A wrapper of a queue pair's queues that keeps the last retired requests.
struct Told<'q, Q> {
    queues: &'q mut Q,
    retired: (Option<Retired>, Option<u64>),
}

impl<Q: QpQueues> QpQueues for Told<'_, Q> {
    fn qpn(&self) -> Qpn {
        self.queues.qpn()
    }

    fn retire_send(&mut self, done: CompletedSend<'_>) -> Option<Retired> {
        self.retired.0 = self.queues.retire_send(done);
        self.retired.0
    }

    fn retire_receive(&mut self, done: CompletedReceive<'_>) -> Option<u64> {
        self.retired.1 = self.queues.retire_receive(done);
        self.retired.1
    }
}
