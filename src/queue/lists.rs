//! Lists that the device takes from registered memory, and changes in the middle of a list.

use super::in_flight::RequestKind;
use super::request::{SendRequest, file};
use crate::error::{ConfigError, PostError};
use crate::mkey::{KlmEntry, Layout, Mkey, RegisteredList};
use crate::wire::{OCTOWORDS_PER_BLOCK, UMR_HEAD_BLOCKS, blocks_of};
use crate::wqe::PreparedConfig;
use crate::wqe::lists::{self, POINTER_BLOCKS};

impl SendRequest<'_, '_> {
    /// Changes an mkey as [`SendRequest::configure_mkey`] does, with a layout that the device takes from registered memory: as long
    /// as the mkey has room for, whatever fits into a request. The BSFs are written behind the list when this is called, and stay
    /// there until the request has completed.
    ///
    /// # Errors
    /// As [`SendRequest::configure_mkey`].
    pub fn configure_mkey_by_pointer(
        self,
        mkey: &mut Mkey,
        prepared: &PreparedConfig,
        list: &mut RegisteredList<'_>,
    ) -> Result<(), PostError> {
        let nothing = Layout::List(&[]);
        if list.entries() == 0 {
            // There is nothing to point at.
            return self.configure_mkey(mkey, prepared, nothing);
        }
        prepared.check(mkey, &nothing)?;
        let completed;
        let prepared = if prepared.depends_on(mkey) {
            completed = prepared.completed(mkey)?;
            &completed
        } else {
            prepared
        };
        check_room(mkey, list.entries().into())?;
        let Self { state, in_flight, id, flags } = self;
        let psvs = usize::from(prepared.psv_count());
        let (fields, blocks) = (state.control_fields(flags), POINTER_BLOCKS + psvs);
        let target = state.producer.reserve(blocks, in_flight)?;
        let length = lists::configure_by_pointer(target, fields, mkey, prepared, list, psvs)?;
        state.producer.commit(fields.begin + blocks as u64, 1 + psvs, in_flight)?;
        file(state, in_flight, fields.begin, POINTER_BLOCKS, id, psvs);
        mkey.note_configured(prepared.config(), length);
        mkey.clear_flags();
        Ok(())
    }

    /// Replaces entries of the list layout in force, from number `first` on. All else of the mkey stays, its length too: the new
    /// entries have as many bytes together as the old ones.
    ///
    /// Entries are replaced in blocks of 4 (kernel `MLX5_UMR_FLEX_ALIGNMENT`): `first` is a multiple of 4, and entries that do not
    /// fill their last block end the list.
    ///
    /// # Errors
    /// [`PostError::Config`] with [`ConfigError::EntryInBlock`], [`ConfigError::TooManyEntries`] for entries that the mkey or the
    /// request has no room for, [`ConfigError::EntryLength`], [`ConfigError::StateUnknown`] for an mkey without a known layout; and
    /// as [`SendRequest::configure_mkey`].
    pub fn replace_entries(self, mkey: &Mkey, first: u16, entries: &[KlmEntry]) -> Result<(), PostError> {
        check_place(mkey, first, entries.len())?;
        let Self { state, in_flight, id, flags } = self;
        let max = state.max_octowords();
        if entries.len().next_multiple_of(OCTOWORDS_PER_BLOCK) > max {
            return Err(too_many(entries.len(), max).into());
        }
        let (fields, blocks) = (state.control_fields(flags), UMR_HEAD_BLOCKS + blocks_of(entries.len()));
        let target = state.producer.reserve(blocks, in_flight)?;
        lists::replace(target, fields, mkey.key(), first, entries)?;
        state.producer.commit(fields.begin + blocks as u64, 1, in_flight)?;
        in_flight.file(fields.begin, id, RequestKind::MkeyConfigure, blocks);
        state.note_posted(fields.begin, state.umr_fence);
        Ok(())
    }

    /// Replaces entries as [`SendRequest::replace_entries`] does, by those of a list that the device takes from registered memory:
    /// more than fit into a request.
    ///
    /// # Errors
    /// As [`SendRequest::replace_entries`].
    pub fn replace_entries_by_pointer(
        self,
        mkey: &Mkey,
        first: u16,
        list: &RegisteredList<'_>,
    ) -> Result<(), PostError> {
        if list.entries() == 0 {
            return self.replace_entries(mkey, first, &[]);
        }
        check_place(mkey, first, list.entries().into())?;
        let Self { state, in_flight, id, flags } = self;
        let fields = state.control_fields(flags);
        let target = state.producer.reserve(POINTER_BLOCKS, in_flight)?;
        lists::replace_by_pointer(target, fields, mkey.key(), first, list);
        state.producer.commit(fields.begin + POINTER_BLOCKS as u64, 1, in_flight)?;
        in_flight.file(fields.begin, id, RequestKind::MkeyConfigure, POINTER_BLOCKS);
        state.note_posted(fields.begin, state.umr_fence);
        Ok(())
    }
}

/// Refuses entries that cannot stand there in the layout of an mkey.
fn check_place(mkey: &Mkey, first: u16, entries: usize) -> Result<(), ConfigError> {
    mkey.check_layout_known()?;
    if !usize::from(first).is_multiple_of(OCTOWORDS_PER_BLOCK) {
        return Err(ConfigError::EntryInBlock { first });
    }
    check_room(mkey, usize::from(first).saturating_add(entries))
}

/// Refuses more entries than an mkey has room for.
fn check_room(mkey: &Mkey, entries: usize) -> Result<(), ConfigError> {
    let max = mkey.kind_word().max_entries();
    if entries > max { Err(too_many(entries, max)) } else { Ok(()) }
}

fn too_many(entries: usize, max: usize) -> ConfigError {
    let entries = u32::try_from(entries).unwrap_or(u32::MAX);
    ConfigError::TooManyEntries { entries, max: u16::try_from(max).unwrap_or(u16::MAX) }
}
