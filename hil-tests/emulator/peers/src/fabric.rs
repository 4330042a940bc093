//! The fabric: the network between processes. All devices whose processes share a directory are ports of one
//! adapter.
//!
//! Each process takes a slot, which is a locked file, and listens at a socket beside this file. The slot is
//! the upper part of the process's queue pair numbers, so a number alone identifies its process. A message
//! leaves over a connection that the sender has opened, and its answer comes back over one that the receiver
//! has opened. Both ends may vanish at any time.

use crate::address::{Gid, Mac};
use crate::codec::{self, Packet};
use crate::connection::Notice;
use mlx5_faults::{Fault, Place};
use mlx5_softdev::{Message, Response};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use rustix::net::{SendAncillaryBuffer, SendFlags, sendmsg};
use std::collections::{BTreeMap, VecDeque};
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, IoSlice, Read};
use std::marker::PhantomData;
use std::net::Ipv6Addr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

/// The most processes that share one directory.
const SLOTS: u32 = 256;

/// The number of low bits of a queue pair number. The bits above them are the slot.
const SLOT_SHIFT: u32 = 16;

/// The first queue pair number that a process gives out, counted from the beginning of the process's range.
/// Lower numbers stay unused; in the first range they include QP0 and QP1 of InfiniBand.
const FIRST_QPN: u32 = 0x40;

/// The number of bytes that are read from one peer before the next peer is read.
const READ_AT_ONCE: usize = 1 << 22;

/// Messages with at least this much data are written at once. Shorter ones are written together.
const LONG: usize = 1 << 13;

/// The most bytes that may wait for a peer. Above this limit, messages that get no answer are dropped.
const MAX_BACKLOG: usize = 1 << 26;

/// The most bytes that a read returns if the plan of faults cuts it short.
const SHORT: usize = 7;

/// The most bytes that are read of a file with the addresses of a port, or with the services of a process.
const LONGEST_TABLE: u64 = 1 << 16;

/// How long [`Fabric::resolve`] looks for a GID if a gateway serves the directory, and the pause between two
/// looks.
const NEIGHBOUR: Duration = Duration::from_millis(500);
const NEIGHBOUR_PERIOD: Duration = Duration::from_millis(5);

/// The time after which the MAC addresses of the other processes are read again, even if the directory has
/// not changed.
const LOOK: Duration = Duration::from_millis(200);

/// With at most this many peers, most calls of [`Fabric::exchange`] read all connections instead of asking
/// which ones are ready.
const FEW: usize = 2;
/// Of this many calls of [`Fabric::exchange`] with few peers, one asks which connections are ready.
const BRIEF: u32 = 16;

/// The initial size of a read buffer in bytes.
const BUFFER: usize = 1 << 18;

/// The process around a [`Fabric`].
pub trait Host {
    /// Takes note of a descriptor of the fabric. A program in the same process must not close it.
    fn keep(descriptor: &impl AsRawFd);

    /// Counts a visit to a place, and returns its planned fault.
    fn visit(place: Place) -> Option<Fault>;
}

/// Everything that arrives from peers besides the messages of queue pairs, and the end of a peer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum News {
    /// A message of connection management.
    Notice(Notice),
    /// The process of this slot is gone.
    Gone(u32),
    /// An Ethernet frame.
    Frame(Vec<u8>),
}

/// This process's slot on the fabric, and its connections to peers.
#[derive(Debug)]
pub struct Fabric<H> {
    directory: PathBuf,
    slot: u32,
    /// The slot's file, locked as long as it is open.
    _lock: File,
    listener: UnixListener,
    incoming: Vec<Incoming>,
    outgoing: BTreeMap<u32, Outgoing>,
    /// The MAC addresses of the other processes, by slot. `looked` has the directory's time stamp and the
    /// time when the addresses were read.
    around: Vec<(u32, Mac)>,
    looked: Option<(SystemTime, Instant)>,
    /// The number of calls of [`Fabric::exchange`].
    turns: u32,
    host: PhantomData<H>,
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
pub fn prepare(directory: &Path) -> Result<(), String> {
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
    if !metadata.is_dir() || metadata.uid() != rustix::process::geteuid().as_raw() {
        refused("it is someone else's")
    } else if metadata.mode() & OTHERS_WRITE != 0 {
        refused("others may write to it")
    } else {
        Ok(())
    }
}

/// Returns the slot of a queue pair's process.
pub const fn slot_of(qpn: u32) -> u32 {
    qpn >> SLOT_SHIFT
}

impl<H: Host> Fabric<H> {
    /// Takes the first free slot in `directory`.
    ///
    /// # Errors
    /// A sentence for the user that says why no slot could be taken.
    pub fn join(directory: &Path) -> Result<Self, String> {
        prepare(directory)?;
        Self::take_slot(directory).map_err(|error| format!("{}: {error}", directory.display()))
    }

    fn take_slot(directory: &Path) -> io::Result<Self> {
        for slot in 0..SLOTS {
            let lock = directory.join(format!("slot-{slot}.lock"));
            let lock = OpenOptions::new().create(true).truncate(false).write(true).mode(0o600).open(lock)?;
            if !try_lock(&lock) {
                continue;
            }
            let socket = socket(directory, slot);
            for file in [addresses_file(directory, "slot", slot), services(directory, "slot", slot)] {
                let _ = fs::remove_file(file);
            }
            // A process that is gone may have left its socket behind.
            match fs::remove_file(&socket) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
            let listener = UnixListener::bind(&socket)?;
            listener.set_nonblocking(true)?;
            H::keep(&lock);
            H::keep(&listener);
            return Ok(Self {
                directory: directory.to_path_buf(),
                slot,
                _lock: lock,
                listener,
                incoming: Vec::new(),
                outgoing: BTreeMap::new(),
                around: Vec::new(),
                looked: None,
                turns: 0,
                host: PhantomData,
            });
        }
        Err(io::Error::new(io::ErrorKind::AddrInUse, "256 processes have devices here, and no more can"))
    }

    /// Tells the other processes the addresses of this process's port.
    pub fn publish(&self, addresses: impl IntoIterator<Item = (Gid, Mac)>) {
        let line = |(gid, mac)| format!("{} {}\n", Ipv6Addr::from(gid), hex(mac));
        let lines: String = addresses.into_iter().map(line).collect();
        let (draft, file) = (addresses_file(&self.directory, "draft", self.slot), self.addresses());
        // A failure is ignored. Without the file, processes in other network namespaces do not find this one.
        let _ = fs::write(&draft, lines).and_then(|()| fs::rename(&draft, file));
    }

    /// Returns the MAC address that leads to a GID of another process, or `None` if no process has the GID. A
    /// gateway (`mlx5-fabric`) shows a process of another machine a moment after its beginning, so the
    /// function waits for the GID where a gateway runs, as the kernel waits for a neighbour.
    pub fn resolve(&self, gid: Gid) -> Option<Mac> {
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
        File::open(self.directory.join("fabric.lock")).is_ok_and(|mark| !try_lock(&mark))
    }

    /// Returns the slot of the living process that has published a GID.
    pub fn slot_with(&self, gid: Gid) -> Option<u32> {
        (0..SLOTS).find(|slot| *slot != self.slot && self.has_address(*slot, gid) && self.is_alive(*slot))
    }

    fn resolve_now(&self, gid: Gid) -> Option<Mac> {
        (0..SLOTS).filter(|slot| *slot != self.slot).find_map(|slot| {
            // The file of a process that has ended may still exist.
            self.address_of(slot, gid).filter(|_| self.is_alive(slot))
        })
    }

    /// Returns whether the process of a slot has published a GID.
    pub fn has_address(&self, slot: u32, gid: Gid) -> bool {
        self.address_of(slot, gid).is_some()
    }

    fn address_of(&self, slot: u32, gid: Gid) -> Option<Mac> {
        self.addresses_of(slot).find(|(shown, _)| *shown == gid).map(|(_, mac)| mac)
    }

    /// Returns the addresses that a slot has published. Malformed lines are left out.
    fn addresses_of(&self, slot: u32) -> impl Iterator<Item = (Gid, Mac)> + use<H> {
        let mut lines = String::new();
        if let Ok(file) = File::open(addresses_file(&self.directory, "slot", slot)) {
            let _ = file.take(LONGEST_TABLE).read_to_string(&mut lines);
        }
        let address = |line: &str| {
            let (gid, mac) = line.split_once(' ')?;
            Some((gid.parse::<Ipv6Addr>().ok()?.octets(), from_hex(mac)?))
        };
        lines.lines().filter_map(address).collect::<Vec<_>>().into_iter()
    }

    fn addresses(&self) -> PathBuf {
        addresses_file(&self.directory, "slot", self.slot)
    }

    /// Returns the directory of the fabric.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Returns the first and the last queue pair number of this process.
    pub const fn qpns(&self) -> (u32, u32) {
        let base = self.slot << SLOT_SHIFT;
        (base + FIRST_QPN, base + (1 << SLOT_SHIFT) - 1)
    }

    /// Returns whether a queue pair number belongs to this process.
    pub const fn is_local(&self, qpn: u32) -> bool {
        slot_of(qpn) == self.slot
    }

    /// Returns the descriptors to wait on for messages of peers.
    pub fn descriptors(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        let incoming = self.incoming.iter().map(|peer| peer.stream.as_fd());
        let outgoing = self.outgoing.values().map(|peer| peer.stream.as_fd());
        incoming.chain(outgoing).chain([self.listener.as_fd()])
    }

    /// Returns whether some bytes still wait to be written.
    pub fn is_behind(&self) -> bool {
        self.outgoing.values().any(|peer| !peer.backlog.is_empty())
    }

    /// Sends a message, at the latest with [`Fabric::flush`]. If the peer of a request cannot be reached,
    /// returns the answer that the sender gets instead.
    pub fn send(&mut self, message: &Message) -> Option<Message> {
        if H::visit(Place::Message) == Some(Fault::Lost) && matches!(message, Message::Request { .. }) {
            return unreachable(message);
        }
        let to = match message {
            Message::Request { to, .. } | Message::Unanswered { to, .. } | Message::Response { to, .. } => {
                slot_of(*to)
            }
        };
        if !self.outgoing.contains_key(&to)
            && let Ok(peer) = Outgoing::connect::<H>(&self.directory, to)
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
    pub fn tell(&mut self, slot: u32, notice: &Notice) -> bool {
        self.push(slot, || codec::encode_notice(notice))
    }

    /// Sends an Ethernet frame to a MAC address, or to all other processes if the address is that of a group.
    /// The frame is lost if no process has the address.
    pub fn send_frame(&mut self, frame: &[u8]) {
        let Some((to, _)) = frame.split_first_chunk().filter(|_| frame.len() <= codec::LONGEST_FRAME) else {
            return;
        };
        self.look_around();
        let is_group = to[0] & 1 != 0;
        let slots: Vec<u32> =
            self.around.iter().filter(|(_, mac)| is_group || mac == to).map(|one| one.0).collect();
        for slot in slots {
            self.push(slot, || codec::encode_frame(frame));
        }
    }

    /// Reads the MAC addresses of all other slots, if the directory has changed since the last call. Each
    /// change of an address changes the directory. Changes in quick succession may have the same time stamp,
    /// so the addresses are also read after a while.
    fn look_around(&mut self) {
        let changed = fs::metadata(&self.directory).and_then(|metadata| metadata.modified()).ok();
        let is_recent = self.looked.is_some_and(|(_, at)| at.elapsed() < LOOK);
        if is_recent && self.looked.is_some_and(|(time, _)| Some(time) == changed) {
            return;
        }
        self.looked = changed.map(|time| (time, Instant::now()));
        let own = self.slot;
        let others = (0..SLOTS).filter(|slot| *slot != own);
        // All addresses of a port have the same MAC address, so the first one is enough.
        self.around = others.filter_map(|slot| Some((slot, self.addresses_of(slot).next()?.1))).collect();
    }

    /// Appends the bytes of a message to those that wait for a process. Returns whether the process exists.
    /// The message is lost if too many bytes wait already.
    fn push(&mut self, slot: u32, bytes: impl FnOnce() -> Vec<u8>) -> bool {
        if slot >= SLOTS {
            return false;
        }
        if !self.outgoing.contains_key(&slot)
            && let Ok(peer) = Outgoing::connect::<H>(&self.directory, slot)
        {
            self.outgoing.insert(slot, peer);
        }
        let Some(peer) = self.outgoing.get_mut(&slot) else { return false };
        if peer.backlog.len() <= MAX_BACKLOG {
            peer.backlog.extend(bytes());
        }
        true
    }

    /// Returns this process's slot.
    pub const fn slot(&self) -> u32 {
        self.slot
    }

    /// Replaces the list of the services that this process listens for.
    pub fn publish_services(&self, lines: &str) {
        let (draft, file) = (services(&self.directory, "draft", self.slot), self.services(self.slot));
        let _ = fs::write(&draft, lines).and_then(|()| fs::rename(&draft, file));
    }

    /// Returns the lists of services of all other processes, with their slots. The list of a process that is
    /// gone may be among them.
    pub fn services_of_others(&self) -> impl Iterator<Item = (u32, String)> {
        (0..SLOTS).filter(|slot| *slot != self.slot).filter_map(|slot| {
            let mut lines = String::new();
            let file = File::open(self.services(slot)).ok()?;
            file.take(LONGEST_TABLE).read_to_string(&mut lines).ok()?;
            Some((slot, lines))
        })
    }

    /// Returns whether a living process has this slot.
    pub fn is_alive(&self, slot: u32) -> bool {
        UnixStream::connect(socket(&self.directory, slot)).is_ok()
    }

    fn services(&self, slot: u32) -> PathBuf {
        services(&self.directory, "slot", slot)
    }

    /// Writes waiting bytes, as far as peers take them.
    pub fn flush(&mut self) {
        self.outgoing.values_mut().for_each(|peer| peer.write(&[]));
    }

    /// Returns for each of the descriptors whether a read of it finds something.
    fn ready(&self) -> Vec<bool> {
        let mut polled: Vec<_> = self
            .descriptors()
            .map(|descriptor| PollFd::from_borrowed_fd(descriptor, PollFlags::IN))
            .collect();
        let count = poll(&mut polled, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })).unwrap_or(0);
        polled.iter().map(|descriptor| count > 0 && !descriptor.revents().is_empty()).collect()
    }

    fn accept(&mut self) {
        while let Ok((stream, _)) = self.listener.accept() {
            if stream.set_nonblocking(true).is_ok() {
                H::keep(&stream);
                self.incoming.push(Incoming { stream, buffer: vec![0; BUFFER], filled: 0 });
            }
        }
    }

    /// Returns whether all bytes are written, and several answers of other processes are still to come.
    pub fn awaits_answers(&self) -> bool {
        !self.is_behind() && self.outgoing.values().map(|peer| peer.unanswered.len()).sum::<usize>() > 1
    }

    /// Writes and reads bytes, and delivers the received messages. A request to a peer that is gone gets the
    /// answer that the peer is unreachable. All else that arrives is appended to `news`.
    pub fn exchange(&mut self, mut deliver: impl FnMut(Message), news: &mut Vec<News>) {
        // A read of a socket takes a third of the time of a `poll` for all sockets. With few peers, most
        // calls only read. The other calls also find new peers, and peers that are gone.
        self.turns = self.turns.wrapping_add(1);
        let reads_only = (1..=FEW).contains(&self.incoming.len()) && !self.turns.is_multiple_of(BRIEF);
        let ready = if reads_only { vec![true; self.incoming.len()] } else { self.ready() };
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
                Packet::Frame(frame) => {
                    news.push(News::Frame(frame));
                    return;
                }
            };
            // The plan of faults may end this process at any message.
            let _ = H::visit(Place::Message);
            if let Message::Response { to, sequence, response } = &message {
                let again = *response == Response::ReceiverNotReady;
                outgoing.values_mut().for_each(|peer| peer.is_answered(*to, *sequence, again));
            }
            deliver(message);
        };
        let mut turns = ready.iter();
        incoming.retain_mut(|peer| turns.next() != Some(&true) || peer.read::<H>(&mut take));
        if reads_only {
            return;
        }
        if ready.last() == Some(&true) {
            self.accept();
        }
        // A peer sends no bytes on these connections. They become readable when the peer is gone.
        self.outgoing.retain(|slot, peer| {
            if turns.next() != Some(&true) || peer.is_alive() {
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

/// Locks a file, unless another process has locked it. Returns whether this process has the lock.
fn try_lock(file: &File) -> bool {
    flock(file, FlockOperation::NonBlockingLockExclusive).is_ok()
}

/// Sends pieces as one message, as far as the socket takes them. Returns the number of sent bytes. A peer
/// that is gone raises no signal.
///
/// # Errors
/// The system's error.
pub fn send(stream: &UnixStream, pieces: &[IoSlice<'_>]) -> rustix::io::Result<usize> {
    sendmsg(stream, pieces, &mut SendAncillaryBuffer::default(), SendFlags::NOSIGNAL)
}

fn socket(directory: &Path, slot: u32) -> PathBuf {
    directory.join(format!("slot-{slot}.socket"))
}

/// Returns the file with the addresses of a slot's port.
fn addresses_file(directory: &Path, kind: &str, slot: u32) -> PathBuf {
    directory.join(format!("{kind}-{slot}.addresses"))
}

/// Returns the file with the services that a slot listens for.
fn services(directory: &Path, kind: &str, slot: u32) -> PathBuf {
    directory.join(format!("{kind}-{slot}.services"))
}

fn hex(mac: Mac) -> String {
    mac.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn from_hex(mac: &str) -> Option<Mac> {
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
    fn read<H: Host>(&mut self, deliver: &mut impl FnMut(Packet)) -> bool {
        let mut taken = 0;
        while taken < READ_AT_ONCE {
            let room = self.buffer.get_mut(self.filled..).unwrap_or_default();
            let wanted = if H::visit(Place::Wire).is_some() { room.len().min(SHORT) } else { room.len() };
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
    fn connect<H: Host>(directory: &Path, slot: u32) -> io::Result<Self> {
        let stream = UnixStream::connect(socket(directory, slot))?;
        stream.set_nonblocking(true)?;
        H::keep(&stream);
        Ok(Self { stream, backlog: VecDeque::new(), unanswered: VecDeque::new() })
    }

    /// Writes the backlog, then `data`. Bytes that do not fit now are kept. [`Outgoing::is_alive`] notices a
    /// peer that is gone.
    fn write(&mut self, mut data: &[u8]) {
        while !self.backlog.is_empty() || !data.is_empty() {
            let (front, back) = self.backlog.as_slices();
            match send(&self.stream, &[front, back, data].map(IoSlice::new)) {
                Ok(length) if length > 0 => {
                    let kept = length.min(self.backlog.len());
                    self.backlog.drain(..kept);
                    data = data.get(length - kept..).unwrap_or_default();
                }
                Err(Errno::INTR) => {}
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
