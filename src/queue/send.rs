//! The send queue: its properties, and the way of its requests to the device.

use super::barrier;
use super::doorbell::{Doorbell, DoorbellRecord};
use super::request::{SendRequest, SendState};
use super::send_config::SendQueueConfig;
use super::send_ring::{SendRing, SendSlot};
use crate::types::Qpn;
use crate::types::QueueError;
use crate::wire::Wqebb;

/// A send queue over the caller's ring. The caller also lends a [`SendSlot`] for each block of the ring. The
/// size of the ring, a power of two of blocks of 64 bytes, is known at run time.
///
/// Requests are posted through [`SendQueue::request`] and reach the device with [`SendQueue::ring_doorbell`].
/// A post either succeeds as a whole or changes nothing.
///
/// ```
/// use mlx5_mkey::error::{PostError, QueueError};
/// use mlx5_mkey::queue::{Doorbell, DoorbellRecord, SendQueue, SendQueueConfig, SendSlot, UarDoorbell};
/// use mlx5_mkey::types::Qpn;
/// use mlx5_mkey::wire::Wqebb;
/// use mlx5_mkey::wqe::{Remote, Sge};
///
/// /// The queue pair was created with this ring, record and register.
/// fn make(
///     qpn: Qpn,
///     ring: &'static mut [Wqebb],
///     slots: &'static mut [SendSlot],
///     record: &'static DoorbellRecord,
///     doorbell: UarDoorbell,
/// ) -> Result<SendQueue<'static, UarDoorbell>, QueueError> {
///     SendQueue::new(SendQueueConfig::new(qpn), ring, slots, record, doorbell)
/// }
///
/// fn write<D: Doorbell>(
///     queue: &mut SendQueue<'_, D>,
///     remote: Remote,
///     local: Sge,
/// ) -> Result<(), PostError> {
///     queue.request(1).signaled().rdma_write(remote, &[local])?;
///     queue.ring_doorbell();
///     Ok(())
/// }
/// ```
pub struct SendQueue<'r, D> {
    pub(super) state: SendState<'r>,
    pub(super) record: &'r DoorbellRecord,
    doorbell: D,
}

impl<'r, D: Doorbell> SendQueue<'r, D> {
    /// Makes a send queue over `ring` and `record`, with which the queue pair was or will be created.
    ///
    /// # Errors
    /// [`QueueError::Size`] unless the ring has a power of two of blocks, at most 32768;
    /// [`QueueError::TooFewSlots`] for fewer slots than blocks; [`QueueError::InlineLimit`] for inline data
    /// over [`SendQueueConfig::MAX_INLINE_DATA`].
    pub fn new(
        config: SendQueueConfig,
        ring: &'r mut [Wqebb],
        slots: &'r mut [SendSlot],
        record: &'r DoorbellRecord,
        doorbell: D,
    ) -> Result<Self, QueueError> {
        let (bytes, max) = (config.max_inline_data, SendQueueConfig::MAX_INLINE_DATA);
        if bytes > max {
            return Err(QueueError::InlineLimit { bytes, max });
        }
        let ring = SendRing::new(&config, ring, slots)?;
        Ok(Self { state: SendState::new(&config, ring), record, doorbell })
    }

    /// Begins a request. The completion will carry `id` (`wr_id`). Nothing is posted until one of the posting
    /// methods of the request is called.
    #[inline]
    pub const fn request(&mut self, id: u64) -> SendRequest<'_, 'r> {
        SendRequest::new(&mut self.state, id)
    }

    /// Begins a batch of requests that are published together, with one doorbell.
    #[inline]
    pub const fn batch(&mut self) -> Batch<'_, 'r, D> {
        Batch { queue: self }
    }

    /// Returns the number of the queue pair.
    pub const fn qpn(&self) -> Qpn {
        self.state.qpn
    }

    /// Returns how many blocks of 64 bytes are free.
    pub const fn free_blocks(&self) -> u32 {
        self.state.ring.free() as u32
    }

    /// Returns the number of the next block to post, modulo 2^32. For a new queue, the number is
    /// [`SendQueueConfig::first_block`].
    pub const fn producer(&self) -> u32 {
        self.state.ring.producer as u32
    }

    /// Returns the fence mode (PRM `fm`) of the next request if it asks for no fence itself:
    /// [`SendQueueConfig::umr_fence`] after a change of an mkey, otherwise 0.
    pub const fn next_fence(&self) -> u8 {
        self.state.ring.next_flags.fence_mode()
    }

    /// Returns the doorbell record.
    pub const fn record(&self) -> &'r DoorbellRecord {
        self.record
    }

    /// Replaces the doorbell, for example by a trait object. The caller ensures that the old and the new
    /// doorbell ring the same register.
    pub fn map_doorbell<E: Doorbell>(self, map: impl FnOnce(D) -> E) -> SendQueue<'r, E> {
        let Self { state, record, doorbell } = self;
        SendQueue { state, record, doorbell: map(doorbell) }
    }

    /// Copies a block out of the ring, for [`crate::inspect`]. Blocks are counted as by
    /// [`SendQueue::producer`].
    pub fn block(&self, index: u32) -> Wqebb {
        self.state.ring.blocks.read(u64::from(index))
    }

    /// Returns the doorbell.
    pub const fn doorbell(&self) -> &D {
        &self.doorbell
    }

    /// Publishes all requests posted since the last call. Does nothing if there are none.
    #[inline]
    pub fn ring_doorbell(&mut self) {
        let ring = &mut self.state.ring;
        let published = ring.published;
        if published == ring.producer {
            return;
        }
        ring.published = ring.producer;
        barrier::blocks_before_record();
        self.record.set_send(ring.producer as u16);
        barrier::record_before_doorbell();
        self.doorbell.ring(&ring.last_request(published));
        barrier::flush_doorbell();
    }
}

crate::fmt::format_counters!(['r, D] SendQueue ['r, D] { state });

/// Requests that are published together: dropping the batch publishes all posted requests with one doorbell,
/// even if a later request was refused.
///
/// If the batch is leaked ([`core::mem::forget`]), the next doorbell of the queue publishes the requests.
///
/// ```
/// # use mlx5_mkey::{error::PostError, queue::{Doorbell, SendQueue}, wqe::{Remote, Sge}};
/// fn write_all<D: Doorbell>(
///     queue: &mut SendQueue<'_, D>,
///     writes: &[(Remote, Sge)],
/// ) -> Result<(), PostError> {
///     let mut batch = queue.batch();
///     for (id, (remote, sge)) in (0..).zip(writes) {
///         batch.request(id).signaled().rdma_write(*remote, core::slice::from_ref(sge))?;
///     }
///     Ok(())
/// }
/// ```
#[must_use = "what is not posted through it is not in the batch"]
pub struct Batch<'q, 'r, D: Doorbell> {
    queue: &'q mut SendQueue<'r, D>,
}

crate::fmt::format_counters!(['q, 'r, D: Doorbell] Batch ['q, 'r, D] { queue });

impl<'r, D: Doorbell> Batch<'_, 'r, D> {
    /// Begins a request, as [`SendQueue::request`] does.
    #[inline]
    pub const fn request(&mut self, id: u64) -> SendRequest<'_, 'r> {
        self.queue.request(id)
    }

    /// Returns how many blocks are free; see [`SendQueue::free_blocks`].
    pub const fn free_blocks(&self) -> u32 {
        self.queue.free_blocks()
    }
}

impl<D: Doorbell> Drop for Batch<'_, '_, D> {
    #[inline]
    fn drop(&mut self) {
        self.queue.ring_doorbell();
    }
}

#[cfg(test)]
mod tests;
