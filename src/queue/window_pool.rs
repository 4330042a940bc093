//! Memory windows that requests take and give back.

use super::completion::WorkCompletion;
use super::request::SendRequest;
use super::slots::{Handle, Slot, Slots};
use crate::error::{PoolError, PostError};
use crate::mkey::MemoryWindow;
use heapless::Vec;

/// Up to `N` memory windows, in use or not: for keys that are given to a peer for one I/O, and revoked behind
/// it.
///
/// A window is put back in two steps: [`WindowPool::invalidate`] posts the request that revokes it, and
/// [`WindowPool::put`] wants its completion. The one that was put back first is taken first, so that the key
/// of a window returns as late as it can.
///
/// The pool keeps the windows, and hands out copies of handles. A handle is of no use to another pool, nor
/// once its window was put back. A handle that was lost is among those of [`WindowPool::in_use`].
///
/// ```
/// use mlx5_mkey::error::{PoolError, PostError};
/// use mlx5_mkey::mkey::{Access, KlmEntry};
/// use mlx5_mkey::queue::{Doorbell, PooledWindow, SendQueue, WindowPool, WorkCompletion};
///
/// /// Lets the peer read a buffer, until `end` is called. `None` while all windows are in use.
/// fn begin<D: Doorbell>(
///     queue: &mut SendQueue<'_, D, 256>,
///     pool: &mut WindowPool<64>,
///     buffer: KlmEntry,
/// ) -> Result<Option<PooledWindow>, PostError> {
///     let Some((handle, window)) = pool.take() else { return Ok(None) };
///     if let Err(error) = queue.request(1).bind_window(window, buffer, Access::REMOTE_READ, 0) {
///         pool.put_unused(handle)?;
///         return Err(error);
///     }
///     Ok(Some(handle))
/// }
///
/// /// Ends it, as soon as request 2 is executed. `queue` is the one that has bound the window.
/// fn end<D: Doorbell>(
///     queue: &mut SendQueue<'_, D, 256>,
///     pool: &mut WindowPool<64>,
///     handle: PooledWindow,
/// ) -> Result<(), PostError> {
///     pool.invalidate(handle, queue.request(2).signaled())
/// }
///
/// /// Request 2 has completed: if it has failed, the window is still in use.
/// fn ended(
///     pool: &mut WindowPool<64>,
///     handle: PooledWindow,
///     completion: &WorkCompletion,
/// ) -> Result<(), PoolError> {
///     pool.put(handle, completion)
/// }
/// ```
pub struct WindowPool<const N: usize> {
    windows: Vec<Option<MemoryWindow>, N>,
    slots: Slots<[Slot; N]>,
}

/// A memory window that was taken from a pool, until it is put back.
#[must_use = "what is not put back stays in use"]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct PooledWindow(Handle);

impl PooledWindow {
    /// Returns its position in the pool.
    pub const fn position(self) -> usize {
        self.0.position()
    }
}

impl<const N: usize> WindowPool<N> {
    /// A pool of these windows, none of them in use.
    ///
    /// # Errors
    /// [`PoolError::TooMany`] for more than `N`, [`PoolError::KeyInService`] for a window that is bound.
    /// [`WindowPool::insert`] gives each back that it does not take.
    pub fn new(windows: impl IntoIterator<Item = MemoryWindow>) -> Result<Self, PoolError> {
        let mut pool = Self { windows: Vec::new(), slots: Slots::new([Slot::VACANT; N]) };
        for window in windows {
            pool.insert(window).map_err(|window| {
                if window.is_bound() { PoolError::KeyInService } else { PoolError::TooMany }
            })?;
        }
        Ok(pool)
    }

    /// Returns how many windows there are to take.
    pub fn available(&self) -> usize {
        self.slots.available()
    }

    /// Adds a window that is not bound. Returns its position, which it has until it is removed.
    ///
    /// # Errors
    /// The window, where it is bound, or the pool has `N` already.
    pub fn insert(&mut self, window: MemoryWindow) -> Result<usize, MemoryWindow> {
        if window.is_bound() {
            return Err(window);
        }
        let Some(position) = self.slots.add() else { return Err(window) };
        match self.windows.get_mut(position) {
            // A position of one that was removed.
            Some(place) => *place = Some(window),
            // Positions are given out in turn, and there is room for `N`.
            None => drop(self.windows.push(Some(window))),
        }
        Ok(position)
    }

    /// Takes a window, to be bound; `None` while all are in use.
    pub fn take(&mut self) -> Option<(PooledWindow, &mut MemoryWindow)> {
        let handle = self.slots.take()?;
        let window = self.windows.get_mut(handle.position())?.as_mut()?;
        Some((PooledWindow(handle), window))
    }

    /// Has `request` revoke a window ([`SendRequest::invalidate_window`]), for [`WindowPool::put`], which
    /// wants its completion: the request is signalled, or has the name (`wr_id`) of a later invalidation on
    /// the same queue pair that is. Invalidations of one name are not told apart: put their windows back with
    /// the completion of the last. Ask for a fence where requests before it still use the key.
    ///
    /// The window stays in use. Where the request fails, or its queue pair is reset before, the peer may
    /// still use the key: invalidate the window again, on the same queue pair, when that works again.
    ///
    /// # Errors
    /// [`PostError::Pool`] for a handle that names no window in use here; else as of
    /// [`SendRequest::invalidate_window`]. Nothing is posted.
    pub fn invalidate(
        &mut self,
        window: PooledWindow,
        request: SendRequest<'_, '_>,
    ) -> Result<(), PostError> {
        let (qpn, id) = (request.qpn(), request.id());
        request.invalidate_window(self.window_mut(window)?)?;
        self.slots.invalidating(window.0, qpn, id);
        Ok(())
    }

    /// Puts a window back that is not bound any more, as a completion says: that of
    /// [`WindowPool::invalidate`], or the receipt of a message by which the peer has invalidated the key
    /// ([`super::Message::SendInvalidate`]).
    ///
    /// # Errors
    /// [`PoolError::KeyInService`] where the completion does not say that: of a request that failed, or of
    /// another request. The window is still in use. [`PoolError::OtherPool`] and [`PoolError::NotInUse`] for
    /// a handle that names no window in use here.
    pub fn put(&mut self, window: PooledWindow, completion: &WorkCompletion) -> Result<(), PoolError> {
        let key = self.window_mut(window)?.key();
        self.slots.put(window.0, key, completion)?;
        if let Some(Some(free)) = self.windows.get_mut(window.position()) {
            free.note_invalidated();
        }
        Ok(())
    }

    /// Puts a window back that is not bound.
    ///
    /// # Errors
    /// [`PoolError::KeyInService`] for a window that is bound, [`PoolError::OtherPool`] and
    /// [`PoolError::NotInUse`] for a handle that names no window in use here. Nothing has changed.
    pub fn put_unused(&mut self, window: PooledWindow) -> Result<(), PoolError> {
        if self.window_mut(window)?.is_bound() {
            return Err(PoolError::KeyInService);
        }
        self.slots.put_unused(window.0)
    }

    /// Removes a window in use, to be destroyed on the device: one whose queue pair is gone, which alone
    /// could revoke it. The others keep their positions.
    ///
    /// # Errors
    /// [`PoolError::OtherPool`] and [`PoolError::NotInUse`] for a handle that names no window in use here.
    pub fn remove(&mut self, window: PooledWindow) -> Result<MemoryWindow, PoolError> {
        let position = self.slots.remove(window.0)?;
        self.windows.get_mut(position).and_then(Option::take).ok_or(PoolError::NotInUse)
    }

    /// Returns a window in use, for its key; `None` for a handle that names none here.
    pub fn get_mut(&mut self, window: PooledWindow) -> Option<&mut MemoryWindow> {
        self.window_mut(window).ok()
    }

    fn window_mut(&mut self, window: PooledWindow) -> Result<&mut MemoryWindow, PoolError> {
        let position = self.slots.position(window.0)?;
        self.windows.get_mut(position).and_then(Option::as_mut).ok_or(PoolError::NotInUse)
    }

    /// Returns the handles of all windows in use, by position: also of those whose handles were lost.
    pub fn in_use(&self) -> impl Iterator<Item = PooledWindow> {
        self.slots.in_use().map(PooledWindow)
    }
}

crate::fmt::format_counters!([const N: usize] WindowPool [N] { });
