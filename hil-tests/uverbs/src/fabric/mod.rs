//! The wire between processes: all devices under one directory are ports of one adapter.
//!
//! Each process takes a slot, which is a locked file, and listens at a socket beside it. The slot is the upper part of its
//! queue pairs' numbers, so a number alone says which process it is in. A message goes out over a connection of the
//! sender's; answers come back over one of the receiver's. Both ends may vanish at any time.

mod codec;

use crate::{shared, sys};
use mlx5_softdev::{Message, Response};
use std::collections::{BTreeMap, VecDeque};
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

/// How many processes can be on one fabric.
const SLOTS: u32 = 256;

/// The bits of a queue pair's number below the slot.
const SLOT_SHIFT: u32 = 16;

/// The lowest numbers have a meaning of their own (InfiniBand QP0, QP1).
const FIRST_QPN: u32 = 0x40;

/// Bytes that are taken from one peer before others have their turn.
const READ_AT_ONCE: usize = 1 << 22;

/// This process's place on the fabric and its connections.
#[derive(Debug)]
pub(crate) struct Fabric {
    directory: PathBuf,
    slot: u32,
    /// Locked as long as it is open.
    _lock: File,
    listener: UnixListener,
    incoming: Vec<Incoming>,
    outgoing: BTreeMap<u32, Outgoing>,
}

#[derive(Debug)]
struct Incoming {
    stream: UnixStream,
    buffer: Vec<u8>,
}

#[derive(Debug)]
struct Outgoing {
    stream: UnixStream,
    backlog: VecDeque<u8>,
    /// Requests that have no answer yet: queue pair and message number.
    unanswered: Vec<(u32, u32)>,
}

/// Makes a directory that is this user's alone, and all above it.
///
/// # Errors
/// Also when it exists and belongs to someone else.
pub(crate) fn private_directory(path: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(path)?;
    let metadata = fs::symlink_metadata(path)?;
    if metadata.is_dir() && metadata.uid() == sys::user() {
        Ok(())
    } else {
        Err(io::Error::new(io::ErrorKind::PermissionDenied, "the fabric's directory is someone else's"))
    }
}

impl Fabric {
    /// Takes the first free slot under `directory`.
    ///
    /// # Errors
    /// When the directory cannot be used or all slots are taken.
    pub(crate) fn join(directory: &Path) -> io::Result<Self> {
        private_directory(directory)?;
        for slot in 0..SLOTS {
            let lock = directory.join(format!("slot-{slot}.lock"));
            let lock = OpenOptions::new().create(true).truncate(false).write(true).mode(0o600).open(lock)?;
            if !sys::try_lock(&lock) {
                continue;
            }
            let socket = socket(directory, slot);
            // What a process that is gone left behind.
            match fs::remove_file(&socket) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
            let listener = UnixListener::bind(&socket)?;
            listener.set_nonblocking(true)?;
            shared::keep(&lock);
            shared::keep(&listener);
            return Ok(Self {
                directory: directory.to_path_buf(),
                slot,
                _lock: lock,
                listener,
                incoming: Vec::new(),
                outgoing: BTreeMap::new(),
            });
        }
        Err(io::Error::new(io::ErrorKind::AddrInUse, "too many processes on the fabric"))
    }

    /// Returns the first and the last queue pair number of this process.
    pub(crate) const fn qpns(&self) -> (u32, u32) {
        let base = self.slot << SLOT_SHIFT;
        (base + FIRST_QPN, base + (1 << SLOT_SHIFT) - 1)
    }

    /// Whether a queue pair number is one of this process's.
    pub(crate) const fn is_local(&self, qpn: u32) -> bool {
        qpn >> SLOT_SHIFT == self.slot
    }

    /// Returns what to wait on for peers.
    pub(crate) fn descriptors(&self) -> impl Iterator<Item = RawFd> {
        let incoming = self.incoming.iter().map(|peer| peer.stream.as_raw_fd());
        let outgoing = self.outgoing.values().map(|peer| peer.stream.as_raw_fd());
        incoming.chain(outgoing).chain([self.listener.as_raw_fd()])
    }

    /// Whether something is still to be written.
    pub(crate) fn is_behind(&self) -> bool {
        self.outgoing.values().any(|peer| !peer.backlog.is_empty())
    }

    /// Sends a message, or returns what is answered in its place.
    pub(crate) fn send(&mut self, message: &Message) -> Option<Message> {
        let to = match message {
            Message::Request { to, .. } | Message::Response { to, .. } => *to >> SLOT_SHIFT,
        };
        if !self.outgoing.contains_key(&to)
            && let Ok(peer) = Outgoing::connect(&self.directory, to)
        {
            self.outgoing.insert(to, peer);
        }
        let Some(peer) = self.outgoing.get_mut(&to) else { return unreachable(message) };
        let mut bytes = Vec::new();
        codec::encode(message, &mut bytes);
        if let Message::Request { from, sequence, .. } = message {
            peer.unanswered.push((*from, *sequence));
        }
        peer.write(&bytes);
        None
    }

    /// Moves bytes both ways and returns the messages that have come, with answers in place of those that cannot.
    pub(crate) fn exchange(&mut self) -> Vec<Message> {
        let mut messages = Vec::new();
        while let Ok((stream, _)) = self.listener.accept() {
            if stream.set_nonblocking(true).is_ok() {
                shared::keep(&stream);
                self.incoming.push(Incoming { stream, buffer: Vec::new() });
            }
        }
        self.incoming.retain_mut(|peer| peer.read(&mut messages));
        for message in &messages {
            if let Message::Response { to, sequence, .. } = message {
                for peer in self.outgoing.values_mut() {
                    peer.unanswered.retain(|waiting| *waiting != (*to, *sequence));
                }
            }
        }
        self.outgoing.retain(|_, peer| {
            if peer.is_alive() {
                return true;
            }
            messages.extend(peer.unanswered.drain(..).map(|(to, sequence)| Message::Response {
                to,
                sequence,
                response: Response::Unreachable,
            }));
            false
        });
        messages
    }
}

fn socket(directory: &Path, slot: u32) -> PathBuf {
    directory.join(format!("slot-{slot}.socket"))
}

fn unreachable(message: &Message) -> Option<Message> {
    match message {
        Message::Request { from, sequence, .. } => {
            Some(Message::Response { to: *from, sequence: *sequence, response: Response::Unreachable })
        }
        Message::Response { .. } => None,
    }
}

impl Incoming {
    /// Reads what has come. Returns whether there may be more later.
    fn read(&mut self, messages: &mut Vec<Message>) -> bool {
        let mut chunk = vec![0; 1 << 16];
        let mut open = true;
        let mut taken = 0;
        while taken < READ_AT_ONCE {
            match self.stream.read(&mut chunk) {
                Ok(0) => {
                    open = false;
                    break;
                }
                Ok(length) => {
                    taken += length;
                    self.buffer.extend_from_slice(chunk.get(..length).unwrap_or_default());
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => {
                    open = error.kind() == io::ErrorKind::WouldBlock;
                    break;
                }
            }
        }
        let mut done = 0;
        loop {
            match codec::decode(self.buffer.get(done..).unwrap_or_default()) {
                Ok(Some((length, message))) => {
                    done += length;
                    messages.push(message);
                }
                Ok(None) => break,
                Err(codec::Malformed) => return false,
            }
        }
        self.buffer.drain(..done);
        open
    }
}

impl Outgoing {
    fn connect(directory: &Path, slot: u32) -> io::Result<Self> {
        let stream = UnixStream::connect(socket(directory, slot))?;
        stream.set_nonblocking(true)?;
        shared::keep(&stream);
        Ok(Self { stream, backlog: VecDeque::new(), unanswered: Vec::new() })
    }

    /// Writes now what fits, and keeps the rest.
    fn write(&mut self, bytes: &[u8]) {
        let mut rest = bytes;
        while self.backlog.is_empty() && !rest.is_empty() {
            match self.stream.write(rest) {
                Ok(length) if length > 0 => rest = rest.get(length..).unwrap_or_default(),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                // A peer that is gone is noticed when it is looked for.
                _ => break,
            }
        }
        self.backlog.extend(rest);
    }

    /// Writes what was kept, and looks whether the peer is still there.
    fn is_alive(&mut self) -> bool {
        while !self.backlog.is_empty() {
            let (front, _) = self.backlog.as_slices();
            match self.stream.write(front) {
                Ok(length) if length > 0 => drop(self.backlog.drain(..length)),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                _ => return false,
            }
        }
        // Nothing ever comes this way, apart from the end.
        let nothing = self.stream.read(&mut [0; 1]);
        matches!(nothing, Err(error) if error.kind() == io::ErrorKind::WouldBlock
            || error.kind() == io::ErrorKind::Interrupted)
    }
}
