//! Mkeys that are created with their list.

use super::{DevxError, ProtectionDomain, sys};
use crate::command::{CreateListMkey, MkeyEntries};
use crate::mkey::Access;
use crate::types::Key;
use std::sync::Arc;

/// An mkey that was created with its list. It is gone from the device when the value is dropped.
///
/// It can be used at once, and no work request changes it. The memory under it is registered on its own, and stays so while requests
/// use the key: the device refuses a key under it that is gone.
pub struct ListMkey {
    key: Key,
    address: u64,
    length: u64,
    _object: sys::Object<Arc<sys::Pd>>,
}

impl ListMkey {
    /// Returns its key, local and remote.
    pub const fn key(&self) -> Key {
        self.key
    }

    /// Returns the first address of its space.
    pub const fn address(&self) -> u64 {
        self.address
    }

    /// Returns how many bytes its space has.
    pub const fn length(&self) -> u64 {
        self.length
    }
}

impl ProtectionDomain {
    /// Makes an mkey with its list: `entries`, one after the other, are its space from `address` on.
    ///
    /// ```no_run
    /// use mlx5_mkey::command::MkeyEntries;
    /// use mlx5_mkey::devx::{Buffer, DevxError, ListMkey, ProtectionDomain};
    /// use mlx5_mkey::mkey::Access;
    /// /// Two buffers as one space that a peer may read.
    /// fn join(pd: &ProtectionDomain, [a, b]: [&Buffer; 2]) -> Result<ListMkey, DevxError> {
    ///     let entries = [a.entry(0..a.len()), b.entry(0..b.len())];
    ///     pd.create_list_mkey(Access::REMOTE_READ, 0, MkeyEntries::Klm(&entries))
    /// }
    /// ```
    ///
    /// # Errors
    /// [`DevxError::Command`] where the device takes no such list ([`CreateListMkey::new`]), or refuses.
    pub fn create_list_mkey(
        &self,
        access: Access,
        address: u64,
        entries: MkeyEntries<'_>,
    ) -> Result<ListMkey, DevxError> {
        let command = CreateListMkey::new(self.number()?, access, address, entries, &self.report.general)?;
        let (object, key) = self.create(&command)?;
        Ok(ListMkey { key, address, length: command.length(), _object: object })
    }
}
