//! A cache of data encryption keys: the program finds a key by an identity that it chooses, such as a volume.

use super::{Dek, DevxError, ProtectionDomain};
use crate::types::DekId;
use core::borrow::Borrow;
use core::hash::Hash;
use std::collections::HashMap;
use std::sync::Arc;

/// Data encryption keys on a device, one for each identity, for example of a volume or a tenant.
///
/// A key is loaded when it is first asked for. The cache keeps no copy of the key's bytes: only the device
/// has them, and the mailbox that loaded them is wiped. Each user of a key holds a lease, so that
/// [`DekCache::remove_unused`] knows the keys in use.
///
/// ```no_run
/// use mlx5_mkey::command::{DekKey, Secret, XtsKey};
/// use mlx5_mkey::devx::{DekCache, ProtectionDomain};
/// # fn example(pd: ProtectionDomain, key_of: fn(&str) -> Secret<64>)
/// #     -> Result<(), Box<dyn std::error::Error>> {
/// let mut deks = DekCache::new(pd);
/// let volume = String::from("volume 7");
/// let lease = deks.lease(volume, |pd| {
///     let secret = key_of("volume 7");
///     let key = XtsKey::new(secret.expose())?;
///     Ok::<_, Box<dyn std::error::Error>>(pd.create_dek(DekKey::Plain256 { key, keytag: None }, [0; 8])?)
/// })?;
/// println!("to be configured with: {}", lease.id());
/// drop(lease);
/// assert_eq!(deks.remove_unused(), 1);
/// // Crypto-erase, even if somebody holds a lease. To change a volume's key: `erase`, then `lease`.
/// assert!(!deks.erase("volume 7")?, "it is gone already");
/// # Ok(())
/// # }
/// ```
pub struct DekCache<I> {
    pd: ProtectionDomain,
    deks: HashMap<I, Cached>,
}

/// A key of the cache, on the device.
struct Cached {
    /// The key, which is destroyed when this value is dropped.
    dek: Dek,
    /// Counts the leases by its reference count: each lease holds a clone.
    leases: Arc<()>,
}

/// A lease of a key of the cache. [`DekCache::remove_unused`] keeps a key that has a lease.
/// [`DekCache::erase`] destroys the key in spite of the lease. After that, the program must not use the
/// number of the lease any more.
#[derive(Clone, Debug)]
pub struct DekLease {
    id: DekId,
    _lease: Arc<()>,
}

impl DekLease {
    /// Returns the number of the key, as [`crate::mkey::Crypto`] takes it.
    pub const fn id(&self) -> DekId {
        self.id
    }
}

impl<I: Eq + Hash> DekCache<I> {
    /// Creates a cache without keys, in this protection domain.
    pub fn new(pd: ProtectionDomain) -> Self {
        Self { pd, deks: HashMap::new() }
    }

    /// Returns a lease of this identity's key. If the cache lacks the key, `load` creates it
    /// ([`ProtectionDomain::create_dek`]).
    ///
    /// # Errors
    /// The errors of `load`. The cache is then unchanged.
    pub fn lease<E>(
        &mut self,
        identity: I,
        load: impl FnOnce(&ProtectionDomain) -> Result<Dek, E>,
    ) -> Result<DekLease, E> {
        if let Some(cached) = self.deks.get(&identity) {
            return Ok(cached.lease());
        }
        let cached = Cached { dek: load(&self.pd)?, leases: Arc::new(()) };
        let lease = cached.lease();
        self.deks.insert(identity, cached);
        Ok(lease)
    }

    /// Destroys this identity's key at once, even if it is in use. Returns whether the cache had the key.
    ///
    /// Nobody can use the key through this device any more, and the program must not use its leases any more.
    /// The device may give the key's number to the next key. Before you load the next key, configure anew the
    /// mkeys that name the number, or invalidate them.
    ///
    /// # Errors
    /// [`DevxError::Call`] where the device refuses. The key then still exists, and stays in the cache.
    pub fn erase<Q: Eq + Hash + ?Sized>(&mut self, identity: &Q) -> Result<bool, DevxError>
    where
        I: Borrow<Q>,
    {
        let Some((identity, Cached { dek, leases })) = self.deks.remove_entry(identity) else {
            return Ok(false);
        };
        dek.destroy().map(|()| true).map_err(|(error, dek)| {
            self.deks.insert(identity, Cached { dek, leases });
            error
        })
    }

    /// Destroys the keys that have no lease, and returns their number. If the device does not destroy a key,
    /// the cache drops it nevertheless; the function set by [`super::on_drop_error`] receives the error.
    pub fn remove_unused(&mut self) -> usize {
        let before = self.deks.len();
        self.deks.retain(|_, cached| Arc::strong_count(&cached.leases) > 1);
        before - self.deks.len()
    }

    /// Returns how many keys the cache has.
    pub fn len(&self) -> usize {
        self.deks.len()
    }

    /// Returns whether the cache has no key.
    pub fn is_empty(&self) -> bool {
        self.deks.is_empty()
    }
}

impl Cached {
    fn lease(&self) -> DekLease {
        DekLease { id: self.dek.id(), _lease: self.leases.clone() }
    }
}
