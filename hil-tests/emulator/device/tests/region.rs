//! Tests of changes of a region's domain, memory and rights. The key stays the same.

use crate::common::*;
use mlx5_mkey::types::Key;
use mlx5_mkey::wire::ctrl::Opcode;
use mlx5_softdev::*;

/// Writes 8 bytes to `address` of a key, and returns the kind of refusal if the write fails.
fn write(host: &mut Host, address: u64, key: Key) -> Option<Refusal> {
    let (from, source) = host.filled(&[9; 8]);
    host.execute(B, rdma(Opcode::RDMA_WRITE, 0, address, key, &[segment(from, 8, source)]));
    let seen = host.poll_send(B).unwrap();
    if seen.opcode() == mlx5_mkey::wire::cqe::CqeOpcode::REQUESTER {
        return None;
    }
    let why = seen.why();
    host.recover();
    Some(why)
}

#[test]
fn a_region_keeps_its_key_and_what_is_not_changed() {
    let mut host = Host::new();
    let (at, key) = host.region(64, Access::LOCAL);
    let other = host.alloc(4096);
    assert!(write(&mut host, at, key).is_some(), "no right");
    let change = |host: &mut Host, change| host.device.reregister(key.index(), change);
    let access = RegionChange { access: Some(Access::ALL), ..RegionChange::default() };
    change(&mut host, access).unwrap();
    assert_eq!((write(&mut host, at, key), host.get(at, 8)), (None, vec![9; 8]));
    // Requests use the region's own addresses, which need not be the addresses of the memory.
    let placement = Placement { address: other, start: 0x5000, length: 16 };
    change(&mut host, RegionChange { placement: Some(placement), ..RegionChange::default() }).unwrap();
    assert!(write(&mut host, at, key).is_some(), "the address of before");
    assert!(write(&mut host, 0x5009, key).is_some(), "past the end");
    assert_eq!((write(&mut host, 0x5008, key), host.get(other, 16)), (None, [[0; 8], [9; 8]].concat()));
    // When the region is in another domain, this queue pair cannot use it.
    let pd = host.device.alloc_pd().unwrap();
    change(&mut host, RegionChange { pd: Some(pd), ..RegionChange::default() }).unwrap();
    assert!(write(&mut host, 0x5000, key).is_some());
    assert_eq!(host.device.dealloc_pd(pd), Err(Error::InUse));
    let own = host.pd;
    change(&mut host, RegionChange { pd: Some(own), ..RegionChange::default() }).unwrap();
    assert_eq!((write(&mut host, 0x5000, key), host.device.dealloc_pd(pd)), (None, Ok(())));
}

#[test]
fn a_change_that_is_refused_changes_nothing() {
    let mut host = Host::new();
    let (at, key) = host.region(64, Access::ALL);
    let mkey = host.mkey(false, false).key;
    let before = host.device.query_mkey(key.index()).unwrap();
    let good = Placement { address: at, start: at, length: 8 };
    let change = |host: &mut Host, key: Key, pd, placement| {
        let access = Some(Access::LOCAL_READ);
        host.device.reregister(key.index(), RegionChange { pd, placement: Some(placement), access })
    };
    let unknown = Error::NoSuchObject { what: "protection domain", number: 77 };
    assert_eq!(change(&mut host, key, Some(77), good), Err(unknown));
    for bad in [
        Placement { address: u64::MAX - 6, ..good },
        Placement { start: u64::MAX - 6, ..good },
        Placement { length: u64::MAX, ..good },
    ] {
        assert_eq!(change(&mut host, key, None, bad), Err(Error::BadAttribute("region")));
    }
    assert_eq!(change(&mut host, mkey, None, good), Err(Error::BadAttribute("region")));
    let none = Key::from_raw(0x7777_7700);
    let unknown = Error::NoSuchObject { what: "mkey", number: 0x77_7777 };
    assert_eq!(change(&mut host, none, None, good), Err(unknown));
    assert_eq!(host.device.query_mkey(key.index()).unwrap(), before);
}
