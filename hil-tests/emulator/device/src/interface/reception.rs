//! Receive queues of frames (`en_rx.c` of Linux's mlx5_core).
//!
//! Assumption: the rules of flow tables have no effect. A frame for the port's MAC address or for a group
//! goes to the first ready receive queue that has a posted receive request. A frame that finds none is lost.

use super::frames::received_sum;
use super::opcode;
use super::packets::kind_of;
use crate::commands::reply;
use crate::commands::{Place, Record, Refused, Request};
use crate::cqe::{self, Subject};
use crate::device::Device;
use crate::interface_state::FrameQueue;
use crate::memory::Memory;
use alloc::vec::Vec;
use mlx5_mkey::wire::cqe::CqeOpcode;
use mlx5_mkey::wire::data::DataSegment;
use zerocopy::FromBytes;

/// Offset of the work queue in CREATE_RQ (PRM `rqc`, `wq`).
const WQ: usize = 0x50;

/// The type of a cyclic work queue.
const CYCLIC: u8 = 1;

/// The state in which a receive queue takes frames (`MLX5_RQC_STATE_RDY` of Linux).
const READY: u8 = 1;

/// The most frames that wait for other ports. Later frames are lost.
const MOST_FRAMES: usize = 1024;

impl<M: Memory> Device<M> {
    /// CREATE_RQ: creates a receive queue. A queue over a cyclic ring takes frames. A queue of another type
    /// is only a number.
    pub(super) fn create_rq(&mut self, request: &Request) -> Result<Vec<u8>, Refused> {
        let at = |offset: usize| WQ + offset;
        let is_cyclic = request.u8(at(0)).is_ok_and(|byte| byte >> 4 == CYCLIC);
        if !is_cyclic {
            return Ok(reply::number(self.make_number(opcode::CREATE_RQ)?));
        }
        let (log_slots, log_stride) = (request.u8(at(0x23))? & 0x1f, request.u8(at(0x21))? & 0xf);
        let cqn = request.u24(0x29)?;
        if log_slots > 15 || !(4..=11).contains(&log_stride) {
            return Err(Refused::PARAMETER);
        }
        if self.objects.cqs.get(cqn).is_none() {
            return Err(Refused::RESOURCE);
        }
        let record = self.record(request, Record { umem: None, offset: request.u64(at(0x10))? })?;
        let place = Place::Pages {
            log_page: request.u8(at(0x22))? & 0x1f,
            offset: (request.u8(at(5))? & 0x1f).into(),
        };
        let bytes = (1_u64 << (log_slots + log_stride)).next_multiple_of(super::rings::ENTRY);
        let pd = request.u24(at(9))?;
        let ring = self.ring(request, place, bytes, false)?;
        let number = self.make_number(opcode::CREATE_RQ).inspect_err(|_| self.memory.close(ring))?;
        let queue = FrameQueue { cqn, pd, ring, log_slots, log_stride, record, next: 0, is_ready: false };
        self.interface.receivers.insert(number, queue);
        Ok(reply::number(number))
    }

    /// MODIFY_RQ: makes a receive queue ready, or stops it. A queue in state 0 (reset) begins at its first
    /// slot again.
    pub(super) fn modify_rq(&mut self, request: &Request) {
        let (Ok(number), Ok(state)) = (request.u24(9), request.u8(0x21)) else { return };
        if let Some(queue) = self.interface.receivers.get_mut(&number) {
            queue.is_ready = state >> 4 == READY;
            queue.next = if state >> 4 == 0 { 0 } else { queue.next };
        }
    }

    /// DESTROY_RQ: destroys a receive queue, and removes the window of its ring from the device's bus.
    pub(super) fn destroy_rq(&mut self, request: &Request) -> Result<Vec<u8>, Refused> {
        let number = request.u24(9)?;
        if !self.interface.numbers.remove(&(opcode::CREATE_RQ, number)) {
            return Err(Refused::RESOURCE);
        }
        if let Some(queue) = self.interface.receivers.remove(&number) {
            self.memory.close(queue.ring);
        }
        Ok(reply::done())
    }

    /// Adds a frame to the frames that wait for other ports.
    pub(super) fn send_frame(&mut self, frame: Vec<u8>) {
        if self.interface.frames.len() < MOST_FRAMES {
            self.interface.frames.push_back(frame);
        }
    }

    /// Returns the next Ethernet frame for other ports. Only a device on a network ([`Device::join`]) has
    /// any.
    pub fn take_frame(&mut self) -> Option<Vec<u8>> {
        self.interface.frames.pop_front()
    }

    /// Returns the MAC address of the port, which its GUID contains.
    pub fn mac(&self) -> [u8; 6] {
        let [a, b, c, _, _, f, g, h] = self.guid();
        [a ^ 2, b, c, f, g, h]
    }

    /// Takes an Ethernet frame of another port. Frames for other addresses, and frames for which no receive
    /// request is posted, are lost.
    pub fn deliver_frame(&mut self, frame: &[u8]) {
        let own = self.mac();
        let is_wanted =
            frame.len() > 14 && frame.first_chunk().is_some_and(|to: &[u8; 6]| to[0] & 1 != 0 || *to == own);
        let queues: Vec<u32> = self.interface.receivers.keys().copied().collect();
        if is_wanted && queues.into_iter().any(|number| self.receive_frame(number, frame)) {
            kind_of(&mut self.interface.received, frame).count(1, frame.len() as u64);
        }
    }

    /// Stores a frame in the next posted receive request of a queue. Returns false if the queue takes no
    /// frame now.
    fn receive_frame(&mut self, number: u32, frame: &[u8]) -> bool {
        let Some(queue) = self.interface.receivers.get(&number).copied().filter(|queue| queue.is_ready)
        else {
            return false;
        };
        let mut record = [0; 4];
        let is_read = self.memory.read(queue.record, &mut record).is_ok();
        let posted = (u32::from_be_bytes(record) as u16).wrapping_sub(queue.next);
        // If the producer is further ahead than the ring has slots, the host has made a mistake.
        if !is_read || posted == 0 || posted > 1 << queue.log_slots {
            return false;
        }
        let slot = u64::from(queue.next & ((1 << queue.log_slots) - 1)) << queue.log_stride;
        let mut request = [0; 1 << 11];
        let Some(request) = request.get_mut(..1 << queue.log_stride) else { return false };
        if self.memory.read(queue.ring.wrapping_add(slot), request).is_err() {
            return false;
        }
        if let Some(queue) = self.interface.receivers.get_mut(&number) {
            queue.next = queue.next.wrapping_add(1);
        }
        let (segments, _) = request.as_chunks::<16>();
        let segments = segments.iter().filter_map(|bytes| DataSegment::read_from_bytes(bytes).ok());
        let segments: Vec<DataSegment> =
            segments.take_while(|segment| segment.lkey.get() != DataSegment::END_OF_LIST_KEY).collect();
        let subject = Subject { qpn: number, user_index: 0, counter: queue.next, wqe_opcode: 0 };
        let entry = match self.scatter_local(number, queue.pd, &segments, frame.to_vec()) {
            Ok(_) => {
                let entry = cqe::done(subject, CqeOpcode::RESPONDER_SEND, frame.len() as u32, 0, false);
                cqe::with_sum(entry, received_sum(frame))
            }
            Err(cause) => cqe::error(subject, CqeOpcode::RESPONDER_ERROR, cause.receive()),
        };
        self.post(queue.cqn, entry);
        true
    }
}
