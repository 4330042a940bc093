//! Memory windows that are not in use.

use super::request::SendRequest;
use crate::error::PostError;
use crate::mkey::MemoryWindow;
use heapless::Deque;

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
