//! The fabric: the network between processes. All devices whose processes share a directory are ports of one
//! adapter.
//!
//! Each process takes a slot, which is a locked file, and listens at a socket beside this file. The slot is
//! the upper part of the process's queue pair numbers, so a number alone identifies its process. A message
//! leaves over a connection that the sender has opened, and its answer comes back over one that the receiver
//! has opened. Both ends may vanish at any time.

pub(crate) mod codec;
pub(crate) mod connection;

use crate::ground::fault::{self, Fault, Place};
use crate::ground::port::{Gid, Port};
use crate::ground::{descriptors, sys};
use codec::Packet;
use connection::Notice;
use mlx5_softdev::{Message, Response};
use std::collections::{BTreeMap, VecDeque};
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, IoSlice, Read};
use std::net::Ipv6Addr;
use std::os::fd::{AsFd, AsRawFd, RawFd};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// The most processes that share one directory.
const SLOTS: u32 = 256;

/// The number of low bits of a queue pair number. The bits above them are the slot.
const SLOT_SHIFT: u32 = 16;

/// The first queue pair number that a process gives out, counted from the beginning of the process's range.
/// Lower numbers stay unused; in the first range they include QP0 and QP1 of InfiniBand.
const FIRST_QPN: u32 = 0x40;

/// The number of bytes that are read from one peer before it is the next peer's turn.
const READ_AT_ONCE: usize = 1 << 22;

/// Messages with at least this much data are written at once. Shorter ones are written together.
const LONG: usize = 1 << 13;

/// The most bytes that may wait for a peer. Above this limit, messages that get no answer are dropped.
const MAX_BACKLOG: usize = 1 << 26;

/// The most bytes that a read returns if the plan of faults cuts it short.
const SHORT: usize = 7;

/// The most bytes that are read of a file with the addresses of a port, or with services.
const LONGEST_TABLE: u64 = 1 << 16;

/// How long a GID is looked for where a gateway runs, and the time between two looks.
const NEIGHBOUR: Duration = Duration::from_millis(500);
const NEIGHBOUR_PERIOD: Duration = Duration::from_millis(5);

/// The initial size of a read buffer in bytes.
const BUFFER: usize = 1 << 18;

/// Information about peers that connection management needs, not the device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum News {
    /// A message of connection management.
    Notice(Notice),
    /// The process of this slot is gone.
    Gone(u32),
}

/// This process's slot on the fabric, and its connections to peers.
#[derive(Debug)]
pub(crate) struct Fabric {
    directory: PathBuf,
    slot: u32,
    /// The slot's file, locked as long as it is open.
    _lock: File,
    listener: UnixListener,
    incoming: Vec<Incoming>,
    outgoing: BTreeMap<u32, Outgoing>,
}

#[derive(Debug)]
struct Incoming {
    stream: UnixStream,
    /// Bytes of an incomplete message, then free room.
    buffer: Vec<u8>,
    filled: usize,
}

#[derive(Debug)]
struct Outgoing {
    stream: UnixStream,
    backlog: VecDeque<u8>,
    /// Unanswered requests: the number of the sending queue pair, and the sequence number of the message.
    unanswered: VecDeque<(u32, u32)>,
}

/// The longest name of a socket, in bytes (`sun_path` without its zero).
const SOCKET_NAME: usize = 107;

/// Mode bits that let group and others write.
const OTHERS_WRITE: u32 = 0o022;

/// Makes the directory in which devices meet, for this user alone, and its parent directories.
///
/// # Errors
/// A sentence for the user that says why the directory cannot be used.
pub(crate) fn prepare(directory: &Path) -> Result<(), String> {
    let (shown, longest) = (directory.display(), socket(directory, SLOTS - 1).as_os_str().len());
    if longest > SOCKET_NAME {
        return Err(format!(
            "the path {shown} is too long: sockets in it have names of up to {longest} bytes, and no more \
             than {SOCKET_NAME} can be had (mlx5-emulate --dir PATH)"
        ));
    }
    private_directory(directory)
        .map_err(|error| format!("the directory {shown} cannot be used: {error} (mlx5-emulate --dir PATH)"))
}

fn private_directory(path: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(path)?;
    let metadata = fs::symlink_metadata(path)?;
    let refused = |why| Err(io::Error::new(io::ErrorKind::PermissionDenied, why));
    if !metadata.is_dir() || metadata.uid() != sys::user() {
        refused("it is someone else's")
    } else if metadata.mode() & OTHERS_WRITE != 0 {
        refused("others may write to it")
    } else {
        Ok(())
    }
}

/// Returns the slot of a queue pair's process.
pub(crate) const fn slot_of(qpn: u32) -> u32 {
    qpn >> SLOT_SHIFT
}

impl Fabric {
    /// Takes the first free slot in `directory`.
    ///
    /// # Errors
    /// A sentence for the user that says why no slot could be taken.
    pub(crate) fn join(directory: &Path) -> Result<Self, String> {
        prepare(directory)?;
        Self::take_slot(directory).map_err(|error| format!("{}: {error}", directory.display()))
    }

    fn take_slot(directory: &Path) -> io::Result<Self> {
        for slot in 0..SLOTS {
            let lock = directory.join(format!("slot-{slot}.lock"));
            let lock = OpenOptions::new().create(true).truncate(false).write(true).mode(0o600).open(lock)?;
            if !sys::try_lock(&lock) {
                continue;
            }
            let socket = socket(directory, slot);
            for file in [addresses(directory, "slot", slot), services(directory, "slot", slot)] {
                let _ = fs::remove_file(file);
            }
            // A process that is gone may have left its socket behind.
            match fs::remove_file(&socket) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
            let listener = UnixListener::bind(&socket)?;
            listener.set_nonblocking(true)?;
            descriptors::keep(&lock);
            descriptors::keep(&listener);
            return Ok(Self {
                directory: directory.to_path_buf(),
                slot,
                _lock: lock,
                listener,
                incoming: Vec::new(),
                outgoing: BTreeMap::new(),
            });
        }
        Err(io::Error::new(io::ErrorKind::AddrInUse, "256 processes have devices here, and no more can"))
    }

    /// Tells the other processes the addresses of this process's port.
    pub(crate) fn publish(&self, port: &Port) {
        let lines: String = port
            .entries
            .iter()
            .map(|entry| format!("{} {}\n", Ipv6Addr::from(entry.gid), hex(entry.interface.mac)))
            .collect();
        let (draft, file) = (addresses(&self.directory, "draft", self.slot), self.addresses());
        // Without the file, other network namespaces do not find this process. All else works.
        let _ = fs::write(&draft, lines).and_then(|()| fs::rename(&draft, file));
    }

    /// Returns the MAC address that leads to a GID of another process, or `None` if no process has the GID. A
    /// gateway (`mlx5-fabric`) shows a process of another machine a moment after its beginning, so the
    /// function waits for the GID where a gateway runs, as the kernel waits for a neighbour.
    pub(crate) fn resolve(&self, gid: Gid) -> Option<[u8; 6]> {
        let end = Instant::now() + NEIGHBOUR;
        loop {
            let found = self.resolve_now(gid);
            if found.is_some() || Instant::now() >= end || !self.has_gateway() {
                return found;
            }
            std::thread::sleep(NEIGHBOUR_PERIOD);
        }
    }

    /// Returns whether a gateway serves the directory. A gateway keeps its file locked.
    fn has_gateway(&self) -> bool {
        File::open(self.directory.join("fabric.lock")).is_ok_and(|mark| !sys::try_lock(&mark))
    }

    fn resolve_now(&self, gid: Gid) -> Option<[u8; 6]> {
        (0..SLOTS).filter(|slot| *slot != self.slot).find_map(|slot| {
            // The file of a process that has ended may still exist.
            self.address_of(slot, gid).filter(|_| self.is_alive(slot))
        })
    }

    /// Returns whether the process of a slot has published a GID.
    pub(crate) fn has_address(&self, slot: u32, gid: Gid) -> bool {
        self.address_of(slot, gid).is_some()
    }

    fn address_of(&self, slot: u32, gid: Gid) -> Option<[u8; 6]> {
        let mut lines = String::new();
        let file = File::open(addresses(&self.directory, "slot", slot)).ok()?;
        file.take(LONGEST_TABLE).read_to_string(&mut lines).ok()?;
        lines.lines().filter_map(|line| line.split_once(' ')).find_map(|(shown, mac)| {
            (shown.parse() == Ok(Ipv6Addr::from(gid))).then(|| from_hex(mac)).flatten()
        })
    }

    fn addresses(&self) -> PathBuf {
        addresses(&self.directory, "slot", self.slot)
    }

    /// Returns the directory of the fabric.
    pub(crate) fn directory(&self) -> &Path {
        &self.directory
    }

    /// Returns the first and the last queue pair number of this process.
    pub(crate) const fn qpns(&self) -> (u32, u32) {
        let base = self.slot << SLOT_SHIFT;
        (base + FIRST_QPN, base + (1 << SLOT_SHIFT) - 1)
    }

    /// Returns whether a queue pair number belongs to this process.
    pub(crate) const fn is_local(&self, qpn: u32) -> bool {
        slot_of(qpn) == self.slot
    }

    /// Returns the descriptors to wait on for messages of peers.
    pub(crate) fn descriptors(&self) -> impl Iterator<Item = RawFd> {
        let incoming = self.incoming.iter().map(|peer| peer.stream.as_raw_fd());
        let outgoing = self.outgoing.values().map(|peer| peer.stream.as_raw_fd());
        incoming.chain(outgoing).chain([self.listener.as_raw_fd()])
    }

    /// Returns whether some bytes still wait to be written.
    pub(crate) fn is_behind(&self) -> bool {
        self.outgoing.values().any(|peer| !peer.backlog.is_empty())
    }

    /// Sends a message, at the latest with [`Fabric::flush`]. If the peer of a request cannot be reached,
    /// returns the answer that the sender gets instead.
    pub(crate) fn send(&mut self, message: &Message) -> Option<Message> {
        if fault::at(Place::Message) == Some(Fault::Lost) && matches!(message, Message::Request { .. }) {
            return unreachable(message);
        }
        let to = match message {
            Message::Request { to, .. } | Message::Unanswered { to, .. } | Message::Response { to, .. } => {
                slot_of(*to)
            }
        };
        if !self.outgoing.contains_key(&to)
            && let Ok(peer) = Outgoing::connect(&self.directory, to)
        {
            self.outgoing.insert(to, peer);
        }
        let Some(peer) = self.outgoing.get_mut(&to) else { return unreachable(message) };
        match message {
            Message::Request { from, sequence, .. } => peer.unanswered.push_back((*from, *sequence)),
            // The message is dropped. Its sender waits for no answer, so only this limit bounds the backlog.
            Message::Unanswered { .. } if peer.backlog.len() > MAX_BACKLOG => return None,
            _ => {}
        }
        let (head, data) = codec::encode(message);
        peer.backlog.extend(head);
        if data.len() < LONG {
            peer.backlog.extend(data);
        } else {
            peer.write(data);
        }
        None
    }

    /// Sends a message of connection management to the process with this slot. Returns whether the process
    /// exists. The message is lost if too many bytes already wait for the process.
    pub(crate) fn tell(&mut self, slot: u32, notice: &Notice) -> bool {
        if slot >= SLOTS {
            return false;
        }
        if !self.outgoing.contains_key(&slot)
            && let Ok(peer) = Outgoing::connect(&self.directory, slot)
        {
            self.outgoing.insert(slot, peer);
        }
        let Some(peer) = self.outgoing.get_mut(&slot) else { return false };
        if peer.backlog.len() <= MAX_BACKLOG {
            peer.backlog.extend(codec::encode_notice(notice));
        }
        true
    }

    /// Returns this process's slot.
    pub(crate) const fn slot(&self) -> u32 {
        self.slot
    }

    /// Replaces the list of the services that this process listens for.
    pub(crate) fn publish_services(&self, lines: &str) {
        let (draft, file) = (services(&self.directory, "draft", self.slot), self.services(self.slot));
        let _ = fs::write(&draft, lines).and_then(|()| fs::rename(&draft, file));
    }

    /// Returns the lists of services of all other processes, with their slots. The list of a process that is
    /// gone may be among them.
    pub(crate) fn services_of_others(&self) -> impl Iterator<Item = (u32, String)> {
        (0..SLOTS).filter(|slot| *slot != self.slot).filter_map(|slot| {
            let mut lines = String::new();
            let file = File::open(self.services(slot)).ok()?;
            file.take(LONGEST_TABLE).read_to_string(&mut lines).ok()?;
            Some((slot, lines))
        })
    }

    /// Returns whether a living process has this slot.
    pub(crate) fn is_alive(&self, slot: u32) -> bool {
        UnixStream::connect(socket(&self.directory, slot)).is_ok()
    }

    fn services(&self, slot: u32) -> PathBuf {
        services(&self.directory, "slot", slot)
    }

    /// Writes waiting bytes, as far as peers take them.
    pub(crate) fn flush(&mut self) {
        self.outgoing.values_mut().for_each(|peer| peer.write(&[]));
    }

    fn accept(&mut self) {
        while let Ok((stream, _)) = self.listener.accept() {
            if stream.set_nonblocking(true).is_ok() {
                descriptors::keep(&stream);
                self.incoming.push(Incoming { stream, buffer: vec![0; BUFFER], filled: 0 });
            }
        }
    }

    /// Returns whether all bytes are written, and an answer of another process is still to come.
    pub(crate) fn awaits_answers(&self) -> bool {
        !self.is_behind() && self.outgoing.values().any(|peer| !peer.unanswered.is_empty())
    }

    /// Writes and reads bytes, and delivers the received messages. A request to a peer that is gone gets the
    /// answer that the peer is unreachable. All else that arrives is appended to `news`.
    pub(crate) fn exchange(&mut self, mut deliver: impl FnMut(Message), news: &mut Vec<News>) {
        let descriptors: Vec<RawFd> = self.descriptors().collect();
        let ready = sys::wait(&descriptors, Some(Duration::ZERO));
        if !ready.contains(&true) && !self.is_behind() {
            return;
        }
        let Self { incoming, outgoing, .. } = self;
        let mut take = |packet: Packet| {
            let message = match packet {
                Packet::Device(message) => message,
                Packet::Connection(notice) => {
                    news.push(News::Notice(notice));
                    return;
                }
            };
            // The plan of faults may end this process at any message.
            let _ = fault::at(Place::Message);
            if let Message::Response { to, sequence, response } = &message {
                let again = *response == Response::ReceiverNotReady;
                outgoing.values_mut().for_each(|peer| peer.is_answered(*to, *sequence, again));
            }
            deliver(message);
        };
        let mut turns = ready.iter();
        incoming.retain_mut(|peer| turns.next() != Some(&true) || peer.read(&mut take));
        if ready.last() == Some(&true) {
            self.accept();
        }
        self.outgoing.retain(|slot, peer| {
            if peer.is_alive() {
                return true;
            }
            news.push(News::Gone(*slot));
            for (to, sequence) in peer.unanswered.drain(..) {
                deliver(Message::Response { to, sequence, response: Response::Unreachable });
            }
            false
        });
    }
}

fn socket(directory: &Path, slot: u32) -> PathBuf {
    directory.join(format!("slot-{slot}.socket"))
}

/// Returns the file with the addresses of a slot's port.
fn addresses(directory: &Path, kind: &str, slot: u32) -> PathBuf {
    directory.join(format!("{kind}-{slot}.addresses"))
}

/// Returns the file with the services that a slot listens for.
fn services(directory: &Path, kind: &str, slot: u32) -> PathBuf {
    directory.join(format!("{kind}-{slot}.services"))
}

fn hex(mac: [u8; 6]) -> String {
    mac.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn from_hex(mac: &str) -> Option<[u8; 6]> {
    let number = u64::from_str_radix(mac, 16).ok().filter(|_| mac.len() == 12)?;
    let [_, _, mac @ ..] = number.to_be_bytes();
    Some(mac)
}

fn unreachable(message: &Message) -> Option<Message> {
    match message {
        Message::Request { from, sequence, .. } => {
            Some(Message::Response { to: *from, sequence: *sequence, response: Response::Unreachable })
        }
        Message::Unanswered { .. } | Message::Response { .. } => None,
    }
}

impl Incoming {
    /// Reads available bytes. Returns whether the connection is still open.
    fn read(&mut self, deliver: &mut impl FnMut(Packet)) -> bool {
        let mut taken = 0;
        while taken < READ_AT_ONCE {
            let room = self.buffer.get_mut(self.filled..).unwrap_or_default();
            let wanted = if fault::at(Place::Wire).is_some() { room.len().min(SHORT) } else { room.len() };
            let room = room.get_mut(..wanted).unwrap_or_default();
            match self.stream.read(room) {
                Ok(0) => return false,
                Ok(length) => {
                    taken += length;
                    self.filled += length;
                    if self.parse(deliver).is_err() {
                        return false;
                    }
                    if length < wanted {
                        break;
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return error.kind() == io::ErrorKind::WouldBlock,
            }
        }
        true
    }

    /// Takes all whole messages out of the buffer, and makes room for the rest of the next one.
    fn parse(&mut self, deliver: &mut impl FnMut(Packet)) -> Result<(), codec::Malformed> {
        let mut done = 0;
        while let Some((length, message)) =
            codec::decode(self.buffer.get(done..self.filled).unwrap_or_default())?
        {
            done += length;
            deliver(message);
        }
        self.buffer.copy_within(done..self.filled, 0);
        self.filled -= done;
        if self.filled == self.buffer.len() {
            // A part of one long message fills the buffer.
            self.buffer.resize(self.filled * 2, 0);
        } else if self.filled == 0 && self.buffer.len() > BUFFER {
            self.buffer.truncate(BUFFER);
            self.buffer.shrink_to_fit();
        }
        Ok(())
    }
}

impl Outgoing {
    fn connect(directory: &Path, slot: u32) -> io::Result<Self> {
        let stream = UnixStream::connect(socket(directory, slot))?;
        stream.set_nonblocking(true)?;
        descriptors::keep(&stream);
        Ok(Self { stream, backlog: VecDeque::new(), unanswered: VecDeque::new() })
    }

    /// Writes the backlog, then `data`. Bytes that do not fit now are kept. [`Outgoing::is_alive`] notices a
    /// peer that is gone.
    fn write(&mut self, mut data: &[u8]) {
        while !self.backlog.is_empty() || !data.is_empty() {
            let (front, back) = self.backlog.as_slices();
            match sys::send(self.stream.as_fd(), &[front, back, data].map(IoSlice::new)) {
                Ok(length) if length > 0 => {
                    let kept = length.min(self.backlog.len());
                    self.backlog.drain(..kept);
                    data = data.get(length - kept..).unwrap_or_default();
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                _ => break,
            }
        }
        self.backlog.extend(data);
    }

    /// Removes an answered request, which is nearly always the oldest. With `again`, removes all requests of
    /// the queue pair, since they will be sent again.
    fn is_answered(&mut self, from: u32, sequence: u32, again: bool) {
        if again {
            self.unanswered.retain(|(waiting, _)| *waiting != from);
        } else if let Some(place) = self.unanswered.iter().position(|waiting| *waiting == (from, sequence)) {
            self.unanswered.remove(place);
        }
    }

    /// Writes the backlog, and checks whether the peer still exists.
    fn is_alive(&mut self) -> bool {
        self.write(&[]);
        // The peer sends no bytes on this connection, so a read finds only the connection's end.
        let nothing = self.stream.read(&mut [0; 1]);
        matches!(nothing, Err(error) if error.kind() == io::ErrorKind::WouldBlock
            || error.kind() == io::ErrorKind::Interrupted)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn requests_that_are_sent_again_wait_for_one_answer_each() {
        let (stream, _other) = UnixStream::pair().unwrap();
        let mut peer = Outgoing { stream, backlog: VecDeque::new(), unanswered: VecDeque::new() };
        peer.unanswered.extend([(1, 5), (2, 5), (1, 6), (1, 7)]);
        peer.is_answered(1, 6, false);
        assert_eq!(peer.unanswered, [(1, 5), (2, 5), (1, 7)]);
        // The peer had no receive for the first request, and has dropped the second.
        peer.is_answered(1, 5, true);
        assert_eq!(peer.unanswered, [(2, 5)]);
    }

    #[test]
    fn a_directory_that_may_be_someone_elses_is_refused() {
        let home = tempfile::tempdir().unwrap();
        let [own, link, given] = ["own", "link", "given"].map(|name| home.path().join(name));
        assert_eq!([prepare(&own), prepare(&own)], [Ok(()), Ok(())], "it was not there, and is this user's");
        // The owner of a symbolic link may change its target, so a link is refused.
        std::os::unix::fs::symlink(&own, &link).unwrap();
        // Only root can give a directory away. For other users, root's directory belongs to someone else.
        fs::create_dir(&given).unwrap();
        let is_given = std::os::unix::fs::chown(&given, Some(65534), None).is_ok();
        for path in [&*link, if is_given { &given } else { Path::new("/") }] {
            let refused = prepare(path).unwrap_err();
            assert!(refused.contains("it is someone else's"), "{refused}");
        }
    }

    #[test]
    fn a_directory_to_which_others_may_write_is_refused() {
        let home = tempfile::tempdir().unwrap();
        for (mode, is_open) in [(0o755, false), (0o720, true), (0o702, true)] {
            fs::set_permissions(home.path(), fs::Permissions::from_mode(mode)).unwrap();
            let refused = prepare(home.path()).err().unwrap_or_default();
            assert_eq!(refused.contains("others may write to it"), is_open, "{mode:o}: {refused}");
        }
    }
}
