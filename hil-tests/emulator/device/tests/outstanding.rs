//! Tests of several outstanding requests to another device. They check which requests may follow before an
//! answer, and which completions come if one of the requests fails.

use crate::common::*;
use mlx5_mkey::types::Key;
use mlx5_mkey::wire::cqe::{CqeOpcode, Syndrome};
use mlx5_mkey::wire::ctrl::Opcode;
use mlx5_softdev::*;

/// Two devices; queue pair A of the first is connected to B of the second.
struct Two {
    one: Host,
    two: Host,
}

impl Two {
    fn new() -> Self {
        let (mut one, mut two) = (Host::new(), Host::new());
        let (a, b) = (one.q[A].qpn, two.q[B].qpn);
        one.device.connect(a, Peer::Remote(b)).unwrap();
        two.device.connect(b, Peer::Remote(a)).unwrap();
        Self { one, two }
    }

    /// Posts a SEND of 16 bytes, all `byte`, and rings the doorbell. Returns the counter of the request.
    fn send(&mut self, byte: u8) -> u16 {
        let (at, key) = self.one.filled(&[byte; 16]);

        self.one.execute(A, send(Opcode::SEND, 0, &[segment(at, 16, key)]))
    }

    /// Posts a receive request and returns the address of its buffer.
    fn receive(&mut self) -> u64 {
        let (to, key) = self.two.region(16, Access::ALL);
        self.two.post_receive(B, &[segment(to, 16, key)]);
        to
    }

    /// Delivers the messages from the first device to the second. Returns their number.
    fn there(&mut self) -> usize {
        let messages: Vec<_> = std::iter::from_fn(|| self.one.device.take_message()).collect();
        let count = messages.len();
        messages.into_iter().for_each(|message| self.two.device.deliver(message));
        count
    }

    /// Delivers the answers from the second device to the first. Returns their number.
    fn back(&mut self) -> usize {
        let messages: Vec<_> = std::iter::from_fn(|| self.two.device.take_message()).collect();
        let count = messages.len();
        messages.into_iter().for_each(|message| self.one.device.deliver(message));
        count
    }

    fn exchange(&mut self) {
        self.there();
        self.back();
    }
}

#[test]
fn requests_that_push_data_do_not_wait_for_answers() {
    let mut pair = Two::new();
    let slots = [pair.receive(), pair.receive(), pair.receive()];
    let counters = [pair.send(1), pair.send(2), pair.send(3)];
    assert_eq!((pair.there(), pair.back()), (3, 3));
    for (index, counter) in counters.into_iter().enumerate() {
        assert_eq!(pair.one.poll_send(A).unwrap().counter(), counter);
        assert_eq!(pair.two.get(slots[index], 16), [index as u8 + 1; 16]);
    }
}

#[test]
fn they_are_not_without_end() {
    let mut pair = Two::new();
    let (at, key) = pair.one.filled(&[0; 1 << 19]);
    let (to, to_key) = pair.two.region(1 << 19, Access::ALL);
    for _ in 0..5 {
        pair.one.post(A, rdma(Opcode::RDMA_WRITE, 0, to, to_key, &[segment(at, 1 << 19, key)]));
    }
    pair.one.ring(A);
    for expected in [2, 2, 1] {
        assert_eq!((pair.there(), pair.back()), (expected, expected));
    }
}

#[test]
fn a_read_waits_and_is_waited_for() {
    let mut pair = Two::new();
    let data = pattern(64, 3);
    let (at, key) = pair.one.filled(&data);
    let (back, back_key) = pair.one.region(64, Access::ALL);
    let (to, to_key) = pair.two.region(64, Access::ALL);
    pair.one.post(A, rdma(Opcode::RDMA_WRITE, 0, to, to_key, &[segment(at, 64, key)]));
    pair.one.post(A, rdma(Opcode::RDMA_READ, 0, to, to_key, &[segment(back, 64, back_key)]));
    pair.one.execute(A, rdma(Opcode::RDMA_WRITE, 0, to, to_key, &[segment(at, 64, key)]));
    for _ in 0..3 {
        assert_eq!((pair.there(), pair.back()), (1, 1));
    }
    assert_eq!((pair.there(), pair.one.get(back, 64)), (0, data));
}

#[test]
fn what_follows_a_request_without_a_receive_is_sent_again_with_it() {
    let mut pair = Two::new();
    let first = pair.receive();
    let counters = [pair.send(1), pair.send(2), pair.send(3)];
    assert_eq!(pair.there(), 3);
    // The receive requests are posted before the second request is repeated. The third request must not take
    // a receive request before the second request does.
    let rest = [pair.receive(), pair.receive()];
    // The peer answers that the first request is done, and that it had no receive request for the second. The
    // third request gets no answer.
    assert_eq!(pair.back(), 2);
    assert_eq!(pair.one.good(A).counter(), counters[0]);
    assert_eq!(pair.there(), 0, "it waits for the timer");
    // Until the next `run`, the period of the receiver-not-ready timer, no further request is sent.
    pair.send(4);
    assert_eq!(pair.there(), 0);
    pair.one.device.run();
    let last = pair.receive();
    assert_eq!(pair.there(), 3);
    pair.back();
    assert_eq!(pair.one.poll_send(A).unwrap().counter(), counters[1]);
    assert_eq!(pair.one.poll_send(A).unwrap().counter(), counters[2]);
    let arrived = [first, rest[0], rest[1], last].map(|at| pair.two.get(at, 1)[0]);
    assert_eq!(arrived, [1, 2, 3, 4]);
}

/// The peer answers only the first of two requests, for which it has no receive request. If it also answered
/// the second, a fabric that holds back answers could deliver this answer long after both requests are
/// repeated.
#[test]
fn what_follows_a_first_request_without_a_receive_has_no_answer() {
    let mut pair = Two::new();
    let counters = [pair.send(1), pair.send(2)];
    assert_eq!((pair.there(), pair.back()), (2, 1));
    pair.receive();
    pair.receive();
    pair.one.device.run();
    assert_eq!((pair.there(), pair.back()), (2, 2));
    assert_eq!([(); 2].map(|()| pair.one.poll_send(A).unwrap().counter()), counters);
}

#[test]
fn behind_a_refused_request_nothing_is_executed() {
    let mut pair = Two::new();
    let (at, key) = pair.one.filled(&[7; 64]);
    let (to, to_key) = pair.two.region(64, Access::ALL);
    let write = |address, rkey| rdma(Opcode::RDMA_WRITE, 0, address, rkey, &[segment(at, 64, key)]);
    let counters = [
        pair.one.post(A, write(to, Key::from_raw(0x7777_7700))),
        pair.one.post(A, write(to, to_key)),
        pair.one.post(A, write(to, to_key)),
    ];
    pair.one.ring(A);
    assert_eq!(pair.there(), 3);
    pair.back();
    let seen = [pair.one.bad(A), pair.one.bad(A), pair.one.bad(A)];
    assert_eq!([seen[0].counter(), seen[1].counter(), seen[2].counter()], counters);
    let syndromes = seen.map(|seen| seen.syndrome());
    assert_eq!(syndromes, [Syndrome::REMOTE_ACCESS, Syndrome::FLUSHED, Syndrome::FLUSHED]);
    assert_eq!(pair.two.get(to, 64), [0; 64]);
}

#[test]
fn a_request_that_fails_here_is_told_behind_those_before_it() {
    let mut pair = Two::new();
    let slot = pair.receive();
    let counter = pair.send(5);
    let wrong = pair.one.execute(A, send(Opcode::SEND, 0, &[segment(0, 16, Key::from_raw(0x7777_7700))]));
    assert!(pair.one.poll_send(A).is_none());
    assert_eq!((pair.there(), pair.back()), (1, 1));
    let done = pair.one.poll_send(A).unwrap();
    assert_eq!((done.opcode(), done.counter()), (CqeOpcode::REQUESTER, counter));
    let failed = pair.one.bad(A);
    assert_eq!((failed.syndrome(), failed.counter()), (Syndrome::LOCAL_PROTECTION, wrong));
    assert_eq!(pair.two.get(slot, 16), [5; 16]);
}

#[test]
fn a_request_that_cannot_be_read_is_told_behind_those_before_it() {
    let mut pair = Two::new();
    pair.receive();
    let counter = pair.send(5);
    let wrong = pair.one.post(A, Wqe::new(Opcode::NOP, 0));
    // The request names another queue pair.
    pair.one.put(pair.one.q[A].attributes.sq + 64 * u64::from(wrong) + 6, &[0x55]);
    pair.one.ring(A);
    assert!(pair.one.poll_send(A).is_none());
    pair.exchange();
    assert_eq!(pair.one.poll_send(A).unwrap().counter(), counter);
    let failed = pair.one.bad(A);
    assert_eq!((failed.syndrome(), failed.counter()), (Syndrome::LOCAL_QP_OPERATION, wrong));
}

/// An answer of another kind than the request asks for fails the request.
#[test]
fn answers_to_another_question_fail_the_request() {
    let answers =
        [Response::Done, Response::Data(vec![1; 8]), Response::Data(vec![1; 9]), Response::Original(1)];
    for (opcode, good) in [
        (Opcode::SEND, 0),
        (Opcode::RDMA_WRITE, 0),
        (Opcode::RDMA_READ, 1),
        (Opcode::ATOMIC_FA, 3),
        (Opcode::ATOMIC_CS, 3),
        (Opcode::ATOMIC_MASKED_FA, 3),
    ] {
        for (number, response) in answers.iter().enumerate() {
            let mut one = Two::new().one;
            let (at, key) = one.region(8, Access::ALL);
            let data = [segment(at, 8, key)];
            let atomic = || {
                let modifier = if opcode == Opcode::ATOMIC_MASKED_FA { 9 } else { 0 };
                let atomic = Wqe::new(opcode, 0).with_modifier(modifier);
                atomic.with(&remote(at, key)).with(&[0_u8; 16]).with(&data[0])
            };
            one.post(
                A,
                match opcode {
                    Opcode::SEND => send(opcode, 0, &data),
                    Opcode::RDMA_WRITE | Opcode::RDMA_READ => rdma(opcode, 0, at, key, &data),
                    _ => atomic(),
                },
            );
            one.ring(A);
            let Some(Message::Request { from, sequence, .. }) = one.device.take_message() else {
                panic!("no request");
            };
            one.device.deliver(Message::Response { to: from, sequence, response: response.clone() });
            match number == good {
                true => assert_eq!(one.good(A).opcode(), CqeOpcode::REQUESTER, "{opcode:?} {response:?}"),
                false => assert_eq!(one.bad(A).syndrome(), Syndrome::BAD_RESPONSE, "{opcode:?} {response:?}"),
            }
        }
    }
}

/// The sequence numbers of requests count up. A reset changes their upper bits.
#[test]
fn requests_have_numbers_one_after_the_other() {
    let mut one = Two::new().one;
    for reset in 0..3_u32 {
        for count in 0..6 {
            one.execute(A, send(Opcode::SEND, 0, &[]));
            let Some(Message::Request { sequence, .. }) = one.device.take_message() else {
                panic!("no request");
            };
            assert_eq!(sequence, reset << 24 | count);
            assert_eq!(is_first(sequence), count == 0);
        }
        one.recover();
    }
}

/// The send queue is drained when all outstanding requests are done. One event is raised.
#[test]
fn draining_waits_for_all_answers() {
    let mut pair = Two::new();
    let qpn = pair.one.q[A].qpn;
    let counters = [pair.send(1), pair.send(2)];
    pair.one.device.modify(qpn, QpState::SendQueueDrained).unwrap();
    pair.receive();
    pair.receive();
    assert_eq!(pair.there(), 2);
    for (counter, events) in counters.into_iter().zip([vec![], vec![Event::SqDrained(qpn)]]) {
        let answer = pair.two.device.take_message().unwrap();
        pair.one.device.deliver(answer);
        assert_eq!(pair.one.good(A).counter(), counter);
        assert_eq!(pair.one.device.take_events(), events);
    }
}

/// After `set_drain_sigerr`, no request is sent behind a request with a signature error.
#[test]
fn a_signature_error_stops_the_send_queue_once_it_is_told_to() {
    for drain in [false, true] {
        let mut pair = Two::new();
        let qpn = pair.one.q[A].qpn;
        pair.one.device.set_drain_sigerr(qpn, drain).unwrap();
        let (at, key) = pair.one.filled(&[7; 520]);
        let mkey = pair.one.mkey(true, false);
        let config = Config::new(&mkey).list(&[(at, 520, key)]).signature(Sig::t10(1, 2), Sig::None, 0xff);
        pair.one.configure(config);
        let (to, target) = pair.two.region(512, Access::ALL);
        let write = |from, key| rdma(Opcode::RDMA_WRITE, 0, to, target, &[segment(from, 512, key)]);
        pair.one.post(A, write(0, mkey.key).silent());
        let next = pair.one.execute(A, write(at, key));
        assert_eq!(pair.one.poll_send(A).unwrap().opcode(), CqeOpcode::SIGNATURE_ERROR);
        pair.exchange();
        pair.exchange();
        if !drain {
            assert_eq!(pair.one.good(A).counter(), next);
            continue;
        }
        let view = pair.one.device.query(qpn).unwrap();
        assert_eq!((view.state, view.hw_sq_wqebb_counter), (QpState::SendQueueDrained, next));
        assert_eq!(pair.one.device.take_events(), [Event::SqDrained(qpn)]);
    }
}

/// The data of a request with a signature error is gathered when the error is found and when the request is
/// sent, but not at the answers in between.
#[test]
fn what_has_an_error_to_report_is_gathered_twice_at_most() {
    const BYTES: u32 = 512 + 8;
    let mut pair = Two::new();
    let good = pattern(512, 1);
    let (at, key) = pair.one.filled(&[good.as_slice(), &[0; 8]].concat());
    let mkey = pair.one.mkey(true, false);
    let config = Config::new(&mkey).list(&[(at, BYTES, key)]).signature(Sig::t10(1, 2), Sig::None, 0xff);
    pair.one.configure(config);
    for byte in 0..8 {
        pair.receive();
        pair.send(byte);
    }
    pair.receive();
    pair.one.post(A, send(Opcode::SEND, 0, &[segment(0, 512, mkey.key)]));
    let read = || pair.one.device.memory().read.get();
    let before = read();
    pair.one.ring(A);
    assert!(pair.there() >= 8);
    pair.back();
    let errors = pair.one.signature_errors();
    assert_eq!(errors.len(), 1);
    let gathered = (pair.one.device.memory().read.get() - before) / BYTES as usize;
    assert!((2..=4).contains(&gathered), "{gathered} times, with rings and records");
}

#[test]
fn a_queue_pair_that_was_reset_does_not_go_on_in_the_middle() {
    let mut pair = Two::new();
    pair.receive();
    pair.send(1);
    pair.exchange();
    pair.two.recover();
    let b = pair.two.q[B].qpn;
    pair.two.device.connect(b, Peer::Remote(pair.one.q[A].qpn)).unwrap();
    let slot = pair.receive();
    pair.send(2);
    pair.exchange();
    assert_eq!(pair.one.poll_send(A).unwrap().opcode(), CqeOpcode::REQUESTER);
    assert_eq!(pair.one.bad(A).syndrome(), Syndrome::TRANSPORT_RETRY);
    // A queue pair whose peer was reset begins a new sequence.
    pair.one.recover();
    pair.one.device.connect(pair.one.q[A].qpn, Peer::Remote(b)).unwrap();
    pair.send(3);
    pair.exchange();
    pair.one.good(A);
    assert_eq!(pair.two.get(slot, 16), [3; 16]);
}

#[test]
fn answers_of_before_a_reset_are_nobodys() {
    let mut pair = Two::new();
    let (at, key) = pair.one.region(8, Access::ALL);
    let (to, to_key) = pair.two.filled(&[7; 8]);
    let read = || rdma(Opcode::RDMA_READ, 0, to, to_key, &[segment(at, 8, key)]);
    pair.one.execute(A, read());
    pair.there();
    // The queue pair is reset before the answer to its request arrives.
    pair.one.recover();
    pair.one.execute(A, read());
    pair.back();
    assert!(pair.one.poll_send(A).is_none());
    pair.exchange();
    pair.one.good(A);
}
