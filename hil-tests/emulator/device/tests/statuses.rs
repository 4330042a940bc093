//! Tests that compare the syndromes and causes of error completions with reports from users of real devices
//! (DEVICE.md, "What users' devices have said").

use crate::common::Seen;
use crate::common::*;
use mlx5_mkey::types::Key;
use mlx5_mkey::wire::cqe::{CqeOpcode, Syndrome};
use mlx5_mkey::wire::ctrl::Opcode;
use mlx5_softdev::*;

/// Returns the syndrome, vendor syndrome and hardware syndrome of an entry.
fn status(seen: &Seen) -> (Syndrome, u8, u8) {
    (seen.syndrome(), seen.vendor(), seen.0.as_error().hw_error_syndrome)
}

fn read(host: &mut Host, address: u64, key: Key) -> Seen {
    let (at, plain) = host.region(64, Access::ALL);
    host.execute(B, rdma(Opcode::RDMA_READ, 0, address, key, &[segment(at, 64, plain)]));
    host.bad(B)
}

#[test]
fn a_requester_has_the_vendor_syndromes_of_hardware() {
    let mut host = Host::new();
    let (at, key) = host.region(64, Access::ALL);
    let (_, local) = host.region(64, Access::LOCAL);
    let unknown = Key::from_raw(0x7777_7700);
    let seen = read(&mut host, at, unknown);
    assert_eq!(status(&seen), (Syndrome::REMOTE_ACCESS, 0x88, 0));
    assert_eq!(seen.reason(), Reason::UnknownKey { key: unknown.get() });
    host.recover();
    let seen = read(&mut host, at, local);
    assert_eq!(status(&seen), (Syndrome::REMOTE_ACCESS, 0x88, 0));
    assert_eq!(seen.reason(), Reason::NoRemoteRead { key: local.get() });
    host.recover();
    let outside = segment(at, 65, key);
    let (unread, no_read) = host.region(64, Access { local_read: false, ..Access::ALL });
    let forbidden = segment(unread, 8, no_read);
    for (from, vendor) in [(segment(at, 8, unknown), 0x51), (forbidden, 0x52), (outside, 0x53)] {
        host.execute(A, send(Opcode::SEND, 0, &[from]));
        assert_eq!(status(&host.bad(A)), (Syndrome::LOCAL_PROTECTION, vendor, 0));
        host.recover();
    }
    // If the responder's own receive request is wrong, the requests of both queue pairs fail.
    for (into, vendor) in [(segment(at, 64, unknown), 0x32), (segment(at + 1, 64, key), 0x56)] {
        let (from, source) = host.filled(&[1; 64]);
        host.post_receive(A, &[into]);
        host.post_receive(A, &[into]);
        host.execute(B, send(Opcode::SEND, 0, &[segment(from, 64, source)]));
        assert_eq!(status(&host.bad(B)), (Syndrome::REMOTE_OPERATION, 0x89, 0));
        let seen = host.poll_recv(A).unwrap();
        assert_eq!(seen.opcode(), CqeOpcode::RESPONDER_ERROR);
        assert_eq!(status(&seen), (Syndrome::LOCAL_PROTECTION, vendor, 0));
        // The second receive request was never used, and is flushed.
        let seen = host.poll_recv(A).unwrap();
        assert_eq!(status(&seen), (Syndrome::FLUSHED, 0xf9, 0));
        assert_eq!(seen.reason(), Reason::Flushed);
        host.recover();
    }
}

#[test]
fn a_peer_that_has_no_receive_is_asked_in_vain() {
    let mut host = Host::with(DeviceProfile::default(), |queue| queue.rnr_retry = Retries::Count(1));
    host.execute(A, send(Opcode::SEND, 0, &[]));
    for _ in 0..2 {
        host.device.run();
    }
    let seen = host.bad(A);
    assert_eq!(status(&seen), (Syndrome::RNR_RETRY, 0x87, 0));
    assert_eq!(seen.reason(), Reason::ReceiverNotReady { attempts: 1 });
}

/// A repetition counts when the time has passed that the peer asks for. One run of the device stands for a
/// millisecond.
#[test]
fn the_peers_timer_decides_how_long_it_is_asked() {
    for (timer, runs) in [(0, 656), (1, 1), (13, 1), (14, 2), (20, 11), (21, 16), (31, 492)] {
        let mut host = Host::with(DeviceProfile::default(), |queue| queue.rnr_retry = Retries::Count(2));
        host.device.set_rnr_timer(host.q[B].qpn, timer).unwrap();
        host.execute(A, send(Opcode::SEND, 0, &[]));
        for run in 0..2 * runs {
            assert!(host.poll_send(A).is_none(), "timer {timer}, run {run}");
            host.device.run();
        }
        assert_eq!(host.bad(A).reason(), Reason::ReceiverNotReady { attempts: 2 }, "timer {timer}");
    }
}

#[test]
fn what_the_queue_pair_forbids_is_an_invalid_request() {
    let forbidden = Access { remote_read: false, remote_write: false, remote_atomic: false, ..Access::ALL };
    for (opcode, reason) in [
        (Opcode::RDMA_READ, Reason::QueueForbidsRead { qpn: 0 }),
        (Opcode::RDMA_WRITE, Reason::QueueForbidsWrite { qpn: 0 }),
    ] {
        let mut host = Host::new();
        host.device.set_rights(host.q[A].qpn, forbidden).unwrap();
        let (at, key) = host.region(64, Access::ALL);
        let seen = host.fails(B, rdma(opcode, 0, at, key, &[segment(at, 64, key)]));
        assert_eq!(status(&seen), (Syndrome::REMOTE_INVALID_REQUEST, 0x8a, 0));
        assert_eq!(seen.reason().name(), reason.name());
        assert_eq!(host.device.take_events(), [Event::QpRequest(host.q[A].qpn)]);
    }
    // An atomic is an invalid request if the queue pair forbids it, or if its address is not aligned.
    for (offset, rights) in [(0, forbidden), (4, Access::ALL)] {
        let mut host = Host::new();
        let qpn = host.q[A].qpn;
        host.device.set_rights(qpn, rights).unwrap();
        let (at, key) = host.region(64, Access::ALL);
        let atomic = Wqe::new(Opcode::ATOMIC_FA, 0).with(&remote(at + offset, key)).with(&[0_u8; 16]);
        let seen = host.fails(B, atomic.with(&segment(at, 8, key)));
        assert_eq!(status(&seen), (Syndrome::REMOTE_INVALID_REQUEST, 0x8a, 0));
        let reason = match offset {
            0 => Reason::QueueForbidsAtomics { qpn },
            _ => Reason::AtomicAlignment { address: at + offset, bytes: 8 },
        };
        assert_eq!(seen.reason(), reason);
        assert_eq!(host.device.take_events(), [Event::QpRequest(qpn)]);
    }
}

/// A request of the peer for a part of a data unit is an invalid request.
#[test]
fn a_part_of_a_data_unit_is_an_invalid_request() {
    let mut host = Host::new();
    let (mkey, dek) = (host.mkey(false, true), host.dek(&XTS_KEY));
    let (at, key) = host.filled(&[7; 1024]);
    host.configure(Config::new(&mkey).access(RR | LW).list(&[(at, 1024, key)]).crypto(2, 1, [0; 16], dek));
    let seen = read(&mut host, 256, mkey.key);
    assert_eq!(status(&seen), (Syndrome::REMOTE_INVALID_REQUEST, 0x8a, 0));
    assert_eq!(seen.reason(), Reason::OffsetInBlock { offset: 256, block: 512 });
    assert_eq!(host.device.take_events(), [Event::QpRequest(host.q[A].qpn)]);
}

#[test]
fn a_umr_over_the_room_of_its_mkey_fails_as_a_bind_does() {
    let mut host = Host::new();
    let mkey = host.mkey(false, false);
    let (at, key) = host.filled(&[7; 64]);
    let seen = host.fails(A, Config::new(&mkey).list(&[(at, 1, key); 17]).umr());
    assert_eq!(status(&seen), (Syndrome::MW_BIND, 0x78, 0x0f));
    assert_eq!(seen.reason(), Reason::EntriesOverRoom { entries: 17, room: 16 });
}

/// A UMR may write a length that exceeds the entries. The transfer that needs the missing entries is refused.
#[test]
fn a_length_beyond_the_entries_is_found_by_a_read() {
    let mut host = Host::new();
    let mkey = host.mkey(false, false);
    let (at, key) = host.filled(&[7; 64]);
    let mut config = Config::new(&mkey).access(RR | LW).list(&[(at, 64, key)]);
    config.context.len = 128.into();
    host.configure(config);
    assert_eq!(host.read_from(mkey.key, 0, 64), [7; 64]);
    host.good(B);
    let seen = read(&mut host, 32, mkey.key);
    assert_eq!(status(&seen), (Syndrome::REMOTE_ACCESS, 0x88, 0));
    let reason = Reason::BehindEntries { key: mkey.key.get(), end: 96, mapped: 64 };
    assert_eq!((seen.reason(), seen.1.unwrap().key), (reason, Some(mkey.key.get())));
}

#[test]
fn atomics_on_entries_of_one_length_need_regions_of_strict_order() {
    let mut host = Host::new();
    let (at, key) = host.region(4096, Access::ALL);
    let attributes = MkeyAttributes {
        free: false,
        log_entry: Some(12),
        access: Access::ALL,
        ..MkeyAttributes::new(host.pd, 1)
    };
    let space = || MkeySpace { start: 0, length: 4096, entries: vec![klm(at, 0, key)] };
    host.device.create_mkey_over(attributes, space()).unwrap();
    host.device.set_relaxed_order(key.index(), true).unwrap();
    assert_eq!(host.device.create_mkey_over(attributes, space()), Err(Error::AtomicOverRelaxed));
    let without = MkeyAttributes { access: Access { remote_atomic: false, ..Access::ALL }, ..attributes };
    host.device.create_mkey_over(without, space()).unwrap();
    host.device.set_relaxed_order(key.index(), false).unwrap();
    host.device.create_mkey_over(attributes, space()).unwrap();
}

/// The text of each cause contains the numbers of the objects that it is about.
#[test]
fn causes_name_keys_bounds_and_deks() {
    let mut host = Host::new();
    let mkey = host.mkey(false, true);
    let (at, key) = host.filled(&[7; 512]);
    host.configure(Config::new(&mkey).access(LW).list(&[(at, 512, key)]).crypto(2, 1, [0; 16], 0x1234));
    host.execute(A, send(Opcode::SEND, 0, &[segment(0, 512, mkey.key)]));
    let named = format!("(the request names key {:#010x})", mkey.key.get());
    assert_eq!(host.bad(A).1.unwrap().to_string(), format!("there is no DEK 0x1234 {named}"));
}
