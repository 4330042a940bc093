//! A send queue for several threads or cores.

use super::doorbell::Doorbell;
use super::send::SendQueue;

/// A send queue behind a spin lock.
///
/// The lock covers posting *and* the doorbell, so that two threads' doorbells cannot swap and an mkey's configuration stays
/// next to the requests that use it.
///
/// ```
/// # use mlx5_mkey::{error::PostError, queue::{Doorbell, SharedSendQueue}};
/// fn ping<D: Doorbell, const N: usize>(queue: &SharedSendQueue<'_, D, N>) -> Result<(), PostError> {
///     queue.with(|queue| queue.request(1).signaled().nop())
/// }
/// ```
pub struct SharedSendQueue<'r, D, const N: usize>(spin::Mutex<SendQueue<'r, D, N>>);

impl<'r, D: Doorbell, const N: usize> SharedSendQueue<'r, D, N> {
    /// Shares a queue.
    pub const fn new(queue: SendQueue<'r, D, N>) -> Self {
        Self(spin::Mutex::new(queue))
    }

    /// Runs `work` with the queue to itself and rings the doorbell for what it posted, also where it returned an error.
    pub fn with<T>(&self, work: impl FnOnce(&mut SendQueue<'r, D, N>) -> T) -> T {
        let mut queue = self.0.lock();
        let result = work(&mut queue);
        queue.ring_doorbell();
        result
    }

    /// Gives the queue back.
    pub fn into_inner(self) -> SendQueue<'r, D, N> {
        self.0.into_inner()
    }
}
