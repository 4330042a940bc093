//! Lists of entries that are not inside a WQE: in the command that creates an mkey, and in registered memory.
//! Also requests that replace entries.

use super::fixture::{
    ALL_RIGHTS, BOTH, DIF, KEY_128, PLAIN, cipher_over_dif, domain, entry, out, part, pattern, refuses_tx,
    same,
};
use super::scenario::{Scenario, scenario};
use crate::board::{Board, MkeySpec};
use crate::qp_pair::{CONFIGURE, QpPairFixture, Region, Rx, Tx, Verdict, Within, text};
use crate::{ensure, expected};
use alloc::string::String;
use alloc::vec::Vec;
use mlx5_mkey::command::MkeyEntries;
use mlx5_mkey::error::{ConfigError, PostError};
use mlx5_mkey::mkey::{
    Access, BlockSignature, InterleavedEntry, KlmEntry, KsmEntry, Layout, Mkey, MkeyAttributes, MkeyConfig,
    RegisteredList, Signature, SignatureChange,
};
use mlx5_mkey::types::KsmEntrySize;
use mlx5_mkey::wire::Wqebb;

pub(super) const ALL: &[Scenario] = &[
    scenario!(m78_an_mkey_that_brings_its_list, NOTHING, ["M78"]),
    scenario!(m78_entries_of_one_length, FIXED_ENTRIES, ["M78"]),
    scenario!(m79_more_entries_than_any_request_holds, NOTHING, ["M79"]),
    scenario!(m79_signature_and_cipher_behind_a_long_list, BOTH_UNIT, ["M79"]),
    scenario!(m80_entries_in_the_middle_are_replaced, NOTHING, ["M80"]),
    scenario!(m83_requests_change_entries_of_one_length, FIXED_ENTRIES, ["M83"]),
    scenario!(m84_more_entries_than_16_bits_count, LONG_LISTS, ["M84"]),
    scenario!(m85_an_interleaved_layout_in_memory, NOTHING, ["M85"]),
];

/// The address at which the space of each created mkey begins. It is no multiple of the page size: a program
/// may choose any address.
const START: u64 = 0x7000_0000_0123;

/// Creates an mkey by a command that contains its list of entries. Returns the mkey's position among the
/// pair's mkeys.
fn created(pair: &mut QpPairFixture<'_>, access: Access, entries: MkeyEntries<'_>) -> Result<usize, String> {
    let key = pair.board.create_list_mkey(access, START, entries)?;
    pair.mkeys.push(Mkey::new(MkeyAttributes::plain(key, 0)));
    Ok(pair.mkeys.len() - 1)
}

/// Checks that the whole space, and the bytes around each of the `edges` between entries, can be read and
/// written. Accesses to the byte before the space and to the byte after it must be refused.
fn works(pair: &mut QpPairFixture<'_>, mkey: usize, space: &[u8], edges: &[usize]) -> Verdict {
    let mut space = space.to_vec();
    let mut ranges: Vec<_> = edges.iter().map(|edge| edge - 3..edge + 5).collect();
    ranges.push(0..space.len());
    for range in ranges {
        let offset = START + range.start as u64;
        out(pair, mkey, offset, part(&space, range.clone()))?;
        for (salt, way) in (20..).zip(Rx::ALL) {
            let new = pattern(range.len(), salt);
            pair.rx(way, mkey, offset, &new)?.ok()?;
            space.splice(range.clone(), new);
            let all = pair.tx(Tx::Write, mkey, START, space.len())?.ok()?;
            same(&all, &space).within(format_args!("after {way:?} to {range:?}"))?;
        }
    }
    for (offset, length) in [(START - 1, 1), (START + space.len() as u64, 1), (START, space.len() + 1)] {
        for way in Tx::ALL {
            refuses_tx(pair, way, mkey, offset, length)?;
        }
    }
    Ok(())
}

/// The command that creates an mkey contains more entries than a WQE can. The mkey works at once, and other
/// mkeys can map its space.
fn m78_an_mkey_that_brings_its_list(board: &mut dyn Board) -> Verdict {
    let mut pair = QpPairFixture::new(board);
    let data = pattern(8000, 1);
    let region = pair.region(&data);
    let (mut entries, mut space) = (Vec::new(), Vec::new());
    for number in (0..100).rev() {
        // The first entry of the list has 46 bytes, the last one 7. The array `edges` below uses these
        // lengths.
        let range = number * 80..number * 80 + 7 + number % 60;
        entries.push(entry(&region, range.clone()));
        space.extend_from_slice(part(&data, range));
    }
    let mkey = created(&mut pair, Access::ALL, MkeyEntries::Klm(&entries))?;
    let edges = [46, space.len() - 7];
    works(&mut pair, mkey, &space, &edges)?;
    // Through a second mkey, which maps a part of the first mkey's space, the peer reads the bytes that were
    // written.
    let now = pair.tx(Tx::Write, mkey, START, space.len())?.ok()?;
    let over = pair.mkey(PLAIN);
    let inner = KlmEntry { address: START + 100, length: 300, key: pair.key(mkey) };
    pair.configure(over, &ALL_RIGHTS, Layout::List(&[inner]))?;
    same(&pair.tx(Tx::PeerRead, over, 0, 300)?.ok()?, part(&now, 100..400))?;
    // The mkey keeps the access rights that it was created with.
    let locked = created(&mut pair, Access::NONE, MkeyEntries::Klm(&entries))?;
    refuses_tx(&mut pair, Tx::PeerRead, locked, START, 8).within("a read without the right")?;
    // The library refuses a list that is too long for any device.
    let many = vec![entry(&region, 0..1); (1 << 18) + 1];
    let refused = pair.board.create_list_mkey(Access::ALL, START, MkeyEntries::Klm(&many));
    ensure!(
        refused.as_ref().is_err_and(|error| error.contains("262145 translation entries")),
        "a list of 262145 entries: {refused:?}"
    );
    Ok(())
}

/// The command that creates an mkey contains a list of entries of 4096 bytes each, which are out of order in
/// memory. The mkey is read and written correctly, also across the borders of entries.
fn m78_entries_of_one_length(board: &mut dyn Board) -> Verdict {
    const BYTES: usize = 4096;
    let mut pair = QpPairFixture::new(board);
    let data = pattern(9 * BYTES, 1);
    let region: Region = pair.region(&data);
    let order = [5, 0, 7, 2, 2, 8];
    let entries = order
        .map(|number: u64| KsmEntry { address: region.address + number * BYTES as u64, key: region.key });
    let size = KsmEntrySize::new(BYTES as u32).map_err(text)?;
    let mkey = created(&mut pair, Access::ALL, MkeyEntries::Ksm(size, &entries))?;
    let space: Vec<u8> = order
        .iter()
        .flat_map(|number| part(&data, *number as usize * BYTES..(*number as usize + 1) * BYTES).to_vec())
        .collect();
    for (offset, length) in [(0, space.len()), (BYTES - 3, 6), (5 * BYTES - 1, 2), (3 * BYTES + 17, 100)] {
        out(&mut pair, mkey, START + offset as u64, part(&space, offset..offset + length))?;
    }
    let new = pattern(BYTES + 2, 9);
    pair.rx(Rx::PeerWrite, mkey, START + (BYTES - 1) as u64, &new)?.ok()?;
    let memory = pair.bytes(&region);
    same(part(&memory, 6 * BYTES - 1..6 * BYTES), part(&new, 0..1))?;
    same(part(&memory, 0..BYTES), part(&new, 1..BYTES + 1))?;
    same(part(&memory, 7 * BYTES..7 * BYTES + 1), part(&new, BYTES + 1..BYTES + 2))?;
    refuses_tx(&mut pair, Tx::Send, mkey, START + space.len() as u64, 1).within("a byte behind the space")
}

/// Makes `count` entries of 5 bytes each, out of order in memory. Each `salt` chooses other places. Returns
/// the entries with the bytes that they map.
fn scattered(region: &Region, data: &[u8], count: usize, salt: usize) -> (Vec<KlmEntry>, Vec<u8>) {
    let (mut entries, mut space) = (Vec::new(), Vec::new());
    for number in 0..count {
        let start = (number * 7919 + salt) % (data.len() - 5);
        let range = start..start + 5;
        entries.push(entry(region, range.clone()));
        space.extend_from_slice(part(data, range));
    }
    (entries, space)
}

/// An interleaved layout in registered memory has more streams than a WQE can contain. Each cycle takes 5
/// bytes of each stream; the streams are out of order in memory.
fn m85_an_interleaved_layout_in_memory(board: &mut dyn Board) -> Verdict {
    const STREAMS: usize = 70;
    const CYCLES: usize = 3;
    const BYTES: usize = 5;
    const STRIDE: usize = 9;
    let mut pair = QpPairFixture::new(board);
    let data = pattern(STREAMS * CYCLES * STRIDE, 1);
    let region: Region = pair.region(&data);
    let begin = |stream: usize| (stream * 37 % STREAMS) * CYCLES * STRIDE;
    let streams: Vec<_> = (0..STREAMS)
        .map(|stream| InterleavedEntry {
            address: region.address + begin(stream) as u64,
            bytes: BYTES as u16,
            skip: (STRIDE - BYTES) as u16,
            key: region.key,
        })
        .collect();
    let space: Vec<u8> = (0..CYCLES)
        .flat_map(|cycle| (0..STREAMS).map(move |stream| begin(stream) + cycle * STRIDE))
        .flat_map(|start| part(&data, start..start + BYTES).to_vec())
        .collect();
    let mkey = pair.mkey(MkeySpec { entries: STREAMS as u32 + 1, ..PLAIN });
    let prepared = pair.prepare(mkey, &ALL_RIGHTS).within("configure")?;
    let mut memory = vec![Wqebb::ZERO; RegisteredList::blocks_for(STREAMS + 1)];
    let mut list = list(&mut pair, &mut memory, MkeyEntries::Klm(&[]))?;
    list.write_interleaved(CYCLES as u32, &streams).within("layout")?;
    let configured = pair.mkeys.get_mut(mkey).ok_or("no such mkey")?;
    let request = pair.near.request(CONFIGURE).signaled();
    let posted = request.configure_mkey_by_pointer(configured, &prepared, &mut list);
    posted.within("configure by pointer")?;
    show(&mut pair, &list);
    pair.finish_configuration()?;
    out(&mut pair, mkey, 0, &space)?;
    let new = pattern(BYTES + 2, 9);
    pair.rx(Rx::PeerWrite, mkey, (BYTES * STREAMS - 1) as u64, &new)?.ok()?;
    let after = pair.tx(Tx::Send, mkey, (BYTES * STREAMS - 1) as u64, new.len())?.ok()?;
    same(&after, &new)?;
    refuses_tx(&mut pair, Tx::Send, mkey, space.len() as u64, 1).within("a byte behind the space")
}

/// Configures an mkey of the near end with a list in registered memory, and waits for the completion.
fn configure_by_pointer(
    pair: &mut QpPairFixture<'_>,
    mkey: usize,
    config: &MkeyConfig,
    entries: MkeyEntries<'_>,
) -> Verdict {
    let prepared = pair.prepare(mkey, config).within("configure")?;
    let mut memory = memory_for(entries);
    let mut list = list(pair, &mut memory, entries)?;
    let mkey = pair.mkeys.get_mut(mkey).ok_or("no such mkey")?;
    let request = pair.near.request(CONFIGURE).signaled();
    let posted = request.configure_mkey_by_pointer(mkey, &prepared, &mut list);
    posted.within("configure by pointer")?;
    show(pair, &list);
    pair.finish_configuration()
}

/// Replaces entries of an mkey from index `first` on, by entries in the request, or with `by_pointer` in
/// registered memory. Waits for the completion.
fn replace_entries(
    pair: &mut QpPairFixture<'_>,
    mkey: usize,
    first: u32,
    entries: MkeyEntries<'_>,
    by_pointer: bool,
) -> Verdict {
    let mut memory = memory_for(entries);
    let list = list(pair, &mut memory, entries)?;
    let mkey = pair.mkeys.get_mut(mkey).ok_or("no such mkey")?;
    let request = pair.near.request(CONFIGURE).signaled();
    let posted = match entries {
        MkeyEntries::Klm(entries) if !by_pointer => request.replace_entries(mkey, first, entries),
        _ => request.replace_entries_by_pointer(mkey, first, &list),
    };
    posted.within("replace entries")?;
    show(pair, &list);
    pair.finish_configuration()
}

/// Appends entries from registered memory to the layout of an mkey, and waits for the completion.
fn append_entries(pair: &mut QpPairFixture<'_>, mkey: usize, entries: MkeyEntries<'_>) -> Verdict {
    let mut memory = memory_for(entries);
    let list = list(pair, &mut memory, entries)?;
    let mkey = pair.mkeys.get_mut(mkey).ok_or("no such mkey")?;
    let posted = pair.near.request(CONFIGURE).signaled().append_entries_by_pointer(mkey, &list);
    posted.within("append entries")?;
    show(pair, &list);
    pair.finish_configuration()
}

/// Makes a list of these entries. The list is built in `memory`, local to this program. Its address and key
/// are those of registered memory of the board, to which [`show`] copies the list.
fn list<'m>(
    pair: &mut QpPairFixture<'_>,
    memory: &'m mut [Wqebb],
    entries: MkeyEntries<'_>,
) -> Result<RegisteredList<'m>, String> {
    let length = size_of_val(memory);
    let address = pair.board.alloc(length);
    let key = pair.board.register(address, length, Access::NONE);
    let list = RegisteredList::new(memory, address, key);
    let mut list = list.within("list")?;
    let written = match entries {
        MkeyEntries::Klm(entries) => list.write(entries),
        MkeyEntries::Ksm(size, entries) => list.write_ksm(size, entries),
    };
    written.within("list")?;
    Ok(list)
}

/// Allocates as many blocks of 64 bytes as the list of these entries needs.
fn memory_for(entries: MkeyEntries<'_>) -> Vec<Wqebb> {
    let count = match entries {
        MkeyEntries::Klm(entries) => entries.len(),
        MkeyEntries::Ksm(_, entries) => entries.len(),
    };
    vec![Wqebb::ZERO; RegisteredList::blocks_for(count)]
}

/// Copies a list to the board's registered memory, from which the device reads it.
fn show(pair: &mut QpPairFixture<'_>, list: &RegisteredList<'_>) {
    let bytes: Vec<u8> = list.blocks().iter().flat_map(|block| block.0).collect();
    pair.board.write(list.address(), &bytes);
}

/// The first configuration takes two thousand entries from registered memory, the next ones other numbers of
/// entries. The last one has its list in the request again.
fn m79_more_entries_than_any_request_holds(board: &mut dyn Board) -> Verdict {
    let mut pair = QpPairFixture::new(board);
    let data = pattern(20_000, 1);
    let region = pair.region(&data);
    let mkey = pair.mkey(MkeySpec { entries: 2000, ..PLAIN });
    for (count, salt) in [(2000, 0), (1, 3), (1999, 77), (53, 5)] {
        let (entries, space) = scattered(&region, &data, count, salt);
        configure_by_pointer(&mut pair, mkey, &ALL_RIGHTS, MkeyEntries::Klm(&entries))?;
        out(&mut pair, mkey, 0, &space).within(format_args!("{count} entries"))?;
        refuses_tx(&mut pair, Tx::PeerRead, mkey, space.len() as u64, 1).within("a byte behind the list")?;
    }
    let (entries, space) = scattered(&region, &data, 8, 9);
    pair.configure(mkey, &ALL_RIGHTS, entries.as_slice())?;
    same(&pair.tx(Tx::Send, mkey, 0, space.len())?.ok()?, &space)
}

/// An mkey has signature and cipher, and a list in registered memory that is too long for a WQE. The bytes on
/// the wire are the same as for an mkey with a single entry.
fn m79_signature_and_cipher_behind_a_long_list(board: &mut dyn Board) -> Verdict {
    let mut pair = QpPairFixture::new(board);
    let data = pattern(512, 1);
    let region = pair.region(&data);
    let cipher = cipher_over_dif(pair.board);
    let signature = BlockSignature::wire(domain(Signature::T10Dif(DIF)));
    let config =
        MkeyConfig { signature: SignatureChange::Set(signature), crypto: Some(cipher), ..ALL_RIGHTS };
    let images = expected::images(&data, Some(&signature), Some((&cipher, &KEY_128)));
    let mkey = pair.mkey(MkeySpec { entries: 64, ..BOTH });
    let entries: Vec<_> = (0..64).map(|number| entry(&region, number * 8..number * 8 + 8)).collect();
    // The second round tests more than the first: the mkey has been configured before, and its PSVs hold
    // values of an earlier transfer.
    for round in 0..2 {
        configure_by_pointer(&mut pair, mkey, &config, MkeyEntries::Klm(&entries))?;
        for way in Tx::ALL {
            if way != Tx::Send {
                configure_by_pointer(&mut pair, mkey, &config, MkeyEntries::Klm(&entries))?;
            }
            let wire = pair.tx(way, mkey, 0, images.wire.len())?.ok()?;
            same(&wire, &images.wire).within(format_args!("round {round}, {way:?}"))?;
        }
    }
    ensure!(pair.signature_errors.is_empty(), "signature errors of {:?}", pair.signature_errors);
    Ok(())
}

/// Requests replace entries at the start, in the middle and at the end of a list. The first replaced index is
/// always a multiple of four. The new entries are in the request or in registered memory.
fn m80_entries_in_the_middle_are_replaced(board: &mut dyn Board) -> Verdict {
    let mut pair = QpPairFixture::new(board);
    let data = pattern(9000, 1);
    let region = pair.region(&data);
    let mkey = pair.mkey(MkeySpec { entries: 300, ..PLAIN });
    let (entries, mut space) = scattered(&region, &data, 298, 0);
    configure_by_pointer(&mut pair, mkey, &ALL_RIGHTS, MkeyEntries::Klm(&entries))?;
    let steps =
        [(4, 4, false), (0, 4, true), (100, 52, false), (8, 280, true), (296, 2, false), (296, 2, true)];
    for (salt, (first, count, by_pointer)) in (1..).zip(steps) {
        let (entries, bytes) = scattered(&region, &data, count, salt * 31);
        replace_entries(&mut pair, mkey, first as u32, MkeyEntries::Klm(&entries), by_pointer)?;
        space.splice(first * 5..(first + count) * 5, bytes);
        out(&mut pair, mkey, 0, &space).within(format_args!("{count} entries from {first} on"))?;
    }
    // The replacement keeps the length of the space: a byte after its end is refused.
    ensure!(pair.tx(Tx::PeerRead, mkey, space.len() as u64, 1)?.requester.is_some(), "a byte behind the end");
    Ok(())
}

/// Requests set entries of 4096 bytes each from registered memory: more than a WQE can contain, then one,
/// then some in the middle of the list. Each entry begins 17 bytes after the start of a page.
fn m83_requests_change_entries_of_one_length(board: &mut dyn Board) -> Verdict {
    const BYTES: usize = 4096;
    const BEGIN: usize = 17;
    let size = KsmEntrySize::new(BYTES as u32).map_err(text)?;
    let mut pair = QpPairFixture::new(board);
    let mut data = pattern(9 * BYTES, 1);
    let region = pair.region(&data);
    let begin = |place: usize| place * BYTES + BEGIN;
    let entry = |place: &usize| KsmEntry { address: region.address + begin(*place) as u64, key: region.key };
    let mkey = pair.mkey(MkeySpec { entries: 100, entry_size: Some(size), ..PLAIN });
    let mut places: Vec<usize> = Vec::new();
    for (round, (first, count)) in
        [(None, 97), (None, 1), (None, 100), (Some(4), 8), (Some(96), 4)].into_iter().enumerate()
    {
        let new: Vec<usize> = (0..count).map(|number| (number * 5 + round) % 8).collect();
        let entries: Vec<_> = new.iter().map(entry).collect();
        let entries = MkeyEntries::Ksm(size, &entries);
        match first {
            None => {
                configure_by_pointer(&mut pair, mkey, &ALL_RIGHTS, entries)?;
                places = new;
            }
            Some(first) => {
                replace_entries(&mut pair, mkey, first as u32, entries, true)?;
                places.splice(first..first + count, new);
            }
        }
        let length = places.len() * BYTES;
        let known = pair.mkeys.get(mkey).map(Mkey::length);
        ensure!(known == Some(length as u64), "round {round}: the mkey has {known:?} bytes, not {length}");
        let mut ranges = vec![0..9, length - 5..length];
        for edge in [1, 4, 12, 63, 64, 96] {
            if edge < places.len() {
                ranges.push(edge * BYTES - 3..edge * BYTES + 5);
                ranges.push((edge - 1) * BYTES..(edge + 1) * BYTES);
            }
        }
        for range in ranges {
            let expected: Vec<u8> = range
                .clone()
                .filter_map(|at| data.get(begin(*places.get(at / BYTES)?) + at % BYTES).copied())
                .collect();
            out(&mut pair, mkey, range.start as u64, &expected).within(format_args!("round {round}"))?;
        }
        refuses_tx(&mut pair, Tx::PeerRead, mkey, length as u64, 1).within("a byte behind the list")?;
        // Two bytes are written across the end of the first entry, or inside it if it is the only one.
        let at = if places.len() == 1 { 7 } else { BYTES - 1 };
        let new = pattern(2, 30 + round as u8);
        pair.rx(Rx::PeerWrite, mkey, at as u64, &new)?.ok()?;
        for (at, byte) in (at..).zip(new) {
            let place = places.get(at / BYTES).copied().unwrap_or_default();
            if let Some(old) = data.get_mut(begin(place) + at % BYTES) {
                *old = byte;
            }
        }
        same(&pair.bytes(&region), &data).within(format_args!("round {round}"))?;
    }
    refuses_other_entries(&mut pair, mkey, size, &region)
}

/// Checks that for an mkey with entries of the length `size` (KSM), the library refuses entries of their own
/// lengths (KLM) and entries of another length, and that the refusals change nothing.
fn refuses_other_entries(
    pair: &mut QpPairFixture<'_>,
    mkey: usize,
    size: KsmEntrySize,
    region: &Region,
) -> Verdict {
    let config = MkeyConfig { access: Some(Access::NONE), ..MkeyConfig::UNCHANGED };
    let whole = [entry(region, 0..4096)];
    let same_length = [KsmEntry { address: region.address, key: region.key }];
    let other = KsmEntrySize::new(2 * size.bytes()).map_err(text)?;
    let list_mkey = pair.mkey(PLAIN);
    let refusals = [
        (mkey, MkeyEntries::Klm(&whole), None, Some(size)),
        (mkey, MkeyEntries::Ksm(other, &same_length), Some(other), Some(size)),
        (list_mkey, MkeyEntries::Ksm(size, &same_length), Some(size), None),
    ];
    for (number, entries, layout, of) in refusals {
        let refused = format!("{}", PostError::from(ConfigError::OtherEntries { layout, mkey: of }));
        let posted = configure_by_pointer(pair, number, &config, entries);
        ensure!(posted.as_ref().is_err_and(|error| error.ends_with(&refused)), "{posted:?}, not {refused}");
    }
    let posted = pair.configure(mkey, &config, Layout::List(&whole));
    ensure!(posted.is_err(), "a list in the request was posted");
    pair.tx(Tx::PeerRead, mkey, 0, 8)?.ok()?;
    // A configuration that names only rights keeps the list.
    let rights = MkeyConfig { access: Some(Access::REMOTE_READ), ..MkeyConfig::UNCHANGED };
    pair.configure(mkey, &rights, Layout::Unchanged)?;
    pair.tx(Tx::PeerRead, mkey, 3 * 4096 - 1, 2)?.ok()?;
    let moved = pair.rx(Rx::PeerWrite, mkey, 0, &[1])?;
    ensure!(moved.requester.is_some(), "a write without the right");
    Ok(())
}

/// How a request sets entries of a list.
#[derive(Clone, Copy, Debug)]
enum Lay {
    /// Sets the whole list.
    Whole,
    /// Appends entries to the existing ones.
    Behind,
    /// Replaces existing entries, by entries from registered memory or from the request. Only entries of
    /// various lengths (KLM) can be in the request.
    Over { by_pointer: bool },
}

/// Several requests set a list of more than 65,535 entries, and replace entries on both sides of index
/// 65,536. The check runs with entries of various lengths (KLM), then with entries of one common length (KSM)
/// if the board supports them.
fn m84_more_entries_than_16_bits_count(board: &mut dyn Board) -> Verdict {
    grows(board, None)?;
    if board.capabilities().fixed_entries {
        let size = KsmEntrySize::new(4096).map_err(text)?;
        grows(board, Some(size))?;
    }
    Ok(())
}

fn grows(board: &mut dyn Board, size: Option<KsmEntrySize>) -> Verdict {
    let bytes = size.map_or(5, |size| size.bytes() as usize);
    let mut pair = QpPairFixture::new(board);
    let data = pattern(20_000, 1);
    let region = pair.region(&data);
    let mkey = pair.mkey(MkeySpec { entries: 65_797, entry_size: size, ..PLAIN });
    let mut places: Vec<usize> = Vec::new();
    let steps = [
        (Lay::Whole, 0, RegisteredList::MAX_ENTRIES),
        (Lay::Behind, 65_532, 8),
        (Lay::Behind, 65_540, 257),
        (Lay::Over { by_pointer: false }, 65_536, 4),
        (Lay::Over { by_pointer: true }, 65_532, 8),
        (Lay::Over { by_pointer: true }, 65_792, 5),
        (Lay::Whole, 0, 4),
        (Lay::Behind, 4, 3),
    ];
    for (salt, (how, first, count)) in steps.into_iter().enumerate() {
        let new = (0..count).map(|number| (number + salt * 31) * 7919 % (data.len() - bytes));
        let new: Vec<usize> = new.collect();
        let klm: Vec<_> = new.iter().map(|place| entry(&region, *place..*place + bytes)).collect();
        let ksm: Vec<_> = klm
            .iter()
            .map(|KlmEntry { address, key, .. }| KsmEntry { address: *address, key: *key })
            .collect();
        let entries = size.map_or(MkeyEntries::Klm(&klm), |size| MkeyEntries::Ksm(size, &ksm));
        match how {
            Lay::Whole => {
                configure_by_pointer(&mut pair, mkey, &ALL_RIGHTS, entries)?;
                places.clear();
            }
            Lay::Behind => append_entries(&mut pair, mkey, entries)?,
            Lay::Over { by_pointer } => replace_entries(&mut pair, mkey, first as u32, entries, by_pointer)?,
        }
        places.splice(first..places.len().min(first + count), new);
        let length = places.len() * bytes;
        let known = pair.mkeys.get(mkey).map(Mkey::length);
        ensure!(
            known == Some(length as u64),
            "{how:?} of {count}: the mkey has {known:?} bytes, not {length}"
        );
        let edges = [1, 3, 65_532, 65_536, 65_540].into_iter().filter(|edge| *edge < places.len());
        let mut ranges: Vec<_> = edges.map(|edge| edge * bytes - 3..edge * bytes + 5).collect();
        ranges.extend([0..9, length - 9..length]);
        for range in ranges {
            let byte = |at: usize| data.get(places.get(at / bytes)? + at % bytes).copied();
            let expected: Vec<u8> = range.clone().filter_map(byte).collect();
            out(&mut pair, mkey, range.start as u64, &expected)
                .within(format_args!("{how:?} of {count} at {first}"))?;
        }
        refuses_tx(&mut pair, Tx::PeerRead, mkey, length as u64, 1)
            .within(format_args!("{how:?} of {count}"))?;
    }
    Ok(())
}
