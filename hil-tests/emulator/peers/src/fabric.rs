//! The fabric: the network between processes. All devices whose processes share a directory can reach each
//! other, as if they were ports of one adapter.
//!
//! Each process takes a slot, which is a locked file, and listens at a socket beside this file. The slot is
//! the upper part of the process's queue pair numbers, so a number alone identifies its process. A message
//! leaves over a connection that the sender has opened. Its answer comes back over a connection that the
//! receiver has opened. Either process may end at any time.
//!
//! A process whose slot has a file `slot-N.rings` takes messages by rings in shared memory, one for each
//! sender. The connection then only wakes the receiver, and shows the end of either process. Gateways
//! (`mlx5-fabric`) have no such file, and get the messages as bytes of the connection.

use crate::address::{Gid, Mac};
use crate::backlog::Backlog;
use crate::codec::{self, Arriving, Encoded, Packet};
use crate::connection::Notice;
use crate::place::{self, ADDRESSES, GATEWAY, LOCK, RINGS, SERVICES, SLOTS, file, prepare};
use crate::ring::{Beginning, Nonsense, ROOM, Reader, Writer};
use mlx5_faults::{Fault, Place};
use mlx5_softdev::{Message, Response};
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::io::Errno;
use rustix::net::{SendAncillaryBuffer, SendFlags, sendmsg};
use std::cell::Cell;
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, VecDeque};
use std::fs::{self, File};
use std::io::{self, BufReader, IoSlice, Read};
use std::marker::PhantomData;
use std::net::Ipv6Addr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

/// The number of low bits of a queue pair number that count within a process. The bits above them are the
/// process's slot.
pub const SLOT_SHIFT: u32 = 16;

/// The first queue pair number that a process gives out, counted from the beginning of the process's range.
/// Lower numbers stay unused; in the first range they include QP0 and QP1 of InfiniBand.
const FIRST_QPN: u32 = 0x40;

/// The number of bytes that are read from one peer before the next peer is read. A ring has no more bytes, so
/// that one read takes all that a peer has written before its end.
const READ_AT_ONCE: usize = ROOM as usize;

/// Messages with at least this many bytes of data are written at once. Without a ring, each write is a system
/// call, so shorter messages wait and are then written together.
const LONG: usize = 1 << 13;

/// The most bytes that may wait for a peer. Above this limit, messages that get no answer are dropped, and
/// requests of the peer wait ([`Fabric::takes_messages`]).
const MAX_BACKLOG: usize = 1 << 26;

/// The most bytes that a read returns if the plan of faults cuts it short.
const SHORT: usize = 7;

/// How long [`Fabric::resolve`] searches for a GID if a gateway serves the directory.
const NEIGHBOUR: Duration = Duration::from_millis(500);
/// The pause between two searches of [`Fabric::resolve`].
const NEIGHBOUR_PERIOD: Duration = Duration::from_millis(5);

/// The time after which the MAC addresses of the other processes are read again, even if the directory has
/// not changed.
const LOOK: Duration = Duration::from_millis(200);

/// With at most this many peers without a ring, most calls of [`Fabric::exchange`] read all connections
/// instead of asking which connections are ready.
const FEW: usize = 2;
/// Of this many calls of [`Fabric::exchange`] with few peers, one call asks which connections are ready.
const BRIEF: u32 = 16;

/// The most bytes that one call of [`Fabric::exchange`] reads from the connection of a peer with a ring. Such
/// bytes carry no message: they only wake this process.
const WAKING: usize = 64;

/// The size of the read buffer of a connection in bytes. One system call reads many short messages into it.
const BUFFER: usize = 1 << 15;

/// The most pieces of bytes that one call writes to a peer.
const PIECES: usize = 16;

/// The functions that a [`Fabric`] needs of the process that contains it.
pub trait Host {
    /// Takes note of a descriptor of the fabric, so that the host can keep the program in the same process
    /// from closing it.
    fn keep(descriptor: &impl AsRawFd);

    /// Counts a visit to a place: the fabric is about to carry out an action for which a fault may be
    /// planned. Returns the fault that is planned for this visit.
    fn visit(place: Place) -> Option<Fault>;
}

/// An event from a peer that is no message of a queue pair.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum News {
    /// A message of connection management.
    Notice(Notice),
    /// The process with this slot has ended.
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
    /// An eventfd, which keeps this process from sleeping after a message has come by a ring.
    awake: OwnedFd,
    /// Whether this process may have slept since the last [`Fabric::exchange`]. Peers with rings may then
    /// have written a byte to their connections to wake it.
    slept: Cell<bool>,
    incoming: Vec<Incoming>,
    outgoing: BTreeMap<u32, Outgoing>,
    /// The slots of the other processes, with their MAC addresses.
    around: Vec<(u32, Mac)>,
    /// The directory's time stamp when `around` was last read, and the time of this reading.
    looked: Option<(SystemTime, Instant)>,
    /// The number of calls of [`Fabric::exchange`].
    turns: u32,
    host: PhantomData<H>,
}

#[derive(Debug)]
struct Incoming {
    stream: BufReader<UnixStream>,
    source: Source,
    /// The next message.
    message: Arriving,
}

/// The way by which a peer's messages come.
#[derive(Debug)]
enum Source {
    /// The peer has sent no byte yet.
    Unknown,
    Ring(Reader),
    Bytes,
}

#[derive(Debug)]
struct Outgoing {
    stream: UnixStream,
    /// The ring that takes the messages, or `None` if they are written to the connection.
    ring: Option<Writer>,
    backlog: Backlog,
    /// Requests without an answer yet: the number of the sending queue pair, and the sequence number.
    unanswered: VecDeque<(u32, u32)>,
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
            let Some(lock) = place::lock(&file(directory, slot, LOCK))? else { continue };
            for kind in [ADDRESSES, SERVICES] {
                let _ = fs::remove_file(file(directory, slot, kind));
            }
            // A failure is ignored. Without this file, peers send through their connections instead of rings.
            let _ = File::create(file(directory, slot, RINGS));
            let listener = place::listen(directory, slot)?;
            let awake = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
            H::keep(&lock);
            H::keep(&listener);
            H::keep(&awake);
            return Ok(Self {
                directory: directory.to_path_buf(),
                slot,
                _lock: lock,
                listener,
                awake,
                slept: Cell::new(false),
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
        place::replace(&self.directory, self.slot, ADDRESSES, lines);
    }

    /// Returns the lines of a file of a slot, unless the file is missing.
    fn lines(&self, slot: u32, kind: &str) -> Option<String> {
        String::from_utf8(place::list(&self.directory, slot, kind)?).ok()
    }

    /// Returns the MAC address that leads to a GID of another process, or `None` if no process has the GID. A
    /// gateway (`mlx5-fabric`) publishes a process of another machine a moment after the process has started.
    /// If a gateway runs, the function therefore waits up to half a second for the GID.
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
        File::open(self.directory.join(GATEWAY)).is_ok_and(|mark| mark.try_lock().is_err())
    }

    /// Returns the slot of the living process that has published a GID.
    pub fn slot_with(&self, gid: Gid) -> Option<u32> {
        (0..SLOTS).find(|slot| *slot != self.slot && self.has_address(*slot, gid) && self.is_alive(*slot))
    }

    /// Works like [`Fabric::resolve`], but does not wait.
    pub fn resolve_now(&self, gid: Gid) -> Option<Mac> {
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

    /// Returns the addresses that the process of a slot has published. Malformed lines are left out.
    fn addresses_of(&self, slot: u32) -> impl Iterator<Item = (Gid, Mac)> + use<H> {
        let lines = self.lines(slot, ADDRESSES).unwrap_or_default();
        let address = |line: &str| {
            let (gid, mac) = line.split_once(' ')?;
            Some((gid.parse::<Ipv6Addr>().ok()?.octets(), from_hex(mac)?))
        };
        lines.lines().filter_map(address).collect::<Vec<_>>().into_iter()
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

    /// Asks the peers with rings to wake this process when they write, and returns descriptors to wait for.
    /// One of them becomes readable when messages arrive or are already there.
    pub fn prepare_sleep(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        let rings = self.incoming.iter().filter_map(|peer| match &peer.source {
            Source::Ring(ring) => Some(ring),
            Source::Unknown | Source::Bytes => None,
        });
        let may_sleep = rings.fold(true, |may_sleep, ring| ring.will_sleep() & may_sleep);
        self.slept.set(true);
        if !may_sleep {
            // A ring already holds messages, so the caller must not sleep: the eventfd becomes readable. If
            // the write fails, the counter is full, and the eventfd is readable already.
            let _ = rustix::io::write(&self.awake, &1_u64.to_ne_bytes());
        }
        self.descriptors()
    }

    /// Returns the descriptors of all incoming and all outgoing connections, of the listener, and of the
    /// eventfd.
    fn descriptors(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        let incoming = self.incoming.iter().map(|peer| peer.stream.get_ref().as_fd());
        let outgoing = self.outgoing.values().map(|peer| peer.stream.as_fd());
        incoming.chain(outgoing).chain([self.listener.as_fd(), self.awake.as_fd()])
    }

    /// Returns whether some bytes still wait to be written.
    pub fn is_behind(&self) -> bool {
        self.outgoing.values().any(|peer| peer.backlog.len() > 0)
    }

    /// Returns whether the process of a queue pair can take more messages. It cannot while more than a
    /// limited number of bytes waits for it.
    pub fn takes_messages(&self, qpn: u32) -> bool {
        self.outgoing.get(&slot_of(qpn)).is_none_or(|peer| peer.backlog.len() <= MAX_BACKLOG)
    }

    /// Sends a message, or keeps it until the next [`Fabric::flush`]. If the message is a request to a
    /// process that cannot be reached, returns the answer for the sending queue pair.
    pub fn send(&mut self, message: Message) -> Option<Message> {
        if H::visit(Place::Message) == Some(Fault::Lost) && matches!(message, Message::Request { .. }) {
            return unreachable(&message);
        }
        let to = slot_of(message.to());
        let Some(peer) = self.peer(to) else { return unreachable(&message) };
        match &message {
            Message::Request { from, sequence, .. } => peer.unanswered.push_back((*from, *sequence)),
            // The message is dropped. The sender of messages without answers does not wait, and a peer that
            // gets this response may send further requests without end: only the limit bounds the backlog.
            Message::Unanswered { .. } | Message::Response { response: Response::Unreachable, .. }
                if peer.backlog.len() > MAX_BACKLOG =>
            {
                return None;
            }
            _ => {}
        }
        let encoded = codec::encode(message);
        if peer.ring.is_some() || encoded.data.len() >= LONG {
            peer.write(&encoded);
        } else {
            peer.keep(&encoded, 0);
        }
        None
    }

    /// Returns the connection to the process of a slot, or `None` if there is no process. The first call
    /// opens the connection.
    fn peer(&mut self, slot: u32) -> Option<&mut Outgoing> {
        if slot < SLOTS
            && let Entry::Vacant(free) = self.outgoing.entry(slot)
            && let Ok(peer) = Outgoing::connect::<H>(&self.directory, slot)
        {
            free.insert(peer);
        }
        self.outgoing.get_mut(&slot)
    }

    /// Sends a message of connection management to the process with this slot. Returns whether the process
    /// exists. The message is lost if too many bytes already wait for the process.
    pub fn tell(&mut self, slot: u32, notice: &Notice) -> bool {
        self.push(slot, || codec::encode_notice(notice))
    }

    /// Sends an Ethernet frame to the process with the frame's destination address, or to all other processes
    /// if this address is a group address. The frame is lost if no process has the address.
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

    /// Reads the MAC addresses of all other processes, if the directory has changed since the last call. Each
    /// published address changes the directory's time stamp. Changes in quick succession may have the same
    /// time stamp, so the addresses are also read again when [`LOOK`] has passed.
    fn look_around(&mut self) {
        let changed = fs::metadata(&self.directory).and_then(|metadata| metadata.modified()).ok();
        let is_recent = self.looked.is_some_and(|(_, at)| at.elapsed() < LOOK);
        if is_recent && self.looked.is_some_and(|(time, _)| Some(time) == changed) {
            return;
        }
        self.looked = changed.map(|time| (time, Instant::now()));
        let own = self.slot;
        let others = (0..SLOTS).filter(|slot| *slot != own);
        // All addresses of a port have the same MAC address, so the first address is enough.
        self.around = others.filter_map(|slot| Some((slot, self.addresses_of(slot).next()?.1))).collect();
    }

    /// Appends the bytes of a message to the bytes that wait for a process. Returns whether the process
    /// exists. The message is lost if too many bytes wait already.
    fn push(&mut self, slot: u32, message: impl FnOnce() -> Encoded) -> bool {
        let Some(peer) = self.peer(slot) else { return false };
        if peer.backlog.len() <= MAX_BACKLOG {
            peer.keep(&message(), 0);
        }
        true
    }

    /// Returns this process's slot.
    pub const fn slot(&self) -> u32 {
        self.slot
    }

    /// Replaces the list of the services that this process listens for.
    pub fn publish_services(&self, lines: &str) {
        place::replace(&self.directory, self.slot, SERVICES, lines);
    }

    /// Returns the slots and the published services of all other processes. The list of a process that has
    /// ended may be among them.
    pub fn services_of_others(&self) -> impl Iterator<Item = (u32, String)> {
        let others = (0..SLOTS).filter(|slot| *slot != self.slot);
        others.filter_map(|slot| Some((slot, self.lines(slot, SERVICES)?)))
    }

    /// Returns whether a living process has this slot.
    pub fn is_alive(&self, slot: u32) -> bool {
        // `AGAIN` means that the process lives, but that its queue of new connections is full.
        matches!(place::connect(&self.directory, slot), Ok(_) | Err(Errno::AGAIN))
    }

    /// Writes the bytes that wait for peers, as far as the connections and rings have room.
    pub fn flush(&mut self) {
        self.outgoing.values_mut().for_each(Outgoing::flush);
    }

    /// Returns for each of [`Fabric::descriptors`] whether it is readable, or its connection has ended.
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
                let stream = BufReader::with_capacity(BUFFER, stream);
                let (source, message) = (Source::Unknown, Arriving::default());
                self.incoming.push(Incoming { stream, source, message });
            }
        }
    }

    /// Returns whether all bytes are written, and at least two answers of other processes are still to come.
    pub fn awaits_answers(&self) -> bool {
        !self.is_behind() && self.outgoing.values().map(|peer| peer.unanswered.len()).sum::<usize>() > 1
    }

    /// Writes and reads bytes, and delivers the received messages. A request to a peer that is gone gets the
    /// answer that the peer is unreachable. All else that arrives is appended to `news`.
    pub fn exchange(&mut self, mut deliver: impl FnMut(Message), news: &mut Vec<News>) {
        // A read of one socket takes a third of the time of a `poll` for all sockets. With few peers, most
        // calls therefore read without a `poll`. The calls with a `poll` also find new peers, and peers that
        // have ended.
        self.turns = self.turns.wrapping_add(1);
        let sockets = self.incoming.iter().filter(|peer| !matches!(peer.source, Source::Ring(_))).count();
        let asks = self.slept.take() || sockets > FEW || self.turns.is_multiple_of(BRIEF);
        let ready = asks.then(|| self.ready());
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
            // The plan of faults may end this process here. Other faults do not apply to received messages.
            let _ = H::visit(Place::Message);
            if let Message::Response { to, sequence, response } = &message {
                let again = matches!(response, Response::ReceiverNotReady { .. });
                outgoing.values_mut().for_each(|peer| peer.is_answered(*to, *sequence, again));
            }
            deliver(message);
        };
        let mut turns = ready.as_deref().unwrap_or_default().iter();
        incoming.retain_mut(|peer| {
            peer.read::<H>(ready.as_ref().map(|_| turns.next() == Some(&true)), &mut take)
        });
        let Some(&[.., has_new_peers, is_awake]) = ready.as_deref() else { return };
        if is_awake {
            let _ = rustix::io::read(&self.awake, &mut [0; 8]);
        }
        if has_new_peers {
            self.accept();
        }
        // A peer sends no bytes on the outgoing connections. A connection therefore becomes readable only
        // when its peer has ended.
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

/// Writes pieces, one after the other, as far as the socket takes them. Returns the number of sent bytes. If
/// the peer has ended, the function returns an error, and the process gets no SIGPIPE.
///
/// # Errors
/// The system's error.
pub fn send(stream: &UnixStream, pieces: &[IoSlice<'_>]) -> rustix::io::Result<usize> {
    sendmsg(stream, pieces, &mut SendAncillaryBuffer::default(), SendFlags::NOSIGNAL)
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
    /// Reads available bytes, and delivers the messages. `is_ready` is the result of a `poll` of the
    /// connection, or `None` without a `poll`. Returns whether the connection is still open.
    fn read<H: Host>(&mut self, is_ready: Option<bool>, deliver: &mut impl FnMut(Packet)) -> bool {
        // A peer may write to its ring and then end. The end of the connection is checked before the ring is
        // read, so that the peer's last bytes are read.
        let has_ended = match &self.source {
            Source::Ring(_) => is_ready == Some(true) && !self.take_waking(),
            Source::Unknown | Source::Bytes if is_ready == Some(false) => return true,
            Source::Unknown | Source::Bytes => false,
        };
        let mut taken = 0;
        loop {
            // No descriptor is readable because of bytes in the read buffer, so none stays there.
            let most = READ_AT_ONCE.saturating_sub(taken).max(self.stream.buffer().len());
            if most == 0 {
                break;
            }
            let (place, wanted) = self.message.wanted();
            let wanted = wanted.min(most);
            let wanted = if H::visit(Place::Wire).is_some() { wanted.min(SHORT) } else { wanted };
            let read = match &mut self.source {
                Source::Ring(ring) => match ring.append(place, wanted) {
                    Ok(0) => break,
                    Ok(length) => Ok(length),
                    Err(Nonsense) => return false,
                },
                Source::Bytes => append(&mut self.stream, place, wanted),
                Source::Unknown => match Reader::take(self.stream.get_ref(), place, wanted) {
                    Ok(Beginning::Ring(ring)) => {
                        self.source = Source::Ring(ring);
                        continue;
                    }
                    Ok(Beginning::Bytes(length)) => {
                        self.source = Source::Bytes;
                        Ok(length)
                    }
                    Err(error) => Err(error.into()),
                },
            };
            match read {
                Ok(0) => return false,
                Ok(length) => taken += length,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return error.kind() == io::ErrorKind::WouldBlock,
            }
            match self.message.take() {
                Ok(Some(packet)) => deliver(packet),
                Ok(None) => {}
                Err(codec::Malformed) => return false,
            }
        }
        !has_ended
    }

    /// Reads the bytes with which a peer with a ring has woken this process. Returns whether the connection
    /// is still open.
    fn take_waking(&mut self) -> bool {
        match self.stream.get_mut().read(&mut [0; WAKING]) {
            Ok(length) => length > 0,
            Err(error) => matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted),
        }
    }
}

/// Appends the next bytes of a connection to `out`, `most` at most. Returns their number, which is 0 if the
/// connection has ended.
///
/// # Errors
/// The system's error, if no byte was read.
fn append(stream: &mut impl Read, out: &mut Vec<u8>, most: usize) -> io::Result<usize> {
    let before = out.len();
    let read = stream.take(most as u64).read_to_end(out);
    match out.len() - before {
        0 => read,
        length => Ok(length),
    }
}

impl Outgoing {
    fn connect<H: Host>(directory: &Path, slot: u32) -> io::Result<Self> {
        let stream = place::connect(directory, slot)?;
        H::keep(&stream);
        let takes_rings = file(directory, slot, RINGS).exists();
        let ring = takes_rings.then(|| Writer::hand(&stream).ok()).flatten();
        Ok(Self { stream, ring, backlog: Backlog::default(), unanswered: VecDeque::new() })
    }

    /// Keeps the bytes of a message, but for the first `written`, until a later write.
    fn keep(&mut self, Encoded { head, data }: &Encoded, written: usize) {
        self.backlog.push(head.get(written..).unwrap_or_default());
        self.backlog.push_data(data, written.saturating_sub(head.len()));
    }

    /// Writes the backlog, then the message. Keeps the bytes for which the peer has no room.
    fn write(&mut self, message: &Encoded) {
        let written = self.write_pieces([&message.head, &message.data]);
        self.keep(message, written);
    }

    /// Writes the backlog, as far as the peer has room.
    fn flush(&mut self) {
        self.write_pieces([&[]; 2]);
    }

    /// Writes the backlog, then the pieces, as far as the peer has room. Returns the number of written bytes
    /// of the pieces. Errors are ignored, since [`Outgoing::is_alive`] notices a peer that has ended.
    fn write_pieces(&mut self, [mut head, mut data]: [&[u8]; 2]) -> usize {
        let (mut has_written, mut done) = (false, 0);
        while self.backlog.len() > 0 || !head.is_empty() || !data.is_empty() {
            let mut all = [&[][..]; PIECES];
            all.iter_mut()
                .zip(self.backlog.pieces().chain([head, data]))
                .for_each(|(place, piece)| *place = piece);
            let written = match &mut self.ring {
                Some(ring) => Ok(ring.write(&all)),
                None => send(&self.stream, &all.map(IoSlice::new)),
            };
            match written {
                Ok(length) if length > 0 => {
                    has_written = true;
                    let mut rest = length - self.backlog.take(length);
                    done += rest;
                    for piece in [&mut head, &mut data] {
                        let taken = rest.min(piece.len());
                        *piece = piece.get(taken..).unwrap_or_default();
                        rest -= taken;
                    }
                }
                Err(Errno::INTR) => {}
                _ => break,
            }
        }
        if has_written && self.ring.as_ref().is_some_and(Writer::must_wake) {
            // An error is ignored: a connection without room already holds bytes that wake the peer.
            let _ = send(&self.stream, &[IoSlice::new(&[0])]);
        }
        done
    }

    /// Removes an answered request, which is nearly always the oldest. With `again` (receiver not ready),
    /// removes all requests of the queue pair, since the queue pair will send them again.
    fn is_answered(&mut self, from: u32, sequence: u32, again: bool) {
        if again {
            self.unanswered.retain(|(waiting, _)| *waiting != from);
        } else if let Some(place) = self.unanswered.iter().position(|waiting| *waiting == (from, sequence)) {
            self.unanswered.remove(place);
        }
    }

    /// Writes the backlog, and checks whether the peer still exists.
    fn is_alive(&mut self) -> bool {
        self.flush();
        // The peer sends no bytes on this connection, so a read finds only the connection's end.
        let nothing = self.stream.read(&mut [0; 1]);
        matches!(nothing, Err(error) if error.kind() == io::ErrorKind::WouldBlock
            || error.kind() == io::ErrorKind::Interrupted)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::place::SOCKET;
    use mlx5_softdev::Request;
    use rustix::net::{AddressFamily, SocketAddrUnix, SocketType};
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn requests_that_are_sent_again_wait_for_one_answer_each() {
        let (stream, _other) = UnixStream::pair().unwrap();
        let mut peer =
            Outgoing { stream, ring: None, backlog: Backlog::default(), unanswered: VecDeque::new() };
        peer.unanswered.extend([(1, 5), (2, 5), (1, 6), (1, 7)]);
        peer.is_answered(1, 6, false);
        assert_eq!(peer.unanswered, [(1, 5), (2, 5), (1, 7)]);
        // The peer had no receive request for message 5 of queue pair 1, and has dropped message 7 behind it.
        peer.is_answered(1, 5, true);
        assert_eq!(peer.unanswered, [(2, 5)]);
    }

    /// A process without planned faults.
    #[derive(Debug)]
    struct Plain;

    impl Host for Plain {
        fn keep(_: &impl AsRawFd) {}

        fn visit(_: Place) -> Option<Fault> {
            None
        }
    }

    /// Returns an RDMA WRITE from a queue pair of one process to a queue pair of another.
    fn write(from: &Fabric<Plain>, to: &Fabric<Plain>, sequence: u32, data: Vec<u8>) -> Message {
        let request =
            Request::Write { rkey: 1, address: 2, data: data.into(), immediate: None, solicited: false };
        Message::Request { from: from.qpns().0, to: to.qpns().0, sequence, request }
    }

    /// Flushes the process `from` and reads at the process `to`, until `to` has taken `count` messages or 30
    /// seconds are over.
    fn carry(from: &mut Fabric<Plain>, to: &mut Fabric<Plain>, count: usize) -> Vec<Message> {
        let (mut got, end) = (Vec::new(), Instant::now() + Duration::from_secs(30));
        while got.len() < count && Instant::now() < end {
            from.flush();
            to.exchange(|message| got.push(message), &mut Vec::new());
        }
        got
    }

    /// Returns whether one of the descriptors is ready.
    fn is_woken(fabric: &Fabric<Plain>) -> bool {
        fabric.ready().contains(&true)
    }

    #[test]
    fn messages_of_all_lengths_come_by_a_ring_or_by_the_connection() {
        for has_ring in [true, false] {
            let home = tempfile::tempdir().unwrap();
            let [mut one, mut other] = [(); 2].map(|()| Fabric::<Plain>::join(home.path()).unwrap());
            if !has_ring {
                fs::remove_file(file(home.path(), other.slot, RINGS)).unwrap();
            }
            let messages: Vec<_> = [0, 1, 64, 4096, 1 << 20, 3]
                .into_iter()
                .zip(0..)
                .map(|(length, number)| write(&one, &other, number, vec![number as u8; length]))
                .collect();
            messages.iter().for_each(|message| assert_eq!(one.send(message.clone()), None));
            assert!(carry(&mut one, &mut other, messages.len()) == messages, "ring: {has_ring}");
            let source = &other.incoming[0].source;
            assert_eq!(matches!(source, Source::Ring(_)), has_ring);
            assert_eq!(matches!(source, Source::Bytes), !has_ring);
            // The last bytes arrive, although the peer has ended. They fill a ring.
            let room = if has_ring { READ_AT_ONCE } else { 999 };
            let head = codec::encode(write(&one, &other, 9, vec![])).head.len();
            let messages = [write(&one, &other, 9, vec![9; room - head])];
            assert_eq!(one.send(messages[0].clone()), None);
            one.flush();
            assert!(!one.is_behind());
            drop(one);
            let mut got = Vec::new();
            while !other.incoming.is_empty() {
                other.exchange(|message| got.push(message), &mut Vec::new());
            }
            assert!(got == messages);
        }
    }

    #[test]
    fn a_process_that_sleeps_is_woken_by_a_message() {
        let home = tempfile::tempdir().unwrap();
        let [mut one, mut other] = [(); 2].map(|()| Fabric::<Plain>::join(home.path()).unwrap());
        let sleeps = |fabric: &Fabric<Plain>| fabric.prepare_sleep().count();
        assert!(!is_woken(&other));
        one.send(write(&one, &other, 0, vec![1; 8]));
        assert!(is_woken(&other), "by a new connection");
        carry(&mut one, &mut other, 1);
        // The first `exchange` after a sleep reads the byte that woke the process.
        sleeps(&other);
        other.exchange(|_| (), &mut Vec::new());
        assert!(!is_woken(&other));
        one.send(write(&one, &other, 1, vec![1; 8]));
        assert!(is_woken(&other), "by a byte");
        carry(&mut one, &mut other, 1);
        sleeps(&other);
        other.exchange(|_| (), &mut Vec::new());
        one.send(write(&one, &other, 2, vec![1; 8]));
        carry(&mut one, &mut other, 1);
        sleeps(&other);
        other.exchange(|_| (), &mut Vec::new());
        // With its next message, the peer clears the mark of the sleep in the ring, and sends one byte. With
        // the message after that, it sends no byte.
        for number in 3..5 {
            one.send(write(&one, &other, number, vec![1; 8]));
        }
        other.slept.set(true);
        assert_eq!(carry(&mut one, &mut other, 2).len(), 2);
        assert!(!is_woken(&other));
        one.send(write(&one, &other, 5, vec![1; 8]));
        assert!(!is_woken(&other));
        sleeps(&other);
        assert!(is_woken(&other), "by itself: the message was there before the sleep");
        carry(&mut one, &mut other, 1);
        assert!(!is_woken(&other));
    }

    #[test]
    fn a_peer_with_nonsense_in_its_ring_is_dropped_and_others_go_on() {
        for is_position in [false, true] {
            let home = tempfile::tempdir().unwrap();
            let [mut bad, mut good, mut other] =
                [(); 3].map(|()| Fabric::<Plain>::join(home.path()).unwrap());
            for peer in [&mut bad, &mut good] {
                peer.send(write(peer, &other, 0, vec![1; 8]));
            }
            let mut got = 0;
            while got < 2 {
                other.exchange(|_| got += 1, &mut Vec::new());
            }
            let hostile = bad.outgoing.get_mut(&other.slot).unwrap();
            if is_position {
                hostile.ring.as_ref().unwrap().lie();
            } else {
                hostile.write_pieces([&[0xff; 40], &[0xff; 40]]);
            }
            other.exchange(|_| panic!("nonsense is no message"), &mut Vec::new());
            assert_eq!(other.incoming.len(), 1);
            good.send(write(&good, &other, 1, vec![1; 8]));
            assert_eq!(carry(&mut good, &mut other, 1).len(), 1);
        }
    }

    #[test]
    fn a_peer_that_writes_without_pause_does_not_hold_up_others() {
        let home = tempfile::tempdir().unwrap();
        let mut one = Fabric::<Plain>::join(home.path()).unwrap();
        let mut peer = UnixStream::connect(file(home.path(), 0, SOCKET)).unwrap();
        // The frame before the others moves them, so that the read buffer ends within a frame.
        let frames = [
            vec![codec::encode_frame(&[0; 100]).bytes()],
            vec![codec::encode_frame(&[0; 4096]).bytes(); 999],
        ];
        let bytes = frames.concat().concat();
        std::thread::scope(|scope| {
            // The write fails when the test has ended.
            scope.spawn(move || drop(io::Write::write_all(&mut peer, &bytes)));
            let (mut news, mut total) = (Vec::new(), 0);
            while total < 1000 {
                one.exchange(|_| (), &mut news);
                assert!(news.len() <= 2 * READ_AT_ONCE / 4096, "{}", news.len());
                total += news.len();
                news.clear();
            }
        });
    }

    #[test]
    fn a_process_that_accepts_no_connection_makes_nobody_wait() {
        let home = tempfile::tempdir().unwrap();
        let mut one = Fabric::<Plain>::join(home.path()).unwrap();
        let full = rustix::net::socket(AddressFamily::UNIX, SocketType::STREAM, None).unwrap();
        rustix::net::bind(&full, &SocketAddrUnix::new(file(home.path(), 1, SOCKET)).unwrap()).unwrap();
        rustix::net::listen(&full, 0).unwrap();
        for attempt in 0..4 {
            assert!(one.is_alive(1), "{attempt}");
        }
        let request = Request::Read { rkey: 1, address: 2, length: 3 };
        let message = Message::Request { from: one.qpns().0, to: 1 << SLOT_SHIFT, sequence: 0, request };
        let answer = one.send(message);
        assert!(matches!(answer, Some(Message::Response { response: Response::Unreachable, .. })));
    }

    #[test]
    fn a_peer_that_does_not_read_takes_no_further_messages() {
        let home = tempfile::tempdir().unwrap();
        let [mut one, other] = [(); 2].map(|()| Fabric::<Plain>::join(home.path()).unwrap());
        let to = other.qpns().0;
        let mut answer = |response| {
            one.send(Message::Response { to, sequence: 0, response });
            (one.takes_messages(to), one.outgoing[&other.slot].backlog.len())
        };
        assert!(answer(Response::Data(vec![0; 1 << 20])).0);
        for _ in 0..80 {
            answer(Response::Data(vec![0; 1 << 20]));
        }
        let (takes, backlog) = answer(Response::Done);
        assert!(!takes && backlog > MAX_BACKLOG, "{backlog}");
        assert_eq!(answer(Response::Unreachable), (false, backlog), "dropped");
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
