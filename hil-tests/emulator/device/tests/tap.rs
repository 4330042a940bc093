//! Tests that the tap shows messages on the wire and completion entries, in order.

use crate::common::{A, B, Host, segment, send};
use mlx5_mkey::types::Key;
use mlx5_mkey::wire::ctrl::Opcode;
use mlx5_softdev::{Access, Message, Peer, Request, Seen};
use std::sync::{Arc, Mutex};

type Log = Arc<Mutex<Vec<String>>>;

/// Sets a tap that records each of its events as a short text. Returns the record.
fn tapped(host: &mut Host) -> Log {
    let log = Log::default();
    let (names, writer) = (host.q.map(|queue| (queue.send_cq.cqn, queue.recv_cq.cqn)), Arc::clone(&log));
    let words = |message: &Message| match message {
        Message::Request { request: Request::Send { data, .. }, .. } => format!("SEND of {}", data.len()),
        Message::Response { response, .. } => format!("{response:?}"),
        other => format!("{other:?}"),
    };
    host.watch(move |seen| {
        let word = match seen {
            Seen::Command { .. } | Seen::Packet { .. } => panic!("there is no command queue"),
            Seen::Request { block, bytes, .. } => format!("request {block}, {} bytes", bytes.len()),
            Seen::Sent(message) => format!("sent {}", words(message)),
            Seen::Received(message) => format!("received {}", words(message)),
            Seen::Completion { cqn, entry, .. } => {
                let at = names.iter().position(|(send, receive)| cqn == *send || cqn == *receive);
                format!("entry {:x} at {:?}", entry[63] >> 4, at.map(|at| ["A", "B"][at]))
            }
        };
        writer.lock().unwrap().push(word);
    });
    log
}

fn taken(log: &Log) -> Vec<String> {
    std::mem::take(&mut *log.lock().unwrap())
}

#[test]
fn a_tap_shows_messages_and_entries_of_one_device() {
    let mut host = Host::new();
    let log = tapped(&mut host);
    let (at, key) = host.region(16, Access::ALL);
    host.post_receive(B, &[segment(at, 16, key)]);
    host.execute(A, send(Opcode::SEND, 0, &[segment(at, 16, key)]));
    let expected = [
        "request 0, 32 bytes",
        "sent SEND of 16",
        "entry 2 at Some(\"B\")",
        "sent Done",
        "entry 0 at Some(\"A\")",
    ];
    assert_eq!(taken(&log), expected);
}

#[test]
fn a_tap_shows_requests_that_are_not_executed() {
    let mut host = Host::new();
    let log = tapped(&mut host);
    host.execute(A, send(Opcode::MMO, 0, &[]));
    host.execute(A, send(Opcode::SEND, 0, &[segment(0, 16, Key::from_raw(0))]));
    let failure = "entry d at Some(\"A\")";
    assert_eq!(taken(&log), ["request 0, 16 bytes", failure, "request 1, 32 bytes", failure]);
}

#[test]
fn a_tap_shows_what_comes_from_another_device() {
    let (mut one, mut two) = (Host::new(), Host::new());
    let (a, b) = (one.q[A].qpn, two.q[B].qpn);
    one.device.connect(a, Peer::Remote(b)).unwrap();
    two.device.connect(b, Peer::Remote(a)).unwrap();
    let logs = [tapped(&mut one), tapped(&mut two)];
    two.post_receive(B, &[]);
    one.execute(A, send(Opcode::SEND, 0, &[]));
    two.device.deliver(one.device.take_message().unwrap());
    one.device.deliver(two.device.take_message().unwrap());
    let expected: [&[&str]; 2] = [
        &["request 0, 16 bytes", "sent SEND of 0", "received Done", "entry 0 at Some(\"A\")"],
        &["received SEND of 0", "entry 2 at Some(\"B\")", "sent Done"],
    ];
    assert_eq!(logs.map(|log| taken(&log)), expected);
}
