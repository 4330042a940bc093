//! The traffic on the emulated wire, as a capture for Wireshark: messages of queue pairs as RoCEv2 packets,
//! and frames of network interfaces. Several processes may share a file, which then holds their whole
//! conversation.

mod packet;
mod split;
#[cfg(test)]
mod tests;

use mlx5_mkey::command::PathMtu;
use mlx5_mkey::wire::prm::qp_context::{Qpc, QpcReceive, QpcSizes};
use mlx5_softdev::{Message, Request, Response, Seen, is_first};
pub use packet::Endpoint;
use split::Asked;
use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The header of a capture file (pcap 2.4) in this machine's byte order: Ethernet packets, with time stamps
/// in nanoseconds.
const HEAD: [u32; 6] = [0xa1b2_3c4d, 0x0004_0002, 0, 0, 0x0004_0000, 1];

/// The packets of a message are collected until they are this many bytes, and then written together.
const TOGETHER: usize = 1 << 20;

/// The most unanswered requests of a queue pair that the capture remembers. Older requests are forgotten.
const MAX_ASKED: usize = 256;

/// The most queue pairs whose packet numbers are kept for messages without answers.
const MAX_SENDERS: usize = 1 << 16;

/// A capture file, and the packet numbers of its queue pairs.
#[derive(Debug)]
pub struct Capture {
    /// The file, or `None` after a failed write.
    file: Option<File>,
    /// The function that returns the addresses and the number of a queue pair on the wire.
    endpoint: fn(u32) -> Endpoint,
    wire: Wire,
}

/// Sender and receiver of a packet, by their queue pair numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Flow {
    from: u32,
    to: u32,
}

/// The attributes of a queue pair that its packets depend on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Route {
    /// The path's MTU.
    pub mtu: Option<PathMtu>,
    /// The packet sequence number (PSN) of the queue pair's first packet.
    pub send_psn: u32,
    /// The packet sequence number (PSN) of the peer's first packet.
    pub receive_psn: u32,
}

impl Route {
    const UNKNOWN: Self = Self { mtu: None, send_psn: 0, receive_psn: 0 };

    /// Returns the attributes in the context of a queue pair.
    pub fn of(context: &Qpc) -> Self {
        let receive = QpcReceive::from_bits(context.receive.get());
        Self {
            mtu: PathMtu::from_code(QpcSizes::from_bits(context.sizes.get()).mtu()),
            send_psn: context.next_send_psn.get() & 0x00ff_ffff,
            receive_psn: receive.next_rcv_psn(),
        }
    }

    /// Returns the MTU in bytes. Its code is 1 for 256 bytes, and each next code stands for twice as many.
    fn mtu(self) -> usize {
        128 << self.mtu.unwrap_or(PathMtu::B1024) as usize
    }
}

/// Routes and packet numbers of the queue pairs.
#[derive(Debug, Default)]
struct Wire {
    /// Whether the packets of messages that arrive are written, too.
    writes_received: bool,
    routes: BTreeMap<u32, Route>,
    requesters: BTreeMap<u32, Requester>,
    /// For each queue pair of this process, the queue pair of another process that has sent it the last
    /// request.
    askers: BTreeMap<u32, u32>,
    /// Queue pairs whose requests get no answers, each with the numbers of its first packet and of its next
    /// packet.
    unanswered: BTreeMap<u32, (u32, u32)>,
}

/// A queue pair that sends requests. The queue pair may belong to another process.
#[derive(Debug, Default)]
struct Requester {
    /// The number of the requester's next packet.
    psn: u32,
    /// The requester's unanswered requests by their numbers, each with the queue pair that has to answer.
    asked: BTreeMap<u32, (u32, Asked)>,
}

impl Wire {
    fn route(&self, qpn: u32) -> Option<Route> {
        self.routes.get(&qpn).copied()
    }

    /// Returns the MTU of a flow, which is equal at both ends. At least one end belongs to this process.
    fn mtu(&self, flow: Flow) -> usize {
        self.route(flow.from).or(self.route(flow.to)).unwrap_or(Route::UNKNOWN).mtu()
    }

    /// Returns the number of the first packet of a flow, which both ends know. At least one end belongs to
    /// this process.
    fn first_psn(&self, flow: Flow) -> u32 {
        let own = self.route(flow.from).map(|route| route.send_psn);
        own.or(self.route(flow.to).map(|route| route.receive_psn)).unwrap_or(0)
    }

    /// Returns whether one end of a flow belongs to this process.
    fn is_known(&self, flow: Flow) -> bool {
        [flow.from, flow.to].iter().any(|end| self.routes.contains_key(end))
    }

    /// Records a request, and returns the number of its first packet. A repeated request keeps its packet
    /// numbers. A queue pair has one peer. If a request comes from another peer than the last one, the
    /// requests of the last peer are forgotten. A process that invents queue pair numbers therefore does not
    /// fill the memory.
    fn ask(&mut self, flow: Flow, sequence: u32, request: &Request) -> u32 {
        if !self.routes.contains_key(&flow.from)
            && let Some(before) = self.askers.insert(flow.to, flow.from)
            && before != flow.from
        {
            self.requesters.remove(&before);
        }
        let numbers = split::numbers(request, self.mtu(flow));
        let first = self.first_psn(flow);
        let requester = self.requesters.entry(flow.from).or_default();
        // The requests after a repeated request are forgotten, since the requester sends them again.
        let again = requester.asked.split_off(&sequence);
        let psn = match again.get(&sequence) {
            // The first request of a queue pair, also after a reset, takes the first packet number.
            _ if is_first(sequence) => first,
            Some((_, asked)) => asked.psn,
            None => requester.psn,
        };
        requester.psn = psn.wrapping_add(numbers);
        requester.asked.insert(sequence, (flow.to, Asked { psn, numbers, sequence }));
        if requester.asked.len() > MAX_ASKED {
            requester.asked.pop_first();
        }
        psn
    }

    /// Records a request of `numbers` packets that has no answer. Returns the number of its first packet.
    fn send_unanswered(&mut self, flow: Flow, numbers: u32) -> u32 {
        let first = self.first_psn(flow);
        let (begin, next) = self.unanswered.entry(flow.from).or_insert((first, first));
        // A different first number means that the queue pair was connected again.
        if *begin != first {
            (*begin, *next) = (first, first);
        }
        let psn = *next;
        *next = psn.wrapping_add(numbers);
        if self.unanswered.len() > MAX_SENDERS {
            self.unanswered.pop_first();
        }
        psn
    }

    /// Returns the queue pair that answers a request of `requester`, and the request. Every answer removes
    /// the request, except "receiver not ready", after which the requester repeats the request.
    fn answer(&mut self, requester: u32, sequence: u32, response: &Response) -> Option<(u32, Asked)> {
        let requester = self.requesters.get_mut(&requester)?;
        match response {
            Response::ReceiverNotReady { .. } => requester.asked.get(&sequence).copied(),
            _ => requester.asked.remove(&sequence),
        }
    }

    /// Makes the packets of a message, and hands them to `flush` in portions. A received request is recorded
    /// even if its packets are not written, since the packet numbers of its answer depend on it.
    fn packets(
        &mut self,
        seen: Seen<'_>,
        endpoint: impl Fn(u32) -> Endpoint,
        time: Duration,
        mut flush: impl FnMut(&mut Vec<u8>),
    ) {
        let (message, is_written) = match seen {
            Seen::Sent(message) => (message, true),
            Seen::Received(message) => (message, self.writes_received),
            Seen::Completion { .. } | Seen::Request { .. } | Seen::Command { .. } | Seen::Packet { .. } => {
                return;
            }
        };
        let mut out = Vec::new();
        let mut write = |flow: Flow, packet: packet::Packet<'_>| {
            let ends = [endpoint(flow.from), endpoint(flow.to)];
            record(time, &mut out, |out| packet::append(ends, &packet, out));
            if out.len() >= TOGETHER {
                flush(&mut out);
            }
        };
        match message {
            Message::Request { from, to, sequence, request } => {
                let flow = Flow { from: *from, to: *to };
                if !self.is_known(flow) {
                    return;
                }
                let psn = self.ask(flow, *sequence, request);
                if is_written {
                    split::request(request, self.mtu(flow), psn, |packet| write(flow, packet));
                }
            }
            Message::Response { to, sequence, response } => {
                let Some((from, asked)) = self.answer(*to, *sequence, response) else { return };
                if is_written {
                    let flow = Flow { from, to: *to };
                    split::response(response, asked, self.mtu(flow), |packet| write(flow, packet));
                }
            }
            Message::Unanswered { from, to, datagram, request } if is_written => {
                let flow = Flow { from: *from, to: *to };
                let head = datagram.map(|datagram| split::deth(datagram.qkey, endpoint(*from).number));
                // A datagram is one packet, whatever its length.
                let mtu = if head.is_some() { usize::MAX } else { self.mtu(flow) };
                let psn = self.send_unanswered(flow, split::numbers(request, mtu));
                split::unanswered(request, head, mtu, psn, |packet| write(flow, packet));
            }
            Message::Unanswered { .. } => {}
        }
        if !out.is_empty() {
            flush(&mut out);
        }
    }
}

/// Appends a record of the capture file to `out`. `packet` appends the packet that the record contains.
fn record(time: Duration, out: &mut Vec<u8>, packet: impl FnOnce(&mut Vec<u8>)) {
    // The capture's format has 32 bits for seconds.
    out.extend([time.as_secs() as u32, time.subsec_nanos(), 0, 0].map(u32::to_ne_bytes).as_flattened());
    let start = out.len();
    packet(out);
    let length = ((out.len() - start) as u32).to_ne_bytes();
    if let Some(place) = out.get_mut(start - 8..start) {
        place.copy_from_slice([length; 2].as_flattened());
    }
}

impl Capture {
    /// Opens a capture file to which several processes append, or begins a new one. Each process writes only
    /// the packets that it sends. `endpoint` returns the endpoint of each queue pair on the wire.
    ///
    /// # Errors
    /// An error, if the file cannot be created, read or written, or is not a capture of this format.
    pub fn shared(path: &Path, endpoint: fn(u32) -> Endpoint) -> io::Result<Self> {
        let wrong = |what| io::Error::new(io::ErrorKind::InvalidData, what);
        let mut file = OpenOptions::new().read(true).append(true).create(true).open(path)?;
        // Only a regular file is accepted, because the contents of a pipe cannot be checked.
        if !file.metadata()?.is_file() {
            return Err(wrong("it is no file"));
        }
        let head = HEAD.map(u32::to_ne_bytes);
        file.lock()?;
        let mut found = Vec::new();
        (&file).take(24).read_to_end(&mut found)?;
        if found.is_empty() {
            file.write_all(head.as_flattened())?;
        }
        file.unlock()?;
        if !found.is_empty() && found != head.as_flattened() {
            return Err(wrong("it is no capture as this writes them"));
        }
        Ok(Self { file: Some(file), endpoint, wire: Wire::default() })
    }

    /// Begins a capture of one port. A file that exists is replaced. The packets that the port sends and
    /// receives are written.
    ///
    /// # Errors
    /// The system's error.
    pub fn of_port(path: &Path, endpoint: fn(u32) -> Endpoint) -> io::Result<Self> {
        let mut file = File::create(path)?;
        file.write_all(HEAD.map(u32::to_ne_bytes).as_flattened())?;
        Ok(Self { file: Some(file), endpoint, wire: Wire { writes_received: true, ..Wire::default() } })
    }

    /// Returns the file, unless the capture has ended.
    pub const fn file(&self) -> Option<&File> {
        self.file.as_ref()
    }

    /// Replaces the routes: the attributes of this process's queue pairs that their packets depend on.
    pub fn set_routes(&mut self, routes: BTreeMap<u32, Route>) {
        self.wire.routes = routes;
    }

    /// Writes the packets of a message. A received request is recorded even if its packets are not written,
    /// since the packet numbers of its answer depend on it.
    pub fn seen(&mut self, seen: Seen<'_>) {
        let Self { file, endpoint, wire } = self;
        let mut writer = Writer::new(file);
        wire.packets(seen, *endpoint, now(), |bytes| writer.write(bytes));
        writer.end();
    }

    /// Writes an Ethernet frame of a network interface.
    pub fn frame(&mut self, frame: &[u8]) {
        let mut bytes = Vec::new();
        record(now(), &mut bytes, |out| out.extend(frame));
        let mut writer = Writer::new(&mut self.file);
        writer.write(&mut bytes);
        writer.end();
    }
}

fn now() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

/// Writes records that belong together. A file lock keeps other processes from writing at the same time.
struct Writer<'f> {
    file: &'f mut Option<File>,
    /// The length of the file before the first record of this writer, or `None` before that is written.
    before: Option<u64>,
    outcome: io::Result<()>,
}

impl<'f> Writer<'f> {
    fn new(file: &'f mut Option<File>) -> Self {
        Self { file, before: None, outcome: Ok(()) }
    }

    /// Writes records, and removes them from `bytes`.
    fn write(&mut self, bytes: &mut Vec<u8>) {
        if let Some(file) = self.file.as_mut().filter(|_| self.outcome.is_ok()) {
            self.outcome = lock(file, &mut self.before).and_then(|()| file.write_all(bytes));
        }
        bytes.clear();
    }

    /// Unlocks the file. After a failed write, removes all records of this writer and ends the capture: a
    /// partial record would make all later records unreadable.
    fn end(self) {
        let (Some(file), Some(length)) = (&*self.file, self.before) else { return };
        if self.outcome.is_err() {
            let _ = file.set_len(length);
        }
        let _ = file.unlock();
        if let Err(error) = self.outcome {
            let _ = writeln!(io::stderr(), "the capture ends here: {error}");
            *self.file = None;
        }
    }
}

/// Locks the file, and stores its length in `before`, unless an earlier call did.
fn lock(file: &File, before: &mut Option<u64>) -> io::Result<()> {
    if before.is_none() {
        file.lock()?;
        *before = Some(file.metadata()?.len());
    }
    Ok(())
}
