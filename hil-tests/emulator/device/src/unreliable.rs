//! Messages without answers (UC, UD). For the requester, a message is done when it is sent. The responder
//! takes or drops it.

use crate::datagram::{AddressVector, Datagram, Destination, MAX_BYTES};
use crate::device::Device;
use crate::execute::Outcome;
use crate::fetch::{SendSegment, Wqe};
use crate::memory::Memory;
use crate::message::{Message, Payload, Request};
use crate::object::qp::{Peer, Qp, Transport};
use crate::refusal::{Cause, Reason};
use alloc::sync::Arc;
use mlx5_mkey::wire::ctrl::Opcode;

/// The last number of a queue pair for management datagrams. Each port has such queue pairs, 0 and 1.
const MANAGEMENT: u32 = 1;

impl<M: Memory> Device<M> {
    /// Executes a SEND that carries its own address vector (UD).
    pub(crate) fn datagram(
        &self,
        qp: &Qp,
        qpn: u32,
        wqe: &Wqe,
        address: &AddressVector,
        segments: &[SendSegment],
    ) -> Result<Outcome, Cause> {
        let (data, reports) = self.path(qpn, qp.attributes.pd).gather_list(&self.memory.host, segments)?;
        if data.len() > MAX_BYTES {
            let (length, limit) = (data.len() as u64, MAX_BYTES as u64);
            return Err(Reason::MessageTooLong { length, limit }.into());
        }
        let to = match address.destination(self.profile.port, &self.gids)? {
            Destination::Own(number) => Some(self.whereabouts(number)),
            // The address belongs to another device. A queue pair of this device with the same number gets no
            // datagram.
            Destination::Other(number) if number <= MANAGEMENT => Some(Peer::Remote(number)),
            Destination::Other(number) => {
                Some(self.whereabouts(number)).filter(|peer| matches!(peer, Peer::Remote(_)))
            }
            Destination::Nowhere => None,
        };
        let payload = match wqe.posted.opcode {
            Opcode::SEND_IMM => Payload::Immediate(wqe.control.imm.get()),
            _ => Payload::None,
        };
        let has_immediate = payload != Payload::None;
        let from = (self.profile.port, &self.gids);
        let datagram = Some(address.datagram(from, qp.qkey, data.len(), has_immediate));
        let bytes = data.len() as u32;
        let solicited = wqe.control.flags().solicited();
        let request = Request::Send { data: Arc::new(data), payload, solicited };
        Ok(Outcome::Unanswered { to, datagram, request, bytes, reports })
    }

    /// Returns the place of a queue pair that a datagram names: on this device, or on another device.
    fn whereabouts(&self, number: u32) -> Peer {
        let is_own = self.objects.qps.covers(number) || self.objects.qps.get(number).is_some();
        if is_own { Peer::Local(number) } else { Peer::Remote(number) }
    }

    /// Sends a request that has no answer.
    pub(crate) fn send_unanswered(
        &mut self,
        from: u32,
        peer: Option<Peer>,
        datagram: Option<Datagram>,
        request: Request,
    ) {
        let Some(peer) = peer else { return };
        self.send(peer, Message::Unanswered { from, to: peer.number(), datagram, request });
    }

    /// Executes a request that has no answer. Drops the request if no queue pair of its transport has the
    /// number, if its Q_Key is wrong, or if a receive request or a right is missing.
    pub(crate) fn take_unanswered(
        &mut self,
        from: u32,
        to: u32,
        datagram: Option<Datagram>,
        request: Request,
    ) {
        let Some(qp) = self.objects.qps.get(to).filter(|qp| qp.state.responds()) else { return };
        match (qp.attributes.transport, datagram, request) {
            (
                Transport::UnreliableConnection,
                None,
                request @ (Request::Send { .. } | Request::Write { .. }),
            ) => {
                self.respond(to, request);
            }
            (Transport::UnreliableDatagram, Some(shown), Request::Send { data, payload, solicited })
                if shown.qkey == qp.qkey
                    && data.len() <= MAX_BYTES
                    && !matches!(payload, Payload::Invalidate(_)) =>
            {
                let attributes = qp.attributes;
                let data = [shown.route.as_slice(), &data].concat();
                self.respond_send(to, &attributes, data, payload, solicited, Some(from));
            }
            _ => {}
        }
    }
}
