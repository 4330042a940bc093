//! Tests of transport services without answers: of completions of the sender, and of messages that no
//! receiver can take.

use crate::common::*;
use mlx5_mkey::wire::cqe::{CqeOpcode, Syndrome};
use mlx5_mkey::wire::ctrl::Opcode;
use mlx5_softdev::*;

fn unreliable() -> Host {
    Host::with(DeviceProfile::default(), |attributes| {
        attributes.transport = Transport::UnreliableConnection;
    })
}

#[test]
fn unreliable_messages_arrive_and_complete() {
    let mut host = unreliable();
    let (from, source) = host.filled(b"no answer comes back");
    let (to, target) = host.region(64, Access::ALL);
    host.post_receive(B, &[segment(to, 64, target)]);
    host.succeeds(A, send(Opcode::SEND_IMM, 7, &[segment(from, 20, source)]));
    let seen = host.poll_recv(B).unwrap();
    assert_eq!((seen.opcode(), seen.0.imm_inval.get()), (CqeOpcode::RESPONDER_SEND_IMM, 7));
    assert_eq!((seen.0.byte_count.get(), host.get(to, 20)), (20, b"no answer comes back".to_vec()));
    // A write with immediate data takes a receive request as well.
    host.post_receive(B, &[]);
    host.succeeds(A, rdma(Opcode::RDMA_WRITE_IMM, 8, to + 32, target, &[segment(from, 20, source)]));
    assert_eq!(host.poll_recv(B).unwrap().opcode(), CqeOpcode::RESPONDER_WRITE_IMM);
    assert_eq!(host.get(to + 32, 20), b"no answer comes back");
}

/// The sender does not learn that its message was refused, and the receiver continues.
#[test]
fn what_an_unreliable_responder_refuses_is_dropped() {
    let mut host = unreliable();
    let (from, source) = host.filled(&[7; 64]);
    let (to, target) = host.region(64, Access { remote_write: false, ..Access::ALL });
    let data = [segment(from, 64, source)];
    let refused = [
        send(Opcode::SEND, 0, &data),
        rdma(Opcode::RDMA_WRITE, 0, to, target, &data),
        rdma(Opcode::RDMA_WRITE_IMM, 1, from, source, &data),
        rdma(Opcode::RDMA_WRITE, 0, to + 1, source, &data),
    ];
    for wqe in refused {
        host.succeeds(A, wqe);
    }
    // If the peer is missing or not ready, the sender's request succeeds all the same.
    host.device.modify(host.q[B].qpn, QpState::Reset).unwrap();
    host.succeeds(A, send(Opcode::SEND, 0, &data));
    host.device.activate(host.q[B].qpn).unwrap();
    host.device.connect(host.q[A].qpn, Peer::Local(0x99)).unwrap();
    host.succeeds(A, send(Opcode::SEND, 0, &data));
    assert!(host.poll_recv(B).is_none() && host.device.take_events().is_empty());
    assert_eq!(host.get(to, 64), [0; 64]);
    assert!(!host.device.is_waiting());
    // Both queue pairs still work.
    host.device.connect(host.q[A].qpn, Peer::Local(host.q[B].qpn)).unwrap();
    host.post_receive(B, &[segment(to, 64, target)]);
    host.succeeds(A, send(Opcode::SEND, 0, &data));
    assert_eq!(
        (host.poll_recv(B).unwrap().opcode(), host.get(to, 64)),
        (CqeOpcode::RESPONDER_SEND, vec![7; 64])
    );
}

/// If the receiver's buffers are wrong, its receive request fails, and the sender does not learn about it.
#[test]
fn a_receive_that_is_too_short_fails_at_its_owner() {
    let mut host = unreliable();
    let (from, source) = host.filled(&[7; 64]);
    let (to, target) = host.region(63, Access::ALL);
    host.post_receive(B, &[segment(to, 63, target)]);
    host.succeeds(A, send(Opcode::SEND, 0, &[segment(from, 64, source)]));
    let seen = host.poll_recv(B).unwrap();
    assert_eq!((seen.opcode(), seen.syndrome()), (CqeOpcode::RESPONDER_ERROR, Syndrome::LOCAL_LENGTH));
    assert_eq!(host.device.query(host.q[B].qpn).unwrap().state, QpState::Error);
}

/// A failed request stops only the send queue, which can be started again.
#[test]
fn a_request_that_fails_stops_the_send_queue_of_an_unreliable_connection() {
    let mut host = unreliable();
    let (at, key) = host.region(64, Access::ALL);
    let requests = [
        send(Opcode::SEND, 0, &[segment(0, 64, key)]),
        rdma(Opcode::RDMA_READ, 0, at, key, &[segment(at, 64, key)]),
        Wqe::new(Opcode::ATOMIC_FA, 0).with(&remote(at, key)).with(&[0u8; 16]).with(&segment(at, 8, key)),
    ];
    for (number, wqe) in requests.into_iter().enumerate() {
        host.post(A, wqe);
        assert_ne!(host.fails(A, send(Opcode::SEND, 0, &[])).syndrome(), Syndrome::FLUSHED, "{number}");
        assert_eq!(host.bad(A).syndrome(), Syndrome::FLUSHED, "{number}");
        assert_eq!(host.device.query(host.q[A].qpn).unwrap().state, QpState::SendQueueError, "{number}");
        host.device.modify(host.q[A].qpn, QpState::ReadyToSend).unwrap();
    }
    host.post_receive(B, &[]);
    host.succeeds(A, send(Opcode::SEND, 0, &[]));
    host.poll_recv(B).unwrap();
}

/// A queue pair takes only messages of its own transport.
#[test]
fn kinds_of_queue_pairs_do_not_mix() {
    for (a, b) in [
        (Transport::UnreliableConnection, Transport::ReliableConnection),
        (Transport::ReliableConnection, Transport::UnreliableConnection),
    ] {
        let kind = std::cell::Cell::new(a);
        let mut host =
            Host::with(DeviceProfile::default(), |attributes| attributes.transport = kind.replace(b));
        host.post_receive(B, &[]);
        host.execute(A, send(Opcode::SEND, 0, &[]));
        match a {
            Transport::ReliableConnection => assert_eq!(host.bad(A).syndrome(), Syndrome::TRANSPORT_RETRY),
            _ => assert_eq!(host.good(A).opcode(), CqeOpcode::REQUESTER),
        }
        assert!(host.poll_recv(B).is_none(), "{a:?}");
    }
}

/// Between two devices, an unreliable peer returns no answer.
#[test]
fn nothing_comes_back_from_an_unreliable_peer() {
    let (mut one, mut two) = (unreliable(), unreliable());
    let (a, b) = (one.q[A].qpn, two.q[B].qpn);
    one.device.connect(a, Peer::Remote(b)).unwrap();
    let (from, source) = one.filled(&[9; 16]);
    let (to, target) = two.region(16, Access::ALL);
    two.post_receive(B, &[segment(to, 16, target)]);
    for _ in 0..2 {
        one.succeeds(A, send(Opcode::SEND, 0, &[segment(from, 16, source)]));
        two.device.deliver(one.device.take_message().unwrap());
        assert_eq!(two.device.take_message(), None);
    }
    assert_eq!(two.poll_recv(B).unwrap().opcode(), CqeOpcode::RESPONDER_SEND);
    assert_eq!(two.get(to, 16), [9; 16]);
    assert!(two.poll_recv(B).is_none());
}

/// When the limit of waiting messages is reached, further requests stay in the send queue. They are sent when
/// there is room, and none is lost.
#[test]
fn what_has_no_answer_is_not_gathered_without_end() {
    const BYTES: usize = 1 << 19;
    let (mut one, mut two) = (unreliable(), unreliable());
    let (a, b) = (one.q[A].qpn, two.q[B].qpn);
    one.device.connect(a, Peer::Remote(b)).unwrap();
    let (from, source) = one.filled(&pattern(BYTES, 5));
    let (to, target) = two.region(BYTES, Access::ALL);
    for _ in 0..6 {
        let data = segment(from, BYTES as u32, source);
        one.post(A, rdma(Opcode::RDMA_WRITE, 0, to, target, &[data]));
    }
    one.execute(A, rdma(Opcode::RDMA_WRITE, 0, to, target, &[segment(from, 0x7fff_ffff, source)]));
    let completed = |host: &mut Host| std::iter::from_fn(|| host.poll_send(A)).count();
    assert_eq!(completed(&mut one), 2, "1 MiB");
    for more in [1, 1, 1, 1, 1, 0] {
        two.device.deliver(one.device.take_message().unwrap());
        assert_eq!(completed(&mut one), more);
    }
    assert_eq!((one.device.take_message(), two.get(to, BYTES)), (None, pattern(BYTES, 5)));
    assert_eq!(one.device.query(a).unwrap().state, QpState::SendQueueError, "the last one has failed");
}

/// Only requests without answers wait for room, and only while their queue pair can send.
#[test]
fn a_queue_pair_that_waits_for_room_holds_back_no_other_and_can_fail() {
    let kind = std::cell::Cell::new(Transport::UnreliableConnection);
    let mut host = Host::with(DeviceProfile::default(), |attributes| {
        attributes.transport = kind.replace(Transport::ReliableConnection);
    });
    let [a, b] = [host.q[A].qpn, host.q[B].qpn];
    host.device.connect(a, Peer::Remote(7)).unwrap();
    host.device.connect(b, Peer::Local(b)).unwrap();
    let (from, source) = host.filled(&[1; 1 << 20]);
    let counters: Vec<_> =
        (0..3).map(|_| host.post(A, send(Opcode::SEND, 0, &[segment(from, 1 << 20, source)]))).collect();
    host.ring(A);
    assert_eq!(host.good(A).counter(), counters[0]);
    let (to, target) = host.region(16, Access::ALL);
    host.succeeds(B, rdma(Opcode::RDMA_WRITE, 0, to, target, &[segment(from, 16, source)]));
    assert_eq!(host.get(to, 16), [1; 16]);
    host.device.modify(a, QpState::Error).unwrap();
    host.device.run();
    for counter in &counters[1..] {
        let seen = host.bad(A);
        assert_eq!((seen.syndrome(), seen.counter()), (Syndrome::FLUSHED, *counter));
    }
}

/// A queue pair that is reset while it waits for room has no more requests to send.
#[test]
fn a_queue_pair_that_waits_for_room_can_be_reset() {
    let mut one = unreliable();
    one.device.connect(one.q[A].qpn, Peer::Remote(7)).unwrap();
    let (from, source) = one.filled(&[1; 1 << 20]);
    for _ in 0..3 {
        one.post(A, send(Opcode::SEND, 0, &[segment(from, 1 << 20, source)]));
    }
    one.ring(A);
    one.recover();
    assert!(one.device.take_message().is_some());
    assert_eq!(one.device.take_message(), None);
    one.device.destroy_qp(one.q[A].qpn).unwrap();
    assert_eq!(one.device.take_message(), None);
}

#[test]
fn a_reset_of_the_function_leaves_no_request_that_waits() {
    let mut host = Host::new();
    host.device.set_arbiter(|_, _| Ruling::After(1));
    host.execute(A, Wqe::new(Opcode::NOP, 0));
    assert!(host.device.is_waiting());
    host.device.reset_function();
    assert!(!host.device.is_waiting());
}

#[test]
fn a_reset_of_the_function_leaves_no_message_and_no_entry() {
    let mut one = unreliable();
    one.device.connect(one.q[A].qpn, Peer::Remote(7)).unwrap();
    one.device.set_gate(|_, _| Passage::Later);
    let (from, source) = one.filled(&[1; 64]);
    one.execute(A, send(Opcode::SEND, 0, &[segment(from, 64, source)]));
    one.device.reset_function();
    assert_eq!(one.device.take_message(), None);
    // Entries that the gate still held would now go to the queues of the next driver, which have the same
    // numbers.
    let attributes = CqAttributes {
        ring: from,
        log_entries: 0,
        entry_bytes: 64,
        doorbell_record: from,
        ignore_overrun: false,
    };
    let cqn = one.device.create_cq(attributes).unwrap();
    one.device.release();
    assert_eq!(one.device.cq_producer(cqn), Ok(0));
}

/// A network can lose the message of a request. A request that sends no message is executed.
#[test]
fn a_request_without_a_message_loses_none() {
    let mut host = Host::new();
    let (at, key) = host.region(8, Access::ALL);
    host.device.set_arbiter(|side, _| if side == Side::Send { Ruling::Lost } else { Ruling::Good });
    let local = [segment(at, 8, key)];
    let atomic = Wqe::new(Opcode::ATOMIC_FA, 0).with(&remote(at, key)).with(&[0_u8; 16]);
    for request in [
        send(Opcode::SEND, 0, &local),
        rdma(Opcode::RDMA_WRITE, 0, at, key, &local),
        rdma(Opcode::RDMA_READ, 0, at, key, &local),
        atomic.with(&local[0]),
    ] {
        assert_eq!(host.fails(A, request).syndrome(), Syndrome::TRANSPORT_RETRY);
        host.recover();
    }
    host.succeeds(A, Wqe::new(Opcode::NOP, 0));
}
