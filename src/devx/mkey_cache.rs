//! Mkeys that several threads share: a store for all threads, and a cache for each thread.

use super::{DevxError, MkeyHandle, MkeyObject, MkeySpec, ProtectionDomain};
use crate::mkey::error::PoolError;
use crate::mkey::{Mkey, MkeyKind};
use crate::queue::{MkeyPool, PooledMkey, SendRequest, WorkCompletion};
use crate::wqe::error::PostError;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::vec::Vec;

/// A store of mkeys with the same properties that several threads share, each through a [`MkeyCache`].
///
/// The store creates all of its mkeys at once and keeps them behind one lock. A cache takes this lock once
/// for several mkeys. Clones refer to the same store.
///
/// An mkey with signatures reports to the completion queue of its [`MkeySpec`]. So use a store of such mkeys
/// only with queue pairs of that completion queue, and in the thread that polls it; the router must contain
/// the mkeys of this thread's cache. Threads that poll different completion queues need a store for each
/// queue.
///
/// Where the device can change tags ([`MkeySpec::update_tag`]), each use of an mkey has another key than its
/// 255 earlier uses, in all threads. So a peer that knows an earlier key cannot reach the memory of a later
/// use. Where the device cannot change tags, the next use has the same key again.
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
///                 let mut mkeys = MkeyCache::new(&store, 256);
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
    /// The mkeys that are in no cache. A cache fetches the mkey that was returned first. The queue has the
    /// capacity for all mkeys, so it needs no allocation when a cache returns mkeys.
    unused: Mutex<VecDeque<MkeyObject>>,
    kind: Option<MkeyKind>,
}

impl MkeyStore {
    /// Creates a store of `count` mkeys.
    ///
    /// # Errors
    /// As [`ProtectionDomain::create_mkey`]. After an error no mkey is left on the device.
    pub fn new(pd: &ProtectionDomain, count: usize, spec: MkeySpec<'_>) -> Result<Self, DevxError> {
        let made: VecDeque<_> = (0..count).map(|_| pd.create_mkey(spec)).collect::<Result<_, _>>()?;
        let kind = made.front().map(|object| object.mkey.kind());
        Ok(Self(Arc::new(Store { unused: Mutex::new(made), kind })))
    }

    /// Returns the kind of the store's mkeys, for [`PreparedConfig::new`](crate::wqe::PreparedConfig::new).
    /// Returns `None` for a store of 0 mkeys.
    pub fn kind(&self) -> Option<MkeyKind> {
        self.0.kind
    }

    /// Returns how many mkeys are in no cache.
    pub fn available(&self) -> usize {
        self.unused().len()
    }

    fn unused(&self) -> MutexGuard<'_, VecDeque<MkeyObject>> {
        // A poisoned lock is no error: a thread that panics while it has the lock has added or removed only
        // whole entries, so the queue is intact.
        self.0.unused.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The mkeys of a [`MkeyStore`] that one thread holds, in use or not.
///
/// Taking an mkey and putting it back usually needs no lock. When all mkeys of the cache are in use, it
/// fetches more from the store: a quarter of `most`. When more than half of `most` are not in use, the cache
/// returns mkeys to the store, where another thread may take them, and keeps a quarter. Therefore put an mkey
/// back only when its key is out of service and the device is done with it: call [`MkeyCache::invalidate`]
/// first, and [`MkeyCache::put`] when that request has completed.
///
/// A dropped cache gives the mkeys that are not in use back to the store. Mkeys in use are destroyed on the
/// device.
///
/// ```no_run
/// use mlx5_mkey::devx::{CqReader, DevxError, MkeyCache, QueuePair};
/// use mlx5_mkey::error::PostError;
/// use mlx5_mkey::mkey::KlmEntry;
/// use mlx5_mkey::queue::{Completion, PooledMkey, QpRouter};
/// use mlx5_mkey::wqe::PreparedConfig;
///
/// /// Lays an mkey over memory for a peer. `None` while all are in use.
/// fn begin(
///     queue: &mut QueuePair,
///     mkeys: &mut MkeyCache,
///     prepared: &PreparedConfig,
///     memory: &[KlmEntry],
/// ) -> Result<Option<PooledMkey>, PostError> {
///     let Some((handle, mkey)) = mkeys.take() else { return Ok(None) };
///     if let Err(error) = queue.request(1).configure_mkey(mkey, prepared, memory) {
///         mkeys.put_unused(handle)?;
///         return Err(error);
///     }
///     Ok(Some(handle))
/// }
///
/// /// Ends the peer's access. If the queue is full, try again later.
/// fn end(
///     queue: &mut QueuePair,
///     mkeys: &mut MkeyCache,
///     handle: PooledMkey,
/// ) -> Result<(), PostError> {
///     mkeys.invalidate(handle, queue.request(2).signaled())?;
///     queue.ring_doorbell();
///     Ok(())
/// }
///
/// /// Puts the mkey back when its request, here number 2, has completed. Returns whether the mkey is still
/// /// in use because the request failed.
/// fn completed(
///     completions: &mut CqReader,
///     queue: &mut QueuePair,
///     mkeys: &mut MkeyCache,
///     handle: PooledMkey,
/// ) -> Result<bool, DevxError> {
///     let mut router = QpRouter { queues: queue, mkeys: mkeys.mkeys() };
///     while let Some(completion) = completions.wait(&mut router, None)? {
///         if let Completion::Work(work) = completion
///             && work.id == 2
///         {
///             return Ok(mkeys.put(handle, &work).is_err());
///         }
///     }
///     Ok(true)
/// }
/// ```
pub struct MkeyCache {
    store: MkeyStore,
    pool: MkeyPool<'static>,
    /// The handles, by the positions of their mkeys in the pool. Dropping the cache destroys the mkeys whose
    /// handles are still here: those in use.
    handles: Vec<Option<MkeyHandle>>,
    /// The number of mkeys that the cache fetches from the store at a time. When more than twice this number
    /// are unused in the cache, it returns unused mkeys to the store, and keeps this number.
    batch: usize,
}

impl MkeyCache {
    /// Creates a cache without mkeys. It takes mkeys from the store when it needs them, and holds at most
    /// `most`.
    pub fn new(store: &MkeyStore, most: usize) -> Self {
        let handles = (0..most).map(|_| None).collect();
        Self { store: store.clone(), pool: MkeyPool::on_heap(most), handles, batch: (most / 4).max(1) }
    }

    /// Takes an mkey, to be configured. Returns `None` if all mkeys of the cache are in use, and the cache
    /// has its largest number or the store is empty. See [`MkeyPool::take`].
    #[inline]
    pub fn take(&mut self) -> Option<(PooledMkey, &mut Mkey)> {
        if self.pool.available() == 0 && self.handles.iter().any(Option::is_none) {
            self.fetch();
        }
        self.pool.take()
    }

    /// Posts `request` as an invalidation, which takes the key of an mkey out of service. Call this before
    /// [`MkeyCache::put`]; see [`MkeyPool::invalidate`].
    ///
    /// # Errors
    /// The errors of [`MkeyPool::invalidate`].
    pub fn invalidate(&mut self, mkey: PooledMkey, request: SendRequest<'_, '_>) -> Result<(), PostError> {
        self.pool.invalidate(mkey, request)
    }

    /// Puts an mkey back whose key is out of service, as `completion` proves; see [`MkeyPool::put`]. The
    /// router by which the completion was taken must contain the mkeys of this cache. After this call any
    /// thread may take the mkey.
    ///
    /// # Errors
    /// The errors of [`MkeyPool::put`]: the mkey is still in use.
    #[inline]
    pub fn put(&mut self, mkey: PooledMkey, completion: &WorkCompletion) -> Result<(), PoolError> {
        self.pool.put(mkey, completion)?;
        self.trim();
        Ok(())
    }

    /// Puts an mkey back that needs no invalidation. The mkey was never configured, or it gave no remote
    /// rights and all requests that configure or use it have completed. After this call any thread may take
    /// the mkey.
    ///
    /// # Errors
    /// The errors of [`MkeyPool::put_unused`]: the mkey is still in use.
    #[inline]
    pub fn put_unused(&mut self, mkey: PooledMkey) -> Result<(), PoolError> {
        self.pool.put_unused(mkey)?;
        self.trim();
        Ok(())
    }

    /// Gives mkeys back to the store if more than twice `batch` are not in use.
    #[inline]
    fn trim(&mut self) {
        if self.pool.available() > 2 * self.batch {
            self.give_back_all_but(self.batch);
        }
    }

    /// Gives all mkeys that are not in use back to the store, for a thread that needs none for a while.
    pub fn give_back(&mut self) {
        self.give_back_all_but(0);
    }

    /// Returns an mkey in use, or `None` if the handle names no mkey in use in this cache.
    #[inline]
    pub fn get_mut(&mut self, mkey: PooledMkey) -> Option<&mut Mkey> {
        self.pool.get_mut(mkey)
    }

    /// Returns the pool that holds the mkeys of the cache.
    #[cfg(feature = "capi")]
    pub(crate) const fn pool(&mut self) -> &mut MkeyPool<'static> {
        &mut self.pool
    }

    /// Returns the handles of all mkeys in use, even if the program has lost them; see [`MkeyPool::in_use`].
    pub fn in_use(&self) -> impl Iterator<Item = PooledMkey> {
        self.pool.in_use()
    }

    /// Returns the mkeys by position, for a router of completions; see [`MkeyPool::mkeys`]. An mkey keeps its
    /// position while it is in use.
    #[inline]
    pub fn mkeys(&mut self) -> &mut [Mkey] {
        self.pool.mkeys()
    }

    #[cold]
    fn fetch(&mut self) {
        let mut unused = self.store.unused();
        for _ in 0..self.batch {
            let Some(MkeyObject { mkey, handle }) = unused.pop_front() else { return };
            match self.pool.insert(mkey) {
                Ok(position) => {
                    if let Some(place) = self.handles.get_mut(position) {
                        *place = Some(handle);
                    }
                }
                Err(mkey) => return unused.push_front(MkeyObject { mkey, handle }),
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
            unused.push_back(MkeyObject { mkey, handle });
        }
    }
}

impl Drop for MkeyCache {
    fn drop(&mut self) {
        self.give_back();
    }
}
