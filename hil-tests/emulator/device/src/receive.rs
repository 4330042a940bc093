//! Counts, takes and flushes the posted receive requests of queue pairs and of shared receive queues.

use crate::device::{Device, Error, Event};
use crate::fetch;
use crate::memory::Memory;
use crate::object::qp::{Qp, QpState, ReceiveQueue};
use crate::object::srq::{Srq, SrqAttributes};
use crate::refusal::{Cause, Reason};
use crate::ruling::{Ruling, Side};
use alloc::vec::Vec;
use mlx5_mkey::wire::cqe::Syndrome;
use mlx5_mkey::wire::data::DataSegment;

/// A receive request that a message consumes.
pub(crate) struct Receive {
    /// The number of the receive request in its completion: a count, or the slot in a linked list.
    pub(crate) counter: u16,
    /// The protection domain of the receive request's buffers.
    pub(crate) pd: u32,
    pub(crate) segments: Result<Vec<DataSegment>, Reason>,
}

impl<M: Memory> Device<M> {
    /// Creates a shared receive queue and returns its number (CREATE_RMP).
    ///
    /// # Errors
    /// [`Error::NoSuchObject`] for the domain, [`Error::BadAttribute`] for sizes.
    pub fn create_srq(&mut self, attributes: SrqAttributes) -> Result<u32, Error> {
        self.known_pd(attributes.pd)?;
        if attributes.log_slots > 16 {
            return Err(Error::BadAttribute("SRQ size"));
        }
        if !attributes.stride.is_power_of_two() || !(32..=1024).contains(&attributes.stride) {
            return Err(Error::BadAttribute("SRQ slot size"));
        }
        self.objects.srqs.insert(Srq::new(attributes)).ok_or(Error::Exhausted)
    }

    /// Destroys a shared receive queue.
    ///
    /// # Errors
    /// [`Error::NoSuchObject`]; [`Error::InUse`] while a queue pair takes receive requests from it.
    pub fn destroy_srq(&mut self, number: u32) -> Result<(), Error> {
        let uses = |qp: &Qp| qp.attributes.receive == ReceiveQueue::Shared(number);
        if self.objects.qps.values().any(uses) {
            return Err(Error::InUse);
        }
        self.objects.srqs.remove(number).map(drop).ok_or(Error::NoSuchObject { what: "SRQ", number })
    }

    /// Arms a limit: [`Event::SrqLimit`] is raised once when a shared queue has fewer than `limit` receive
    /// requests. 0 disarms the limit.
    ///
    /// # Errors
    /// [`Error::NoSuchObject`]; [`Error::BadAttribute`] for a limit that is not below the number of slots.
    pub fn arm_srq(&mut self, number: u32, limit: u32) -> Result<(), Error> {
        let srq = self.objects.srqs.get_mut(number).ok_or(Error::NoSuchObject { what: "SRQ", number })?;
        let limit = u16::try_from(limit).ok().filter(|limit| *limit == 0 || srq.has(*limit));
        srq.limit = limit.ok_or(Error::BadAttribute("SRQ limit"))?;
        self.compare_limit(number);
        Ok(())
    }

    /// Returns the armed limit for [`Event::SrqLimit`], or 0.
    ///
    /// # Errors
    /// [`Error::NoSuchObject`].
    pub fn query_srq(&self, number: u32) -> Result<u32, Error> {
        let srq = self.objects.srqs.get(number).ok_or(Error::NoSuchObject { what: "SRQ", number })?;
        Ok(srq.limit.into())
    }

    fn compare_limit(&mut self, number: u32) {
        let pending = self.pending_shared(number);
        if let Some(srq) = self.objects.srqs.get_mut(number)
            && pending < srq.limit
        {
            srq.limit = 0;
            self.events.push_back(Event::SrqLimit(number));
        }
    }

    /// Reads the count of receive requests that software has posted.
    fn posted(&self, doorbell_record: u64) -> Option<u16> {
        let mut record = [0; 4];
        self.memory.read(doorbell_record, &mut record).ok()?;
        Some(u32::from_be_bytes(record) as u16)
    }

    /// Returns the number of receive requests of a queue pair that are posted and that no message has used.
    pub(crate) fn pending_receives(&self, qpn: u32) -> u16 {
        let Some(qp) = self.objects.qps.get(qpn) else { return 0 };
        let ring = match qp.attributes.receive {
            ReceiveQueue::None => return 0,
            ReceiveQueue::Shared(srq) => return self.pending_shared(srq),
            ReceiveQueue::Own(ring) => ring,
        };
        let Some(posted) = self.posted(qp.attributes.doorbell_record) else { return 0 };
        let pending = posted.wrapping_sub(qp.rq_consumer);
        // A doorbell record that announces more receive requests than the ring holds is invalid: none of them
        // counts as posted.
        if pending > 1 << ring.log_slots { 0 } else { pending }
    }

    fn pending_shared(&self, number: u32) -> u16 {
        let Some(srq) = self.objects.srqs.get(number).filter(|srq| !srq.failed) else { return 0 };
        let Some(posted) = self.posted(srq.attributes.doorbell_record) else { return 0 };
        let pending = posted.wrapping_sub(srq.taken);
        if u32::from(pending) > 1 << srq.attributes.log_slots { 0 } else { pending }
    }

    /// Returns whether a queue pair has a receive request for the next message. Reads the doorbell record
    /// only if all receive requests that the device knows of are used.
    fn has_receive(&mut self, qpn: u32) -> bool {
        let Some(qp) = self.objects.qps.get(qpn) else { return false };
        if let ReceiveQueue::Own(ring) = qp.attributes.receive
            && (1..=1 << ring.log_slots).contains(&u32::from(qp.rq_posted.wrapping_sub(qp.rq_consumer)))
        {
            return true;
        }
        let pending = self.pending_receives(qpn);
        if let Some(qp) = self.objects.qps.get_mut(qpn) {
            qp.rq_posted = qp.rq_consumer.wrapping_add(pending);
        }
        pending > 0
    }

    /// Takes the next receive request of a queue pair.
    pub(crate) fn take_receive(&mut self, qpn: u32) -> Option<Receive> {
        if !self.has_receive(qpn) {
            return None;
        }
        let receive = self.next_receive(qpn)?;
        match self.gate.ruling(Side::Receive, qpn) {
            Ruling::Fails(Syndrome(syndrome)) => {
                Some(Receive { segments: Err(Reason::OnPurpose { syndrome }), ..receive })
            }
            _ => Some(receive),
        }
    }

    fn next_receive(&mut self, qpn: u32) -> Option<Receive> {
        let qp = self.objects.qps.get_mut(qpn)?;
        match qp.attributes.receive {
            ReceiveQueue::None => None,
            ReceiveQueue::Own(ring) => {
                let (counter, pd) = (qp.rq_consumer, qp.attributes.pd);
                qp.rq_consumer = counter.wrapping_add(1);
                Some(Receive { counter, pd, segments: fetch::receive(&self.memory, ring, counter) })
            }
            ReceiveQueue::Shared(number) => self.take_shared(number),
        }
    }

    /// Takes the next receive request of a shared queue.
    fn take_shared(&mut self, number: u32) -> Option<Receive> {
        let srq = self.objects.srqs.get_mut(number)?;
        let ((slot, counter), pd) = (srq.next(), srq.attributes.pd);
        let found = fetch::shared_receive(&self.memory, &srq.attributes, slot).filter(|_| srq.has(slot));
        let Some((next, segments)) = found else {
            srq.failed = true;
            self.events.push_back(Event::SrqFatal(number));
            return None;
        };
        srq.head = next;
        srq.taken = srq.taken.wrapping_add(1);
        self.compare_limit(number);
        Some(Receive { counter, pd, segments: Ok(segments) })
    }

    /// Flushes at most one receive request of a queue pair in error. Returns whether there was one. Receive
    /// requests of a shared queue stay posted.
    pub(crate) fn step_receive(&mut self, qpn: u32) -> bool {
        let failed = |qp: &&mut Qp| qp.state == QpState::Error;
        let Some(qp) = self.objects.qps.get_mut(qpn).filter(failed) else { return false };
        if matches!(qp.attributes.receive, ReceiveQueue::Shared(_)) {
            if !core::mem::replace(&mut qp.last_told, true) {
                self.events.push_back(Event::LastWqe(qpn));
            }
            return false;
        }
        let counter = qp.rq_consumer;
        if self.pending_receives(qpn) == 0 {
            self.failed.insert(qpn);
            return false;
        }
        if let Some(qp) = self.objects.qps.get_mut(qpn) {
            qp.rq_consumer = counter.wrapping_add(1);
        }
        let cause = Cause::from(Reason::Flushed);
        self.fail_receive(qpn, counter, cause.receive(), cause);
        true
    }
}
