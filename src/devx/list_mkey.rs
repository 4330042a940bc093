//! Mkeys that are created together with their list of entries.

use super::{DevxError, MAX_REQUEST, ProtectionDomain, sys};
use crate::command::error::CommandError;
use crate::command::{Command, CreateListMkey, MkeyEntries};
use crate::mkey::Access;
use crate::types::Key;
use crate::wire::{OCTOWORDS_PER_BLOCK, WQEBB_BYTES};
use std::sync::Arc;

/// An mkey that was created together with its list of entries. Dropping the value destroys the mkey on the
/// device.
///
/// The mkey can be used at once, and no work request changes it. The caller must not end the registration of
/// a memory region in the list as long as requests use the mkey: the device refuses requests if an entry
/// names a destroyed key.
pub struct ListMkey {
    key: Key,
    address: u64,
    length: u64,
    _object: sys::Object<Arc<sys::Pd>>,
}

impl ListMkey {
    /// The largest number of entries of a list, even if the device accepts more. The command that creates the
    /// mkey contains the list, and the kernel's interface carries commands of up to 65,535 bytes. For longer
    /// lists, use mkeys that work requests configure ([`ProtectionDomain::create_mkeys`]), from registered
    /// memory ([`RegisteredList`](crate::mkey::RegisteredList)).
    // A multiple of 4 entries, because the command pads the list to a multiple of 64 bytes (4 entries).
    pub const MAX_ENTRIES: u32 =
        ((MAX_REQUEST - CreateListMkey::INPUT) / WQEBB_BYTES * OCTOWORDS_PER_BLOCK) as u32;

    /// Returns the mkey's key, local and remote.
    pub const fn key(&self) -> Key {
        self.key
    }

    /// Returns the first address of the mkey's space.
    pub const fn address(&self) -> u64 {
        self.address
    }

    /// Returns how many bytes the mkey's space has.
    pub const fn length(&self) -> u64 {
        self.length
    }
}

impl ProtectionDomain {
    /// Creates an mkey together with its list. The space of the mkey begins at `address` and consists of
    /// `entries`, one after the other.
    ///
    /// ```no_run
    /// use mlx5_mkey::command::MkeyEntries;
    /// use mlx5_mkey::devx::{Buffer, DevxError, ListMkey, ProtectionDomain};
    /// use mlx5_mkey::mkey::Access;
    /// /// Two buffers as one space that a peer may read.
    /// fn join(pd: &ProtectionDomain, [a, b]: [&Buffer; 2]) -> Result<ListMkey, DevxError> {
    ///     let entries = [a.entry(0..a.len())?, b.entry(0..b.len())?];
    ///     pd.create_list_mkey(Access::REMOTE_READ, 0, MkeyEntries::Klm(&entries))
    /// }
    /// ```
    ///
    /// # Errors
    /// [`DevxError::Command`] where the device does not support the list ([`CreateListMkey::new`]), where the
    /// list has more entries than [`ListMkey::MAX_ENTRIES`] ([`CommandError::TooManyEntries`]), or where the
    /// device refuses.
    pub fn create_list_mkey(
        &self,
        access: Access,
        address: u64,
        entries: MkeyEntries<'_>,
    ) -> Result<ListMkey, DevxError> {
        let device = &self.report.general;
        let max = device.max_entries().min(ListMkey::MAX_ENTRIES);
        if entries.count() > max as usize {
            let entries = u32::try_from(entries.count()).unwrap_or(u32::MAX);
            let command = CreateListMkey::OPCODE;
            return Err(CommandError::TooManyEntries { command, entries, max }.into());
        }
        let command = CreateListMkey::new(self.number()?, access, address, entries, device)?;
        let (object, key) = self.create(&command)?;
        Ok(ListMkey { key, address, length: command.length(), _object: object })
    }
}
