//! The responder: executes requests of a peer, on posted receive requests and on remote keys.

use crate::cqe;
use crate::data_path::{Range, Report};
use crate::device::{Device, Event};
use crate::faults::Faults;
use crate::memory::Memory;
use crate::message::{Change, Payload, Request, Response, Width};
use crate::object::mkey::Mkey;
use crate::object::qp::{QpAttributes, QpState, SHORTEST_TIMER};
use crate::profile::DEFAULT_PKEY;
use crate::refusal::{Cause, Reason, Refusal, Status};
use crate::translate::{Asker, Right};
use alloc::sync::Arc;
use alloc::vec::Vec;
use mlx5_mkey::types::Key;
use mlx5_mkey::wire::cqe::{CqeOpcode, Syndrome};

/// The numbers of queue pairs for management datagrams.
const MANAGEMENT: core::ops::RangeInclusive<u32> = 0..=1;

/// Returns the data of a message. The data is copied if a requester of this device still holds it.
fn owned(data: Arc<Vec<u8>>) -> Vec<u8> {
    Arc::unwrap_or_clone(data)
}

impl<M: Memory> Device<M> {
    /// Executes a peer's request to queue pair `qpn`, and returns the answer. The caller ensures that the
    /// state of the queue pair allows requests.
    pub(crate) fn respond(&mut self, qpn: u32, request: Request) -> Response {
        let Some(qp) = self.objects.qps.get(qpn) else { return Response::Unreachable };
        let (attributes, rights, masked) = (qp.attributes, qp.rights, qp.masked_atomics);
        let forbidden = match request {
            Request::Write { .. } if !rights.remote_write => Some(Reason::QueueForbidsWrite { qpn }),
            Request::Read { .. } if !rights.remote_read => Some(Reason::QueueForbidsRead { qpn }),
            Request::Atomic { .. } if !rights.remote_atomic => Some(Reason::QueueForbidsAtomics { qpn }),
            Request::Atomic { masked: true, .. } if !masked => Some(Reason::QueueForbidsMasked { qpn }),
            _ => None,
        };
        if let Some(reason) = forbidden.filter(|_| !self.faults.qp_rights_ignored) {
            return self.refuse(qpn, &attributes, reason.into());
        }
        match request {
            Request::Send { data, payload, solicited } => {
                self.respond_send(qpn, &attributes, owned(data), payload, solicited, None)
            }
            Request::Write { rkey, address, data, immediate, solicited } => {
                let range = Range { key: rkey, address, length: data.len() as u64 };
                let immediate = immediate.map(|word| (word, solicited));
                self.respond_write(qpn, &attributes, range, owned(data), immediate)
            }
            Request::Read { rkey, address, length } => {
                let range = Range { key: rkey, address, length: length.into() };
                self.respond_read(qpn, &attributes, range)
            }
            Request::Atomic { rkey, address, width, change, .. } => {
                let change = if self.faults.atomic_masks_ignored { change.without_masks() } else { change };
                self.respond_atomic(qpn, &attributes, (rkey, address, width), change)
            }
        }
    }

    /// Returns the answer that a queue pair has no receive request.
    fn not_ready(&self, qpn: u32) -> Response {
        let timer = self.objects.qps.get(qpn).map_or(SHORTEST_TIMER, |qp| qp.rnr_timer);
        Response::ReceiverNotReady { timer }
    }

    /// Stores the message of a SEND in the next receive request. For a datagram, `source` is the number of
    /// the sender's queue pair.
    pub(crate) fn respond_send(
        &mut self,
        qpn: u32,
        attributes: &QpAttributes,
        data: Vec<u8>,
        payload: Payload,
        solicited: bool,
        source: Option<u32>,
    ) -> Response {
        let receive = match self.take_receive(qpn) {
            None => return self.not_ready(qpn),
            Some(receive) => receive,
        };
        let outcome = receive.segments.map_err(Cause::from).and_then(|segments| {
            let key = match payload {
                Payload::Invalidate(key) => Some(self.invalidable(qpn, attributes.pd, key)?),
                _ => None,
            };
            let length = match self.faults.receives_count_memory_bytes {
                true => self.path(qpn, receive.pd).memory_bytes(&segments, data.len() as u64)? as u32,
                false => data.len() as u32,
            };
            let reports = self.scatter_local(qpn, receive.pd, &segments, data)?;
            Ok((reports, key, length))
        });
        let (reports, key, length) = match outcome {
            Ok(outcome) => outcome,
            Err(cause) => {
                // The error is in the responder's own receive request, or the peer may not invalidate the
                // key. The requester gets another syndrome than the responder.
                let own = cause.receive();
                let (own, syndrome) = match cause.refusal() {
                    Refusal::Length => (own, Syndrome::REMOTE_INVALID_REQUEST),
                    Refusal::UmrCheck if !self.faults.invalidation_refused_otherwise => {
                        (Status { syndrome: Syndrome::LOCAL_ACCESS, ..own }, Syndrome::REMOTE_ACCESS)
                    }
                    _ => (own, Syndrome::REMOTE_OPERATION),
                };
                self.enter_error(qpn);
                self.fail_receive(qpn, receive.counter, own, cause);
                return Response::Refused { syndrome, cause: Some(cause) };
            }
        };
        if let Some(mkey) = key.and_then(|index| self.objects.mkeys.get_mut(index))
            && !self.faults.remote_invalidate_ignored
        {
            mkey.invalidate();
        }
        self.report(qpn, attributes.responder_cqn(), &reports);
        let (opcode, word) = match payload {
            Payload::None => (CqeOpcode::RESPONDER_SEND, 0),
            Payload::Immediate(word) => (CqeOpcode::RESPONDER_SEND_IMM, word),
            Payload::Invalidate(key) => (CqeOpcode::RESPONDER_SEND_INV, key),
        };
        let subject = self.receive_subject(qpn, receive.counter);
        let entry = cqe::done(subject, opcode, length, word, self.tells_solicited(solicited));
        let entry = source.map_or(entry, |source| cqe::with_source(entry, source));
        let entry = if MANAGEMENT.contains(&qpn) { cqe::with_partition(entry, DEFAULT_PKEY) } else { entry };
        self.post(attributes.responder_cqn(), entry);
        Response::Done
    }

    fn respond_write(
        &mut self,
        qpn: u32,
        attributes: &QpAttributes,
        range: Range,
        data: Vec<u8>,
        immediate: Option<(u32, bool)>,
    ) -> Response {
        if immediate.is_some() && self.pending_receives(qpn) == 0 {
            return self.not_ready(qpn);
        }
        match self.write_remote(qpn, attributes.pd, range, data) {
            Ok(reports) => {
                let wrong = self.report(qpn, attributes.responder_cqn(), reports.as_slice());
                if wrong && self.faults.drained_by_the_peers_data {
                    self.drain(qpn, wrong);
                }
            }
            Err(cause) => return self.refuse(qpn, attributes, cause),
        }
        if let Some((word, solicited)) = immediate {
            let Some(receive) = self.take_receive(qpn) else { return self.not_ready(qpn) };
            if let Err(reason @ Reason::OnPurpose { .. }) = receive.segments {
                let cause = Cause::from(reason);
                self.enter_error(qpn);
                self.fail_receive(qpn, receive.counter, cause.receive(), cause);
                return Response::Refused { syndrome: Syndrome::REMOTE_OPERATION, cause: Some(cause) };
            }
            let subject = self.receive_subject(qpn, receive.counter);
            let length = range.length as u32;
            let solicited = self.tells_solicited(solicited);
            let entry = cqe::done(subject, CqeOpcode::RESPONDER_WRITE_IMM, length, word, solicited);
            self.post(attributes.responder_cqn(), entry);
        }
        Response::Done
    }

    const fn tells_solicited(&self, solicited: bool) -> bool {
        solicited && !self.faults.solicited_lost
    }

    fn write_remote(
        &mut self,
        qpn: u32,
        pd: u32,
        range: Range,
        data: Vec<u8>,
    ) -> Result<Option<Report>, Cause> {
        // A write of 0 bytes does not check the key (InfiniBand 9.7.4.1.5).
        if data.is_empty() {
            return Ok(None);
        }
        let path = crate::data_path::Path {
            objects: &self.objects,
            profile: &self.profile,
            faults: &self.faults,
            asker: Asker { pd, qpn },
        };
        path.scatter(&mut self.memory.host, range, Right::RemoteWrite, data)
    }

    fn respond_read(&mut self, qpn: u32, attributes: &QpAttributes, range: Range) -> Response {
        if range.length == 0 {
            return Response::Data(Vec::new());
        }
        match self.path(qpn, attributes.pd).gather(&self.memory.host, range, Right::RemoteRead) {
            Ok((data, report)) => {
                self.report(qpn, attributes.responder_cqn(), report.as_slice());
                Response::Data(data)
            }
            Err(cause) => self.refuse(qpn, attributes, cause),
        }
    }

    fn respond_atomic(
        &mut self,
        qpn: u32,
        attributes: &QpAttributes,
        place: (u32, u64, Width),
        change: Change,
    ) -> Response {
        match self.atomic(qpn, attributes.pd, place, change) {
            Ok(value) if self.faults.atomic_replies_big_endian => Response::Original(value.swap_bytes()),
            Ok(value) => Response::Original(value),
            Err(cause) => self.refuse(qpn, attributes, cause),
        }
    }

    /// Reads, changes and writes 4 or 8 bytes. Returns the value before the change. Assumption: the value in
    /// memory is little endian, as on the hosts of the tests.
    fn atomic(
        &mut self,
        qpn: u32,
        pd: u32,
        (rkey, address, width): (u32, u64, Width),
        change: Change,
    ) -> Result<u64, Cause> {
        let length = u64::from(width.bytes());
        if !address.is_multiple_of(length) && !self.faults.atomic_alignment_ignored {
            return Err(Reason::AtomicAlignment { address, bytes: length }.into());
        }
        let range = Range { key: rkey, address, length };
        let index = Key::from_raw(rkey).index().get();
        // Assumption: an mkey that transforms bytes (signature or crypto) cannot be the target of an atomic.
        if self.objects.mkeys.get(index).is_some_and(Mkey::changes_bytes) {
            return Err(Reason::BsfInAtomic { key: rkey }.into());
        }
        let (bytes, _) = self.path(qpn, pd).gather(&self.memory.host, range, Right::Atomic)?;
        let mut value = [0; 8];
        value.iter_mut().zip(&bytes).for_each(|(to, from)| *to = *from);
        let value = u64::from_le_bytes(value);
        let path = crate::data_path::Path {
            objects: &self.objects,
            profile: &self.profile,
            faults: &self.faults,
            asker: Asker { pd, qpn },
        };
        let changed = change.of(value).to_le_bytes().into_iter().take(bytes.len()).collect();
        path.scatter(&mut self.memory.host, range, Right::Atomic, changed)?;
        Ok(value)
    }

    /// Finds the mkey that a SEND with invalidation to queue pair `qpn` invalidates. A key that is bound to
    /// another queue pair is refused (a memory window of type 2B).
    fn invalidable(&self, qpn: u32, pd: u32, key: u32) -> Result<u32, Cause> {
        let refused = Cause::from(Reason::NotInvalidable { key });
        let key = Key::from_raw(key);
        let index = key.index().get();
        let mkey = self.objects.mkeys.get(index).ok_or(refused)?;
        let Faults { invalidate_tag_ignored, invalidate_domain_ignored, .. } = self.faults;
        let named = mkey.tag == key.tag() || invalidate_tag_ignored;
        let reached = mkey.pd == pd || invalidate_domain_ignored;
        let own = mkey.qpn.is_none_or(|bound| bound == qpn);
        let allowed = named && reached && own && !mkey.free && mkey.remote_invalidate;
        if allowed { Ok(index) } else { Err(refused) }
    }

    /// Refuses a peer's access. The queue pair goes to the error state, and a posted receive request reports
    /// the error. A queue pair without answers drops the message (InfiniBand 9.9.3).
    fn refuse(&mut self, qpn: u32, attributes: &QpAttributes, cause: Cause) -> Response {
        let refusal = cause.refusal();
        let syndrome = match refusal {
            Refusal::QueuePairRight if self.faults.denied_as_access => Syndrome::REMOTE_ACCESS,
            _ => refusal.remote(),
        };
        let response = Response::Refused { syndrome, cause: Some(cause) };
        if !attributes.transport.is_reliable() {
            return response;
        }
        self.enter_error(qpn);
        // The syndrome of the answer decides the event (DEVICE.md, "What a queue pair forbids").
        self.events.push_back(match syndrome {
            Syndrome::REMOTE_INVALID_REQUEST => Event::QpRequest(qpn),
            _ => Event::QpAccess(qpn),
        });
        // Assumption: the first receive request completes with the error (0x11), and the later receive
        // requests are flushed.
        if let Some(receive) = self.take_receive(qpn) {
            let status = Status { syndrome: Syndrome::LOCAL_ACCESS, ..cause.receive() };
            self.fail_receive(qpn, receive.counter, status, cause);
        }
        response
    }

    fn enter_error(&mut self, qpn: u32) {
        if let Some(qp) = self.objects.qps.get_mut(qpn) {
            qp.state = QpState::Error;
            // Outstanding requests still complete when their answers come. If the queue pair is its own peer,
            // one of them is the request that was refused here. If the peer had no receive request, no answer
            // comes: the requests are flushed.
            if qp.outstanding.is_not_ready() {
                qp.outstanding.clear();
            }
            self.active.insert(qpn);
        }
    }
}
