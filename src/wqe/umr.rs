//! UMR requests: configure an mkey, or take its key out of service.

use super::Sink;
use crate::mkey::{Crypto, Entries, InterleavedEntry, ListEntry, Numbers, Plan, ReadySignature, XtsEngine};
use crate::wire::OCTOWORDS_PER_BLOCK;
use crate::wire::bsf::{BsfSize, CryptoBsf};
use crate::wire::ctrl::ControlSegment;
use crate::wire::mkey_context::{AccessByte, FlagsPd, FreeByte, MkeyContext, QpnMkey};
use crate::wire::strided::StridedHeader;
use crate::wire::umr::{LayoutSize, MkeyMask, UmrControlSegment, UmrFlags, UmrHead};
use zerocopy::big_endian::{U32, U64};
use zerocopy::{Immutable, IntoBytes, Unaligned, transmute};

/// Blocks of a request that takes a key out of service.
pub(crate) const INVALIDATE_BLOCKS: u32 = 2;

/// Returns the blocks of the UMR that carries out a plan, SET_PSVs not counted. All its segments fill blocks.
#[inline(always)]
pub(crate) fn blocks(plan: &Plan<'_>) -> u32 {
    (2 + plan.layout_blocks() + plan.bsf_blocks()) as u32
}

/// Builds the UMR that carries out a plan on the mkey with these numbers.
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
    sink.put_block(UmrHead { ctrl, umr });
    sink.put_block(MkeyContext::in_service(rights, numbers.context_word, flags, length));
    if let Some(layout) = &plan.layout {
        match layout.entries {
            Entries::List(entries) => blocks_of(entries, ListEntry::PADDING, sink),
            Entries::Interleaved { repeat, bytes_per_cycle, entries } => {
                interleaved(StridedHeader::new(repeat, bytes_per_cycle, entries.len() as u16), entries, sink);
            }
            Entries::Blocks { blocks, .. } => ready_blocks(blocks, sink),
        }
    }
    let both = plan.signature_bsf.is_some() && plan.crypto_bsf.is_some();
    let size = if both { BsfSize::SIGNATURE_AND_CRYPTO } else { BsfSize::WITH_INLINE };
    if let Some(ready) = plan.signature_bsf {
        signature_bsf(ready, numbers.psvs, both, sink);
    }
    if let Some(crypto) = plan.crypto_bsf {
        sink.put_block(crypto_bsf(crypto, plan.engine, size));
    }
}

/// Builds the UMR that takes a key out of service (`IBV_WR_LOCAL_INV`).
pub(crate) fn invalidate(ctrl: ControlSegment, sink: &mut impl Sink) {
    let mask = MkeyMask::new().with_free(true).with_mkey(true).with_qpn(true);
    sink.put_block(UmrHead {
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
    sink.put_block(MkeyContext {
        free: FreeByte::new().with_free(true).into_bits(),
        qpn_mkey: U32::new(QpnMkey::new().with_qpn(QpnMkey::ANY).into_bits()),
        ..MkeyContext::default()
    });
}

/// Hands on translation entries, and `padding` up to a whole block.
#[inline(always)]
fn blocks_of<T: Copy + IntoBytes + Immutable + Unaligned>(entries: &[T], padding: T, sink: &mut impl Sink) {
    let (blocks, rest) = entries.as_chunks::<OCTOWORDS_PER_BLOCK>();
    ready_blocks(blocks, sink);
    match *rest {
        [a] => sink.put_block([a, padding, padding, padding]),
        [a, b] => sink.put_block([a, b, padding, padding]),
        [a, b, c] => sink.put_block([a, b, c, padding]),
        _ => {}
    }
}

/// Hands on blocks that are ready. The first four one by one: the compiler's loop takes longer to begin than they to copy.
#[inline(always)]
fn ready_blocks<B: Copy + IntoBytes + Immutable + Unaligned>(mut blocks: &[B], sink: &mut impl Sink) {
    for _ in 0..4 {
        let [first, rest @ ..] = blocks else { return };
        sink.put_block(*first);
        blocks = rest;
    }
    blocks.iter().for_each(|block| sink.put_block(*block));
}

/// Hands on an interleaved layout. The header stands where an entry would: the first block has room for three.
#[inline(always)]
fn interleaved(header: StridedHeader, entries: &[InterleavedEntry], sink: &mut impl Sink) {
    let none = InterleavedEntry::PADDING;
    let (first, rest) = match *entries {
        [] => ([none, none, none], &[][..]),
        [a] => ([a, none, none], &[][..]),
        [a, b] => ([a, b, none], &[][..]),
        [a, b, c, ref rest @ ..] => ([a, b, c], rest),
    };
    sink.put_block(Header(header, first));
    blocks_of(rest, none, sink);
}

/// First block of an interleaved layout.
#[derive(IntoBytes, Immutable, Unaligned)]
#[repr(C)]
struct Header(StridedHeader, [InterleavedEntry; OCTOWORDS_PER_BLOCK - 1]);

/// Hands on the BSF of a signature, with the numbers of the PSVs.
#[inline(always)]
fn signature_bsf(ready: &ReadySignature, psvs: U64, with_crypto: bool, sink: &mut impl Sink) {
    let head = if with_crypto { ready.head_with_crypto } else { ready.head };
    sink.put(transmute!([head, ready.formats | (psvs & ready.psv_mask)]));
    ready.rest.iter().for_each(|octoword| sink.put(*octoword));
}

#[inline(always)]
fn crypto_bsf(crypto: &Crypto, engine: XtsEngine, size: u8) -> CryptoBsf {
    let head = BsfSize::new().with_size(size).with_kind(BsfSize::KIND_CRYPTO);
    let tweak = engine.tweak_bytes(crypto.tweak);
    CryptoBsf::aes_xts(
        head,
        crypto.encryption_order(),
        crypto.data_unit.selector(),
        tweak,
        crypto.dek.get(),
        crypto.keytag.0,
    )
}
