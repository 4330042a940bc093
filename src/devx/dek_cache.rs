//! Data encryption keys by the user's own names.

use super::{Dek, DevxError, ProtectionDomain};
use crate::types::DekId;
use core::borrow::Borrow;
use core::hash::Hash;
use std::collections::HashMap;
use std::sync::Arc;

/// Data encryption keys on a device, one for each identity: a volume, a tenant.
///
/// A key is loaded when it is asked for and not there. Its bytes stay on the device only: the mailbox that
/// loads them is wiped. Whoever uses a key holds a lease of it, so that [`DekCache::remove_unused`] knows
/// which are in use.
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
/// // Crypto-erase, whoever holds a lease. Another key for the same volume: `erase`, then `lease`.
/// assert!(!deks.erase("volume 7")?, "it is gone already");
/// # Ok(())
/// # }
/// ```
pub struct DekCache<I> {
    pd: ProtectionDomain,
    deks: HashMap<I, Cached>,
}

/// A key on the device.
struct Cached {
    /// Destroyed with the value.
    dek: Dek,
    /// As many clones as there are leases, and one.
    leases: Arc<()>,
}

/// A key that is in use. It keeps the key in the cache, but does not outlive [`DekCache::erase`].
#[derive(Clone, Debug)]
pub struct DekLease {
    id: DekId,
    _lease: Arc<()>,
}

impl DekLease {
    /// Returns the number that [`crate::mkey::Crypto`] takes.
    pub const fn id(&self) -> DekId {
        self.id
    }
}

impl<I: Eq + Hash> DekCache<I> {
    /// No keys, in this protection domain.
    pub fn new(pd: ProtectionDomain) -> Self {
        Self { pd, deks: HashMap::new() }
    }

    /// Returns a lease of the key of this identity. `load` makes it, if it is not there
    /// ([`ProtectionDomain::create_dek`]).
    ///
    /// # Errors
    /// Those of `load`: the cache is as before.
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

    /// Destroys the key of this identity at once, whether it is in use or not, and returns whether there was
    /// one.
    ///
    /// Nobody can use the key through this device any more. Leases of it are void: the device may give their
    /// number to the next key, so mkeys that were configured with it have to be configured anew, or
    /// invalidated, before that is loaded.
    ///
    /// # Errors
    /// [`DevxError::Call`] where the device refuses: the key is still there, and stays in the cache.
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

    /// Destroys the keys that have no lease, and returns how many there were. One that the device does not
    /// destroy is in the cache no more; [`super::on_drop_error`] hears of it.
    pub fn remove_unused(&mut self) -> usize {
        let before = self.deks.len();
        self.deks.retain(|_, cached| Arc::strong_count(&cached.leases) > 1);
        before - self.deks.len()
    }

    /// Returns how many keys there are.
    pub fn len(&self) -> usize {
        self.deks.len()
    }

    /// Returns whether there is no key.
    pub fn is_empty(&self) -> bool {
        self.deks.is_empty()
    }
}

impl Cached {
    fn lease(&self) -> DekLease {
        DekLease { id: self.dek.id(), _lease: self.leases.clone() }
    }
}
