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
    /// Positions of those that were removed.
    removed: Vec<u16, N>,
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
        // Who had it before may not have asked, after a transfer that failed, say.
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
mod tests {
    use super::*;
    use crate::mkey::{SignatureAttributes, SignatureFault};
    use crate::queue::{Doorbell, DoorbellRecord, LastRequest, SendQueue, SendQueueConfig};
    use crate::types::{PsvIndex, Qpn};
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
        let (error, tagged) = stranger.put(tagged, queue.request(3)).unwrap_err();
        assert_eq!((error, queue.outstanding()), (PostError::OtherPool, 1), "nothing is posted");
        stranger.put_unused(tagged);
        assert_eq!(stranger.available(), 1, "one of another pool changes nothing");
    }

    fn plain(index: u32) -> Mkey {
        Mkey::new(MkeyAttributes::plain(Key::from_raw(index << 8), 4))
    }

    fn indices<const N: usize>(pool: &mut MkeyPool<N>) -> [u32; N] {
        core::array::from_fn(|position| pool.mkeys()[position].key().index().get())
    }

    #[test]
    fn mkeys_come_and_go_around_those_in_use() {
        let mut pool = MkeyPool::<3>::new([]);
        assert!(pool.take().is_none() && pool.remove_unused().is_none() && pool.mkeys().is_empty());
        for index in 1..4 {
            assert_eq!(pool.insert(plain(index)), Ok(index as usize - 1));
        }
        assert_eq!(pool.insert(plain(4)), Err(plain(4)), "it is full");
        let last = pool.take().unwrap().0;
        assert_eq!(pool.remove_unused(), Some((1, plain(2))));
        assert_eq!(pool.remove_unused(), Some((0, plain(1))));
        assert_eq!(pool.remove_unused(), None, "the last one is in use");
        assert_eq!((pool.available(), indices(&mut pool), last.position()), (0, [0, 0, 3], 2));
        assert_eq!(pool.insert(plain(5)), Ok(0));
        assert_eq!(pool.insert(plain(6)), Ok(1));
        assert_eq!(pool.insert(plain(7)), Err(plain(7)));
        assert_eq!((pool.available(), indices(&mut pool)), (2, [5, 6, 3]));
        assert_eq!(pool.get_mut(&last), Some(&mut plain(3)));
        pool.put_unused(last);
        let taken: [u32; 3] = core::array::from_fn(|_| pool.take().unwrap().1.key().index().get());
        assert_eq!(taken, [3, 6, 5], "each once");
    }

    #[test]
    fn an_error_of_an_earlier_use_is_not_told() {
        let psvs = SignatureAttributes::new(PsvIndex::from_low_bits(1), PsvIndex::from_low_bits(2));
        let attributes =
            MkeyAttributes { signature: Some(psvs), ..MkeyAttributes::plain(Key::from_raw(0x700), 4) };
        let mut pool = MkeyPool::<1>::new([Mkey::new(attributes)]);
        let (handle, mkey) = pool.take().unwrap();
        let fault = SignatureFault {
            mkey: mkey.key().index(),
            syndrome: 0,
            sig_type: 0,
            domain: 0,
            expected: 0,
            actual: 0,
            offset: 0,
        };
        assert!(mkey.record(&fault));
        pool.put_unused(handle);
        let (_handle, mkey) = pool.take().unwrap();
        assert_eq!(mkey.check(), Ok(None));
        assert!(
            mkey.error_count().is_some_and(|count| count.pending && count.seen == 2),
            "the device is told"
        );
    }
}
