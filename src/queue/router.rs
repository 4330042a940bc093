//! Finds the queue pair or the mkey that a completion entry names.

use super::completed::{CompletedReceive, CompletedSend};
use super::doorbell::Doorbell;
use super::in_flight::Retired;
use super::receive::ReceiveQueue;
use super::send::SendQueue;
use crate::mkey::{Mkey, SignatureFault};
use crate::types::Qpn;

/// The queue pair that a completion entry names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct CqeOrigin {
    /// Number of the queue pair.
    pub qpn: Qpn,
    /// User index of the queue pair, 24 bits, if the device writes entries of version 1 (PRM `cqe_version`):
    /// the number that the queue pair was created with (`user_index` of `command::CreateQp`). In other
    /// versions, the number of the shared receive queue, or 0 without one.
    pub user_index: u32,
}

/// The queues of one queue pair. Completions retire the requests of these queues.
///
/// The trait is implemented by a [`SendQueue`] or a [`ReceiveQueue`] alone, by a pair of both, by an
/// exclusive reference to any of these, by a box of them (feature `alloc`), and by `devx::QueuePair`.
pub trait QpQueues {
    /// Returns the number of the queue pair.
    fn qpn(&self) -> Qpn;

    /// Retires a send request that has completed, see [`SendQueue::retire`].
    fn retire_send(&mut self, done: CompletedSend<'_>) -> Option<Retired>;

    /// Retires a receive request that has completed, see [`ReceiveQueue::retire`].
    fn retire_receive(&mut self, done: CompletedReceive<'_>) -> Option<u64>;
}

impl<Q: QpQueues + ?Sized> QpQueues for &mut Q {
    #[inline]
    fn qpn(&self) -> Qpn {
        (**self).qpn()
    }

    #[inline]
    fn retire_send(&mut self, done: CompletedSend<'_>) -> Option<Retired> {
        (**self).retire_send(done)
    }

    fn retire_receive(&mut self, done: CompletedReceive<'_>) -> Option<u64> {
        (**self).retire_receive(done)
    }
}

/// A box of queues, for example in a table of queue pairs.
#[cfg(feature = "alloc")]
impl<Q: QpQueues + ?Sized> QpQueues for alloc::boxed::Box<Q> {
    #[inline]
    fn qpn(&self) -> Qpn {
        (**self).qpn()
    }

    #[inline]
    fn retire_send(&mut self, done: CompletedSend<'_>) -> Option<Retired> {
        (**self).retire_send(done)
    }

    fn retire_receive(&mut self, done: CompletedReceive<'_>) -> Option<u64> {
        (**self).retire_receive(done)
    }
}

impl<D: Doorbell> QpQueues for SendQueue<'_, D> {
    #[inline]
    fn qpn(&self) -> Qpn {
        self.qpn()
    }

    #[inline]
    fn retire_send(&mut self, done: CompletedSend<'_>) -> Option<Retired> {
        self.retire(done)
    }

    fn retire_receive(&mut self, _: CompletedReceive<'_>) -> Option<u64> {
        None
    }
}

impl QpQueues for ReceiveQueue<'_> {
    fn qpn(&self) -> Qpn {
        self.qpn()
    }

    fn retire_send(&mut self, _: CompletedSend<'_>) -> Option<Retired> {
        None
    }

    fn retire_receive(&mut self, done: CompletedReceive<'_>) -> Option<u64> {
        self.retire(done)
    }
}

/// The send queue and the receive queue of a queue pair, in this order. The number is that of the send queue.
/// A receive queue of another queue pair retires no request.
impl<S: QpQueues, R: QpQueues> QpQueues for (S, R) {
    #[inline]
    fn qpn(&self) -> Qpn {
        self.0.qpn()
    }

    #[inline]
    fn retire_send(&mut self, done: CompletedSend<'_>) -> Option<Retired> {
        self.0.retire_send(done)
    }

    fn retire_receive(&mut self, done: CompletedReceive<'_>) -> Option<u64> {
        self.1.retire_receive(done)
    }
}

/// Finds the queue pair or the mkey that a completion entry names. [`QpRouter`] serves one queue pair,
/// [`super::QpTable`] many.
pub trait CompletionRouter {
    /// The queues of a queue pair.
    type Queues: QpQueues;

    /// Finds the queues of a queue pair. The user index is only a hint: polling compares [`QpQueues::qpn`]
    /// with the number in the entry. If they differ, it reports
    /// [`CompletionError::UnknownQueuePair`](crate::error::CompletionError::UnknownQueuePair).
    fn queues(&mut self, origin: CqeOrigin) -> Option<&mut Self::Queues>;

    /// Passes a signature error to its mkey ([`Mkey::record`]). Returns the position of that mkey in the
    /// router, from 0, for [`super::Completion::SignatureError`], or `None` if the router does not have the
    /// mkey.
    ///
    /// An error names its mkey by the index on its card. A router therefore holds mkeys of one card only: an
    /// mkey of another card with the same index would take the error. No check finds this, since neither an
    /// [`Mkey`] nor a completion entry names its card.
    fn signature_error(&mut self, fault: &SignatureFault) -> Option<usize>;
}

/// A send queue alone is a router too: `completions.poll(&mut queue)`. This router has no mkeys, so no
/// signature error finds its mkey.
impl<D: Doorbell> CompletionRouter for SendQueue<'_, D> {
    type Queues = Self;

    #[inline]
    fn queues(&mut self, _origin: CqeOrigin) -> Option<&mut Self> {
        Some(self)
    }

    fn signature_error(&mut self, _fault: &SignatureFault) -> Option<usize> {
        None
    }
}

/// Routes the completions of one queue pair.
///
/// ```
/// use mlx5_mkey::error::CompletionError;
/// use mlx5_mkey::mkey::Mkey;
/// use mlx5_mkey::queue::{Completion, CompletionQueue, Doorbell, QpRouter, ReceiveQueue, SendQueue};
///
/// /// Takes all completions, and returns their `wr_id`s.
/// fn drain<D: Doorbell>(
///     completions: &mut CompletionQueue<'_>,
///     send: &mut SendQueue<'_, D>,
///     receive: &mut ReceiveQueue<'_>,
///     mkeys: &mut [Mkey],
/// ) -> Result<Vec<u64>, CompletionError> {
///     let mut done = Vec::new();
///     let mut router = QpRouter { queues: (send, receive), mkeys };
///     while let Some(completion) = completions.poll(&mut router) {
///         match completion? {
///             Completion::Work(work) => done.push(work.id),
///             Completion::SignatureError { position, .. } => {
///                 println!("{:?}", router.mkeys[position].take_error());
///             }
///         }
///     }
///     Ok(done)
/// }
/// ```
pub struct QpRouter<'m, Q> {
    /// The queues, often by reference: `(&mut send, &mut receive)`.
    pub queues: Q,
    /// The mkeys whose signature errors arrive at the completion queue. They are searched only when a
    /// signature error arrives.
    pub mkeys: &'m mut [Mkey],
}

impl<Q: QpQueues> CompletionRouter for QpRouter<'_, Q> {
    type Queues = Q;

    #[inline]
    fn queues(&mut self, _origin: CqeOrigin) -> Option<&mut Q> {
        Some(&mut self.queues)
    }

    fn signature_error(&mut self, fault: &SignatureFault) -> Option<usize> {
        record(self.mkeys, fault)
    }
}

/// Passes a signature error to the mkey that it names, and returns the mkey's position.
pub(super) fn record(mkeys: &mut [Mkey], fault: &SignatureFault) -> Option<usize> {
    mkeys.iter_mut().position(|mkey| mkey.record(fault))
}

crate::fmt::format_counters!(['m, Q] QpRouter ['m, Q] { mkeys });
