//! A send queue for several threads or cores.

use super::doorbell::Doorbell;
use super::send::SendQueue;

/// A send queue behind a spin lock.
///
/// The lock covers posting *and* the doorbell. Doorbells of two threads therefore cannot swap, and an mkey's
/// configuration stays next to the requests that use the mkey.
///
/// ```
/// # use mlx5_mkey::{error::PostError, queue::{Doorbell, SharedSendQueue}};
/// fn ping<D: Doorbell>(queue: &SharedSendQueue<'_, D>) -> Result<(), PostError> {
///     queue.with(|queue| queue.request(1).signaled().nop())
/// }
/// ```
#[derive(Debug)]
pub struct SharedSendQueue<'r, D>(spin::Mutex<SendQueue<'r, D>>);

#[cfg(feature = "defmt")]
impl<D> defmt::Format for SharedSendQueue<'_, D> {
    fn format(&self, f: defmt::Formatter<'_>) {
        match self.0.try_lock() {
            Some(queue) => queue.format(f),
            None => defmt::write!(f, "SharedSendQueue (locked)"),
        }
    }
}

impl<'r, D: Doorbell> SharedSendQueue<'r, D> {
    /// Puts a queue behind a lock.
    pub const fn new(queue: SendQueue<'r, D>) -> Self {
        Self(spin::Mutex::new(queue))
    }

    /// Runs `work` with exclusive access to the queue, then rings the doorbell for the posted requests, even
    /// if `work` returns an error.
    pub fn with<T>(&self, work: impl FnOnce(&mut SendQueue<'r, D>) -> T) -> T {
        let mut queue = self.0.lock();
        let result = work(&mut queue);
        queue.ring_doorbell();
        result
    }

    /// Returns the queue without the lock.
    pub fn into_inner(self) -> SendQueue<'r, D> {
        self.0.into_inner()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::queue::{DoorbellRecord, LastRequest, SendQueueConfig, SendSlot};
    use crate::types::Qpn;
    use crate::wire::Wqebb;
    use std::{thread, vec};

    struct Count(u32);

    impl Doorbell for Count {
        fn ring(&mut self, _: &LastRequest<'_>) {
            self.0 += 1;
        }
    }

    #[test]
    fn threads_share_a_queue() {
        let (mut ring, record) = (vec![Wqebb::ZERO; 64], DoorbellRecord::new());
        let config = SendQueueConfig::new(Qpn::from_low_bits(1));
        let queue = SendQueue::new(config, &mut ring, SendSlot::leaked(64), &record, Count(0)).unwrap();
        let shared = SharedSendQueue::new(queue);
        thread::scope(|scope| {
            for id in 0..4 {
                let shared = &shared;
                scope.spawn(move || {
                    for _ in 0..16 {
                        shared.with(|queue| queue.request(id).nop()).unwrap();
                    }
                });
            }
        });
        let queue = shared.into_inner();
        assert_eq!((queue.producer(), queue.outstanding(), queue.doorbell().0), (64, 64, 64));
    }
}
