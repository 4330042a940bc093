//! The entry of the fuzz target `rdma-cm`: a program writes commands that arbitrary bytes encode to its
//! rdma_cm files. Another process, which a second device plays, listens meanwhile.
//!
//! Afterwards the program closes its files. No `rdma_cm_id` may be left, and a new connection to the other
//! process must come about.

use super::{ARENA, ARENA_BYTES, INPUTS, Input, OUTPUTS, with_devices};
use crate::command::manager::{self, Command};
use crate::fabric::connection::Parameters;
use crate::ground::errno::Errno;
use crate::ground::process_memory::ProcessMemory;
use crate::state::identifier::{Event, EventKind};
use crate::state::{Pace, State};
use mlx5_softdev::Memory;
use std::fs::OpenOptions;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

/// The most commands of an input.
const COMMANDS: usize = 64;

/// The numbers of the hostile program's two files, and of the other process's file. No file has these
/// descriptors.
const FILES: [u32; 2] = [1_000_001, 1_000_002];
const OTHER: u32 = 1_000_003;

/// The port space of connections (`RDMA_PS_TCP`).
const TCP: u16 = 0x0106;

/// A field of a command's structure.
#[derive(Clone, Copy)]
enum Field {
    Answer,
    /// The address of a value that the command reads.
    Value,
    /// The number of an `rdma_cm_id`.
    Id,
    /// The descriptor of an rdma_cm file.
    File,
    /// A port space, in 8 bytes.
    Space,
    /// A socket address, in this many bytes.
    Address(usize),
    /// A number of this many bytes.
    Number(usize),
    /// Arbitrary bytes, then zeros: this many.
    Bytes(usize),
}

/// The commands, by their numbers, with the fields of their structures (`rdma/rdma_user_cm.h`).
const STRUCTURES: [&[Field]; 23] = {
    use Field::{Address, Answer, Bytes, File, Id, Number, Space, Value};
    [
        &[Number(8), Answer, Space],                // CREATE_ID
        &[Answer, Id, Number(4)],                   // DESTROY_ID
        &[Answer, Address(28), Id],                 // BIND_IP
        &[Address(28), Address(28), Id, Number(4)], // RESOLVE_IP
        &[Id, Number(4)],                           // RESOLVE_ROUTE
        &[Answer, Id, Number(4)],                   // QUERY_ROUTE
        &[Number(4), Number(4), Bytes(256), Number(8), Id, Number(4), Number(8)], // CONNECT
        &[Id, Number(4)],                           // LISTEN
        &[Number(8), Number(4), Number(4), Bytes(256), Number(8), Id, Number(4)], // ACCEPT
        &[Id, Number(1), Number(1), Number(2), Bytes(256)], // REJECT
        &[Id],                                      // DISCONNECT
        &[Answer, Id, Number(4)],                   // INIT_QP_ATTR
        &[Answer],                                  // GET_EVENT
        &[],                                        // GET_OPTION
        &[Value, Id, Number(4), Number(4), Number(4)], // SET_OPTION
        &[Id, Number(4)],                           // NOTIFY
        &[Answer, Number(8), Address(28), Id],      // JOIN_IP_MCAST
        &[Answer, Id, Number(4)],                   // LEAVE_MCAST
        &[Answer, Id, File],                        // MIGRATE_ID
        &[Answer, Id, Number(4)],                   // QUERY
        &[Id, Number(2), Number(2), Address(128)],  // BIND
        &[Id, Number(4), Number(2), Number(2), Number(4), Address(128), Address(128)], // RESOLVE_ADDR
        &[Answer, Number(8), Id, Number(2), Number(2), Address(128)], // JOIN_MCAST
    ]
};

/// Writes the commands that `bytes` encode. Panics if an `rdma_cm_id` is left afterwards, or if the other
/// process cannot be connected to.
pub fn run(bytes: &[u8]) {
    with_devices(|[hostile, other]| {
        let service = listen(other);
        let mut input = Input(bytes);
        ProcessMemory.write(ARENA, &[0; ARENA_BYTES as usize]).expect("the arena is memory");
        FILES.into_iter().for_each(|file| open(hostile, file));
        for _ in 0..COMMANDS {
            if input.0.is_empty() {
                break;
            }
            if input.below(8) == 0 {
                hostile.work(Pace::Clock, false);
                serve(other);
            } else {
                // The kernel refuses most commands.
                let _ = write(hostile, service, &mut input);
            }
        }
        FILES.into_iter().for_each(|file| hostile.close_connections(file));
        assert_eq!(hostile.book.ids.len(), 0, "an rdma_cm_id is left");
        connect(hostile, other, service);
        hostile.close_connections(FILES[0]);
        other.close_connections(OTHER);
        for state in [hostile, other] {
            assert_eq!((state.book.ids.len(), state.book.files.len()), (0, 0), "something is left");
        }
    });
}

/// Opens an rdma_cm file. The signals of its events go to `/dev/null`, because nobody waits for them.
fn open(state: &mut State, file: u32) {
    let signal = OpenOptions::new().write(true).open("/dev/null").expect("a file");
    state.open_connections(file, signal);
}

/// Has a process listen at a free port of the loopback address. Returns the address.
fn listen(state: &mut State) -> SocketAddr {
    open(state, OTHER);
    let id = state.create_id(OTHER, 1, TCP).expect("there is room");
    state.bind_id(OTHER, id, (Ipv4Addr::LOCALHOST, 0).into()).expect("a port is free");
    state.listen(OTHER, id, 0).expect("the id is bound");
    state.book.ids[&id].source.expect("the id is bound")
}

/// Has the listening process accept all requests. Returns whether a connection was established.
fn serve(state: &mut State) -> bool {
    state.work(Pace::Clock, false);
    let mut is_established = false;
    while let Some((_, event)) = state.take_event(OTHER) {
        match event.kind {
            EventKind::ConnectRequest => {
                // The requester may have ended already.
                let _ = state.accept_id(OTHER, event.told, 2, Some(Parameters::default()));
            }
            EventKind::Established => is_established = true,
            _ => {}
        }
    }
    is_established
}

/// Connects a new `rdma_cm_id` of the first process to the other process.
fn connect(state: &mut State, other: &mut State, service: SocketAddr) {
    // Both sides first finish the work of earlier connections, whose requests must not count as requests of
    // the new connection.
    for _ in 0..2 * BRIEF {
        state.work(Pace::Clock, false);
        serve(other);
    }
    let file = FILES[0];
    open(state, file);
    let id = state.create_id(file, 3, TCP).expect("there is room");
    state.resolve_address(file, id, None, service, Duration::ZERO).expect("a loopback address");
    state.resolve_route(file, id).expect("the address is known");
    state.connect_id(file, id, Parameters::default()).expect("the route is known");
    let (mut is_accepted, mut is_established) = (false, false);
    for round in 0..10_000 {
        state.work(Pace::Clock, false);
        while let Some((_, Event { kind, .. })) = state.take_event(file) {
            if kind == EventKind::ConnectResponse {
                state.accept_id(file, id, 0, None).expect("the peer has accepted");
                is_accepted = true;
            }
        }
        is_established |= serve(other);
        if is_accepted && is_established {
            return;
        }
        if round > 8 * BRIEF {
            // The listener may have been full. The requester then pauses before its next attempt, and this
            // loop gives it time.
            std::thread::sleep(Duration::from_micros(100));
        }
    }
    panic!("no connection to the other process: accepted {is_accepted}, established {is_established}");
}

/// After this many calls of [`State::work`], a device has looked for new peers.
const BRIEF: usize = 16;

/// Writes a command to a file of the hostile program.
fn write(state: &mut State, service: SocketAddr, input: &mut Input<'_>) -> Result<(), Errno> {
    let number = input.below(STRUCTURES.len());
    let mut body = Vec::new();
    for field in STRUCTURES[number] {
        put(*field, state, service, input, &mut body);
    }
    let flaw = input.below(64);
    let length = if flaw == 1 { usize::from(input.byte()) << 1 } else { body.len() };
    let room = if flaw == 2 { u16::from(input.byte()) } else { 512 };
    let number = if flaw == 3 { input.number() as u32 } else { number as u32 };
    if flaw == 4 {
        body.truncate(input.byte().into());
    }
    let mut bytes = number.to_ne_bytes().to_vec();
    bytes.extend([length as u16, room].into_iter().flat_map(u16::to_ne_bytes));
    bytes.extend(body);
    let command = Command::new(&bytes)?;
    let file = FILES[input.below(FILES.len())];
    if command.number != manager::GET_EVENT {
        return manager::dispatch(state, file, &command);
    }
    manager::takes_events(&command)?;
    state.take_event(file).map_or(Err(Errno::AGAIN), |(name, event)| manager::tell(&command, name, &event))
}

/// Appends a field of a command's structure.
fn put(field: Field, state: &State, service: SocketAddr, input: &mut Input<'_>, out: &mut Vec<u8>) {
    let is_odd = input.below(32) == 31;
    match field {
        Field::Answer | Field::Value => {
            let place = if matches!(field, Field::Answer) { OUTPUTS } else { INPUTS };
            out.extend(if is_odd { input.number() } else { place }.to_ne_bytes());
        }
        Field::Id => {
            let place = input.byte();
            let known = state.book.ids.keys().nth(usize::from(place) % state.book.ids.len().max(1));
            out.extend(known.filter(|_| !is_odd).copied().unwrap_or(place.into()).to_ne_bytes());
        }
        Field::File => out.extend(if is_odd { OTHER } else { FILES[input.below(FILES.len())] }.to_ne_bytes()),
        Field::Space => {
            let space: u16 = input.pick(&[TCP, TCP, 0x0111, 0x0002, 0x013f, 0]);
            out.extend([space, 0, 0, 0].into_iter().flat_map(u16::to_ne_bytes));
        }
        Field::Address(room) => {
            let mut bytes = address(service, input);
            bytes.resize(room, 0);
            out.extend(bytes);
        }
        Field::Number(size) => {
            let value = if is_odd { input.number() } else { u64::from(input.byte()) };
            out.extend(&value.to_ne_bytes()[..size]);
        }
        Field::Bytes(count) => {
            out.extend(input.bytes::<4>());
            out.resize(out.len() + count - 4, 0);
        }
    }
}

/// Returns a socket address, mostly one that exists.
fn address(service: SocketAddr, input: &mut Input<'_>) -> Vec<u8> {
    let family = input.pick(&[libc::AF_INET, libc::AF_INET, libc::AF_INET6, 0, 27, 99]);
    let port = match input.below(3) {
        0 => service.port(),
        1 => 0,
        _ => u16::from_be_bytes(input.bytes()),
    };
    let mut bytes = (family as u16).to_ne_bytes().to_vec();
    bytes.extend(port.to_be_bytes());
    if family == libc::AF_INET {
        let arbitrary = input.bytes();
        bytes.extend(input.pick(&[[127, 0, 0, 1], [127, 0, 0, 1], [0; 4], [192, 0, 2, 1], arbitrary]));
    } else {
        let mut ip = input.pick(&[[0; 16], [0xff; 16]]);
        ip[15] = input.pick(&[1, 0, 2]);
        bytes.extend([0; 4]);
        bytes.extend(ip);
    }
    bytes
}
