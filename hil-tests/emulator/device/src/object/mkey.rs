//! Memory keys: mkeys of registered regions, and indirect mkeys that a UMR fills (PRM `mkc`).

use alloc::vec::Vec;
use mlx5_mkey::wire::klm::Klm;
use mlx5_mkey::wire::mkey_context::{AccessByte, MkeyContext, OrderingByte, PageByte};
use mlx5_mkey::wire::strided::{StridedEntry, StridedHeader};

/// Access rights of a key (PRM `mkc` bits `lr`, `lw`, `rr`, `rw`, `a`; `enum ibv_access_flags`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Access {
    /// The owner may read. The right is on by default.
    pub local_read: bool,
    /// The owner may write (receive, RDMA READ).
    pub local_write: bool,
    /// Peers may read.
    pub remote_read: bool,
    /// Peers may write.
    pub remote_write: bool,
    /// Peers may do atomics.
    pub remote_atomic: bool,
}

impl Access {
    /// Local read only: the rights of a region that a verbs program registers with access flags of 0.
    pub const LOCAL_READ: Self = Self {
        local_read: true,
        local_write: false,
        remote_read: false,
        remote_write: false,
        remote_atomic: false,
    };
    /// Local read and write.
    pub const LOCAL: Self = Self { local_write: true, ..Self::LOCAL_READ };
    /// All rights.
    pub const ALL: Self = Self { remote_read: true, remote_write: true, remote_atomic: true, ..Self::LOCAL };

    /// Decodes the access byte of an mkey context.
    pub const fn from_byte(byte: u8) -> Self {
        let bits = AccessByte::from_bits(byte);
        Self {
            local_read: bits.local_read(),
            local_write: bits.local_write(),
            remote_read: bits.remote_read(),
            remote_write: bits.remote_write(),
            remote_atomic: bits.atomic(),
        }
    }
}

/// The attributes of a new indirect mkey, whose entries name other mkeys (PRM CREATE_MKEY, `struct
/// mlx5dv_mkey_init_attr`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MkeyAttributes {
    /// Protection domain.
    pub pd: u32,
    /// Room for translation entries, in entries of 16 bytes (PRM `translations_octword_size`).
    pub translations: u32,
    /// Whether the mkey has room for a signature BSF (`BLOCK_SIGNATURE`).
    pub signature: bool,
    /// Whether the mkey has room for a crypto BSF (`CRYPTO`). Transfers through this mkey are refused until a
    /// UMR writes crypto attributes.
    pub crypto: bool,
    /// Access rights until a UMR changes them.
    pub access: Access,
    /// The low byte of the key.
    pub tag: u8,
    /// Whether SEND with invalidation may free the key (`REMOTE_INVALIDATE`).
    pub remote_invalidate: bool,
    /// Whether the key starts free, that is, unusable until a UMR configures it.
    pub free: bool,
    /// Bytes of each entry, as a logarithm of at most 31 (access mode KSM, `log_entity_size`); `None` where
    /// each has a length of its own (KLM).
    pub log_entry: Option<u8>,
    /// Whether writes through the key may pass one another (`relaxed_ordering_write`), and whether reads may
    /// pass writes (`relaxed_ordering_read`).
    pub relaxed_ordering: [bool; 2],
}

impl MkeyAttributes {
    /// Returns the attributes of an indirect mkey without signature and crypto: local rights, tag 0, free.
    pub const fn new(pd: u32, translations: u32) -> Self {
        Self {
            pd,
            translations,
            signature: false,
            crypto: false,
            access: Access::LOCAL,
            tag: 0,
            remote_invalidate: false,
            free: true,
            log_entry: None,
            relaxed_ordering: [false; 2],
        }
    }

    /// Decodes the attributes in the context of CREATE_MKEY, for access modes KLM and KSM.
    pub fn of_context(context: &MkeyContext) -> Self {
        /// The low bits of access mode KSM: all entries have one length.
        const KSM: u8 = 3;
        let (flags, page) = (context.flags_pd_word(), PageByte::from_bits(context.page));
        // `crypto_en`, for which the structure has no field.
        let crypto = context.reserved4.get() >> 27 & 3 != 0;
        let bsf_octowords = if flags.bsf_enable() { context.bsf_octowords.get() } else { 0 };
        Self {
            translations: context.translations_octowords.get(),
            // The mkey has one BSF of 4 octowords for each feature.
            signature: bsf_octowords >= if crypto { 8 } else { 4 },
            crypto,
            access: Access::from_byte(context.access),
            tag: context.qpn_mkey_word().tag(),
            remote_invalidate: flags.remote_invalidate(),
            free: context.is_free(),
            log_entry: (context.access & 3 == KSM).then_some(page.log_page_size()),
            relaxed_ordering: [
                OrderingByte::from_bits(context.ordering).relaxed_ordering_write(),
                page.relaxed_ordering_read(),
            ],
            ..Self::new(flags.pd(), 0)
        }
    }
}

/// The address space of a key that CREATE_MKEY creates together with its entries (PRM `klm_pas_mtt`). UMRs
/// cannot change it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MkeySpace {
    /// First address of the space.
    pub start: u64,
    /// Length of the space in bytes.
    pub length: u64,
    /// The entries that make up the space, in order.
    pub entries: Vec<Klm>,
}

impl MkeySpace {
    /// Returns the number of bytes that the entries cover.
    fn covered(&self, log_entry: Option<u8>) -> u64 {
        match log_entry {
            Some(log) => (self.entries.len() as u64) << log.min(31),
            None => self.entries.iter().map(|entry| u64::from(entry.byte_count.get())).sum(),
        }
    }

    /// Returns whether entries cover every byte of the space, and all addresses fit 64 bits.
    pub(crate) fn is_whole(&self, log_entry: Option<u8>) -> bool {
        self.length <= self.covered(log_entry) && self.start.checked_add(self.length).is_some()
    }
}

/// The memory behind a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Layout {
    /// A registered region that is contiguous from this address on.
    Direct(u64),
    /// A registered region on pages (access mode MTT): logarithm of the page size, and an entry for each
    /// page. The region may begin inside its first page.
    Pages(u8, Vec<PageEntry>),
    /// The memory ranges of these entries, one after the other.
    List(Vec<Klm>),
    /// The memory ranges of these entries, one after the other. The number is the logarithm of each range's
    /// length; lengths in the entries are ignored.
    Equal(u8, Vec<Klm>),
    /// An interleaved layout: each cycle takes one piece of every stream.
    Strided(StridedHeader, Vec<StridedEntry>),
}

impl Layout {
    /// Returns the layout of a list: entries with their own lengths, or all of one length.
    pub(crate) const fn of(log_entry: Option<u8>, entries: Vec<Klm>) -> Self {
        match log_entry {
            Some(log) => Self::Equal(log, entries),
            None => Self::List(entries),
        }
    }

    /// Returns whether the layout is a list of entries.
    pub(crate) const fn is_list(&self) -> bool {
        matches!(self, Self::List(_) | Self::Equal(..))
    }

    /// Replaces the entries of a list from `first` on. The caller ensures that the mkey has room for them.
    pub(crate) fn replace(&mut self, first: usize, new: &[Klm]) {
        let (Self::List(entries) | Self::Equal(_, entries)) = self else { return };
        write_over(entries, first, new, Klm::PADDING);
    }
}

/// A page of a region, as MTT entries contain it: the address, and rights in the lowest two bits
/// (`MLX5_IB_MTT_READ`, `MLX5_IB_MTT_WRITE` of Linux). Without its bit, the device may not read or write the
/// page.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct PageEntry(pub(crate) u64);

impl PageEntry {
    const READ: u64 = 1;
    const WRITE: u64 = 2;

    /// Returns whether the device may write to the page (`writes`), or whether it may read the page.
    pub(crate) const fn allows(self, writes: bool) -> bool {
        self.0 & (if writes { Self::WRITE } else { Self::READ }) != 0
    }

    /// Returns the address of the page, which has `bytes` bytes.
    pub(crate) const fn address(self, bytes: u64) -> u64 {
        self.0 & !(bytes.saturating_sub(1) | Self::READ | Self::WRITE)
    }
}

/// Writes entries over others, from entry `first` on. `empty` fills a gap before them. Empty entries at the
/// end are removed.
pub(crate) fn write_over<T: Copy + PartialEq>(entries: &mut Vec<T>, first: usize, new: &[T], empty: T) {
    entries.resize(entries.len().max(first.saturating_add(new.len())), empty);
    for (entry, new) in entries.iter_mut().skip(first).zip(new) {
        *entry = *new;
    }
    trim(entries, empty);
}

/// Removes empty entries at the end.
pub(crate) fn trim<T: Copy + PartialEq>(entries: &mut Vec<T>, empty: T) {
    let used = entries.iter().rposition(|entry| *entry != empty).map_or(0, |last| last + 1);
    entries.truncate(used);
}

/// The 64 bytes of a BSF, as a UMR has written them.
pub(crate) type BsfBytes = [u8; 64];

/// The state of an mkey. Two states can be compared and printed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MkeyView(pub(crate) Mkey);

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Mkey {
    pub(crate) tag: u8,
    pub(crate) pd: u32,
    pub(crate) free: bool,
    pub(crate) access: Access,
    /// First address of the key's space.
    pub(crate) start: u64,
    /// Length of the key's space, in bytes of memory.
    pub(crate) length: u64,
    /// The queue pair that the key is bound to. Only this queue pair may use the key. A memory window of type
    /// 2 is bound to a queue pair.
    pub(crate) qpn: Option<u32>,
    pub(crate) remote_invalidate: bool,
    /// Whether UMRs may change the key (PRM `umr_en`).
    pub(crate) umr: bool,
    pub(crate) signature: bool,
    pub(crate) crypto: bool,
    /// Room for translation entries, in entries of 16 bytes.
    pub(crate) translations: u32,
    /// Logarithm of the length of each entry, if all entries have one length.
    pub(crate) log_entry: Option<u8>,
    pub(crate) layout: Layout,
    pub(crate) bsf_enabled: bool,
    pub(crate) signature_bsf: Option<BsfBytes>,
    pub(crate) crypto_bsf: Option<BsfBytes>,
    /// Bit 0 of the count of signature errors that software has seen, as the last UMR wrote it.
    pub(crate) errors_expected: bool,
    /// Bit 0 of the count of signature errors that the device has reported.
    pub(crate) errors_counted: bool,
    /// Whether writes may pass one another, and whether reads may pass writes. This device never reorders
    /// them.
    pub(crate) relaxed_ordering: [bool; 2],
}

impl Mkey {
    pub(crate) fn region(pd: u32, memory: u64, start: u64, length: u64, access: Access) -> Self {
        Self {
            tag: 0,
            pd,
            free: false,
            access,
            start,
            length,
            qpn: None,
            remote_invalidate: false,
            umr: false,
            signature: false,
            crypto: false,
            translations: 0,
            log_entry: None,
            layout: Layout::Direct(memory),
            bsf_enabled: false,
            signature_bsf: None,
            crypto_bsf: None,
            errors_expected: false,
            errors_counted: false,
            relaxed_ordering: [false; 2],
        }
    }

    pub(crate) fn indirect(attributes: MkeyAttributes) -> Self {
        Self {
            tag: attributes.tag,
            free: attributes.free,
            remote_invalidate: attributes.remote_invalidate,
            umr: true,
            signature: attributes.signature,
            crypto: attributes.crypto,
            translations: attributes.translations,
            // Keys with signature or crypto are created with BSFs in force, before the first BSF is written.
            bsf_enabled: attributes.signature || attributes.crypto,
            log_entry: attributes.log_entry,
            layout: Layout::of(attributes.log_entry, Vec::new()),
            relaxed_ordering: attributes.relaxed_ordering,
            ..Self::region(attributes.pd, 0, 0, 0, attributes.access)
        }
    }

    /// Creates an mkey whose entries name ranges of other mkeys. UMRs cannot change it.
    pub(crate) fn over(attributes: MkeyAttributes, space: MkeySpace) -> Self {
        let MkeySpace { start, length, entries } = space;
        Self {
            start,
            length,
            umr: false,
            bsf_enabled: false,
            layout: Layout::of(attributes.log_entry, entries),
            ..Self::indirect(attributes)
        }
    }

    /// Creates a region on pages, without page entries. The creating command or a UMR adds the entries.
    pub(crate) fn on_pages(attributes: MkeyAttributes, log_page: u8) -> Self {
        Self { layout: Layout::Pages(log_page, Vec::new()), ..Self::indirect(attributes) }
    }

    /// Sets the size of pages, or of entries of one length, as a logarithm. Other layouts stay unchanged,
    /// because they have neither.
    pub(crate) const fn set_entry_size(&mut self, log: u8) {
        if let Layout::Pages(size, _) | Layout::Equal(size, _) = &mut self.layout {
            *size = log;
        }
        if let Some(size) = &mut self.log_entry {
            *size = log;
        }
    }

    /// Returns whether the device reports a signature error of this key.
    ///
    /// Assumption: the device reports an error if the count that software wrote differs from its own count.
    /// Each written count thus allows one report. The reference provider writes 1 first, and the next number
    /// after each error that it has seen.
    pub(crate) const fn reports_errors(&self) -> bool {
        self.errors_expected != self.errors_counted
    }

    /// Returns whether the key may transform bytes, so that the wire bytes differ from the memory bytes: BSFs
    /// are in force, or the key was created for crypto.
    pub(crate) const fn changes_bytes(&self) -> bool {
        self.bsf_enabled || self.crypto
    }

    /// Makes the key unusable, as LOCAL_INV and SEND with invalidation do: layout and BSFs stay.
    pub(crate) const fn invalidate(&mut self) {
        self.free = true;
    }
}
