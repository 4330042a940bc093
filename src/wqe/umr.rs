//! UMR requests: configure an mkey, with the SET_PSVs behind it, or take its key out of service.

use super::control::{Post, RequestFlags};
use super::{PreparedConfig, control, layout};
use crate::error::ConfigError;
use crate::mkey::{Layout, Mkey};
use crate::types::Key;
use crate::wire::bsf::SignatureBsf;
use crate::wire::ctrl::{ControlSegment, Opcode};
use crate::wire::mkey_context::{FreeByte, MkeyContext, QpnMkey};
use crate::wire::psv::SetPsvSegment;
use crate::wire::umr::{MkeyMask, UmrControlSegment, UmrFlags, UmrHead};
use crate::wire::{Block, OCTOWORD_BYTES, OCTOWORDS_PER_BLOCK, Octoword, UMR_HEAD_BLOCKS, blocks_of};
use zerocopy::big_endian::{U16, U32, U64};
use zerocopy::{transmute, transmute_mut};

/// Blocks of a request that takes a key out of service.
pub(crate) const INVALIDATE_BLOCKS: usize = UMR_HEAD_BLOCKS;

/// Bound to no queue pair, with tag 0.
const QPN_ANY: u32 = QpnMkey::new().with_qpn(QpnMkey::ANY).into_bits();

const ZERO: Octoword = [0; OCTOWORD_BYTES];

/// The bit of the length in a mask.
const LENGTH: u64 = MkeyMask::new().with_len(true).into_bits();

/// A configuration on its way: a UMR, and SET_PSVs behind it.
#[derive(Clone, Copy)]
pub(crate) struct Configuration<'a> {
    pub(crate) prepared: &'a PreparedConfig,
    pub(crate) layout: Layout<'a>,
    /// Blocks of the layout and of the UMR.
    layout_blocks: usize,
    pub(crate) umr_blocks: usize,
}

impl<'a> Configuration<'a> {
    #[inline(always)]
    pub(crate) fn new(prepared: &'a PreparedConfig, layout: Layout<'a>) -> Self {
        let layout_blocks = blocks_of(layout.octowords());
        let umr_blocks = UMR_HEAD_BLOCKS + layout_blocks + prepared.bsf_count();
        Self { prepared, layout, layout_blocks, umr_blocks }
    }

    /// Writes the UMR and `PSVS` SET_PSVs, and returns how many bytes the mkey maps behind them. The last request gets the
    /// completion.
    ///
    /// # Errors
    /// [`ConfigError`] for an entry of the layout that cannot be, or for a length that the BSFs cannot have.
    #[inline(always)]
    pub(crate) fn write<const PSVS: usize>(
        &self,
        blocks: &mut [Block],
        post: Post,
        mkey: &Mkey,
    ) -> Result<u64, ConfigError> {
        let Self { prepared, layout, layout_blocks, .. } = *self;
        let (head, rest) = split(blocks, UMR_HEAD_BLOCKS);
        let (entries, rest) = split(rest, layout_blocks);
        let (bsfs, set_psvs) = split(rest, prepared.bsf_count());
        let mapped = layout::write(entries, &layout)?;
        let length = if matches!(layout, Layout::Unchanged) { mkey.length() } else { mapped };
        if length > prepared.max_length() {
            return Err(prepared.too_long(length));
        }
        self.write_head(head, if PSVS == 0 { post } else { post.silent() }, mkey.key(), mapped);
        for (block, bsf) in bsfs.iter_mut().zip(prepared.bsfs()) {
            *block = *bsf;
        }
        if prepared.psv_mask() != 0
            && let [first, ..] = bsfs
        {
            let bsf: &mut SignatureBsf = transmute_mut!(first);
            bsf.add_psvs(mkey.psvs() & prepared.psv_mask());
        }
        for (at, (block, psv)) in set_psvs.iter_mut().zip(prepared.psvs()).take(PSVS).enumerate() {
            let flags = if at + 1 == PSVS { post.flags } else { post.flags.silent() };
            let begin = post.begin + (self.umr_blocks + at) as u64;
            let post = Post { begin, flags, fence: RequestFlags::AFTER_UMR, ..post };
            write_set_psv(block, post, mkey.psv(psv.domain), psv.start);
        }
        Ok(length)
    }

    /// Writes the first two blocks of the UMR: control segments and mkey context.
    #[inline(always)]
    fn write_head(&self, blocks: &mut [Block], post: Post, key: Key, length: u64) {
        let [[ctrl, umr @ ..], context] = blocks else { return };
        control::write(ctrl, Opcode::UMR, self.umr_blocks * OCTOWORDS_PER_BLOCK, post, key.get());
        // Octoword by octoword: field by field takes three times as long.
        let [start, ..]: [Octoword; 3] = transmute!(*self.prepared.umr());
        *umr = [start, ZERO, ZERO];
        let umr: &mut UmrControlSegment = transmute_mut!(umr);
        umr.klm_octowords = U16::new((self.layout_blocks * OCTOWORDS_PER_BLOCK) as u16);
        if matches!(self.layout, Layout::Unchanged) {
            umr.mkey_mask = U64::new(self.prepared.umr().mkey_mask.get() & !LENGTH);
        }
        let [start, ..]: [Octoword; 4] = transmute!(*self.prepared.context());
        *context = [start, transmute!([U64::ZERO, U64::new(length)]), ZERO, ZERO];
        let context: &mut MkeyContext = transmute_mut!(context);
        context.qpn_mkey = U32::new(QPN_ANY | u32::from(key.tag()));
    }
}

/// Writes a SET_PSV. The second half of its block is left as it is: the device reads no further than its size.
#[inline(always)]
fn write_set_psv(block: &mut Block, post: Post, psv: u32, start: u64) {
    const OCTOWORDS: usize = 1 + size_of::<SetPsvSegment>() / OCTOWORD_BYTES;
    let [ctrl, segment, ..] = block;
    control::write(ctrl, Opcode::SET_PSV, OCTOWORDS, post, 0);
    *segment = transmute!(SetPsvSegment {
        psv_index: U32::new(psv),
        syndrome: U16::ZERO,
        reserved: U16::ZERO,
        transient_signature: U64::new(start),
    });
}

/// Takes blocks from the front. A request reserves what it writes: there are as many.
#[inline(always)]
fn split(blocks: &mut [Block], count: usize) -> (&mut [Block], &mut [Block]) {
    debug_assert!(count <= blocks.len(), "a request reserves what it writes");
    blocks.split_at_mut_checked(count).unwrap_or_default()
}

/// Writes the UMR that takes a key out of service (`IBV_WR_LOCAL_INV`).
pub(crate) fn invalidate(blocks: &mut [Block], post: Post, key: Key) {
    let mask = MkeyMask::new().with_free(true).with_mkey(true).with_qpn(true);
    let flags = UmrFlags::new().with_inline(true).with_translation_offset(true).with_check_qpn(true);
    let umr = UmrControlSegment {
        flags: flags.into_bits(),
        mkey_mask: U64::new(mask.into_bits()),
        ..UmrControlSegment::default()
    };
    let new_context = MkeyContext {
        free: FreeByte::new().with_free(true).into_bits(),
        qpn_mkey: U32::new(QPN_ANY),
        ..MkeyContext::default()
    };
    let [head, context, ..] = blocks else { return };
    *head = transmute!(UmrHead { ctrl: ControlSegment::default(), umr });
    *context = transmute!(new_context);
    let [ctrl, ..] = head;
    let octowords = INVALIDATE_BLOCKS * OCTOWORDS_PER_BLOCK;
    control::write(ctrl, Opcode::UMR, octowords, post, key.get());
}
