//! The rules that find faults in requests: values that a device refuses, and unusual values.

mod bsf;
mod crypto;
mod protected;
mod report;
mod transaction;
mod umr;

use super::data_path::{DataPath, DataSegmentView, Memcpy};
use super::device_context::DeviceContext;
use super::finding::{Finding, Problem, Severity};
use super::heads::heads;
use super::request::{Body, WorkRequest};
use super::segment::{MEMCPY_OCTOWORDS, UMR_ENTRIES, by_pointer, is_about_another_object, is_memcpy};
use super::segment_kind::SegmentKind;
use super::umr::Umr;
use crate::types::PsvIndex;
use crate::wire::ctrl::{ControlSegment, Opcode};
use crate::wire::data::InlineHeader;
use crate::wire::psv::SetPsvSegment;
use crate::wire::{MAX_WQE_OCTOWORDS, OCTOWORD_BYTES};
use core::mem::offset_of;
use report::Report;

/// Offsets in the control segment: opcode modifier, block number, opcode, queue pair and size.
const OPMOD_AT: usize = 0;
const INDEX_AT: usize = 1;
const OPCODE_AT: usize = 3;
const QPN_AT: usize = 4;
const DS_AT: usize = 7;

impl WorkRequest<'_> {
    /// Passes each finding about the request to `report`: faults that a device refuses, and unusual values.
    pub fn findings(&self, device: &DeviceContext, mut report: impl FnMut(Finding)) {
        request(self, device, &mut report);
    }

    /// Returns the first finding for which the device refuses the request, or `None`. The device may also
    /// refuse the request for reasons that this module does not know.
    pub fn refusal(&self, device: &DeviceContext) -> Option<Finding> {
        let mut first = None;
        self.findings(device, |finding| {
            if finding.severity() == Severity::Refused {
                first.get_or_insert(finding);
            }
        });
        first
    }

    /// Returns the severity of the worst finding, or `None` if there is no finding.
    pub fn worst(&self, device: &DeviceContext) -> Option<Severity> {
        let mut worst = None;
        self.findings(device, |finding| worst = worst.max(Some(finding.severity())));
        worst
    }
}

/// Applies all rules to a request.
fn request(request: &WorkRequest<'_>, device: &DeviceContext, report: &mut dyn FnMut(Finding)) {
    let report = &mut Report(report);
    if matches!(request.body(), Body::Unwritten) {
        return report.at(0, Problem::NeverWritten);
    }
    control(request, report);
    place(request, report);
    fields(request, report);
    // The rules below read all parts of the request, so they cannot check a truncated one.
    if request.is_truncated() {
        return;
    }
    match request.body() {
        Body::Configure(umr) | Body::Invalidate(umr) => {
            umr::check(&umr, device, report);
            bsf::check(&umr, device, report);
        }
        Body::SetPsv(segment) => set_psv(segment, report),
        Body::DataPath(transfer) => data_path(&transfer, report),
        Body::Memcpy(copy) => memcpy(&copy, report),
        Body::Nop => {
            let longer = request.bytes().len() > OCTOWORD_BYTES;
            report.when(longer, OCTOWORD_BYTES, Problem::DataInNop);
        }
        Body::Other | Body::Unknown | Body::Unwritten => {}
    }
    let kind_missing = request.needs_queue_kind();
    report.when(kind_missing, OCTOWORD_BYTES, Problem::QueueKindMissing);
}

/// Checks that the block number of the request continues the numbers of the earlier requests in the ring, and
/// that the queue pair is the same.
fn place(request: &WorkRequest<'_>, report: &mut Report<'_>) {
    let (place, control) = (request.place(), request.control());
    if let Some(wanted) = place.index {
        let found = control.opcode_word().wqe_index();
        report.at(INDEX_AT, Problem::IndexOutOfOrder { found, wanted });
    }
    report.when(place.other_lap, INDEX_AT, Problem::OtherLap);
    if let Some(before) = place.queue_pair {
        let qpn = control.qpn_ds_word().qpn();
        report.at(QPN_AT, Problem::OtherQueuePair { qpn, before });
    }
}

fn control(request: &WorkRequest<'_>, report: &mut Report<'_>) {
    let (control, bytes) = (request.control(), request.bytes());
    let ds = control.qpn_ds_word().ds();
    let octowords = usize::from(ds);
    let needed = octowords * OCTOWORD_BYTES;
    report.when(ds == 0, DS_AT, Problem::SizeZero);
    report.when(ds > MAX_WQE_OCTOWORDS, DS_AT, Problem::SizeOverLimit { ds });
    let have = bytes.len();
    match (request.is_truncated(), request.place().cut) {
        (true, true) => report.at(have, Problem::CutOff { needed, have }),
        (true, false) => report.at(have, Problem::Truncated { needed, have }),
        _ => {}
    }
    if let Some(wanted) = wanted_octowords(request)
        && wanted != octowords
        && !request.is_truncated()
    {
        report.at(DS_AT, Problem::SizeMismatch { ds: octowords, wanted });
    }
    let opmod = control.opcode_word().opmod();
    let opcode = request.opcode();
    report.when(opcode.name().is_none(), OPCODE_AT, Problem::UnknownOpcode { opcode: opcode.0 });
    if is_about_another_object(opcode, bytes) {
        report.at(OPMOD_AT, Problem::AnotherObject { opmod });
    } else {
        report.when(opmod != 0 && !has_modifier(opcode), OPMOD_AT, Problem::UnexpectedOpmod { opmod });
    }
    // On queues without WQE signatures the signature byte is 0, so only other values are checked.
    let found = control.signature;
    let others = bytes.iter().fold(0, |sum, byte| sum ^ byte) ^ found;
    let computed = !others;
    let wrong = found != 0 && needed == bytes.len() && found != computed;
    let at = offset_of!(ControlSegment, signature);
    report.when(wrong, at, Problem::WqeSignature { found, computed });
}

/// Returns whether requests with this opcode use the opcode modifier.
const fn has_modifier(opcode: Opcode) -> bool {
    matches!(
        opcode,
        Opcode::TSO
            | Opcode::WAIT
            | Opcode::ATOMIC_MASKED_CS
            | Opcode::ATOMIC_MASKED_FA
            | Opcode::GET_PSV
            | Opcode::ENHANCED_MPSW
            | Opcode::FLOW_TBL_ACCESS
            | Opcode::ACCESS_ASO
            | Opcode::MMO
            | Opcode::LOCAL_MMO
    )
}

/// Returns the size in octowords that follows from the parts of the request, or `None` if the parts allow
/// several sizes.
fn wanted_octowords(request: &WorkRequest<'_>) -> Option<usize> {
    let bytes = request.bytes();
    match request.opcode() {
        opcode if is_about_another_object(opcode, bytes) => None,
        Opcode::UMR => {
            let Some(umr) = Umr::new(bytes) else { return Some(UMR_ENTRIES / OCTOWORD_BYTES) };
            let control = umr.control();
            if by_pointer(control) {
                return Some(UMR_ENTRIES / OCTOWORD_BYTES + 1);
            }
            let bsf = match control.flag_bits().translation_offset() {
                true => 0,
                false => usize::from(control.bsf_octowords.get()),
            };
            Some(UMR_ENTRIES / OCTOWORD_BYTES + usize::from(control.klm_octowords.get()) + bsf)
        }
        Opcode::SET_PSV => Some(2),
        Opcode::MMO if is_memcpy(bytes) => Some(MEMCPY_OCTOWORDS),
        opcode => {
            let head = heads(opcode, request.queue(), bytes)?.end() / OCTOWORD_BYTES;
            let whole = bytes.len() / OCTOWORD_BYTES;
            // Any number of data segments may follow the fixed part, so only a request that ends within its
            // fixed part has a wrong size here. The rules for data segments find inline data that is cut off.
            (whole < head).then_some(head)
        }
    }
}

/// Checks each field against its entry in the field tables: reports reserved bytes that are not 0, unknown
/// bits and unknown codes.
fn fields(request: &WorkRequest<'_>, report: &mut Report<'_>) {
    for field in request.fields() {
        let name = field.name;
        if field.is_reserved() {
            let problem = match field.segment {
                SegmentKind::Padding => Problem::PaddingNotZero,
                SegmentKind::UmrControl => Problem::UmrReserved,
                _ => Problem::ReservedNotZero { name },
            };
            report.at(field.offset, problem);
        }
        let mut bits = field.unknown_bits();
        if field.segment == SegmentKind::UmrControl && field.offset == umr::FLAGS_AT {
            let reserved = bits & umr::RESERVED_FLAGS;
            report.when(reserved != 0, field.offset, Problem::UmrReserved);
            bits ^= reserved;
        }
        let problem = match request.opcode() {
            // Drivers fill queues up with NOPs. They write only opcode and size, so the flags of an older
            // request may remain.
            Opcode::NOP => Problem::NopFlags { bits },
            _ => Problem::UnknownBits { name, bits },
        };
        report.when(bits != 0, field.offset, problem);
        if field.is_unknown_code() {
            report.at(field.offset, Problem::UnknownCode { name, value: field.value() });
        }
    }
}

fn set_psv(segment: &SetPsvSegment, report: &mut Report<'_>) {
    let psv = segment.psv_index.get();
    report.when(PsvIndex::new(psv).is_err(), OCTOWORD_BYTES, Problem::PsvTooLarge { psv });
    let syndrome = segment.syndrome.get();
    let at = OCTOWORD_BYTES + offset_of!(SetPsvSegment, syndrome);
    report.when(syndrome != 0, at, Problem::PsvSyndrome { syndrome });
}

fn data_path(transfer: &DataPath<'_>, report: &mut Report<'_>) {
    let brings_in = transfer.atomic_bytes().is_some() || transfer.opcode() == Opcode::RDMA_READ;
    for (index, (offset, segment)) in transfer.data_segments().enumerate() {
        match segment {
            DataSegmentView::Memory(segment) => {
                report.when(segment.byte_count.get() == 0, offset, Problem::SegmentIs2Gib { index });
            }
            DataSegmentView::Inline { length, bytes } => {
                let room = bytes.len();
                report.when(brings_in, offset, Problem::InlineNotAllowed);
                report.when(length as usize > room, offset, Problem::InlineOverrun { length, room });
            }
        }
    }
    if let Some(bytes) = transfer.atomic_bytes() {
        let one = transfer.data_segments().count() == 1 && transfer.length() == bytes;
        report.when(!one, transfer.data_offset(), Problem::AtomicOperand { bytes });
    }
}

fn memcpy(copy: &Memcpy<'_>, report: &mut Report<'_>) {
    let lengths = [copy.source(), copy.target()].map(|segment| segment.byte_count.get());
    let [from, to] = lengths;
    for (at, length) in Memcpy::SEGMENTS.into_iter().zip(lengths) {
        report.when(length & InlineHeader::INLINE != 0, at, Problem::InlineNotAllowed);
    }
    let [_, target] = Memcpy::SEGMENTS;
    report.when(from != to, target, Problem::MemcpyLengths { from, to });
}
