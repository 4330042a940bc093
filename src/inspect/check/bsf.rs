//! Rules for signatures and crypto.

use super::super::device_context::DeviceContext;
use super::super::finding::Problem;
use super::super::segment_kind::SegmentKind;
use super::super::tweak::tweaks;
use super::super::umr::{DomainView, Umr, domains};
use super::report::Report;
use super::umr::LEN_AT;
use crate::mkey::{
    BlockSignature, Domain, Keytag, Signature, SignatureCapabilities, XtsEngine, check_mask,
    job_size_can_be_encrypted,
};
use crate::types::{BlockSize, DekId};
use crate::wire::bsf::{
    BfsPsv, BsfSize, CryptoBsf, DifFlags, EncryptionOrder, InlineDif, InlineValid, RepeatSeed, SignatureBsf,
};
use core::mem::offset_of;

/// Checks the BSFs of a UMR.
pub(super) fn check(umr: &Umr<'_>, device: &DeviceContext, report: &mut Report<'_>) {
    sizes(umr, report);
    let length = umr.length();
    if let Some(length) = length
        && length > u64::from(u32::MAX)
        && umr.bsfs().next().is_some()
    {
        report.at(LEN_AT, Problem::LengthOver32Bits { length });
    }
    let mut signature = None;
    if let Some((offset, bsf)) = umr.signature_bsf() {
        match umr.signature() {
            Ok(block) => signature = block,
            // The generic rules report an unknown code wherever it stands.
            Err(finding) if !matches!(finding.problem, Problem::UnknownCode { .. }) => {
                report.at(finding.offset, finding.problem);
            }
            Err(_) => {}
        }
        let empty = umr.signature() == Ok(None);
        signature_bsf(offset, bsf, signature.as_ref(), empty, device, report);
    }
    if let (Some(signature), Some(length)) = (&signature, length) {
        partial_block(signature, length, report);
    }
    if let Some((offset, bsf)) = umr.crypto_bsf() {
        crypto_bsf(offset, bsf, signature.as_ref(), length, device, report);
    }
}

/// Checks that both domains have whole blocks: memory with its signatures, and the wire of the data that is in them.
fn partial_block(signature: &BlockSignature, length: u64, report: &mut Report<'_>) {
    let mut data = length;
    if let Some(memory) = signature.memory_domain() {
        let Some(stripped) = BlockSignature::memory(memory).wire_bytes(length) else {
            return report.at(LEN_AT, Problem::PartialBlock { length, stride: memory.stride() });
        };
        data = stripped;
    }
    if let Some(wire) = signature.wire_domain() {
        let block = wire.block_size.bytes();
        let ragged = !data.is_multiple_of(u64::from(block));
        report.when(ragged, LEN_AT, Problem::PartialWireBlock { data, block });
    }
}

/// Checks number, order and size codes.
fn sizes(umr: &Umr<'_>, report: &mut Report<'_>) {
    let count = umr.bsfs().count();
    let wanted = if count > 1 { BsfSize::SIGNATURE_AND_CRYPTO } else { BsfSize::WITH_INLINE };
    let mut previous = None;
    for segment in umr.bsfs() {
        let found = BsfSize::from_bits(segment.bytes.first().copied().unwrap_or_default()).size();
        let crypto = segment.kind == SegmentKind::CryptoBsf;
        if found < BsfSize::WITH_INLINE && !crypto {
            report.at(segment.offset, Problem::TransactionBsf);
        } else {
            report.when(found != wanted, segment.offset, Problem::BsfSizeCode { found, wanted, count });
        }
        // A signature BSF comes first, and nothing after a crypto BSF.
        let misplaced = previous == Some(true) || (previous == Some(false) && !crypto);
        report.when(misplaced, segment.offset, Problem::BsfOrder);
        previous = Some(crypto);
    }
}

/// Returns which bits of a check or copy mask are bytes of this signature.
const fn bytes_of(signature: &Signature) -> u8 {
    match signature {
        Signature::Crc32(_) | Signature::Crc32c(_) => check_mask::CRC32,
        Signature::Crc64Xp10(_) | Signature::T10Dif(_) => check_mask::ALL,
    }
}

fn signature_bsf(
    offset: usize,
    bsf: &SignatureBsf,
    signature: Option<&BlockSignature>,
    empty: bool,
    device: &DeviceContext,
    report: &mut Report<'_>,
) {
    raw_size(offset + offset_of!(SignatureBsf, raw_data_size), bsf.raw_data_size.get(), report);
    for domain in domains(offset, bsf) {
        check_domain(&domain, report);
    }
    let same = BsfSize::from_bits(bsf.bsf_size_sbs).same_block_structure();
    let wire_at = offset + offset_of!(SignatureBsf, wire);
    report.when(same && empty, wire_at, Problem::CopyMaskStructure);
    let Some(signature) = signature else { return };
    let domains = [signature.memory_domain(), signature.wire_domain()];
    let relevant = domains.iter().flatten().fold(0, |mask, domain| mask | bytes_of(&domain.signature));
    // All ones means everything there is, whatever the type.
    let mask = bsf.check_byte_mask;
    let bits = if mask == check_mask::ALL { 0 } else { mask & !relevant };
    let mask_at = offset + offset_of!(SignatureBsf, check_byte_mask);
    report.when(bits != 0, mask_at, Problem::CheckMaskIrrelevant { bits });
    if same {
        let bits = if bsf.wire == check_mask::ALL { 0 } else { bsf.wire & !relevant };
        report.when(bits != 0, wire_at, Problem::CopyMaskIrrelevant { bits });
    } else if let [Some(memory), Some(wire)] = domains {
        report.when(memory.same_structure(&wire), wire_at, Problem::AlikeButNotCopied);
    }
    if let Some(capabilities) = &device.capabilities {
        for domain in domains.into_iter().flatten() {
            if let Some(what) = missing(&domain, capabilities) {
                report.at(offset, Problem::CapabilityMissing { what });
            }
        }
    }
}

/// Returns what of a domain the device does not know.
fn missing(domain: &Domain, capabilities: &SignatureCapabilities) -> Option<&'static str> {
    match (domain.signature, domain.block_size) {
        (Signature::Crc32c(_), _) if !capabilities.crc32c => Some("CRC-32C"),
        (Signature::Crc64Xp10(_), _) if !capabilities.crc64_xp10 => Some("CRC-64 XP10"),
        (_, BlockSize::B4048) if !capabilities.block_4048 => Some("blocks of 4048 bytes"),
        _ => None,
    }
}

fn raw_size(offset: usize, size: u32, report: &mut Report<'_>) {
    report.when(size != u32::MAX, offset, Problem::RawDataSize { size });
}

/// Checks one domain's format, PSV and inline section against each other.
fn check_domain(view: &DomainView<'_>, report: &mut Report<'_>) {
    let domain = view.name;
    let valid = InlineValid::from_bits(view.inline.vld_refresh.get()).valid();
    if view.selector == 0 {
        let used = view.bfs_psv.into_bits() != 0 || *view.inline != InlineDif::default();
        report.when(used, view.bfs_at, Problem::UnusedDomain { domain });
        return;
    }
    let bfs = view.bfs_psv.bfs();
    if bfs != 0 {
        report.when(bfs & BfsPsv::REPEAT == 0, view.bfs_at, Problem::NotRepeated { domain });
        report.when(valid, view.inline_at, Problem::InlineUnwanted { domain });
        return;
    }
    report.when(!valid, view.inline_at, Problem::InlineMissing { domain });
    let repeat = RepeatSeed::from_bits(view.inline.rp_inv_seed).repeat_block();
    let repeat_at = view.inline_at + offset_of!(InlineDif, rp_inv_seed);
    report.when(valid && !repeat, repeat_at, Problem::NotRepeated { domain });
    let flags = DifFlags::from_bits(view.inline.dif_flags);
    let flags_at = view.inline_at + offset_of!(InlineDif, dif_flags);
    report.when(flags.app_escape() && flags.app_ref_escape(), flags_at, Problem::BothEscapes);
    let mask = view.inline.app_bitmask_check.get();
    let mask_at = view.inline_at + offset_of!(InlineDif, app_bitmask_check);
    report.when(mask != u16::MAX, mask_at, Problem::AppTagMask { mask });
}

fn crypto_bsf(
    offset: usize,
    bsf: &CryptoBsf,
    signature: Option<&BlockSignature>,
    length: Option<u64>,
    device: &DeviceContext,
    report: &mut Report<'_>,
) {
    raw_size(offset + offset_of!(CryptoBsf, raw_data_size), bsf.raw_data_size.get(), report);
    let dek = bsf.dek.get();
    report.when(DekId::new(dek).is_err(), offset + offset_of!(CryptoBsf, dek), Problem::DekTooLarge { dek });
    let tagged = Keytag(bsf.keytag) != Keytag::default();
    report.when(tagged, offset + offset_of!(CryptoBsf, keytag), Problem::KeytagGiven);

    let memory = signature.and_then(BlockSignature::memory_domain);
    let wire = signature.and_then(BlockSignature::wire_domain);
    let order = EncryptionOrder(bsf.enc_order);
    let order_at = offset + offset_of!(CryptoBsf, enc_order);
    // The signature that is inside the cipher, and the one that the table's rows with the other orders do not have.
    let (inside, hole, outside) = match order {
        EncryptionOrder::WIRE_SIGNATURE => (wire, None, false),
        EncryptionOrder::MEMORY_SIGNATURE => (memory, None, false),
        EncryptionOrder::RAW_WIRE => (None, memory, true),
        EncryptionOrder::RAW_MEMORY => (None, wire, true),
        _ => return,
    };
    if outside && memory.is_some() && wire.is_some() {
        report.at(order_at, Problem::BothOutsideCipher);
    } else {
        report.when(hole.is_some(), order_at, Problem::RowHole);
    }

    let unit_at = offset + offset_of!(CryptoBsf, data_unit_selector);
    let Some(size) = BlockSize::from_selector(bsf.data_unit_selector) else { return };
    let unit = size.bytes();
    if let Some(domain) = inside {
        let wanted = domain.stride();
        report.when(unit != wanted, unit_at, Problem::UnitNotBlock { unit, wanted });
    }
    let Some(length) = length else { return };
    let over = device.engine == Some(XtsEngine::SingleBlock) && length > u64::from(unit);
    report.when(over, LEN_AT, Problem::SingleUnitEngine { length, unit });
    // Bytes that pass through the cipher: with the signature that is inside, without any that is not.
    let encrypted = match (memory, order) {
        (_, EncryptionOrder::MEMORY_SIGNATURE)
        | (None, EncryptionOrder::RAW_WIRE | EncryptionOrder::RAW_MEMORY) => Some(length),
        (_, EncryptionOrder::WIRE_SIGNATURE) => {
            signature.map_or(Some(length), |signature| signature.wire_bytes(length))
        }
        (Some(memory), _) => BlockSignature::memory(memory).wire_bytes(length),
        (None, _) => None,
    };
    let Some(encrypted) = encrypted else { return };
    let odd = !job_size_can_be_encrypted(encrypted, size);
    report.when(odd, LEN_AT, Problem::JobSize { length: encrypted, unit });
    // The last unit's tweak is the first one's plus the number of units before it.
    let steps = u128::from(encrypted.div_ceil(u64::from(unit)).saturating_sub(1));
    let tweak_at = offset + offset_of!(CryptoBsf, xts_initial_tweak);
    for (order, tweak) in tweaks(bsf.xts_initial_tweak, device.engine).into_iter().flatten() {
        let first = tweak.get();
        let carries = first.wrapping_add(steps) >> 64 != first >> 64;
        report.when(carries, tweak_at, Problem::TweakCarry { order });
    }
}
