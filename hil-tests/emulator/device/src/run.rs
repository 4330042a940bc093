//! The inputs that make the device work: doorbells, messages of other devices, time.

use crate::device::{Device, Error, Event};
use crate::memory::Memory;
use crate::message::{self, Message, Request, Response, is_first};
use crate::object::qp::{Qp, QpState};
use crate::tap::Seen;
use alloc::vec::Vec;
use core::ops::Bound::{Excluded, Unbounded};

/// The most rounds over the queue pairs in one run. Without a limit, a run might never end, since requests
/// may cause further requests. The next run continues with them.
const MAX_ROUNDS: u32 = 1 << 17;

impl<M: Memory> Device<M> {
    /// Takes a doorbell: executes the requests that the queue pair's doorbell record announces, and all
    /// consequences of these requests.
    ///
    /// # Errors
    /// [`Error::NoSuchObject`].
    pub fn doorbell(&mut self, number: u32) -> Result<(), Error> {
        self.read_record(number)?;
        self.progress();
        Ok(())
    }

    /// Takes a doorbell as [`Device::doorbell`] does, for a caller that has read the doorbell record.
    /// `producer` is the record's send counter.
    ///
    /// # Errors
    /// [`Error::NoSuchObject`].
    pub fn doorbell_at(&mut self, number: u32, producer: u16) -> Result<(), Error> {
        self.qp_mut(number)?.sq_producer = producer;
        self.active.insert(number);
        self.progress();
        Ok(())
    }

    fn read_record(&mut self, number: u32) -> Result<(), Error> {
        let mut record = [0; 4];
        let address = self.qp_mut(number)?.attributes.doorbell_record.wrapping_add(4);
        if self.memory.read(address, &mut record).is_ok() {
            self.qp_mut(number)?.sq_producer = u32::from_be_bytes(record) as u16;
        }
        self.active.insert(number);
        Ok(())
    }

    /// Runs the queue pairs that have work, until none can proceed, and repeats requests for which the peer
    /// had no receive request. A run stands for a millisecond: a repetition counts as an attempt once the
    /// time of the peer's timer is over.
    ///
    /// The device executes requests in a send ring only after their doorbell ([`Device::doorbell`]). Receive
    /// requests have no doorbell: a run looks for receive requests of queue pairs in the error state, and
    /// flushes them.
    pub fn run(&mut self) {
        for number in core::mem::take(&mut self.waiting) {
            self.ask_again(number);
            // Further requests may follow the repeated requests, so the queue pair stays active.
            self.active.insert(number);
        }
        self.active.append(&mut self.stalled);
        self.settle();
    }

    /// Does the work of [`Device::run`], but repeats no requests, and no time passes: continues queue pairs
    /// whose state has changed, and flushes receive requests of queue pairs in the error state.
    pub fn settle(&mut self) {
        let pending = |number: &u32| self.pending_receives(*number) > 0;
        let due: Vec<u32> = self.failed.iter().copied().filter(pending).collect();
        self.active.extend(due);
        self.progress();
    }

    /// Returns whether any queue pair is in the error state. Receive requests that are posted to this queue
    /// pair later have no doorbell, so [`Device::settle`] has to look for them.
    pub fn has_failed(&self) -> bool {
        !self.failed.is_empty()
    }

    fn progress(&mut self) {
        for _ in 0..MAX_ROUNDS {
            let mut next = self.active.first().copied();
            while let Some(number) = next {
                let sent = self.step_send(number);
                let received = self.step_receive(number);
                if !sent && !received {
                    self.active.remove(&number);
                }
                next = self.active.range((Excluded(number), Unbounded)).next().copied();
            }
            let mut moved = !self.active.is_empty();
            while let Some(message) = self.local.pop_front() {
                moved = true;
                if let Some(answer) = self.dispatch(message) {
                    self.tap.show(Seen::Sent(&answer));
                    self.local.push_back(answer);
                }
            }
            if !moved {
                break;
            }
        }
    }

    /// Takes a message from another device: answers a request, or continues the request that waited for a
    /// response.
    pub fn deliver(&mut self, message: Message) {
        self.tap.show(Seen::Received(&message));
        if let Some(answer) = self.dispatch(message) {
            self.tap.show(Seen::Sent(&answer));
            self.outbound.push(answer);
        }
        self.progress();
    }

    fn dispatch(&mut self, message: Message) -> Option<Message> {
        match message {
            Message::Request { from, to, sequence, request } => {
                let response = self.take_request(to, sequence, request)?;
                Some(Message::Response { to: from, sequence, response })
            }
            Message::Unanswered { from, to, datagram, request } => {
                self.take_unanswered(from, to, datagram, request);
                None
            }
            Message::Response { to, sequence, response } => {
                self.accept(to, sequence, response);
                self.active.insert(to);
                None
            }
        }
    }

    /// Answers a request if it is the next one of its peer. Other requests get no answer: they follow a
    /// request that the peer has to repeat, and the peer repeats them too. A peer that was reset begins a new
    /// sequence.
    fn take_request(&mut self, qpn: u32, sequence: u32, request: Request) -> Option<Response> {
        let answers = |qp: &&Qp| qp.state.responds() && qp.attributes.transport.is_reliable();
        let Some(qp) = self.objects.qps.get(qpn).filter(answers) else {
            return Some(Response::Unreachable);
        };
        if qp.expected != Some(sequence) && !is_first(sequence) {
            // If no request of this peer has arrived before, the queue pair was reset, but the peer was not
            // reset.
            return qp.expected.is_none().then_some(Response::Unreachable);
        }
        let response = self.respond(qpn, request);
        if let Some(qp) = self.objects.qps.get_mut(qpn) {
            let is_repeated = matches!(response, Response::ReceiverNotReady { .. });
            qp.expected = Some(if is_repeated { sequence } else { message::next(sequence) });
        }
        Some(response)
    }

    /// Returns the next message for another device. A program that loses a request on the way has to deliver
    /// [`Response::Unreachable`] as its answer.
    ///
    /// Messages that get no answer (unreliable transports) wait here up to about 1 MiB. Their queue pairs
    /// continue when messages are taken.
    pub fn take_message(&mut self) -> Option<Message> {
        let message = self.outbound.take();
        if !self.held.is_empty() && !self.outbound.is_full() {
            self.active.append(&mut self.held);
            self.progress();
        }
        message
    }

    /// Returns whether so many bytes of answers wait for [`Device::take_message`] that the caller should take
    /// them before the next [`Device::deliver`] of a request.
    pub fn has_many_answers(&self) -> bool {
        self.outbound.has_many_answers()
    }

    /// Raises an event as if the cause of the event had come: a queue pair or completion queue goes to the
    /// error state, and a shared receive queue takes no more receive requests. All other events have no
    /// further effect.
    pub fn raise(&mut self, event: Event) {
        match event {
            Event::CqError(number) => return self.fail_cq(number),
            Event::QpAccess(number) | Event::QpRequest(number) | Event::QpFatal(number) => {
                if self.modify(number, QpState::Error).is_err() {
                    return;
                }
            }
            Event::SrqFatal(number) => {
                if let Some(srq) = self.objects.srqs.get_mut(number) {
                    srq.failed = true;
                }
            }
            Event::SqDrained(_) | Event::SrqLimit(_) | Event::LastWqe(_) => {}
        }
        self.events.push_back(event);
        self.settle();
    }

    /// Returns the events since the last call, oldest first.
    pub fn take_events(&mut self) -> Vec<Event> {
        let silent = self.faults.drained_not_told;
        self.events.drain(..).filter(|event| !silent || !matches!(event, Event::SqDrained(_))).collect()
    }
}
