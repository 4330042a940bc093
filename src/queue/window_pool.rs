//! Pools of memory windows. A program takes a window for one I/O, and puts the window back afterwards.

use super::completion::WorkCompletion;
use super::request::SendRequest;
use super::room::Room;
use super::slots::{Handle, PoolSlot, Slots};
use crate::mkey::MemoryWindow;
use crate::mkey::error::PoolError;
use crate::types::{Key, QueueError};
use crate::wqe::error::PostError;

/// A placeholder at the position of a removed window.
const NONE: MemoryWindow = MemoryWindow::new(Key::from_raw(0));

/// A pool of memory windows, each of them in use or not. The key of a window is given to a peer for one I/O,
/// and revoked after it.
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
///     queue: &mut SendQueue<'_, D>,
///     pool: &mut WindowPool<'_>,
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
///     queue: &mut SendQueue<'_, D>,
///     pool: &mut WindowPool<'_>,
///     handle: PooledWindow,
/// ) -> Result<(), PostError> {
///     pool.invalidate(handle, queue.request(2).signaled())
/// }
///
/// /// Request 2 has completed: if it has failed, the window is still in use.
/// fn ended(
///     pool: &mut WindowPool<'_>,
///     handle: PooledWindow,
///     completion: &WorkCompletion,
/// ) -> Result<(), PoolError> {
///     pool.put(handle, completion)
/// }
/// ```
pub struct WindowPool<'m> {
    windows: Room<'m, MemoryWindow>,
    slots: Slots<'m>,
}

/// The handle of a memory window that was taken from a pool, valid until the window is put back.
#[must_use = "what is not put back stays in use"]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct PooledWindow(pub(crate) Handle);

impl PooledWindow {
    /// Returns the window's position in the pool.
    pub const fn position(self) -> usize {
        self.0.position()
    }
}

impl<'m> WindowPool<'m> {
    /// Makes a pool of these windows, none of them in use. `slots` has one slot for each window.
    ///
    /// # Errors
    /// [`QueueError::TooFewSlots`] for more windows than slots, [`QueueError::WindowBound`].
    pub fn new(
        windows: impl Into<Room<'m, MemoryWindow>>,
        slots: impl Into<Room<'m, PoolSlot>>,
    ) -> Result<Self, QueueError> {
        let windows = windows.into();
        if let Some(bound) = windows.as_ref().iter().find(|window| window.is_bound()) {
            return Err(QueueError::WindowBound { key: bound.key() });
        }
        let mut slots = Slots::new(slots.into(), windows.as_ref().len())?;
        while slots.add().is_some() {}
        Ok(Self { windows, slots })
    }

    /// Returns the number of windows that can be taken.
    pub fn available(&self) -> usize {
        self.slots.available()
    }

    /// Adds a window that is not bound. Returns the position that the window keeps until it is removed.
    ///
    /// # Errors
    /// The window, if it is bound, or if the pool has no room.
    pub fn insert(&mut self, window: MemoryWindow) -> Result<usize, MemoryWindow> {
        if window.is_bound() {
            return Err(window);
        }
        let Some(position) = self.slots.add() else { return Err(window) };
        if let Some(place) = self.windows.as_mut().get_mut(position) {
            *place = window;
        }
        Ok(position)
    }

    /// Takes a window, to be bound, or returns `None` while all windows are in use.
    pub fn take(&mut self) -> Option<(PooledWindow, &mut MemoryWindow)> {
        let handle = self.slots.take()?;
        let window = self.windows.as_mut().get_mut(handle.position())?;
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
        // A bound window takes no other binding, so the invalidation is the last request that changed it.
        let key = self.window_mut(window)?.key();
        self.slots.put(window.0, key, completion)?;
        if let Some(free) = self.windows.as_mut().get_mut(window.position()) {
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
        let place = self.windows.as_mut().get_mut(position).ok_or(PoolError::NotInUse)?;
        Ok(core::mem::replace(place, NONE))
    }

    /// Returns a window in use, or `None` if the handle names none in this pool. The peer needs the key of
    /// the window ([`MemoryWindow::key`]).
    pub fn get_mut(&mut self, window: PooledWindow) -> Option<&mut MemoryWindow> {
        self.window_mut(window).ok()
    }

    pub(crate) fn window_mut(&mut self, window: PooledWindow) -> Result<&mut MemoryWindow, PoolError> {
        let position = self.slots.position(window.0)?;
        self.windows.as_mut().get_mut(position).ok_or(PoolError::NotInUse)
    }

    /// Returns the handles of all windows in use, by position, including lost handles.
    pub fn in_use(&self) -> impl Iterator<Item = PooledWindow> {
        self.slots.in_use().map(PooledWindow)
    }
}

crate::fmt::format_counters!(['m] WindowPool ['m] { });
