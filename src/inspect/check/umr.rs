//! Rules for UMRs: flags, masks, sizes and layouts.

use super::super::device_context::DeviceContext;
use super::super::finding::Problem;
use super::super::segment::{UMR_ENTRIES, by_pointer};
use super::super::umr::{LayoutView, Umr, used_entries};
use super::report::Report;
use crate::mkey::KlmEntry;
use crate::wire::klm::Klm;
use crate::wire::mkey_context::{MkeyContext, QpnMkey};
use crate::wire::strided::{StridedEntry, StridedHeader};
use crate::wire::umr::UmrControlSegment;
use crate::wire::{OCTOWORD_BYTES, WQEBB_BYTES};
use core::mem::{offset_of, size_of};
use zerocopy::{FromBytes, IntoBytes};

pub(super) const FLAGS_AT: usize = OCTOWORD_BYTES + offset_of!(UmrControlSegment, flags);
const KLM_OCTOWORDS_AT: usize = OCTOWORD_BYTES + offset_of!(UmrControlSegment, klm_octowords);
const UPPER_OFFSET_AT: usize = OCTOWORD_BYTES + offset_of!(UmrControlSegment, translation_offset_47_16);
const BSF_OCTOWORDS_AT: usize = OCTOWORD_BYTES + offset_of!(UmrControlSegment, bsf_octowords);
const MASK_AT: usize = OCTOWORD_BYTES + offset_of!(UmrControlSegment, mkey_mask);
const CONTEXT_AT: usize = WQEBB_BYTES;
const TAG_AT: usize = CONTEXT_AT + offset_of!(MkeyContext, qpn_mkey) + 3;
pub(super) const LEN_AT: usize = CONTEXT_AT + offset_of!(MkeyContext, len);

/// The reserved flags of a UMR control segment.
pub(super) const RESERVED_FLAGS: u64 = 0b111;

/// Checks a UMR.
pub(super) fn check(umr: &Umr<'_>, device: &DeviceContext, report: &mut Report<'_>) {
    flags(umr, report);
    masks(umr, report);
    if umr.is_invalidate() {
        let writes = umr.layout().is_some() || umr.bsfs().next().is_some();
        report.when(writes, CONTEXT_AT, Problem::FreesAndConfigures);
    } else {
        configuration(umr, report);
    }
    layout(umr, device, report);
}

fn flags(umr: &Umr<'_>, report: &mut Report<'_>) {
    let flags = umr.control().flag_bits();
    report.when(by_pointer(umr.control()), FLAGS_AT, Problem::ByPointer);
    if let Some(address) = umr.pointer().map(|pointer| pointer.address.get()) {
        let aligned = address.is_multiple_of(UmrControlSegment::POINTER_ALIGNMENT);
        let at = UMR_ENTRIES + offset_of!(Klm, address);
        report.when(!aligned, at, Problem::PointerAlignment { address });
    }
    if let Some(first) = umr.first_replaced() {
        let whole = first.is_multiple_of((WQEBB_BYTES / OCTOWORD_BYTES) as u64);
        report.when(!whole, BSF_OCTOWORDS_AT, Problem::ReplacedInBlock { first });
        let behind = first > u64::from(u32::MAX);
        report.when(behind, UPPER_OFFSET_AT, Problem::EntryBehindAll { first });
    } else {
        let upper = umr.control().translation_offset_47_16.get();
        report.when(upper != 0, UPPER_OFFSET_AT, Problem::OffsetWithoutFlag { upper });
    }
    report.when(flags.check_free(), FLAGS_AT, Problem::CheckFree);
    let octowords = umr.control().klm_octowords.get();
    let ragged = !usize::from(octowords).is_multiple_of(WQEBB_BYTES / OCTOWORD_BYTES);
    report.when(ragged, KLM_OCTOWORDS_AT, Problem::EntriesNotPadded { octowords });
}

/// Checks that the mask selects each field of the mkey context that is not 0. Also reports masks and values
/// that drivers do not normally write.
fn masks(umr: &Umr<'_>, report: &mut Report<'_>) {
    let (mask, context) = (umr.mask(), umr.context());
    let flags_pd = context.flags_pd_word();
    let access = context.access_bits();
    let key_word = context.qpn_mkey_word();
    let bound = key_word.qpn();
    // Tag and queue pair may repeat the values in force, although the mask does not select them. This is no
    // fault.
    let same_key = bound == QpnMkey::ANY && key_word.tag() == umr.key().tag();
    let new_key = context.qpn_mkey.get() != 0 && !same_key;
    let rights = [mask.local_write(), mask.remote_read(), mask.remote_write(), mask.atomic()];
    let partial = rights.iter().any(|bit| *bit) && !rights.iter().all(|bit| *bit);
    report.when(partial, MASK_AT, Problem::PartialAccessMask);

    // Each row has the mask bit, whether the field has a value other than 0, the offset and the name of the
    // field.
    let at = |field| CONTEXT_AT + field;
    let pairs = [
        (mask.free(), context.free != 0, at(offset_of!(MkeyContext, free)), "free"),
        (mask.local_write(), access.local_write(), at(offset_of!(MkeyContext, access)), "local write"),
        (mask.remote_read(), access.remote_read(), at(offset_of!(MkeyContext, access)), "remote read"),
        (mask.remote_write(), access.remote_write(), at(offset_of!(MkeyContext, access)), "remote write"),
        (mask.atomic(), access.atomic(), at(offset_of!(MkeyContext, access)), "remote atomic"),
        (mask.mkey() || mask.qpn(), new_key, at(offset_of!(MkeyContext, qpn_mkey)), "qpn_mkey"),
        (
            mask.sig_err(),
            flags_pd.sig_err_count(),
            at(offset_of!(MkeyContext, flags_pd)),
            "signature error count",
        ),
        (mask.bsf_enable(), flags_pd.bsf_enable(), at(offset_of!(MkeyContext, flags_pd)), "BSF enable"),
        (
            mask.start_addr(),
            context.start_addr.get() != 0,
            at(offset_of!(MkeyContext, start_addr)),
            "start_addr",
        ),
        (mask.len(), context.len.get() != 0, LEN_AT, "len"),
    ];
    for (masked, given, offset, name) in pairs {
        report.when(given && !masked, offset, Problem::FieldWithoutMask { name });
    }

    // Unusual bits of the mask. Of these bits, this library sets only EN_RINVAL, RELAXED_WRITE and
    // RELAXED_READ, and only if a configuration asks for them. The rule for unknown bits does not report
    // these bits, because they have names.
    let unusual = [
        (1, "PAGE_SIZE"),
        (7, "PD"),
        (8, "EN_RINVAL"),
        (17, "LR"),
        (23, "SMALL_FENCE"),
        (25, "RELAXED_WRITE"),
        (47, "RELAXED_READ"),
    ];
    let word = umr.control().mkey_mask.get();
    for (bit, name) in unusual {
        report.when(word & (1 << bit) != 0, MASK_AT, Problem::UnusualMask { name });
    }
    let start = context.start_addr.get();
    report.when(
        mask.start_addr() && start != 0,
        CONTEXT_AT + offset_of!(MkeyContext, start_addr),
        Problem::NonZeroStart { address: start },
    );
    let binds = mask.qpn() && bound != QpnMkey::ANY && !umr.is_invalidate();
    let qpn_at = CONTEXT_AT + offset_of!(MkeyContext, qpn_mkey);
    report.when(binds, qpn_at, Problem::BoundToQueuePair { qpn: bound });
    let signed = umr.signature() != Ok(None) || umr.transaction() != Ok(None);
    report.when(binds && signed, qpn_at, Problem::BoundWithSignature);
}

/// Checks the parts of a UMR that configures an mkey: the mask bits that the reference provider always sets,
/// the tag, and whether the BSF enable bit agrees with the BSFs.
fn configuration(umr: &Umr<'_>, report: &mut Report<'_>) {
    let mask = umr.mask();
    report.when(!mask.free(), MASK_AT, Problem::MaskMissing { name: "FREE" });
    report.when(!mask.mkey(), MASK_AT, Problem::MaskMissing { name: "MKEY" });
    if let Some(to) = umr.tag() {
        let from = umr.key().tag();
        report.when(from != to, TAG_AT, Problem::TagChange { from, to });
    }
    let given = umr.control().bsf_octowords.get() != 0 && !umr.control().flag_bits().translation_offset();
    match umr.bsf_enable() {
        None => report.when(given, MASK_AT, Problem::BsfEnableKept),
        Some(false) => report.when(given, MASK_AT, Problem::BsfNotEnabled),
        Some(true) => report.when(!given, BSF_OCTOWORDS_AT, Problem::EnabledWithoutBsf),
    }
}

fn layout(umr: &Umr<'_>, device: &DeviceContext, report: &mut Report<'_>) {
    let octowords = umr.control().klm_octowords.get();
    let length = umr.length();
    // The length of the mkey includes the entries before the first one that the UMR writes.
    let before = umr.first_replaced().unwrap_or(0);
    if let (Some(_), Some(length)) = (umr.pointer(), length) {
        let (list, interleaved) = umr.room_in_memory(device);
        let too_short = list.max(interleaved) < length;
        report.when(too_short, LEN_AT, Problem::PointerTooShort { octowords, length });
    }
    let Some(layout) = umr.layout() else { return };
    match length {
        None if umr.first_replaced().is_some() => {}
        None => report.at(MASK_AT, Problem::EntriesWithoutLength),
        Some(0) if layout.count() == 0 => report.at(KLM_OCTOWORDS_AT, Problem::EmptyLayout),
        Some(length) if octowords == 0 => {
            report.at(KLM_OCTOWORDS_AT, Problem::LengthWithoutEntries { length });
            return;
        }
        Some(_) => {}
    }
    match (layout, device.entry_size) {
        (LayoutView::List(entries), None) => {
            list(entries, octowords, length.filter(|_| before == 0), report);
        }
        // Only the mkey holds the length of a page, so the length of the list cannot be checked.
        (LayoutView::Pages(_), _) => {}
        // The mkey holds the length of each entry, so the length fields of the entries do not count.
        (LayoutView::List(entries), Some(size)) => {
            let sum = before.saturating_add(entries.len() as u64).saturating_mul(size.bytes().into());
            length_of_list(sum, length, report);
        }
        (LayoutView::Interleaved { header, entries }, _) => {
            interleaved(header, entries, octowords, length, report);
        }
    }
}

fn list(entries: &[Klm], octowords: u16, length: Option<u64>, report: &mut Report<'_>) {
    if let Some(op) = mistaken_header(entries, octowords, length) {
        report.at(UMR_ENTRIES + offset_of!(StridedHeader, op), Problem::StridedOpcode { op });
        return;
    }
    // Entries without any length belong to an mkey that holds one length for all entries (KSM).
    if length.is_none() && entries.iter().all(|entry| entry.byte_count.get() == 0) {
        return;
    }
    for (index, entry) in entries.iter().take(used_entries(entries, length)).enumerate() {
        let offset = UMR_ENTRIES + index * OCTOWORD_BYTES;
        let length = entry.byte_count.get();
        report.when(length == 0, offset, Problem::EntryEmpty { index });
        report.when(length > KlmEntry::MAX_BYTES, offset, Problem::EntryTooLong { index, length });
    }
    let sum = entries.iter().map(|entry| u64::from(entry.byte_count.get())).sum();
    length_of_list(sum, length, report);
}

/// Checks that the length of an mkey, if the request writes it, equals the `sum` of bytes that a list maps.
fn length_of_list(sum: u64, length: Option<u64>, report: &mut Report<'_>) {
    let Some(length) = length else { return };
    report.when(sum < length, LEN_AT, Problem::ListTooShort { sum, length });
    report.when(sum > length, LEN_AT, Problem::ListTooLong { sum, length });
}

/// Returns the code of the first entry if the entry seems to be the header of an interleaved layout with a
/// wrong code: all its other numbers fit a header, and the entries do not fit a list.
fn mistaken_header(entries: &[Klm], octowords: u16, length: Option<u64>) -> Option<u32> {
    let first = entries.first()?;
    let header = StridedHeader::ref_from_bytes(first.as_bytes()).ok()?;
    let count = usize::from(header.num_entries.get());
    let fits = count > 0 && (count + 1).next_multiple_of(4) == usize::from(octowords);
    let mapped = u64::from(header.bytes_per_cycle.get()) * u64::from(header.repeat_count.get());
    let sum: u64 = entries.iter().map(|entry| u64::from(entry.byte_count.get())).sum();
    let like = fits && Some(mapped) == length && Some(sum) != length && header.reserved.get() == 0;
    like.then(|| header.op.get())
}

fn interleaved(
    header: &StridedHeader,
    entries: &[StridedEntry],
    octowords: u16,
    length: Option<u64>,
    report: &mut Report<'_>,
) {
    let count = header.num_entries.get();
    let fills = (usize::from(count) + 1).next_multiple_of(4);
    let count_at = UMR_ENTRIES + offset_of!(StridedHeader, num_entries);
    if usize::from(count) + 1 > usize::from(octowords) {
        report.at(count_at, Problem::StridedCount { entries: count, octowords });
    } else if fills < usize::from(octowords) {
        report.at(count_at, Problem::StridedSpare { entries: count, octowords });
    }
    let (cycle, repeat) = (header.bytes_per_cycle.get(), header.repeat_count.get());
    let mut sum = 0;
    for (index, entry) in entries.iter().enumerate() {
        let offset = UMR_ENTRIES + size_of::<StridedHeader>() + index * OCTOWORD_BYTES;
        let (stride, bytes) = (entry.stride.get(), entry.byte_count.get());
        sum += u64::from(bytes);
        report.when(bytes == 0, offset, Problem::StridedEntryEmpty { index });
        report.when(stride < bytes, offset, Problem::StrideTooSmall { index, stride, bytes });
    }
    report.when(count == 0, count_at, Problem::EmptyLayout);
    let repeat_at = UMR_ENTRIES + offset_of!(StridedHeader, repeat_count);
    report.when(repeat == 0, repeat_at, Problem::RepeatZero);
    report.when(sum != u64::from(cycle), UMR_ENTRIES, Problem::StridedCycle { sum, cycle });
    if let Some(length) = length {
        let mapped = u64::from(cycle) * u64::from(repeat);
        report.when(mapped != length, LEN_AT, Problem::StridedLength { mapped, length });
    }
}
