//! The requester: executes the requests in send rings.

mod copy;
mod umr;

use crate::data_path::{Path, Range, Report};
use crate::datagram::Datagram;
use crate::device::{Device, Event};
use crate::fetch::{self, Operation, Umr, UmrLists, Wqe};
use crate::memory::Memory;
use crate::message::{self, Message, Payload, Request, Response};
use crate::object::mkey::Mkey;
use crate::object::outstanding::Waiting;
use crate::object::posted::{Posted, is_atomic, is_masked, pushes, sends};
use crate::object::psv::PsvState;
use crate::object::qp::{Peer, Qp, QpAttributes, QpState, Retries, SHORTEST_TIMER, Transport};
use crate::refusal::{Cause, Reason, Status};
use crate::ruling::{Ruling, Side};
use crate::tap::Seen;
use crate::translate::{Asker, Right};
use alloc::sync::Arc;
use alloc::vec::Vec;
use mlx5_mkey::types::Key;
use mlx5_mkey::wire::cqe::Syndrome;
use mlx5_mkey::wire::ctrl::{FmCeSe, Opcode};
use mlx5_mkey::wire::data::DataSegment;
use mlx5_mkey::wire::psv::SetPsvSegment;
use mlx5_mkey::wire::umr::UmrControlSegment;

/// The work that a request still needs after its execution by the requester.
pub(crate) enum Outcome {
    /// The request is done: it can complete.
    Done,
    /// The request has to be sent. The peer's answer completes it.
    Ask { request: Request, scatter: Vec<DataSegment>, bytes: u32, reports: Vec<Report> },
    /// The request has to be sent. It is then done, since the peer does not answer.
    Unanswered {
        to: Option<Peer>,
        datagram: Option<Datagram>,
        request: Request,
        bytes: u32,
        reports: Vec<Report>,
    },
}

/// Returns after how many calls of [`Device::run`] the requester may repeat a request that found no receive
/// request at its peer. A call stands for one millisecond. The times are those of Linux (`ib_rvt_rnr_table`
/// of rdmavt) but for code 1: 10 microseconds there, and 15 here. Both round up to one call.
const fn runs(timer: u8) -> u32 {
    let timer = timer & 0x1f;
    let microseconds = match timer {
        0 => 655_360,
        _ if timer & 1 == 0 => 10_u32 << (timer / 2),
        _ => 15_u32 << (timer / 2),
    };
    microseconds.div_ceil(1000)
}

impl<M: Memory> Device<M> {
    /// Executes or flushes at most one send request. Returns whether the queue pair has made progress.
    pub(crate) fn step_send(&mut self, qpn: u32) -> bool {
        let Some(qp) = self.objects.qps.get_mut(qpn) else { return false };
        let flush = matches!(qp.state, QpState::Error | QpState::SendQueueError);
        let first = qp.outstanding.is_empty();
        let (next, rung) = (qp.next_block(), qp.rung());
        let may_follow = first || qp.outstanding.has_room() && qp.alone != Some(next);
        let may_start = qp.state == QpState::ReadyToSend && may_follow;
        if rung == 0 || !(may_start || flush && first) {
            return false;
        }
        if may_start && !qp.attributes.transport.is_reliable() && self.outbound.is_full() {
            self.held.insert(qpn);
            return false;
        }
        if rung > 1 << qp.attributes.log_sq_blocks {
            return first && self.overrun(qpn, next.wrapping_add(rung));
        }
        let (posted, cause) = match fetch::fetch(&self.memory, qpn, qp, next, rung) {
            Ok(wqe) if flush => (wqe.posted, Reason::Flushed.into()),
            Ok(wqe) => return (first || pushes(wqe.posted.opcode)) && self.begin(qpn, &wqe, first),
            Err((posted, reason)) if first => (posted, Cause::from(reason)),
            Err(_) => return false,
        };
        let bytes = fetch::unparsed(&self.memory, &qp.attributes, posted);
        let transport = qp.attributes.transport;
        self.tap.show(Seen::Request { queue: qpn, transport, block: next, bytes: &bytes });
        if flush {
            self.flush(qpn, posted);
        } else {
            self.fail(qpn, posted, cause.local(), cause);
        }
        true
    }

    /// Moves the consumer past the silent NOPs behind a completed request. Software may pad the ring with
    /// NOPs, and reuses their blocks together with the blocks of the request, since NOPs report no completion
    /// (DEVICE.md, "Completions behind NOPs").
    pub(crate) fn pass_nops(&mut self, qpn: u32) {
        let idle = |qp: &&mut Qp| qp.state == QpState::ReadyToSend && qp.outstanding.is_empty();
        while let Some(qp) = self.objects.qps.get_mut(qpn).filter(idle) {
            let (counter, rung) = (qp.sq_consumer, qp.rung());
            if rung == 0 || rung > 1 << qp.attributes.log_sq_blocks {
                return;
            }
            let Ok(wqe) = fetch::fetch(&self.memory, qpn, qp, counter, rung) else { return };
            let Posted { opcode, ce, .. } = wqe.posted;
            if opcode != Opcode::NOP || ce >= FmCeSe::CE_ALWAYS {
                return;
            }
            qp.sq_consumer = wqe.posted.end();
        }
    }

    /// Moves a queue pair to the error state, because its doorbell has announced more blocks than the ring
    /// has: new requests have overwritten old ones. Returns whether the queue pair exists.
    fn overrun(&mut self, qpn: u32, producer: u16) -> bool {
        let Some(qp) = self.objects.qps.get_mut(qpn) else { return false };
        let first = qp.state != QpState::Error;
        qp.state = QpState::Error;
        qp.sq_consumer = producer;
        if first {
            self.events.push_back(Event::QpFatal(qpn));
        }
        true
    }

    /// Executes a request as the gate (a function that tests set) decides. Returns whether the request was
    /// executed or has failed. `first` says whether no earlier request is outstanding.
    fn begin(&mut self, qpn: u32, wqe: &Wqe, first: bool) -> bool {
        let posted = wqe.posted;
        let Some(qp) = self.objects.qps.get_mut(qpn) else { return false };
        let (transport, block) = (qp.attributes.transport, posted.counter);
        let known = qp.ruling.filter(|(counter, _)| *counter == block).map(|(_, ruling)| ruling);
        let ruling = known.unwrap_or_else(|| match self.gate.ruling(Side::Send, qpn) {
            Ruling::Lost | Ruling::NotReady(_) if !sends(posted.opcode) => Ruling::Good,
            Ruling::Lost if transport.is_reliable() => Ruling::Fails(Syndrome::TRANSPORT_RETRY),
            Ruling::NotReady(_) if !transport.is_reliable() => Ruling::Lost,
            Ruling::After(ticks) => Ruling::After(self.clock.ticks().saturating_add(ticks)),
            ruling => ruling,
        });
        let Some(qp) = self.objects.qps.get_mut(qpn) else { return false };
        // The stored `After` has the time at which the wait ends, instead of its duration.
        qp.ruling = Some((block, ruling));
        match ruling {
            Ruling::After(end) if self.clock.ticks() < end => {
                self.stalled.insert(qpn);
                false
            }
            Ruling::Hangs => false,
            Ruling::Fails(_) | Ruling::NotReady(_) if !first => {
                qp.alone = Some(block);
                false
            }
            Ruling::Fails(Syndrome(syndrome)) => {
                qp.ruling = None;
                self.tap.show(Seen::Request { queue: qpn, transport, block, bytes: wqe.bytes() });
                let cause = Cause::from(Reason::OnPurpose { syndrome });
                self.fail(qpn, posted, cause.local(), cause);
                true
            }
            Ruling::Good | Ruling::After(_) | Ruling::Lost | Ruling::NotReady(_) => {
                self.start(qpn, wqe, ruling)
            }
        }
    }

    /// Executes a request. Returns whether the request was executed. A request that fails or reports a
    /// signature error waits until it is the oldest outstanding request.
    fn start(&mut self, qpn: u32, wqe: &Wqe, ruling: Ruling) -> bool {
        let posted = wqe.posted;
        let outcome = self.execute(qpn, wqe);
        let Some(qp) = self.objects.qps.get_mut(qpn) else { return false };
        let outcome = match outcome {
            Ok(Outcome::Ask { request, bytes, reports, .. }) if !qp.attributes.transport.is_reliable() => {
                Ok(Outcome::Unanswered { to: qp.peer, datagram: None, request, bytes, reports })
            }
            outcome => outcome,
        };
        let has_effect = !matches!(&outcome, Ok(Outcome::Ask { reports, .. }) if reports.is_empty());
        // A request that only sends a message, and reports nothing, may start before earlier requests are
        // answered. Any other request waits for these answers, and is then executed again. `alone` prevents
        // attempts in between, which would gather the request's data after each answer.
        let waits = has_effect && !qp.outstanding.is_empty();
        qp.alone = waits.then_some(posted.counter);
        if waits {
            return false;
        }
        qp.ruling = None;
        let (transport, block) = (qp.attributes.transport, posted.counter);
        self.tap.show(Seen::Request { queue: qpn, transport, block, bytes: wqe.bytes() });
        match outcome {
            Ok(Outcome::Done) => self.complete(qpn, posted, 0),
            Ok(Outcome::Ask { request, scatter, bytes, reports }) => {
                let cqn = qp.attributes.send_cqn;
                let signature_error = self.report(qpn, cqn, &reports);
                let Some(qp) = self.objects.qps.get_mut(qpn) else { return false };
                let sequence = qp.sequence;
                qp.sequence = message::next(sequence);
                qp.outstanding.push(Waiting {
                    posted,
                    sequence,
                    request: request.clone(),
                    scatter,
                    bytes,
                    signature_error,
                    not_ready: false,
                    attempts: 0,
                    pause: 0,
                    refusals: if let Ruling::NotReady(attempts) = ruling { attempts } else { 0 },
                });
                let peer = qp.peer;
                self.ask(qpn, peer, sequence, request);
            }
            Ok(Outcome::Unanswered { to, datagram, request, bytes, reports }) => {
                let cqn = qp.attributes.send_cqn;
                let signature_error = self.report(qpn, cqn, &reports);
                if ruling != Ruling::Lost {
                    self.send_unanswered(qpn, to, datagram, request);
                }
                self.complete(qpn, posted, bytes);
                self.drain(qpn, signature_error);
            }
            Err(cause) => self.fail(qpn, posted, cause.local(), cause),
        }
        true
    }

    fn execute(&mut self, qpn: u32, wqe: &Wqe) -> Result<Outcome, Cause> {
        let qp = self.objects.qps.get(qpn).ok_or(Reason::AnotherQueue { qpn })?;
        let QpAttributes { pd, transport, .. } = qp.attributes;
        let opcode = wqe.posted.opcode;
        let masked = is_masked(opcode);
        let lacks = opcode == Opcode::MMO && !qp.copies || masked && !self.profile.masked_atomics;
        if !transport.executes(opcode) || lacks {
            return Err(Reason::Opcode { opcode: opcode.0 }.into());
        }
        let solicited = wqe.control.flags().solicited();
        let immediate = wqe.control.imm.get();
        match wqe.parse(transport)? {
            Operation::Nop => Ok(Outcome::Done),
            Operation::Umr(mut umr) => {
                self.fetch_lists(qpn, pd, transport, &mut umr)?;
                let asker = Asker { pd, qpn };
                umr::apply(&mut self.objects, asker, transport, &umr, &self.profile, &self.faults)
                    .map_err(|reason| Cause { key: Some(umr.key), reason })?;
                Ok(Outcome::Done)
            }
            Operation::SetPsv(segment) => {
                self.set_psv(pd, &segment)?;
                Ok(Outcome::Done)
            }
            Operation::Copy { from, to } => {
                self.copy_in_turn(qpn, pd, wqe.posted, [&from, &to])?;
                Ok(Outcome::Done)
            }
            Operation::Send { segments } => {
                let (data, reports) = self.path(qpn, pd).gather_list(&self.memory.host, &segments)?;
                let payload = match wqe.posted.opcode {
                    Opcode::SEND_IMM => Payload::Immediate(immediate),
                    Opcode::SEND_INVAL => Payload::Invalidate(immediate),
                    _ => Payload::None,
                };
                let bytes = data.len() as u32;
                let request = Request::Send { data: Arc::new(data), payload, solicited };
                Ok(Outcome::Ask { request, scatter: Vec::new(), bytes, reports })
            }
            Operation::Datagram { address, segments } => self.datagram(qp, qpn, wqe, &address, &segments),
            Operation::Write { remote, segments } => {
                let (data, reports) = self.path(qpn, pd).gather_list(&self.memory.host, &segments)?;
                let immediate = (wqe.posted.opcode == Opcode::RDMA_WRITE_IMM).then_some(immediate);
                let (rkey, address) = (remote.rkey.get(), remote.address.get());
                let bytes = data.len() as u32;
                let data = Arc::new(data);
                let request = Request::Write { rkey, address, data, immediate, solicited };
                Ok(Outcome::Ask { request, scatter: Vec::new(), bytes, reports })
            }
            Operation::Read { remote, scatter } => {
                let length = self.listed(&scatter)?;
                self.path(qpn, pd).check_list(&scatter, length.into())?;
                let request =
                    Request::Read { rkey: remote.rkey.get(), address: remote.address.get(), length };
                Ok(Outcome::Ask { request, scatter, bytes: length, reports: Vec::new() })
            }
            Operation::Atomic { remote, width, change, scatter } => {
                let bytes = width.bytes();
                self.path(qpn, pd).check_list(&scatter, bytes.into())?;
                let (rkey, address) = (remote.rkey.get(), remote.address.get());
                let request = Request::Atomic { rkey, address, width, change, masked };
                Ok(Outcome::Ask { request, scatter, bytes, reports: Vec::new() })
            }
        }
    }

    /// Reads the lists of a UMR from memory: the translation entries, padded to blocks of 64 bytes, and the
    /// BSFs right behind them (DEVICE.md, "UMR by pointer").
    fn fetch_lists(&self, qpn: u32, pd: u32, transport: Transport, umr: &mut Umr) -> Result<(), Cause> {
        let UmrLists::InMemory(pointer) = &umr.lists else { return Ok(()) };
        let address = pointer.address.get();
        if !address.is_multiple_of(UmrControlSegment::POINTER_ALIGNMENT) {
            return Err(Reason::PointerAlignment { address }.into());
        }
        let octowords = umr.control.klm_octowords.get();
        let bsfs = if umr.translation_offset.is_some() { 0 } else { umr.control.bsf_octowords.get() };
        let length = (u64::from(octowords) * 16).next_multiple_of(64) + u64::from(bsfs) * 16;
        let range = Range { key: pointer.mkey.get(), address: pointer.address.get(), length };
        // Assumption: an mkey that transforms bytes (signature or crypto) cannot hold the lists.
        let mkey = self.objects.mkeys.get(Key::from_raw(range.key).index().get());
        if mkey.is_some_and(Mkey::changes_bytes) {
            return Err(Reason::BsfUnderList { key: range.key }.into());
        }
        // Assumption: the kernel driver's queue pair for UMRs reads lists by keys of all protection domains.
        // Linux makes this queue pair in domain 0, and names a key of another domain.
        let pd = mkey.filter(|_| transport == Transport::Umr).map_or(pd, |mkey| mkey.pd);
        let (bytes, _) = self.path(qpn, pd).gather(&self.memory.host, range, Right::LocalRead)?;
        let (translations, bsfs) = fetch::lists(&bytes, octowords);
        umr.lists = UmrLists::Inline { translations, bsfs };
        Ok(())
    }

    /// Returns the sum of the lengths of a scatter list, or the reason why a request cannot have this length.
    fn listed(&self, scatter: &[DataSegment]) -> Result<u32, Reason> {
        let sum: u64 = scatter.iter().map(|segment| Range::of(segment).length).sum();
        let limit = self.profile.max_message_bytes;
        let length = u32::try_from(sum).ok().filter(|length| *length <= limit);
        length.ok_or(Reason::MessageTooLong { length: sum, limit: limit.into() })
    }

    fn set_psv(&mut self, pd: u32, segment: &SetPsvSegment) -> Result<(), Reason> {
        let number = segment.psv_index.get();
        let psv = self.objects.psvs.get_mut(number).ok_or(Reason::UnknownPsv { psv: number })?;
        if psv.pd != pd && !self.faults.psv_domain_ignored {
            return Err(Reason::PsvDomain { psv: number, domain: psv.pd });
        }
        if self.faults.psv_not_reset_by_set_psv {
            return Ok(());
        }
        psv.transient = segment.transient_signature.get();
        // Assumption: SET_PSV ends a transaction. Drivers start the next transaction with a UMR.
        psv.running = None;
        psv.state = if segment.syndrome.get() == 0 { PsvState::Init } else { PsvState::Error };
        Ok(())
    }

    pub(crate) fn path(&self, qpn: u32, pd: u32) -> Path<'_> {
        Path {
            objects: &self.objects,
            profile: &self.profile,
            faults: &self.faults,
            asker: Asker { pd, qpn },
        }
    }

    /// Sends a request to its peer. Without a peer, the request is answered as unreachable. The gate (a
    /// function that tests set) may answer in place of the peer that no receive request is posted.
    fn ask(&mut self, qpn: u32, peer: Option<Peer>, sequence: u32, request: Request) {
        let oldest = self.objects.qps.get_mut(qpn).and_then(|qp| qp.outstanding.oldest_mut());
        if let Some(oldest) = oldest.filter(|oldest| oldest.sequence == sequence)
            && let Some(left) = oldest.refusals.checked_sub(1)
        {
            oldest.refusals = left;
            let response = Response::ReceiverNotReady { timer: SHORTEST_TIMER };
            self.local.push_back(Message::Response { to: qpn, sequence, response });
            return;
        }
        match peer {
            Some(peer) => {
                self.send(peer, Message::Request { from: qpn, to: peer.number(), sequence, request })
            }
            None => {
                let response = Response::Unreachable;
                self.local.push_back(Message::Response { to: qpn, sequence, response });
            }
        }
    }

    /// Sends a message to the device of its destination.
    pub(crate) fn send(&mut self, peer: Peer, message: Message) {
        self.tap.show(Seen::Sent(&message));
        match peer {
            Peer::Remote(_) => self.outbound.push(message),
            Peer::Local(_) => self.local.push_back(message),
        }
    }

    /// Sends all outstanding requests again, if the peer had no receive request for the oldest. The peer has
    /// dropped the later requests.
    pub(crate) fn ask_again(&mut self, qpn: u32) {
        let Some(qp) = self.objects.qps.get_mut(qpn).filter(|qp| qp.outstanding.is_not_ready()) else {
            return;
        };
        if let Some(oldest) = qp.outstanding.oldest_mut() {
            oldest.not_ready = false;
            oldest.pause = oldest.pause.saturating_sub(1);
            if oldest.pause == 0 {
                oldest.attempts = oldest.attempts.saturating_add(1);
            }
        }
        let peer = qp.peer;
        let requests = qp.outstanding.iter().map(|waiting| (waiting.sequence, waiting.request.clone()));
        for (sequence, request) in requests.collect::<Vec<_>>() {
            self.ask(qpn, peer, sequence, request);
        }
    }

    /// Takes the peer's answer to the oldest outstanding request.
    pub(crate) fn accept(&mut self, qpn: u32, sequence: u32, response: Response) {
        let Some(qp) = self.objects.qps.get_mut(qpn) else { return };
        let (retries, attributes) = (qp.attributes.rnr_retry, qp.attributes);
        let failed = qp.state == QpState::Error;
        let oldest = qp.outstanding.oldest_mut().filter(|oldest| oldest.sequence == sequence);
        let Some(oldest) = oldest else { return };
        if let Response::ReceiverNotReady { timer } = response {
            if failed {
                // The queue pair has failed. Its outstanding requests are flushed together with the requests
                // that were not sent.
                qp.outstanding.clear();
                return;
            }
            if oldest.pause == 0 {
                if matches!(retries, Retries::Count(limit) if oldest.attempts >= limit) {
                    let posted = oldest.posted;
                    let cause = Reason::ReceiverNotReady { attempts: oldest.attempts }.into();
                    return self.fail(qpn, posted, Status::of_peer(Syndrome::RNR_RETRY), cause);
                }
                oldest.pause = runs(timer);
            }
            oldest.not_ready = true;
            self.waiting.insert(qpn);
            return;
        }
        let Some(outstanding) = qp.outstanding.take_oldest() else { return };
        let posted = outstanding.posted;
        let bad_response = Status::of_peer(Syndrome::BAD_RESPONSE);
        let data = match (posted.opcode, response) {
            (_, Response::Refused { syndrome, cause }) => {
                let cause = cause.unwrap_or(Reason::RefusedByPeer { syndrome: syndrome.0 }.into());
                return self.fail(qpn, posted, Status::of_peer(syndrome), cause);
            }
            (_, Response::Unreachable) => {
                let status = Status::of_peer(Syndrome::TRANSPORT_RETRY);
                return self.fail(qpn, posted, status, Reason::Unreachable.into());
            }
            (Opcode::RDMA_READ, Response::Data(data)) if data.len() == outstanding.bytes as usize => {
                Some(data)
            }
            // An old value of 8 bytes has the host's byte order, one of 4 bytes is in big endian (UCX
            // `ext_atomic_arg_sizes_be`).
            (opcode, Response::Original(value)) if is_atomic(opcode) => Some(match outstanding.bytes {
                4 => (value as u32).to_be_bytes().to_vec(),
                _ => value.to_le_bytes().to_vec(),
            }),
            (opcode, _) if opcode == Opcode::RDMA_READ || is_atomic(opcode) => {
                return self.fail(qpn, posted, bad_response, Reason::BadResponse.into());
            }
            (_, Response::Done) => None,
            _ => return self.fail(qpn, posted, bad_response, Reason::BadResponse.into()),
        };
        let mut signature_error = outstanding.signature_error;
        if let Some(data) = data {
            match self.scatter_local(qpn, attributes.pd, &outstanding.scatter, data) {
                Ok(reports) => signature_error |= self.report(qpn, attributes.send_cqn, &reports),
                Err(cause) => return self.fail(qpn, posted, cause.local(), cause),
            }
        }
        // A request with a signature error succeeds. Assumption: this holds for a queue pair that drains on
        // signature errors, too.
        let silent = signature_error && attributes.drain_sigerr && self.faults.failing_request_silent;
        let ce = if silent { FmCeSe::CE_NO_FLUSH_ERROR } else { posted.ce };
        self.complete(qpn, Posted { ce, ..posted }, outstanding.bytes);
        self.drain(qpn, signature_error);
    }

    /// Stops the send queue after a signature error, or after the last outstanding request if the user has
    /// asked for draining.
    ///
    /// Assumption: the queue stops directly behind the request with the signature error, with or without a
    /// fence (the man page allows a later stop), and only for errors that the requester finds.
    pub(crate) fn drain(&mut self, qpn: u32, signature_error: bool) {
        let Some(qp) = self.objects.qps.get_mut(qpn) else { return };
        let stop = qp.attributes.drain_sigerr && signature_error && qp.state == QpState::ReadyToSend;
        let drained = qp.draining && qp.outstanding.is_empty() && qp.state == QpState::SendQueueDrained;
        if stop || drained {
            qp.state = QpState::SendQueueDrained;
            qp.draining = false;
            self.events.push_back(Event::SqDrained(qpn));
        }
    }

    pub(crate) fn scatter_local(
        &mut self,
        qpn: u32,
        pd: u32,
        segments: &[DataSegment],
        data: Vec<u8>,
    ) -> Result<Vec<Report>, Cause> {
        let path = Path {
            objects: &self.objects,
            profile: &self.profile,
            faults: &self.faults,
            asker: Asker { pd, qpn },
        };
        path.scatter_list(&mut self.memory.host, segments, data)
    }
}
