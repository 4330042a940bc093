//! UMR requests: configure an mkey, or take its key out of service.

use super::{OCTOWORDS_PER_BLOCK, Sink};
use crate::mkey::{
    BlockSignature, Crypto, Domain, Entries, Escape, Guard, InterleavedEntry, ListEntry, Plan, Signature,
    T10Dif, XtsEngine,
};
use crate::types::{PsvIndex, Seed};
use crate::wire::bsf::{
    BfsPsv, BsfSize, CryptoBsf, DifFlags, InlineDif, InlineValid, RepeatSeed, SignatureBsf,
};
use crate::wire::ctrl::ControlSegment;
use crate::wire::klm::Klm;
use crate::wire::mkey_context::{FlagsPd, FreeByte, MkeyContext, QpnMkey};
use crate::wire::strided::{StridedEntry, StridedHeader};
use crate::wire::umr::{MkeyMask, UmrControlSegment, UmrFlags, UmrHead};
use zerocopy::big_endian::{U16, U32, U64};
use zerocopy::transmute;

/// Octowords of a request that takes a key out of service.
pub(crate) const INVALIDATE_OCTOWORDS: usize = 2 * OCTOWORDS_PER_BLOCK;

/// Returns the octowords of the UMR that carries out a plan, SET_PSVs not counted.
pub(crate) fn octowords(plan: &Plan<'_>) -> usize {
    (2 + plan.layout_blocks() + plan.bsf_blocks()) * OCTOWORDS_PER_BLOCK
}

/// Builds the UMR that carries out a plan.
#[inline]
pub(crate) fn configure(plan: &Plan<'_>, ctrl: ControlSegment, sink: &mut impl Sink) {
    let mut mask = MkeyMask::new().with_free(true).with_mkey(true);
    let mut context = MkeyContext {
        qpn_mkey: U32::new(QpnMkey::new().with_qpn(QpnMkey::ANY).with_tag(plan.key.tag()).into_bits()),
        ..MkeyContext::default()
    };
    let mut flags_pd = FlagsPd::new();
    if let Some(access) = plan.access {
        mask = mask.with_local_write(true).with_remote_read(true).with_remote_write(true).with_atomic(true);
        context.access = access.to_wire().into_bits();
    }
    if let Some(layout) = &plan.layout {
        mask = mask.with_len(true);
        context.len = U64::new(layout.length());
    }
    if let Some(count) = plan.error_count {
        mask = mask.with_sig_err(true);
        flags_pd = flags_pd.with_sig_err_count(count);
    }
    if let Some(enable) = plan.bsf_enable {
        mask = mask.with_bsf_enable(true);
        flags_pd = flags_pd.with_bsf_enable(enable);
    }
    context.flags_pd = U32::new(flags_pd.into_bits());
    let umr = UmrControlSegment {
        flags: UmrFlags::new().with_inline(true).into_bits(),
        klm_octowords: U16::new((plan.layout_blocks() * OCTOWORDS_PER_BLOCK) as u16),
        bsf_octowords: U16::new((plan.bsf_blocks() * OCTOWORDS_PER_BLOCK) as u16),
        mkey_mask: U64::new(mask.into_bits()),
        ..UmrControlSegment::default()
    };
    sink.put_block(transmute!(UmrHead { ctrl, umr }));
    sink.put_block(transmute!(context));
    if let Some(layout) = &plan.layout {
        match layout.entries {
            Entries::List(entries) => list(entries, sink),
            Entries::Interleaved { repeat, bytes_per_cycle, entries } => {
                interleaved(repeat, bytes_per_cycle, entries, sink);
            }
        }
    }
    let size = if plan.signature_bsf.is_some() && plan.crypto_bsf.is_some() {
        BsfSize::SIGNATURE_AND_CRYPTO
    } else {
        BsfSize::WITH_INLINE
    };
    if let Some(block) = plan.signature_bsf {
        sink.put_block(transmute!(signature_bsf(block, plan.memory_psv, plan.wire_psv, size)));
    }
    if let Some((crypto, engine)) = plan.crypto_bsf {
        sink.put_block(transmute!(crypto_bsf(crypto, engine, size)));
    }
}

/// Builds the UMR that takes a key out of service (`IBV_WR_LOCAL_INV`).
pub(crate) fn invalidate(ctrl: ControlSegment, sink: &mut impl Sink) {
    let mask = MkeyMask::new().with_free(true).with_mkey(true).with_qpn(true);
    sink.put_block(transmute!(UmrHead {
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
    }));
    sink.put_block(transmute!(MkeyContext {
        free: FreeByte::new().with_free(true).into_bits(),
        qpn_mkey: U32::new(QpnMkey::new().with_qpn(QpnMkey::ANY).into_bits()),
        ..MkeyContext::default()
    }));
}

fn list(entries: &[ListEntry], sink: &mut impl Sink) {
    let (blocks, rest) = entries.as_chunks::<OCTOWORDS_PER_BLOCK>();
    for block in blocks {
        sink.put_block(transmute!(*block));
    }
    if !rest.is_empty() {
        let mut last = [Klm::PADDING; OCTOWORDS_PER_BLOCK];
        for (slot, entry) in last.iter_mut().zip(rest) {
            *slot = entry.to_wire();
        }
        sink.put_block(transmute!(last));
    }
}

fn interleaved(repeat: u32, bytes_per_cycle: u32, entries: &[InterleavedEntry], sink: &mut impl Sink) {
    let header = StridedHeader {
        bytes_per_cycle: U32::new(bytes_per_cycle),
        op: U32::new(StridedHeader::OPCODE),
        repeat_count: U32::new(repeat),
        reserved: U16::ZERO,
        num_entries: U16::new(entries.len() as u16),
    };
    // The header stands where an entry would: the first block has room for three.
    let (head, tail) = entries.split_at(entries.len().min(OCTOWORDS_PER_BLOCK - 1));
    let mut first = [StridedEntry::PADDING; OCTOWORDS_PER_BLOCK - 1];
    for (slot, entry) in first.iter_mut().zip(head) {
        *slot = entry.to_wire();
    }
    sink.put_block(transmute!(Header(header, first)));
    for chunk in tail.chunks(OCTOWORDS_PER_BLOCK) {
        let mut block = [StridedEntry::PADDING; OCTOWORDS_PER_BLOCK];
        for (slot, entry) in block.iter_mut().zip(chunk) {
            *slot = entry.to_wire();
        }
        sink.put_block(transmute!(block));
    }
}

/// First block of an interleaved layout.
#[derive(zerocopy::IntoBytes, zerocopy::Immutable)]
#[repr(C)]
struct Header(StridedHeader, [StridedEntry; OCTOWORDS_PER_BLOCK - 1]);

/// Builds the BSF of a signature; of none, one that lets data pass (D23).
fn signature_bsf(
    block: Option<&BlockSignature>,
    memory_psv: PsvIndex,
    wire_psv: PsvIndex,
    size: u8,
) -> SignatureBsf {
    let mut bsf = SignatureBsf { raw_data_size: U32::MAX_VALUE, ..SignatureBsf::default() };
    let mut head = BsfSize::new().with_size(size);
    if let Some(block) = block {
        bsf.check_byte_mask = block.check_mask();
        if let Some(domain) = block.memory_domain() {
            bsf.memory = domain.block_size.selector();
            bsf.memory_bfs_psv = bfs_psv(domain, memory_psv);
            bsf.memory_inline = inline_dif(domain);
        }
        if let Some(domain) = block.wire_domain() {
            bsf.wire_bfs_psv = bfs_psv(domain, wire_psv);
            bsf.wire_inline = inline_dif(domain);
            match block.effective_copy_mask() {
                Some(copy_mask) => {
                    head = head.with_same_block_structure(true);
                    bsf.wire = copy_mask;
                }
                None => bsf.wire = domain.block_size.selector(),
            }
        }
    }
    bsf.bsf_size_sbs = head.into_bits();
    bsf
}

fn bfs_psv(domain: &Domain, psv: PsvIndex) -> U32 {
    let (base, seed) = match domain.signature {
        Signature::T10Dif(_) => return U32::new(BfsPsv::new().with_psv(psv.get()).into_bits()),
        Signature::Crc32(seed) => (BfsPsv::CRC32, seed),
        Signature::Crc32c(seed) => (BfsPsv::CRC32C, seed),
        Signature::Crc64Xp10(seed) => (BfsPsv::CRC64_XP10, seed),
    };
    let seed = match seed {
        Seed::Zeros => BfsPsv::SEED_ZERO,
        Seed::Ones => 0,
    };
    U32::new(BfsPsv::new().with_psv(psv.get()).with_bfs(base | BfsPsv::REPEAT | seed).into_bits())
}

fn inline_dif(domain: &Domain) -> InlineDif {
    let Signature::T10Dif(dif) = domain.signature else { return InlineDif::default() };
    let T10Dif { guard, seed, app_tag, ref_tag, ref_remap, escape } = dif;
    InlineDif {
        vld_refresh: U16::new(InlineValid::new().with_valid(true).with_refresh(true).into_bits()),
        app_tag: U16::new(app_tag),
        ref_tag: U32::new(ref_tag),
        sig_type: match guard {
            Guard::Crc => InlineDif::SIG_CRC,
            Guard::IpChecksum => InlineDif::SIG_IP_CHECKSUM,
        },
        rp_inv_seed: RepeatSeed::new().with_repeat_block(true).with_seed_ones(seed == Seed::Ones).into_bits(),
        reserved: [0; 3],
        dif_flags: DifFlags::new()
            .with_inc_ref_tag(ref_remap)
            .with_app_escape(escape == Escape::AppTag)
            .with_app_ref_escape(escape == Escape::AppAndRefTag)
            .into_bits(),
        app_bitmask_check: U16::MAX_VALUE,
    }
}

fn crypto_bsf(crypto: &Crypto, engine: XtsEngine, size: u8) -> CryptoBsf {
    CryptoBsf {
        bsf_size_type: BsfSize::new().with_size(size).with_kind(BsfSize::KIND_CRYPTO).into_bits(),
        enc_order: crypto.encryption_order().0,
        enc_standard: CryptoBsf::AES_XTS,
        raw_data_size: U32::MAX_VALUE,
        data_unit_selector: crypto.data_unit.selector(),
        xts_initial_tweak: engine.tweak_bytes(crypto.tweak),
        dek: U32::new(crypto.dek.get()),
        keytag: crypto.keytag.0,
        ..CryptoBsf::default()
    }
}
