//! Decodes the BSFs of an mkey into a [`Transform`] (DEVICE.md, "BSF, PSV and layouts"). This module refuses
//! a wrong BSF.

use crate::faults::Faults;
use crate::object::Objects;
use crate::object::mkey::{BsfBytes, Mkey};
use crate::object::psv::Psv;
use crate::pipeline::{Cipher, Domain, Order, Transform};
use crate::profile::{DeviceProfile, XtsEngine};
use crate::refusal::Reason;
use crate::signature::{CrcKind, Dif, GuardKind, Rule, crc32c};
use crate::transaction::{CRC_BYTES, Transaction};
use crate::transfer::Side;
use core::sync::atomic::Ordering;
use mlx5_mkey::types::BlockSize;
use mlx5_mkey::wire::bsf::{
    BfsPsv, BsfSize, CryptoBsf, DifFlags, EncryptionOrder, InlineDif, InlineValid, RepeatSeed, SignatureBsf,
    TransactionBits,
};

/// Decodes the transform of `mkey`. Returns `Ok(None)` if the mkey changes no bytes.
pub(crate) fn decode<'a>(
    mkey: &Mkey,
    objects: &'a Objects,
    profile: &DeviceProfile,
    faults: &Faults,
) -> Result<Option<Transform<'a>>, Reason> {
    if !mkey.bsf_enabled {
        return if mkey.crypto { Err(Reason::CryptoUnconfigured) } else { Ok(None) };
    }
    let mut transform = match &mkey.signature_bsf {
        Some(bytes) => signature(bytes, mkey, objects, faults)?,
        // Assumption: a BSF that is in force but was never written is an error. A signature mkey without a
        // signature must therefore have BSFs disabled.
        None if mkey.signature => return Err(Reason::BsfNeverWritten),
        None => Transform::default(),
    };
    let is_crc32c = |domain: &Domain| matches!(domain.rule, Rule::Crc { kind: CrcKind::Crc32c, .. });
    if !profile.crc32c && transform.memory.iter().chain(&transform.wire).any(is_crc32c) {
        return Err(Reason::SignatureNotThere { format: BfsPsv::CRC32C });
    }
    match &mkey.crypto_bsf {
        Some(bytes) => transform.cipher = Some(cipher(bytes, mkey.pd, objects, profile, faults)?),
        None if mkey.crypto => return Err(Reason::CryptoUnconfigured),
        None => {}
    }
    let raw = matches!(transform.cipher, Some(Cipher { order: Order::RawWire | Order::RawMemory, .. }));
    if raw && transform.memory.is_some() && transform.wire.is_some() {
        return Err(Reason::BothOutsideCipher);
    }
    if faults.leftover_rows_refused && is_leftover(&transform) {
        return Err(Reason::LeftoverRow);
    }
    if faults.leftover_rows_otherwise
        && is_leftover(&transform)
        && let Some(cipher) = &mut transform.cipher
    {
        cipher.tweak ^= 1;
    }
    // A single-block engine limits the mkey's length in memory, including signatures.
    if let Some(cipher) = transform.cipher
        && cipher.single_block
        && mkey.length > u64::from(cipher.unit)
    {
        return Err(Reason::OneUnit { length: mkey.length, unit: cipher.unit.into() });
    }
    Ok(Some(transform))
}

/// Returns the PSV that a BSF names. The PSV has to be in the mkey's protection domain.
fn psv_of<'a>(pd: u32, word: BfsPsv, objects: &'a Objects, faults: &Faults) -> Result<&'a Psv, Reason> {
    let psv = word.psv();
    let found = objects.psvs.get(psv).ok_or(Reason::UnknownPsv { psv })?;
    let reached = found.pd == pd || faults.psv_domain_ignored;
    if reached { Ok(found) } else { Err(Reason::PsvDomain { psv, domain: found.pd }) }
}

/// Returns whether the man page's table lacks the combination of cipher and signature, and no source refuses
/// it. The scenario `gap05_rows_that_are_in_no_table` measures these combinations.
const fn is_leftover(transform: &Transform<'_>) -> bool {
    match &transform.cipher {
        Some(Cipher { order: Order::RawWire, .. }) => transform.memory.is_some() && transform.wire.is_none(),
        Some(Cipher { order: Order::RawMemory, .. }) => {
            transform.wire.is_some() && transform.memory.is_none()
        }
        _ => false,
    }
}

fn signature(
    bytes: &BsfBytes,
    mkey: &Mkey,
    objects: &Objects,
    faults: &Faults,
) -> Result<Transform<'static>, Reason> {
    let bsf: SignatureBsf = zerocopy::transmute!(*bytes);
    let transaction = transaction(&bsf, mkey, objects, faults)?;
    let blocks = bsf.memory != 0 || bsf.wire != 0;
    let extended = BsfSize::from_bits(bsf.bsf_size_sbs).size() == BsfSize::EXTENDED;
    // Assumption: with a transaction, the device ignores the attributes of blocks.
    if transaction.is_some() {
        return Ok(Transform { transaction, ..Transform::default() });
    }
    // No source describes block signatures in a BSF without attributes of blocks.
    if blocks && extended {
        return Err(Reason::BlocksInShortBsf);
    }
    let same = BsfSize::from_bits(bsf.bsf_size_sbs).same_block_structure();
    let domain = |selector: u8, word: u32, inline: &InlineDif| -> Result<Option<Domain>, Reason> {
        if selector == 0 {
            return Ok(None);
        }
        // 1 MiB is a data unit of a cipher, but not a block size of a signature.
        let block = BlockSize::from_selector(selector).filter(|block| *block != BlockSize::MIB1);
        let block = block.ok_or(Reason::BlockSelector { selector })?.bytes();
        let word = BfsPsv::from_bits(word);
        let psv = psv_of(mkey.pd, word, objects, faults)?;
        Ok(Some(Domain { block, rule: rule(word.bfs(), inline, psv.transient, faults)?, psv: word.psv() }))
    };
    let memory = domain(bsf.memory, bsf.memory_bfs_psv.get(), &bsf.memory_inline)?;
    if same && memory.is_none() {
        return Err(Reason::CopyMaskStructure);
    }
    let selector = if same { bsf.memory } else { bsf.wire };
    let wire = domain(selector, bsf.wire_bfs_psv.get(), &bsf.wire_inline)?;
    let wire = wire.filter(|_| !faults.wire_signatures_ignored);
    let copy_mask = if same { bsf.wire } else { 0 };
    Ok(Transform {
        memory,
        wire,
        check_mask: bsf.check_byte_mask,
        copy_mask,
        cipher: None,
        transaction: None,
    })
}

/// Decodes the extension of a signature BSF. Returns `Ok(None)` if there is no transaction.
///
/// Assumptions: the device refuses CRCs other than CRC32C, and refuses an epilogue. Of two domains, only the
/// wire domain counts. The device ignores the bits of a domain without a format, the check mask, and a length
/// that differs from the mkey's.
fn transaction(
    bsf: &SignatureBsf,
    mkey: &Mkey,
    objects: &Objects,
    faults: &Faults,
) -> Result<Option<Transaction>, Reason> {
    let bits = TransactionBits::from_bits(bsf.ext_init_gen_pro_size.get());
    let (side, word, init, ends) = match (bsf.ext_wire_tfs_psv.get(), bsf.ext_memory_tfs_psv.get()) {
        (0, 0) => return Ok(None),
        (0, word) => (Side::Memory, word, bits.memory_init(), bits.memory_check_gen()),
        (word, _) => (Side::Wire, word, bits.wire_init(), bits.wire_check_gen()),
    };
    let word = BfsPsv::from_bits(word);
    let seed_ones = match word.bfs() {
        BfsPsv::CRC32C => true,
        format if format == BfsPsv::CRC32C | BfsPsv::SEED_ZERO => false,
        format => return Err(Reason::TransactionFormat { format }),
    };
    let in_memory = if side == Side::Memory && ends { CRC_BYTES } else { 0 };
    let length = mkey.length.saturating_sub(in_memory);
    let epilogue = bsf.ext_epi_size.get();
    if epilogue != 0 {
        return Err(Reason::TransactionEpilogue { size: epilogue });
    }
    let psv = psv_of(mkey.pd, word, objects, faults)?;
    let start = init.then(|| crc32c(&[], seed_ones != faults.crc_seed_inverted));
    Ok(Some(Transaction { side, psv: word.psv(), start, running: psv.running, length, ends }))
}

/// Decodes a block format selector to the rule for the signatures of a domain.
///
/// Assumption: tags come from the PSV, which SET_PSV writes. Seeds come from the BSF: an old libmlx5 inverted
/// the seed bit of the BSF alone, and devices then computed other values.
fn rule(bfs: u8, inline: &InlineDif, transient: u64, faults: &Faults) -> Result<Rule, Reason> {
    if bfs == 0 {
        if !InlineValid::from_bits(inline.vld_refresh.get()).valid() {
            return Err(Reason::InlineMissing);
        }
        let flags = DifFlags::from_bits(inline.dif_flags);
        let guard = match inline.sig_type {
            InlineDif::SIG_CRC => GuardKind::Crc,
            InlineDif::SIG_IP_CHECKSUM => GuardKind::IpChecksum,
            code => return Err(Reason::GuardType { code }),
        };
        return Ok(Rule::T10Dif(Dif {
            guard,
            seed_ones: RepeatSeed::from_bits(inline.rp_inv_seed).seed_ones(),
            app_tag: (transient >> 32) as u16,
            app_mask: inline.app_bitmask_check.get(),
            ref_tag: transient as u32,
            increment: flags.inc_ref_tag(),
            app_escape: flags.app_escape(),
            app_ref_escape: flags.app_ref_escape(),
        }));
    }
    let kind = match bfs & BfsPsv::BASE_MASK {
        BfsPsv::CRC32 => CrcKind::Crc32,
        BfsPsv::CRC32C => CrcKind::Crc32c,
        BfsPsv::CRC64_XP10 => CrcKind::Crc64Xp10,
        _ => return Err(Reason::BlockFormat { format: bfs }),
    };
    // Assumption: each block has its own signature, also if the bit of the format that repeats the CRC for
    // each block is 0.
    let seed_ones = bfs & BfsPsv::SEED_ZERO == 0;
    Ok(Rule::Crc { kind, seed_ones: seed_ones != faults.crc_seed_inverted })
}

fn cipher<'a>(
    bytes: &BsfBytes,
    pd: u32,
    objects: &'a Objects,
    profile: &DeviceProfile,
    faults: &Faults,
) -> Result<Cipher<'a>, Reason> {
    let bsf: CryptoBsf = zerocopy::transmute!(*bytes);
    let order = match EncryptionOrder(bsf.enc_order) {
        EncryptionOrder::WIRE_SIGNATURE => Order::WireSignature,
        EncryptionOrder::MEMORY_SIGNATURE => Order::MemorySignature,
        EncryptionOrder::RAW_WIRE => Order::RawWire,
        EncryptionOrder::RAW_MEMORY => Order::RawMemory,
        EncryptionOrder(order) => return Err(Reason::EncryptionOrder { order }),
    };
    if bsf.enc_standard != CryptoBsf::AES_XTS {
        return Err(Reason::EncryptionStandard { code: bsf.enc_standard });
    }
    let unit = match bsf.data_unit_selector {
        // Only the cipher has this selector (DEVICE.md, "Block size selectors"): no source describes
        // signatures over blocks of 1 MiB.
        CryptoBsf::UNIT_1_MIB => 1 << 20,
        selector => BlockSize::from_selector(selector).ok_or(Reason::UnitSelector { selector })?.bytes(),
    };
    // Assumption: the device refuses a DEK that is not in the mkey's protection domain.
    let number = bsf.dek.get();
    let dek = objects.deks.get(number).ok_or(Reason::UnknownDek { dek: number })?;
    if dek.pd != pd && !faults.dek_domain_ignored {
        return Err(Reason::DekDomain { dek: number, domain: dek.pd });
    }
    if !faults.keytag_ignored && dek.keytag.is_some_and(|tag| tag != bsf.keytag) {
        return Err(Reason::Keytag { dek: number });
    }
    dek.used.store(true, Ordering::Relaxed);
    let tweak = match profile.xts {
        XtsEngine::MultiBlock => u128::from_be_bytes(bsf.xts_initial_tweak),
        XtsEngine::MultiBlockLittleEndian | XtsEngine::SingleBlock => {
            u128::from_le_bytes(bsf.xts_initial_tweak)
        }
    };
    let (tweak, step) = match (profile.tweak_inc_64, (tweak >> 64) as u64) {
        (true, u64::MAX) => (u128::from(tweak as u64), 1),
        (true, _) => (tweak, 1 << 64),
        (false, _) => (tweak, 1),
    };
    let single_block = profile.xts == XtsEngine::SingleBlock;
    Ok(Cipher { key: &dek.cipher, order, unit, tweak, step, single_block })
}
