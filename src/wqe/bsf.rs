//! Encodes signatures and crypto properties as BSFs (PRM `bsf`), and seeds as start values of PSVs.

use crate::mkey::{
    BlockSignature, Crypto, Digest, DigestSpan, Domain, Escape, Guard, Signature, T10Dif, XtsEngine,
    check_mask,
};
use crate::types::{DomainKind, Seed};
use crate::wire::bsf::{
    BfsPsv, BsfSize, CryptoBsf, DifFlags, InlineDif, InlineValid, RepeatSeed, SignatureBsf, TransactionBits,
};
use crate::wire::psv::TransientSignature;
use zerocopy::big_endian::{U16, U32, U64};
use zerocopy::transmute;

/// Returns the BSF of a signature; the numbers of its PSVs are still 0. For `None`, returns a BSF with which
/// the device checks and adds nothing. `size` is one of the codes of [`BsfSize`].
pub(crate) fn signature(signature: Option<&BlockSignature>, size: u8) -> SignatureBsf {
    let mut size_sbs = BsfSize::new().with_size(size);
    let mut bsf = SignatureBsf { raw_data_size: U32::MAX_VALUE, ..SignatureBsf::default() };
    if let Some(signature) = signature {
        bsf.check_byte_mask = signature.check_mask();
        if let Some(Domain { signature, block_size }) = signature.memory_domain() {
            bsf.memory = block_size.selector();
            bsf.memory_bfs_psv = format_selector(&signature);
            bsf.memory_inline = inline_dif(&signature);
        }
        if let Some(Domain { signature, block_size }) = signature.wire_domain() {
            bsf.wire = block_size.selector();
            bsf.wire_bfs_psv = format_selector(&signature);
            bsf.wire_inline = inline_dif(&signature);
        }
        if let Some(copy_mask) = signature.effective_copy_mask() {
            size_sbs = size_sbs.with_same_block_structure(true);
            bsf.wire = copy_mask;
        }
    }
    bsf.bsf_size_sbs = size_sbs.into_bits();
    bsf
}

/// Returns the BSF of a digest. The caller adds the number of data bytes, and the number of the PSV if the
/// digest uses the mkey's own PSV. `size` is one of the codes of [`BsfSize`].
pub(crate) fn digest(digest: &Digest, size: u8) -> SignatureBsf {
    let Digest { domain, seed, span } = *digest;
    let seed = match seed {
        Seed::Zeros => BfsPsv::SEED_ZERO,
        Seed::Ones => 0,
    };
    let psv = match span {
        DigestSpan::Mkey => 0,
        DigestSpan::Transaction { psv, .. } => psv.get(),
    };
    let selector = U32::new(BfsPsv::new().with_bfs(BfsPsv::CRC32C | seed).with_psv(psv).into_bits());
    let (begins, ends) = (span.part().begins(), span.part().ends());
    let (bits, wire, memory) = match domain {
        DomainKind::Wire => {
            (TransactionBits::new().with_wire_init(begins).with_wire_check_gen(ends), selector, U32::ZERO)
        }
        DomainKind::Memory => {
            (TransactionBits::new().with_memory_init(begins).with_memory_check_gen(ends), U32::ZERO, selector)
        }
    };
    SignatureBsf {
        bsf_size_sbs: BsfSize::new().with_size(size).into_bits(),
        check_byte_mask: check_mask::ALL,
        ext_init_gen_pro_size: U32::new(bits.into_bits()),
        ext_wire_tfs_psv: wire,
        ext_memory_tfs_psv: memory,
        ..SignatureBsf::default()
    }
}

/// Returns the BSF of crypto properties. `size` is one of the codes of [`BsfSize`].
pub(crate) fn crypto(crypto: &Crypto, engine: XtsEngine, size: u8) -> CryptoBsf {
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

/// Returns the word with the block format selector of a signature; the number of its PSV is still 0.
fn format_selector(signature: &Signature) -> U32 {
    let (base, seed) = match signature {
        Signature::T10Dif(_) => return U32::ZERO,
        Signature::Crc32(seed) => (BfsPsv::CRC32, seed),
        Signature::Crc32c(seed) => (BfsPsv::CRC32C, seed),
        Signature::Crc64Xp10(seed) => (BfsPsv::CRC64_XP10, seed),
    };
    let seed = match seed {
        Seed::Zeros => BfsPsv::SEED_ZERO,
        Seed::Ones => 0,
    };
    U32::new(BfsPsv::new().with_bfs(base | BfsPsv::REPEAT | seed).into_bits())
}

/// Returns the inline T10-DIF section of a signature.
fn inline_dif(signature: &Signature) -> InlineDif {
    let Signature::T10Dif(dif) = *signature else { return InlineDif::NONE };
    let T10Dif { guard, seed, app_tag, ref_tag, ref_remap, escape } = dif;
    InlineDif {
        vld_refresh: U16::new(InlineValid::new().with_valid(true).with_refresh(true).into_bits()),
        app_tag: U16::new(app_tag),
        ref_tag: U32::new(ref_tag),
        sig_type: match guard {
            Guard::Crc => InlineDif::SIG_CRC,
            Guard::IpChecksum => InlineDif::SIG_IP_CHECKSUM,
        },
        rp_inv_seed: RepeatSeed::new()
            .with_repeat_block(true)
            .with_seed_ones(matches!(seed, Seed::Ones))
            .into_bits(),
        reserved: [0; 3],
        dif_flags: DifFlags::new()
            .with_inc_ref_tag(ref_remap)
            .with_app_escape(matches!(escape, Escape::AppTag))
            .with_app_ref_escape(matches!(escape, Escape::AppAndRefTag))
            .into_bits(),
        app_bitmask_check: U16::MAX_VALUE,
    }
}

/// Returns the start value of the PSV of a signature (`transient_signature` of `struct
/// mlx5_wqe_set_psv_seg`).
pub(crate) fn psv_start(signature: &Signature) -> TransientSignature {
    let seed = match signature {
        Signature::T10Dif(dif) => {
            let guard = match dif.seed {
                Seed::Zeros => U16::ZERO,
                Seed::Ones => U16::MAX_VALUE,
            };
            return TransientSignature {
                guard,
                app_tag: U16::new(dif.app_tag),
                ref_tag: U32::new(dif.ref_tag),
            };
        }
        Signature::Crc32(seed) | Signature::Crc32c(seed) => return crc32_start(*seed),
        Signature::Crc64Xp10(Seed::Ones) => u64::MAX,
        Signature::Crc64Xp10(Seed::Zeros) => 0,
    };
    transmute!(U64::new(seed))
}

/// Returns the start value of the PSV of a 32-bit CRC.
pub(crate) fn crc32_start(seed: Seed) -> TransientSignature {
    transmute!(U64::new(match seed {
        Seed::Ones => 0xffff_ffff_0000_0000,
        Seed::Zeros => 0,
    }))
}
