//! Models of lists (KLM, KSM) in registered memory, and checks of the requests that refer to such lists.

use crate::input::Input;
use crate::values;
use hil_scenarios::request::{Entries, OwnedList};
use mlx5_mkey::error::ConfigError;
use mlx5_mkey::inspect::{Body, LayoutView, Umr, WorkRequest};
use mlx5_mkey::mkey::{KlmEntry, KsmEntry, MkeyAttributes, MkeyKind, RegisteredList};
use mlx5_mkey::types::{Key, KsmEntrySize};
use mlx5_mkey::wire::Wqebb;

/// Bytes of a UMR before its entries: control segments and mkey context.
const HEAD: usize = 128;

/// Chooses a list. Most lists suit this kind of mkey and fill a multiple of 64 bytes.
pub(super) fn choose(input: &mut Input<'_>, kind: &MkeyKind) -> OwnedList {
    let count = match input.below(8) {
        0 => input.below(300),
        1 => input.pick(&[0, 3, 64]),
        2 => input.below(9),
        _ => 4 + 4 * input.below(2),
    };
    let (address, key) = (values::edge(input), values::key(input));
    let others = [None, KsmEntrySize::new(4096).ok(), KsmEntrySize::new(8192).ok()];
    let entry_size = if input.one_in(8) { input.pick(&others) } else { kind.entry_size };
    // Half of the lists divide one range into pieces: such a list takes few bytes of the input.
    let pieces = input.any::<bool>().then(|| values::klm(input));
    let mut entry = |number: u32| match pieces {
        Some(KlmEntry { address, length, key }) => {
            KlmEntry { address: address.wrapping_add(u64::from(number) << 12), length, key }
        }
        None => values::klm(input),
    };
    let all: Vec<_> = (0..count).map(&mut entry).collect();
    let entries = match entry_size {
        Some(size) => {
            let of = |entry: &KlmEntry| KsmEntry { address: entry.address, key: entry.key };
            Entries::Ksm(size, all.iter().map(of).collect())
        }
        None => Entries::Klm(all),
    };
    let memory = vec![Wqebb([0xa5; 64]); RegisteredList::blocks_for(count as usize)];
    let past = address % RegisteredList::ALIGNMENT;
    let refused = RegisteredList::new(&mut [], address, key).err();
    assert_eq!(refused, (past != 0).then_some(ConfigError::ListAddress { past: past as u16 }));
    OwnedList { entries, address: address - past, key, memory }
}

/// Returns the error with which the library must refuse an entry that is empty or too long.
pub(super) fn check_lengths(entries: &[KlmEntry]) -> Result<(), ConfigError> {
    let mut lengths = (0..).zip(entries).map(|(index, entry)| (index, entry.length));
    let wrong = lengths.find(|(_, length)| *length == 0 || *length > KlmEntry::MAX_BYTES);
    wrong.map_or(Ok(()), |(index, length)| Err(ConfigError::EntryLength { index, length }))
}

pub(super) fn count(list: &OwnedList) -> u32 {
    match &list.entries {
        Entries::Klm(entries) => entries.len() as u32,
        Entries::Ksm(_, entries) => entries.len() as u32,
    }
}

/// Returns the number of bytes that the list maps.
pub(super) fn length(list: &OwnedList) -> u64 {
    match &list.entries {
        Entries::Klm(entries) => entries.iter().map(|entry| u64::from(entry.length)).sum(),
        Entries::Ksm(size, entries) => u64::from(size.bytes()) * entries.len() as u64,
    }
}

pub(super) fn entry_size(list: &OwnedList) -> Option<KsmEntrySize> {
    match &list.entries {
        Entries::Klm(_) => None,
        Entries::Ksm(size, _) => Some(*size),
    }
}

/// Asserts that the entries are in memory, padded with zeros to a multiple of 64 bytes, and that the request
/// holds their address.
pub(super) fn verify(list: &OwnedList, umr: &Umr<'_>) {
    let wire = |address: u64, length: u32, key: Key| {
        let mut bytes = [0; 16];
        bytes[..4].copy_from_slice(&length.to_be_bytes());
        bytes[4..8].copy_from_slice(&key.get().to_be_bytes());
        bytes[8..].copy_from_slice(&address.to_be_bytes());
        bytes
    };
    let mut wanted: Vec<[u8; 16]> = match &list.entries {
        Entries::Klm(entries) => {
            entries.iter().map(|entry| wire(entry.address, entry.length, entry.key)).collect()
        }
        Entries::Ksm(_, entries) => entries.iter().map(|entry| wire(entry.address, 0, entry.key)).collect(),
    };
    wanted.resize(wanted.len().next_multiple_of(4), [0; 16]);
    let octowords = wanted.len();
    assert_eq!(bytes(&list.memory)[..octowords * 16], *wanted.as_flattened());
    assert_eq!(usize::from(umr.control().klm_octowords.get()), octowords);
    let pointer = umr.pointer().expect("where the list is");
    let said = (pointer.address.get(), pointer.mkey.get(), pointer.byte_count.get());
    assert_eq!(said, (list.address, list.key.get(), octowords as u32 * 16));
}

/// With a list in registered memory, the BSFs follow the list there. Calls `read` with a copy of the request
/// that contains these BSFs itlist.
pub(super) fn with_bsfs(list: &OwnedList, request: &[u8], bsfs: usize, read: impl FnOnce(Umr<'_>)) {
    let mut inline = request[..HEAD].to_vec();
    inline[7] = (8 + 4 * bsfs) as u8;
    // The copy of the request gets the inline bit, and has no entries.
    inline[16] |= 0x80;
    inline[20..22].fill(0);
    let behind = (count(list) as usize).div_ceil(4) * 64;
    inline.extend(&bytes(&list.memory)[behind..][..bsfs * 64]);
    let request = WorkRequest::parse(&inline).expect("a block");
    let Body::Configure(umr) = request.body() else { panic!("{request:?}") };
    read(umr);
}

fn bytes(blocks: &[Wqebb]) -> Vec<u8> {
    blocks.iter().flat_map(|block| block.0).collect()
}

/// Returns the error with which the library must refuse more entries than the mkey has room for.
pub(super) fn room(kind: &MkeyKind, entries: u64) -> Result<(), ConfigError> {
    let max = kind.max_entries.min(MkeyAttributes::MAX_ENTRIES);
    if entries > max.into() { Err(ConfigError::TooManyEntries { max }) } else { Ok(()) }
}

/// Returns the error with which the library must refuse to place `count` entries in an mkey, from the index
/// `first` on.
pub(super) fn place(
    kind: &MkeyKind,
    first: u32,
    count: u32,
    entry_size: Option<KsmEntrySize>,
) -> Result<(), ConfigError> {
    if !first.is_multiple_of(4) {
        return Err(ConfigError::EntryInBlock { first });
    }
    if count > 0 && entry_size != kind.entry_size {
        return Err(ConfigError::OtherEntries { layout: entry_size, mkey: kind.entry_size });
    }
    room(kind, u64::from(first) + u64::from(count))
}

/// Asserts that a request replaces entries from this index on, and sets the length if one is given. All else
/// must stay unchanged.
pub(super) fn verify_part(umr: &Umr<'_>, first: u32, length: Option<u64>) {
    assert_eq!((umr.first_replaced(), umr.length()), (Some(first.into()), length));
    let mask = umr.mask().with_len(false).into_bits();
    assert_eq!((mask, umr.access(), umr.tag(), umr.error_count()), (0, None, None, None));
}

/// Asserts that the request holds these entries.
pub(super) fn verify_entries(umr: &Umr<'_>, entries: &[KlmEntry]) {
    assert_eq!(usize::from(umr.control().klm_octowords.get()), entries.len().next_multiple_of(4));
    let layout = umr.layout();
    let written = layout.iter().flat_map(LayoutView::list_entries);
    // A list whose first key equals the code of an interleaved layout reads as an interleaved layout.
    let is_ambiguous = entries.first().is_some_and(|first| first.key == Key::from_raw(0x400));
    // If a request places entries at an offset, and all words of the entries look like page addresses, the
    // decoder reads the entries as pages.
    if let Some(LayoutView::Pages(pages)) = layout {
        let words = entries
            .iter()
            .flat_map(|entry| [u64::from(entry.length) << 32 | u64::from(entry.key.get()), entry.address]);
        assert!(pages.iter().map(|page| page.get()).eq(words.take(pages.len())));
        return;
    }
    assert!(is_ambiguous || written.take(entries.len()).eq(entries.iter().copied()));
}
