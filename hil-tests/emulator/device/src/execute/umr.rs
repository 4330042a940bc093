//! UMR: changes of an mkey by a work request (DEVICE.md, "Fields of a UMR"). All checks come before the first
//! change.

use crate::faults::Faults;
use crate::fetch::{Umr, UmrLists};
use crate::object::Objects;
use crate::object::mkey::{Access, BsfBytes, Layout, Mkey, PageEntry, trim, write_over};
use crate::object::qp::Transport;
use crate::profile::DeviceProfile;
use crate::refusal::Reason;
use crate::translate::Asker;
use alloc::vec::Vec;
use mlx5_mkey::types::Key;
use mlx5_mkey::wire::OCTOWORD_BYTES;
use mlx5_mkey::wire::bsf::BsfSize;
use mlx5_mkey::wire::klm::Klm;
use mlx5_mkey::wire::mkey_context::{OrderingByte, PageByte, QpnMkey};
use mlx5_mkey::wire::strided::{StridedEntry, StridedHeader};
use mlx5_mkey::wire::umr::UmrControlSegment;

/// UMR control flag: refuse the UMR if the mkey is free. The inverse flag, bit 5 (the kernel's CHECK_FREE),
/// refuses the UMR if the mkey is in use.
const CHECK_USED: u8 = 1 << 6;

/// The number of translation entries in a block of 64 bytes.
const BLOCK_ENTRIES: usize = 4;

/// The number of page entries in an octoword.
const PAGES_OF_OCTOWORD: usize = 2;

/// The reserved flags of the UMR control segment, which must be 0.
const RESERVED_FLAGS: u8 = 0b111;

/// Bits of the mkey mask (DEVICE.md, "Fields of a UMR"). The device ignores other bits: no public source
/// shows a device that refuses them.
mod mask {
    pub(super) const LEN: u64 = 1 << 0;
    pub(super) const PAGE_SIZE: u64 = 1 << 1;
    pub(super) const START_ADDR: u64 = 1 << 6;
    pub(super) const PD: u64 = 1 << 7;
    pub(super) const EN_RINVAL: u64 = 1 << 8;
    pub(super) const SIG_ERR: u64 = 1 << 9;
    pub(super) const BSF_EN: u64 = 1 << 12;
    pub(super) const MKEY: u64 = 1 << 13;
    pub(super) const QPN: u64 = 1 << 14;
    pub(super) const LR: u64 = 1 << 17;
    pub(super) const LW: u64 = 1 << 18;
    pub(super) const RR: u64 = 1 << 19;
    pub(super) const RW: u64 = 1 << 20;
    pub(super) const A: u64 = 1 << 21;
    pub(super) const RELAXED_WRITE: u64 = 1 << 25;
    pub(super) const FREE: u64 = 1 << 29;
    pub(super) const RELAXED_READ: u64 = 1 << 47;
    /// The bits that the device accepts only with the capabilities for relaxed ordering.
    pub(super) const RELAXED: u64 = RELAXED_WRITE | RELAXED_READ;
}

/// Applies a UMR that a queue pair executes.
///
/// Assumption: the kernel driver's queue pair ([`Transport::Umr`]) changes mkeys of all protection domains,
/// and may move an mkey to another domain. Linux moves a region that it has revoked into the domain of its
/// cache, so that the user's domain can be freed.
pub(super) fn apply(
    objects: &mut Objects,
    asker: Asker,
    transport: Transport,
    umr: &Umr,
    profile: &DeviceProfile,
    faults: &Faults,
) -> Result<(), Reason> {
    let key = umr.key;
    // Assumption: the device finds the mkey by the index and does not compare the tag, since the UMR itself
    // may change the tag.
    let index = Key::from_raw(umr.key).index().get();
    let is_driver = transport == Transport::Umr;
    let flags = umr.context.flags_pd_word();
    let select = umr.control.mkey_mask.get();
    let has_domain = if is_driver { objects.pds.get(flags.pd()).is_some() } else { flags.pd() == asker.pd };
    let mkey = objects.mkeys.get_mut(index).ok_or(Reason::UnknownKey { key })?;
    if !mkey.umr {
        return Err(Reason::NoUmr { key });
    }
    if mkey.pd != asker.pd && !is_driver && !faults.umr_domain_ignored {
        return Err(Reason::KeyDomain { key, domain: mkey.pd, asked: asker.pd });
    }
    check_flags(mkey, asker.qpn, umr, faults)?;
    if !reserved_is_zero(&umr.control, profile) {
        return Err(Reason::UmrReserved);
    }
    if select & mask::RELAXED != 0 && !profile.relaxed_ordering {
        return Err(Reason::UmrRelaxed);
    }
    if select & mask::PD != 0 && !has_domain {
        return Err(Reason::UmrDomain { domain: flags.pd() });
    }
    if select & mask::QPN != 0 && faults.binding_refused {
        return Err(Reason::UmrBinding);
    }
    // The caller ensures that lists in memory were read into the UMR before.
    let UmrLists::Inline { translations, bsfs: blocks } = &umr.lists else { return Err(Reason::UmrReserved) };
    let change = layout(mkey, umr.translation_offset, translations)?;
    let length = if select & mask::LEN != 0 { umr.context.len.get() } else { 0 };
    if !blocks.is_empty() && length > u64::from(u32::MAX) {
        return Err(Reason::LengthOver32Bits { length });
    }
    let bsfs = bsfs(mkey, blocks)?;
    if faults.local_inv_ignored && select & mask::FREE != 0 && umr.context.is_free() {
        return Ok(());
    }

    let on = |bit: u64| select & bit != 0;
    match change {
        Change::None => {}
        Change::All(layout) => mkey.layout = layout,
        Change::From(first, entries) => mkey.layout.replace(first, &entries),
        Change::Pages(first, pages) => {
            if let Layout::Pages(_, known) = &mut mkey.layout {
                if first.is_none() {
                    known.clear();
                }
                write_over(known, first.unwrap_or(0), &pages, PageEntry::default());
            }
        }
    }
    if select & mask::PAGE_SIZE != 0 {
        mkey.set_entry_size(PageByte::from_bits(umr.context.page).log_page_size());
    }
    if is_driver {
        set(&mut mkey.pd, select & mask::PD != 0, flags.pd());
    }
    if let Some((signature, crypto)) = bsfs {
        (mkey.signature_bsf, mkey.crypto_bsf) = (signature, crypto);
    }
    let word = umr.context.qpn_mkey_word();
    set(&mut mkey.free, on(mask::FREE), umr.context.is_free());
    set(&mut mkey.tag, on(mask::MKEY), word.tag());
    set(&mut mkey.qpn, on(mask::QPN), (word.qpn() != QpnMkey::ANY).then_some(word.qpn()));
    set(&mut mkey.length, on(mask::LEN), umr.context.len.get());
    set(&mut mkey.start, on(mask::START_ADDR), umr.context.start_addr.get());
    set(&mut mkey.remote_invalidate, on(mask::EN_RINVAL), flags.remote_invalidate());
    set(&mut mkey.bsf_enabled, on(mask::BSF_EN), flags.bsf_enable());
    set(&mut mkey.errors_expected, on(mask::SIG_ERR), flags.sig_err_count());
    let [write, read] = &mut mkey.relaxed_ordering;
    let ordering = OrderingByte::from_bits(umr.context.ordering);
    set(write, on(mask::RELAXED_WRITE), ordering.relaxed_ordering_write());
    set(read, on(mask::RELAXED_READ), PageByte::from_bits(umr.context.page).relaxed_ordering_read());
    let access = Access::from_byte(umr.context.access);
    set(&mut mkey.access.local_read, on(mask::LR), access.local_read);
    set(&mut mkey.access.local_write, on(mask::LW), access.local_write);
    set(&mut mkey.access.remote_read, on(mask::RR), access.remote_read);
    set(&mut mkey.access.remote_write, on(mask::RW), access.remote_write);
    set(&mut mkey.access.remote_atomic, on(mask::A), access.remote_atomic);
    Ok(())
}

/// Returns whether all reserved bytes are 0 (DEVICE.md, "Reserved bytes of a UMR").
fn reserved_is_zero(control: &UmrControlSegment, profile: &DeviceProfile) -> bool {
    let has_upper_offset = profile.extended_offsets && control.flag_bits().translation_offset();
    control.flags & RESERVED_FLAGS == 0
        && (has_upper_offset || control.translation_offset_47_16.get() == 0)
        && control.reserved0 == [0; 3]
        && control.reserved1.iter().all(|word| word.get() == 0)
}

fn set<T>(field: &mut T, selected: bool, value: T) {
    if selected {
        *field = value;
    }
}

/// Checks the flags of a UMR. Assumption: an mkey that is bound to no queue pair passes CHECK_QPN, the check
/// of the bound queue pair that LOCAL_INV asks for.
fn check_flags(mkey: &Mkey, qpn: u32, umr: &Umr, faults: &Faults) -> Result<(), Reason> {
    let flags = umr.control.flag_bits();
    let key = umr.key;
    if let Some(qpn) = mkey.qpn.filter(|bound| *bound != qpn)
        && flags.check_qpn()
        && !faults.check_qpn_ignored
    {
        return Err(Reason::CheckQpn { key, qpn });
    }
    if flags.check_free() && !mkey.free && !faults.check_free_ignored {
        return Err(Reason::CheckFree { key });
    }
    if umr.control.flags & CHECK_USED != 0 && mkey.free {
        return Err(Reason::CheckUsed { key });
    }
    Ok(())
}

/// The change that a UMR makes to the layout.
enum Change {
    None,
    All(Layout),
    /// Replaces list entries in groups of four (64 bytes), from the entry with this number on.
    From(usize, Vec<Klm>),
    /// Replaces page entries, from the entry with this number on. `None` replaces all page entries.
    Pages(Option<usize>, Vec<PageEntry>),
}

/// Decodes translation entries to a change of the layout. `offset` is the octoword of the first entry to
/// replace; without it, all entries are replaced.
fn layout(mkey: &Mkey, offset: Option<u64>, translations: &[[u8; OCTOWORD_BYTES]]) -> Result<Change, Reason> {
    let Some(first) = translations.first() else { return Ok(Change::None) };
    if let Layout::Pages(..) = mkey.layout {
        return pages(mkey, offset, translations);
    }
    let header: StridedHeader = zerocopy::transmute!(*first);
    // Assumptions: an interleaved layout has no other entries, and a code in the place of a list entry's key
    // identifies the header of this layout. An mkey for entries of one length has no interleaved layout.
    if mkey.log_entry.is_none() && header.op.get() == StridedHeader::OPCODE {
        let count = usize::from(header.num_entries.get());
        let octowords = translations.len() as u64;
        let wrong = Reason::StridedCount { entries: header.num_entries.get(), octowords };
        let entries = translations.get(1..=count).ok_or(wrong)?;
        room(mkey, count.saturating_add(1))?;
        let entries: Vec<StridedEntry> = entries.iter().map(|bytes| zerocopy::transmute!(*bytes)).collect();
        return Ok(Change::All(Layout::Strided(header, entries)));
    }
    let mut entries: Vec<Klm> = translations.iter().map(|bytes| zerocopy::transmute!(*bytes)).collect();
    let written = entries.len();
    trim(&mut entries, Klm::PADDING);
    // Entries are written in groups of 64 bytes (kernel `MLX5_UMR_FLEX_ALIGNMENT`), so padding overwrites
    // entries too.
    if let Some(offset) = offset
        && mkey.layout.is_list()
    {
        let offset = block_offset(offset)?;
        room(mkey, offset.saturating_add(entries.len()))?;
        entries.resize(written.next_multiple_of(BLOCK_ENTRIES), Klm::PADDING);
        return Ok(Change::From(offset, entries));
    }
    room(mkey, entries.len())?;
    Ok(Change::All(Layout::of(mkey.log_entry, entries)))
}

/// Decodes the entries of a region on pages: an octoword contains two.
fn pages(mkey: &Mkey, offset: Option<u64>, translations: &[[u8; OCTOWORD_BYTES]]) -> Result<Change, Reason> {
    let (words, _) = translations.as_flattened().as_chunks();
    let mut pages: Vec<_> = words.iter().map(|word| PageEntry(u64::from_be_bytes(*word))).collect();
    let first = offset.map(block_offset).transpose()?;
    // Padding needs no room in the mkey.
    let written = pages.len();
    trim(&mut pages, PageEntry::default());
    room(mkey, first.unwrap_or(0).saturating_add(pages.len().div_ceil(PAGES_OF_OCTOWORD)))?;
    if first.is_some() {
        pages.resize(written, PageEntry::default());
    }
    Ok(Change::Pages(first.map(|first| first.saturating_mul(PAGES_OF_OCTOWORD)), pages))
}

/// Returns `first`, the octoword of the first replaced entry, as an index. The entry must begin a block of 64
/// bytes.
fn block_offset(first: u64) -> Result<usize, Reason> {
    let offset = usize::try_from(first).ok().filter(|first| *first <= u32::MAX as usize);
    let offset = offset.ok_or(Reason::OffsetTooLarge { first })?;
    if offset.is_multiple_of(BLOCK_ENTRIES) { Ok(offset) } else { Err(Reason::ReplacedInBlock { first }) }
}

fn room(mkey: &Mkey, entries: usize) -> Result<(), Reason> {
    let room = mkey.translations;
    let over = Reason::EntriesOverRoom { entries: entries as u64, room };
    if entries > room as usize { Err(over) } else { Ok(()) }
}

type Bsfs = (Option<BsfBytes>, Option<BsfBytes>);

/// Decodes the list of BSFs in a UMR to a signature BSF and a crypto BSF. Returns `None` if the UMR changes
/// neither. A UMR always writes both: it removes the BSF that its list does not contain.
fn bsfs(mkey: &Mkey, list: &[BsfBytes]) -> Result<Option<Bsfs>, Reason> {
    let kind = |bytes: &BsfBytes| {
        let word = BsfSize::from_bits(bytes.first().copied().unwrap_or(0));
        (word.kind() == BsfSize::KIND_CRYPTO, word.size())
    };
    let (signature, crypto, size) = match list {
        [] => return Ok(None),
        [one] if kind(one).0 => (None, Some(one), BsfSize::WITH_INLINE),
        // A BSF of this shorter size has no attributes of block signatures. It describes a transaction
        // (DEVICE.md, "Transaction signatures").
        [one] if kind(one).1 == BsfSize::EXTENDED => (Some(one), None, BsfSize::EXTENDED),
        [one] => (Some(one), None, BsfSize::WITH_INLINE),
        [one, two] if !kind(one).0 && kind(two).0 => (Some(one), Some(two), BsfSize::SIGNATURE_AND_CRYPTO),
        _ => return Err(Reason::BsfOrder { count: list.len() as u64 }),
    };
    // An empty signature BSF only resets the signature. Its size code may be 0.
    let empty = |bytes: &BsfBytes| bytes.iter().all(|byte| *byte == 0);
    let fits = |bytes: &BsfBytes| kind(bytes).1 == size || empty(bytes);
    let allowed = (signature.is_none() || mkey.signature) && (crypto.is_none() || mkey.crypto);
    if !allowed {
        return Err(Reason::BsfNotThere);
    }
    if !signature.into_iter().chain(crypto).all(fits) {
        return Err(Reason::BsfSizeCode { wanted: size });
    }
    Ok(Some((signature.copied(), crypto.copied())))
}
