//! Mkeys that requests take and give back.

use super::request::SendRequest;
use crate::error::PostError;
use crate::mkey::{Mkey, MkeyAttributes};
use crate::types::{Key, MkeyIndex};
use heapless::Vec;

/// Keeps the position of an mkey that was removed. No completion names it: it has no signature.
const NONE: Mkey = Mkey::new(MkeyAttributes::plain(Key::from_raw(0), 0));

/// Up to `N` mkeys, in use or not.
///
/// An mkey is configured for one I/O, and for another one later. Its key is known to the peer by then: [`MkeyPool::put`] takes the
/// key out of service, and where the device can change tags, no use has the key of one of the 255 before it.
///
/// ```
/// use mlx5_mkey::error::PostError;
/// use mlx5_mkey::mkey::{KlmEntry, Mkey, MkeyAttributes};
/// use mlx5_mkey::queue::{Doorbell, MkeyPool, PooledMkey, SendQueue};
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
///     match queue.request(1).configure_mkey(mkey, prepared, memory) {
///         Ok(()) => Ok(Some(handle)),
///         Err(error) => {
///             pool.put_unused(handle);
///             Err(error)
///         }
///     }
/// }
///
/// fn end<D: Doorbell>(
///     queue: &mut SendQueue<'_, D, 256>,
///     pool: &mut MkeyPool<64>,
///     handle: PooledMkey,
/// ) -> Result<(), (PostError, PooledMkey)> {
///     pool.put(handle, queue.request(2))
/// }
/// ```
pub struct MkeyPool<const N: usize> {
    mkeys: Vec<Mkey, N>,
    /// Positions of those that are not in use.
    free: Vec<u16, N>,
    /// Positions of those that were removed.
    removed: Vec<u16, N>,
}

/// An mkey that was taken from a pool. If this value is dropped, the mkey stays in use for ever.
#[must_use = "what is not put back stays in use"]
#[derive(Debug, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct PooledMkey {
    position: u16,
    index: MkeyIndex,
}

impl PooledMkey {
    /// Returns its position in the pool: what a signature error names ([`super::Completion::SignatureError`]).
    pub const fn position(&self) -> usize {
        self.position as usize
    }
}

impl<const N: usize> MkeyPool<N> {
    /// A pool of these mkeys, none of them in use. What there are more than `N` is left out.
    pub fn new(mkeys: impl IntoIterator<Item = Mkey>) -> Self {
        const { assert!(N <= 1 << 16, "positions have 16 bits") };
        let mut pool = Self { mkeys: Vec::new(), free: Vec::new(), removed: Vec::new() };
        for mkey in mkeys.into_iter().take(N) {
            // There is room for `N`.
            let _ = pool.insert(mkey);
        }
        pool
    }

    /// Adds an mkey that is not in use. Returns its position, which it has until it is removed.
    ///
    /// # Errors
    /// The mkey, where the pool has `N` already.
    #[expect(clippy::result_large_err, reason = "what does not fit comes back")]
    pub fn insert(&mut self, mkey: Mkey) -> Result<usize, Mkey> {
        let position = match self.removed.pop() {
            Some(position) => {
                if let Some(place) = self.mkeys.get_mut(usize::from(position)) {
                    *place = mkey;
                }
                position
            }
            None => {
                // Below 2^16 where it is taken: there was room for one more.
                let position = self.mkeys.len() as u16;
                self.mkeys.push(mkey)?;
                position
            }
        };
        // There is room for all.
        let _ = self.free.push(position);
        Ok(usize::from(position))
    }

    /// Removes an mkey that is not in use, and returns the position that it had; `None` where all are in use. The others keep their
    /// positions.
    ///
    /// It may go to another queue when the requests that [`MkeyPool::put`] posted for it have completed.
    pub fn remove_unused(&mut self) -> Option<(usize, Mkey)> {
        let position = self.free.pop()?;
        let place = self.mkeys.get_mut(usize::from(position))?;
        let mkey = core::mem::replace(place, NONE);
        // There is room for all.
        let _ = self.removed.push(position);
        Some((usize::from(position), mkey))
    }

    /// Takes an mkey, to be configured; `None` while all are in use. Its key has another tag than at its last use, where the
    /// device can change tags. It knows of no signature error of an earlier use.
    #[inline]
    pub fn take(&mut self) -> Option<(PooledMkey, &mut Mkey)> {
        let position = self.free.pop()?;
        let mkey = self.mkeys.get_mut(usize::from(position))?;
        mkey.advance_tag();
        // An error of an earlier use may still be recorded, which nobody asked for.
        let _ = mkey.check();
        Some((PooledMkey { position, index: mkey.key().index() }, mkey))
    }

    /// Puts an mkey back whose key a peer may know: `request` takes the key out of service ([`SendRequest::invalidate_mkey`]).
    /// Ask for a fence where requests before it still use the key. Its next configuration has to be complete.
    ///
    /// Whoever takes the mkey next may post its configuration to the same queue at once. To another queue only when this
    /// request has completed: put it back with [`MkeyPool::put_unused`] then.
    ///
    /// # Errors
    /// [`PostError`], and the mkey, which is still in use: [`PostError::OtherPool`], or as of [`SendRequest::invalidate_mkey`].
    pub fn put(
        &mut self,
        mkey: PooledMkey,
        request: SendRequest<'_, '_>,
    ) -> Result<(), (PostError, PooledMkey)> {
        let invalidated = match self.get_mut(&mkey) {
            Some(taken) => request.invalidate_mkey(taken),
            None => Err(PostError::OtherPool),
        };
        match invalidated {
            Ok(()) => {
                self.put_unused(mkey);
                Ok(())
            }
            Err(error) => Err((error, mkey)),
        }
    }

    /// Puts an mkey back whose key no peer can use: that was not configured, gave no remote rights, or was invalidated. One of
    /// another pool changes nothing.
    #[inline]
    pub fn put_unused(&mut self, mkey: PooledMkey) {
        if self.get_mut(&mkey).is_some() {
            // There is room for all.
            let _ = self.free.push(mkey.position);
        }
    }

    /// Returns an mkey in use; `None` for one of another pool.
    #[inline]
    pub fn get_mut(&mut self, mkey: &PooledMkey) -> Option<&mut Mkey> {
        self.mkeys.get_mut(mkey.position()).filter(|found| found.key().index() == mkey.index)
    }

    /// Returns all mkeys by position, for a router of completions ([`super::QpRouter`], [`super::QpTable::router`]). At the
    /// position of one that was removed is a placeholder, which no completion names.
    #[inline]
    pub fn mkeys(&mut self) -> &mut [Mkey] {
        &mut self.mkeys
    }

    /// Returns how many are not in use.
    pub fn available(&self) -> usize {
        self.free.len()
    }
}

crate::fmt::format_counters!([const N: usize] MkeyPool [N] { });

#[cfg(test)]
mod tests;
