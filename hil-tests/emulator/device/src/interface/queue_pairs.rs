//! Executes commands that create, change and query queue pairs.

use super::opcode;
use crate::commands::{QpCommand, QpStep, Refused, Request, context_reply, reply};
use crate::device::{Device, Error};
use crate::interface_state::Kind;
use crate::memory::Memory;
use crate::object::qp::{Peer, QpAttributes, ReceiveQueue};
use crate::profile::Port;
use alloc::vec::Vec;

type Answer = Result<Vec<u8>, Refused>;

impl<M: Memory> Device<M> {
    pub(super) fn create_qp_on_pages(&mut self, request: &Request) -> Answer {
        let command = QpCommand::read(request, self.profile())?;
        self.uar(command.uar)?;
        let record = self.record(request, command.record)?;
        if let Some(shared) = command.shared {
            self.may_name(request.uid()?, Kind(opcode::CREATE_RMP), shared)?;
        }
        let rings = self.ring(request, command.rings, command.bytes(), false)?;
        let made = self.create_qp_numbered(command.attributes(rings, record), command.number);
        let places = (rings, command.rings);
        let qp = self.with_ring(opcode::CREATE_QP, places, command.record.umem, made)?;
        self.set_timestamps(qp, command.timestamps)?;
        self.set_copies(qp, command.copies)?;
        self.qp_mut(qp)?.doorbell_alone = command.doorbell_alone;
        self.interface.contexts.insert(qp, command.context);
        self.want_pages();
        Ok(reply::number(qp))
    }

    pub(super) fn destroy_qp_on_pages(&mut self, number: u32) -> Answer {
        let attributes = self.objects.qps.get(number).map(|qp| qp.attributes);
        self.destroy_qp(number)?;
        self.interface.contexts.remove(&number);
        let rings = attributes.map(|attributes| match attributes.receive {
            ReceiveQueue::Own(ring) => ring.address,
            ReceiveQueue::None | ReceiveQueue::Shared(_) => attributes.sq,
        });
        rings.into_iter().for_each(|rings| self.close_ring(opcode::CREATE_QP, number, rings));
        self.want_pages();
        Ok(reply::done())
    }

    /// Changes the state of a queue pair. A refused command changes nothing.
    pub(super) fn step(&mut self, qp: u32, request: &Request) -> Answer {
        let (state, transport) = (self.query(qp)?.state, self.qp_mut(qp)?.attributes.transport);
        let context = self.interface.contexts.get(&qp).ok_or(Refused::RESOURCE)?;
        let step = QpStep::read(request, (state, transport), context, self.profile())?;
        let of_path = |peer, path: &[u8]| match self.leads_here(path) {
            true => Peer::Local(peer),
            false if self.network.is_some() => Peer::Remote(peer),
            false => Peer::NOBODY,
        };
        let peer = step.peer.map(|(peer, path)| of_path(peer, &path));
        self.modify(qp, step.to)?;
        self.set_step(qp, &step, peer)?;
        self.interface.contexts.insert(qp, step.context);
        Ok(reply::done())
    }

    /// Sets the properties of a queue pair that a command has set. `peer` is the peer of the connection, if
    /// the command connects the queue pair.
    ///
    /// # Errors
    /// [`Error::NoSuchObject`].
    pub fn set_step(&mut self, qp: u32, step: &QpStep, peer: Option<Peer>) -> Result<(), Error> {
        peer.map_or(Ok(()), |peer| self.connect(qp, peer))?;
        self.set_rights(qp, step.rights)?;
        self.set_masked_atomics(qp, step.masked_atomics)?;
        self.set_qkey(qp, step.qkey)?;
        step.retries.map_or(Ok(()), |retries| self.set_rnr_retry(qp, retries))?;
        self.set_rnr_timer(qp, step.rnr_timer)?;
        step.drains.map_or(Ok(()), |drains| self.set_drain_sigerr(qp, drains))?;
        step.copies.map_or(Ok(()), |copies| self.set_copies(qp, copies))
    }

    /// Returns whether a path (PRM `ads`) leads to this port.
    fn leads_here(&self, path: &[u8]) -> bool {
        let byte = |at: usize| path.get(at).copied().unwrap_or_default();
        let stays = byte(0) & 0x80 != 0;
        let is_global = byte(5) & 0x80 != 0 || self.profile().port == Port::Ethernet;
        let gid = path.get(0x10..0x20).and_then(|gid| gid.try_into().ok());
        let is_own = gid.is_some_and(|gid| self.gids.is_own(gid));
        let lid = u16::from_be_bytes([byte(6), byte(7)]);
        stays || if is_global { is_own } else { self.gids.is_own(self.gids.of_lid(lid)) }
    }

    /// Returns the contexts of queue pairs that commands have created (PRM `qpc`), with their numbers.
    pub fn contexts(&self) -> impl Iterator<Item = (u32, &[u8])> {
        self.interface.contexts.iter().map(|(number, context)| (*number, &context[..]))
    }

    /// QUERY_QP: returns the context as commands have written it, with the current state.
    pub(super) fn query_qp(&self, number: u32) -> Answer {
        let view = self.query(number)?;
        Ok(context_reply(self.interface.contexts.get(&number).ok_or(Refused::RESOURCE)?, &view))
    }

    /// Creates a queue pair, and returns its number. `number` is its fixed number, if it has one.
    fn create_qp_numbered(&mut self, attributes: QpAttributes, number: Option<u32>) -> Result<u32, Error> {
        let Some(number) = number else { return self.create_qp(attributes) };
        let qp = self.new_qp(attributes)?;
        self.objects.qps.insert_at(number, qp).ok_or(Error::InUse)
    }
}
