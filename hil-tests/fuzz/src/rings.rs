//! Fuzz target for the rings through which processes of one machine exchange messages. A process that writes
//! arbitrary bytes to the memory of its rings, and to its connections, must not harm the other processes.

use crate::input::Input;
use mlx5_faults::{Fault, Place};
use mlx5_peers::{Fabric, Host, News, codec};
use mlx5_softdev::{Message, Request};
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, recvmsg, sendmsg,
};
use std::fs::File;
use std::io::{IoSlice, IoSliceMut, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::FileExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

/// The most steps of an input.
const STEPS: usize = 64;

/// The file of a ring: a page with three words, and the data.
const PAGE: u64 = 4096;
const ROOM: u64 = 1 << 18;
/// Offsets of the three words in the page: the number of bytes that were ever written, the number that were
/// ever read, and whether the reader sleeps.
const WRITTEN: u64 = 0;
const READ: u64 = 64;
const SLEEPS: u64 = 128;

/// The slot of the hostile process. The sound processes have the slots 0 and 1.
const HOSTILE: u32 = 2;

/// After this many calls of [`Fabric::exchange`], a process has looked for new peers.
const BRIEF: usize = 16;

/// A process without planned faults.
#[derive(Debug)]
struct Plain;

impl Host for Plain {
    fn keep(_: &impl AsRawFd) {}

    fn visit(_: Place) -> Option<Fault> {
        None
    }
}

/// A sound process, with the numbers of its next messages to the other one and from the other one.
struct Sound {
    fabric: Fabric<Plain>,
    sent: u32,
    got: u32,
}

impl Sound {
    fn join(directory: &std::path::Path) -> Self {
        Self { fabric: Fabric::join(directory).unwrap(), sent: 0, got: 0 }
    }

    /// Returns message number `number` to a process.
    fn message(&self, slot: u32, number: u32, length: usize) -> Message {
        let data = vec![number as u8; length].into();
        let request =
            Request::Write { rkey: 0x5a5a_5a5a, address: MARK, data, immediate: None, solicited: false };
        Message::Request { from: self.fabric.qpns().0, to: slot << 16, sequence: number, request }
    }

    /// Sends the next message to the other sound process.
    fn send(&mut self, slot: u32) {
        let message = self.message(slot, self.sent, SOUND);
        assert_eq!(self.fabric.send(message), None, "the other process is there");
        self.sent += 1;
    }

    /// Reads messages. Counts only the expected next message of the other sound process, because the hostile
    /// process may send any message.
    fn exchange(&mut self, other: &Self) {
        let (slot, mut news) = (self.fabric.slot(), Vec::new());
        let mut next = self.got;
        self.fabric.flush();
        self.fabric
            .exchange(|message| next += u32::from(message == other.message(slot, next, SOUND)), &mut news);
        self.got = next;
        assert!(!news.contains(&News::Gone(other.fabric.slot())), "the other process is alive");
    }
}

/// The address in the messages of sound processes, and the number of bytes that they carry.
const MARK: u64 = 0x6d61_726b_6d61_726b;
const SOUND: usize = 100;

/// The hostile process: its socket, its connection to the first sound process, and the rings of both
/// directions.
struct Hostile {
    listener: UnixListener,
    out: Option<UnixStream>,
    outgoing: Option<File>,
    written: u64,
    /// The connection that the sound process has opened, and its ring.
    incoming: Option<(UnixStream, Option<File>)>,
}

impl Hostile {
    /// Connects to the first sound process and passes the file of a ring. In three of 32 cases the ring has a
    /// wrong size, wrong seals, or no file.
    fn connect(&mut self, directory: &std::path::Path, input: &mut Input<'_>) {
        let stream = UnixStream::connect(directory.join("slot-0.socket")).unwrap();
        stream.set_nonblocking(true).unwrap();
        let (flags, mut size) = (MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING, PAGE + ROOM);
        let file = memfd_create(c"ring", flags).unwrap();
        let mut seals = SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL;
        let flaw = input.below(32);
        match flaw {
            0 => size = input.pick(&[0, PAGE, ROOM, PAGE + ROOM - 1, PAGE + ROOM + 1]),
            1 => seals = input.pick(&[SealFlags::empty(), SealFlags::SHRINK, SealFlags::SEAL]),
            _ => {}
        }
        ftruncate(&file, size).unwrap();
        fcntl_add_seals(&file, seals).unwrap();
        let files = [file.as_fd()];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut rights = SendAncillaryBuffer::new(&mut space);
        if flaw != 2 {
            rights.push(SendAncillaryMessage::ScmRights(&files));
        }
        sendmsg(&stream, &[IoSlice::new(&[input.any()])], &mut rights, SendFlags::NOSIGNAL).unwrap();
        (self.out, self.outgoing, self.written) = (Some(stream), Some(file.into()), 0);
    }

    /// Takes the connection of the sound process, and its ring.
    fn accept(&mut self) {
        let Ok((stream, _)) = self.listener.accept() else { return };
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut rights = RecvAncillaryBuffer::new(&mut space);
        let mut byte = [0; 1];
        let _ = recvmsg(&stream, &mut [IoSliceMut::new(&mut byte)], &mut rights, RecvFlags::DONTWAIT);
        let files = rights.drain().filter_map(|message| match message {
            RecvAncillaryMessage::ScmRights(files) => Some(files),
            _ => None,
        });
        let file = files.flatten().next().map(File::from);
        self.incoming = Some((stream, file));
    }

    /// Writes bytes to the data of the outgoing ring, and moves the position as a sound writer would.
    fn append(&mut self, bytes: &[u8]) {
        let Some(ring) = &self.outgoing else { return };
        let mut rest = bytes;
        while !rest.is_empty() {
            // A piece ends where the ring's data begin again.
            let at = self.written % ROOM;
            let (piece, behind) = rest.split_at(rest.len().min((ROOM - at) as usize));
            let _ = ring.write_at(piece, PAGE + at);
            self.written += piece.len() as u64;
            rest = behind;
        }
        let _ = ring.write_at(&self.written.to_ne_bytes(), WRITTEN);
    }

    fn rings(&self) -> [Option<&File>; 2] {
        [self.outgoing.as_ref(), self.incoming.as_ref().and_then(|(_, ring)| ring.as_ref())]
    }
}

/// Returns a position that is likely to be near the real one, or arbitrary.
fn position(near: u64, input: &mut Input<'_>) -> u64 {
    match input.below(6) {
        0 => near.wrapping_add(input.any::<u8>().into()),
        1 => near.wrapping_sub(input.any::<u8>().into()),
        2 => near.wrapping_add(ROOM).wrapping_add(input.below(3).into()).wrapping_sub(1),
        3 => near.wrapping_sub(ROOM).wrapping_add(input.below(3).into()).wrapping_sub(1),
        4 => u64::MAX - u64::from(input.any::<u8>()),
        _ => input.any(),
    }
}

/// Bytes that resemble a message: the lengths of data and fields, the fields, the data.
fn message(input: &mut Input<'_>) -> Vec<u8> {
    let (count, length) = (input.below(50) as u8, input.below(30));
    let mut body = input.bytes(usize::from(count) + length as usize);
    if let Some(kind) = body.first_mut() {
        *kind %= 8;
    }
    let told = if input.one_in(16) { input.any() } else { length };
    [&told.to_le_bytes(), &[count][..], &body].concat()
}

pub(crate) fn run(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let home = tempfile::tempdir().unwrap();
    let [mut one, mut other] = [Sound::join(home.path()), Sound::join(home.path())];
    let listener = UnixListener::bind(home.path().join(format!("slot-{HOSTILE}.socket"))).unwrap();
    listener.set_nonblocking(true).unwrap();
    File::create(home.path().join(format!("slot-{HOSTILE}.rings"))).unwrap();
    let mut hostile = Hostile { listener, out: None, outgoing: None, written: 0, incoming: None };
    one.send(1);
    other.send(0);
    hostile.connect(home.path(), &mut input);
    for _ in 0..BRIEF {
        one.exchange(&other);
        other.exchange(&one);
    }
    let ends = AtomicBool::new(false);
    thread::scope(|scope| {
        if input.one_in(8) {
            // A thread of the hostile process writes while the sound process reads.
            let ring = hostile.outgoing.as_ref().unwrap().try_clone().unwrap();
            let words =
                [(); 4].map(|()| (input.pick(&[WRITTEN, READ, SLEEPS, PAGE]), position(0, &mut input)));
            let ends = &ends;
            scope.spawn(move || {
                while !ends.load(Ordering::Relaxed) {
                    for (at, value) in words {
                        let _ = ring.write_at(&value.to_ne_bytes(), at);
                    }
                }
            });
        }
        for _ in 0..STEPS {
            if input.is_empty() {
                break;
            }
            step(&mut hostile, &mut one, &other, home.path(), &mut input);
        }
        ends.store(true, Ordering::Relaxed);
    });
    // The two sound processes still exchange messages in both directions.
    one.send(1);
    other.send(0);
    for _ in 0..2 * BRIEF {
        one.exchange(&other);
        other.exchange(&one);
    }
    assert_eq!((one.got, other.got), (other.sent, one.sent), "messages between sound processes are lost");
}

fn step(
    hostile: &mut Hostile,
    one: &mut Sound,
    other: &Sound,
    directory: &std::path::Path,
    input: &mut Input<'_>,
) {
    match input.below(12) {
        0 => {
            let bytes = message(input);
            hostile.append(&bytes);
        }
        1 => {
            // A long message fills the ring, and takes most of the target's time.
            let longest = if input.one_in(4) { 0x4_0200 } else { 0x1000 };
            let length = input.below(longest) as usize;
            let head = [&(length as u32).to_le_bytes()[..], &[1, input.any::<u8>() % 8]].concat();
            hostile.append(&[head, vec![input.any(); length]].concat());
        }
        2 => {
            let at = input.pick(&[WRITTEN, WRITTEN, READ, SLEEPS]);
            let value = position(hostile.written, input);
            if let Some(ring) = hostile.rings()[0] {
                let _ = ring.write_at(&value.to_ne_bytes(), at);
            }
        }
        3 => {
            let at = input.pick(&[READ, READ, WRITTEN, SLEEPS, PAGE]);
            let value = position(0, input);
            if let Some(ring) = hostile.rings()[1] {
                let _ = ring.write_at(&value.to_ne_bytes(), at);
            }
        }
        4 => {
            // Data change before they are read.
            let (at, bytes) = (u64::from(input.below(0x4_0000)), input.bytes(8));
            for ring in hostile.rings().into_iter().flatten() {
                let _ = ring.write_at(&bytes, PAGE + at.min(ROOM - 8));
            }
        }
        5 | 6 => {
            // A request to a process that has ended gets an answer, so nothing is asserted.
            let number = input.any::<u8>().into();
            let length = input.pick(&[0, 100, 100, 100, 5000, 5000, 100_000, 300_000]);
            one.fabric.send(one.message(HOSTILE, number, length));
            hostile.accept();
        }
        7 => {
            if let Some(stream) = &mut hostile.out {
                let bytes = input.bytes(9);
                let _ = stream.write(&bytes);
            }
        }
        8 => drop(one.fabric.prepare_sleep().count()),
        9 => match input.below(3) {
            0 => hostile.out = None,
            1 => hostile.incoming = None,
            _ => hostile.connect(directory, input),
        },
        10 => hostile.append(&codec::encode_frame(&[0; 60]).bytes()),
        _ => one.exchange(other),
    }
}
