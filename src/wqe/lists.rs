//! UMRs whose lists are in registered memory, and UMRs that replace entries of a list.

use super::PreparedConfig;
use super::control::{self, ControlFields, Request};
use super::error::PostError;
use super::layout;
use super::umr::UmrRequest;
use crate::mkey::error::ConfigError;
use crate::mkey::{KlmEntry, Layout, Mkey, RegisteredList};
use crate::types::Key;
use crate::wire::ctrl::{ControlSegment, Opcode};
use crate::wire::mkey_context::MkeyContext;
use crate::wire::umr::{MkeyMask, UmrControlSegment, UmrFlags, UmrHead};
use crate::wire::{Block, OCTOWORDS_PER_BLOCK, UMR_HEAD_BLOCKS, ZEROS, blocks_of};
use zerocopy::big_endian::{U16, U64};
use zerocopy::{transmute, transmute_mut};

/// Number of blocks of a UMR whose lists are in registered memory. The last block holds the pointer to the
/// lists.
pub(crate) const POINTER_BLOCKS: usize = UMR_HEAD_BLOCKS + 1;

/// Number of octowords of a UMR whose lists are in registered memory. The device takes this size only (DPDK:
/// "Non-inline KLM UMR WQE size must be 9 WQE_DS").
const POINTER_OCTOWORDS: usize = UMR_HEAD_BLOCKS * OCTOWORDS_PER_BLOCK + 1;

/// Number of blocks in which the inline form of a configuration is built: a UMR without a layout and with two
/// BSFs, and two SET_PSVs after it.
const SCRATCH: usize = UMR_HEAD_BLOCKS + 2 + 2;

/// A configuration whose layout and BSFs the device reads from registered memory.
pub(crate) struct ByPointer<'a, 'l> {
    pub(crate) prepared: &'a PreparedConfig,
    pub(crate) list: &'a RegisteredList<'l>,
    /// The encoded BSFs; the first `prepared.bsf_count` are valid. Once the request is posted, the caller
    /// writes them behind the list in memory ([`write_bsfs`]).
    pub(crate) bsfs: [Block; 2],
    /// The mkey to configure.
    pub(crate) mkey: &'a Mkey,
}

impl Request for ByPointer<'_, '_> {
    fn write(&mut self, blocks: &mut [Block], fields: ControlFields) -> Result<(), PostError> {
        let Self { prepared, list, mkey, .. } = *self;
        let mut scratch = [ZEROS; SCRATCH];
        let mut inline = UmrRequest::new(prepared, &Layout::List(&[]), mkey);
        // The SET_PSVs stand after the UMR with the pointer, whose size differs from that of the inline UMR
        // that is built here. `begin` is shifted by this difference, so that the SET_PSVs get the right block
        // numbers. The added 2^16 prevents an underflow; block numbers count modulo 2^16.
        let begin = fields.begin + (1 << 16) + POINTER_BLOCKS as u64 - inline.umr_blocks as u64;
        inline.write(&mut scratch, ControlFields { begin, ..fields })?;
        let length = list.length();
        if length > prepared.max_length {
            return Err(prepared.too_long(length).into());
        }
        inline.finish(&mut scratch, length)?;
        let [[ctrl, umr @ ..], context, ..] = &mut scratch;
        control::write(ctrl, Opcode::UMR, POINTER_OCTOWORDS, fields, mkey.key().get());
        let umr: &mut UmrControlSegment = transmute_mut!(umr);
        umr.flags = umr.flag_bits().with_inline(false).into_bits();
        umr.klm_octowords = U16::new(list.octowords() as u16);
        let new_context: &mut MkeyContext = transmute_mut!(context);
        new_context.len = U64::new(length);
        let pointer = pointer_block(list);
        let [head, context, rest @ ..] = &scratch;
        let set_psvs = rest.iter().skip(prepared.bsf_count.into()).take(fields.psvs);
        let written = [head, context, &pointer].into_iter().chain(set_psvs);
        for (block, written) in blocks.iter_mut().zip(written) {
            *block = *written;
        }
        let [first, second, ..] = *rest;
        self.bsfs = [first, second];
        Ok(())
    }
}

/// Writes the BSFs of a prepared configuration into memory, behind the entries of a list.
pub(crate) fn write_bsfs(list: &mut RegisteredList<'_>, prepared: &PreparedConfig, bsfs: &[Block; 2]) {
    for (block, bsf) in list.behind().zip(bsfs).take(prepared.bsf_count.into()) {
        *block = transmute!(*bsf);
    }
}

/// Writes a UMR that replaces entries of an mkey's list, from number `first` on, by `entries`.
///
/// # Errors
/// [`ConfigError::EntryLength`].
pub(crate) fn replace(
    blocks: &mut [Block],
    fields: ControlFields,
    key: Key,
    first: u32,
    entries: &[KlmEntry],
) -> Result<(), ConfigError> {
    let octowords = blocks_of(entries.len()) * OCTOWORDS_PER_BLOCK;
    let size = UMR_HEAD_BLOCKS * OCTOWORDS_PER_BLOCK + octowords;
    write_replacement(blocks, fields, size, key, UmrFlags::new().with_inline(true), first, octowords);
    let list = blocks.get_mut(UMR_HEAD_BLOCKS..).unwrap_or_default();
    layout::list(list, entries, |entry| *entry).map(drop)
}

/// Writes a UMR that replaces entries of an mkey's list, from number `first` on, by the entries that `list`
/// holds in memory.
pub(crate) fn replace_by_pointer(
    blocks: &mut [Block],
    fields: ControlFields,
    key: Key,
    first: u32,
    list: &RegisteredList<'_>,
) {
    write_replacement(blocks, fields, POINTER_OCTOWORDS, key, UmrFlags::new(), first, list.octowords());
    if let [_, _, pointer] = blocks {
        *pointer = pointer_block(list);
    }
}

/// Changes an already written UMR, so that it also sets the length of the mkey.
pub(crate) fn write_length(blocks: &mut [Block], length: u64) {
    let [[_, umr @ ..], context, ..] = blocks else { return };
    let umr: &mut UmrControlSegment = transmute_mut!(umr);
    umr.mkey_mask |= U64::new(MkeyMask::new().with_len(true).into_bits());
    let context: &mut MkeyContext = transmute_mut!(context);
    context.len = U64::new(length);
}

/// Returns the last block of a UMR whose lists are in memory. The request ends after the block's first
/// octoword, which is the pointer to the lists.
fn pointer_block(list: &RegisteredList<'_>) -> Block {
    let mut block = ZEROS;
    let [pointer, ..] = &mut block;
    *pointer = transmute!(list.pointer());
    block
}

/// Writes the first two blocks of a UMR of `size` octowords that changes only translation entries. The
/// changed entries begin at number `first` and take `octowords` octowords.
fn write_replacement(
    blocks: &mut [Block],
    fields: ControlFields,
    size: usize,
    key: Key,
    flags: UmrFlags,
    first: u32,
    octowords: usize,
) {
    let mut umr = UmrControlSegment {
        flags: flags.into_bits(),
        klm_octowords: U16::new(octowords as u16),
        ..UmrControlSegment::default()
    };
    umr.set_first_entry(first);
    let [head, context, ..] = blocks else { return };
    *head = transmute!(UmrHead { ctrl: ControlSegment::default(), umr });
    *context = ZEROS;
    let [ctrl, ..] = head;
    control::write(ctrl, Opcode::UMR, size, fields, key.get());
}
