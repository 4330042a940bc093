//! Decodes a UMR to the types of [`crate::mkey`].

use super::crypto::{crypto, unit_bytes};
use super::device_context::DeviceContext;
use super::finding::{Finding, Problem, unknown_code};
use super::queue_kind::QueueKind;
use super::segment::{EntryForm, Segment, Segments, UMR_ENTRIES, by_pointer};
use super::segment_kind::SegmentKind;
use super::transaction::{TransactionCrc, transaction};
use crate::mkey::{
    Access, BlockSignature, Crypto, Domain, Escape, Guard, InterleavedEntry, KlmEntry, Signature,
    SignatureChange, T10Dif, XtsEngine,
};
use crate::types::{BlockSize, Key, KsmEntrySize, OutOfRange, PsvIndex, Seed};
use crate::wire::OCTOWORD_BYTES;
use crate::wire::bsf::{BfsPsv, BsfSize, CryptoBsf, DifFlags, InlineDif, RepeatSeed, SignatureBsf};
use crate::wire::ctrl::Opcode;
use crate::wire::klm::Klm;
use crate::wire::mkey_context::MkeyContext;
use crate::wire::strided::{StridedEntry, StridedHeader};
use crate::wire::umr::{MkeyMask, UmrControlSegment, UmrHead};
use core::mem::offset_of;
use zerocopy::FromBytes;
use zerocopy::big_endian::U64;

/// A UMR, decoded: control segments, mkey context, and the segments after them.
#[derive(Clone, Copy, Debug)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct Umr<'a> {
    head: &'a UmrHead,
    context: &'a MkeyContext,
    bytes: &'a [u8],
}

/// The translation entries of a request, by form, without padding.
#[derive(Clone, Copy, Debug)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub enum LayoutView<'a> {
    /// Entries that are mapped one after the other.
    List(&'a [Klm]),
    /// Addresses of pages, with the rights to read and write in their low bits. The mkey holds the length of
    /// a page.
    Pages(&'a [U64]),
    /// Streams of an interleaved layout. Each cycle maps the next bytes of every stream in turn.
    Interleaved {
        /// The header, with the number of cycles and the number of bytes in each.
        header: &'a StridedHeader,
        /// The streams.
        entries: &'a [StridedEntry],
    },
}

impl<'a> LayoutView<'a> {
    /// Returns the number of entries, without the header of an interleaved layout.
    pub const fn count(&self) -> usize {
        match self {
            Self::List(entries) => entries.len(),
            Self::Pages(pages) => pages.len(),
            Self::Interleaved { entries, .. } => entries.len(),
        }
    }

    /// Returns how many bytes of memory the entries map, computed from the lengths of the entries: the length
    /// in the mkey context, and the number of bytes in the header of an interleaved layout, are ignored.
    /// Returns 0 for pages, whose length is not known.
    pub fn mapped_bytes(&self) -> u64 {
        match self {
            Self::List(entries) => entries.iter().map(|entry| u64::from(entry.byte_count.get())).sum(),
            Self::Pages(_) => 0,
            Self::Interleaved { header, entries } => {
                let cycle: u64 = entries.iter().map(|entry| u64::from(entry.byte_count.get())).sum();
                cycle * u64::from(header.repeat_count.get())
            }
        }
    }

    /// Iterates over the entries of a list, as users give them. Other layouts yield no entry.
    pub fn list_entries(&self) -> impl Iterator<Item = KlmEntry> + use<'a> {
        let entries = match *self {
            Self::List(entries) => entries,
            Self::Interleaved { .. } | Self::Pages(_) => &[],
        };
        entries.iter().map(|entry| KlmEntry {
            address: entry.address.get(),
            length: entry.byte_count.get(),
            key: Key::from_raw(entry.mkey.get()),
        })
    }

    /// Iterates over the entries of an interleaved layout, as users give them. Other layouts yield no entry.
    ///
    /// An item is an error if the entry's stride is less than its bytes in a cycle.
    pub fn interleaved_entries(
        &self,
    ) -> impl Iterator<Item = Result<InterleavedEntry, OutOfRange>> + use<'a> {
        let entries = match *self {
            Self::List(_) | Self::Pages(_) => &[],
            Self::Interleaved { entries, .. } => entries,
        };
        entries.iter().map(|entry| {
            let (stride, bytes) = (entry.stride.get(), entry.byte_count.get());
            let skip = stride.checked_sub(bytes).ok_or(OutOfRange {
                what: "bytes of a cycle (up to the stride)",
                value: u64::from(bytes),
                min: 0,
                max: u64::from(stride),
            })?;
            let (address, key) = (entry.address.get(), Key::from_raw(entry.mkey.get()));
            Ok(InterleavedEntry { address, bytes, skip, key })
        })
    }
}

impl<'a> Umr<'a> {
    /// Decodes a request. Returns `None` if the request ends before the end of the mkey context.
    pub(super) fn new(bytes: &'a [u8]) -> Option<Self> {
        let (head, rest) = UmrHead::ref_from_prefix(bytes).ok()?;
        let (context, _) = MkeyContext::ref_from_prefix(rest).ok()?;
        Some(Self { head, context, bytes })
    }

    /// Returns the UMR control segment.
    pub const fn control(&self) -> &'a UmrControlSegment {
        &self.head.umr
    }

    /// Returns the mkey context.
    pub const fn context(&self) -> &'a MkeyContext {
        self.context
    }

    /// Returns the mask of the fields of the mkey that the request writes.
    pub const fn mask(&self) -> MkeyMask {
        self.head.umr.mask()
    }

    /// Returns the key by which the request names the mkey.
    pub const fn key(&self) -> Key {
        Key::from_raw(self.head.ctrl.imm.get())
    }

    /// Returns the new tag of the key, or `None` if the tag stays.
    pub const fn tag(&self) -> Option<u8> {
        if self.mask().mkey() { Some(self.context.qpn_mkey_word().tag()) } else { None }
    }

    /// Returns whether the request invalidates the mkey.
    pub const fn is_invalidate(&self) -> bool {
        self.mask().free() && self.context.is_free()
    }

    /// Returns the new access rights, or `None` if the rights stay.
    pub const fn access(&self) -> Option<Access> {
        let mask = self.mask();
        let any = mask.local_write() || mask.remote_read() || mask.remote_write() || mask.atomic();
        if any { Some(Access::from_wire(self.context.access_bits())) } else { None }
    }

    /// Returns the new length of the mkey in bytes, or `None` if the length stays.
    pub const fn length(&self) -> Option<u64> {
        if self.mask().len() { Some(self.context.len.get()) } else { None }
    }

    /// Returns the new low bit of the signature error count, or `None` if the bit stays.
    pub const fn error_count(&self) -> Option<bool> {
        if self.mask().sig_err() { Some(self.context.flags_pd_word().sig_err_count()) } else { None }
    }

    /// Returns `Some(true)` if the request enables the BSFs, `Some(false)` if it disables them, or `None` if
    /// the BSF enable bit stays.
    pub const fn bsf_enable(&self) -> Option<bool> {
        if self.mask().bsf_enable() { Some(self.context.flags_pd_word().bsf_enable()) } else { None }
    }

    /// Returns the number of the first entry that the request writes, or `None` if the request writes a whole
    /// layout. The entries that the request does not write stay. The binding of a window gives `Some(0)`.
    pub const fn first_replaced(&self) -> Option<u64> {
        self.head.umr.first_entry()
    }

    /// Returns the pointer to entries and BSFs in memory, or `None` if they are in the request or if there
    /// are none.
    pub fn pointer(&self) -> Option<&'a Klm> {
        if !by_pointer(self.control()) {
            return None;
        }
        Klm::ref_from_prefix(self.bytes.get(UMR_ENTRIES..)?).ok().map(|(pointer, _)| pointer)
    }

    /// Returns the largest numbers of bytes that the entries in memory can map: as a list, and as an
    /// interleaved layout. A number is 0 if entries of this form are impossible.
    pub(super) fn room_in_memory(&self, device: &DeviceContext) -> (u64, u64) {
        let octowords = u64::from(self.control().klm_octowords.get());
        let most = device.entry_size.map_or(KlmEntry::MAX_BYTES, KsmEntrySize::bytes);
        let before = self.first_replaced().unwrap_or(0);
        let list = before.saturating_add(octowords).saturating_mul(most.into());
        // An interleaved layout begins with a header, and repeats its entries. It is impossible in a request
        // that replaces entries, and in an mkey whose entries all have one length.
        let cycle = octowords.saturating_sub(1) * u64::from(u16::MAX);
        match (device.entry_size, self.first_replaced()) {
            (None, None) => (list, cycle * u64::from(u32::MAX)),
            _ => (list, 0),
        }
    }

    /// Returns the new layout, or `None` if the layout stays, or if it is in memory ([`Umr::pointer`]). The
    /// layout stays if the request has neither entries nor a length.
    ///
    /// Device and decoder recognize an interleaved layout by a code at the place of the first list entry's
    /// key. A list that begins with key 0x400 therefore reads as an interleaved layout.
    pub fn layout(&self) -> Option<LayoutView<'a>> {
        let (bytes, form) = Segments::new(Opcode::UMR, QueueKind::Unknown, self.bytes).entries();
        if bytes.is_empty() && (!self.mask().len() || by_pointer(self.control())) {
            return None;
        }
        let whole = bytes.get(..bytes.len() / OCTOWORD_BYTES * OCTOWORD_BYTES).unwrap_or_default();
        if form == EntryForm::Pages {
            let pages = <[U64]>::ref_from_bytes(whole).unwrap_or_default();
            let used = pages.iter().rposition(|page| page.get() != 0).map_or(0, |last| last + 1);
            return Some(LayoutView::Pages(pages.get(..used).unwrap_or_default()));
        }
        if form == EntryForm::Interleaved
            && let Ok((header, rest)) = StridedHeader::ref_from_prefix(whole)
        {
            let entries = <[StridedEntry]>::ref_from_bytes(rest).unwrap_or_default();
            return Some(LayoutView::Interleaved { header, entries });
        }
        Some(LayoutView::List(<[Klm]>::ref_from_bytes(whole).unwrap_or_default()))
    }

    /// Iterates over the segments with BSFs.
    pub(super) fn bsfs(&self) -> impl Iterator<Item = Segment<'a>> + use<'a> {
        Segments::new(Opcode::UMR, QueueKind::Unknown, self.bytes).filter(|segment| {
            segment.offset >= UMR_ENTRIES
                && matches!(
                    segment.kind,
                    SegmentKind::SignatureBsf
                        | SegmentKind::SignatureBsfCopy
                        | SegmentKind::TransactionBsf
                        | SegmentKind::CryptoBsf
                )
        })
    }

    /// Returns the first signature BSF and its offset, or `None` if there is no complete one. A BSF with a
    /// CRC over a transaction is a signature BSF too.
    pub fn signature_bsf(&self) -> Option<(usize, &'a SignatureBsf)> {
        let segment = self.bsfs().find(|segment| segment.kind != SegmentKind::CryptoBsf)?;
        Some((segment.offset, SignatureBsf::ref_from_bytes(segment.bytes).ok()?))
    }

    /// Returns the first crypto BSF and its offset, or `None` if there is no complete one.
    pub fn crypto_bsf(&self) -> Option<(usize, &'a CryptoBsf)> {
        let segment = self.bsfs().find(|segment| segment.kind == SegmentKind::CryptoBsf)?;
        Some((segment.offset, CryptoBsf::ref_from_bytes(segment.bytes).ok()?))
    }

    /// Returns the PSVs of block signatures in memory domain and wire domain, or `None` without a signature
    /// BSF.
    pub fn psvs(&self) -> Option<(PsvIndex, PsvIndex)> {
        let (_, bsf) = self.signature_bsf()?;
        Some((
            PsvIndex::from_low_bits(bsf.memory_bfs_psv.get()),
            PsvIndex::from_low_bits(bsf.wire_bfs_psv.get()),
        ))
    }

    /// Returns the block signature that the request writes, or `None` if the request writes none or an empty
    /// BSF.
    ///
    /// If the user's copy mask equals the automatic one, the BSF has the same bytes as without it. The result
    /// therefore contains a copy mask only if it differs from the automatic one.
    /// [`BlockSignature::effective_copy_mask`] returns the mask in both cases.
    ///
    /// # Errors
    /// The finding that makes the signature unreadable.
    pub fn signature(&self) -> Result<Option<BlockSignature>, Finding> {
        let Some((offset, bsf)) = self.signature_bsf() else { return Ok(None) };
        signature(offset, bsf)
    }

    /// Returns the change of the mkey's signature.
    ///
    /// The result is the effect of the request, which may differ from the user's configuration. A request
    /// that keeps the signature of an mkey with crypto writes the signature again, so the result is `Set`.
    /// For a request that disables BSFs, the result is `Reset`, even if there was no signature. The span of a
    /// digest is always `Transaction`, even if the PSV is the mkey's own.
    ///
    /// # Errors
    /// The finding that makes the signature unreadable.
    pub fn signature_change(&self) -> Result<SignatureChange, Finding> {
        if let Some(transaction) = self.transaction()? {
            return Ok(SignatureChange::Digest(transaction.digest()));
        }
        Ok(match (self.signature()?, self.signature_bsf()) {
            (Some(block), _) => SignatureChange::Set(block),
            (None, Some(_)) => SignatureChange::Reset,
            (None, None) if self.bsf_enable() == Some(false) => SignatureChange::Reset,
            (None, None) => SignatureChange::Keep,
        })
    }

    /// Returns the crypto properties that the request writes, or `None` if the request writes none. The
    /// AES-XTS engine determines the byte order of the tweak.
    ///
    /// # Errors
    /// The finding that makes the properties unreadable.
    pub fn crypto(&self, engine: XtsEngine) -> Result<Option<Crypto>, Finding> {
        let Some((offset, bsf)) = self.crypto_bsf() else { return Ok(None) };
        crypto(offset, bsf, engine).map(Some)
    }

    /// Returns the length in bytes of a data unit of AES-XTS, or `None` without a crypto BSF or for an
    /// unknown selector.
    pub fn data_unit(&self) -> Option<u32> {
        self.crypto_bsf().and_then(|(_, bsf)| unit_bytes(bsf.data_unit_selector))
    }

    /// Returns the CRC over a transaction that the request writes, or `None` if the request writes none.
    ///
    /// # Errors
    /// The finding that makes the CRC unreadable.
    pub fn transaction(&self) -> Result<Option<TransactionCrc>, Finding> {
        let Some((offset, bsf)) = self.signature_bsf() else { return Ok(None) };
        transaction(offset, bsf)
    }
}

/// Returns how many entries of a list are needed for `length` bytes. The rest may be older entries, which
/// drivers leave behind the used ones.
pub(super) fn used_entries(entries: &[Klm], length: Option<u64>) -> usize {
    let Some(length) = length else { return entries.len() };
    let mut sum = 0;
    let reached = entries.iter().take_while(|entry| {
        let before = sum;
        sum += u64::from(entry.byte_count.get());
        before < length
    });
    reached.count()
}

/// One domain of a signature BSF, with the offsets of its parts.
#[derive(Clone, Copy, Debug)]
pub(super) struct DomainView<'a> {
    /// `wire` or `memory`.
    pub(super) name: &'static str,
    /// Block size selector of the domain; 0 if the domain has no signature.
    pub(super) selector: u8,
    pub(super) selector_at: usize,
    pub(super) bfs_psv: BfsPsv,
    pub(super) bfs_at: usize,
    pub(super) inline: &'a InlineDif,
    pub(super) inline_at: usize,
}

impl DomainView<'_> {
    /// Decodes the domain. Returns `None` if the domain has no signature.
    pub(super) fn read(&self) -> Result<Option<Domain>, Finding> {
        let wire = self.name == "wire";
        if self.selector == 0 {
            return Ok(None);
        }
        let name = if wire { "w_bs_selector" } else { "m_bs_selector" };
        let size = BlockSize::from_selector(self.selector).filter(|size| BlockSize::ALL.contains(size));
        let block_size = size.ok_or(unknown_code(self.selector_at, name, self.selector))?;
        let bfs = self.bfs_psv.bfs();
        let seed = if bfs & BfsPsv::SEED_ZERO != 0 { Seed::Zeros } else { Seed::Ones };
        let signature = match bfs & !(BfsPsv::SEED_ZERO | BfsPsv::REPEAT) {
            0 if bfs == 0 => Signature::T10Dif(self.dif()?),
            BfsPsv::CRC32 => Signature::Crc32(seed),
            BfsPsv::CRC32C => Signature::Crc32c(seed),
            BfsPsv::CRC64_XP10 => Signature::Crc64Xp10(seed),
            _ => return Err(unknown_code(self.bfs_at, if wire { "w_bfs" } else { "m_bfs" }, bfs)),
        };
        Ok(Some(Domain { signature, block_size }))
    }

    fn dif(&self) -> Result<T10Dif, Finding> {
        let flags = DifFlags::from_bits(self.inline.dif_flags);
        Ok(T10Dif {
            guard: match self.inline.sig_type {
                InlineDif::SIG_CRC => Guard::Crc,
                InlineDif::SIG_IP_CHECKSUM => Guard::IpChecksum,
                code => {
                    let offset = self.inline_at + offset_of!(InlineDif, sig_type);
                    return Err(Finding { offset, problem: Problem::GuardType { code } });
                }
            },
            seed: match RepeatSeed::from_bits(self.inline.rp_inv_seed).seed_ones() {
                true => Seed::Ones,
                false => Seed::Zeros,
            },
            app_tag: self.inline.app_tag.get(),
            ref_tag: self.inline.ref_tag.get(),
            ref_remap: flags.inc_ref_tag(),
            escape: match (flags.app_escape(), flags.app_ref_escape()) {
                (_, true) => Escape::AppAndRefTag,
                (true, false) => Escape::AppTag,
                (false, false) => Escape::Never,
            },
        })
    }
}

/// Returns the parts of a BSF that belong to memory domain and wire domain, in this order and before
/// decoding.
pub(super) fn domains(offset: usize, bsf: &SignatureBsf) -> [DomainView<'_>; 2] {
    // If both domains have the same block structure, the byte `wire` is a copy mask, and the selector
    // `memory` counts for both domains.
    let same = BsfSize::from_bits(bsf.bsf_size_sbs).same_block_structure();
    let memory_at = offset + offset_of!(SignatureBsf, memory);
    let memory = DomainView {
        name: "memory",
        selector: bsf.memory,
        selector_at: memory_at,
        bfs_psv: BfsPsv::from_bits(bsf.memory_bfs_psv.get()),
        bfs_at: offset + offset_of!(SignatureBsf, memory_bfs_psv),
        inline: &bsf.memory_inline,
        inline_at: offset + offset_of!(SignatureBsf, memory_inline),
    };
    let wire = DomainView {
        name: "wire",
        selector: if same { bsf.memory } else { bsf.wire },
        selector_at: if same { memory_at } else { offset + offset_of!(SignatureBsf, wire) },
        bfs_psv: BfsPsv::from_bits(bsf.wire_bfs_psv.get()),
        bfs_at: offset + offset_of!(SignatureBsf, wire_bfs_psv),
        inline: &bsf.wire_inline,
        inline_at: offset + offset_of!(SignatureBsf, wire_inline),
    };
    [memory, wire]
}

/// Decodes the block signature in a signature BSF. Returns `None` for an empty BSF.
fn signature(offset: usize, bsf: &SignatureBsf) -> Result<Option<BlockSignature>, Finding> {
    let [memory, wire] = domains(offset, bsf);
    let block = match (memory.read()?, wire.read()?) {
        (Some(memory), Some(wire)) => BlockSignature::both(memory, wire),
        (Some(memory), None) => BlockSignature::memory(memory),
        (None, Some(wire)) => BlockSignature::wire(wire),
        (None, None) => return Ok(None),
    };
    let block = block.with_check_mask(bsf.check_byte_mask);
    if !BsfSize::from_bits(bsf.bsf_size_sbs).same_block_structure()
        || block.effective_copy_mask() == Some(bsf.wire)
    {
        return Ok(Some(block));
    }
    let copied = block.with_copy_mask(bsf.wire).map_err(|_| Finding {
        offset: offset + offset_of!(SignatureBsf, wire),
        problem: Problem::CopyMaskStructure,
    })?;
    Ok(Some(copied))
}
