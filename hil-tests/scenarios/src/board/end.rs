//! The two ends of a connection. An end is a queue pair to which a scenario posts; the board selects the
//! posting method (single requests or batches, see [`Way`]).

#![allow(unsafe_code)]

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

/// A series of requests that one doorbell publishes. The posting method decides whether it consists of single
/// requests or of one batch.
pub trait Posting {
    /// Begins a request.
    fn request(&mut self, id: u64) -> SendRequest<'_, 'static>;

    /// Publishes the posted requests.
    fn publish(self: Box<Self>);
}

impl<D: Doorbell> Posting for Poster<'_, 'static, D> {
    fn request(&mut self, id: u64) -> SendRequest<'_, 'static> {
        Poster::request(self, id)
    }

    fn publish(self: Box<Self>) {
        Poster::publish(*self);
    }
}

impl<D: Doorbell> Posting for Batch<'_, 'static, D> {
    fn request(&mut self, id: u64) -> SendRequest<'_, 'static> {
        Batch::request(self, id)
    }

    fn publish(self: Box<Self>) {
        // Dropping the batch at the end of this function publishes it.
    }
}

/// The send queue and receive queue of a queue pair, and their completion queue. One implementation is the
/// library's queue types, another is the layer over libmlx5 (`devx`).
pub trait EndQueues {
    /// Returns the number of the queue pair.
    fn qpn(&self) -> Qpn;

    /// Begins a series of requests by this posting method.
    fn open(&mut self, way: Way) -> Box<dyn Posting + '_>;

    /// Rings the doorbell for all posted send requests.
    fn ring_doorbell(&mut self);

    /// Cancels the send requests with this id in a drained queue, from block `hw_counter` on. Returns their
    /// number.
    ///
    /// # Errors
    /// As [`SendQueue::cancel`].
    fn cancel(&mut self, id: u64, hw_counter: u16) -> Result<usize, PostError>;

    /// Returns the counters of the send queue that posting changes.
    fn counters(&self) -> Counters;

    /// Copies a block out of the send ring.
    fn block(&self, index: u32) -> Wqebb;

    /// Posts a receive request: the buffers for one message.
    ///
    /// # Errors
    /// As [`ReceiveQueue::post`].
    fn post_receive(&mut self, id: u64, sges: &[Sge]) -> Result<(), PostError>;

    /// Publishes receive requests.
    fn publish_receives(&mut self);

    /// Returns the next completion, if the device has written one. Signature errors are recorded in their
    /// mkeys.
    fn poll(&mut self, mkeys: &mut [Mkey]) -> Option<Result<Completion, CompletionError>>;

    /// Returns the first signature error of an mkey since the last call, if any.
    ///
    /// # Errors
    /// As [`CompletionQueue::check`].
    fn check(&mut self, mkey: &mut Mkey) -> Result<Option<SignatureError>, CheckError>;

    /// Takes the next completion entry as the device wrote it. The library does not retire the request of the
    /// entry.
    fn take_entry(&mut self) -> Option<Cqe>;

    /// Takes the next entry of the completion queue for receives, as [`EndQueues::take_entry`] does. Returns
    /// `None` if one completion queue serves both queues.
    fn take_receive_entry(&mut self) -> Option<Cqe>;

    /// Empties the queues, drops their completions, and returns the ids of outstanding requests: of sends,
    /// then of receives. The implementation by `devx` also resets the queue pair on the device. With other
    /// implementations, the board resets the queue pair before this call.
    fn restart(&mut self) -> [Vec<u64>; 2];
}

/// The library's queue types as an implementation of [`EndQueues`].
pub struct CoreQueues<D, E: CqeSlot = Cqe> {
    /// The send queue.
    pub send: SendQueue<'static, D>,
    /// The receive queue.
    pub receive: ReceiveQueue<'static>,
    /// The completion queue of both, or of the send queue alone.
    pub completions: CompletionQueue<'static, E>,
    /// The completion queue of the receive queue, if it has one of its own.
    pub receive_completions: Option<CompletionQueue<'static, E>>,
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

    fn counters(&self) -> Counters {
        Counters {
            producer: self.send.producer(),
            free_blocks: self.send.free_blocks(),
            outstanding: self.send.outstanding(),
            next_fence: self.send.next_fence(),
        }
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
        let mut router = QpRouter { queues: (&mut self.send, &mut self.receive), mkeys };
        let found = self.completions.poll(&mut router);
        found.or_else(|| self.receive_completions.as_mut()?.poll(&mut router))
    }

    fn check(&mut self, mkey: &mut Mkey) -> Result<Option<SignatureError>, CheckError> {
        self.completions.check(mkey)
    }

    fn take_entry(&mut self) -> Option<Cqe> {
        self.completions.take_entry()
    }

    fn take_receive_entry(&mut self) -> Option<Cqe> {
        self.receive_completions.as_mut()?.take_entry()
    }

    fn restart(&mut self) -> [Vec<u64>; 2] {
        let qpn = self.send.qpn();
        for queue in [&mut self.completions].into_iter().chain(&mut self.receive_completions) {
            queue.discard(|entry| entry.is_of(qpn));
        }
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

/// One end of a connection: the queues of a queue pair that the board has created and connected to the other
/// end.
///
/// The posting methods with batches keep a batch open from the first request to the doorbell or to the next
/// access of the queues, because a batch borrows its queue.
pub struct QpEnd {
    /// The queues, as the pointer of a leaked box. `drop` frees the box.
    queues: NonNull<dyn EndQueues>,
    /// The series of requests that is not published yet, if any. While it exists, it holds the only reference
    /// to the queues.
    open: Option<Box<dyn Posting>>,
    way: Way,
    qpn: Qpn,
}

impl QpEnd {
    /// Makes an end with these queues. It posts single requests, unless [`QpEnd::set_way`] sets another
    /// method.
    pub fn new(queues: impl EndQueues + 'static) -> Self {
        let qpn = queues.qpn();
        let queues: &'static mut dyn EndQueues = Box::leak(Box::new(queues));
        Self { queues: NonNull::from(queues), open: None, way: Way::default(), qpn }
    }

    /// Sets the posting method. This publishes the requests of an open batch.
    pub fn set_way(&mut self, way: Way) {
        self.open = None;
        self.way = way;
    }

    /// Returns the posting method.
    pub const fn way(&self) -> Way {
        self.way
    }

    /// Changes to the same posting method without batches, so that only [`QpEnd::ring_doorbell`] publishes
    /// requests. (Any access to the queues would publish a batch.)
    pub fn hold_back(&mut self) {
        self.set_way(self.way.without_batches());
    }

    /// Begins a request.
    pub fn request(&mut self, id: u64) -> SendRequest<'_, 'static> {
        let posting = match &mut self.open {
            Some(posting) => posting,
            // SAFETY: the box was leaked. While this reference lives, no other code uses the pointer: only
            // `queues` and `drop` do, and both end `open` first.
            none => none.insert(unsafe { self.queues.as_mut() }.open(self.way)),
        };
        posting.request(id)
    }

    /// Publishes all posted requests.
    pub fn ring_doorbell(&mut self) {
        match self.open.take() {
            Some(posting) => posting.publish(),
            None => self.queues().ring_doorbell(),
        }
    }

    /// Returns the queues. This publishes an open batch first.
    pub fn queues(&mut self) -> &mut dyn EndQueues {
        self.open = None;
        // SAFETY: no other reference to the queues exists, see `request`.
        unsafe { self.queues.as_mut() }
    }

    /// Returns the counters of the send queue that posting changes.
    pub fn counters(&mut self) -> Counters {
        self.queues().counters()
    }

    /// Returns the number of the queue pair.
    pub const fn qpn(&self) -> Qpn {
        self.qpn
    }
}

/// The counters of a send queue that posting changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Counters {
    /// Number of the WQEBB at which the next request begins.
    pub producer: u32,
    /// Number of free WQEBBs.
    pub free_blocks: u32,
    /// Number of outstanding requests.
    pub outstanding: u32,
    /// The fence mode of the next request.
    pub next_fence: u8,
}

impl Drop for QpEnd {
    fn drop(&mut self) {
        self.open = None;
        // SAFETY: the pointer is that of a leaked box without other references.
        drop(unsafe { Box::from_raw(self.queues.as_ptr()) });
    }
}
