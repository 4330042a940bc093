//! Layouts: how the bytes of an mkey's space map to bytes of memory.

use super::fixture::{
    ALL_RIGHTS, BOTH, MkeyFixture, PLAIN, SIGNATURE, domain, entry, out, part, pattern, refuses_rx,
    refuses_tx, same,
};
use super::keys::{refuses_invalidation, send_invalidate};
use super::scenario::{Scenario, scenario};
use crate::assumption::assumed;
use crate::board::{Board, DekSpec, MkeySpec};
use crate::qp_pair::{QpPairFixture, Region, Rx, Tx, Verdict, Within, text};
use crate::{ensure, ensure_eq, expected};
use alloc::vec::Vec;
use mlx5_mkey::mkey::{
    Access, BlockSignature, Crypto, Direction, InterleavedEntry, KlmEntry, Layout, MkeyConfig,
    RelaxedOrdering, Signature, SignatureChange, SignatureOrder,
};
use mlx5_mkey::queue::{Message, Outcome};
use mlx5_mkey::types::{BlockSize, Key, Seed, Tweak};

pub(super) const ALL: &[Scenario] = &[
    scenario!(r002_every_byte_across_every_boundary, NOTHING, ["R2", "R35"]),
    scenario!(
        r005_every_subset_of_features_replaces_just_itself,
        BOTH,
        ["R5", "R10", "R11", "R25", "R27", "R34", "R36", "R55", "R58", "R125", "R128", "R174"]
    ),
    scenario!(r008_no_setter_keeps_everything, NOTHING, ["R8", "R11"]),
    scenario!(r015_memory_is_read_when_used, NOTHING, ["R15"]),
    scenario!(r034_a_new_layout_ends_the_old_one, NOTHING, ["R34"]),
    scenario!(r035_offsets_count_from_zero_and_end_at_the_length, NOTHING, ["R35"]),
    scenario!(r036_list_after_interleaved, NOTHING, ["R36", "R4"]),
    scenario!(r037_as_many_entries_as_a_request_holds, NOTHING, ["R37", "R41", "R42"]),
    scenario!(r038_lists_of_any_length, NOTHING, ["R38"]),
    scenario!(r039_list_example, NOTHING, ["R39", "R2", "R4"]),
    scenario!(r040_interleaved_after_list, NOTHING, ["R40"]),
    scenario!(r043_the_pattern_repeats, NOTHING, ["R43", "R44", "R45", "R46"]),
    scenario!(r047_skipped_bytes_are_left_alone, NOTHING, ["R47"]),
    scenario!(r048_an_entry_with_a_wrong_key, NOTHING, ["R48"]),
    scenario!(m82_a_space_begins_where_it_is_asked_to, NOTHING, ["M82"]),
    scenario!(m82_order_is_relaxed_and_nothing_else_changes, RELAXED_ORDERING, ["M82"]),
    scenario!(r049_interleaved_example, NOTHING, ["R49", "R43", "R47", "R4"]),
];

/// Checks that the library counts `bytes` bytes in the mkey's current layout.
fn has_length(pair: &QpPairFixture<'_>, mkey: usize, bytes: u64) -> Verdict {
    ensure_eq!(pair.mkeys.get(mkey).map(|mkey| mkey.length()), Some(bytes), "length");
    Ok(())
}

fn stream(region: &Region, at: u64, bytes: u16, skip: u16) -> InterleavedEntry {
    InterleavedEntry { address: region.address + at, bytes, skip, key: region.key }
}

fn interleaved(repeat: u32, entries: &[InterleavedEntry]) -> Layout<'_> {
    Layout::Interleaved { repeat, entries }
}

/// A list of entries with odd sizes, out of order in memory, is read and written correctly around each
/// boundary between entries.
fn r002_every_byte_across_every_boundary(board: &mut dyn Board) -> Verdict {
    let mut pair = QpPairFixture::new(board);
    let mkey = pair.mkey(PLAIN);
    let (first, second) = (pair.region(&pattern(700, 1)), pair.region(&pattern(300, 2)));
    let cuts = [(first, 400..533), (second, 7..8), (first, 3..70), (second, 100..299), (first, 600..700)];
    let mut entries = Vec::new();
    let mut space = Vec::new();
    let mut edges = vec![0];
    for (region, range) in cuts {
        entries.push(entry(&region, range.clone()));
        space.extend_from_slice(part(&pair.bytes(&region), range));
        edges.push(space.len());
    }
    pair.configure(mkey, &ALL_RIGHTS, Layout::List(&entries))?;
    out(&mut pair, mkey, 0, &space)?;
    for edge in edges {
        for (before, after) in [(1, 1), (2, 0), (0, 3), (40, 50)] {
            let range = edge.saturating_sub(before)..(edge + after).min(space.len());
            if range.is_empty() {
                continue;
            }
            let offset = range.start as u64;
            out(&mut pair, mkey, offset, part(&space, range.clone()))?;
            for (salt, way) in (10..).zip(Rx::ALL) {
                let new = pattern(range.len(), salt);
                pair.rx(way, mkey, offset, &new)?.ok()?;
                space.splice(range.clone(), new);
                let all = pair.tx(Tx::Write, mkey, 0, space.len())?.ok()?;
                same(&all, &space).within(format_args!("after {way:?} to {range:?}"))?;
            }
        }
    }
    Ok(())
}

/// Changes the last byte of `key`, and creates a DEK of the result. Returns crypto properties with this DEK,
/// and the bytes of its key.
fn cipher(pair: &mut QpPairFixture<'_>, mut key: [u8; 32], lba: u64) -> (Crypto, [u8; 32]) {
    if let Some(last) = key.last_mut() {
        *last ^= 0x77;
    }
    let dek = pair.board.create_dek(DekSpec { key: &key, keytag: None });
    let order = SignatureOrder::BeforeCryptoOnTx;
    let crypto = super::fixture::crypto(Direction::EncryptOnTx, order, BlockSize::B520, dek);
    (Crypto { tweak: Tweak::from_lba(lba), ..crypto }, key)
}

/// Checks that the mkey's data have the bytes `images.wire` on the wire, and that data can be written into
/// the mkey only as `access` allows.
fn in_force(pair: &mut QpPairFixture<'_>, mkey: usize, images: &expected::Images, access: Access) -> Verdict {
    out(pair, mkey, 0, &images.wire)?;
    for (way, flag) in [(Rx::Receive, Access::LOCAL_WRITE), (Rx::PeerWrite, Access::REMOTE_WRITE)] {
        let moved = pair.rx(way, mkey, 0, &images.wire)?;
        let allowed = access.contains(flag);
        ensure_eq!(moved.requester.is_none(), allowed, "{way:?} goes through");
        if !allowed {
            pair.reconnect();
        }
    }
    ensure!(pair.signature_errors.is_empty(), "signature errors of {:?}", pair.signature_errors);
    Ok(())
}

/// An mkey has access rights, layout, signature and cipher. Configurations then set every subset of these
/// four: the ones that are set change, the others stay.
fn r005_every_subset_of_features_replaces_just_itself(board: &mut dyn Board) -> Verdict {
    let mut pair = QpPairFixture::new(board);
    let data = [pattern(1024, 1), pattern(1024, 2)];
    let regions = data.each_ref().map(|bytes| pair.region(bytes));
    let signatures = [Signature::Crc64Xp10(Seed::Ones), Signature::T10Dif(super::fixture::DIF)]
        .map(|signature| BlockSignature::wire(domain(signature)));
    let rights = [Access::REMOTE_READ | Access::LOCAL_WRITE, Access::REMOTE_READ | Access::REMOTE_WRITE];
    let [old_signature, new_signature] = signatures;
    let [old_region, new_region] = regions;
    let [old_rights, new_rights] = rights;
    let [old_data, new_data] = data;
    let [(old_crypto, old_key), (new_crypto, new_key)] =
        &[(super::fixture::KEY_128, 0x1000), ([0x5a; 32], 0x7777)]
            .map(|(key, lba)| cipher(&mut pair, key, lba));
    for subset in 0..16u8 {
        let on = |bit: u8| subset >> bit & 1 != 0;
        let mkey = pair.mkey(BOTH);
        let entries = [entry(&old_region, 0..500), entry(&old_region, 500..1024)];
        pair.configure(
            mkey,
            &MkeyConfig {
                access: Some(old_rights),
                signature: SignatureChange::Set(old_signature),
                crypto: Some(*old_crypto),
            },
            &entries,
        )?;
        let halves = [stream(&new_region, 0, 256, 256), stream(&new_region, 256, 256, 256)];
        pair.configure(
            mkey,
            &MkeyConfig {
                access: on(0).then_some(new_rights),
                signature: if on(2) { SignatureChange::Set(new_signature) } else { SignatureChange::Keep },
                crypto: on(3).then_some(*new_crypto),
            },
            if on(1) { interleaved(2, &halves) } else { Layout::Unchanged },
        )?;
        let data = if on(1) { &new_data } else { &old_data };
        let signature = if on(2) { &new_signature } else { &old_signature };
        let (crypto, key) = if on(3) { (new_crypto, new_key) } else { (old_crypto, old_key) };
        let images = expected::images(data, Some(signature), Some((crypto, key)));
        let access = if on(0) { new_rights } else { old_rights };
        in_force(&mut pair, mkey, &images, access).within(format_args!("subset {subset:#06b}"))?;
    }
    Ok(())
}

/// A configuration that sets nothing changes nothing. On a new mkey it makes the key valid, with a space of 0
/// bytes.
fn r008_no_setter_keeps_everything(board: &mut dyn Board) -> Verdict {
    let data = pattern(100, 1);
    let mut fixture = MkeyFixture::plain(board, PLAIN, &data)?;
    fixture.change(&MkeyConfig::UNCHANGED, Layout::Unchanged)?;
    fixture.out_each(0, &data)?;
    let empty = fixture.pair.mkey(PLAIN);
    fixture.pair.configure(empty, &MkeyConfig::UNCHANGED, Layout::Unchanged)?;
    refuses_tx(&mut fixture.pair, Tx::Send, empty, 0, 1).within("a byte of an mkey without a layout")
}

/// The device reads the memory of an mkey each time when a request uses the mkey, and not when the mkey is
/// configured.
fn r015_memory_is_read_when_used(board: &mut dyn Board) -> Verdict {
    let mut fixture = MkeyFixture::plain(board, PLAIN, &pattern(200, 1))?;
    for (salt, way) in (2..).zip(Tx::ALL) {
        let new = pattern(200, salt);
        fixture.write(&new);
        fixture.out(way, 0, &new)?;
    }
    Ok(())
}

/// After a new, shorter layout over other memory, no request can access the memory of the old layout.
fn r034_a_new_layout_ends_the_old_one(board: &mut dyn Board) -> Verdict {
    let mut fixture = MkeyFixture::plain(board, PLAIN, &pattern(300, 1))?;
    let data = pattern(80, 2);
    let other = fixture.pair.region(&data);
    fixture.change(&MkeyConfig::UNCHANGED, &[entry(&other, 0..80)])?;
    fixture.out(Tx::PeerRead, 0, &data)?;
    for way in Tx::ALL {
        refuses_tx(&mut fixture.pair, way, fixture.mkey, 0, 81).within("past the new end")?;
    }
    Ok(())
}

/// Address k in a request is byte k of the mkey's space. A request whose range exceeds the space moves no
/// byte at all.
fn r035_offsets_count_from_zero_and_end_at_the_length(board: &mut dyn Board) -> Verdict {
    let data = pattern(64, 1);
    let mut fixture = MkeyFixture::plain(board, PLAIN, &data)?;
    for offset in [0, 1, 17, 63] {
        fixture.out_each(offset, part(&data, offset as usize..64))?;
    }
    for (offset, length) in [(64, 1), (63, 2), (0, 65), (u64::from(u32::MAX), 4), (u64::MAX, 1)] {
        for way in Tx::ALL {
            refuses_tx(&mut fixture.pair, way, fixture.mkey, offset, length)?;
        }
        for way in Rx::ALL {
            refuses_rx(&mut fixture.pair, way, fixture.mkey, offset, &pattern(length, 9))?;
            fixture.holds(&data)?;
        }
    }
    Ok(())
}

/// A list layout replaces an interleaved layout completely.
fn r036_list_after_interleaved(board: &mut dyn Board) -> Verdict {
    let mut pair = QpPairFixture::new(board);
    let mkey = pair.mkey(PLAIN);
    let data = pattern(400, 1);
    let region = pair.region(&data);
    let streams = [stream(&region, 0, 10, 5), stream(&region, 200, 3, 1)];
    pair.configure(mkey, &ALL_RIGHTS, interleaved(9, &streams))?;
    let entries = [entry(&region, 50..60), entry(&region, 0..90)];
    pair.configure(mkey, &ALL_RIGHTS, Layout::List(&entries))?;
    out(&mut pair, mkey, 0, &[part(&data, 50..60), part(&data, 0..90)].concat())
}

/// The longest layouts that fit into a request work. Behind its first two blocks, a request has space for 52
/// entries of 16 bytes.
fn r037_as_many_entries_as_a_request_holds(board: &mut dyn Board) -> Verdict {
    const ROOM: usize = 52;
    let mut pair = QpPairFixture::new(board);
    let mkey = pair.mkey(MkeySpec { entries: ROOM as u32, ..PLAIN });
    let data = pattern(ROOM * 20, 1);
    let region = pair.region(&data);
    let mut entries = Vec::new();
    let mut space = Vec::new();
    for number in (0..ROOM).rev() {
        entries.push(entry(&region, number * 20..number * 20 + 13));
        space.extend_from_slice(part(&data, number * 20..number * 20 + 13));
    }
    pair.configure(mkey, &ALL_RIGHTS, Layout::List(&entries))?;
    out(&mut pair, mkey, 0, &space)?;
    // The header of an interleaved layout takes the space of one entry, so it can have one stream fewer.
    let mut streams = Vec::new();
    let mut space = Vec::new();
    for number in 0..ROOM - 1 {
        streams.push(stream(&region, number as u64 * 20, 6, 1));
    }
    for cycle in 0..2 {
        for number in 0..ROOM - 1 {
            let at = number * 20 + cycle * 7;
            space.extend_from_slice(part(&data, at..at + 6));
        }
    }
    pair.configure(mkey, &ALL_RIGHTS, interleaved(2, &streams))?;
    out(&mut pair, mkey, 0, &space)
}

/// Lists of any length work, also if their entries do not fill a multiple of 64 bytes in the request. With an
/// empty list, the mkey's space has 0 bytes.
fn r038_lists_of_any_length(board: &mut dyn Board) -> Verdict {
    let mut pair = QpPairFixture::new(board);
    let mkey = pair.mkey(MkeySpec { entries: 16, ..PLAIN });
    let data = pattern(1600, 1);
    let region = pair.region(&data);
    for count in [1, 2, 3, 4, 5, 7, 8, 9, 16] {
        let starts = (0..count).map(|number| (number * 37 + 11) % 16 * 100);
        let entries: Vec<KlmEntry> = starts.clone().map(|start| entry(&region, start..start + 61)).collect();
        pair.configure(mkey, &ALL_RIGHTS, Layout::List(&entries))?;
        let space: Vec<u8> = starts.flat_map(|start| part(&data, start..start + 61).to_vec()).collect();
        out(&mut pair, mkey, 0, &space).within(format_args!("{count} entries"))?;
    }
    pair.configure(mkey, &ALL_RIGHTS, Layout::List(&[]))?;
    let moved = pair.tx(Tx::Send, mkey, 0, 1)?;
    ensure!(moved.requester.is_some(), "a byte came out of an empty list");
    Ok(())
}

/// The man page's example of a list works: 64 bytes of one region and 4096 of another. A write of 4160 bytes
/// fills both.
fn r039_list_example(board: &mut dyn Board) -> Verdict {
    let mut pair = QpPairFixture::new(board);
    let mkey = pair.mkey(MkeySpec { entries: 2, ..PLAIN });
    let (mr1, mr2) = (pair.region(&[0x11; 64]), pair.region(&[0x22; 4096]));
    let entries = [entry(&mr1, 0..64), entry(&mr2, 0..4096)];
    let rights = Access::REMOTE_READ | Access::REMOTE_WRITE;
    pair.configure(mkey, &MkeyConfig { access: Some(rights), ..MkeyConfig::UNCHANGED }, &entries)?;
    has_length(&pair, mkey, 4160)?;
    let data = pattern(4160, 1);
    pair.rx(Rx::PeerWrite, mkey, 0, &data)?.ok()?;
    same(&pair.bytes(&mr1), part(&data, 0..64)).within("mr1")?;
    same(&pair.bytes(&mr2), part(&data, 64..4160)).within("mr2")?;
    out(&mut pair, mkey, 0, &data)
}

/// An interleaved layout replaces a list layout completely.
fn r040_interleaved_after_list(board: &mut dyn Board) -> Verdict {
    let mut pair = QpPairFixture::new(board);
    let mkey = pair.mkey(PLAIN);
    let data = pattern(400, 1);
    let region = pair.region(&data);
    let entries = [entry(&region, 50..60), entry(&region, 0..90)];
    pair.configure(mkey, &ALL_RIGHTS, Layout::List(&entries))?;
    let streams = [stream(&region, 0, 10, 5), stream(&region, 200, 3, 1)];
    pair.configure(mkey, &ALL_RIGHTS, interleaved(2, &streams))?;
    let space = [part(&data, 0..10), part(&data, 200..203), part(&data, 15..25), part(&data, 204..207)];
    out(&mut pair, mkey, 0, &space.concat())
}

/// Interleaved layouts of one to five streams work, with one cycle or several. The length of the space is the
/// bytes of a cycle times the number of cycles.
fn r043_the_pattern_repeats(board: &mut dyn Board) -> Verdict {
    let mut pair = QpPairFixture::new(board);
    let mkey = pair.mkey(PLAIN);
    let data = pattern(5000, 1);
    let region = pair.region(&data);
    let shapes = [(24, 8), (1, 0), (7, 93), (16, 16), (50, 1)];
    for count in 1..=shapes.len() {
        for repeat in [1, 2, 17] {
            let mut streams = Vec::new();
            for (number, (bytes, skip)) in shapes.iter().take(count).enumerate() {
                streams.push(stream(&region, number as u64 * 900, *bytes, *skip));
            }
            let mut space = Vec::new();
            for cycle in 0..repeat as usize {
                for (number, (bytes, skip)) in shapes.iter().take(count).enumerate() {
                    let at = number * 900 + cycle * (bytes + skip) as usize;
                    space.extend_from_slice(part(&data, at..at + *bytes as usize));
                }
            }
            pair.configure(mkey, &ALL_RIGHTS, interleaved(repeat, &streams))?;
            has_length(&pair, mkey, space.len() as u64)
                .within(format_args!("{count} streams, {repeat} times"))?;
            out(&mut pair, mkey, 0, &space)?;
            let half = space.len() / 2;
            out(&mut pair, mkey, half as u64, part(&space, half..space.len()))?;
            ensure!(
                pair.tx(Tx::PeerRead, mkey, 0, space.len() + 1)?.requester.is_some(),
                "a byte came from behind {count} streams, {repeat} times"
            );
            pair.reconnect();
        }
    }
    Ok(())
}

/// The bytes that an interleaved layout skips are neither read nor written.
fn r047_skipped_bytes_are_left_alone(board: &mut dyn Board) -> Verdict {
    let mut pair = QpPairFixture::new(board);
    let mkey = pair.mkey(PLAIN);
    let region = pair.region(&[0x55; 120]);
    pair.configure(mkey, &ALL_RIGHTS, interleaved(6, &[stream(&region, 0, 13, 7)]))?;
    for (salt, way) in (1..).zip(Rx::ALL) {
        let new = pattern(78, salt);
        pair.rx(way, mkey, 0, &new)?.ok()?;
        let memory: Vec<u8> = new.chunks(13).flat_map(|entry| [entry, &[0x55; 7]].concat()).collect();
        same(&pair.bytes(&region), &memory).within(format_args!("{way:?}"))?;
        out(&mut pair, mkey, 0, &new)?;
    }
    Ok(())
}

/// A transfer fails if it touches an entry whose key belongs to no region. Transfers that touch only other
/// entries succeed.
///
/// Assumption: a failing transfer writes no byte at all, not even those before this entry.
fn r048_an_entry_with_a_wrong_key(board: &mut dyn Board) -> Verdict {
    let mut pair = QpPairFixture::new(board);
    let mkey = pair.mkey(PLAIN);
    let data = pattern(64, 1);
    let region = pair.region(&data);
    let wrong = Key::from_raw(region.key.get() ^ 1);
    let strange = Region { key: wrong, ..region };
    let entries = [entry(&region, 0..32), entry(&strange, 32..64)];
    pair.configure(mkey, &ALL_RIGHTS, Layout::List(&entries))?;
    out(&mut pair, mkey, 0, part(&data, 0..32))?;
    for way in Tx::ALL {
        refuses_tx(&mut pair, way, mkey, 0, 64)?;
    }
    for way in Rx::ALL {
        refuses_rx(&mut pair, way, mkey, 0, &[9; 64])?;
        let (before, behind) = (pair.bytes(&region), pair.bytes(&region).split_off(32));
        let written = before.iter().zip(&data).take(32).filter(|(found, old)| found != old).count();
        assumed(pair.board, format_args!("bytes written before the wrong entry, {way:?}"), written, 0)?;
        same(&behind, part(&data, 32..64)).within(format_args!("{way:?}"))?;
        pair.board.write(region.address, &data);
    }
    Ok(())
}

/// The man page's example of an interleaved layout works: blocks of 512 bytes with gaps of 4, and protection
/// information of 8 bytes without gaps.
fn r049_interleaved_example(board: &mut dyn Board) -> Verdict {
    let mut pair = QpPairFixture::new(board);
    let mkey = pair.mkey(MkeySpec { entries: 3, ..PLAIN });
    let (mr1, mr2) = (pair.region(&[0x11; 1028]), pair.region(&[0x22; 16]));
    let streams = [stream(&mr1, 0, 512, 4), stream(&mr2, 0, 8, 0)];
    pair.configure(mkey, &ALL_RIGHTS, interleaved(2, &streams))?;
    has_length(&pair, mkey, 1040)?;
    let data = pattern(1040, 1);
    for way in Rx::ALL {
        pair.board.write(mr1.address, &[0x11; 1028]);
        pair.rx(way, mkey, 0, &data)?.ok()?;
        let blocks = [part(&data, 0..512), &[0x11; 4], part(&data, 520..1032)].concat();
        same(&pair.bytes(&mr1), &blocks).within(format_args!("{way:?}, mr1"))?;
        let protection = [part(&data, 512..520), part(&data, 1032..1040)].concat();
        same(&pair.bytes(&mr2), &protection).within(format_args!("{way:?}, mr2"))?;
    }
    out(&mut pair, mkey, 0, &data)
}

/// The space of an mkey begins at the configured start address until another configuration sets another one.
/// A configuration can also allow the peer to invalidate the key, and forbid it.
fn m82_a_space_begins_where_it_is_asked_to(board: &mut dyn Board) -> Verdict {
    const START: u64 = 0x7f12_3456_789a;
    let mut fixture = MkeyFixture::new(board, PLAIN);
    let data = pattern(64, 1);
    let region = fixture.pair.region(&data);
    let (entries, mkey) = ([entry(&region, 0..64)], fixture.mkey);
    let prepared = fixture.pair.prepare(mkey, &ALL_RIGHTS).map_err(text)?;
    let moved = prepared.with_start_address(START).map_err(text)?;
    fixture.pair.configure_prepared(mkey, &moved, &entries)?;
    out(&mut fixture.pair, mkey, START, &data)?;
    out(&mut fixture.pair, mkey, START + 60, part(&data, 60..64))?;
    // A configuration without a start address keeps the previous start address.
    fixture.pair.configure_prepared(mkey, &prepared, &entries)?;
    out(&mut fixture.pair, mkey, START, &data)?;
    for (offset, length) in [(0, 1), (START - 1, 1), (START + 64, 1), (START, 65)] {
        refuses_tx(&mut fixture.pair, Tx::PeerRead, mkey, offset, length)?;
    }
    let back = prepared.with_start_address(0).map_err(text)?;
    fixture.pair.configure_prepared(mkey, &back, &entries)?;
    out(&mut fixture.pair, mkey, 0, &data)?;
    // The mkey was created without permission for the peer to invalidate it.
    let key = fixture.pair.key(mkey);
    refuses_invalidation(&mut fixture, key)?;
    fixture.pair.configure_prepared(mkey, &prepared.with_remote_invalidate(true), &entries)?;
    let (near, _) = send_invalidate(&mut fixture, key)?;
    let told = Outcome::Received { message: Message::SendInvalidate(key), bytes: 8 };
    ensure_eq!(near, told, "receiver");
    fixture.pair.mkeys.get_mut(mkey).ok_or("no such mkey")?.forget();
    fixture.pair.configure_prepared(mkey, &prepared.with_remote_invalidate(false), &entries)?;
    refuses_invalidation(&mut fixture, key)?;
    out(&mut fixture.pair, mkey, 0, &data)
}

/// Configurations relax the PCIe ordering of reads, of writes and of both, and restore it. Data, length and
/// access rights stay the same; that is all the scenario can check, because a program cannot observe whether
/// transfers overtake one another. Only a device with the capability for relaxed ordering accepts these
/// configurations.
fn m82_order_is_relaxed_and_nothing_else_changes(board: &mut dyn Board) -> Verdict {
    let device = board.capabilities();
    let ordering = device.relaxed_ordering.ok_or("no ordering to relax")?;
    let mut pair = QpPairFixture::new(board);
    let data = pattern(1024, 1);
    let region = pair.region(&data);
    let signature = BlockSignature::wire(domain(Signature::T10Dif(super::fixture::DIF)));
    let signed = device.signature.then_some(signature);
    let mut kinds = vec![(PLAIN, ALL_RIGHTS, expected::images(&data, None, None))];
    if let Some(signature) = signed {
        let config = MkeyConfig { signature: SignatureChange::Set(signature), ..ALL_RIGHTS };
        kinds.push((SIGNATURE, config, expected::images(&data, Some(&signature), None)));
    }
    for (spec, config, images) in kinds {
        let mkey = pair.mkey(spec);
        let entries = [entry(&region, 0..500), entry(&region, 500..1024)];
        let prepared = pair.prepare(mkey, &config).map_err(text)?;
        let alone =
            [RelaxedOrdering { read: false, ..ordering }, RelaxedOrdering { write: false, ..ordering }];
        for ordering in [ordering].into_iter().chain(alone) {
            for relaxed in [true, false] {
                let change = prepared.with_relaxed_ordering(ordering, relaxed);
                pair.configure_prepared(mkey, &change, &entries)?;
                let told = |error| format!("{ordering:?}, relaxed {relaxed}, {spec:?}: {error}");
                in_force(&mut pair, mkey, &images, Access::ALL).map_err(told)?;
                has_length(&pair, mkey, data.len() as u64).map_err(told)?;
                same(&pair.bytes(&region), &data).map_err(told)?;
                let behind = pair.tx(Tx::PeerRead, mkey, images.wire.len() as u64, 1)?;
                ensure!(
                    behind.requester.is_some(),
                    "{ordering:?}, relaxed {relaxed}, {spec:?}: a byte behind the space"
                );
                pair.reconnect();
            }
        }
    }
    Ok(())
}
