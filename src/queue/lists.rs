//! Lists that the device takes from registered memory, and changes in the middle of a list.

use super::in_flight::RequestKind;
use super::request::{Configuration, SendRequest};
use crate::error::{ConfigError, PostError};
use crate::mkey::{KlmEntry, Layout, LayoutForm, Mkey, MkeyAttributes, MkeyConfig, RegisteredList};
use crate::types::KsmEntrySize;
use crate::wire::{Block, OCTOWORDS_PER_BLOCK, UMR_HEAD_BLOCKS, ZEROS, blocks_of};
use crate::wqe::PreparedConfig;
use crate::wqe::control::ControlFields;
use crate::wqe::lists::{self, POINTER_BLOCKS};

impl SendRequest<'_, '_> {
    /// Changes an mkey as [`SendRequest::configure_mkey`] does, with a list, or an interleaved layout
    /// ([`RegisteredList::write_interleaved`]), that the device reads from registered memory. Only the room
    /// of the mkey limits its length; the size of requests does not. An mkey that was created for entries of
    /// one length (KSM) takes a list of such entries ([`RegisteredList::write_ksm`]), and no other layout.
    /// After an empty list the mkey maps nothing. This call writes the BSFs into the memory behind the list;
    /// leave that memory as it is until the request has completed.
    ///
    /// # Errors
    /// As [`SendRequest::configure_mkey`].
    pub fn configure_mkey_by_pointer(
        mut self,
        mkey: &mut Mkey,
        prepared: &PreparedConfig,
        list: &mut RegisteredList<'_>,
    ) -> Result<(), PostError> {
        if list.entries() == 0 {
            // There is nothing to point at.
            return self.configure_mkey(mkey, prepared, Layout::List(&[]));
        }
        let mut place = None;
        let prepared = prepared.completed(mkey, LayoutForm::List { entries: 0 }, &mut place)?;
        check_size(mkey, list.entry_size())?;
        check_room(mkey, list.entries().into())?;
        let mut by_pointer = ByPointer { prepared, list, bsfs: [ZEROS; 2] };
        self.post(mkey, &mut by_pointer)?;
        let bsfs = by_pointer.bsfs;
        lists::write_bsfs(list, prepared, &bsfs);
        if !list.is_interleaved() {
            mkey.note_list(list.entries().into(), list.length());
        }
        mkey.note_known();
        Ok(())
    }

    /// Replaces entries of the list layout in force, from number `first` on. All else of the mkey stays, its
    /// length too: the new entries have as many bytes together as the old ones.
    ///
    /// Entries are replaced in blocks of 4 (kernel `MLX5_UMR_FLEX_ALIGNMENT`): `first` is a multiple of 4,
    /// and entries that do not fill their last block end the list.
    ///
    /// # Errors
    /// [`PostError::Config`] with [`ConfigError::EntryInBlock`], [`ConfigError::TooManyEntries`] for entries
    /// that the mkey or the request has no room for, [`ConfigError::EntryLength`], [`ConfigError::NoList`]
    /// for an mkey without a known list in force; and as [`SendRequest::configure_mkey`].
    pub fn replace_entries(
        mut self,
        mkey: &mut Mkey,
        first: u32,
        entries: &[KlmEntry],
    ) -> Result<(), PostError> {
        check_place(mkey, first, entries.len(), None)?;
        // Entries are padded to whole blocks.
        let max = self.state.max_octowords() / OCTOWORDS_PER_BLOCK * OCTOWORDS_PER_BLOCK;
        ConfigError::check_entries(entries.len(), max)?;
        let size = UMR_HEAD_BLOCKS + blocks_of(entries.len());
        let (blocks, fields) = self.reserve(size)?;
        lists::replace(blocks, fields, mkey.key(), first, entries)?;
        self.commit(fields.begin, RequestKind::MkeyConfigure, size, 0)?;
        mkey.note_replaced(first, entries.len() as u32);
        Ok(())
    }

    /// Replaces entries as [`SendRequest::replace_entries`] does, by those of a list that the device takes
    /// from registered memory: more than fit into a request.
    ///
    /// # Errors
    /// [`ConfigError::InterleavedInList`]; and as [`SendRequest::replace_entries`].
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
        let (blocks, fields) = self.reserve(POINTER_BLOCKS)?;
        lists::replace_by_pointer(blocks, fields, mkey.key(), first, list);
        self.commit(fields.begin, RequestKind::MkeyConfigure, POINTER_BLOCKS, 0)?;
        mkey.note_replaced(first, list.entries().into());
        Ok(())
    }

    /// Appends the entries of a list, which the device takes from registered memory, to the list in force.
    /// The length of the mkey grows by theirs; all else stays. The list in force came from registered memory
    /// as well ([`SendRequest::configure_mkey_by_pointer`]), and ends with a whole block: it has a multiple
    /// of 4 entries, also after entries were replaced. Replacing the end of a list by fewer whole blocks of
    /// entries does not shorten it: to append to such a list, configure the mkey anew. An empty list changes
    /// nothing, and is posted all the same.
    ///
    /// Lists of more entries than a request counts ([`RegisteredList::MAX_ENTRIES`]) are laid in parts with
    /// this, as the kernel lays them (`mlx5r_umr_update_xlt`). Where the space begins at an address
    /// ([`PreparedConfig::with_start_address`]), it has to end before 2^64: that is not checked here.
    ///
    /// # Errors
    /// [`PostError::Config`] with [`ConfigError::AppendWithBsf`] for an mkey with signature or crypto,
    /// [`ConfigError::NoList`] for one without a known list in force, [`ConfigError::ListInRequest`],
    /// [`ConfigError::EntryInBlock`] for a list in force that ends within a block,
    /// [`ConfigError::InterleavedInList`], [`ConfigError::TooManyEntries`], [`ConfigError::OtherEntries`];
    /// and as [`SendRequest::configure_mkey`].
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
        let (blocks, fields) = self.reserve(POINTER_BLOCKS)?;
        lists::replace_by_pointer(blocks, fields, mkey.key(), first, list);
        lists::write_length(blocks, length);
        self.commit(fields.begin, RequestKind::MkeyConfigure, POINTER_BLOCKS, 0)?;
        mkey.note_list(first + u32::from(list.entries()), length);
        Ok(())
    }
}

/// A configuration whose list is in registered memory.
struct ByPointer<'a, 'l> {
    prepared: &'a PreparedConfig,
    list: &'a RegisteredList<'l>,
    /// What is written behind the list once the request is posted.
    bsfs: [Block; 2],
}

impl Configuration for ByPointer<'_, '_> {
    fn blocks(&self) -> usize {
        POINTER_BLOCKS
    }

    fn psvs(&self) -> usize {
        self.prepared.psv_count().into()
    }

    fn config(&self) -> &MkeyConfig {
        self.prepared.config()
    }

    fn form(&self) -> LayoutForm {
        // A list is noted by itself.
        if self.list.is_interleaved() {
            LayoutForm::Interleaved { entries: 0 }
        } else {
            LayoutForm::Unchanged
        }
    }

    fn write(
        &mut self,
        blocks: &mut [Block],
        fields: ControlFields,
        mkey: &Mkey,
    ) -> Result<u64, ConfigError> {
        let Self { prepared, list, .. } = *self;
        self.bsfs = lists::configure_by_pointer(blocks, fields, mkey, prepared, list, self.psvs())?;
        Ok(list.length())
    }
}

/// Refuses entries that cannot stand there in the layout of an mkey.
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

/// Refuses entries of another length than an mkey was created for.
fn check_size(mkey: &Mkey, layout: Option<KsmEntrySize>) -> Result<(), ConfigError> {
    let of = mkey.kind().entry_size;
    if layout == of { Ok(()) } else { Err(ConfigError::OtherEntries { layout, mkey: of }) }
}

/// Refuses more entries than an mkey has room for.
fn check_room(mkey: &Mkey, entries: usize) -> Result<(), ConfigError> {
    // Of attributes that no command has made, there may be more.
    let max = mkey.kind_word().max_entries().min(MkeyAttributes::MAX_ENTRIES as usize);
    ConfigError::check_entries(entries, max)
}
