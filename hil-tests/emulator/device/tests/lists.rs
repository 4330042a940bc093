//! Tests of lists in registered memory, and of changes in the middle of a list (DEVICE.md, "UMR by pointer"
//! and "Entries in the middle of a list").

use crate::common::*;
use mlx5_mkey::types::Key;
use mlx5_mkey::wire::cqe::Syndrome;
use mlx5_mkey::wire::ctrl::Opcode;
use mlx5_mkey::wire::umr::UmrControlSegment;
use mlx5_softdev::*;

/// Bytes before the lists of a UMR, and the offset of its flags.
const LISTS: usize = 128;
const FLAGS: usize = 16;

/// Returns the UMR with a pointer to its lists, and stores the lists at this address.
fn by_pointer(host: &mut Host, Wqe(mut bytes): Wqe, address: u64, key: Key) -> Wqe {
    let lists = bytes.split_off(LISTS);
    host.put(address, &lists);
    bytes[FLAGS] &= 0x7f;
    Wqe(bytes).with(&klm(address, 0, key))
}

/// Allocates memory for a list at an allowed address.
fn memory(host: &mut Host, bytes: usize) -> (u64, Key) {
    let (at, key) = host.region(bytes, Access::LOCAL);
    assert!(at.is_multiple_of(UmrControlSegment::POINTER_ALIGNMENT));
    (at, key)
}

#[test]
fn a_list_in_memory_is_as_long_as_the_mkey_has_room_for() {
    let mut host = Host::new();
    let attributes = MkeyAttributes::new(host.pd, 1000);
    let key = host.device.create_mkey(attributes).unwrap();
    let mkey = Mkey { key, memory_psv: 0, wire_psv: 0, errors: true, signature: false, crypto: false };
    let data = pattern(9000, 1);
    let (at, region) = host.filled(&data);
    let entries: Vec<_> = (0..999u64).rev().map(|number| (at + number * 9, 7, region)).collect();
    let space: Vec<u8> =
        (0..999).rev().flat_map(|number| data[number * 9..number * 9 + 7].to_vec()).collect();
    let (list, lkey) = memory(&mut host, 16000);
    let umr = by_pointer(&mut host, Config::new(&mkey).access(RR | RW | LW).list(&entries).umr(), list, lkey);
    host.post(A, umr);
    assert_eq!(host.send_from(key, 0, 6993), space);
    // Later changes of the list in memory do not change the mkey.
    host.put(list, &[0xff; 16000]);
    assert_eq!(host.read_from(key, 3000, 100), space[3000..3100]);
    // The list has more entries than the mkey has room for.
    let entries = vec![(at, 1, region); 1001];
    let (list, lkey) = memory(&mut host, 16064);
    let umr = by_pointer(&mut host, Config::new(&mkey).list(&entries).umr(), list, lkey);
    while host.poll_send(A).is_some() {}
    assert_eq!(host.fails(A, umr).why(), Refusal::UmrRoom);
}

#[test]
fn bsfs_stand_right_behind_the_list() {
    let mut host = Host::new();
    let mkey = host.mkey(true, true);
    let data = pattern(1024, 1);
    let (at, region) = host.filled(&data);
    let dek = host.dek(&XTS_KEY);
    let config = || {
        Config::new(&mkey)
            .access(RR | LW)
            .list(&[(at, 500, region), (at + 500, 524, region)])
            .signature(Sig::None, Sig::crc(0x40), 0xf0)
            .crypto(2, 1, [7; 16], dek)
    };
    host.configure(config());
    let wire = host.read_from(mkey.key, 0, 1032);
    assert_ne!(wire[..512], data[..512], "encrypted");
    host.post(A, local_inv(mkey.key));
    let (list, lkey) = memory(&mut host, 256);
    let umr = by_pointer(&mut host, config().umr(), list, lkey);
    host.execute(A, umr);
    assert_eq!(host.read_from(mkey.key, 0, 1032), wire);
}

#[test]
fn lists_that_cannot_be_read_are_refused() {
    let mut host = Host::new();
    let mkey = host.mkey(false, false);
    let (at, region) = host.filled(&[7; 64]);
    let (list, lkey) = memory(&mut host, 8192);
    let other_pd = host.device.alloc_pd().unwrap();
    let foreign = host.device.register(other_pd, list, 8192, Access::ALL).unwrap();
    let umr = || Config::new(&mkey).access(RR | LW).list(&[(at, 64, region)]).umr();
    for (address, key, refusal) in [
        (list + 1024, lkey, Refusal::UmrUnsupported),
        (list, Key::from_raw(lkey.get() ^ 1), Refusal::KeyTag),
        (list, foreign, Refusal::ProtectionDomain),
        (list + 8192, lkey, Refusal::Bounds),
        (list, mkey.key, Refusal::KeyFree),
    ] {
        let umr = by_pointer(&mut host, umr(), address, key);
        assert_eq!(host.fails(A, umr).why(), refusal, "{address:#x} {key:?}");
        host.recover();
    }
    let umr = by_pointer(&mut host, umr(), list + 2048, lkey);
    // The request has one octoword too many.
    assert_eq!(host.fails(A, umr.clone().with(&[0_u8; 16])).syndrome(), Syndrome::LOCAL_QP_OPERATION);
    host.recover();
    host.post(A, umr);
    assert_eq!(host.send_from(mkey.key, 0, 64), [7; 64]);
}

#[test]
fn entries_in_the_middle_are_replaced_in_blocks_of_four() {
    let mut host = Host::new();
    let mkey = host.mkey(false, false);
    let data = pattern(10_000, 1);
    let (at, region) = host.filled(&data);
    let entry = |number: u64| (at + number * 10, 10, region);
    let spaces = |numbers: &[u64]| -> Vec<u8> {
        numbers.iter().flat_map(|number| data[*number as usize * 10..][..10].to_vec()).collect()
    };
    let mut numbers: Vec<u64> = (0..14).collect();
    let entries: Vec<_> = numbers.iter().copied().map(entry).collect();
    host.configure(Config::new(&mkey).access(RR | LW).list(&entries));
    let (list, lkey) = memory(&mut host, 256);
    for (first, new, pointer) in [
        (4, 4, false),
        (0, 4, false),
        (8, 4, true),
        (12, 2, true),
        (0, 8, true),
        (12, 2, false),
        (4, 8, false),
    ] {
        let replaced: Vec<u64> = (0..new as u64).map(|number| 100 + numbers[first] + number).collect();
        numbers.splice(first..first + new, replaced.iter().copied());
        let entries: Vec<_> = replaced.into_iter().map(entry).collect();
        let mut umr = replace(mkey.key, first as u64, None, &entries);
        if pointer {
            umr = by_pointer(&mut host, umr, list, lkey);
        }
        host.post(A, umr);
        assert_eq!(host.send_from(mkey.key, 0, 140), spaces(&numbers), "{first} {new} {pointer}");
    }
    while host.poll_send(A).is_some() {}
    // Padding is written, too: it replaces the old entries.
    host.post(A, replace(mkey.key, 4, None, &[entry(0)]).silent());
    host.send_from(mkey.key, 0, 140);
    assert_eq!(host.bad(A).why(), Refusal::Bounds);
    host.recover();
    for first in [1, 2, 6, 16] {
        host.execute(A, replace(mkey.key, first, None, &[entry(0); 4]));
        let refusal = if first == 16 { Refusal::UmrRoom } else { Refusal::UmrUnsupported };
        assert_eq!(host.bad(A).why(), refusal, "from {first} on");
        host.recover();
    }
}

/// Entries that hold none of the data also count toward the limit of ranges, since a list may have many such
/// entries, and many lists may name this list.
#[test]
fn entries_without_data_count_among_the_ranges() {
    for (max_ranges, is_strided, empty, outcome) in [
        (2, false, 0, true),
        (2, false, 1, false),
        (3, false, 15, true),
        (3, true, 0, true),
        (3, true, 8, false),
    ] {
        let mut host = Host::with(DeviceProfile { max_ranges, ..Default::default() }, |_| {});
        let (at, region) = host.filled(&[1; 64]);
        let mkey = host.mkey(false, false);
        let config = Config::new(&mkey).access(LW);
        let lengths = (0..empty).map(|_| 0).chain([64]);
        host.configure(if is_strided {
            config.strided(1, &lengths.map(|length| (at, length, 0, region)).collect::<Vec<_>>())
        } else {
            config.list(&lengths.map(|length| (at, length.into(), region)).collect::<Vec<_>>())
        });
        host.execute(B, send(Opcode::SEND, 0, &[segment(0, 64, mkey.key)]));
        let is_refused = host.poll_send(B).is_some_and(|seen| {
            assert_eq!(seen.reason(), Reason::TooManyRanges { limit: max_ranges });
            true
        });
        assert_eq!(!is_refused, outcome, "{max_ranges} {is_strided} {empty}");
    }
}
