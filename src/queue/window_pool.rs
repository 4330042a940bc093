//! Pools of memory windows, which requests take and give back.

use super::completion::WorkCompletion;
use super::request::SendRequest;
use super::slots::{Handle, Slot, Slots};
use crate::mkey::MemoryWindow;
use crate::mkey::error::PoolError;
use crate::wqe::error::PostError;
use heapless::Vec;

/// A pool of up to `N` memory windows, each of them in use or not. The key of a window is given to a peer for
/// one I/O, and revoked after it.
///
/// A window is put back in two steps: [`WindowPool::invalidate`] posts the request that revokes it, and
/// [`WindowPool::put`] needs the completion of this request. The window that was put back first is taken
/// first, so that its key comes back as late as possible.
///
/// The pool keeps the windows, and hands out copies of handles. Another pool refuses the handle, and so does
/// the same pool once the window was put back. [`WindowPool::in_use`] also returns handles that were lost.
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
/// /// Ends the access, as soon as request 2 is executed. `queue` is the one that has bound the window.
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

/// The handle of a memory window that was taken from a pool, valid until the window is put back.
#[must_use = "what is not put back stays in use"]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct PooledWindow(Handle);

impl PooledWindow {
    /// Returns the window's position in the pool.
    pub const fn position(self) -> usize {
        self.0.position()
    }
}

impl<const N: usize> WindowPool<N> {
    /// Makes a pool of these windows, none of them in use.
    ///
    /// # Errors
    /// [`PoolError::TooMany`] for more than `N` windows, [`PoolError::KeyInService`] for a window that is
    /// bound. Use [`WindowPool::insert`] to get back a refused window.
    pub fn new(windows: impl IntoIterator<Item = MemoryWindow>) -> Result<Self, PoolError> {
        let mut pool = Self { windows: Vec::new(), slots: Slots::new([Slot::VACANT; N]) };
        for window in windows {
            pool.insert(window).map_err(|window| {
                if window.is_bound() { PoolError::KeyInService } else { PoolError::TooMany }
            })?;
        }
        Ok(pool)
    }

    /// Returns the number of windows that can be taken.
    pub fn available(&self) -> usize {
        self.slots.available()
    }

    /// Adds a window that is not bound. Returns the position that the window keeps until it is removed.
    ///
    /// # Errors
    /// The window, if it is bound, or if the pool already has `N` windows.
    pub fn insert(&mut self, window: MemoryWindow) -> Result<usize, MemoryWindow> {
        if window.is_bound() {
            return Err(window);
        }
        let Some(position) = self.slots.add() else { return Err(window) };
        match self.windows.get_mut(position) {
            // The new window takes the position of a removed window.
            Some(place) => *place = Some(window),
            // Positions that never had a window are given out in ascending order, so this one is the next of
            // `windows`, which has room for `N`.
            None => drop(self.windows.push(Some(window))),
        }
        Ok(position)
    }

    /// Takes a window, to be bound, or returns `None` while all windows are in use.
    pub fn take(&mut self) -> Option<(PooledWindow, &mut MemoryWindow)> {
        let handle = self.slots.take()?;
        let window = self.windows.get_mut(handle.position())?.as_mut()?;
        Some((PooledWindow(handle), window))
    }

    /// Posts `request` to revoke a window ([`SendRequest::invalidate_window`]). [`WindowPool::put`] needs the
    /// completion of this request, or of a later one on the same queue pair. If the request is not signalled,
    /// post a later one that is. The names (`wr_id`) of the requests do not matter. Ask for a fence if
    /// earlier requests still use the key.
    ///
    /// The window stays in use. If the request fails, or its queue pair is reset before the request is
    /// executed, the peer may still use the key. Invalidate the window again on the same queue pair, once the
    /// queue pair works again.
    ///
    /// # Errors
    /// [`PostError::Pool`] for a handle that names no window in use in this pool; otherwise the errors of
    /// [`SendRequest::invalidate_window`]. Nothing is posted.
    pub fn invalidate(
        &mut self,
        window: PooledWindow,
        request: SendRequest<'_, '_>,
    ) -> Result<(), PostError> {
        let (qpn, number) = (request.qpn(), request.number());
        request.invalidate_window(self.window_mut(window)?)?;
        self.slots.invalidating(window.0, qpn, number);
        Ok(())
    }

    /// Puts a window back if a completion proves that it is no longer bound. The completion is the success of
    /// [`WindowPool::invalidate`]'s request or of a later request on the same queue pair, or the receipt of a
    /// message by which the peer has invalidated the key ([`super::Message::SendInvalidate`]).
    ///
    /// # Errors
    /// [`PoolError::KeyInService`] if the completion is no such proof, because the request failed or the
    /// completion is of an earlier request or of another queue pair. The window is still in use.
    /// [`PoolError::OtherPool`] and [`PoolError::NotInUse`] for a handle that names no window in use in this
    /// pool.
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
    /// [`PoolError::NotInUse`] for a handle that names no window in use in this pool. Nothing changes.
    pub fn put_unused(&mut self, window: PooledWindow) -> Result<(), PoolError> {
        if self.window_mut(window)?.is_bound() {
            return Err(PoolError::KeyInService);
        }
        self.slots.put_unused(window.0)
    }

    /// Removes a window in use, to be destroyed on the device. This is for a window whose queue pair was
    /// destroyed, since no other queue pair can revoke the window. The other windows keep their positions.
    ///
    /// # Errors
    /// [`PoolError::OtherPool`] and [`PoolError::NotInUse`] for a handle that names no window in use in this
    /// pool.
    pub fn remove(&mut self, window: PooledWindow) -> Result<MemoryWindow, PoolError> {
        let position = self.slots.remove(window.0)?;
        self.windows.get_mut(position).and_then(Option::take).ok_or(PoolError::NotInUse)
    }

    /// Returns a window in use, or `None` if the handle names none in this pool. The peer needs the key of
    /// the window ([`MemoryWindow::key`]).
    pub fn get_mut(&mut self, window: PooledWindow) -> Option<&mut MemoryWindow> {
        self.window_mut(window).ok()
    }

    fn window_mut(&mut self, window: PooledWindow) -> Result<&mut MemoryWindow, PoolError> {
        let position = self.slots.position(window.0)?;
        self.windows.get_mut(position).and_then(Option::as_mut).ok_or(PoolError::NotInUse)
    }

    /// Returns the handles of all windows in use, by position, including lost handles.
    pub fn in_use(&self) -> impl Iterator<Item = PooledWindow> {
        self.slots.in_use().map(PooledWindow)
    }
}

crate::fmt::format_counters!([const N: usize] WindowPool [N] { });
