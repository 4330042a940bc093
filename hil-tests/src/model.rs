//! What a send queue must do, in the plainest way: one list of work requests, searched from the front.

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

/// A work request as the model remembers it. A configuration is several: its UMR, and each of its SET_PSVs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Work {
    /// What the user calls it.
    pub id: u64,
    /// What it is.
    pub kind: RequestKind,
    /// Its first block, counted from the queue pair's start.
    pub begin: u64,
    /// Its blocks.
    pub blocks: u32,
    /// Whether it completes by itself.
    pub signaled: bool,
}

/// A send queue.
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
    /// An empty queue over a ring of this number of blocks, which begins at this block.
    pub fn new(ring: u32, max_requests: u32, first_block: u64) -> Self {
        let (producer, published, executed) = (first_block, first_block, first_block);
        Self { ring, max_requests, producer, published, executed, works: VecDeque::new() }
    }

    /// The next block to post.
    pub fn producer(&self) -> u64 {
        self.producer
    }

    /// The block after the last one published.
    pub fn published(&self) -> u64 {
        self.published
    }

    /// What is posted and not retired, oldest first.
    pub fn works(&self) -> &VecDeque<Work> {
        &self.works
    }

    /// Blocks that nothing outstanding fills.
    pub fn free_blocks(&self) -> u32 {
        let tail = self.works.front().map_or(self.producer, |work| work.begin);
        self.ring - (self.producer - tail) as u32
    }

    /// Work requests outstanding.
    pub fn outstanding(&self) -> u32 {
        self.works.len() as u32
    }

    /// Whether work requests with these blocks together may be posted.
    ///
    /// # Errors
    /// As posting says.
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

    /// Posts the parts of a request, each with its blocks. The last of them is signalled if any is.
    pub fn post(&mut self, id: u64, signaled: bool, parts: &[(RequestKind, u32)]) {
        for (at, (kind, blocks)) in parts.iter().enumerate() {
            let signaled = signaled && at + 1 == parts.len();
            let work = Work { id, kind: *kind, begin: self.producer, blocks: *blocks, signaled };
            self.works.push_back(work);
            self.producer += u64::from(*blocks);
        }
    }

    /// The device learns of what is posted.
    pub fn publish(&mut self) {
        self.published = self.producer;
    }

    /// The device executes all that is published.
    pub fn execute(&mut self) {
        self.executed = self.published;
    }

    /// Retires what begins at this block, modulo 2^16, and all before it.
    pub fn retire(&mut self, counter: u16) -> Option<Retired> {
        let at = self.find(counter)?;
        self.works.drain(..=at).next_back().map(|Work { id, kind, .. }| Retired { id, kind })
    }

    /// Takes the names of all completions of what was executed; what is silent leaves with the next that is not.
    pub fn poll(&mut self) -> Vec<u64> {
        let done = |work: &Work| work.begin < self.executed && work.signaled;
        let gone = self.works.iter().rposition(done).map_or(0, |last| last + 1);
        self.works.drain(..gone).filter(|work| work.signaled).map(|work| work.id).collect()
    }

    /// Cancels what is called `id`, from the block on with this number modulo 2^16. Returns where each of them begins.
    ///
    /// # Errors
    /// [`PostError::NotOutstanding`].
    pub fn cancel(&self, id: u64, counter: u16) -> Result<Vec<u64>, PostError> {
        let next = match self.find(counter) {
            _ if counter == self.published as u16 => self.published,
            Some(at) => self.works[at].begin,
            None => return Err(PostError::NotOutstanding { counter }),
        };
        let named = self.works.iter().filter(|work| work.id == id && work.begin >= next);
        Ok(named.map(|work| work.begin).collect())
    }

    /// Begins anew at block 0. Returns what was outstanding.
    pub fn restart(&mut self) -> Vec<Retired> {
        let lost = self.works.iter().map(|Work { id, kind, .. }| Retired { id: *id, kind: *kind }).collect();
        *self = Self::new(self.ring, self.max_requests, 0);
        lost
    }

    fn find(&self, counter: u16) -> Option<usize> {
        let begins = |work: &Work| work.begin as u16 == counter && work.begin < self.published;
        self.works.iter().position(begins)
    }
}

/// Retires a send request as the completion with this counter does.
pub fn retire_send(queue: &mut impl QpQueues, counter: u16) -> Option<Retired> {
    complete(queue, CqeOpcode::REQUESTER, counter).0
}

/// Retires a receive request as the completion with this counter does.
pub fn retire_receive(queue: &mut impl QpQueues, counter: u16) -> Option<u64> {
    complete(queue, CqeOpcode::RESPONDER_SEND, counter).1
}

/// Hands a queue pair the completion that a completion queue makes of an entry, and returns what it retires.
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

/// A queue pair, and what it retired last.
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
