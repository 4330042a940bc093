//! Keys that are created with their entries: lists, and entries of one length (PRM CREATE_MKEY, access modes KLM and KSM).

use crate::common::*;
use mlx5_mkey::types::Key;
use mlx5_mkey::wire::cqe::Syndrome;
use mlx5_mkey::wire::klm::Klm;
use mlx5_softdev::*;

/// A key over `entries`, each an address and a length.
fn over(host: &mut Host, space: MkeySpace) -> Result<Key, Error> {
    let attributes = MkeyAttributes { free: false, access: Access::ALL, ..MkeyAttributes::new(host.pd, 8) };
    host.device.create_mkey_over(attributes, space)
}

fn klm(address: u64, bytes: u32, key: Key) -> Klm {
    Klm { byte_count: bytes.into(), mkey: key.get().into(), address: address.into() }
}

const START: u64 = 0x7000_0000_0040;

#[test]
fn entries_of_one_length_are_found_by_number() {
    let mut host = Host::new();
    let (one, key1) = host.region(64, Access::ALL);
    let (two, key2) = host.region(64, Access::ALL);
    // Their own lengths say nothing.
    let entries = vec![klm(one, 0, key1), klm(two, 9, key2), klm(one, 0, key1)];
    let key = over(&mut host, MkeySpace { start: START, length: 150, entries, log_entry: Some(6) }).unwrap();
    let data = pattern(100, 1);
    host.write_into(key, START + 20, &data);
    host.good(B);
    assert_eq!((host.get(one + 20, 44), host.get(two, 56)), (data[..44].to_vec(), data[44..].to_vec()));
    // The last of them begins again with the first one's memory.
    host.write_into(key, START + 128, &[7; 22]);
    host.good(B);
    assert_eq!(host.get(one, 22), [7; 22]);
    assert_eq!(host.read_from(key, START + 60, 8), [&data[40..44], &data[44..48]].concat());
    host.good(B);
    // Neither before nor behind it.
    for at in [START - 1, START + 150, 0] {
        host.write_into(key, at, &[1]);
        assert_eq!(host.bad(B).syndrome(), Syndrome::REMOTE_ACCESS, "{at:#x}");
        host.recover();
    }
}

/// UCX keeps a second key over each region, whose space begins a few bytes behind the region's.
#[test]
fn a_space_may_begin_elsewhere_than_its_memory() {
    let mut host = Host::new();
    let (memory, region) = host.region(64, Access::ALL);
    let base = memory & !0xfff_ffff;
    let entries = vec![klm(base, 0, region), klm(base + (1 << 28), 0, region)];
    let space = MkeySpace { start: base + 8, length: 1 << 29, entries, log_entry: Some(28) };
    let key = over(&mut host, space).unwrap();
    host.write_into(key, memory + 8, &[5; 64]);
    host.good(B);
    assert_eq!(host.get(memory, 64), [5; 64]);
    // What the region does not have is none of the key's either.
    host.write_into(key, memory + 9, &[5; 64]);
    assert_eq!(host.bad(B).syndrome(), Syndrome::REMOTE_ACCESS);
}

#[test]
fn entries_of_their_own_lengths_follow_each_other() {
    let mut host = Host::new();
    let (one, key1) = host.region(64, Access::ALL);
    let (two, key2) = host.region(64, Access::ALL);
    let entries = vec![klm(one, 10, key1), klm(two, 20, key2)];
    let key = over(&mut host, MkeySpace { start: 0, length: 30, entries, log_entry: None }).unwrap();
    let data = pattern(30, 1);
    host.write_into(key, 0, &data);
    host.good(B);
    assert_eq!((host.get(one, 10), host.get(two, 20)), (data[..10].to_vec(), data[10..].to_vec()));
}

#[test]
fn a_space_has_entries_for_all_of_it_and_no_features() {
    let mut host = Host::new();
    let (memory, region) = host.region(64, Access::ALL);
    let good =
        MkeySpace { start: 0, length: 128, entries: vec![klm(memory, 0, region); 2], log_entry: Some(6) };
    assert!(over(&mut host, good.clone()).is_ok());
    for bad in [
        MkeySpace { length: 129, ..good.clone() },
        MkeySpace { log_entry: Some(5), ..good.clone() },
        MkeySpace { log_entry: Some(32), ..good.clone() },
        MkeySpace { log_entry: None, ..good.clone() },
        MkeySpace { start: u64::MAX - 100, ..good.clone() },
        MkeySpace { entries: vec![klm(memory, 0, region); 9], ..good.clone() },
    ] {
        assert!(over(&mut host, bad.clone()).is_err(), "{bad:?}");
    }
    let plain = MkeyAttributes { free: false, ..MkeyAttributes::new(host.pd, 8) };
    for attributes in [
        MkeyAttributes { signature: true, ..plain },
        MkeyAttributes { crypto: true, ..plain },
        MkeyAttributes { free: true, ..plain },
        MkeyAttributes { pd: 99, ..plain },
    ] {
        assert!(host.device.create_mkey_over(attributes, good.clone()).is_err(), "{attributes:?}");
    }
}

#[test]
fn no_umr_changes_such_a_key() {
    let mut host = Host::new();
    let (memory, region) = host.region(64, Access::ALL);
    let space = MkeySpace { start: 0, length: 64, entries: vec![klm(memory, 0, region)], log_entry: Some(6) };
    let key = over(&mut host, space).unwrap();
    let mut mkey = host.mkey(false, false);
    mkey.key = key;
    let before = host.device.query_mkey(key.index()).unwrap();
    host.post_config(A, Config::new(&mkey).access(RR).list(&[(memory, 64, region)]));
    host.ring(A);
    host.bad(A);
    assert_eq!(host.device.query_mkey(key.index()).unwrap(), before);
}
