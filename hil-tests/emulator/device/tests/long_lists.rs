//! Tests of lists whose number of entries exceeds 16 bits: of offsets of 48 bits, and of lists that are
//! written in parts (DEVICE.md, "Entries in the middle of a list").

use crate::common::*;
use mlx5_mkey::types::Key;
use mlx5_softdev::*;

/// The room for entries of the mkeys in these tests.
const ROOM: u32 = 70_000;

/// Creates an mkey for entries of 64 bytes each, and an mkey for entries with their own lengths.
fn mkeys(host: &mut Host) -> [Key; 2] {
    [Some(6), None].map(|log_entry| {
        let attributes = MkeyAttributes { log_entry, free: false, ..MkeyAttributes::new(host.pd, ROOM) };
        host.device.create_mkey(attributes).unwrap()
    })
}

fn is_refused(host: &mut Host, key: Key, wqe: Wqe) {
    let before = host.device.query_mkey(key.index()).unwrap();
    host.execute(A, wqe);
    assert!(matches!(host.bad(A).why(), Refusal::UmrUnsupported | Refusal::UmrRoom));
    host.recover();
    assert_eq!(host.device.query_mkey(key.index()).unwrap(), before);
}

#[test]
fn entries_have_numbers_of_more_than_16_bits() {
    let mut host = Host::new();
    let data = pattern(1024, 1);
    let (at, region) = host.filled(&data);
    let [equal, _] = mkeys(&mut host);
    let entry = |place: u64| (at + place * 9, 0, region);
    // The device finds entries of one length by their number, also if earlier entries are missing.
    for (first, count, salt) in [(0x1_0000, 4, 0), (0x1_0004, 3, 7), (0xfffc, 8, 30), (69_996, 4, 11)] {
        let entries: Vec<_> = (0..count).map(|number| entry(number + salt)).collect();
        host.post(A, replace(equal, first, Some((first + count) * 64), &entries));
        let expected: Vec<u8> =
            (0..count).flat_map(|number| data[(number + salt) as usize * 9..][..64].to_vec()).collect();
        assert_eq!(host.send_from(equal, first * 64, count as u32 * 64), expected, "{first}");
    }
    while host.poll_send(A).is_some() {}
    // The numbers 0x1_0000 and 0 have the same low 16 bits, but are different entries: this UMR writes entry
    // 0.
    host.post(A, replace(equal, 0, Some(64), &[entry(50)]));
    assert_eq!(host.send_from(equal, 0, 64), data[450..514]);
}

#[test]
fn a_list_grows_by_parts() {
    let mut host = Host::new();
    let data = pattern(1024, 1);
    let (at, region) = host.filled(&data);
    let [_, own] = mkeys(&mut host);
    let (mut space, mut length) = (Vec::new(), 0);
    for (number, count) in [8_u64, 4, 7].into_iter().enumerate() {
        let range = |entry: u64| (entry * 11 + number as u64) as usize..(entry * 11) as usize + 5 + number;
        let entries: Vec<_> = (0..count)
            .map(|entry| (at + range(entry).start as u64, range(entry).len() as u32, region))
            .collect();
        let first = [0, 8, 12][number];
        length += entries.iter().map(|entry| u64::from(entry.1)).sum::<u64>();
        space.extend((0..count).flat_map(|entry| data[range(entry)].to_vec()));
        host.post(A, replace(own, first, Some(length), &entries));
        assert_eq!(host.send_from(own, 0, length as u32), space, "{number} parts");
    }
}

#[test]
fn offsets_that_cannot_be_are_refused() {
    let mut host = Host::new();
    let (at, region) = host.filled(&[7; 64]);
    let entries = [(at, 0, region); 4];
    let [equal, own] = mkeys(&mut host);
    for key in [equal, own] {
        for first in [0x1_0002, 69_998, 70_000, 1 << 18, 1 << 32, 1 << 47, (1 << 48) - 4] {
            is_refused(&mut host, key, replace(key, first, Some(64), &entries));
        }
    }
    // The flag for an offset is off, but the upper bits of the offset are set.
    let Wqe(mut bytes) = replace(equal, 0x1_0000, Some(64), &entries);
    bytes[16] = 0x80;
    is_refused(&mut host, equal, Wqe(bytes));
    // The mkey asks for more entries than the limit.
    for log in [18, 31] {
        let attributes = MkeyAttributes::new(host.pd, (1 << log) + u32::from(log == 18));
        assert!(host.device.create_mkey(attributes).is_err());
    }
    assert!(host.device.create_mkey(MkeyAttributes::new(host.pd, 1 << 18)).is_ok());
}

#[test]
fn without_the_capability_an_offset_has_16_bits() {
    let mut host = Host::with(DeviceProfile { extended_offsets: false, ..Default::default() }, |_| {});
    let (at, region) = host.filled(&[7; 64]);
    let [equal, _] = mkeys(&mut host);
    is_refused(&mut host, equal, replace(equal, 0x1_0000, Some(0x1_0001 * 64), &[(at, 0, region)]));
    host.post(A, replace(equal, 0xfffc, Some(0xfffd * 64), &[(at, 0, region)]));
    assert_eq!(host.send_from(equal, 0xfffc * 64, 64), [7; 64]);
}
