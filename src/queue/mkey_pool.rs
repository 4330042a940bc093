//! Mkeys that requests take and give back.

use super::request::SendRequest;
use crate::error::PostError;
use crate::mkey::Mkey;
use crate::types::MkeyIndex;
use heapless::Vec;

/// Up to `N` mkeys, in use or not.
///
/// An mkey is configured for one I/O, and for another one later. Its key is known to the peer by then: [`MkeyPool::put`] takes the
/// key out of service, and where the device can change tags, a use has another key than the 255 before it.
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
}

/// An mkey that was taken from a pool. Lost, it stays in use for ever.
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
        let mut pool = Self { mkeys: Vec::new(), free: Vec::new() };
        for mkey in mkeys.into_iter().take(N) {
            // There is room for `N`.
            let _ = pool.free.push(pool.mkeys.len() as u16);
            let _ = pool.mkeys.push(mkey);
        }
        pool
    }

    /// Takes an mkey, to be configured; `None` while all are in use. Its key has another tag than at its last use, where the
    /// device can change tags.
    #[inline]
    pub fn take(&mut self) -> Option<(PooledMkey, &mut Mkey)> {
        let position = self.free.pop()?;
        let mkey = self.mkeys.get_mut(usize::from(position))?;
        mkey.advance_tag();
        Some((PooledMkey { position, index: mkey.key().index() }, mkey))
    }

    /// Puts an mkey back whose key a peer may know: `request` takes the key out of service ([`SendRequest::invalidate_mkey`]).
    /// Ask for a fence where requests before it still use the key. Its next configuration has to be complete.
    ///
    /// Whoever takes the mkey next may post its configuration to the same queue at once. To another queue only when this
    /// request has completed: put it back with [`MkeyPool::put_unused`] then.
    ///
    /// # Errors
    /// [`PostError`], and the mkey: it is still in use.
    pub fn put(
        &mut self,
        mkey: PooledMkey,
        request: SendRequest<'_, '_>,
    ) -> Result<(), (PostError, PooledMkey)> {
        if let Some(taken) = self.get_mut(&mkey)
            && let Err(error) = request.invalidate_mkey(taken)
        {
            return Err((error, mkey));
        }
        self.put_unused(mkey);
        Ok(())
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

    /// Returns all mkeys, for a router of completions ([`super::QpRouter`], [`super::QpTable::router`]).
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
mod tests {
    use super::*;
    use crate::mkey::MkeyAttributes;
    use crate::queue::{Doorbell, DoorbellRecord, LastRequest, SendQueue, SendQueueConfig};
    use crate::types::{Key, Qpn};
    use crate::wire::Wqebb;

    struct Silent;

    impl Doorbell for Silent {
        fn ring(&mut self, _: &LastRequest<'_>) {}
    }

    #[test]
    fn an_mkey_is_in_use_or_not() {
        let attributes = |index: u32| MkeyAttributes {
            tag_update: index == 1,
            ..MkeyAttributes::plain(Key::from_raw(index << 8), 4)
        };
        let mut pool = MkeyPool::<2>::new((1..4).map(|index| Mkey::new(attributes(index))));
        assert_eq!((pool.available(), pool.mkeys().len()), (2, 2), "the third is left out");
        let (mut ring, record) = ([Wqebb::ZERO; 2], DoorbellRecord::new());
        let config = SendQueueConfig::new(Qpn::default());
        let mut queue = SendQueue::<_, 2>::new(config, &mut ring, &record, Silent).unwrap();
        let (fixed, mkey) = pool.take().unwrap();
        assert_eq!((fixed.position(), mkey.key().get()), (1, 0x200), "the device cannot change tags");
        let (tagged, mkey) = pool.take().unwrap();
        assert_eq!((tagged.position(), mkey.key().get()), (0, 0x101));
        assert!(pool.take().is_none());
        pool.put(tagged, queue.request(1)).unwrap();
        assert_eq!(queue.outstanding(), 1);
        let (error, fixed) = pool.put(fixed, queue.request(2)).unwrap_err();
        assert_eq!((error, pool.available()), (PostError::SendRingFull { needed: 2, free: 0 }, 1));
        pool.put_unused(fixed);
        let _other = pool.take().unwrap().0;
        let (tagged, _) = pool.take().unwrap();
        assert_eq!(pool.get_mut(&tagged).map(|mkey| mkey.key().get()), Some(0x102), "another key");
        let mut stranger = MkeyPool::<2>::new([Mkey::new(attributes(7))]);
        assert!(stranger.get_mut(&tagged).is_none());
        stranger.put_unused(tagged);
        assert_eq!(stranger.available(), 1, "one of another pool changes nothing");
    }
}
