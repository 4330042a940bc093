//! Pools of mkeys. A program takes an mkey for one I/O, and puts the mkey back afterwards.

use super::completion::{Outcome, WorkCompletion};
use super::request::SendRequest;
use super::room::Room;
use super::slots::{Handle, PoolSlot, Slots};
use crate::mkey::error::PoolError;
use crate::mkey::{Mkey, MkeyAttributes};
use crate::types::{Key, QueueError};
use crate::wqe::error::PostError;

/// A placeholder at the position of a removed mkey. It has no signature, so no signature error is recorded in
/// it.
const NONE: Mkey = Mkey::new(MkeyAttributes::plain(Key::from_raw(0), 0));

/// A pool of mkeys, each of them in use or not.
///
/// An mkey is configured for one I/O, and later for another one. By then, a peer knows the key of the first
/// I/O. An mkey is therefore put back in two steps: [`MkeyPool::invalidate`] posts the request that takes the
/// key out of service, and [`MkeyPool::put`] needs the completion of this request. The mkey that was put back
/// first is taken first.
///
/// If the device can change tags, a key of an mkey differs from the keys of its last 255 uses: with 64 mkeys,
/// the first key comes back after 16,384 uses.
///
/// The pool keeps the mkeys, and hands out copies of handles. Another pool refuses the handle, and so does
/// the same pool once the mkey was put back. [`MkeyPool::in_use`] also returns handles that were lost.
///
/// ```
/// use mlx5_mkey::error::{PoolError, PostError};
/// use mlx5_mkey::mkey::KlmEntry;
/// use mlx5_mkey::queue::{Doorbell, MkeyPool, PooledMkey, SendQueue, WorkCompletion};
/// use mlx5_mkey::wqe::PreparedConfig;
///
/// /// Lays an mkey over memory for a peer, until `end` is called. `None` while all mkeys are in use.
/// fn begin<D: Doorbell>(
///     queue: &mut SendQueue<'_, D>,
///     pool: &mut MkeyPool<'_>,
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
///     queue: &mut SendQueue<'_, D>,
///     pool: &mut MkeyPool<'_>,
///     handle: PooledMkey,
/// ) -> Result<(), PostError> {
///     pool.invalidate(handle, queue.request(2).signaled())
/// }
///
/// /// Request 2 has completed: if it has failed, the mkey is still in use.
/// fn ended(
///     pool: &mut MkeyPool<'_>,
///     handle: PooledMkey,
///     completion: &WorkCompletion,
/// ) -> Result<(), PoolError> {
///     pool.put(handle, completion)
/// }
/// ```
pub struct MkeyPool<'m> {
    mkeys: Room<'m, Mkey>,
    slots: Slots<'m>,
}

/// The handle of an mkey that was taken from a pool, valid until the mkey is put back.
#[must_use = "what is not put back stays in use"]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct PooledMkey(pub(crate) Handle);

impl PooledMkey {
    /// Returns the mkey's position in the pool, which a signature error names
    /// ([`super::Completion::SignatureError`]).
    pub const fn position(self) -> usize {
        self.0.position()
    }
}

impl<'m> MkeyPool<'m> {
    /// Makes a pool of these mkeys, none of them in use. `slots` has one slot for each mkey.
    ///
    /// ```
    /// use mlx5_mkey::mkey::Mkey;
    /// use mlx5_mkey::queue::{MkeyPool, PoolSlot};
    /// use mlx5_mkey::types::Key;
    /// let mut mkeys = [0x1234_00, 0x1235_00].map(|key| Mkey::plain(Key::from_raw(key), 4));
    /// let mut slots = [PoolSlot::EMPTY; 2];
    /// let pool = MkeyPool::new(&mut mkeys, &mut slots)?;
    /// assert_eq!(pool.available(), 2);
    /// # Ok::<(), mlx5_mkey::error::QueueError>(())
    /// ```
    ///
    /// # Errors
    /// [`QueueError::TooFewSlots`] for more mkeys than slots.
    pub fn new(
        mkeys: impl Into<Room<'m, Mkey>>,
        slots: impl Into<Room<'m, PoolSlot>>,
    ) -> Result<Self, QueueError> {
        let mkeys = mkeys.into();
        let mut slots = Slots::new(slots.into(), mkeys.as_ref().len())?;
        while slots.add().is_some() {}
        Ok(Self { mkeys, slots })
    }

    /// Makes an empty pool with room for as many mkeys as `mkeys` has elements. [`MkeyPool::insert`]
    /// overwrites these elements.
    ///
    /// # Errors
    /// [`QueueError::TooFewSlots`] for more mkeys than slots.
    pub fn empty(
        mkeys: impl Into<Room<'m, Mkey>>,
        slots: impl Into<Room<'m, PoolSlot>>,
    ) -> Result<Self, QueueError> {
        let mut mkeys = mkeys.into();
        mkeys.as_mut().fill(NONE);
        let slots = Slots::new(slots.into(), mkeys.as_ref().len())?;
        Ok(Self { mkeys, slots })
    }

    /// Makes an empty pool on the heap, with room for this many mkeys.
    #[cfg(feature = "devx")]
    pub(crate) fn on_heap(room: usize) -> MkeyPool<'static> {
        let (mkeys, slots) = (alloc::vec![NONE; room], alloc::vec![PoolSlot::EMPTY; room]);
        MkeyPool { mkeys: mkeys.into(), slots: Slots::full(slots.into()) }
    }

    /// Adds an mkey that is not in use. Returns the position that the mkey keeps until it is removed.
    ///
    /// # Errors
    /// The mkey, if the pool has no room.
    #[expect(clippy::result_large_err, reason = "what does not fit comes back")]
    pub fn insert(&mut self, mkey: Mkey) -> Result<usize, Mkey> {
        let Some(position) = self.slots.add() else { return Err(mkey) };
        if let Some(place) = self.mkeys.as_mut().get_mut(position) {
            *place = mkey;
        }
        Ok(position)
    }

    /// Removes the mkey that has been out of use for the longest time, and returns its former position.
    /// Returns `None` if all mkeys are in use. The other mkeys keep their positions.
    pub fn remove_unused(&mut self) -> Option<(usize, Mkey)> {
        let position = self.slots.remove_free()?;
        let place = self.mkeys.as_mut().get_mut(position)?;
        Some((position, core::mem::replace(place, NONE)))
    }

    /// Takes an mkey, to be configured. Returns `None` while all mkeys are in use. If the device can change
    /// tags, the key has another tag than at its last use. Recorded signature errors of an earlier use are
    /// dropped. If an error was polled while the router lacked the mkeys of this pool, the next
    /// [`CompletionQueue::check`](super::CompletionQueue::check) still returns it.
    #[inline]
    pub fn take(&mut self) -> Option<(PooledMkey, &mut Mkey)> {
        let handle = self.slots.take()?;
        let mkey = self.mkeys.as_mut().get_mut(handle.position())?;
        mkey.advance_tag();
        // The mkey may still hold an error of its earlier use that nobody has taken. The new user must not
        // get it.
        let _ = mkey.take_error();
        Some((PooledMkey(handle), mkey))
    }

    /// Posts `request` to take the key of an mkey out of service ([`SendRequest::invalidate_mkey`]).
    /// [`MkeyPool::put`] needs the completion of this request, or of a later one on the same queue pair. If
    /// the request is not signalled, post a later one that is. The names (`wr_id`) of the requests do not
    /// matter. Ask for a fence if earlier requests still use the key.
    ///
    /// The caller ensures that the queue pair is on the mkey's own card. No check detects another card: an
    /// mkey and a queue pair know only their numbers, and two cards may have the same numbers. Keep one pool
    /// for each card, beside its queue pairs.
    ///
    /// The mkey stays in use. If the request fails, or its queue pair is reset before the request is
    /// executed, the key may still be in service. Invalidate the mkey again, on any queue pair.
    ///
    /// # Errors
    /// [`PostError::Pool`] for a handle that names no mkey in use in this pool; otherwise the errors of
    /// [`SendRequest::invalidate_mkey`]. Nothing is posted.
    pub fn invalidate(&mut self, mkey: PooledMkey, request: SendRequest<'_, '_>) -> Result<(), PostError> {
        let (qpn, number) = (request.qpn(), request.number());
        request.invalidate_mkey(self.mkey_mut(mkey)?)?;
        self.slots.invalidating(mkey.0, qpn, number);
        Ok(())
    }

    /// Puts an mkey back if a completion proves that its key is out of service. The completion is the success
    /// of [`MkeyPool::invalidate`]'s request or of a later request on the same queue pair, or the receipt of
    /// a message by which the peer has invalidated the key ([`super::Message::SendInvalidate`]). The next
    /// configuration of the mkey has to be complete.
    ///
    /// The receipt of a message proves by the key alone, whichever queue pair has received the message: a
    /// device invalidates a key of its own before it reports the key. A receipt of another card is no proof,
    /// and no check detects its card.
    ///
    /// # Errors
    /// [`PoolError::KeyInService`] if the completion is no such proof, because the request failed, the
    /// completion is of an earlier request or of another queue pair, or the mkey was configured again after
    /// the invalidation. The mkey is still in use.
    /// [`PoolError::OtherPool`] and [`PoolError::NotInUse`] for a handle that names no mkey in use in this
    /// pool.
    pub fn put(&mut self, mkey: PooledMkey, completion: &WorkCompletion) -> Result<(), PoolError> {
        let taken = self.mkey_mut(mkey)?;
        let key = taken.key();
        // The success of an old invalidation proves nothing about an mkey that was configured since.
        if matches!(completion.outcome, Outcome::Sent { .. }) && !taken.is_unknown() {
            return Err(PoolError::KeyInService);
        }
        self.slots.put(mkey.0, key, completion)?;
        if let Some(free) = self.mkeys.as_mut().get_mut(mkey.position()) {
            // If the peer has invalidated the key, no request of this side has noted this in the mkey yet.
            free.note_invalidated();
        }
        Ok(())
    }

    /// Puts an mkey back whose key no peer can use: the mkey was not configured, or gave no remote rights.
    ///
    /// # Errors
    /// [`PoolError::KeyInService`] for an mkey that is being invalidated, [`PoolError::OtherPool`] and
    /// [`PoolError::NotInUse`] for a handle that names no mkey in use in this pool. Nothing changes.
    #[inline]
    pub fn put_unused(&mut self, mkey: PooledMkey) -> Result<(), PoolError> {
        self.slots.put_unused(mkey.0)
    }

    /// Returns an mkey in use, or `None` if the handle names none in this pool.
    #[inline]
    pub fn get_mut(&mut self, mkey: PooledMkey) -> Option<&mut Mkey> {
        self.mkey_mut(mkey).ok()
    }

    /// Returns an mkey in use, or the reason why the handle names none in this pool.
    #[inline]
    pub(crate) fn mkey_mut(&mut self, mkey: PooledMkey) -> Result<&mut Mkey, PoolError> {
        let position = self.slots.position(mkey.0)?;
        self.mkeys.as_mut().get_mut(position).ok_or(PoolError::NotInUse)
    }

    /// Returns the handles of all mkeys in use, by position, including lost handles.
    pub fn in_use(&self) -> impl Iterator<Item = PooledMkey> {
        self.slots.in_use().map(PooledMkey)
    }

    /// Returns all mkeys by position, for a router of completions ([`super::QpRouter`],
    /// [`super::QpTable::router`]). At the position of a removed mkey is a placeholder, which no completion
    /// names.
    #[inline]
    pub fn mkeys(&mut self) -> &mut [Mkey] {
        self.mkeys.as_mut()
    }

    /// Returns how many mkeys are not in use.
    pub fn available(&self) -> usize {
        self.slots.available()
    }
}

crate::fmt::format_counters!(['m] MkeyPool ['m] { });

#[cfg(test)]
mod tests;
