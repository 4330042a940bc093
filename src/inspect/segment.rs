//! Cuts a request into segments, according to its opcode and its size fields. No segment reaches past the end
//! of the request.

use super::field::{Field, Fields};
use super::heads::{Heads, heads, inline_length};
use super::queue_kind::QueueKind;
use super::segment_kind::SegmentKind;
use crate::wire::bsf::{BsfSize, SignatureBsf};
use crate::wire::ctrl::{ControlSegment, Opcode, OpcodeWord};
use crate::wire::data::InlineHeader;
use crate::wire::strided::StridedHeader;
use crate::wire::umr::{UmrControlSegment, UmrHead};
use crate::wire::{OCTOWORD_BYTES, WQEBB_BYTES};
use core::mem::offset_of;
use zerocopy::FromBytes;

/// A segment of a request or of a completion entry. If the request ends within a segment, the segment has
/// fewer bytes than usual.
#[derive(Clone, Copy, Debug)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct Segment<'a> {
    /// The kind of the segment.
    pub kind: SegmentKind,
    /// Number of the segment among segments of its kind, counted from 0.
    pub index: usize,
    /// Offset of the segment in bytes from the start of the request or completion entry.
    pub offset: usize,
    /// The bytes of the segment.
    pub bytes: &'a [u8],
}

impl<'a> Segment<'a> {
    /// Iterates over the fields of the segment, without reserved fields that are zero.
    pub fn fields(&self) -> impl Iterator<Item = Field<'a>> + Clone + use<'a> {
        Fields::new(self.kind, self.index, self.offset, self.bytes)
    }
}

/// The form of a request, with the offsets at which its parts end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Shape {
    Umr {
        form: EntryForm,
        used_end: usize,
        entries_end: usize,
        bsf_end: usize,
    },
    /// A UMR whose translation entries and BSFs are in memory, outside of the request.
    UmrByPointer,
    SetPsv,
    /// A request with parts of a fixed size, which data segments may follow.
    Headed(Heads),
    Memcpy,
    Other,
}

/// The form of the translation entries of a UMR.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum EntryForm {
    List,
    Interleaved,
    Pages,
}

/// Offset of a UMR's first translation entry, which stands after control segment, UMR control segment and
/// mkey context.
pub(super) const UMR_ENTRIES: usize = 2 * WQEBB_BYTES;

/// An iterator over the segments of a request, in order.
#[derive(Clone, Debug)]
pub(super) struct Segments<'a> {
    bytes: &'a [u8],
    offset: usize,
    shape: Shape,
    segments: usize,
}

impl<'a> Segments<'a> {
    pub(super) fn new(opcode: Opcode, queue: QueueKind, bytes: &'a [u8]) -> Self {
        let shape = match opcode {
            Opcode::UMR if !is_about_another_object(opcode, bytes) => umr_shape(bytes),
            Opcode::SET_PSV if !is_about_another_object(opcode, bytes) => Shape::SetPsv,
            Opcode::MMO if is_memcpy(bytes) => Shape::Memcpy,
            _ => heads(opcode, queue, bytes).map_or(Shape::Other, Shape::Headed),
        };
        Self { bytes, offset: 0, shape, segments: 0 }
    }

    /// Returns the bytes of the translation entries without padding, and their form. The header of an
    /// interleaved layout is included.
    pub(super) fn entries(&self) -> (&'a [u8], EntryForm) {
        match self.shape {
            Shape::Umr { form, used_end, .. } => {
                (self.bytes.get(UMR_ENTRIES..used_end.min(self.bytes.len())).unwrap_or_default(), form)
            }
            _ => (&[], EntryForm::List),
        }
    }

    /// Returns the kind of the segment at the current offset, its number, and its usual length. `rest` are
    /// the bytes from this offset on.
    fn classify(&mut self, rest: &[u8]) -> (SegmentKind, usize, usize) {
        let offset = self.offset;
        if offset == 0 {
            return (SegmentKind::Control, 0, size_of::<ControlSegment>());
        }
        match self.shape {
            Shape::Umr { .. } | Shape::UmrByPointer if offset < WQEBB_BYTES => {
                (SegmentKind::UmrControl, 0, size_of::<UmrControlSegment>())
            }
            Shape::Umr { .. } | Shape::UmrByPointer if offset < UMR_ENTRIES => {
                (SegmentKind::MkeyContext, 0, WQEBB_BYTES)
            }
            Shape::UmrByPointer if offset == UMR_ENTRIES => (SegmentKind::EntriesPointer, 0, OCTOWORD_BYTES),
            Shape::Umr { form, used_end, .. } if offset < used_end => {
                let number = (offset - UMR_ENTRIES) / OCTOWORD_BYTES;
                let (kind, index) = match (form, number) {
                    (EntryForm::List, _) => (SegmentKind::ListEntry, number),
                    (EntryForm::Pages, _) => (SegmentKind::Pages, number),
                    (EntryForm::Interleaved, 0) => (SegmentKind::StridedHeader, 0),
                    (EntryForm::Interleaved, _) => (SegmentKind::StridedEntry, number - 1),
                };
                (kind, index, OCTOWORD_BYTES)
            }
            Shape::Umr { entries_end, .. } if offset < entries_end => {
                (SegmentKind::Padding, 0, OCTOWORD_BYTES)
            }
            Shape::Umr { bsf_end, .. } if offset < bsf_end => {
                (bsf(rest), 0, WQEBB_BYTES.min(bsf_end - offset))
            }
            Shape::SetPsv if offset < 2 * OCTOWORD_BYTES => (SegmentKind::SetPsv, 0, OCTOWORD_BYTES),
            Shape::Headed(heads) if offset < heads.end() => {
                let (kind, _, end) = heads.at(offset);
                (kind, 0, end - offset)
            }
            Shape::Headed(heads) if heads.has_data() => {
                let index = self.segments;
                self.segments += 1;
                match inline_length(rest) {
                    Some(length) => {
                        let bytes = size_of::<InlineHeader>().saturating_add(length as usize);
                        (SegmentKind::Inline, index, bytes.next_multiple_of(OCTOWORD_BYTES))
                    }
                    None => (SegmentKind::Data, index, OCTOWORD_BYTES),
                }
            }
            Shape::Memcpy if offset < 2 * OCTOWORD_BYTES => (SegmentKind::MmoMetadata, 0, OCTOWORD_BYTES),
            Shape::Memcpy if offset < MEMCPY_OCTOWORDS * OCTOWORD_BYTES => {
                (SegmentKind::Data, offset / OCTOWORD_BYTES - 2, OCTOWORD_BYTES)
            }
            Shape::Umr { .. }
            | Shape::UmrByPointer
            | Shape::SetPsv
            | Shape::Headed(_)
            | Shape::Memcpy
            | Shape::Other => (SegmentKind::Unknown, 0, rest.len()),
        }
    }
}

impl<'a> Iterator for Segments<'a> {
    type Item = Segment<'a>;

    fn next(&mut self) -> Option<Segment<'a>> {
        let rest = self.bytes.get(self.offset..).filter(|rest| !rest.is_empty())?;
        let (kind, index, length) = self.classify(rest);
        let bytes = rest.get(..length).unwrap_or(rest);
        let offset = self.offset;
        self.offset += bytes.len();
        Some(Segment { kind, index, offset, bytes })
    }
}

/// Returns whether the opcode modifier of a UMR or SET_PSV selects another object than an mkey or a PSV: the
/// TLS parameters of a TIS or TIR, through which the kernel sends and receives
/// (`mlx5e_ktls_build_static_params`, `mlx5e_ktls_build_progress_params`).
pub(super) fn is_about_another_object(opcode: Opcode, bytes: &[u8]) -> bool {
    matches!(opcode, Opcode::UMR | Opcode::SET_PSV) && bytes.first() != Some(&0)
}

/// Number of octowords of a copy in memory: control segment, metadata, source, target.
pub(super) const MEMCPY_OCTOWORDS: usize = 4;

/// Returns whether a memory-to-memory operation is a copy.
pub(super) fn is_memcpy(bytes: &[u8]) -> bool {
    bytes.first() == Some(&OpcodeWord::OPMOD_MEMCPY)
}

/// Returns the kind of the BSF at the beginning of `rest`. Each BSF takes 64 bytes, even if its size code
/// means fewer bytes.
fn bsf(rest: &[u8]) -> SegmentKind {
    let head = BsfSize::from_bits(rest.first().copied().unwrap_or_default());
    let formats = offset_of!(SignatureBsf, ext_wire_tfs_psv)..offset_of!(SignatureBsf, wire_inline);
    let transaction = head.size() == BsfSize::EXTENDED
        || rest.get(formats).is_some_and(|formats| formats.iter().any(|byte| *byte != 0));
    match (head.kind(), head.same_block_structure()) {
        (BsfSize::KIND_CRYPTO, _) => SegmentKind::CryptoBsf,
        (0, _) if transaction => SegmentKind::TransactionBsf,
        (0, true) => SegmentKind::SignatureBsfCopy,
        (0, false) => SegmentKind::SignatureBsf,
        _ => SegmentKind::Unknown,
    }
}

/// Returns whether the UMR has translation entries or BSFs that are outside of the request.
pub(super) const fn by_pointer(control: &UmrControlSegment) -> bool {
    !control.flag_bits().inline() && (control.klm_octowords.get() != 0 || control.bsf_octowords.get() != 0)
}

fn umr_shape(bytes: &[u8]) -> Shape {
    let Ok((head, _)) = UmrHead::ref_from_prefix(bytes) else { return Shape::Other };
    if by_pointer(&head.umr) {
        return Shape::UmrByPointer;
    }
    let octowords = usize::from(head.umr.klm_octowords.get());
    let entries_end = UMR_ENTRIES + octowords * OCTOWORD_BYTES;
    // With a translation offset, the field `bsf_octowords` holds the offset instead of the size of the BSFs.
    let bsf_octowords = match head.umr.flag_bits().translation_offset() {
        true => 0,
        false => usize::from(head.umr.bsf_octowords.get()),
    };
    let bsf_end = entries_end + bsf_octowords * OCTOWORD_BYTES;
    let entries = bytes.get(UMR_ENTRIES..entries_end.min(bytes.len())).unwrap_or_default();
    let header = StridedHeader::ref_from_prefix(entries).ok().map(|(header, _)| header);
    // The device recognizes an interleaved layout by the code in `op`. In a list, the key of the first entry
    // stands at this place.
    let strided = header.filter(|header| header.op.get() == StridedHeader::OPCODE);
    let used = match strided {
        Some(header) => (1 + usize::from(header.num_entries.get())).min(octowords),
        // A list does not contain its number of entries: entries of zeros at its end count as padding.
        None => {
            let (slots, _) = entries.as_chunks::<OCTOWORD_BYTES>();
            slots.iter().rposition(|slot| *slot != [0; OCTOWORD_BYTES]).map_or(0, |last| last + 1)
        }
    };
    let form = match strided {
        Some(_) => EntryForm::Interleaved,
        None if head.umr.flag_bits().translation_offset() && are_pages(entries) => EntryForm::Pages,
        None => EntryForm::List,
    };
    Shape::Umr { form, used_end: UMR_ENTRIES + used * OCTOWORD_BYTES, entries_end, bsf_end }
}

/// Returns whether the entries are addresses of pages, two in an octoword, with the rights to read and write
/// in their low bits. The kernel's mlx5e maps the buffers of its receive queues by entries of this form. A
/// list of keys and addresses can have these bits only in some entries.
fn are_pages(entries: &[u8]) -> bool {
    const PAGE_BITS: u64 = 0xfff;
    let (numbers, _) = entries.as_chunks::<8>();
    let page = |bytes: &&[u8; 8]| matches!(u64::from_be_bytes(**bytes) & PAGE_BITS, 1..=3);
    let pages = numbers.iter().take_while(page).count();
    pages > 1 && numbers.iter().skip(pages).all(|bytes| *bytes == [0; 8])
}
