//! Memory windows: keys that a queue pair binds to memory for its peer, and takes back.

use crate::types::Key;

/// A memory window of type 2, as software knows it (`struct ibv_mw`): a key that one queue pair binds to a range of a registered
/// region for its peer, and revokes with one request. The region itself need not give the peer any right.
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
/// /// Takes it back. Whatever the peer has posted after this is executed fails.
/// fn close<D: Doorbell>(
///     queue: &mut SendQueue<'_, D, 256>,
///     window: &mut MemoryWindow,
/// ) -> Result<(), PostError> {
///     queue.request(2).invalidate_window(window)
/// }
/// ```
#[derive(Debug, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
#[must_use = "a window that is lost stays on the device as it is"]
pub struct MemoryWindow {
    key: Key,
    bound: bool,
}

impl MemoryWindow {
    /// Tracks a window that is not bound: one that was just made, or invalidated.
    pub const fn new(key: Key) -> Self {
        Self { key, bound: false }
    }

    /// Returns the key of the last binding: what the peer uses.
    pub const fn key(&self) -> Key {
        self.key
    }

    /// Returns whether it is bound, as far as this side knows.
    pub const fn is_bound(&self) -> bool {
        self.bound
    }

    /// Returns the key of the next binding.
    pub(crate) const fn next_key(&self) -> Key {
        Key::new(self.key.index(), self.key.tag().wrapping_add(1))
    }

    /// Notes that a request was posted that binds it under this key.
    pub(crate) const fn note_bound(&mut self, key: Key) {
        *self = Self { key, bound: true };
    }

    /// Notes that it is not bound any more: the peer has invalidated it (a receive names the key), or the queue pair that it was
    /// bound to is gone.
    pub const fn note_invalidated(&mut self) {
        self.bound = false;
    }
}
