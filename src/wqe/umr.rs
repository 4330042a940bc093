//! UMR requests: configure an mkey, or take its key out of service.

use super::{Room, Sink, padded};
use crate::mkey::{CryptoWire, Entries, InterleavedEntry, Numbers, Plan, ReadySignature, XtsEngine};
use crate::wire::ctrl::ControlSegment;
use crate::wire::mkey_context::{AccessByte, FlagsPd, FreeByte, MkeyContext, QpnMkey};
use crate::wire::strided::StridedHeader;
use crate::wire::umr::{LayoutSize, MkeyMask, UmrControlSegment, UmrFlags, UmrHead};
use crate::wire::{OCTOWORD_BYTES, OCTOWORDS_PER_BLOCK, UMR_HEAD_BLOCKS};
use zerocopy::big_endian::{U32, U64};
use zerocopy::transmute;

/// Blocks of a request that takes a key out of service.
pub(crate) const INVALIDATE_BLOCKS: usize = 2;

/// Returns the blocks of the UMR that carries out a plan, SET_PSVs not counted. All its segments fill blocks.
#[inline(always)]
pub(crate) fn room(plan: &Plan<'_>) -> Room {
    Room { fixed: UMR_HEAD_BLOCKS + plan.bsf_blocks(), entries: plan.layout_blocks() }
}

/// Builds the UMR that carries out a plan on the mkey with these numbers, but for its [`layout`].
#[inline(always)]
pub(crate) fn configure(plan: &Plan<'_>, numbers: &Numbers, ctrl: ControlSegment, sink: &mut impl Sink) {
    let mut mask = MkeyMask::new().with_free(true).with_mkey(true);
    let mut rights = AccessByte::new();
    let mut length = 0;
    let mut flags = FlagsPd::new();
    if let Some(access) = plan.access {
        mask = mask.with_local_write(true).with_remote_read(true).with_remote_write(true).with_atomic(true);
        rights = access.to_wire();
    }
    if let Some(layout) = &plan.layout {
        mask = mask.with_len(true);
        length = layout.length();
    }
    if let Some(count) = plan.error_count {
        mask = mask.with_sig_err(true);
        flags = flags.with_sig_err_count(count);
    }
    if let Some(enable) = plan.bsf_enable {
        mask = mask.with_bsf_enable(true);
        flags = flags.with_bsf_enable(enable);
    }
    let layout = plan.layout.map_or(LayoutSize::default(), |layout| layout.size());
    let bsf_octowords = (plan.bsf_blocks() * OCTOWORDS_PER_BLOCK) as u16;
    let inline = UmrFlags::new().with_inline(true);
    let umr = UmrControlSegment::new(inline, layout, bsf_octowords, mask);
    sink.put(UmrHead { ctrl, umr });
    sink.put(MkeyContext::in_service(rights, numbers.context_word, flags, length));
    sink.leave_entries(plan.layout_blocks());
    let both = plan.signature_bsf.is_some() && plan.crypto_bsf.is_some();
    if let Some((ready, psvs)) = plan.signature_bsf {
        signature_bsf(ready, numbers.bsf_word(psvs), both, sink);
    }
    if let Some(crypto) = plan.crypto_bsf {
        crypto_bsf(crypto.wire(), plan.engine, both, sink);
    }
}

/// Hands on the layout of a plan.
#[inline(always)]
pub(crate) fn layout(plan: &Plan<'_>, sink: &mut impl Sink) {
    if let Some(layout) = &plan.layout {
        match layout.entries {
            Entries::List(entries) => sink.put_entries(entries),
            Entries::Interleaved(header, entries) => interleaved(header, entries, sink),
            Entries::Blocks(blocks) => sink.put_entries(blocks.as_flattened()),
        }
    }
}

/// Builds the UMR that takes a key out of service (`IBV_WR_LOCAL_INV`).
pub(crate) fn invalidate(ctrl: ControlSegment, sink: &mut impl Sink) {
    let mask = MkeyMask::new().with_free(true).with_mkey(true).with_qpn(true);
    sink.put(UmrHead {
        ctrl,
        umr: UmrControlSegment {
            flags: UmrFlags::new()
                .with_inline(true)
                .with_translation_offset(true)
                .with_check_qpn(true)
                .into_bits(),
            mkey_mask: U64::new(mask.into_bits()),
            ..UmrControlSegment::default()
        },
    });
    sink.put(MkeyContext {
        free: FreeByte::new().with_free(true).into_bits(),
        qpn_mkey: U32::new(QpnMkey::new().with_qpn(QpnMkey::ANY).into_bits()),
        ..MkeyContext::default()
    });
}

/// Hands on an interleaved layout. The header stands where an entry would: the first block has room for three.
#[inline(always)]
fn interleaved(header: StridedHeader, entries: &[InterleavedEntry], sink: &mut impl Sink) {
    let (first, rest) = entries.split_at(entries.len().min(OCTOWORDS_PER_BLOCK - 1));
    let [first, second, third, _] = padded(first);
    sink.put_entries(&[transmute!(header), first, second, third]);
    sink.put_entries(rest);
}

/// Hands on the BSF of a signature, with the numbers of the PSVs.
#[inline(always)]
fn signature_bsf(ready: &ReadySignature, psvs: U64, with_crypto: bool, sink: &mut impl Sink) {
    let head = if with_crypto { ready.head_with_crypto } else { ready.head };
    sink.put([head, ready.formats | psvs]);
    sink.put(ready.rest);
}

/// Hands on the BSF of crypto properties.
#[inline(always)]
fn crypto_bsf(crypto: &CryptoWire, engine: XtsEngine, with_signature: bool, sink: &mut impl Sink) {
    let head = if with_signature { crypto.head_behind_signature } else { crypto.head };
    // One by one: put together first, they would go through the stack.
    sink.put(head);
    sink.put(crypto.for_engine(engine).tweak);
    sink.put(crypto.key);
    sink.put([0_u8; OCTOWORD_BYTES]);
}
