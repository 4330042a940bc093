//! Requests that bind memory windows and revoke them, and pools of windows.

use super::in_flight::RequestKind;
use super::request::SendRequest;
use crate::error::{ConfigError, PostError};
use crate::mkey::{Access, KlmEntry, MemoryWindow};
use crate::wqe::window::{self, BIND_BLOCKS};
use heapless::Deque;

impl SendRequest<'_, '_> {
    /// Binds a memory window of type 2 to a range of a registered region (`IBV_WR_BIND_MW`, `ibv_wr_bind_mw`): under its next key,
    /// the peer of this queue pair may do what `access` says, whatever the region allows it. The range begins at address `start` of
    /// the window's space; `ibv_wr_bind_mw` has the address in the region there, or 0 (`IBV_ACCESS_ZERO_BASED`).
    ///
    /// The region has to allow local writing where the peer may write, and has to be in the window's protection domain: the device
    /// refuses the peer else, and nobody before.
    ///
    /// # Errors
    /// [`PostError::Config`] with [`ConfigError::WindowBound`] for a window that was not invalidated, or
    /// [`ConfigError::EntryLength`] for a range of 0 bytes or over 2 GiB, or [`ConfigError::SpaceBehindEnd`] for one that ends behind
    /// address 2^64 - 1; [`PostError::SendRingFull`], [`PostError::TooManyRequests`].
    pub fn bind_window(
        mut self,
        window: &mut MemoryWindow,
        range: KlmEntry,
        access: Access,
        start: u64,
    ) -> Result<(), PostError> {
        if window.is_bound() {
            return Err(ConfigError::WindowBound.into());
        }
        if let Some((_, length)) = KlmEntry::wrong_length(&[range]) {
            return Err(ConfigError::EntryLength { index: 0, length }.into());
        }
        ConfigError::check_space(start, range.length.into())?;
        let (key, qpn) = (window.next_key(), self.state.qpn());
        let (blocks, fields) = self.reserve(BIND_BLOCKS)?;
        window::bind(blocks, fields, window.key(), (key.tag(), qpn), &range, access, start);
        self.commit(fields.begin, RequestKind::BindWindow, BIND_BLOCKS, 0)?;
        window.note_bound(key);
        Ok(())
    }

    /// Revokes a memory window (`IBV_WR_LOCAL_INV`): once it is executed, the peer's requests by its key fail, and it can be bound
    /// anew. Ask for a fence where requests before it still use the key.
    ///
    /// # Errors
    /// [`PostError::SendRingFull`], [`PostError::TooManyRequests`].
    pub fn invalidate_window(self, window: &mut MemoryWindow) -> Result<(), PostError> {
        self.invalidate(window.key())?;
        window.note_invalidated();
        Ok(())
    }
}

/// Up to `N` memory windows that are not in use: for keys that are given to a peer for one I/O, and revoked behind it.
///
/// The one that was put back first is taken first, so that the key of a window returns as late as it can.
///
/// ```
/// use mlx5_mkey::error::PostError;
/// use mlx5_mkey::mkey::{Access, KlmEntry, MemoryWindow};
/// use mlx5_mkey::queue::{Doorbell, SendQueue, WindowPool};
///
/// /// Lets the peer read a buffer, until `end` is called. `None` while all windows are in use.
/// fn begin<D: Doorbell>(
///     queue: &mut SendQueue<'_, D, 256>,
///     pool: &mut WindowPool<64>,
///     buffer: KlmEntry,
/// ) -> Result<Option<MemoryWindow>, PostError> {
///     let Some(mut window) = pool.take() else { return Ok(None) };
///     match queue.request(1).bind_window(&mut window, buffer, Access::REMOTE_READ, 0) {
///         Ok(()) => Ok(Some(window)),
///         Err(error) => {
///             // It was taken from there.
///             let _ = pool.insert(window);
///             Err(error)
///         }
///     }
/// }
///
/// fn end<D: Doorbell>(
///     queue: &mut SendQueue<'_, D, 256>,
///     pool: &mut WindowPool<64>,
///     window: MemoryWindow,
/// ) -> Result<(), (PostError, MemoryWindow)> {
///     pool.put(window, queue.request(2))
/// }
/// ```
pub struct WindowPool<const N: usize> {
    free: Deque<MemoryWindow, N>,
}

impl<const N: usize> WindowPool<N> {
    /// A pool of these windows. What there are more than `N` is dropped.
    pub fn new(windows: impl IntoIterator<Item = MemoryWindow>) -> Self {
        let mut pool = Self { free: Deque::new() };
        for window in windows.into_iter().take(N) {
            // There is room for `N`.
            let _ = pool.insert(window);
        }
        pool
    }

    /// Returns how many windows there are to take.
    pub fn len(&self) -> usize {
        self.free.len()
    }

    /// Returns whether there are none.
    pub fn is_empty(&self) -> bool {
        self.free.is_empty()
    }

    /// Adds a window that is not bound: a new one, or one that the peer has invalidated.
    ///
    /// # Errors
    /// The window, where it is bound, or the pool has `N` already.
    pub fn insert(&mut self, window: MemoryWindow) -> Result<(), MemoryWindow> {
        if window.is_bound() { Err(window) } else { self.free.push_back(window) }
    }

    /// Takes a window, to be bound; `None` while all are in use.
    pub fn take(&mut self) -> Option<MemoryWindow> {
        self.free.pop_front()
    }

    /// Revokes a window with `request` ([`SendRequest::invalidate_window`]) and puts it back.
    ///
    /// Whoever takes it next may bind it on the same queue at once, on another one when this request has completed.
    ///
    /// # Errors
    /// [`PostError`], and the window, which is bound as before: as of [`SendRequest::invalidate_window`], or
    /// [`PostError::PoolFull`] where the pool has `N` already.
    pub fn put(
        &mut self,
        mut window: MemoryWindow,
        request: SendRequest<'_, '_>,
    ) -> Result<(), (PostError, MemoryWindow)> {
        if self.free.is_full() {
            return Err((PostError::PoolFull, window));
        }
        if let Err(error) = request.invalidate_window(&mut window) {
            return Err((error, window));
        }
        self.free.push_back(window).map_err(|window| (PostError::PoolFull, window))
    }
}

crate::fmt::format_counters!([const N: usize] WindowPool [N] { });
