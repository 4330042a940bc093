//! Lists that no request carries: those that an mkey is created with.

use super::fixture::{PLAIN, entry, fails, part, pattern, same, tx_refusal};
use super::{Scenario, scenario};
use crate::board::Board;
use crate::ensure;
use crate::qp_pair::{QpPairFixture, Region, Rx, Tx, Verdict};
use alloc::vec::Vec;
use mlx5_mkey::command::{EntrySize, FixedEntry, MkeyEntries};
use mlx5_mkey::mkey::{Access, KlmEntry, Layout, Mkey, MkeyAttributes, MkeyConfig};

pub(super) const ALL: &[Scenario] = &[
    scenario!(m78_an_mkey_that_brings_its_list, NOTHING, ["M78"]),
    scenario!(m78_entries_of_one_length, FIXED_ENTRIES, ["M78"]),
];

/// Where the spaces begin: in the middle of a page, as a program may choose it.
const START: u64 = 0x7000_0000_0123;

/// Makes an mkey that is created with its list, and returns its number among the pair's.
fn created(
    pair: &mut QpPairFixture<'_>,
    access: Access,
    entries: MkeyEntries<'_>,
) -> Result<usize, alloc::string::String> {
    let key = pair.board.create_list_mkey(access, START, entries)?;
    pair.mkeys.push(Mkey::new(MkeyAttributes::plain(key, 0)));
    Ok(pair.mkeys.len() - 1)
}

/// Reads and writes all of a space, around each of these edges, and one byte before and behind it.
fn works(pair: &mut QpPairFixture<'_>, mkey: usize, space: &[u8], edges: &[usize]) -> Verdict {
    let mut space = space.to_vec();
    let mut ranges: Vec<_> = edges.iter().map(|edge| edge - 3..edge + 5).collect();
    ranges.push(0..space.len());
    for range in ranges {
        let offset = START + range.start as u64;
        for way in Tx::ALL {
            let bytes = pair.tx(way, mkey, offset, range.len())?.ok()?;
            same(&bytes, part(&space, range.clone()))
                .map_err(|error| format!("{way:?} of {range:?}: {error}"))?;
        }
        for (salt, way) in (20..).zip(Rx::ALL) {
            let new = pattern(range.len(), salt);
            pair.rx(way, mkey, offset, &new)?.ok()?;
            space.splice(range.clone(), new);
            let all = pair.tx(Tx::Write, mkey, START, space.len())?.ok()?;
            same(&all, &space).map_err(|error| format!("after {way:?} to {range:?}: {error}"))?;
        }
    }
    for (offset, length) in [(START - 1, 1), (START + space.len() as u64, 1), (START, space.len() + 1)] {
        for way in Tx::ALL {
            let moved = pair.tx(way, mkey, offset, length)?;
            let (requester, receiver) = tx_refusal(way);
            fails(format_args!("{way:?} of {length} at {offset:#x}"), &moved, requester, receiver)?;
            pair.reconnect();
        }
    }
    Ok(())
}

/// Entries in the command that makes the mkey, more than a request holds: it is there at once, and stands under other mkeys.
fn m78_an_mkey_that_brings_its_list(board: &mut dyn Board) -> Verdict {
    let mut pair = QpPairFixture::new(board);
    let data = pattern(8000, 1);
    let region = pair.region(&data);
    let (mut entries, mut space) = (Vec::new(), Vec::new());
    for number in (0..100).rev() {
        // Of 46 bytes first, and of 7 last.
        let range = number * 80..number * 80 + 7 + number % 60;
        entries.push(entry(&region, range.clone()));
        space.extend_from_slice(part(&data, range));
    }
    let mkey = created(&mut pair, Access::ALL, MkeyEntries::Own(&entries))?;
    let edges = [46, space.len() - 7];
    works(&mut pair, mkey, &space, &edges)?;
    // What was written is in the memory behind it, for an mkey over it as well.
    let now = pair.tx(Tx::Write, mkey, START, space.len())?.ok()?;
    let over = pair.mkey(PLAIN);
    let inner = KlmEntry { address: START + 100, length: 300, key: pair.key(mkey) };
    let config = MkeyConfig { access: Some(Access::ALL), ..MkeyConfig::UNCHANGED };
    pair.configure(over, &config, Layout::List(&[inner]))?;
    same(&pair.tx(Tx::PeerRead, over, 0, 300)?.ok()?, part(&now, 100..400))?;
    // Its rights are those of its creation.
    let locked = created(&mut pair, Access::NONE, MkeyEntries::Own(&entries))?;
    let moved = pair.tx(Tx::PeerRead, locked, START, 8)?;
    let (requester, receiver) = tx_refusal(Tx::PeerRead);
    fails("a read without the right", &moved, requester, receiver)?;
    pair.reconnect();
    // A list that no device takes is refused when it is made.
    let many = vec![entry(&region, 0..1); (1 << 16) + 1];
    let refused = pair.board.create_list_mkey(Access::ALL, START, MkeyEntries::Own(&many));
    ensure!(
        refused.as_ref().is_err_and(|error| error.contains("65537 translation entries")),
        "a list of 65537 entries: {refused:?}"
    );
    Ok(())
}

/// Entries of 4096 bytes each, out of order; the space ends within the last one.
fn m78_entries_of_one_length(board: &mut dyn Board) -> Verdict {
    const BYTES: usize = 4096;
    let mut pair = QpPairFixture::new(board);
    let data = pattern(9 * BYTES, 1);
    let region: Region = pair.region(&data);
    let order = [5, 0, 7, 2, 2, 8];
    let entries = order
        .map(|number: u64| FixedEntry { address: region.address + number * BYTES as u64, key: region.key });
    let size = EntrySize::new(BYTES as u32).map_err(|error| alloc::format!("{error}"))?;
    let mkey = created(&mut pair, Access::ALL, MkeyEntries::Fixed(size, &entries))?;
    let space: Vec<u8> = order
        .iter()
        .flat_map(|number| part(&data, *number as usize * BYTES..(*number as usize + 1) * BYTES).to_vec())
        .collect();
    for (offset, length) in [(0, space.len()), (BYTES - 3, 6), (5 * BYTES - 1, 2), (3 * BYTES + 17, 100)] {
        for way in Tx::ALL {
            let bytes = pair.tx(way, mkey, START + offset as u64, length)?.ok()?;
            same(&bytes, part(&space, offset..offset + length))
                .map_err(|error| format!("{way:?} of {length} at {offset}: {error}"))?;
        }
    }
    let new = pattern(BYTES + 2, 9);
    pair.rx(Rx::PeerWrite, mkey, START + (BYTES - 1) as u64, &new)?.ok()?;
    let memory = pair.bytes(&region);
    same(part(&memory, 6 * BYTES - 1..6 * BYTES), part(&new, 0..1))?;
    same(part(&memory, 0..BYTES), part(&new, 1..BYTES + 1))?;
    same(part(&memory, 7 * BYTES..7 * BYTES + 1), part(&new, BYTES + 1..BYTES + 2))?;
    let moved = pair.tx(Tx::Send, mkey, START + space.len() as u64, 1)?;
    let (requester, receiver) = tx_refusal(Tx::Send);
    fails("a byte behind the space", &moved, requester, receiver)
}
