//! Tests of completion entries: of the gate's decisions about entries, of rings that are full or outside of
//! the memory, and of the fields of failed requests.

use crate::common::*;
use mlx5_mkey::wire::cqe::{CqeOpcode, Syndrome};
use mlx5_mkey::wire::ctrl::Opcode;
use mlx5_softdev::*;

fn nop(host: &mut Host, at: usize) -> u16 {
    host.execute(at, Wqe::new(Opcode::NOP, 0))
}

/// Returns the counters of all new entries in the completion ring of a send queue.
fn counters(host: &mut Host, at: usize) -> Vec<u16> {
    std::iter::from_fn(|| host.poll_send(at)).map(|seen| seen.counter()).collect()
}

/// Returns a host whose gate applies `passage` to the first entry of queue pair A, and lets all other entries
/// pass.
fn gated(passage: Passage) -> Host {
    let mut host = Host::new();
    let (cqn, mut first) = (host.q[A].send_cq.cqn, Some(passage));
    host.device.set_gate(move |number, _| match first.take_if(|_| number == cqn) {
        Some(passage) => passage,
        None => Passage::Once,
    });
    host
}

#[test]
fn a_gate_says_what_becomes_of_an_entry() {
    let mut other = [0; 64];
    other[60..62].copy_from_slice(&0x7777_u16.to_be_bytes());
    for (passage, expected) in [
        (Passage::Once, &[0, 1][..]),
        (Passage::Twice, &[0, 0, 1]),
        (Passage::Never, &[1]),
        (Passage::Behind(other), &[0x7777, 0, 1]),
    ] {
        let mut host = gated(passage);
        (0..2).for_each(|_| _ = nop(&mut host, A));
        assert_eq!(counters(&mut host, A), expected, "{passage:?}");
        assert_eq!(host.device.take_events(), []);
    }
}

/// An entry that waits holds back the later entries of its completion queue, but no entries of other queues.
#[test]
fn entries_wait_in_their_order_until_they_are_released() {
    let mut host = gated(Passage::Later);
    (0..2).for_each(|_| _ = nop(&mut host, A));
    nop(&mut host, B);
    assert_eq!((counters(&mut host, A), counters(&mut host, B)), (vec![], vec![0]));
    host.device.release();
    assert_eq!(counters(&mut host, A), [0, 1]);
    nop(&mut host, A);
    assert_eq!(counters(&mut host, A), [2], "nothing waits any more");
    host.device.release();
    assert_eq!(counters(&mut host, A), []);
}

/// Entries about an object are written before the object is destroyed.
#[test]
fn entries_do_not_wait_longer_than_their_objects() {
    let gone: [fn(&mut Host); 4] = [
        |host| host.device.destroy_qp(host.q[A].qpn).unwrap(),
        |host| host.device.modify(host.q[A].qpn, QpState::Reset).unwrap(),
        |host| {
            let key = host.region(8, Access::ALL).1;
            host.device.destroy_mkey(key.index()).unwrap();
        },
        |host| {
            let queue = host.q[B].attributes;
            host.device.destroy_qp(host.q[B].qpn).unwrap();
            host.device.destroy_cq(queue.send_cqn).unwrap();
        },
    ];
    for (number, gone) in gone.into_iter().enumerate() {
        let mut host = gated(Passage::Later);
        nop(&mut host, A);
        gone(&mut host);
        assert_eq!(counters(&mut host, A), [0], "{number}");
    }
}

/// A full completion ring fails all queue pairs that use it, as the ring of their send queue or of their
/// receive queue.
#[test]
fn a_ring_that_fails_takes_its_queue_pairs_with_it() {
    for filled in [true, false] {
        let mut host = if filled { Host::new() } else { gated(Passage::Overrun) };
        let cqn = host.q[A].send_cq.cqn;
        if filled {
            host.device.fill(cqn);
        }
        nop(&mut host, A);
        assert_eq!(host.device.take_events(), [Event::CqError(cqn)]);
        assert_eq!(counters(&mut host, A), []);
        let states = [A, B].map(|at| host.device.query(host.q[at].qpn).unwrap().state);
        assert_eq!(states, [QpState::Error, QpState::ReadyToSend]);
        // The queue pairs stay in error when the ring has room again.
        nop(&mut host, A);
        assert_eq!((counters(&mut host, A), host.device.take_events()), (vec![], vec![]));
    }
    let mut host = Host::new();
    let cqn = host.q[B].recv_cq.cqn;
    host.device.fill(cqn);
    host.post_receive(B, &[]);
    host.execute(A, send(Opcode::SEND, 0, &[]));
    assert_eq!(host.device.take_events(), [Event::CqError(cqn)]);
    let states = [A, B].map(|at| host.device.query(host.q[at].qpn).unwrap().state);
    assert_eq!(states, [QpState::ReadyToSend, QpState::Error]);
}

/// Completions name the queue pair by its user index of 24 bits, after success and after errors.
#[test]
fn entries_name_their_queue_pair() {
    for index in [0, 0x0012_3456, 0x00ff_ffff] {
        // The device uses only the low 24 bits of a longer user index.
        let mut host =
            Host::with(DeviceProfile::default(), |attributes| attributes.user_index = 0x5500_0000 | index);
        let (at, key) = host.region(8, Access::LOCAL_READ);
        host.post_receive(B, &[]);
        host.post_receive(B, &[segment(at, 8, key)]);
        host.post(A, send(Opcode::SEND, 0, &[]));
        host.execute(A, send(Opcode::SEND, 0, &[segment(at, 8, key)]));
        let seen = [host.poll_send(A), host.poll_send(A), host.poll_recv(B), host.poll_recv(B)];
        let seen = seen.map(|seen| seen.unwrap());
        assert_eq!(
            seen.map(|seen| seen.opcode()),
            [
                CqeOpcode::REQUESTER,
                CqeOpcode::REQUESTER_ERROR,
                CqeOpcode::RESPONDER_SEND,
                CqeOpcode::RESPONDER_ERROR
            ]
        );
        assert_eq!(seen[1].syndrome(), Syndrome::REMOTE_OPERATION);
        for seen in seen {
            assert_eq!(seen.0.user_index.get(), index, "{:?}", seen.opcode());
        }
    }
}
