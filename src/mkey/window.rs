//! Memory windows: keys that a queue pair binds to memory for its peer, and later revokes.

use crate::types::{Key, Qpn};

/// A memory window of type 2, as software knows it (`struct ibv_mw`): a key that one queue pair binds to a
/// range of a registered region for its peer, and revokes with one request. The region itself need not grant
/// any right to the peer.
///
/// On the device, the window is an mkey with room for 4 entries that the peer may invalidate.
/// [`CreateMkey`](crate::command::CreateMkey) with
/// [`remote_invalidate`](crate::command::MkeyFeatures::remote_invalidate) creates it, or `ibv_alloc_mw`. The
/// capability [`memory_windows`](crate::command::GeneralCapabilities::memory_windows) is required. Each
/// binding gets the next of 256 tags, so the same key comes back with the 256th binding after it.
///
/// ```
/// use mlx5_mkey::error::PostError;
/// use mlx5_mkey::mkey::{Access, KlmEntry, MemoryWindow};
/// use mlx5_mkey::queue::{Doorbell, SendQueue};
/// use mlx5_mkey::types::Key;
///
/// /// Lets the peer write to a buffer, and returns the key for it.
/// fn open<D: Doorbell>(
///     queue: &mut SendQueue<'_, D>,
///     window: &mut MemoryWindow,
///     buffer: KlmEntry,
/// ) -> Result<Key, PostError> {
///     queue.request(1).bind_window(window, buffer, Access::REMOTE_WRITE, 0)?;
///     Ok(window.key())
/// }
///
/// /// Revokes the key. When request 2 has completed, the peer's requests with the key fail: then call
/// /// `window.note_invalidated()`.
/// fn close<D: Doorbell>(
///     queue: &mut SendQueue<'_, D>,
///     window: &MemoryWindow,
/// ) -> Result<(), PostError> {
///     queue.request(2).signaled().invalidate_window(window)
/// }
/// ```
#[derive(Debug, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
#[must_use = "a window that is lost stays on the device as it is"]
pub struct MemoryWindow {
    key: Key,
    /// The queue pair that has bound the window, and the number of its send queue; `None` for an unbound
    /// window. Queue pairs of two cards may have the same number, but no two send queues of a program have
    /// the same number.
    bound: Option<(Qpn, u64)>,
}

impl MemoryWindow {
    /// Creates the Rust value for a window that is not bound, because the device has just created it, or has
    /// invalidated it.
    pub const fn new(key: Key) -> Self {
        Self { key, bound: None }
    }

    /// Returns the key of the last binding, by which the peer accesses the memory.
    pub const fn key(&self) -> Key {
        self.key
    }

    /// Returns whether the window is bound, as far as this side knows: the peer may have invalidated the key.
    pub const fn is_bound(&self) -> bool {
        self.bound.is_some()
    }

    /// Returns the queue pair that has bound the window, or `None` if the window is not bound. Only this
    /// queue pair can invalidate it.
    pub const fn queue_pair(&self) -> Option<Qpn> {
        match self.bound {
            Some((qpn, _)) => Some(qpn),
            None => None,
        }
    }

    /// Returns whether the window is bound to the send queue with this number.
    pub(crate) fn is_bound_to(&self, queue: u64) -> bool {
        self.bound.is_some_and(|(_, own)| own == queue)
    }

    /// Returns the key of the next binding.
    pub(crate) const fn next_key(&self) -> Key {
        Key::new(self.key.index(), self.key.tag().wrapping_add(1))
    }

    /// Notes that a posted request binds the window under this key, for the peer of the queue pair `qpn`.
    /// `queue` is the number of the queue pair's send queue.
    pub(crate) const fn note_bound(&mut self, key: Key, qpn: Qpn, queue: u64) {
        *self = Self { key, bound: Some((qpn, queue)) };
    }

    /// Notes that the window is no longer bound. Call this function only when the device has ended the
    /// binding: a request that invalidates the window has completed without an error, or the completion of a
    /// receive has named the key that the peer has invalidated. A reset of the queue pair leaves the window
    /// bound. After the destruction of the queue pair, the window can only be destroyed.
    pub const fn note_invalidated(&mut self) {
        self.bound = None;
    }
}
