//! Tests of the rdma_cm file. They write commands as librdmacm does.

use crate::verbs::{Pages, becomes_readable, close, close_all, duplicate_to, never_wait, write_command};
use crate::{hear, pair, say};
use mlx5_testing::preload::{DIRECTORY, Side::Inside, preloaded};
use std::fs::{self, File, OpenOptions};
use std::io::Seek;
use std::os::fd::{AsRawFd, IntoRawFd, RawFd};
use std::os::unix::fs::FileTypeExt;
use std::path::Path;

const PORT_SPACE_TCP: u16 = 0x106;
const PORT_SPACE_UDP: u16 = 0x111;
const CREATE: u32 = 0;
const DESTROY: u32 = 1;
const BIND_IP: u32 = 2;
const RESOLVE_IP: u32 = 3;
const RESOLVE_ROUTE: u32 = 4;
const CONNECT: u32 = 6;
const LISTEN: u32 = 7;
const ACCEPT: u32 = 8;
const REJECT: u32 = 9;
const DISCONNECT: u32 = 10;
const INIT_QP_ATTR: u32 = 11;
const GET_EVENT: u32 = 12;
const SET_OPTION: u32 = 14;
const NOTIFY: u32 = 15;
const JOIN: u32 = 22;

/// Events of queue pairs (`enum ib_event_type`).
const COMM_EST: u32 = 4;
const PATH_MIG: u32 = 6;

fn open() -> RawFd {
    let file = OpenOptions::new().read(true).write(true).open("/dev/infiniband/rdma_cm").unwrap();
    file.into_raw_fd()
}

/// Writes a command to a file. `room` is the room for the answer, and `parts` make up the command's
/// structure.
fn command(file: RawFd, number: u32, room: u16, parts: &[&[u8]]) -> Result<(), i32> {
    let body = parts.concat();
    let head = [&number.to_ne_bytes()[..], &(body.len() as u16).to_ne_bytes(), &room.to_ne_bytes()].concat();
    write_command(file, &[head, body].concat())
}

/// An open rdma_cm file, and memory for the answers to its commands.
struct Client {
    file: RawFd,
    room: Pages,
}

impl Client {
    fn new() -> Self {
        Self { file: open(), room: Pages::new(4096) }
    }

    fn create(&self, name: u64) -> u32 {
        self.create_in(name, PORT_SPACE_TCP)
    }

    /// Makes an `rdma_cm_id` of a port space.
    fn create_in(&self, name: u64, space: u16) -> u32 {
        let (name, place) = (name.to_ne_bytes(), self.room.0.to_ne_bytes());
        let space = u64::from(space).to_ne_bytes();
        command(self.file, CREATE, 4, &[&name, &place, &space]).unwrap();
        u32::from_ne_bytes(self.room.read(0, 4).try_into().unwrap())
    }

    fn simple(&self, number: u32, id: u32, other: u32) -> Result<(), i32> {
        command(self.file, number, 0, &[&id.to_ne_bytes(), &other.to_ne_bytes()])
    }

    /// Destroys an `rdma_cm_id`. Returns the number of its events that were taken.
    fn destroy(&self, id: u32) -> Result<u32, i32> {
        let place = self.room.0.to_ne_bytes();
        command(self.file, DESTROY, 4, &[&place, &u64::from(id).to_ne_bytes()])?;
        Ok(u32::from_ne_bytes(self.room.read(0, 4).try_into().unwrap()))
    }

    fn bind(&self, id: u32, address: [u8; 4], port: u16) -> Result<(), i32> {
        command(self.file, BIND_IP, 0, &[&[0; 8], &ip(address, port), &id.to_ne_bytes()])
    }

    fn resolve(&self, id: u32, address: [u8; 4], port: u16, limit: u32) -> Result<(), i32> {
        let parts = [&[0; 28][..], &ip(address, port), &id.to_ne_bytes(), &limit.to_ne_bytes()];
        command(self.file, RESOLVE_IP, 0, &parts)
    }

    /// Waits for the next event. Returns the program's name for the `rdma_cm_id`, the number of the
    /// `rdma_cm_id`, the kind of the event, its status and its parameters.
    fn event(&self) -> (u64, u32, u32, i32, Vec<u8>) {
        self.take_event().unwrap();
        let bytes = self.room.read(0, 336);
        let word = |at: usize| u32::from_ne_bytes(bytes[at..at + 4].try_into().unwrap());
        let name = u64::from_ne_bytes(bytes[..8].try_into().unwrap());
        (name, word(8), word(12), word(16).cast_signed(), bytes[20..].to_vec())
    }

    /// Waits for a request for a connection. Returns the number of its `rdma_cm_id`.
    fn request(&self) -> u32 {
        let (_, child, kind, ..) = self.event();
        assert_eq!(kind, 4, "connect request");
        child
    }

    fn take_event(&self) -> Result<(), i32> {
        command(self.file, GET_EVENT, 336, &[&self.room.0.to_ne_bytes()])
    }

    /// Makes an `rdma_cm_id`, and requests a connection to a port of 127.0.0.1.
    fn connect(&self, name: u64, port: u16, data: &[u8]) -> u32 {
        let id = self.create(name);
        self.resolve(id, [127, 0, 0, 1], port, 100).unwrap();
        assert_eq!(self.event().2, 0, "address resolved");
        self.simple(RESOLVE_ROUTE, id, 100).unwrap();
        assert_eq!(self.event().2, 2, "route resolved");
        command(self.file, CONNECT, 0, &[&parameters(0x111, data), &id.to_ne_bytes(), &[0; 12]]).unwrap();
        id
    }

    /// Accepts the request of an `rdma_cm_id`, and gives it a name.
    fn accept(&self, name: u64, id: u32, data: &[u8]) {
        let parts = [&name.to_ne_bytes()[..], &parameters(0x222, data), &id.to_ne_bytes(), &[0; 12]];
        command(self.file, ACCEPT, 0, &parts).unwrap();
    }

    /// Makes an `rdma_cm_id` that listens at a port of all addresses of this machine.
    fn listen(&self, name: u64, port: u16) -> u32 {
        let listener = self.create(name);
        self.bind(listener, [0; 4], port).unwrap();
        self.simple(LISTEN, listener, 5).unwrap();
        listener
    }

    /// Waits up to ten seconds for an event.
    fn has_event(&self) -> bool {
        becomes_readable(self.file)
    }

    /// Sets the option of an `rdma_cm_id` for the timeout of acknowledgements.
    fn set_ack_timeout(&self, id: u32, timeout: u8) -> Result<(), i32> {
        self.room.write(0, &[timeout]);
        let words = [id, 0, 3, 1].map(u32::to_ne_bytes);
        command(self.file, SET_OPTION, 0, &[&self.room.0.to_ne_bytes(), words.as_flattened()])
    }

    fn attributes(&self, id: u32, state: u32) -> Result<Vec<u8>, i32> {
        let parts = [&self.room.0.to_ne_bytes()[..], &id.to_ne_bytes(), &state.to_ne_bytes()];
        command(self.file, INIT_QP_ATTR, 144, &parts)?;
        Ok(self.room.read(0, 144))
    }
}

fn ip(address: [u8; 4], port: u16) -> Vec<u8> {
    let mut bytes = [&2_u16.to_ne_bytes()[..], &port.to_be_bytes(), &address].concat();
    bytes.resize(28, 0);
    bytes
}

/// Returns `struct rdma_ucm_conn_param` with responder resources 3 and initiator depth 2.
fn parameters(qpn: u32, data: &[u8]) -> Vec<u8> {
    let mut bytes = [&qpn.to_ne_bytes()[..], &[0; 4], data].concat();
    bytes.resize(8 + 256, 0);
    bytes.extend([data.len() as u8, 0, 3, 2, 0, 7, 6, 1]);
    bytes
}

#[test]
fn a_connection_lives_from_request_to_end() {
    let Inside = preloaded() else { return };
    let (server, client) = (Client::new(), Client::new());
    let listener = server.listen(10, 4711);
    // The listener is bound to all addresses of this machine, so no other `rdma_cm_id` can have its port.
    assert_eq!(server.bind(server.create(11), [127, 0, 0, 1], 4711), Err(libc::EADDRNOTAVAIL));
    let (first, second) = (server.create(12), server.create(13));
    server.bind(first, [127, 0, 0, 1], 4710).unwrap();
    assert_eq!(server.bind(second, [127, 0, 0, 1], 4710), Err(libc::EADDRINUSE));
    let id = client.connect(20, 4711, b"hello");
    let (name, child, kind, status, shown) = server.event();
    assert_eq!((name, kind, status), (10, 4, 0), "connect request");
    assert_eq!(shown[..4], 0x111_u32.to_ne_bytes());
    assert_eq!((&shown[8..13], shown[264]), (&b"hello"[..], 56));
    assert_eq!(shown[266..268], [2, 3], "resources of the one side are the depth of the other");
    let attributes = server.attributes(child, 2).unwrap();
    assert_eq!(attributes[..4], 0x12_9181_u32.to_ne_bytes(), "the attributes of RTR");
    assert_eq!(attributes[32..36], 0x111_u32.to_ne_bytes());
    server.accept(30, child, b"welcome");
    let (name, _, kind, _, shown) = client.event();
    assert_eq!(
        (name, kind, &shown[..4], &shown[8..15]),
        (20, 5, &0x222_u32.to_ne_bytes()[..], &b"welcome"[..])
    );
    // The other side expects the packet number that this side sends first.
    let (near, far) = (client.attributes(id, 3).unwrap(), server.attributes(child, 2).unwrap());
    assert_eq!(near[28..32], far[24..28]);
    assert_eq!(near[134], 18, "the timeout of acknowledgements");
    client.set_ack_timeout(id, 21).unwrap();
    assert_eq!(client.attributes(id, 3).unwrap()[134], 21, "the program's timeout");
    let datagrams = client.create_in(21, PORT_SPACE_UDP);
    assert_eq!(client.set_ack_timeout(datagrams, 21), Err(libc::EINVAL));
    let ready = [&20_u64.to_ne_bytes()[..], &[0; 272], &id.to_ne_bytes(), &[0; 12]];
    command(client.file, ACCEPT, 0, &ready).unwrap();
    assert_eq!(server.event().2, 9, "established");
    let notify = |id, event| server.simple(NOTIFY, id, event);
    assert_eq!([notify(child, COMM_EST), notify(child, PATH_MIG)], [Err(libc::EISCONN), Ok(())]);
    let refused = [notify(child, 8), notify(listener, COMM_EST), notify(first, PATH_MIG)];
    assert_eq!(refused, [Err(libc::EINVAL); 3]);
    // perftest listens anew at the port while the connection of its first listener lives.
    assert_eq!(server.destroy(listener), Ok(1));
    let again = server.create(12);
    server.bind(again, [0; 4], 4711).unwrap();
    client.simple(DISCONNECT, id, 0).unwrap();
    assert_eq!((server.event().2, client.event().2), (10, 10));
    assert_eq!(server.simple(DISCONNECT, child, 0), Ok(()));
    assert!(server.has_event() && client.has_event());
    assert_eq!((server.event().2, client.event().2), (15, 15), "the end of TimeWait");
    assert_eq!((client.destroy(id), server.destroy(child)), (Ok(5), Ok(3)));
    assert_eq!(server.destroy(listener), Err(libc::ENOENT));
}

/// perftest's server listens anew for each connection. A request that arrives in between waits.
#[test]
fn a_request_waits_for_its_listener() {
    let Inside = preloaded() else { return };
    let (server, client) = (Client::new(), Client::new());
    let id = client.connect(1, 4713, b"early");
    let listener = server.create(2);
    server.bind(listener, [0; 4], 4713).unwrap();
    server.simple(LISTEN, listener, 1).unwrap();
    assert!(server.has_event(), "a request");
    let child = server.request();
    // The first of these requests fills the backlog. The second one arrives after the program has taken
    // the first.
    let (_, _) = (client.connect(3, 4713, b""), client.connect(4, 4713, b""));
    server.request();
    assert!(server.has_event(), "the request that had to wait");
    server.request();
    assert_eq!((server.destroy(child), client.destroy(id)), (Ok(0), Ok(2)));
}

#[test]
fn a_request_may_be_refused() {
    let Inside = preloaded() else { return };
    let (server, client) = (Client::new(), Client::new());
    client.connect(1, 4712, b"");
    let (_, _, kind, status, _) = client.event();
    assert_eq!((kind, status), (8, 8), "nobody listens");
    let listener = server.create(10);
    server.bind(listener, [127, 0, 0, 1], 4712).unwrap();
    server.simple(LISTEN, listener, 1).unwrap();
    client.connect(2, 4712, b"");
    let child = server.request();
    let mut refusal = [&child.to_ne_bytes()[..], &[2, 0, 0, 0], b"no"].concat();
    refusal.resize(8 + 256, 0);
    command(server.file, REJECT, 0, &[&refusal]).unwrap();
    let (name, _, kind, status, shown) = client.event();
    assert_eq!((name, kind, status, &shown[8..10], shown[264]), (2, 8, 28, &b"no"[..], 148));
    // The end of a listener rejects the requests that its program has not taken.
    client.connect(3, 4712, b"");
    server.destroy(listener).unwrap();
    assert_eq!(client.event().2, 8);
    // No machine has this address.
    let id = client.create(4);
    client.resolve(id, [192, 0, 2, 77], 1, 10).unwrap();
    let (_, _, kind, status, _) = client.event();
    assert_eq!((kind, status), (1, -libc::ETIMEDOUT));
    assert_eq!(client.bind(client.create(5), [192, 0, 2, 77], 0), Err(libc::EADDRNOTAVAIL));
}

/// A requester may be destroyed, or its process may end, before its request is accepted.
#[test]
fn a_reply_to_nobody_ends_in_an_event() {
    let Inside = preloaded() else { return };
    let (server, client) = (Client::new(), Client::new());
    server.listen(1, 4714);
    let id = client.connect(2, 4714, b"");
    let child = server.request();
    client.destroy(id).unwrap();
    server.accept(3, child, b"");
    assert!(server.has_event(), "an answer");
    let (name, _, kind, status, _) = server.event();
    assert_eq!((name, kind, status), (3, 8, 4), "rejected: the requester is gone");
}

#[test]
fn a_reply_to_a_process_that_has_ended_ends_in_an_event() {
    let Some(role) = pair() else { return };
    let client = Client::new();
    if role == "first" {
        client.listen(1, 4715);
        say("listening");
        let child = client.request();
        // Standard input ends when the other program has ended.
        while !hear().is_empty() {}
        client.accept(3, child, b"");
        assert!(client.has_event(), "an answer");
        let (name, _, kind, status, _) = client.event();
        assert_eq!((name, kind, status), (3, 7, -libc::ETIMEDOUT), "unreachable");
    } else {
        assert_eq!(hear(), "listening");
        client.connect(2, 4715, b"");
    }
}

/// If a gateway serves the directory, a search for an address goes on after the call that has begun it: the
/// call does not stop the other calls of the process. The locked file `fabric.lock` stands for a running
/// gateway.
#[test]
fn a_search_for_an_address_does_not_wait_for_the_gateway() {
    let Inside = preloaded() else { return };
    let directory = std::env::var_os(DIRECTORY).unwrap();
    let lock = File::create(Path::new(&directory).join("fabric.lock")).unwrap();
    lock.lock().unwrap();
    let client = Client::new();
    never_wait(client.file);
    // The search ends with an event, 300 ms after the call has begun. If there is no event when the call
    // returns, the call has not waited for the search. A busy machine may delay a few calls, so one of
    // ten has to be short.
    let is_short = (0..10).any(|_| {
        let id = client.create(1);
        client.resolve(id, [192, 0, 2, 77], 1, 300).unwrap();
        let is_short = client.take_event() == Err(libc::EAGAIN);
        client.destroy(id).unwrap();
        is_short
    });
    assert!(is_short);
}

/// A file that gets the number of a closed rdma_cm file is an ordinary file.
#[test]
fn the_number_of_a_closed_file_is_free() {
    let Inside = preloaded() else { return };
    let ways: [fn(RawFd) -> File; 2] = [
        |file| {
            close_all(file.unsigned_abs()..=file.unsigned_abs());
            let other = tempfile::tempfile().unwrap();
            assert_eq!(other.as_raw_fd(), file, "the lowest free number");
            other
        },
        |file| {
            let other = tempfile::tempfile().unwrap();
            assert_eq!(duplicate_to(other.as_raw_fd(), file), Ok(file));
            other
        },
    ];
    for way in ways {
        let client = Client::new();
        client.create(1);
        let mut other = way(client.file);
        // If the stand-in still took this descriptor for an rdma_cm file, it would refuse the write as a
        // malformed command.
        assert_eq!(write_command(client.file, b"a line of a log file"), Ok(()));
        other.rewind().unwrap();
        assert_eq!(std::io::read_to_string(other).unwrap(), "a line of a log file");
    }
}

#[test]
fn nonsense_is_refused_and_harms_nothing() {
    let Inside = preloaded() else { return };
    let client = Client::new();
    assert!(fs::metadata("/dev/infiniband/rdma_cm").unwrap().file_type().is_char_device());
    let file = File::open("/dev/infiniband/rdma_cm").unwrap();
    assert!(file.metadata().is_ok() && file.as_raw_fd() != client.file);
    assert_eq!(write_command(client.file, &[0; 4]), Err(libc::EINVAL));
    assert_eq!(write_command(client.file, &[0xff; 64]), Err(libc::EINVAL));
    assert_eq!(command(client.file, JOIN, 4, &[&[0; 160]]), Err(libc::EOPNOTSUPP));
    let other = Client::new();
    let id = other.create(1);
    assert_eq!(client.simple(LISTEN, id, 1), Err(libc::EINVAL), "of another file");
    let mut seed = 1_u64;
    let mut random = || {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (seed >> 33) as u8
    };
    for round in 0..20_000_u32 {
        // GET_EVENT is left out, because it could wait for ever for an event.
        let number = match round % 24 {
            GET_EVENT => CREATE,
            number => number,
        };
        let length = usize::from(random()) * 2;
        let body: Vec<u8> = (0..length)
            .map(|at| match (random() % 4, at % 4) {
                (0, _) => random(),
                (1, 0) => random() % 8,
                _ => 0,
            })
            .collect();
        let _ = command(client.file, number, u16::from(random()) * 4, &[&body]);
    }
    assert_eq!(other.destroy(id), Ok(0), "the other file is as it was");
    close(client.file);
    let fresh = Client::new();
    let id = fresh.create(1);
    fresh.bind(id, [127, 0, 0, 1], 0).unwrap();
    assert_eq!(fresh.destroy(id), Ok(0));
}
