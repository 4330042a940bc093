//! Tests of keys that are created with their entries (PRM CREATE_MKEY): with entries of different lengths
//! (access mode KLM), and with entries of one length (KSM).

use crate::common::*;
use mlx5_mkey::types::Key;
use mlx5_mkey::wire::cqe::Syndrome;
use mlx5_softdev::*;

/// Creates a key over entries. With `log_entry`, all entries have one length.
fn over(host: &mut Host, log_entry: Option<u8>, space: MkeySpace) -> Result<Key, Error> {
    let plain = MkeyAttributes::new(host.pd, 8);
    let attributes = MkeyAttributes { free: false, access: Access::ALL, log_entry, ..plain };
    host.device.create_mkey_over(attributes, space)
}

const START: u64 = 0x7000_0000_0040;

#[test]
fn entries_of_one_length_are_found_by_number() {
    let mut host = Host::new();
    let (one, key1) = host.region(64, Access::ALL);
    let (two, key2) = host.region(64, Access::ALL);
    // All entries have 64 bytes (`log_entry` 6). The lengths in the entries are ignored.
    let entries = vec![klm(one, 0, key1), klm(two, 9, key2), klm(one, 0, key1)];
    let key = over(&mut host, Some(6), MkeySpace { start: START, length: 150, entries }).unwrap();
    let data = pattern(100, 1);
    host.write_into(key, START + 20, &data);
    host.good(B);
    assert_eq!((host.get(one + 20, 44), host.get(two, 56)), (data[..44].to_vec(), data[44..].to_vec()));
    // The last entry maps the memory of the first entry again.
    host.write_into(key, START + 128, &[7; 22]);
    host.good(B);
    assert_eq!(host.get(one, 22), [7; 22]);
    assert_eq!(host.read_from(key, START + 60, 8), [&data[40..44], &data[44..48]].concat());
    host.good(B);
    // Addresses before and behind the space are invalid.
    for at in [START - 1, START + 150, 0] {
        host.write_into(key, at, &[1]);
        assert_eq!(host.bad(B).syndrome(), Syndrome::REMOTE_ACCESS, "{at:#x}");
        host.recover();
    }
}

/// UCX keeps a second key over each region. The space of this key begins a few bytes behind the space of the
/// region.
#[test]
fn a_space_may_begin_elsewhere_than_its_memory() {
    let mut host = Host::new();
    let (memory, region) = host.region(64, Access::ALL);
    let base = memory & !0xfff_ffff;
    let entries = vec![klm(base, 0, region), klm(base + (1 << 28), 0, region)];
    let space = MkeySpace { start: base + 8, length: 1 << 29, entries };
    let key = over(&mut host, Some(28), space).unwrap();
    host.write_into(key, memory + 8, &[5; 64]);
    host.good(B);
    assert_eq!(host.get(memory, 64), [5; 64]);
    // The key does not give access to bytes outside of the region.
    host.write_into(key, memory + 9, &[5; 64]);
    assert_eq!(host.bad(B).syndrome(), Syndrome::REMOTE_ACCESS);
}

#[test]
fn a_space_has_entries_for_all_of_it_and_no_features() {
    let mut host = Host::new();
    let (memory, region) = host.region(64, Access::ALL);
    let good = MkeySpace { start: 0, length: 128, entries: vec![klm(memory, 0, region); 2] };
    assert!(over(&mut host, Some(6), good.clone()).is_ok());
    for (log_entry, bad) in [
        (Some(6), MkeySpace { length: 129, ..good.clone() }),
        (Some(5), good.clone()),
        (Some(32), good.clone()),
        (None, good.clone()),
        (Some(6), MkeySpace { start: u64::MAX - 100, ..good.clone() }),
        (Some(6), MkeySpace { start: 0, length: 9 << 6, entries: vec![klm(memory, 0, region); 9] }),
    ] {
        assert!(over(&mut host, log_entry, bad.clone()).is_err(), "{log_entry:?} {bad:?}");
    }
    let plain = MkeyAttributes { free: false, ..MkeyAttributes::new(host.pd, 8) };
    let list = MkeySpace { entries: vec![klm(memory, 64, region); 2], ..good };
    assert!(host.device.create_mkey_over(plain, list.clone()).is_ok());
    for attributes in [
        MkeyAttributes { signature: true, ..plain },
        MkeyAttributes { crypto: true, ..plain },
        MkeyAttributes { free: true, ..plain },
        MkeyAttributes { pd: 99, ..plain },
    ] {
        assert!(host.device.create_mkey_over(attributes, list.clone()).is_err(), "{attributes:?}");
    }
}

#[test]
fn no_umr_changes_such_a_key() {
    let mut host = Host::new();
    let (memory, region) = host.region(64, Access::ALL);
    let space = MkeySpace { start: 0, length: 64, entries: vec![klm(memory, 0, region)] };
    let key = over(&mut host, Some(6), space).unwrap();
    let mut mkey = host.mkey(false, false);
    mkey.key = key;
    let before = host.device.query_mkey(key.index()).unwrap();
    host.post_config(A, Config::new(&mkey).access(RR).list(&[(memory, 64, region)]));
    host.ring(A);
    host.bad(A);
    assert_eq!(host.device.query_mkey(key.index()).unwrap(), before);
}

/// Returns a UMR that writes the entries and the length of an mkey.
fn list(mkey: &Mkey, entries: &[(u64, u32, Key)], length: u64) -> Wqe {
    let mut config = Config::new(mkey).access(RR | LW).list(entries);
    config.context.len = length.into();
    config.umr()
}

/// One UMR writes all entries of a key with entries of one length, and another UMR replaces some of them. The
/// device ignores the lengths in the entries.
#[test]
fn umrs_write_entries_of_one_length() {
    let mut host = Host::new();
    let (memory, region) = host.filled(&pattern(700, 1));
    let bytes = pattern(700, 1);
    let attributes = MkeyAttributes { log_entry: Some(6), ..MkeyAttributes::new(host.pd, 12) };
    let key = host.device.create_mkey(attributes).unwrap();
    let mkey = Mkey { key, memory_psv: 0, wire_psv: 0, errors: true, signature: false, crypto: false };
    let entry = |place: usize| (memory + place as u64 * 7, 9, region);
    let expected = |places: &[usize]| -> Vec<u8> {
        places.iter().flat_map(|place| bytes[place * 7..place * 7 + 64].to_vec()).collect()
    };
    let places = [80, 3, 77, 0, 51, 50];
    let entries: Vec<_> = places.iter().copied().map(entry).collect();
    host.post(A, list(&mkey, &entries, 6 * 64));
    assert_eq!(host.send_from(key, 0, 6 * 64), expected(&places));
    assert_eq!(host.send_from(key, 63, 66), expected(&places)[63..129]);
    host.post(A, replace(key, 4, None, &[entry(11), entry(12)]));
    assert_eq!(host.send_from(key, 0, 6 * 64), expected(&[80, 3, 77, 0, 11, 12]));
    while host.poll_send(A).is_some() {}
    // A UMR writes more entries than the mkey has room for. The next UMR writes too few entries for the
    // length.
    assert_eq!(host.fails(A, list(&mkey, &[entry(0); 13], 64)).why(), Refusal::UmrRoom);
    host.recover();
    host.post(A, list(&mkey, &[entry(0); 2], 3 * 64));
    host.send_from(key, 60, 100);
    assert_eq!(host.bad(A).why(), Refusal::Bounds);
}

#[test]
fn entries_of_one_length_have_neither_signature_nor_crypto() {
    let mut host = Host::new();
    let plain = MkeyAttributes { log_entry: Some(31), ..MkeyAttributes::new(host.pd, 8) };
    assert!(host.device.create_mkey(plain).is_ok());
    for attributes in [
        MkeyAttributes { log_entry: Some(32), ..plain },
        MkeyAttributes { signature: true, ..plain },
        MkeyAttributes { crypto: true, ..plain },
    ] {
        assert!(host.device.create_mkey(attributes).is_err(), "{attributes:?}");
    }
}
