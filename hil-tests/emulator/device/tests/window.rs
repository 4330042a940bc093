//! Tests of memory windows, as the kernel creates them and libmlx5 binds them. A window is an mkey with room
//! for a few entries, and a UMR with one entry binds it.

use crate::common::*;
use mlx5_mkey::types::Key;
use mlx5_mkey::wire::cqe::{CqeOpcode, Syndrome};
use mlx5_mkey::wire::ctrl::Opcode;
use mlx5_mkey::wire::mkey_context::{MkeyContext, QpnMkey};
use mlx5_mkey::wire::umr::UmrControlSegment;
use mlx5_softdev::*;

/// Access bits of an mkey context.
const LOCAL_WRITE: u8 = 1 << 3;
const REMOTE_READ: u8 = 1 << 4;
const REMOTE_WRITE: u8 = 1 << 5;

/// The type of a window. All queue pairs of the domain can use a bound window of type 1. A bound window of
/// type 2 can be used only by the queue pair that executed the binding.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    One,
    Two,
}

/// Creates a window, as ALLOC_MW does.
fn window(host: &mut Host, kind: Kind) -> Key {
    let attributes = MkeyAttributes {
        access: Access::LOCAL_READ,
        remote_invalidate: kind == Kind::Two,
        ..MkeyAttributes::new(host.pd, 4)
    };
    host.device.create_mkey(attributes).unwrap()
}

/// Binds a window to bytes of a region, on queue pair `at`. A length of 0 ends the binding. Returns the key
/// of the window, which has a new tag.
fn bind(
    host: &mut Host,
    at: usize,
    kind: Kind,
    window: Key,
    access: u8,
    (address, length, region): (u64, u32, Key),
) -> Key {
    let key = Key::new(window.index(), window.tag().wrapping_add(1));
    let (mut flags, mut mask) = (0x90, 1 << 29 | 1 << 13);
    let mut bound = QpnMkey::ANY;
    let mut context = MkeyContext::default();
    if kind == Kind::Two {
        mask |= 1 << 14;
        flags |= if length == 0 { 1 << 3 } else { 1 << 5 };
    }
    if length == 0 {
        context.free = 0x40;
    } else {
        mask |= 1 | 1 << 6 | 1 << 18 | 1 << 19 | 1 << 20 | 1 << 21;
        (context.access, context.start_addr) = (access, address.into());
        context.len = u64::from(length).into();
        if kind == Kind::Two {
            bound = host.q[at].qpn;
        }
    }
    context.qpn_mkey = (bound << 8 | u32::from(key.tag())).into();
    let klm_octowords = if length == 0 { 0 } else { 4 };
    let control = UmrControlSegment {
        flags,
        mkey_mask: mask.into(),
        klm_octowords: klm_octowords.into(),
        ..Default::default()
    };
    let mut wqe = Wqe::new(Opcode::UMR, window.get()).with(&control).with(&context);
    if length != 0 {
        wqe = wqe.with(&klm(address, length, region)).with(&[0_u8; 48]);
    }
    host.execute(at, wqe);
    key
}

/// Creates a window, and binds it on queue pair A.
fn bound(host: &mut Host, kind: Kind, access: u8, range: (u64, u32, Key)) -> Key {
    let free = window(host, kind);
    let key = bind(host, A, kind, free, access, range);
    host.good(A);
    key
}

/// B writes or reads 8 bytes through a key of A. `Err` is the syndrome of a refusal.
fn ask(host: &mut Host, opcode: Opcode, address: u64, key: Key) -> Result<(), Syndrome> {
    let (at, local) = host.filled(&[5; 8]);
    outcome(host, B, rdma(opcode, 0, address, key, &[segment(at, 8, local)]))
}

fn outcome(host: &mut Host, at: usize, wqe: Wqe) -> Result<(), Syndrome> {
    host.execute(at, wqe);
    let seen = host.poll_send(at).unwrap();
    if seen.opcode() == CqeOpcode::REQUESTER {
        return Ok(());
    }
    host.recover();
    Err(seen.syndrome())
}

const REFUSED: Result<(), Syndrome> = Err(Syndrome::REMOTE_ACCESS);

#[test]
fn a_window_gives_rights_that_its_region_does_not() {
    for kind in [Kind::One, Kind::Two] {
        let mut host = Host::new();
        let (at, region) = host.region(64, Access::LOCAL);
        let unbound = window(&mut host, kind);
        assert_eq!(ask(&mut host, Opcode::RDMA_WRITE, at + 16, unbound), REFUSED, "not bound");
        let key = bind(&mut host, A, kind, unbound, LOCAL_WRITE | REMOTE_WRITE, (at + 16, 32, region));
        host.good(A);
        assert_eq!(ask(&mut host, Opcode::RDMA_WRITE, at + 16, key), Ok(()));
        assert_eq!((host.get(at + 16, 8), host.get(at, 16)), (vec![5; 8], vec![0; 16]));
        for (opcode, address, key) in [
            (Opcode::RDMA_READ, at + 16, key),
            (Opcode::RDMA_WRITE, at + 8, key),
            (Opcode::RDMA_WRITE, at + 41, key),
            (Opcode::RDMA_WRITE, at + 16, unbound),
            (Opcode::RDMA_WRITE, at + 16, region),
        ] {
            assert_eq!(ask(&mut host, opcode, address, key), REFUSED, "{opcode:?} {address:#x} {key:?}");
        }
    }
}

/// A window gives a peer no right that the region does not give its owner.
#[test]
fn a_window_over_what_cannot_be_written_is_not_written() {
    let mut host = Host::new();
    let (at, region) = host.region(64, Access::LOCAL_READ);
    let free = window(&mut host, Kind::One);
    let key = bind(&mut host, A, Kind::One, free, REMOTE_READ | REMOTE_WRITE, (at, 64, region));
    assert_eq!(ask(&mut host, Opcode::RDMA_WRITE, at, key), REFUSED);
    assert_eq!(ask(&mut host, Opcode::RDMA_READ, at, key), Ok(()));
    // The region is destroyed under the window.
    host.device.destroy_mkey(region.index()).unwrap();
    assert_eq!(ask(&mut host, Opcode::RDMA_READ, at, key), REFUSED);
}

#[test]
fn a_window_of_type_1_is_bound_anew_by_any_queue_pair_of_its_domain() {
    let mut host = Host::new();
    let (at, region) = host.region(64, Access::LOCAL);
    let first = bound(&mut host, Kind::One, REMOTE_WRITE, (at, 8, region));
    let second = bind(&mut host, B, Kind::One, first, REMOTE_WRITE, (at + 8, 8, region));
    host.good(B);
    assert_eq!(ask(&mut host, Opcode::RDMA_WRITE, at, first), REFUSED);
    assert_eq!(ask(&mut host, Opcode::RDMA_WRITE, at + 8, second), Ok(()));
    let third = bind(&mut host, A, Kind::One, second, 0, (at, 0, region));
    host.good(A);
    for key in [second, third] {
        assert_eq!(ask(&mut host, Opcode::RDMA_WRITE, at + 8, key), REFUSED);
    }
}

#[test]
fn a_window_of_type_2_belongs_to_the_queue_pair_that_has_bound_it() {
    let mut host = Host::new();
    let (at, region) = host.region(64, Access::LOCAL);
    let mut key = bound(&mut host, Kind::Two, REMOTE_WRITE, (at, 8, region));
    // Another queue pair of the domain cannot use the window.
    let (from, source) = host.filled(&[1; 8]);
    host.execute(A, rdma(Opcode::RDMA_WRITE, 0, at, key, &[segment(from, 8, source)]));
    assert_eq!(host.bad(A).syndrome(), Syndrome::REMOTE_ACCESS);
    host.recover();
    // The other queue pair can neither bind the window nor end the binding.
    for length in [8, 0] {
        bind(&mut host, B, Kind::Two, key, REMOTE_WRITE, (at, length, region));
        assert_eq!(host.bad(B).syndrome(), Syndrome::MW_BIND);
        host.recover();
    }
    // Before the queue pair binds the window again, it has to end the first binding.
    bind(&mut host, A, Kind::Two, key, REMOTE_WRITE, (at, 16, region));
    assert_eq!(host.bad(A).syndrome(), Syndrome::MW_BIND);
    host.recover();
    assert_eq!(ask(&mut host, Opcode::RDMA_WRITE, at, key), Ok(()));
    host.post(A, local_inv(key));
    key = bind(&mut host, A, Kind::Two, key, REMOTE_WRITE, (at, 16, region));
    host.good(A);
    assert_eq!(ask(&mut host, Opcode::RDMA_WRITE, at + 8, key), Ok(()));
}

/// Sends a SEND with invalidation of a key to queue pair `to`. `Err` is the syndrome of the sender.
fn invalidate(host: &mut Host, to: usize, key: Key) -> Result<(), Syndrome> {
    host.post_receive(to, &[]);
    outcome(host, A + B - to, send(Opcode::SEND_INVAL, key.get(), &[]))
}

#[test]
fn a_peer_invalidates_windows_of_type_2_of_its_own_queue_pair() {
    let mut host = Host::new();
    let (at, region) = host.region(64, Access::LOCAL);
    let one = bound(&mut host, Kind::One, REMOTE_WRITE, (at, 8, region));
    let two = bound(&mut host, Kind::Two, REMOTE_WRITE, (at, 8, region));
    assert_eq!(invalidate(&mut host, A, one), REFUSED, "type 1");
    assert_eq!(invalidate(&mut host, B, two), REFUSED, "another queue pair's");
    assert_eq!(ask(&mut host, Opcode::RDMA_WRITE, at, two), Ok(()));
    assert_eq!(invalidate(&mut host, A, two), Ok(()));
    assert_eq!(ask(&mut host, Opcode::RDMA_WRITE, at, two), REFUSED);
    // After the invalidation, any queue pair may bind the window.
    bind(&mut host, B, Kind::Two, two, REMOTE_WRITE, (at, 8, region));
    host.good(B);
}
