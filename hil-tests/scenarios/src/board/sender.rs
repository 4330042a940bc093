//! The send queue, to which scenarios post in the way that the board says.

#![allow(unsafe_code)]

use super::PortSendQueue;
use crate::board::{AnyDoorbell, SEND_BLOCKS};
use crate::way::{Poster, Way};
use alloc::boxed::Box;
use core::ptr::NonNull;
use mlx5_mkey::error::PostError;
use mlx5_mkey::queue::{DoorbellRecord, SendRequest};
use mlx5_mkey::types::Qpn;

/// A send queue, and what was posted to it and not published yet.
///
/// Where batches are posted, one is open from the first request until the doorbell is asked for, or until the queue is looked
/// at: a batch has its queue to itself.
pub struct Sender {
    /// From a box, and given back to it in the end.
    queue: NonNull<PortSendQueue>,
    /// Holds the one reference to the queue while there is one.
    open: Option<Poster<'static, 'static, AnyDoorbell, SEND_BLOCKS>>,
    way: Way,
    qpn: Qpn,
    record: &'static DoorbellRecord,
}

impl Sender {
    /// Takes the queue of an end; requests are posted one by one.
    pub fn new(queue: PortSendQueue) -> Self {
        let (qpn, record) = (queue.qpn(), queue.record());
        let queue = NonNull::from(Box::leak(Box::new(queue)));
        Self { queue, open: None, way: Way::default(), qpn, record }
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
        let poster = match &mut self.open {
            Some(poster) => poster,
            // SAFETY: the box was leaked, and its pointer is used by nobody as long as this reference lives: by `queue` and
            // `drop` alone, both of which end `open` before.
            none => none.insert(self.way.open(unsafe { self.queue.as_mut() })),
        };
        poster.request(id)
    }

    /// Publishes what was posted.
    pub fn ring_doorbell(&mut self) {
        match self.open.take() {
            Some(poster) => poster.publish(),
            None => self.queue().ring_doorbell(),
        }
    }

    /// Returns the queue. A batch is published before.
    pub fn queue(&mut self) -> &mut PortSendQueue {
        self.open = None;
        // SAFETY: nothing else refers to the queue now: see `request`.
        unsafe { self.queue.as_mut() }
    }

    /// Returns the number of the queue pair.
    pub const fn qpn(&self) -> Qpn {
        self.qpn
    }

    /// Returns the doorbell record.
    pub const fn record(&self) -> &'static DoorbellRecord {
        self.record
    }

    /// Returns how many requests have been posted and not retired.
    pub fn outstanding(&mut self) -> u32 {
        self.queue().outstanding()
    }

    /// Returns the count of blocks posted.
    pub fn producer(&mut self) -> u32 {
        self.queue().producer()
    }

    /// Returns how many blocks are free.
    pub fn free_blocks(&mut self) -> u32 {
        self.queue().free_blocks()
    }

    /// Cancels requests, see [`mlx5_mkey::queue::SendQueue::cancel`].
    ///
    /// # Errors
    /// As there.
    pub fn cancel(&mut self, id: u64, hw_counter: u16) -> Result<usize, PostError> {
        self.queue().cancel(id, hw_counter)
    }
}

impl Drop for Sender {
    fn drop(&mut self) {
        self.open = None;
        // SAFETY: from a leaked box, and nothing refers to it any more.
        drop(unsafe { Box::from_raw(self.queue.as_ptr()) });
    }
}
