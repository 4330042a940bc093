//! Requests whose list the device reads from registered memory, and requests that change a part of a list.

use super::in_flight::RequestKind;
use super::request::SendRequest;
use crate::mkey::error::ConfigError;
use crate::mkey::{KlmEntry, Layout, LayoutForm, LayoutKind, Mkey, MkeyAttributes, RegisteredList};
use crate::types::KsmEntrySize;
use crate::wire::{OCTOWORDS_PER_BLOCK, UMR_HEAD_BLOCKS, ZEROS, blocks_of};
use crate::wqe::PreparedConfig;
use crate::wqe::error::PostError;
use crate::wqe::lists::{self, ByPointer, POINTER_BLOCKS};

impl SendRequest<'_, '_> {
    /// Changes an mkey as [`SendRequest::configure_mkey`] does, but the device reads the layout from
    /// registered memory: a list, or an interleaved layout ([`RegisteredList::write_interleaved`]). The
    /// number of entries is limited only by the mkey's room, not by the size of requests. An mkey that was
    /// created for entries of one length (KSM) takes only a list of entries of that length
    /// ([`RegisteredList::write_ksm`]). After an empty list, the mkey maps no memory.
    ///
    /// This call writes the BSFs into the memory behind the list. Leave that memory unchanged until the
    /// request has completed.
    ///
    /// # Errors
    /// The errors of [`SendRequest::configure_mkey`].
    pub fn configure_mkey_by_pointer(
        self,
        mkey: &mut Mkey,
        prepared: &PreparedConfig,
        list: &mut RegisteredList<'_>,
    ) -> Result<(), PostError> {
        if list.entries() == 0 {
            // An empty list needs no pointer.
            return self.configure_mkey(mkey, prepared, Layout::List(&[]));
        }
        let mut place = None;
        let form = LayoutForm { kind: LayoutKind::List, octowords: 0 };
        let prepared = prepared.completed(mkey, form, &mut place)?;
        check_size(mkey, list.entry_size())?;
        check_room(mkey, list.entries().into())?;
        // With `Unchanged`, the call of `note` below leaves the mkey's record of its layout as it is. For a
        // list, `note_list` then records form and length.
        let kind = match list.is_interleaved() {
            true => LayoutKind::Interleaved,
            false => LayoutKind::Unchanged,
        };
        let mut by_pointer = ByPointer { prepared, list, bsfs: [ZEROS; 2], mkey };
        let (request, psvs) = (RequestKind::MkeyConfigure, prepared.psv_count.into());
        self.state.ring.post(self.id, self.flags, request, POINTER_BLOCKS, psvs, &mut by_pointer)?;
        let bsfs = by_pointer.bsfs;
        if let Some(count) = mkey.note(kind, list.length(), &prepared.config) {
            self.state.ring.tell_error_count(POINTER_BLOCKS + usize::from(prepared.psv_count), count);
        }
        lists::write_bsfs(list, prepared, &bsfs);
        if !list.is_interleaved() {
            mkey.note_list(list.entries().into(), list.length());
        }
        mkey.note_known();
        Ok(())
    }

    /// Replaces entries of the list layout in force, from number `first` on. All other properties of the mkey
    /// stay, also its length: the new entries together must have as many bytes as the old ones.
    ///
    /// Entries are replaced in blocks of 4 (kernel `MLX5_UMR_FLEX_ALIGNMENT`), so `first` must be a multiple
    /// of 4. If the new entries do not fill their last block, the list ends with them: their padding
    /// overwrites the rest of the block, and later entries are no longer in the list. The call cannot check
    /// the sum of bytes, since the mkey does not know the lengths of the old entries. With a wrong sum, a
    /// transfer ends at the last entry.
    ///
    /// # Errors
    /// [`PostError::Config`] with [`ConfigError::EntryInBlock`], with [`ConfigError::TooManyEntries`] for
    /// entries that exceed the room of the mkey or of the request, with [`ConfigError::EntryLength`], or with
    /// [`ConfigError::NoList`] for an mkey without a known list in force; also the errors of
    /// [`SendRequest::configure_mkey`].
    pub fn replace_entries(
        mut self,
        mkey: &mut Mkey,
        first: u32,
        entries: &[KlmEntry],
    ) -> Result<(), PostError> {
        check_place(mkey, first, entries.len(), None)?;
        // The room of a request in entries, rounded down to a multiple of 4, since posting pads entries to
        // whole blocks of 64 bytes.
        let max = self.state.max_octowords / OCTOWORDS_PER_BLOCK * OCTOWORDS_PER_BLOCK;
        ConfigError::check_entries(entries.len(), max)?;
        let size = UMR_HEAD_BLOCKS + blocks_of(entries.len());
        self.post_other(RequestKind::MkeyConfigure, size, |blocks, fields| {
            Ok(lists::replace(blocks, fields, mkey.key(), first, entries)?)
        })?;
        mkey.note_replaced(first, entries.len() as u32);
        Ok(())
    }

    /// Replaces entries as [`SendRequest::replace_entries`] does, but the device reads the new entries from
    /// registered memory. The list may have more entries than fit into a request.
    ///
    /// # Errors
    /// [`ConfigError::InterleavedInList`], and the errors of [`SendRequest::replace_entries`].
    pub fn replace_entries_by_pointer(
        mut self,
        mkey: &mut Mkey,
        first: u32,
        list: &RegisteredList<'_>,
    ) -> Result<(), PostError> {
        list.check_list()?;
        if list.entries() == 0 {
            return self.replace_entries(mkey, first, &[]);
        }
        check_place(mkey, first, list.entries().into(), list.entry_size())?;
        self.post_other(RequestKind::MkeyConfigure, POINTER_BLOCKS, |blocks, fields| {
            lists::replace_by_pointer(blocks, fields, mkey.key(), first, list);
            Ok(())
        })?;
        mkey.note_replaced(first, list.entries().into());
        Ok(())
    }

    /// Appends the entries of a list in registered memory to the list in force. The mkey's length grows by
    /// the length of the new entries; its other properties stay. An empty list changes nothing, but a request
    /// is posted.
    ///
    /// The list in force must also come from registered memory ([`SendRequest::configure_mkey_by_pointer`]),
    /// and its number of entries must be a multiple of 4, also after entries were replaced. Replacing 4
    /// entries, or a multiple of 4, never makes a list shorter. To append at an earlier place, configure the
    /// mkey with the shorter list first.
    ///
    /// A list with more entries than a request can count ([`RegisteredList::MAX_ENTRIES`]) is appended part
    /// by part, as in the kernel (`mlx5r_umr_update_xlt`). If the mkey has a start address
    /// ([`PreparedConfig::with_start_address`]), the grown space must end before 2^64. This call does not
    /// check the end.
    ///
    /// # Errors
    /// [`PostError::Config`] with [`ConfigError::AppendWithBsf`] for an mkey with signature or crypto,
    /// [`ConfigError::NoList`] for an mkey without a known list in force, [`ConfigError::ListInRequest`],
    /// [`ConfigError::EntryInBlock`] for a list in force that ends within a block,
    /// [`ConfigError::InterleavedInList`], [`ConfigError::TooManyEntries`], [`ConfigError::OtherEntries`];
    /// also the errors of [`SendRequest::configure_mkey`].
    pub fn append_entries_by_pointer(
        mut self,
        mkey: &mut Mkey,
        list: &RegisteredList<'_>,
    ) -> Result<(), PostError> {
        list.check_list()?;
        let kind = mkey.kind();
        if kind.signature.is_some() || kind.crypto.is_some() {
            return Err(ConfigError::AppendWithBsf.into());
        }
        let first = mkey.list_entries()?;
        if list.entries() == 0 {
            return self.replace_entries(mkey, first, &[]);
        }
        check_place(mkey, first, list.entries().into(), list.entry_size())?;
        let length = mkey.length() + list.length();
        self.post_other(RequestKind::MkeyConfigure, POINTER_BLOCKS, |blocks, fields| {
            lists::replace_by_pointer(blocks, fields, mkey.key(), first, list);
            lists::write_length(blocks, length);
            Ok(())
        })?;
        mkey.note_list(first + u32::from(list.entries()), length);
        Ok(())
    }
}

/// Refuses entries that the list of an mkey cannot hold from number `first` on.
fn check_place(
    mkey: &Mkey,
    first: u32,
    entries: usize,
    entry_size: Option<KsmEntrySize>,
) -> Result<(), ConfigError> {
    mkey.check_list()?;
    if !(first as usize).is_multiple_of(OCTOWORDS_PER_BLOCK) {
        return Err(ConfigError::EntryInBlock { first });
    }
    if entries > 0 {
        check_size(mkey, entry_size)?;
    }
    check_room(mkey, (first as usize).saturating_add(entries))
}

/// Refuses a layout whose entries have another common length than the mkey was created for. `None` means that
/// each entry has a length of its own.
fn check_size(mkey: &Mkey, layout: Option<KsmEntrySize>) -> Result<(), ConfigError> {
    let of = mkey.kind().entry_size;
    if layout == of { Ok(()) } else { Err(ConfigError::OtherEntries { layout, mkey: of }) }
}

/// Refuses more entries than an mkey has room for.
fn check_room(mkey: &Mkey, entries: usize) -> Result<(), ConfigError> {
    // The attributes of an mkey may claim room for more entries than any command can create.
    let max = mkey.kind().max_entries.min(MkeyAttributes::MAX_ENTRIES) as usize;
    ConfigError::check_entries(entries, max)
}
