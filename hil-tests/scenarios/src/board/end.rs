//! The ends of a connection, to which scenarios post in the way that the board says.

#![allow(unsafe_code)]

use super::{RECEIVE_SLOTS, SEND_BLOCKS};
use crate::way::{Poster, Way};
use alloc::boxed::Box;
use alloc::vec::Vec;
use core::ptr::NonNull;
use mlx5_mkey::error::{CheckError, CompletionError, PostError};
use mlx5_mkey::mkey::{Mkey, SignatureError};
use mlx5_mkey::queue::{
    Batch, Completion, CompletionQueue, Doorbell, QpRouter, ReceiveQueue, RequestKind, SendQueue, SendRequest,
};
use mlx5_mkey::types::Qpn;
use mlx5_mkey::wire::Wqebb;
use mlx5_mkey::wire::cqe::{Cqe, CqeSlot};
use mlx5_mkey::wqe::Sge;

/// Requests on their way, one by one or in a batch.
pub trait Posting {
    /// Begins a request.
    fn request(&mut self, id: u64) -> SendRequest<'_, 'static>;

    /// Publishes what was posted.
    fn publish(self: Box<Self>);
}

impl<D: Doorbell, const N: usize> Posting for Poster<'_, 'static, D, N> {
    fn request(&mut self, id: u64) -> SendRequest<'_, 'static> {
        Poster::request(self, id)
    }

    fn publish(self: Box<Self>) {
        Poster::publish(*self);
    }
}

impl<D: Doorbell, const N: usize> Posting for Batch<'_, 'static, D, N> {
    fn request(&mut self, id: u64) -> SendRequest<'_, 'static> {
        Batch::request(self, id)
    }

    fn publish(self: Box<Self>) {
        // When it is dropped, here.
    }
}

/// The queues of a queue pair and its completion queue, as the board's users have them: those of the library, or of its shim.
pub trait EndQueues {
    /// Returns the number of the queue pair.
    fn qpn(&self) -> Qpn;

    /// Begins to post in this way.
    fn open(&mut self, way: Way) -> Box<dyn Posting + '_>;

    /// Publishes send requests.
    fn ring_doorbell(&mut self);

    /// Cancels send requests of a drained queue.
    ///
    /// # Errors
    /// As [`SendQueue::cancel`].
    fn cancel(&mut self, id: u64, hw_counter: u16) -> Result<usize, PostError>;

    /// Returns how many send requests are posted and not retired.
    fn outstanding(&self) -> u32;

    /// Returns the number of the next block to post.
    fn producer(&self) -> u32;

    /// Returns how many blocks are free.
    fn free_blocks(&self) -> u32;

    /// Returns the fence mode of the next request.
    fn next_fence(&self) -> u8;

    /// Copies a block out of the send ring.
    fn block(&self, index: u32) -> Wqebb;

    /// Posts buffers for one message.
    ///
    /// # Errors
    /// As [`ReceiveQueue::post`].
    fn post_receive(&mut self, id: u64, sges: &[Sge]) -> Result<(), PostError>;

    /// Publishes receive requests.
    fn publish_receives(&mut self);

    /// Returns the next completion. Signature errors go to the mkeys.
    fn poll(&mut self, mkeys: &mut [Mkey]) -> Option<Result<Completion, CompletionError>>;

    /// Returns the first signature error of an mkey since the last call, if any.
    ///
    /// # Errors
    /// As [`CompletionQueue::check`].
    fn check(&mut self, mkey: &mut Mkey) -> Result<Option<SignatureError>, CheckError>;

    /// Takes the next completion entry as it is. Nothing is retired.
    fn take_entry(&mut self) -> Option<Cqe>;

    /// Empties the queues and drops their completions, and returns the names of the requests that were outstanding: sends, then
    /// receives. The shim resets the queue pair as well; else the board has done so.
    fn restart(&mut self) -> [Vec<u64>; 2];
}

/// The library's own queues.
pub struct CoreQueues<D, E: CqeSlot = Cqe> {
    /// Where work is posted.
    pub send: SendQueue<'static, D, SEND_BLOCKS>,
    /// Where buffers for the peer's messages are posted.
    pub receive: ReceiveQueue<'static, RECEIVE_SLOTS>,
    /// Where both report.
    pub completions: CompletionQueue<'static, E>,
}

impl<D: Doorbell, E: CqeSlot> EndQueues for CoreQueues<D, E> {
    fn qpn(&self) -> Qpn {
        self.send.qpn()
    }

    fn open(&mut self, way: Way) -> Box<dyn Posting + '_> {
        Box::new(way.open(&mut self.send))
    }

    fn ring_doorbell(&mut self) {
        self.send.ring_doorbell();
    }

    fn cancel(&mut self, id: u64, hw_counter: u16) -> Result<usize, PostError> {
        self.send.cancel(id, hw_counter)
    }

    fn outstanding(&self) -> u32 {
        self.send.outstanding()
    }

    fn producer(&self) -> u32 {
        self.send.producer()
    }

    fn free_blocks(&self) -> u32 {
        self.send.free_blocks()
    }

    fn next_fence(&self) -> u8 {
        self.send.next_fence()
    }

    fn block(&self, index: u32) -> Wqebb {
        self.send.block(index)
    }

    fn post_receive(&mut self, id: u64, sges: &[Sge]) -> Result<(), PostError> {
        self.receive.post(id, sges)
    }

    fn publish_receives(&mut self) {
        self.receive.publish();
    }

    fn poll(&mut self, mkeys: &mut [Mkey]) -> Option<Result<Completion, CompletionError>> {
        self.completions.poll(&mut QpRouter { queues: (&mut self.send, &mut self.receive), mkeys })
    }

    fn check(&mut self, mkey: &mut Mkey) -> Result<Option<SignatureError>, CheckError> {
        self.completions.check(mkey)
    }

    fn take_entry(&mut self) -> Option<Cqe> {
        self.completions.take_entry()
    }

    fn restart(&mut self) -> [Vec<u64>; 2] {
        let qpn = self.send.qpn();
        self.completions.discard(|entry| entry.is_of(qpn));
        let [mut sends, mut receives] = [Vec::new(), Vec::new()];
        self.send.restart(|request| {
            if request.kind != RequestKind::MkeyConfigurePart {
                sends.push(request.id);
            }
        });
        self.receive.restart(|id| receives.push(id));
        [sends, receives]
    }
}

/// One end of a connection: queues that the board has made and wired to another end.
///
/// Where batches are posted, one is open from the first request until the doorbell is asked for, or until the queues are looked
/// at: a batch has its queue to itself.
pub struct QpEnd {
    /// From a box, and given back to it in the end.
    queues: NonNull<dyn EndQueues>,
    /// Holds the one reference to the queues while there is one.
    open: Option<Box<dyn Posting>>,
    way: Way,
    qpn: Qpn,
}

impl QpEnd {
    /// Takes the queues of an end; requests are posted one by one.
    pub fn new(queues: impl EndQueues + 'static) -> Self {
        let qpn = queues.qpn();
        let queues: &'static mut dyn EndQueues = Box::leak(Box::new(queues));
        Self { queues: NonNull::from(queues), open: None, way: Way::default(), qpn }
    }

    /// Posts in this way from now on. What a batch holds is published.
    pub fn set_way(&mut self, way: Way) {
        self.open = None;
        self.way = way;
    }

    /// Returns how requests are posted, and configurations prepared.
    pub const fn way(&self) -> Way {
        self.way
    }

    /// Publishes nothing from now on before the doorbell is asked for, which a batch does when it ends.
    pub fn hold_back(&mut self) {
        self.set_way(self.way.without_batches());
    }

    /// Begins a request.
    pub fn request(&mut self, id: u64) -> SendRequest<'_, 'static> {
        let posting = match &mut self.open {
            Some(posting) => posting,
            // SAFETY: the box was leaked, and its pointer is used by nobody as long as this reference lives: by `queues` and
            // `drop` alone, both of which end `open` before.
            none => none.insert(unsafe { self.queues.as_mut() }.open(self.way)),
        };
        posting.request(id)
    }

    /// Publishes what was posted.
    pub fn ring_doorbell(&mut self) {
        match self.open.take() {
            Some(posting) => posting.publish(),
            None => self.queues().ring_doorbell(),
        }
    }

    /// Returns the queues. A batch is published before.
    pub fn queues(&mut self) -> &mut dyn EndQueues {
        self.open = None;
        // SAFETY: nothing else refers to the queues now: see `request`.
        unsafe { self.queues.as_mut() }
    }

    /// Returns what posting changes.
    pub fn counters(&mut self) -> Counters {
        let queues = self.queues();
        Counters {
            producer: queues.producer(),
            free_blocks: queues.free_blocks(),
            outstanding: queues.outstanding(),
            next_fence: queues.next_fence(),
        }
    }

    /// Returns the number of the queue pair.
    pub const fn qpn(&self) -> Qpn {
        self.qpn
    }
}

/// What posting changes of a send queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Counters {
    /// The next block to post.
    pub producer: u32,
    /// Blocks that are free.
    pub free_blocks: u32,
    /// Requests posted and not retired.
    pub outstanding: u32,
    /// The fence mode of the next request.
    pub next_fence: u8,
}

impl Drop for QpEnd {
    fn drop(&mut self) {
        self.open = None;
        // SAFETY: from a leaked box, and nothing refers to it any more.
        drop(unsafe { Box::from_raw(self.queues.as_ptr()) });
    }
}
