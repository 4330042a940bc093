//! Tests of copies without a peer, as libmlx5 writes them (opcode MMO), and of refused copies.

use crate::common::*;
use mlx5_mkey::types::Key;
use mlx5_mkey::wire::cqe::Syndrome;
use mlx5_mkey::wire::ctrl::{FmCeSe, Opcode};
use mlx5_mkey::wire::data::DataSegment;
use mlx5_softdev::*;

fn copies() -> Host {
    let mut host = Host::new();
    host.device.set_copies(host.q[A].qpn, true).unwrap();
    host
}

/// Returns a request for a copy. Its segment for the opaque buffer is all zeros.
fn copy(from: DataSegment, to: DataSegment) -> Wqe {
    let mut wqe = Wqe::new(Opcode::MMO, 0).with(&[0_u8; 16]).with(&from).with(&to);
    wqe.0[0] = 1;
    wqe
}

fn refused(host: &mut Host, wqe: Wqe) -> (Syndrome, Refusal) {
    let seen = host.fails(A, wqe);
    host.recover();
    (seen.syndrome(), seen.why())
}

#[test]
fn memory_is_copied_between_keys() {
    let mut host = copies();
    let data = pattern(5000, 3);
    let (from, source) = host.filled(&data);
    let (to, target) = host.region(8192, Access::LOCAL);
    // The target may consist of several ranges.
    let list = host.mkey(false, false);
    let entries = [(to + 4096, 2000, target), (to, 3000, target)];
    host.configure(Config::new(&list).list(&entries));
    host.succeeds(A, copy(segment(from, 5000, source), segment(0, 5000, list.key)));
    assert_eq!(
        (host.get(to + 4096, 2000), host.get(to, 3000)),
        (data[..2000].to_vec(), data[2000..].to_vec())
    );
    assert!(host.device.take_message().is_none());
}

#[test]
fn what_cannot_be_copied_is_refused_and_nothing_is_written() {
    let mut host = copies();
    let (from, source) = host.filled(&[7; 64]);
    let (to, target) = host.region(64, Access::LOCAL);
    let (_, read_only) = host.region(64, Access { remote_write: true, ..Access::LOCAL_READ });
    let pd = host.device.alloc_pd().unwrap();
    let foreign = host.device.register(pd, to, 64, Access::ALL).unwrap();
    let signed = host.mkey(true, false).key;
    host.device.register(host.pd, to, 64, Access::ALL).unwrap();
    let good = segment(from, 64, source);
    let protection = |refusal: Refusal| (Syndrome::LOCAL_PROTECTION, refusal);
    for (key, refusal) in
        [(foreign, Refusal::ProtectionDomain), (Key::from_raw(0x7777_7700), Refusal::UnknownKey)]
    {
        for wqe in [copy(good, segment(to, 64, key)), copy(segment(to, 64, key), segment(to, 64, target))] {
            assert_eq!(refused(&mut host, wqe), protection(refusal));
        }
    }
    assert_eq!(refused(&mut host, copy(good, segment(to, 64, read_only))), protection(Refusal::Right));
    assert_eq!(refused(&mut host, copy(good, segment(to + 1, 64, target))), protection(Refusal::Bounds));
    assert_eq!(refused(&mut host, copy(good, segment(0, 64, signed))), protection(Refusal::Bsf));
    let malformed = (Syndrome::LOCAL_QP_OPERATION, Refusal::Malformed);
    let mut other = copy(good, segment(to, 64, target));
    other.0[0] = 2;
    assert_eq!(refused(&mut host, other), malformed, "another operation");
    let short = Wqe::new(Opcode::MMO, 0).with(&[0_u8; 16]).with(&good);
    assert_eq!(refused(&mut host, Wqe([&[1], &short.0[1..]].concat())), malformed);
    let long = copy(good, segment(to, 64, target)).with(&good);
    assert_eq!(refused(&mut host, long), malformed);
    let longest = copy(segment(from, 1 << 21, source), segment(to, 1 << 21, target));
    assert_eq!(refused(&mut host, longest), protection(Refusal::Bounds), "as long as a copy may be");
    let length = (Syndrome::LOCAL_LENGTH, Refusal::Length);
    for bytes in [(1 << 21) + 1, 0] {
        let wqe = copy(segment(from, bytes, source), segment(to, bytes, target));
        assert_eq!(refused(&mut host, wqe), length, "{bytes}: 0 stands for 2 GiB");
    }
    assert_eq!(host.get(to, 64), [0; 64]);
    // The device accepts a source and a target of different lengths, because no public source shows a device
    // that refuses them.
    host.succeeds(A, copy(good, segment(to, 63, target)));
    assert_eq!(host.get(to, 64), [&host.get(from, 63)[..], &[0]].concat());
}

#[test]
fn only_queue_pairs_that_were_made_for_it_copy() {
    let mut host = Host::new();
    let (from, source) = host.filled(&[7; 64]);
    let (to, target) = host.region(64, Access::LOCAL);
    let wqe = || copy(segment(from, 64, source), segment(to, 64, target));
    assert_eq!(refused(&mut host, wqe()).1, Refusal::Malformed);
    host.device.set_copies(host.q[A].qpn, true).unwrap();
    host.succeeds(A, wqe());
    let none = DeviceProfile { log_max_copy: None, ..DeviceProfile::default() };
    let mut host = Host::with(none, |_| {});
    assert_eq!(host.device.set_copies(host.q[A].qpn, true), Err(Error::BadAttribute("mmo")));
    assert_eq!(host.device.set_copies(host.q[A].qpn, false), Ok(()));
    let connection = |attributes: &mut QpAttributes| attributes.transport = Transport::UnreliableConnection;
    let mut host = Host::with(DeviceProfile::default(), connection);
    host.device.set_copies(host.q[A].qpn, true).unwrap();
    assert_eq!(refused(&mut host, wqe()).1, Refusal::Malformed);
}

/// The second copy reads the target of the first. On a device with unordered copies, only a strong fence
/// keeps their order.
#[test]
fn copies_have_no_order_without_a_strong_fence() {
    for (unordered_copies, fence, expected) in
        [(false, 0, 7), (true, 0, 1), (true, FmCeSe::FM_FENCE, 1), (true, FmCeSe::FM_STRONG, 7)]
    {
        let profile = DeviceProfile { unordered_copies, ..DeviceProfile::default() };
        let mut host = Host::with(profile, |_| {});
        host.device.set_copies(host.q[A].qpn, true).unwrap();
        let (from, source) = host.filled(&[7; 64]);
        let (between, middle) = host.filled(&[1; 64]);
        let (to, target) = host.filled(&[2; 64]);
        host.post(A, copy(segment(from, 64, source), segment(between, 64, middle)));
        let mut second = copy(segment(between, 64, middle), segment(to, 64, target));
        second.0[11] |= fence << 5;
        host.execute(A, second);
        let counters: Vec<u16> =
            std::iter::from_fn(|| host.poll_send(A)).map(|seen| seen.counter()).collect();
        assert_eq!(counters, [0, 1], "completions keep their order");
        assert_eq!(host.get(between, 64), [7; 64]);
        assert_eq!(host.get(to, 64), [expected; 64], "{unordered_copies} {fence}");
    }
}
