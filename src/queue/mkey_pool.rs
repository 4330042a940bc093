//! Mkeys that requests take and give back.

use super::completion::WorkCompletion;
use super::request::SendRequest;
use super::slots::{Handle, Slot, Slots};
use crate::error::{PoolError, PostError};
use crate::mkey::{Mkey, MkeyAttributes};
use crate::types::Key;
use heapless::Vec;

/// Keeps the position of an mkey that was removed. No completion names it: it has no signature.
const NONE: Mkey = Mkey::new(MkeyAttributes::plain(Key::from_raw(0), 0));

/// Up to `N` mkeys, in use or not.
///
/// An mkey is configured for one I/O, and for another one later. Its key is known to the peer by then. So an
/// mkey is put back in two steps: [`MkeyPool::invalidate`] posts the request that takes the key out of
/// service, and [`MkeyPool::put`] wants its completion. The mkey that was put back first is taken first.
/// Where the device can change tags, no use has the key of one of the 255 before it of the same mkey: with 64
/// mkeys, the first key comes back after 16,384 uses.
///
/// The pool keeps the mkeys, and hands out copies of handles. A handle is of no use to another pool, nor once
/// its mkey was put back. A handle that was lost is among those of [`MkeyPool::in_use`].
///
/// ```
/// use mlx5_mkey::error::{PoolError, PostError};
/// use mlx5_mkey::mkey::KlmEntry;
/// use mlx5_mkey::queue::{Doorbell, MkeyPool, PooledMkey, SendQueue, WorkCompletion};
/// use mlx5_mkey::wqe::PreparedConfig;
///
/// /// Lays an mkey over memory for a peer, until `end` is called. `None` while all mkeys are in use.
/// fn begin<D: Doorbell>(
///     queue: &mut SendQueue<'_, D, 256>,
///     pool: &mut MkeyPool<64>,
///     prepared: &PreparedConfig,
///     memory: &[KlmEntry],
/// ) -> Result<Option<PooledMkey>, PostError> {
///     let Some((handle, mkey)) = pool.take() else { return Ok(None) };
///     if let Err(error) = queue.request(1).configure_mkey(mkey, prepared, memory) {
///         pool.put_unused(handle)?;
///         return Err(error);
///     }
///     Ok(Some(handle))
/// }
///
/// /// Ends the peer's access, as soon as request 2 is executed.
/// fn end<D: Doorbell>(
///     queue: &mut SendQueue<'_, D, 256>,
///     pool: &mut MkeyPool<64>,
///     handle: PooledMkey,
/// ) -> Result<(), PostError> {
///     pool.invalidate(handle, queue.request(2).signaled())
/// }
///
/// /// Request 2 has completed: if it has failed, the mkey is still in use.
/// fn ended(
///     pool: &mut MkeyPool<64>,
///     handle: PooledMkey,
///     completion: &WorkCompletion,
/// ) -> Result<(), PoolError> {
///     pool.put(handle, completion)
/// }
/// ```
pub struct MkeyPool<const N: usize> {
    mkeys: Vec<Mkey, N>,
    slots: Slots<[Slot; N]>,
}

/// An mkey that was taken from a pool, until it is put back.
#[must_use = "what is not put back stays in use"]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct PooledMkey(pub(crate) Handle);

impl PooledMkey {
    /// Returns its position in the pool: what a signature error names
    /// ([`super::Completion::SignatureError`]).
    pub const fn position(self) -> usize {
        self.0.position()
    }
}

impl<const N: usize> MkeyPool<N> {
    /// A pool of these mkeys, none of them in use.
    ///
    /// # Errors
    /// [`PoolError::TooMany`] for more than `N`. [`MkeyPool::insert`] gives each back that does not fit.
    pub fn new(mkeys: impl IntoIterator<Item = Mkey>) -> Result<Self, PoolError> {
        let mut pool = Self::empty();
        for mkey in mkeys {
            pool.insert(mkey).map_err(|_| PoolError::TooMany)?;
        }
        Ok(pool)
    }

    /// A pool of no mkeys.
    pub(crate) fn empty() -> Self {
        Self { mkeys: Vec::new(), slots: Slots::new([Slot::VACANT; N]) }
    }

    /// Adds an mkey that is not in use. Returns its position, which it has until it is removed.
    ///
    /// # Errors
    /// The mkey, where the pool has `N` already.
    #[expect(clippy::result_large_err, reason = "what does not fit comes back")]
    pub fn insert(&mut self, mkey: Mkey) -> Result<usize, Mkey> {
        let Some(position) = self.slots.add() else { return Err(mkey) };
        match self.mkeys.get_mut(position) {
            // A position of one that was removed.
            Some(place) => *place = mkey,
            // Positions are given out in turn.
            None => self.mkeys.push(mkey)?,
        }
        Ok(position)
    }

    /// Removes the mkey that has been out of use for the longest time, and returns the position that it had;
    /// `None` where all are in use. The others keep their positions.
    pub fn remove_unused(&mut self) -> Option<(usize, Mkey)> {
        let position = self.slots.remove_free()?;
        let place = self.mkeys.get_mut(position)?;
        Some((position, core::mem::replace(place, NONE)))
    }

    /// Takes an mkey, to be configured; `None` while all are in use. Its key has another tag than at its last
    /// use, where the device can change tags. It knows of no signature error of an earlier use; an error that
    /// was polled without these mkeys in the router is told by the next
    /// [`CompletionQueue::check`](super::CompletionQueue::check).
    #[inline]
    pub fn take(&mut self) -> Option<(PooledMkey, &mut Mkey)> {
        let handle = self.slots.take()?;
        let mkey = self.mkeys.get_mut(handle.position())?;
        mkey.advance_tag();
        // An error of an earlier use may still be recorded, which nobody asked for.
        let _ = mkey.take_error();
        Some((PooledMkey(handle), mkey))
    }

    /// Has `request` take the key of an mkey out of service ([`SendRequest::invalidate_mkey`]), for
    /// [`MkeyPool::put`], which wants its completion: the request is signalled, or has the name (`wr_id`) of
    /// a later invalidation on the same queue pair that is. Invalidations of one name are not told apart: put
    /// their mkeys back with the completion of the last. Ask for a fence where requests before it still use
    /// the key.
    ///
    /// The mkey stays in use. Where the request fails, or its queue pair is reset before, the key may still
    /// be in service: invalidate the mkey again, on any queue pair.
    ///
    /// # Errors
    /// [`PostError::Pool`] for a handle that names no mkey in use here; else as of
    /// [`SendRequest::invalidate_mkey`]. Nothing is posted.
    pub fn invalidate(&mut self, mkey: PooledMkey, request: SendRequest<'_, '_>) -> Result<(), PostError> {
        let (qpn, id) = (request.qpn(), request.id());
        request.invalidate_mkey(self.mkey_mut(mkey)?)?;
        self.slots.invalidating(mkey.0, qpn, id);
        Ok(())
    }

    /// Puts an mkey back whose key is out of service, as a completion says: that of [`MkeyPool::invalidate`],
    /// or the receipt of a message by which the peer has invalidated the key
    /// ([`super::Message::SendInvalidate`]). Its next configuration has to be complete.
    ///
    /// # Errors
    /// [`PoolError::KeyInService`] where the completion does not say that: of a request that failed, or of
    /// another request. The mkey is still in use. [`PoolError::OtherPool`] and [`PoolError::NotInUse`] for a
    /// handle that names no mkey in use here.
    pub fn put(&mut self, mkey: PooledMkey, completion: &WorkCompletion) -> Result<(), PoolError> {
        let taken = self.mkey_mut(mkey)?;
        let key = taken.key();
        self.slots.put(mkey.0, key, completion)?;
        if let Some(free) = self.mkeys.get_mut(mkey.position()) {
            // Also where the peer has done it.
            free.note_invalidated();
        }
        Ok(())
    }

    /// Puts an mkey back whose key no peer can use: it was not configured, or gave no remote rights.
    ///
    /// # Errors
    /// [`PoolError::KeyInService`] for an mkey that is being invalidated, [`PoolError::OtherPool`] and
    /// [`PoolError::NotInUse`] for a handle that names no mkey in use here. Nothing has changed.
    #[inline]
    pub fn put_unused(&mut self, mkey: PooledMkey) -> Result<(), PoolError> {
        self.slots.put_unused(mkey.0)
    }

    /// Returns an mkey in use; `None` for a handle that names none here.
    #[inline]
    pub fn get_mut(&mut self, mkey: PooledMkey) -> Option<&mut Mkey> {
        self.mkey_mut(mkey).ok()
    }

    /// Returns an mkey in use, or why the handle names none here.
    #[inline]
    pub(crate) fn mkey_mut(&mut self, mkey: PooledMkey) -> Result<&mut Mkey, PoolError> {
        let position = self.slots.position(mkey.0)?;
        self.mkeys.get_mut(position).ok_or(PoolError::NotInUse)
    }

    /// Returns the handles of all mkeys in use, by position: also of those whose handles were lost.
    pub fn in_use(&self) -> impl Iterator<Item = PooledMkey> {
        self.slots.in_use().map(PooledMkey)
    }

    /// Returns all mkeys by position, for a router of completions ([`super::QpRouter`],
    /// [`super::QpTable::router`]). At the position of one that was removed is a placeholder, which no
    /// completion names.
    #[inline]
    pub fn mkeys(&mut self) -> &mut [Mkey] {
        &mut self.mkeys
    }

    /// Returns how many are not in use.
    pub fn available(&self) -> usize {
        self.slots.available()
    }
}

crate::fmt::format_counters!([const N: usize] MkeyPool [N] { });

#[cfg(test)]
mod tests;
