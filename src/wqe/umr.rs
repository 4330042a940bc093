//! UMR requests that configure an mkey, each followed by its SET_PSVs.

use super::control::{ControlFields, Request};
use super::layout::AnyLayout;
use super::{PreparedConfig, bsf, control};
use crate::mkey::error::ConfigError;
use crate::mkey::{LayoutForm, LayoutKind, Mkey};
use crate::types::{DomainKind, PsvIndex, Seed};
use crate::wire::bsf::SignatureBsf;
use crate::wire::ctrl::Opcode;
use crate::wire::mkey_context::{FlagsPd, MkeyContext};
use crate::wire::psv::{SetPsvSegment, TransientSignature};
use crate::wire::umr::{MkeyMask, UmrControlSegment};
use crate::wire::{Block, OCTOWORD_BYTES, OCTOWORDS_PER_BLOCK, Octoword, UMR_HEAD_BLOCKS};
use crate::wqe::error::PostError;
use core::mem::offset_of;
use zerocopy::big_endian::{U16, U32, U64};
use zerocopy::{transmute, transmute_mut};

const ZERO: Octoword = [0; OCTOWORD_BYTES];

/// The offset of the tag in an mkey context: the tag is the last byte of the word `qpn_mkey`.
const TAG: usize = offset_of!(MkeyContext, qpn_mkey) + 3;

/// The bit of an mkey mask that makes a UMR set the length.
const LENGTH: u64 = MkeyMask::new().with_len(true).into_bits();

/// The work requests that configure an mkey: a UMR, and SET_PSVs after it.
pub(crate) struct UmrRequest<'a, L: ?Sized> {
    pub(crate) prepared: &'a PreparedConfig,
    pub(crate) layout: &'a L,
    /// Kind and size of the layout.
    pub(crate) form: LayoutForm,
    /// Numbers of blocks: of the layout, of the BSFs, and of the whole UMR.
    pub(crate) layout_blocks: usize,
    pub(crate) bsf_blocks: usize,
    pub(crate) umr_blocks: usize,
    /// The mkey to configure.
    pub(crate) mkey: &'a Mkey,
    /// Number of bytes that the mkey maps once the device has executed the request. `write` sets this field.
    pub(crate) length: u64,
}

impl<'a, L: AnyLayout + ?Sized> UmrRequest<'a, L> {
    #[inline(always)]
    pub(crate) fn new(prepared: &'a PreparedConfig, layout: &'a L, mkey: &'a Mkey) -> Self {
        let form = layout.form();
        let (layout_blocks, bsf_blocks) =
            (form.octowords.div_ceil(OCTOWORDS_PER_BLOCK), prepared.bsf_count.into());
        let umr_blocks = UMR_HEAD_BLOCKS + layout_blocks + bsf_blocks;
        Self { prepared, layout, form, layout_blocks, bsf_blocks, umr_blocks, mkey, length: 0 }
    }

    /// Completes the blocks of [`UmrRequest::write`] for an mkey that maps `length` bytes. Few configurations
    /// need this step. In the BSFs of a digest or of a minimal UMR, it writes the number of data bytes; in
    /// the BSF of a digest, also the mkey's own PSV. In the mkey context, it writes the changed fields after
    /// the first octoword, and clears the tag if the UMR is minimal.
    ///
    /// # Errors
    /// [`ConfigError::DigestWithoutData`], [`ConfigError::SpaceBehindEnd`].
    pub(crate) fn finish(&self, blocks: &mut [Block], length: u64) -> Result<(), ConfigError> {
        let (head, rest) = blocks.split_at_mut_checked(UMR_HEAD_BLOCKS).unwrap_or_default();
        if let [_, context] = head {
            let context: &mut MkeyContext = transmute_mut!(context);
            if !self.prepared.writes_tag() {
                context.qpn_mkey = U32::ZERO;
            }
            self.prepared.finish_context(context, length)?;
        }
        if self.prepared.exact_size {
            let (_, rest) = rest.split_at_mut_checked(self.layout_blocks).unwrap_or_default();
            let (bsfs, _) = rest.split_at_mut_checked(self.bsf_blocks).unwrap_or_default();
            write_sizes(bsfs, self.prepared, self.mkey, length)?;
        }
        Ok(())
    }
}

/// Writes a configuration as it was prepared, with only the key, tag, PSVs and layout of this mkey added.
impl<L: AnyLayout + ?Sized> Request for UmrRequest<'_, L> {
    // This function is inlined: with a call, a list of 4 entries takes 75 % more instructions on x86-64, and
    // benchmarks of posting on Cortex-A72 take 44 to 131 % more.
    #[inline(always)]
    fn write(&mut self, blocks: &mut [Block], fields: ControlFields) -> Result<(), PostError> {
        let Self { prepared, layout, form, layout_blocks, bsf_blocks, umr_blocks, mkey, .. } = *self;
        // The request has reserved all its blocks, so the pattern and the splits below do not fail.
        let [[ctrl, umr @ ..], context, rest @ ..] = blocks else { return Ok(()) };
        let (entries, rest) = rest.split_at_mut_checked(layout_blocks).unwrap_or_default();
        let (bsfs, set_psvs) = rest.split_at_mut_checked(bsf_blocks).unwrap_or_default();
        control::write(ctrl, Opcode::UMR, umr_blocks * OCTOWORDS_PER_BLOCK, fields, mkey.key.0);
        // The layout is written before the other parts, while few other values occupy registers.
        let mapped = layout.write_entries(entries)?;
        let is_unchanged = form.kind == LayoutKind::Unchanged;
        let length = if is_unchanged { mkey.length() } else { mapped };
        if length > prepared.max_length {
            return Err(prepared.too_long(length).into());
        }
        // The segment is written octoword by octoword: writing it field by field takes three times as long.
        let [start, ..]: [Octoword; 3] = transmute!(prepared.umr);
        *umr = [start, ZERO, ZERO];
        let umr: &mut UmrControlSegment = transmute_mut!(umr);
        umr.klm_octowords = U16::new((layout_blocks * OCTOWORDS_PER_BLOCK) as u16);
        if is_unchanged {
            umr.mkey_mask = U64::new(prepared.umr.mkey_mask.get() & !LENGTH);
        }
        for (block, bsf) in bsfs.iter_mut().zip(&prepared.bsfs) {
            *block = *bsf;
        }
        let [memory, wire] = mkey.psvs;
        // The BSF of a block signature names the PSVs of this mkey.
        if prepared.psv_mask != 0
            && let [first, ..] = bsfs
        {
            let [_, psvs, ..]: &mut [U64; 8] = transmute_mut!(first);
            *psvs |= U64::new((u64::from(wire) << 32 | u64::from(memory)) & prepared.psv_mask);
        }
        let [start, ..]: [Octoword; 4] = transmute!(prepared.context);
        *context = [start, transmute!([U64::ZERO, U64::new(mapped)]), ZERO, ZERO];
        context[0][TAG] = mkey.key.0 as u8;
        let psvs = fields.psvs;
        for (at, (block, &domain)) in set_psvs.iter_mut().zip(&prepared.psv_domains).enumerate().take(psvs) {
            let flags = if at + 1 == psvs { fields.set_psv } else { fields.set_psv.silent() };
            let begin = fields.begin + (umr_blocks + at) as u64;
            let own = ControlFields { begin, flags: flags.with(fields.always), ..fields };
            let (psv, start) = (mkey.psvs.get(domain as usize), prepared.psv_starts.get(domain as usize));
            write_set_psv(block, own, psv.copied().unwrap_or_default(), start.copied().unwrap_or_default());
        }
        self.length = length;
        Ok(())
    }
}

/// A configuration of which [`UmrRequest::finish`] writes some fields at the end, because they depend on the
/// layout or are seldom used.
pub(crate) struct Finished<'a>(pub(crate) UmrRequest<'a, dyn AnyLayout + 'a>);

impl Request for Finished<'_> {
    fn write(&mut self, blocks: &mut [Block], fields: ControlFields) -> Result<(), PostError> {
        self.0.write(blocks, fields)?;
        Ok(self.0.finish(blocks, self.0.length)?)
    }
}

/// Changes the first block of an already written UMR, so that it also sets the count of signature errors.
pub(crate) fn select_error_count([_, umr @ ..]: &mut Block) {
    let umr: &mut UmrControlSegment = transmute_mut!(umr);
    umr.mkey_mask |= U64::new(MkeyMask::new().with_sig_err(true).into_bits());
}

/// Writes the count of signature errors into the second block of a UMR, the mkey context. The device holds
/// only the low bit of the count.
pub(crate) fn write_error_count(context: &mut Block, count: u32) {
    let context: &mut MkeyContext = transmute_mut!(context);
    context.flags_pd |= U32::new(FlagsPd::new().with_sig_err_count(count & 1 != 0).into_bits());
}

/// Writes the number of data bytes into the BSFs, and the mkey's own PSV into the BSF of a digest that uses
/// it.
fn write_sizes(
    bsfs: &mut [Block],
    prepared: &PreparedConfig,
    mkey: &Mkey,
    length: u64,
) -> Result<(), ConfigError> {
    let data = U32::new(prepared.data_bytes(length)?);
    for block in bsfs.iter_mut() {
        // Both kinds of BSF have the size of the data in the second word.
        let [_, raw_data_size, ..]: &mut [U32; 16] = transmute_mut!(block);
        *raw_data_size = data;
    }
    if let (Some(domain), [first, ..]) = (prepared.own_digest(), bsfs) {
        let bsf: &mut SignatureBsf = transmute_mut!(first);
        let selector = match domain {
            DomainKind::Memory => &mut bsf.ext_memory_tfs_psv,
            DomainKind::Wire => &mut bsf.ext_wire_tfs_psv,
        };
        *selector |= U32::new(mkey.psv(domain));
    }
    Ok(())
}

/// Writes the SET_PSV that makes the digest of a transaction begin anew.
pub(crate) fn restart_digest(blocks: &mut [Block], fields: ControlFields, psv: PsvIndex, seed: Seed) {
    let [block] = blocks else { return };
    write_set_psv(block, fields, psv.get(), bsf::crc32_start(seed));
}

/// Writes a SET_PSV, which makes `start` the value of a PSV. The second half of its block stays as before,
/// because the device reads only as many octowords as the request has.
#[inline]
fn write_set_psv(block: &mut Block, fields: ControlFields, psv: u32, start: TransientSignature) {
    const OCTOWORDS: usize = 1 + size_of::<SetPsvSegment>() / OCTOWORD_BYTES;
    let [ctrl, segment, ..] = block;
    control::write(ctrl, Opcode::SET_PSV, OCTOWORDS, fields, 0);
    // The fields of SetPsvSegment: the number of the PSV, zeros, and the start value.
    let start: U64 = transmute!(start);
    *segment = transmute!([U64::new(u64::from(psv) << 32), start]);
}
