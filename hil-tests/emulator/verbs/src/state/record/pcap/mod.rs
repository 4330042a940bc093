//! The traffic on the emulated wire, as a capture of RoCEv2 packets. Each process writes the packets that its
//! queue pairs send, also to other queue pairs of the same process. Several processes may share a file, which
//! then holds their whole conversation.

mod packet;
mod split;
#[cfg(test)]
mod tests;

use crate::ground::descriptors;
use mlx5_mkey::command::PathMtu;
use mlx5_softdev::{Message, Request, Response, Seen, is_first};
use packet::Flow;
use split::Asked;
use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The file header of a capture: Ethernet packets, time stamps in nanoseconds, in this machine's byte order.
const HEAD: [u32; 6] = [0xa1b2_3c4d, 0x0004_0002, 0, 0, 0x0004_0000, 1];

/// The packets of a message are collected until they are this many bytes, and then written together.
const TOGETHER: usize = 1 << 20;

/// The most requests of a queue pair that wait for an answer. Older requests are forgotten.
const MAX_ASKED: usize = 256;

/// A capture file, and the packet numbers of its queue pairs.
#[derive(Debug)]
pub(crate) struct Capture {
    /// The file, or `None` after a failed write.
    file: Option<File>,
    wire: Wire,
}

/// The attributes of a queue pair that its packets depend on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Route {
    /// The path's MTU.
    pub(crate) mtu: Option<PathMtu>,
    /// The packet sequence number (PSN) of the queue pair's first packet.
    pub(crate) send_psn: u32,
    /// The packet sequence number (PSN) of the peer's first packet.
    pub(crate) receive_psn: u32,
    /// The queue pair's code for the time that a peer waits before it retries, if no receive is posted.
    pub(crate) rnr_timer: u8,
}

impl Route {
    const UNKNOWN: Self = Self { mtu: None, send_psn: 0, receive_psn: 0, rnr_timer: 0 };

    const fn mtu(self) -> usize {
        match self.mtu {
            Some(PathMtu::B256) => 256,
            Some(PathMtu::B512) => 512,
            Some(PathMtu::B2048) => 2048,
            Some(PathMtu::B4096) => 4096,
            Some(PathMtu::B1024) | None => 1024,
        }
    }
}

/// Routes and packet numbers of the queue pairs.
#[derive(Debug, Default)]
struct Wire {
    routes: BTreeMap<u32, Route>,
    requesters: BTreeMap<u32, Requester>,
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

    /// Records a request, and returns the number of its first packet. A repeated request keeps its packet
    /// numbers.
    fn ask(&mut self, flow: Flow, sequence: u32, request: &Request) -> u32 {
        let numbers = split::numbers(request, self.mtu(flow));
        let own = self.route(flow.from).map(|route| route.send_psn);
        let first = own.or(self.route(flow.to).map(|route| route.receive_psn)).unwrap_or(0);
        let requester = self.requesters.entry(flow.from).or_default();
        // The requests after a repeated one are forgotten, since the requester sends them again.
        let again = requester.asked.split_off(&sequence);
        let psn = match again.get(&sequence) {
            // The request is the first of its queue pair, or the first after a reset.
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

    /// Records a request of `numbers` packets that has no answer, sent by a queue pair of this process.
    /// Returns the number of its first packet.
    fn send_unanswered(&mut self, flow: Flow, numbers: u32) -> u32 {
        let first = self.route(flow.from).unwrap_or(Route::UNKNOWN).send_psn;
        let (begin, next) = self.unanswered.entry(flow.from).or_insert((first, first));
        // The queue pair was connected anew, with another first number.
        if *begin != first {
            (*begin, *next) = (first, first);
        }
        let psn = *next;
        *next = psn.wrapping_add(numbers);
        psn
    }

    /// Returns the queue pair that answers a request of `requester`, and the request. The last answer removes
    /// the request.
    fn answer(&mut self, requester: u32, sequence: u32, response: &Response) -> Option<(u32, Asked)> {
        let requester = self.requesters.get_mut(&requester)?;
        match response {
            Response::ReceiverNotReady => requester.asked.get(&sequence).copied(),
            _ => requester.asked.remove(&sequence),
        }
    }

    /// Makes the packets of a message that this process sends, and hands them to `flush` in portions. Records
    /// a message that this process receives, for the packet numbers of its answer.
    fn packets(&mut self, seen: Seen<'_>, time: Duration, mut flush: impl FnMut(&mut Vec<u8>)) {
        let mut out = Vec::new();
        let mut write = |flow, packet: packet::Packet<'_>| {
            record(time, &mut out, |out| packet::append(flow, &packet, out));
            if out.len() >= TOGETHER {
                flush(&mut out);
            }
        };
        match seen {
            Seen::Sent(Message::Request { from, to, sequence, request }) => {
                let flow = Flow { from: *from, to: *to };
                let psn = self.ask(flow, *sequence, request);
                split::request(request, self.mtu(flow), psn, |packet| write(flow, packet));
            }
            Seen::Sent(Message::Response { to, sequence, response }) => {
                let Some((from, asked)) = self.answer(*to, *sequence, response) else { return };
                let flow = Flow { from, to: *to };
                let timer = self.route(from).unwrap_or(Route::UNKNOWN).rnr_timer;
                split::response(response, asked, self.mtu(flow), timer, |packet| write(flow, packet));
            }
            Seen::Sent(Message::Unanswered { from, to, datagram, request }) => {
                let flow = Flow { from: *from, to: *to };
                let head = datagram.map(|datagram| split::deth(datagram.qkey, *from));
                // A datagram is one packet, whatever its length.
                let mtu = if head.is_some() { usize::MAX } else { self.mtu(flow) };
                let psn = self.send_unanswered(flow, split::numbers(request, mtu));
                split::unanswered(request, head, mtu, psn, |packet| write(flow, packet));
            }
            Seen::Received(Message::Request { from, to, sequence, request }) => {
                self.ask(Flow { from: *from, to: *to }, *sequence, request);
            }
            Seen::Received(Message::Response { to, sequence, response }) => {
                self.answer(*to, *sequence, response);
            }
            Seen::Received(Message::Unanswered { .. })
            | Seen::Completion { .. }
            | Seen::Request { .. }
            | Seen::Command { .. }
            | Seen::Packet { .. } => {}
        }
        if !out.is_empty() {
            flush(&mut out);
        }
    }
}

/// Appends a record of the capture. `packet` appends the packet that the record contains.
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
    /// Opens a capture to append to it, or begins a new one.
    ///
    /// # Errors
    /// An error, if the file cannot be created, read or written, or is not a capture of this format.
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
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
        descriptors::keep(&file);
        Ok(Self { file: Some(file), wire: Wire::default() })
    }

    /// Replaces the routes: the attributes of this process's queue pairs that their packets depend on.
    pub(crate) fn set_routes(&mut self, routes: BTreeMap<u32, Route>) {
        self.wire.routes = routes;
    }

    /// Writes the packets of a message that this process sends. A file lock keeps other processes from
    /// writing at the same time.
    pub(crate) fn seen(&mut self, seen: Seen<'_>) {
        let Self { file, wire } = self;
        let Some(open) = file else { return };
        let mut before = None;
        let mut failed = Ok(());
        let time = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        wire.packets(seen, time, |bytes| {
            let mut write = || {
                if before.is_none() {
                    open.lock()?;
                    before = Some(open.metadata()?.len());
                }
                open.write_all(bytes)
            };
            if failed.is_ok() {
                failed = write();
            }
            bytes.clear();
        });
        if let Err(error) = failed {
            // A partial record would make all later records unreadable.
            let _ = before.map(|length| open.set_len(length));
            let _ = writeln!(io::stderr(), "mlx5-uverbs: the capture ends here: {error}");
            *file = None;
        } else if before.is_some() {
            let _ = open.unlock();
        }
    }
}
