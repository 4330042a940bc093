//! A simple model of a send queue: one list of work requests, searched from the front. Fuzzing
//! compares the library's queue with this model.

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

/// A work request in the model. A configuration of an mkey consists of several: its UMR, then its SET_PSVs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Work {
    /// The id that the user gave (`wr_id`).
    pub id: u64,
    /// The kind of request.
    pub kind: RequestKind,
    /// Number of the first WQEBB, counted from the start of the queue pair without wrapping.
    pub begin: u64,
    /// Number of WQEBBs.
    pub blocks: u32,
}

/// The model of a send queue.
#[derive(Clone, Debug)]
pub struct QueueModel {
    ring: u32,
    max_requests: u32,
    producer: u64,
    published: u64,
    works: VecDeque<Work>,
}

impl QueueModel {
    /// Makes an empty queue over a ring of `ring` blocks. Its first request begins at block `first_block`.
    pub fn new(ring: u32, max_requests: u32, first_block: u64) -> Self {
        Self { ring, max_requests, producer: first_block, published: first_block, works: VecDeque::new() }
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

    /// Returns the number of blocks that no outstanding request fills.
    pub fn free_blocks(&self) -> u32 {
        let tail = self.works.front().map_or(self.producer, |work| work.begin);
        self.ring - (self.producer - tail) as u32
    }

    /// Returns the number of outstanding work requests.
    pub fn outstanding(&self) -> u32 {
        self.works.len() as u32
    }

    /// Checks whether `requests` work requests, with `blocks` blocks in all, fit into the queue.
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

    /// Posts a request that consists of `parts`: the kind and the number of blocks of each work request.
    pub fn post(&mut self, id: u64, parts: &[(RequestKind, u32)]) {
        for (kind, blocks) in parts {
            self.works.push_back(Work { id, kind: *kind, begin: self.producer, blocks: *blocks });
            self.producer += u64::from(*blocks);
        }
    }

    /// Publishes all posted requests to the device.
    pub fn publish(&mut self) {
        self.published = self.producer;
    }

    /// Retires the published request whose first block has the number `counter` modulo 2^16, and all earlier
    /// ones. Returns id and kind of the named request.
    pub fn retire(&mut self, counter: u16) -> Option<(u64, RequestKind)> {
        let at = self.find(counter)?;
        self.works.drain(..=at).next_back().map(|Work { id, kind, .. }| (id, kind))
    }

    /// Returns the first block of each request that a cancellation would replace: the requests with this
    /// `id`, from the block `counter` (modulo 2^16) on. The model stays unchanged.
    ///
    /// # Errors
    /// [`PostError::NotOutstanding`] if no published request begins at block `counter`.
    pub fn cancel(&self, id: u64, counter: u16) -> Result<Vec<u64>, PostError> {
        let next = match self.find(counter) {
            _ if counter == self.published as u16 => self.published,
            Some(at) => self.works[at].begin,
            None => return Err(PostError::NotOutstanding { counter }),
        };
        let named = self.works.iter().filter(|work| work.id == id && work.begin >= next);
        Ok(named.map(|work| work.begin).collect())
    }

    /// Empties the queue and continues at block 0, as after a reset. Returns the requests that were
    /// outstanding.
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

/// Retires a send request of the library's queue by a completion with this counter. Returns id and kind of
/// the request.
pub fn retire_send(queue: &mut impl QpQueues, counter: u16) -> Option<(u64, RequestKind)> {
    complete(queue, CqeOpcode::REQUESTER, counter).0.map(|Retired { id, kind, .. }| (id, kind))
}

/// Retires a receive request of the library's queue by a completion with this counter. Returns its id.
pub fn retire_receive(queue: &mut impl QpQueues, counter: u16) -> Option<u64> {
    complete(queue, CqeOpcode::RESPONDER_SEND, counter).1
}

/// Polls a completion entry with this opcode and counter for a queue pair. Returns the retired send request
/// and the id of the retired receive request.
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

/// A wrapper of a queue pair's queues that remembers the last retired send request and receive request.
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
