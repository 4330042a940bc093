//! Writes completion entries into the rings of completion queues. The device overwrites an entry that the
//! host has not taken only if the queue has `ignore_overrun`.

use crate::clock;
use crate::cqe::{self, Entry, Subject};
use crate::data_path::Report;
use crate::device::{Device, Event};
use crate::gate::{Course, Passage};
use crate::memory::Memory;
use crate::object::cq::Cq;
use crate::object::posted::Posted;
use crate::object::psv::PsvState;
use crate::object::qp::QpState;
use crate::refusal::{Cause, Reason, Status};
use crate::ruling::{Ruling, Side};
use crate::tap::Seen;
use mlx5_mkey::wire::cqe::CqeOpcode;
use mlx5_mkey::wire::ctrl::FmCeSe;

/// The bits of a consumer index that a doorbell record has.
const INDEX_MASK: u32 = 0x00ff_ffff;

impl<M: Memory> Device<M> {
    /// Makes a completion queue count as full from now on, as if the host took no more entries.
    pub fn fill(&mut self, cqn: u32) {
        if let Some(cq) = self.objects.cqs.get_mut(cqn) {
            cq.full = true;
        }
    }

    /// Sets the function that decides from now on whether each completion entry is written, lost, repeated or
    /// delayed. `keeper` gets the number of the completion queue and the entry.
    pub fn set_gate(&mut self, keeper: impl FnMut(u32, &[u8; 64]) -> Passage + Send + 'static) {
        self.gate.set(keeper);
    }

    /// Sets the function that decides from now on whether each command is carried out. `judge` gets the
    /// opcode, and whether the command destroys an object.
    pub fn set_judge(&mut self, judge: impl FnMut(u16, bool) -> Course + Send + 'static) {
        self.gate.set_judge(judge);
    }

    /// Sets the function that decides from now on about each request, before the device executes the request.
    /// `arbiter` gets the work queue of the request (send or receive), and the number of the queue pair.
    pub fn set_arbiter(&mut self, arbiter: impl FnMut(Side, u32) -> Ruling + Send + 'static) {
        self.gate.set_arbiter(arbiter);
    }

    /// Returns whether the function of [`Device::set_gate`] has held back entries ([`Passage::Later`]).
    pub fn holds_entries(&self) -> bool {
        self.gate.holds()
    }

    /// Writes the completion entries that the function of [`Device::set_gate`] has held back
    /// ([`Passage::Later`]).
    pub fn release(&mut self) {
        for (cqn, entry, cause) in self.gate.open() {
            self.put(cqn, entry, cause);
        }
    }

    /// Writes an entry to completion queue `cqn`, if the gate (a function that tests set) lets the entry
    /// through.
    pub(crate) fn post(&mut self, cqn: u32, entry: Entry) {
        self.post_with(cqn, entry, None);
    }

    fn post_with(&mut self, cqn: u32, mut entry: Entry, cause: Option<Cause>) {
        let ticks = self.clock.ticks();
        let is_real_time = self.objects.qps.get(cqe::queue_pair(&entry)).is_some_and(|qp| qp.real_time);
        cqe::stamp(&mut entry, if is_real_time { clock::real_time(ticks) } else { ticks });
        match self.gate.pass(cqn, &entry, cause) {
            Passage::Never | Passage::Later => return,
            Passage::Behind(other) => self.put(cqn, other, None),
            Passage::Overrun => self.fill(cqn),
            Passage::Twice => self.put(cqn, entry, cause),
            Passage::Once => {}
        }
        self.put(cqn, entry, cause);
    }

    /// Writes an entry that the gate (a function that tests set) has let through. If the queue is full, or
    /// its ring is outside of the memory, the queue fails. Every queue pair that uses the queue then fails
    /// too.
    fn put(&mut self, cqn: u32, entry: Entry, cause: Option<Cause>) {
        let Some(cq) = self.objects.cqs.get_mut(cqn) else { return };
        if cq.overrun {
            return;
        }
        if !cq.full && write(&mut self.memory, cq, entry).is_some() {
            cq.producer = cq.producer.wrapping_add(1);
            if cqe::asks_for_event(&entry) {
                cq.solicited = cq.producer;
            }
            self.tap.show(Seen::Completion { cqn, entry: &entry, cause });
            return;
        }
        self.fail_cq(cqn);
    }

    /// Moves a completion queue, and every queue pair that uses the queue, to the error state.
    pub(crate) fn fail_cq(&mut self, cqn: u32) {
        let Some(cq) = self.objects.cqs.get_mut(cqn) else { return };
        if core::mem::replace(&mut cq.overrun, true) {
            return;
        }
        self.events.push_back(Event::CqError(cqn));
        for qpn in self.objects.qps.numbers() {
            let Some(qp) = self.objects.qps.get_mut(qpn) else { continue };
            if qp.attributes.send_cqn == cqn || qp.attributes.recv_cqn == Some(cqn) {
                qp.state = QpState::Error;
                qp.outstanding.clear();
                self.active.insert(qpn);
            }
        }
    }

    /// Retires a send request that is done, and writes its completion if the request's completion mode asks
    /// for one.
    pub(crate) fn complete(&mut self, qpn: u32, posted: Posted, bytes: u32) {
        let Some(qp) = self.objects.qps.get_mut(qpn) else { return };
        qp.sq_consumer = posted.end();
        let cqn = qp.attributes.send_cqn;
        if posted.ce >= FmCeSe::CE_ALWAYS {
            self.pass_nops(qpn);
            let subject = self.send_subject(qpn, posted);
            let solicited = posted.ce == FmCeSe::CE_EVENT;
            self.post(cqn, cqe::done(subject, CqeOpcode::REQUESTER, bytes, 0, solicited));
        }
    }

    /// Retires a send request that failed, always with a completion. The transport decides whether the whole
    /// queue pair or only its send queue goes to the error state.
    pub(crate) fn fail(&mut self, qpn: u32, posted: Posted, status: Status, cause: Cause) {
        let Some(qp) = self.objects.qps.get_mut(qpn) else { return };
        qp.sq_consumer = posted.end();
        qp.state = qp.attributes.transport.failed();
        qp.outstanding.clear();
        let cqn = qp.attributes.send_cqn;
        let subject = self.send_subject(qpn, posted);
        self.post_with(cqn, cqe::error(subject, CqeOpcode::REQUESTER_ERROR, status), Some(cause));
    }

    /// Retires a send request that was never executed. Its completion reports the request as flushed, unless
    /// the request's completion mode forbids the completion.
    pub(crate) fn flush(&mut self, qpn: u32, posted: Posted) {
        let Some(qp) = self.objects.qps.get_mut(qpn) else { return };
        qp.sq_consumer = posted.end();
        let cqn = qp.attributes.send_cqn;
        if posted.ce != FmCeSe::CE_NO_FLUSH_ERROR {
            let subject = self.send_subject(qpn, posted);
            let cause = Cause::from(Reason::Flushed);
            let entry = cqe::error(subject, CqeOpcode::REQUESTER_ERROR, cause.local());
            self.post_with(cqn, entry, Some(cause));
        }
    }

    /// Writes the error completion of a receive request that failed.
    pub(crate) fn fail_receive(&mut self, qpn: u32, counter: u16, status: Status, cause: Cause) {
        let Some(qp) = self.objects.qps.get(qpn) else { return };
        let cqn = qp.attributes.responder_cqn();
        let subject = self.receive_subject(qpn, counter);
        self.post_with(cqn, cqe::error(subject, CqeOpcode::RESPONDER_ERROR, status), Some(cause));
    }

    /// Applies the results of transfers of queue pair `qpn`: stores CRCs of transactions in their PSVs, and
    /// writes a completion entry for each signature error. A signature error is silent if its PSV or its mkey
    /// has an earlier error that software has not acknowledged (by SET_PSV, and by the error count in a UMR).
    /// Returns whether an entry was written.
    ///
    /// Assumption: a requester reports to the completion queue of its send queue. A responder reports to the
    /// completion queue of its receive queue.
    pub(crate) fn report(&mut self, qpn: u32, cqn: u32, reports: &[Report]) -> bool {
        let mut posted = false;
        for report in reports {
            if let Some(running) = report.running
                && let Some(psv) = self.objects.psvs.get_mut(running.psv)
            {
                psv.running = Some(running.crc);
            }
            let Some(error) = report.error else { continue };
            let Some(psv) = self.objects.psvs.get_mut(error.psv) else { continue };
            let Some(mkey) = self.objects.mkeys.get_mut(report.mkey_index) else { continue };
            let armed = psv.state == PsvState::Init && mkey.reports_errors();
            if !armed && !self.faults.error_not_kept_first {
                continue;
            }
            psv.state = PsvState::Error;
            mkey.errors_counted = mkey.errors_expected;
            posted = true;
            let key = report.mkey_index << 8 | u32::from(mkey.tag);
            self.post(cqn, cqe::signature_error(qpn, key, &error));
        }
        posted
    }

    pub(crate) fn receive_subject(&self, qpn: u32, counter: u16) -> Subject {
        let qp = self.objects.qps.get(qpn).filter(|_| self.profile.user_indices);
        let user_index = qp.map_or(0, |qp| qp.attributes.user_index);
        Subject { qpn, user_index, counter, wqe_opcode: 0 }
    }

    fn send_subject(&self, qpn: u32, posted: Posted) -> Subject {
        Subject { wqe_opcode: posted.opcode.0, ..self.receive_subject(qpn, posted.counter) }
    }
}

/// Returns whether the ring has no free slot, by the consumer index that the device has read last.
fn is_full(cq: &Cq) -> bool {
    cq.producer.wrapping_sub(cq.consumer) & INDEX_MASK >= cq.entries()
}

/// Writes the entry at the producer index, the byte with its owner bit last. Returns `None` if the ring is
/// full (unless the queue ignores overruns), or if the ring or its doorbell record is outside of the memory.
fn write(memory: &mut impl Memory, cq: &mut Cq, mut entry: Entry) -> Option<()> {
    if !cq.attributes.ignore_overrun && is_full(cq) {
        let mut consumer = [0; 4];
        memory.read(cq.attributes.doorbell_record, &mut consumer).ok()?;
        cq.consumer = u32::from_be_bytes(consumer);
        if is_full(cq) {
            return None;
        }
    }
    let lap = cq.producer >> cq.attributes.log_entries & 1;
    let index = if cq.collapsed { 0 } else { cq.producer & (cq.entries() - 1) };
    let slot = u64::from(index) * u64::from(cq.attributes.entry_bytes);
    let skip = u64::from(cq.attributes.entry_bytes.saturating_sub(64));
    let address = cq.attributes.ring.checked_add(slot)?.checked_add(skip)?;
    let last = entry.last_mut()?;
    *last |= lap as u8;
    let (op_own, body) = entry.split_last()?;
    memory.publish_entry(address, body, *op_own).ok()
}
