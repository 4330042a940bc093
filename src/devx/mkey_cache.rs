//! Mkeys for several threads.

use super::{DevxError, MkeyHandle, MkeyObject, MkeySpec, ProtectionDomain};
use crate::error::PostError;
use crate::mkey::{Mkey, MkeyKind};
use crate::queue::{MkeyPool, PooledMkey, SendRequest};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::vec::Vec;

/// Mkeys of one kind that several threads share, each through a [`MkeyCache`].
///
/// All of them are made with the store, behind one lock, which a cache takes once for several mkeys. Clones are the same store.
///
/// An mkey with signatures reports to the completion queue of its [`MkeySpec`]. So a store of such mkeys is for the queue pairs of
/// that completion queue, and for whoever polls it, with the mkeys of the cache in the router. Threads that poll completion queues
/// of their own need a store for each.
///
/// A peer that knows the key of an earlier use cannot reach what an mkey is laid over next where the device can change tags
/// ([`MkeySpec::update_tag`]): each use has another key than the 255 before it, whichever threads these were in. Where it cannot,
/// the key that was taken out of service comes back with the next use.
///
/// ```no_run
/// use mlx5_mkey::devx::{DevxError, MkeyCache, MkeySpec, MkeyStore, ProtectionDomain};
///
/// fn serve(pd: &ProtectionDomain) -> Result<(), DevxError> {
///     let spec = MkeySpec { max_entries: 16, update_tag: true, ..MkeySpec::default() };
///     let store = MkeyStore::new(pd, 1024, spec)?;
///     std::thread::scope(|threads| {
///         for _ in 0..4 {
///             threads.spawn(|| {
///                 let mut mkeys = MkeyCache::<256>::new(&store);
///                 // Queue pairs of this thread's own, and I/Os through `mkeys`.
///                 # let _ = mkeys.take();
///             });
///         }
///     });
///     Ok(())
/// }
/// ```
#[derive(Clone)]
pub struct MkeyStore(Arc<Store>);

struct Store {
    /// Those that no cache has. There is room for all, so giving back allocates nothing.
    unused: Mutex<Vec<MkeyObject>>,
    kind: Option<MkeyKind>,
}

impl MkeyStore {
    /// Makes `count` mkeys.
    ///
    /// # Errors
    /// As [`ProtectionDomain::create_mkey`]: none is left behind then.
    pub fn new(pd: &ProtectionDomain, count: usize, spec: MkeySpec<'_>) -> Result<Self, DevxError> {
        let made: Vec<_> = (0..count).map(|_| pd.create_mkey(spec)).collect::<Result<_, _>>()?;
        let kind = made.first().map(|object| object.mkey.kind());
        Ok(Self(Arc::new(Store { unused: Mutex::new(made), kind })))
    }

    /// Returns the kind of its mkeys, for [`PreparedConfig::new`](crate::wqe::PreparedConfig::new); `None` where it was made with
    /// none.
    pub fn kind(&self) -> Option<MkeyKind> {
        self.0.kind
    }

    /// Returns how many mkeys are in no cache.
    pub fn available(&self) -> usize {
        self.unused().len()
    }

    fn unused(&self) -> MutexGuard<'_, Vec<MkeyObject>> {
        // Whoever panicked with the lock has taken or added whole mkeys.
        self.0.unused.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The mkeys of a [`MkeyStore`] that one thread has: up to `N`, in use or not.
///
/// Taking one and putting it back takes no lock. Where none is left, a quarter of `N` is fetched from the store; where more than
/// half of `N` are not in use, all but a quarter go back to it, and another thread may take them. So an mkey is put back when its
/// key is out of service and the device is done with it: [`MkeyCache::invalidate`] first, and when that request has completed,
/// [`MkeyCache::put`].
///
/// Dropped, it gives back the mkeys that are not in use. Those in use are destroyed on the device.
///
/// ```no_run
/// use mlx5_mkey::devx::{CqReader, DevxError, InvalidatedMkey, MkeyCache, QueuePair};
/// use mlx5_mkey::error::PostError;
/// use mlx5_mkey::mkey::KlmEntry;
/// use mlx5_mkey::queue::{Completion, Outcome, PooledMkey, QpRouter};
/// use mlx5_mkey::wqe::PreparedConfig;
///
/// /// Lays an mkey over memory for a peer. `None` while all are in use.
/// fn begin(
///     queue: &mut QueuePair<256, 64>,
///     mkeys: &mut MkeyCache<64>,
///     prepared: &PreparedConfig,
///     memory: &[KlmEntry],
/// ) -> Result<Option<PooledMkey>, PostError> {
///     let Some((handle, mkey)) = mkeys.take() else { return Ok(None) };
///     if let Err(error) = queue.request(1).configure_mkey(mkey, prepared, memory) {
///         mkeys.put_unused(handle);
///         return Err(error);
///     }
///     Ok(Some(handle))
/// }
///
/// /// Ends the peer's access. Where the queue is full, the mkey comes back: still in use, to be tried again.
/// fn end(
///     queue: &mut QueuePair<256, 64>,
///     mkeys: &mut MkeyCache<64>,
///     handle: PooledMkey,
/// ) -> Result<InvalidatedMkey, (PostError, PooledMkey)> {
///     let invalidated = mkeys.invalidate(handle, queue.request(2).signaled())?;
///     queue.ring_doorbell();
///     Ok(invalidated)
/// }
///
/// /// Puts the mkey back when its request, here number 2, has completed; where that failed, it is still in use.
/// fn completed(
///     completions: &mut CqReader,
///     queue: &mut QueuePair<256, 64>,
///     mkeys: &mut MkeyCache<64>,
///     invalidated: InvalidatedMkey,
/// ) -> Result<Option<PooledMkey>, DevxError> {
///     let mut router = QpRouter { queues: queue, mkeys: mkeys.mkeys() };
///     while let Some(completion) = completions.wait(&mut router, None)? {
///         let Completion::Work(work) = completion else { continue };
///         match work.outcome {
///             Outcome::Sent { .. } if work.id == 2 => {
///                 mkeys.put(invalidated);
///                 return Ok(None);
///             }
///             Outcome::Failed(_) if work.id == 2 => break,
///             _ => {}
///         }
///     }
///     Ok(Some(invalidated.into()))
/// }
/// ```
pub struct MkeyCache<const N: usize> {
    store: MkeyStore,
    pool: MkeyPool<N>,
    /// By position in the pool. What is left here is destroyed with the cache.
    handles: Vec<Option<MkeyHandle>>,
}

/// An mkey of a [`MkeyCache`] whose key is out of service when a request has completed that was posted for it.
///
/// Where that request fails, or its queue pair is reset before, it is a [`PooledMkey`] again (`into`): to be invalidated on another
/// queue pair, or to stay in use until the cache is dropped.
#[must_use = "what is not put back stays in use"]
#[derive(Debug, PartialEq, Eq)]
pub struct InvalidatedMkey(PooledMkey);

impl From<InvalidatedMkey> for PooledMkey {
    fn from(mkey: InvalidatedMkey) -> Self {
        mkey.0
    }
}

impl<const N: usize> MkeyCache<N> {
    /// How many mkeys are fetched at a time, and kept when more than twice as many are not in use.
    const BATCH: usize = if N < 4 { 1 } else { N / 4 };

    /// A cache without mkeys: it takes them from the store when it needs some.
    pub fn new(store: &MkeyStore) -> Self {
        let handles = (0..N).map(|_| None).collect();
        Self { store: store.clone(), pool: MkeyPool::new([]), handles }
    }

    /// Takes an mkey, to be configured; `None` while the cache has `N` in use, or the store has none. See [`MkeyPool::take`].
    #[inline]
    pub fn take(&mut self) -> Option<(PooledMkey, &mut Mkey)> {
        if self.pool.available() == 0 && self.handles.iter().any(Option::is_none) {
            self.fetch();
        }
        self.pool.take()
    }

    /// Takes the key of an mkey out of service, for [`MkeyCache::put`]: `request` does it
    /// ([`SendRequest::invalidate_mkey`]), and is one that completes, or there is one after it on the same queue. Ask for a
    /// fence where requests before it still use the key.
    ///
    /// # Errors
    /// [`PostError`], and the mkey, which is still in use: [`PostError::OtherPool`], or as of [`SendRequest::invalidate_mkey`].
    pub fn invalidate(
        &mut self,
        mkey: PooledMkey,
        request: SendRequest<'_, '_>,
    ) -> Result<InvalidatedMkey, (PostError, PooledMkey)> {
        let invalidated = match self.pool.get_mut(&mkey) {
            Some(taken) => request.invalidate_mkey(taken),
            None => Err(PostError::OtherPool),
        };
        match invalidated {
            Ok(()) => Ok(InvalidatedMkey(mkey)),
            Err(error) => Err((error, mkey)),
        }
    }

    /// Puts an mkey back: the request of [`MkeyCache::invalidate`], or one after it, has completed without an error, and its
    /// completion was taken with the mkeys of this cache in the router. Any thread may take it next. One of another cache changes
    /// nothing.
    #[inline]
    pub fn put(&mut self, InvalidatedMkey(mkey): InvalidatedMkey) {
        self.put_unused(mkey);
    }

    /// Puts an mkey back that needs no invalidation: it was not configured, or it gave no remote rights, and all requests that
    /// configure or use it have completed. Any thread may take it next. One of another cache changes nothing.
    #[inline]
    pub fn put_unused(&mut self, mkey: PooledMkey) {
        self.pool.put_unused(mkey);
        if self.pool.available() > 2 * Self::BATCH {
            self.give_back_all_but(Self::BATCH);
        }
    }

    /// Gives all mkeys that are not in use back to the store: this thread needs none for a while.
    pub fn give_back(&mut self) {
        self.give_back_all_but(0);
    }

    /// Returns an mkey in use; `None` for one of another cache.
    #[inline]
    pub fn get_mut(&mut self, mkey: &PooledMkey) -> Option<&mut Mkey> {
        self.pool.get_mut(mkey)
    }

    /// Returns the mkeys by position, for a router of completions; see [`MkeyPool::mkeys`]. Those in use keep their positions.
    #[inline]
    pub fn mkeys(&mut self) -> &mut [Mkey] {
        self.pool.mkeys()
    }

    #[cold]
    fn fetch(&mut self) {
        let mut unused = self.store.unused();
        for _ in 0..Self::BATCH {
            let Some(MkeyObject { mkey, handle }) = unused.pop() else { return };
            match self.pool.insert(mkey) {
                Ok(position) => {
                    if let Some(place) = self.handles.get_mut(position) {
                        *place = Some(handle);
                    }
                }
                Err(mkey) => return unused.push(MkeyObject { mkey, handle }),
            }
        }
    }

    #[cold]
    fn give_back_all_but(&mut self, count: usize) {
        let mut unused = self.store.unused();
        while self.pool.available() > count
            && let Some((position, mkey)) = self.pool.remove_unused()
            && let Some(handle) = self.handles.get_mut(position).and_then(Option::take)
        {
            unused.push(MkeyObject { mkey, handle });
        }
    }
}

impl<const N: usize> Drop for MkeyCache<N> {
    fn drop(&mut self) {
        self.give_back();
    }
}
