//! Loads, queries, replaces and destroys data encryption keys on the device.

use super::{Device, DevxError, ProtectionDomain, carry, sys};
use crate::command::{CreateDek, DekInfo, DekKey, DekObject, ModifyDek, QueryDek, SyncCrypto};
use crate::types::DekId;
use std::boxed::Box;
use std::sync::Arc;

/// A data encryption key on the device. Dropping the value destroys the key on the device.
///
/// # Reuse of numbers
/// The device may give the number of a destroyed key to the next key that is created. An mkey whose
/// configuration still names the number then encrypts and decrypts with the other key, without any error.
/// Before you drop or destroy a key, configure anew each mkey that names the key, or destroy the mkey, and
/// take the completions of all transfers through the mkey. The same holds for
/// [`DekCache::erase`](super::DekCache::erase), also while others hold leases of the key.
pub struct Dek {
    id: DekObject,
    domain: Box<ProtectionDomain>,
    object: sys::Object<Arc<sys::Pd>>,
}

impl Dek {
    /// Destroys the key on the device. The device may give its number to another key: see the rules at
    /// [`Dek`].
    ///
    /// # Errors
    /// [`DevxError::Call`], with the key, which still exists.
    pub fn destroy(self) -> Result<(), (DevxError, Self)> {
        let Self { id, domain, object } = self;
        object.destroy().map_err(|(error, object)| (error, Self { id, domain, object }))
    }

    /// Returns the number that [`crate::mkey::Crypto`] takes. The number names this key as long as the value
    /// lives, see [`Dek`].
    pub const fn id(&self) -> DekId {
        self.id.dek_id()
    }

    /// Returns the object number by which commands such as QUERY_DEK name the key.
    pub const fn object(&self) -> DekObject {
        self.id
    }

    pub(super) const fn query_command(&self) -> QueryDek {
        QueryDek(self.id)
    }

    pub(super) const fn devx(&self) -> &sys::Object<Arc<sys::Pd>> {
        &self.object
    }

    /// Asks the device for the key's state, and for the `opaque` bytes that it was created with
    /// (`mlx5dv_dek_query`).
    ///
    /// # Errors
    /// [`DevxError::Command`], for example for a wrapped key without a login.
    pub fn query(&self) -> Result<DekInfo, DevxError> {
        Ok(carry(&self.query_command(), |request, reply| self.object.query(request, reply))?.1)
    }

    /// Gives the key another value. The key keeps its number, and mkeys that were configured with the key use
    /// the new value. If the key was used, take the completions of all requests that use the old value, then
    /// call [`Device::sync_crypto`], then this function.
    ///
    /// # Errors
    /// [`DevxError::Command`] where the device cannot replace keys, or refuses. The key then keeps its old
    /// value.
    ///
    /// ```no_run
    /// use mlx5_mkey::command::DekKey;
    /// use mlx5_mkey::devx::{Dek, Device, DevxError};
    /// /// Replaces a key, after all transfers with it have completed.
    /// fn rotate(device: &Device, dek: &mut Dek, key: DekKey<'_>) -> Result<(), DevxError> {
    ///     device.sync_crypto()?;
    ///     dek.replace(key)
    /// }
    /// ```
    pub fn replace(&mut self, key: DekKey<'_>) -> Result<(), DevxError> {
        let command = ModifyDek { dek: self.id, pd: self.domain.number()?, key };
        command.check(&self.domain.report)?;
        carry(&command, |request, reply| self.object.modify(request, reply)).map(|_| ())
    }
}

impl Device {
    /// Makes the device forget its cached values of keys (SYNC_CRYPTO). Call it before [`Dek::replace`] gives
    /// another value to a key that was used.
    ///
    /// # Errors
    /// [`DevxError::Command`] where the device has no such command, or refuses.
    pub fn sync_crypto(&self) -> Result<(), DevxError> {
        SyncCrypto.check(&self.report)?;
        self.execute(&SyncCrypto)
    }
}

impl ProtectionDomain {
    /// Loads a data encryption key. `opaque` is stored with the key, and [`Dek::query`] returns it. The
    /// library wipes the key's bytes from the mailbox; the caller wipes its own copy.
    ///
    /// # Errors
    /// [`DevxError::Command`] where the device does not take keys in this form, or refuses.
    pub fn create_dek(&self, key: DekKey<'_>, opaque: [u8; 8]) -> Result<Dek, DevxError> {
        let command = CreateDek { pd: self.number()?, key, opaque };
        command.check(&self.report)?;
        let (object, dek): (_, DekObject) = self.create(&command)?;
        Ok(Dek { id: dek, domain: Box::new(self.clone()), object })
    }
}
