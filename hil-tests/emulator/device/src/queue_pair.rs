//! Creates and destroys queue pairs, changes their settings, and moves them between states.

use crate::device::{Device, Error, Event};
use crate::memory::Memory;
use crate::message;
use crate::object::mkey::Access;
use crate::object::qp::{Peer, Qp, QpAttributes, QpState, QpView, ReceiveQueue, Retries};
use crate::object::read_ahead::ReadAhead;

impl<M: Memory> Device<M> {
    /// Returns whether a request waits because its peer had no receive request, or because the gate (a
    /// function that tests set) delays it ([`crate::Ruling::After`]). Only [`Device::run`] continues with the
    /// request.
    pub fn is_waiting(&self) -> bool {
        let waits =
            |number: &u32| self.objects.qps.get(*number).is_some_and(|qp| qp.outstanding.is_not_ready());
        !self.stalled.is_empty() || self.waiting.iter().any(waits)
    }

    /// Creates a queue pair in [`QpState::Reset`] and returns its number (CREATE_QP).
    ///
    /// # Errors
    /// [`Error::NoSuchObject`] for domain or queues, [`Error::BadAttribute`] for sizes, for a receive queue
    /// without a completion queue, or for a user index that the device lacks; [`Error::Exhausted`].
    pub fn create_qp(&mut self, attributes: QpAttributes) -> Result<u32, Error> {
        let qp = self.new_qp(attributes)?;
        self.objects.qps.insert(qp).ok_or(Error::Exhausted)
    }

    /// Checks the attributes of a new queue pair, and returns the queue pair, which has no number yet.
    pub(crate) fn new_qp(&self, attributes: QpAttributes) -> Result<Qp, Error> {
        self.known_pd(attributes.pd)?;
        for number in [attributes.send_cqn].into_iter().chain(attributes.recv_cqn) {
            self.objects.cqs.get(number).ok_or(Error::NoSuchObject { what: "CQ", number })?;
        }
        if attributes.receive != ReceiveQueue::None && attributes.recv_cqn.is_none() {
            return Err(Error::BadAttribute("receive CQ"));
        }
        if attributes.log_sq_blocks > 15 {
            return Err(Error::BadAttribute("ring size"));
        }
        if !self.profile.user_indices && !matches!(attributes.user_index, 0 | 0x00ff_ffff) {
            return Err(Error::BadAttribute("user index"));
        }
        match attributes.receive {
            ReceiveQueue::None => {}
            ReceiveQueue::Shared(number) => {
                self.objects.srqs.get(number).ok_or(Error::NoSuchObject { what: "SRQ", number })?;
            }
            ReceiveQueue::Own(ring) if ring.log_slots > 15 => return Err(Error::BadAttribute("ring size")),
            ReceiveQueue::Own(ring) if !ring.stride.is_multiple_of(16) || ring.stride > 1024 => {
                return Err(Error::BadAttribute("receive slot size"));
            }
            ReceiveQueue::Own(_) => {}
        }
        let real_time = self.profile.timestamps.are_real_time(1);
        Ok(Qp { real_time, ..Qp::new(attributes) })
    }

    /// Sets the format of a queue pair's time stamps (`ts_format`). Initially, time stamps have the format
    /// that the device prefers.
    ///
    /// # Errors
    /// [`Error::NoSuchObject`]; [`Error::BadAttribute`] for a format that the device does not have.
    pub fn set_timestamps(&mut self, number: u32, format: u8) -> Result<(), Error> {
        let timestamps = self.profile.timestamps;
        if !timestamps.take(format) {
            return Err(Error::BadAttribute("ts_format"));
        }
        self.qp_mut(number)?.real_time = timestamps.are_real_time(format);
        Ok(())
    }

    /// Destroys a queue pair.
    ///
    /// # Errors
    /// [`Error::NoSuchObject`].
    pub fn destroy_qp(&mut self, number: u32) -> Result<(), Error> {
        self.release();
        self.failed.remove(&number);
        self.objects.qps.remove(number).map(drop).ok_or(Error::NoSuchObject { what: "QP", number })
    }

    /// Sets the other end of a queue pair. The call is allowed in any state, and needed before the first
    /// request.
    ///
    /// # Errors
    /// [`Error::NoSuchObject`].
    pub fn connect(&mut self, number: u32, peer: Peer) -> Result<(), Error> {
        self.qp_mut(number)?.peer = Some(peer);
        Ok(())
    }

    /// Limits the accesses of the peer of a queue pair, in addition to the rights of keys
    /// (`qp_access_flags`). Initially all accesses are allowed.
    ///
    /// # Errors
    /// [`Error::NoSuchObject`].
    pub fn set_rights(&mut self, number: u32, rights: Access) -> Result<(), Error> {
        self.qp_mut(number)?.rights = rights;
        Ok(())
    }

    /// Sets whether a queue pair allows its peer masked atomics, in addition to the right to atomics
    /// (`atomic_mode`). Initially they are allowed.
    ///
    /// # Errors
    /// [`Error::NoSuchObject`].
    pub fn set_masked_atomics(&mut self, number: u32, allowed: bool) -> Result<(), Error> {
        self.qp_mut(number)?.masked_atomics = allowed;
        Ok(())
    }

    /// Sets the Q_Key that datagrams to a queue pair must carry (`q_key`). Initially, the Q_Key is 0.
    ///
    /// # Errors
    /// [`Error::NoSuchObject`].
    pub fn set_qkey(&mut self, number: u32, qkey: u32) -> Result<(), Error> {
        self.qp_mut(number)?.qkey = qkey;
        Ok(())
    }

    /// Sets whether a signature error stops the send queue of a queue pair (`drain_sigerr`; INIT2INIT).
    ///
    /// # Errors
    /// [`Error::NoSuchObject`].
    pub fn set_drain_sigerr(&mut self, number: u32, drain: bool) -> Result<(), Error> {
        self.qp_mut(number)?.attributes.drain_sigerr = drain;
        Ok(())
    }

    /// Allows or forbids requests of a queue pair that copy memory (opcode MMO; INIT2INIT, `mmo`). Initially,
    /// these requests are forbidden.
    ///
    /// # Errors
    /// [`Error::NoSuchObject`]; [`Error::BadAttribute`] for a device that does not copy.
    pub fn set_copies(&mut self, number: u32, copies: bool) -> Result<(), Error> {
        if copies && self.profile.log_max_copy.is_none() {
            return Err(Error::BadAttribute("mmo"));
        }
        self.qp_mut(number)?.copies = copies;
        Ok(())
    }

    /// Changes how often a request is repeated while the peer has no receive request (`rnr_retry`, set on the
    /// way to RTS).
    ///
    /// # Errors
    /// [`Error::NoSuchObject`].
    pub fn set_rnr_retry(&mut self, number: u32, retries: Retries) -> Result<(), Error> {
        self.qp_mut(number)?.attributes.rnr_retry = retries;
        Ok(())
    }

    /// Changes the code for the time after which a peer may repeat a request for which there was no receive
    /// request (`min_rnr_nak`, set on the way to RTR).
    ///
    /// # Errors
    /// [`Error::NoSuchObject`].
    pub fn set_rnr_timer(&mut self, number: u32, timer: u8) -> Result<(), Error> {
        self.qp_mut(number)?.rnr_timer = timer & 0x1f;
        Ok(())
    }

    /// Takes a request that comes with the doorbell (BlueFlame), before the doorbell itself. If the request
    /// is the next request of the send queue, the device does not read it from the ring.
    ///
    /// # Errors
    /// [`Error::NoSuchObject`].
    pub fn blue_flame(&mut self, number: u32, blocks: &[[u8; 64]]) -> Result<(), Error> {
        let qp = self.qp_mut(number)?;
        let next = qp.next_block();
        let first = blocks.first().map(|block| u16::from_be_bytes([block[1], block[2]]));
        if first == Some(next) {
            qp.read_ahead = ReadAhead::of(next, blocks);
        }
        Ok(())
    }

    /// Changes the state of a queue pair. Going to [`QpState::SendQueueDrained`] ends with
    /// [`Event::SqDrained`].
    ///
    /// # Errors
    /// [`Error::NoSuchObject`], [`Error::BadTransition`].
    pub fn modify(&mut self, number: u32, to: QpState) -> Result<(), Error> {
        self.release();
        let qp = self.qp_mut(number)?;
        if !qp.state.may_become(to) {
            return Err(Error::BadTransition { from: qp.state, to });
        }
        let from = qp.state;
        qp.state = to;
        // Software may have changed requests in the ring while the queue stood still, so the device forgets
        // the blocks that it has read ahead.
        qp.read_ahead = ReadAhead::default();
        qp.copied_ahead = None;
        match to {
            QpState::Reset => {
                (qp.sq_consumer, qp.sq_producer) = (0, 0);
                (qp.rq_consumer, qp.rq_posted) = (0, 0);
                (qp.sequence, qp.expected) = (message::after_reset(qp.sequence), None);
                qp.outstanding.clear();
                qp.ruling = None;
                qp.draining = false;
                qp.last_told = false;
            }
            // Outstanding requests are flushed with the later requests: the consumer counter still stands
            // before them.
            QpState::Error | QpState::SendQueueError => {
                qp.outstanding.clear();
                qp.ruling = None;
            }
            QpState::SendQueueDrained if from == QpState::ReadyToSend => {
                qp.draining = !qp.outstanding.is_empty();
                if !qp.draining {
                    self.events.push_back(Event::SqDrained(number));
                }
            }
            _ => {}
        }
        self.failed.remove(&number);
        self.active.insert(number);
        Ok(())
    }

    /// Moves a reset queue pair through INIT and RTR to RTS.
    ///
    /// # Errors
    /// The errors of [`Device::modify`].
    pub fn activate(&mut self, number: u32) -> Result<(), Error> {
        for state in [QpState::Init, QpState::ReadyToReceive, QpState::ReadyToSend] {
            self.modify(number, state)?;
        }
        Ok(())
    }

    /// Sets the number of the first block that a reset queue pair will execute, as for a queue pair that
    /// migrates from another device (`hw_sq_wqebb_counter`).
    ///
    /// # Errors
    /// [`Error::NoSuchObject`]; [`Error::InUse`] unless the queue pair is in [`QpState::Reset`].
    pub fn set_send_counter(&mut self, number: u32, counter: u16) -> Result<(), Error> {
        let qp = self.qp_mut(number)?;
        if qp.state != QpState::Reset {
            return Err(Error::InUse);
        }
        (qp.sq_consumer, qp.sq_producer) = (counter, counter);
        qp.read_ahead = ReadAhead::default();
        Ok(())
    }

    /// Returns the attributes of a queue pair.
    ///
    /// # Errors
    /// [`Error::NoSuchObject`].
    pub fn attributes(&self, number: u32) -> Result<QpAttributes, Error> {
        let qp = self.objects.qps.get(number).ok_or(Error::NoSuchObject { what: "QP", number })?;
        Ok(qp.attributes)
    }

    /// Returns state and counters of a queue pair (QUERY_QP).
    ///
    /// # Errors
    /// [`Error::NoSuchObject`].
    pub fn query(&self, number: u32) -> Result<QpView, Error> {
        let qp = self.objects.qps.get(number).ok_or(Error::NoSuchObject { what: "QP", number })?;
        Ok(QpView { state: qp.state, hw_sq_wqebb_counter: qp.sq_consumer, hw_rq_counter: qp.rq_consumer })
    }

    pub(crate) fn qp_mut(&mut self, number: u32) -> Result<&mut Qp, Error> {
        self.objects.qps.get_mut(number).ok_or(Error::NoSuchObject { what: "QP", number })
    }
}
