//! Counts the messages and failures of this process for the counters of the port.

use crate::fabric::slot_of;
use crate::ground::counters::{COUNT, Counter, LIFESPAN, Numbers, Values};
use crate::ground::descriptors;
use crate::ground::port::{Port, View};
use crate::ground::settings::Settings;
use crate::ground::sys;
use mlx5_mkey::wire::cqe::{CqeOpcode, ErrorCqe, OpOwn, Syndrome};
use mlx5_softdev::{Message, Payload, Request, Response, Seen};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use zerocopy::transmute;

/// Bytes of a packet's headers and trailer without extended headers: Ethernet, IPv6, UDP, BTH, ICRC.
const HEADERS: usize = 14 + 40 + 8 + 12 + 4;
/// Bytes of the extended headers RETH, AtomicETH, AETH, ImmDt or IETH, DETH, and of an atomic's answer.
const RETH: usize = 16;
const ATOMIC: usize = 28;
const AETH: usize = 4;
const IMMEDIATE: usize = 4;
const DETH: usize = 8;
const ORIGINAL: usize = 8;

/// The counts of this process. The device's tap (a function that sees all messages and completions) shares
/// the counts with this library.
#[derive(Debug)]
pub(crate) struct Tally {
    slot: u32,
    mtu: usize,
    counts: [AtomicU64; COUNT],
}

impl Tally {
    fn new(slot: u32, port: &Port, before: Values) -> Self {
        Self { slot, mtu: 128 << port.mtu.min(5), counts: before.map(AtomicU64::new) }
    }

    fn add(&self, counter: Counter, count: usize) {
        if let Some(place) = self.counts.get(counter as usize) {
            place.fetch_add(count as u64, Ordering::Relaxed);
        }
    }

    fn values(&self) -> Values {
        self.counts.each_ref().map(|count| count.load(Ordering::Relaxed))
    }

    /// Counts a message or completion. The device's tap calls this function with each message and each
    /// completion. A message between two queue pairs of this process counts as sent and as received.
    pub(crate) fn seen(&self, seen: Seen<'_>) {
        match seen {
            Seen::Sent(message) => {
                self.sent(message);
                if slot_of(message.to()) == self.slot {
                    self.received(message);
                }
            }
            Seen::Received(message) => self.received(message),
            Seen::Completion { entry, .. } => self.completion(entry),
            Seen::Command { .. } | Seen::Packet { .. } | Seen::Request { .. } => {}
        }
    }

    fn sent(&self, message: &Message) {
        let (packets, bytes) = self.size(message);
        self.add(Counter::XmitPackets, packets);
        self.add(Counter::XmitData, bytes / 4);
        if let Message::Response { response, .. } = message {
            match response {
                Response::ReceiverNotReady { .. } => self.add(Counter::OutOfBuffer, 1),
                Response::Refused { syndrome: Syndrome::REMOTE_ACCESS, .. } => {
                    self.add(Counter::ResponderAccess, 1);
                }
                _ => {}
            }
        }
    }

    fn received(&self, message: &Message) {
        let (packets, bytes) = self.size(message);
        self.add(Counter::RcvPackets, packets);
        self.add(Counter::RcvData, bytes / 4);
        match message {
            Message::Request { request, .. } | Message::Unanswered { request, .. } => match request {
                Request::Send { .. } => {}
                Request::Write { .. } => self.add(Counter::RxWriteRequests, 1),
                Request::Read { .. } => self.add(Counter::RxReadRequests, 1),
                Request::Atomic { .. } => self.add(Counter::RxAtomicRequests, 1),
            },
            Message::Response { response, .. } => match response {
                Response::ReceiverNotReady { .. } => self.add(Counter::RnrNakRetry, 1),
                Response::Unreachable => self.add(Counter::LocalAckTimeout, 1),
                Response::Refused { syndrome: Syndrome::REMOTE_ACCESS, .. } => {
                    self.add(Counter::RequesterAccess, 1);
                }
                Response::Refused { syndrome: Syndrome::REMOTE_INVALID_REQUEST, .. } => {
                    self.add(Counter::RequesterInvalid, 1);
                }
                _ => {}
            },
        }
    }

    fn completion(&self, entry: &[u8; 64]) {
        let error: ErrorCqe = transmute!(*entry);
        let opcode = CqeOpcode(OpOwn::from_bits(error.op_own).opcode());
        let syndrome = Syndrome(error.syndrome);
        let (all, flushed) = match opcode {
            CqeOpcode::REQUESTER_ERROR => (Counter::RequesterErrors, Counter::RequesterFlushed),
            CqeOpcode::RESPONDER_ERROR => (Counter::ResponderErrors, Counter::ResponderFlushed),
            _ => return,
        };
        self.add(all, 1);
        if syndrome == Syndrome::FLUSHED {
            self.add(flushed, 1);
        }
        if opcode == CqeOpcode::RESPONDER_ERROR && syndrome == Syndrome::LOCAL_LENGTH {
            self.add(Counter::ResponderLength, 1);
        }
    }

    /// Returns the numbers of packets and of bytes that a message has on the wire, if packets are as long as
    /// the port allows.
    fn size(&self, message: &Message) -> (usize, usize) {
        let of_data = |length: usize, headers: usize| {
            let packets = length.div_ceil(self.mtu).max(1);
            (packets, packets * HEADERS + length + headers)
        };
        let of_request = |request: &Request| match request {
            Request::Send { data, payload: Payload::None, .. } => of_data(data.len(), 0),
            Request::Send { data, .. } => of_data(data.len(), IMMEDIATE),
            Request::Write { data, immediate: None, .. } => of_data(data.len(), RETH),
            Request::Write { data, .. } => of_data(data.len(), RETH + IMMEDIATE),
            Request::Read { .. } => of_data(0, RETH),
            // A masked atomic counts like a plain atomic, because no public source describes its packet.
            Request::Atomic { .. } => of_data(0, ATOMIC),
        };
        match message {
            Message::Request { request, .. } | Message::Unanswered { request, datagram: None, .. } => {
                of_request(request)
            }
            Message::Unanswered { request, .. } => {
                let (packets, bytes) = of_request(request);
                (packets, bytes + DETH)
            }
            Message::Response { response, .. } => match response {
                Response::Data(data) => of_data(data.len(), AETH),
                Response::Original(_) => of_data(0, AETH + ORIGINAL),
                Response::Done | Response::ReceiverNotReady { .. } | Response::Refused { .. } => {
                    of_data(0, AETH)
                }
                Response::Unreachable => (0, 0),
            },
        }
    }
}

/// The counts of this process, and their file.
#[derive(Debug)]
pub(crate) struct Counting {
    tally: Arc<Tally>,
    numbers: Option<Numbers>,
    written: Values,
    /// The time of the last write, in nanoseconds of the monotonic clock.
    since: u64,
}

impl Counting {
    /// Begins to count for the port of a device. If the settings select no network interfaces (no `view`), or
    /// the file cannot be opened, the counts stay in this process.
    pub(crate) fn new(settings: &Settings, port: &Port, device: usize, slot: u32) -> Self {
        let open = |view: &View| {
            let name = View::device_name(&view.name(), device);
            Numbers::open(&settings.directory, &name, slot).ok()
        };
        let (numbers, before) = settings.view.as_ref().and_then(open).unzip();
        let before = before.unwrap_or([0; COUNT]);
        if let Some(numbers) = &numbers {
            descriptors::keep(numbers.file());
        }
        let tally = Arc::new(Tally::new(slot, port, before));
        Self { tally, numbers, written: before, since: sys::nanoseconds() }
    }

    /// Returns the counts, for the function that sees all messages and completions (the device's tap).
    pub(crate) fn tally(&self) -> Arc<Tally> {
        self.tally.clone()
    }

    /// Returns whether the file lacks some counts.
    pub(crate) fn is_behind(&self) -> bool {
        self.numbers.is_some() && self.tally.values() != self.written
    }

    /// Writes the counts to the file if the last call that did so is long enough ago ([`LIFESPAN`]). `now` is
    /// the time in nanoseconds of the monotonic clock.
    pub(crate) fn write_when_due(&mut self, now: u64) {
        if now.saturating_sub(self.since) >= LIFESPAN * 1_000_000 {
            self.since = now;
            self.write();
        }
    }

    /// Writes the counts to the file.
    pub(crate) fn write(&mut self) {
        if self.is_behind() {
            self.written = self.tally.values();
            if let Some(numbers) = &self.numbers {
                numbers.write(&self.written);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::mem::offset_of;

    #[test]
    fn messages_are_counted_at_both_ends() {
        let tally = Tally::new(3, &Port::alone(), [0; COUNT]);
        let of = |counter: Counter| tally.values()[counter as usize];
        let write = |to| Message::Request {
            from: 3 << 16,
            to,
            sequence: 0,
            request: Request::Write {
                rkey: 0,
                address: 0,
                data: Arc::new(vec![0; 10_000]),
                immediate: None,
                solicited: false,
            },
        };
        tally.seen(Seen::Sent(&write(4 << 16)));
        assert_eq!((of(Counter::XmitPackets), of(Counter::XmitData)), (3, (10_000 + 3 * 78 + 16) / 4));
        assert_eq!((of(Counter::RcvPackets), of(Counter::RxWriteRequests)), (0, 0));
        tally.seen(Seen::Sent(&write(3 << 16 | 1)));
        assert_eq!((of(Counter::RcvPackets), of(Counter::RxWriteRequests)), (3, 1), "to this process itself");
        let refused = Response::Refused { syndrome: Syndrome::REMOTE_ACCESS, cause: None };
        for (response, own, peers) in [
            (Response::ReceiverNotReady { timer: 1 }, Counter::OutOfBuffer, Counter::RnrNakRetry),
            (refused, Counter::ResponderAccess, Counter::RequesterAccess),
        ] {
            let message = Message::Response { to: 4 << 16, sequence: 0, response };
            tally.seen(Seen::Sent(&message));
            assert_eq!((of(own), of(peers)), (1, 0));
            tally.seen(Seen::Received(&message));
            assert_eq!((of(own), of(peers)), (1, 1));
        }
    }

    #[test]
    fn completions_are_counted_by_their_syndrome() {
        let tally = Tally::new(0, &Port::alone(), [0; COUNT]);
        for (opcode, syndrome) in [(0xd, 0x05), (0xd, 0x13), (0xe, 0x01), (0xe, 0x05), (0x2, 0x05)] {
            let mut entry = [0; 64];
            (entry[63], entry[offset_of!(ErrorCqe, syndrome)]) = (opcode << 4, syndrome);
            tally.completion(&entry);
        }
        let counters = [
            Counter::RequesterErrors,
            Counter::RequesterFlushed,
            Counter::ResponderErrors,
            Counter::ResponderFlushed,
            Counter::ResponderLength,
        ];
        assert_eq!(counters.map(|counter| tally.values()[counter as usize]), [2, 1, 2, 1, 1]);
    }
}
