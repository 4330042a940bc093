//! Decodes completion entries, and describes them in words.
//!
//! ```
//! use mlx5_mkey::inspect::cqe::CompletionEntry;
//! // Counter 3 of queue pair 0x77, an RDMA WRITE, is done.
//! let mut bytes = [0; 64];
//! bytes[56..].copy_from_slice(&[8, 0, 0, 0x77, 0, 3, 0, 0]);
//! let entry = CompletionEntry::parse(&bytes)?;
//! assert_eq!(entry.summary(None).to_string(), "REQ: queue pair 0x77, counter 3, RDMA_WRITE, 0 bytes");
//! # Ok::<(), mlx5_mkey::inspect::ParseError>(())
//! ```

use super::error::ParseError;
use super::field::Field;
use super::finding::{Finding, Problem, Severity};
use super::segment::Segment;
use super::segment_kind::SegmentKind;
use crate::mkey::{SignatureErrorKind, SignatureFault};
use crate::types::DomainKind;
use crate::wire::WQEBB_BYTES;
use crate::wire::cqe::{Cqe, Cqe128, CqeOpcode, ErrorCqe, OpOwn, SignatureErrorCqe, Syndrome};
use crate::wire::ctrl::Opcode;
use core::fmt;
use core::mem::offset_of;
use zerocopy::FromBytes;

/// Number of data bytes that an entry of 64 bytes has room for.
const INLINE_BYTES: usize = 32;

/// A completion entry, decoded from its bytes.
///
/// ```
/// use mlx5_mkey::inspect::{ParseError, cqe::CompletionEntry};
/// use mlx5_mkey::queue::CompletionQueue;
/// use zerocopy::IntoBytes;
/// /// Prints all fields of the next entry, without retiring a request.
/// fn show_next(completions: &mut CompletionQueue<'_>) -> Result<(), ParseError> {
///     let Some(entry) = completions.take_entry() else { return Ok(()) };
///     println!("{}", CompletionEntry::parse(entry.as_bytes())?);
///     completions.release();
///     Ok(())
/// }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct CompletionEntry<'a> {
    /// The 64 bytes of the entry; of an entry of 128 bytes, the second half.
    bytes: &'a [u8],
    /// The first 64 bytes of an entry of 128 bytes; `None` for an entry of 64 bytes.
    half: Option<&'a [u8]>,
    cqe: Cqe,
}

/// The event that a completion entry reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
#[non_exhaustive]
pub enum EntryKind {
    /// A request succeeded, or the completion queue was resized. The entry of a send queue's request contains
    /// the request's opcode, the entry of a receive request does not.
    Success(Cqe),
    /// Several requests succeeded. The entries after this one contain their completions in compressed form.
    /// The field `byte_count` contains the number of completions.
    Compressed(Cqe),
    /// A request failed.
    Error(ErrorCqe),
    /// A signature was wrong: the signature of a block, or a digest.
    SignatureError(SignatureFault),
    /// The device has not written the entry.
    NotWritten,
    /// This module does not know the kind of the entry.
    Unknown,
}

impl<'a> CompletionEntry<'a> {
    /// Reads the entry in the first 64 bytes.
    ///
    /// # Errors
    /// [`ParseError::TooShort`] for fewer than 64 bytes.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, ParseError> {
        let too_short = ParseError::TooShort { have: bytes.len(), needed: WQEBB_BYTES };
        let bytes = bytes.get(..WQEBB_BYTES).ok_or(too_short)?;
        let cqe = Cqe::read_from_bytes(bytes).map_err(|_| too_short)?;
        Ok(Self { bytes, half: None, cqe })
    }

    /// Reads the entry in the first 128 bytes, for a queue with entries of this size ([`Cqe128`]). The second
    /// half is the completion entry itself, the first half may have the data of a message.
    ///
    /// # Errors
    /// [`ParseError::TooShort`] for fewer than 128 bytes.
    pub fn parse_128(bytes: &'a [u8]) -> Result<Self, ParseError> {
        let too_short = ParseError::TooShort { have: bytes.len(), needed: size_of::<Cqe128>() };
        let (half, rest) = bytes.split_at_checked(WQEBB_BYTES).ok_or(too_short)?;
        let entry = Self::parse(rest).map_err(|_| too_short)?;
        Ok(Self { half: Some(half), ..entry })
    }

    /// Returns the offset of the completion entry in its slot of the ring: 0, or 64 for an entry of 128
    /// bytes.
    const fn begin(&self) -> usize {
        if self.half.is_some() { WQEBB_BYTES } else { 0 }
    }

    /// Returns the data of the message inside the entry. Returns `None` if there is no data, or if the data
    /// is in the first half of an entry of 128 bytes that was parsed as one of 64.
    pub fn inline_data(&self) -> Option<&'a [u8]> {
        let room = match (self.kind(), self.cqe.op_own_bits().format()) {
            (EntryKind::Success(_), OpOwn::FORMAT_INLINE_32) => self.bytes.get(..INLINE_BYTES)?,
            (EntryKind::Success(_), OpOwn::FORMAT_INLINE_64) => self.half?,
            _ => return None,
        };
        room.get(..self.cqe.byte_count.get() as usize).or(Some(room))
    }

    /// Returns the 64 bytes of the entry; of an entry of 128 bytes, the second half.
    pub const fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// Returns the bytes as the wire struct of a completion without error, whatever the kind of the entry is.
    pub const fn cqe(&self) -> &Cqe {
        &self.cqe
    }

    const fn is_compressed(&self) -> bool {
        let errors =
            [CqeOpcode::SIGNATURE_ERROR.0, CqeOpcode::REQUESTER_ERROR.0, CqeOpcode::RESPONDER_ERROR.0];
        let opcode = self.cqe.opcode().0;
        let other = opcode == errors[0] || opcode == errors[1] || opcode == errors[2];
        let written = opcode != CqeOpcode::INVALID.0 && !other;
        written && self.cqe.op_own_bits().format() == OpOwn::FORMAT_COMPRESSED
    }

    /// Returns the event that the entry reports.
    pub const fn kind(&self) -> EntryKind {
        match self.cqe.opcode() {
            _ if self.is_compressed() => EntryKind::Compressed(self.cqe),
            CqeOpcode::REQUESTER
            | CqeOpcode::RESPONDER_WRITE_IMM
            | CqeOpcode::RESPONDER_SEND
            | CqeOpcode::RESPONDER_SEND_IMM
            | CqeOpcode::RESPONDER_SEND_INV
            | CqeOpcode::RESIZE_CQ => EntryKind::Success(self.cqe),
            CqeOpcode::REQUESTER_ERROR | CqeOpcode::RESPONDER_ERROR => EntryKind::Error(self.cqe.as_error()),
            CqeOpcode::SIGNATURE_ERROR => {
                EntryKind::SignatureError(SignatureFault::from_wire(&self.cqe.as_signature_error()))
            }
            CqeOpcode::INVALID => EntryKind::NotWritten,
            _ => EntryKind::Unknown,
        }
    }

    /// Iterates over the segments. If an entry of 128 bytes has data in its first half, this half is the
    /// first segment. Otherwise the first half is left out, because the device never wrote it.
    pub fn segments(&self) -> impl Iterator<Item = Segment<'a>> + Clone + use<'a> {
        let kind = match self.kind() {
            EntryKind::Error(_) => SegmentKind::ErrorCqe,
            EntryKind::SignatureError(_) => SegmentKind::SignatureErrorCqe,
            EntryKind::Compressed(_) => SegmentKind::CompressedCqe,
            EntryKind::Success(cqe) if cqe.op_own_bits().format() == OpOwn::FORMAT_INLINE_32 => {
                SegmentKind::InlineCqe
            }
            _ => SegmentKind::Cqe,
        };
        let inline = self.cqe.op_own_bits().format() == OpOwn::FORMAT_INLINE_64 && kind == SegmentKind::Cqe;
        let half = self.half.filter(|_| inline);
        let half = half.map(|bytes| Segment { kind: SegmentKind::InlineHalf, index: 0, offset: 0, bytes });
        half.into_iter().chain([Segment { kind, index: 0, offset: self.begin(), bytes: self.bytes }])
    }

    /// Iterates over the fields, in the order of their bytes. Reserved fields that are zero are left out.
    pub fn fields(&self) -> impl Iterator<Item = Field<'a>> + Clone + use<'a> {
        self.segments().flat_map(|segment| segment.fields())
    }

    /// Passes each finding about the entry to `report`: malformed and unusual values.
    pub fn findings(&self, mut report: impl FnMut(Finding)) {
        let begin = self.begin();
        let mut when = |condition: bool, offset: usize, problem| {
            if condition {
                report(Finding { offset: begin + offset, problem });
            }
        };
        let (op_own, at) = (self.cqe.op_own_bits(), offset_of!(Cqe, op_own));
        match self.kind() {
            EntryKind::Unknown => when(true, at, Problem::UnknownCqeOpcode { opcode: op_own.opcode() }),
            EntryKind::NotWritten => when(true, at, Problem::NotWritten),
            EntryKind::Success(_) => {
                let (format, bytes) = (op_own.format(), self.cqe.byte_count.get());
                let (short, long) = (format == OpOwn::FORMAT_INLINE_32, format == OpOwn::FORMAT_INLINE_64);
                when(short, at, Problem::CqeInlineData { bytes, room: INLINE_BYTES as u32 });
                let room = WQEBB_BYTES as u32;
                when(long && self.half.is_some(), at, Problem::CqeInlineData { bytes, room });
                when(long && self.half.is_none(), at, Problem::CqeInlineHalf);
            }
            EntryKind::Compressed(cqe) => {
                when(true, at, Problem::CqeCompressed { count: cqe.byte_count.get() });
            }
            EntryKind::Error(error) => {
                let syndrome = error.syndrome;
                let unknown = Syndrome(syndrome).name().is_none();
                when(unknown, offset_of!(ErrorCqe, syndrome), Problem::UnknownSyndrome { syndrome });
            }
            EntryKind::SignatureError(fault) => {
                let SignatureFault { syndrome, sig_type, domain, .. } = fault;
                let (block, transaction) = (
                    sig_type == SignatureErrorCqe::TYPE_BLOCK,
                    sig_type == SignatureErrorCqe::TYPE_TRANSACTION,
                );
                let one = syndrome_kinds(syndrome).into_iter().flatten().count() == 1;
                let at = offset_of!(SignatureErrorCqe, syndrome);
                // No source defines the syndrome of a transaction signature, so it is not checked.
                when(!one && !transaction, at, Problem::SignatureSyndrome { syndrome });
                let at = offset_of!(SignatureErrorCqe, sig_type);
                when(!block && !transaction, at, Problem::SignatureType { code: sig_type });
                let at = offset_of!(SignatureErrorCqe, domain);
                when(domain_kind(&fault).is_none(), at, Problem::SignatureDomain { code: domain });
            }
        }
    }

    /// Returns the severity of the worst finding, or `None` if there is no finding.
    pub fn worst(&self) -> Option<Severity> {
        let mut worst = None;
        self.findings(|finding| worst = worst.max(Some(finding.severity())));
        worst
    }

    /// Returns the entry in words, on one line. `stride` is the size in bytes of a block with its signature,
    /// in the domain of a signature error. With a stride, the text names the block that has the error.
    pub const fn summary(&self, stride: Option<u32>) -> EntrySummary {
        EntrySummary { cqe: self.cqe, kind: self.kind(), stride }
    }
}

/// Returns the parts of a signature that are wrong according to a syndrome.
fn syndrome_kinds(syndrome: u16) -> [Option<SignatureErrorKind>; 3] {
    let named = |bit, kind| (syndrome & bit != 0).then_some(kind);
    [
        named(SignatureErrorCqe::SYNDROME_GUARD, SignatureErrorKind::Guard),
        named(SignatureErrorCqe::SYNDROME_APP_TAG, SignatureErrorKind::AppTag),
        named(SignatureErrorCqe::SYNDROME_REF_TAG, SignatureErrorKind::RefTag),
    ]
}

const fn domain_kind(fault: &SignatureFault) -> Option<DomainKind> {
    match fault.domain {
        SignatureErrorCqe::DOMAIN_WIRE => Some(DomainKind::Wire),
        SignatureErrorCqe::DOMAIN_MEMORY => Some(DomainKind::Memory),
        _ => None,
    }
}

/// A completion entry in words, on one line.
#[derive(Clone, Copy, Debug)]
pub struct EntrySummary {
    cqe: Cqe,
    kind: EntryKind,
    stride: Option<u32>,
}

crate::fmt::defmt_as_text!(EntrySummary);

impl fmt::Display for EntrySummary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let opcode = self.cqe.opcode();
        match &self.kind {
            EntryKind::Success(cqe) => {
                let word = cqe.opcode_qpn();
                write!(f, "{opcode}: queue pair {:#x}, counter {}", word.qpn(), cqe.wqe_counter.get())?;
                if opcode == CqeOpcode::REQUESTER {
                    write!(f, ", {}", Opcode(word.wqe_opcode()))?;
                }
                write!(f, ", {} bytes", cqe.byte_count.get())?;
                f.write_str(if cqe.op_own_bits().format() == 0 { "" } else { ", inline data" })
            }
            EntryKind::Compressed(cqe) => {
                let (qpn, count) = (cqe.opcode_qpn().qpn(), cqe.byte_count.get());
                write!(f, "{opcode}: queue pair {qpn:#x}, {count} compressed completions")
            }
            EntryKind::Error(error) => {
                let word = crate::wire::cqe::OpcodeQpn::from_bits(error.sop_qpn.get());
                let counter = error.wqe_counter.get();
                write!(f, "{opcode}: queue pair {:#x}, counter {counter}", word.qpn())?;
                if opcode == CqeOpcode::REQUESTER_ERROR {
                    write!(f, ", {}", Opcode(word.wqe_opcode()))?;
                }
                write!(f, ", {} (vendor {:#04x}", Syndrome(error.syndrome), error.vendor_syndrome)?;
                if error.is_page_fault() {
                    f.write_str(", on-demand page fault")?;
                }
                f.write_str(")")
            }
            EntryKind::SignatureError(fault) => signature_error(fault, self.stride, f),
            EntryKind::NotWritten => f.write_str("an entry that the device has not written"),
            EntryKind::Unknown => write!(f, "unknown entry, {opcode}"),
        }
    }
}

/// Prints a signature error. The entry does not contain the kind of signature, so a wrong guard is printed as
/// a T10-DIF guard and as a CRC.
fn signature_error(fault: &SignatureFault, stride: Option<u32>, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    write!(f, "SIG_ERR: mkey index {:#08x}", fault.mkey.get())?;
    match domain_kind(fault) {
        Some(DomainKind::Wire) => f.write_str(", wire")?,
        Some(DomainKind::Memory) => f.write_str(", memory")?,
        None => write!(f, ", domain {}", fault.domain)?,
    }
    if fault.sig_type == SignatureErrorCqe::TYPE_TRANSACTION {
        let (found, computed) = (fault.actual >> 32, fault.expected >> 32);
        let offset = fault.offset;
        return write!(
            f,
            ", transaction, offset {offset}, bad CRC: found {found:#010x}, computed {computed:#010x}"
        );
    }
    if let Some(block) = stride.and_then(|stride| fault.offset.checked_div(u64::from(stride))) {
        write!(f, ", block {block}")?;
    }
    write!(f, ", offset {}", fault.offset)?;
    let (found, computed) = (fault.actual, fault.expected);
    for kind in syndrome_kinds(fault.syndrome).into_iter().flatten() {
        match kind {
            SignatureErrorKind::Guard => write!(
                f,
                ", bad guard: found {:#06x}, computed {:#06x} (T10-DIF), {:#010x}, {:#010x} (CRC32, CRC32C), \
                 {found:#018x}, {computed:#018x} (CRC64)",
                found >> 48,
                computed >> 48,
                found >> 32,
                computed >> 32,
            )?,
            SignatureErrorKind::AppTag => write!(
                f,
                ", bad application tag: found {:#06x}, computed {:#06x}",
                found >> 32 & 0xffff,
                computed >> 32 & 0xffff
            )?,
            SignatureErrorKind::RefTag => write!(
                f,
                ", bad reference tag: found {:#010x}, computed {:#010x}",
                found & 0xffff_ffff,
                computed & 0xffff_ffff
            )?,
            // `syndrome_kinds` never returns this kind. The code above prints the error of a digest.
            SignatureErrorKind::Digest => {}
        }
    }
    Ok(())
}
