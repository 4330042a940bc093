//! Proofs that a request has completed. A queue retires a request only for such a proof. Only a completion
//! queue can make a proof, from a completion entry of the device.

use crate::types::Qpn;
use core::marker::PhantomData;

/// The completion queue that got the entry of a request, identified by the address of its ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub(crate) struct CqIdentity(pub(super) usize);

impl CqIdentity {
    /// Returns the address of the ring.
    #[cfg(feature = "devx")]
    pub(crate) const fn address(self) -> usize {
        self.0
    }
}

macro_rules! completed {
    ($(#[$doc:meta])+ $name:ident) => {
        $(#[$doc])+
        ///
        /// Retiring a request frees its blocks of the ring, so the device must have read these blocks before.
        /// A completion queue makes this value from an entry that it takes, and passes it to the queues of
        /// the queue pair ([`QpQueues`](super::QpQueues)). No other code can make, copy or keep such a value.
        /// The caller of [`CompletionQueue::new`](super::CompletionQueue::new) vouches that the device writes
        /// the entries.
        #[derive(Debug, PartialEq, Eq)]
        #[cfg_attr(feature = "defmt", derive(defmt::Format))]
        pub struct $name<'entry> {
            qpn: Qpn,
            counter: u16,
            queue: CqIdentity,
            entry: PhantomData<&'entry ()>,
        }

        impl $name<'_> {
            #[inline]
            pub(super) const fn new(qpn: Qpn, counter: u16, queue: CqIdentity) -> Self {
                Self { qpn, counter, queue, entry: PhantomData }
            }

            /// Returns the number of the queue pair.
            #[inline]
            pub const fn qpn(&self) -> Qpn {
                self.qpn
            }

            /// Returns the number of the request in its queue, modulo 2^16 (`wqe_counter` of the entry).
            #[inline]
            pub const fn counter(&self) -> u16 {
                self.counter
            }

            /// Returns whether the value comes from this completion queue.
            #[cfg(feature = "devx")]
            #[inline]
            pub(crate) fn is_of(&self, queue: CqIdentity) -> bool {
                self.queue == queue
            }
        }
    };
}

completed! {
    /// A send request that an entry of a completion queue names.
    /// [`SendQueue::retire`](super::SendQueue::retire) takes it.
    CompletedSend
}

completed! {
    /// A receive request that an entry of a completion queue names.
    /// [`ReceiveQueue::retire`](super::ReceiveQueue::retire) takes it.
    CompletedReceive
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::queue::in_flight::RequestKind;
    use crate::queue::{Doorbell, ReceiveQueue, SendQueue};

    impl<D: Doorbell> SendQueue<'_, D> {
        /// Retires the request with this counter, as a completion does.
        pub(in crate::queue) fn retire_at(&mut self, counter: u16) -> Option<(u64, RequestKind)> {
            let done = self.retire(CompletedSend::new(self.qpn(), counter, CqIdentity(0)))?;
            Some((done.id, done.kind))
        }
    }

    impl ReceiveQueue<'_> {
        /// Retires the request with this counter, as a completion does.
        pub(in crate::queue) fn retire_at(&mut self, counter: u16) -> Option<u64> {
            self.retire(CompletedReceive::new(self.qpn(), counter, CqIdentity(0)))
        }
    }
}
