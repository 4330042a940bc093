//! Rules for the BSFs of a UMR, and for block signatures.

use super::super::device_context::DeviceContext;
use super::super::finding::{Finding, Problem};
use super::super::segment_kind::SegmentKind;
use super::super::umr::{DomainView, Umr, domains};
use super::protected::{Protected, raw_size};
use super::report::Report;
use super::umr::LEN_AT;
use super::{crypto, transaction};
use crate::mkey::{BlockSignature, Domain, Signature, SignatureCapabilities, check_mask};
use crate::types::BlockSize;
use crate::wire::bsf::{BfsPsv, BsfSize, DifFlags, InlineDif, InlineValid, RepeatSeed, SignatureBsf};
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
    let (blocks, transaction) = (known(umr.signature(), report), known(umr.transaction(), report));
    let data = match (&transaction, &blocks) {
        (Some(transaction), _) => Some(u64::from(transaction.length)),
        (None, Some(blocks)) => length.and_then(|length| data_bytes(blocks, length)),
        (None, None) => length,
    };
    let protected = Protected { blocks, transaction, length, data };
    if let Some((offset, bsf)) = umr.signature_bsf() {
        let empty = umr.signature() == Ok(None);
        signature_bsf(offset, bsf, protected.blocks.as_ref(), empty, device, report);
        transaction::check(offset, bsf, &protected, report);
        if protected.transaction.is_none() {
            let at = offset + offset_of!(SignatureBsf, raw_data_size);
            raw_size(at, bsf.raw_data_size.get(), &protected, report);
        }
    }
    if let (Some(blocks), Some(length)) = (&protected.blocks, length) {
        partial_block(blocks, length, report);
    }
    if let Some((offset, bsf)) = umr.crypto_bsf() {
        crypto::check(offset, bsf, &protected, device, report);
    }
}

/// Returns the decoded value, or `None` if decoding failed. Reports why decoding failed, except for an
/// unknown code, because `fields` in the parent module reports unknown codes of all fields.
fn known<T>(read: Result<Option<T>, Finding>, report: &mut Report<'_>) -> Option<T> {
    read.unwrap_or_else(|finding| {
        if !matches!(finding.problem, Problem::UnknownCode { .. }) {
            report.at(finding.offset, finding.problem);
        }
        None
    })
}

/// Returns how many of the `length` bytes that an mkey maps are data, or `None` if they end within a block.
fn data_bytes(signature: &BlockSignature, length: u64) -> Option<u64> {
    match signature.memory_domain() {
        Some(memory) => BlockSignature::memory(memory).wire_bytes(length),
        None => Some(length),
    }
}

/// Checks that the mapped bytes are a whole number of blocks with their signatures, and that their data are a
/// whole number of blocks of the wire domain.
fn partial_block(signature: &BlockSignature, length: u64, report: &mut Report<'_>) {
    let Some(data) = data_bytes(signature, length) else {
        let stride = signature.memory_domain().map_or(0, |memory| memory.stride());
        return report.at(LEN_AT, Problem::PartialBlock { length, stride });
    };
    if let Some(wire) = signature.wire_domain() {
        let block = wire.block_size.bytes();
        let ragged = !data.is_multiple_of(u64::from(block));
        report.when(ragged, LEN_AT, Problem::PartialWireBlock { data, block });
    }
}

/// Checks the number, the order and the size codes of the BSFs.
fn sizes(umr: &Umr<'_>, report: &mut Report<'_>) {
    let count = umr.bsfs().count();
    let wanted = if count > 1 { BsfSize::SIGNATURE_AND_CRYPTO } else { BsfSize::WITH_INLINE };
    let mut previous = None;
    for segment in umr.bsfs() {
        let found = BsfSize::from_bits(segment.bytes.first().copied().unwrap_or_default()).size();
        let crypto = segment.kind == SegmentKind::CryptoBsf;
        // If the BSF of a transaction is the only one, it may also have the extended size, which is 32 bytes.
        let extended =
            segment.kind == SegmentKind::TransactionBsf && found == BsfSize::EXTENDED && count == 1;
        let wrong = found != wanted && !extended;
        report.when(wrong, segment.offset, Problem::BsfSizeCode { found, wanted, count });
        // At most one signature BSF is allowed, and after it at most one crypto BSF.
        let misplaced = previous == Some(true) || (previous == Some(false) && !crypto);
        report.when(misplaced, segment.offset, Problem::BsfOrder);
        previous = Some(crypto);
    }
}

/// Returns the bits of a check or copy mask that select bytes of this signature.
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
    for domain in domains(offset, bsf) {
        check_domain(&domain, report);
    }
    let same = BsfSize::from_bits(bsf.bsf_size_sbs).same_block_structure();
    let wire_at = offset + offset_of!(SignatureBsf, wire);
    report.when(same && empty, wire_at, Problem::CopyMaskStructure);
    let Some(signature) = signature else { return };
    let domains = [signature.memory_domain(), signature.wire_domain()];
    let relevant = domains.iter().flatten().fold(0, |mask, domain| mask | bytes_of(&domain.signature));
    // A mask of all ones selects the whole signature, whatever its type. It is no finding, even for a
    // signature of fewer than 8 bytes.
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

/// Returns the name of a property of `domain` that the device does not support, or `None` if the device
/// supports the domain.
fn missing(domain: &Domain, capabilities: &SignatureCapabilities) -> Option<&'static str> {
    match (domain.signature, domain.block_size) {
        (Signature::Crc32c(_), _) if !capabilities.crc32c => Some("CRC-32C"),
        (Signature::Crc64Xp10(_), _) if !capabilities.crc64_xp10 => Some("CRC-64 XP10"),
        (_, BlockSize::B4048) if !capabilities.block_4048 => Some("blocks of 4048 bytes"),
        _ => None,
    }
}

/// Checks that block format, PSV and inline section of a domain agree.
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
