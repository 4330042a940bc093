//! Memory windows: keys that a queue pair binds to memory for its peer, and takes back.

use crate::types::{Key, Qpn};

/// A memory window of type 2, as software knows it (`struct ibv_mw`): a key that one queue pair binds to a
/// range of a registered region for its peer, and revokes with one request. The region itself need not give
/// the peer any right.
///
/// It is an mkey with room for 4 entries that the peer may invalidate, made by
/// [`CreateMkey`](crate::command::CreateMkey) with [`remote_invalidate`](crate::command::MkeyFeatures::remote_invalidate), or by
/// `ibv_alloc_mw`; only where [`memory_windows`](crate::command::GeneralCapabilities::memory_windows) is set. No binding has
/// the key of one of the 255 before it.
///
/// ```
/// use mlx5_mkey::error::PostError;
/// use mlx5_mkey::mkey::{Access, KlmEntry, MemoryWindow};
/// use mlx5_mkey::queue::{Doorbell, SendQueue};
/// use mlx5_mkey::types::Key;
///
/// /// Lets the peer write to a buffer, and returns the key for it.
/// fn open<D: Doorbell>(
///     queue: &mut SendQueue<'_, D, 256>,
///     window: &mut MemoryWindow,
///     buffer: KlmEntry,
/// ) -> Result<Key, PostError> {
///     queue.request(1).bind_window(window, buffer, Access::REMOTE_WRITE, 0)?;
///     Ok(window.key())
/// }
///
/// /// Takes it back: when request 2 has completed, the peer's requests by the key fail. Call
/// /// `window.note_invalidated()` then.
/// fn close<D: Doorbell>(
///     queue: &mut SendQueue<'_, D, 256>,
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
    /// Who has bound it.
    bound: Option<Qpn>,
}

impl MemoryWindow {
    /// Tracks a window that is not bound: one that was just made, or invalidated.
    pub const fn new(key: Key) -> Self {
        Self { key, bound: None }
    }

    /// Returns the key of the last binding: what the peer uses.
    pub const fn key(&self) -> Key {
        self.key
    }

    /// Returns whether it is bound, as far as this side knows.
    pub const fn is_bound(&self) -> bool {
        self.bound.is_some()
    }

    /// Returns the queue pair that has bound it, which alone can invalidate it; `None` where it is not bound.
    pub const fn queue_pair(&self) -> Option<Qpn> {
        self.bound
    }

    /// Returns the key of the next binding.
    pub(crate) const fn next_key(&self) -> Key {
        Key::new(self.key.index(), self.key.tag().wrapping_add(1))
    }

    /// Notes that a request was posted that binds it under this key for the peer of this queue pair.
    pub(crate) const fn note_bound(&mut self, key: Key, qpn: Qpn) {
        *self = Self { key, bound: Some(qpn) };
    }

    /// Notes that it is not bound any more: a request that invalidates it has completed without an error, or
    /// the peer has invalidated it (a receive names the key). A reset of its queue pair leaves it bound.
    /// Where the queue pair is gone, the window can only be destroyed.
    pub const fn note_invalidated(&mut self) {
        self.bound = None;
    }
}
