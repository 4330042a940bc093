//! A connection of a host: one queue of commands. A thread of its own serves it ([`Session::serve`]).
//!
//! Each command has a slot, which is also the number of its receive request. The receive request is posted
//! anew with the response, hence a host never has more commands than slots.

use super::capsule::{COMMAND, Command, ConnectData, Request, Response, Status};
use super::cm::Path;
use super::controller::{Blocks, DEPTH, MAX_DATA, Queue, Step, Subsystem};
use super::error::Result;
use super::volume::{DIF, Volume};
use mlx5_mkey::devx::{
    Buffer, CqReader, CqSpec, Device, MkeySpec, Mkeys, ProtectionDomain, QueuePair, QueuePairSpec,
};
use mlx5_mkey::mkey::{Access, KlmEntry, MkeyConfig, SignatureChange};
use mlx5_mkey::queue::{Completion, Outcome, QpRouter};
use mlx5_mkey::types::{Key, Qpn};
use mlx5_mkey::wqe::{Payload, PreparedConfig, Remote, Sge};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use zerocopy::{FromBytes, IntoBytes};

/// Bytes of the staging memory of a slot: the most data of a command, in the smallest blocks, each with its
/// T10-DIF.
const STAGE: usize = MAX_DATA / 512 * (512 + DIF);

/// Blocks of the send queue. A command needs at most 12: UMR with entries and signature, two SET_PSVs, the
/// transfer and the response.
const SEND_BLOCKS: u32 = 512;

/// The id of each request that sends a response. The id of any other request is the slot of its command.
const RESPONSE: u64 = u64::MAX;

/// The longest sleep of a thread before it checks whether its connection has ended.
const IDLE: Duration = Duration::from_millis(100);

/// How long a host may take from the connection to the command Connect.
const PATIENCE: Duration = Duration::from_secs(60);

/// A queue of a host.
pub(crate) struct Session {
    subsystem: Arc<Subsystem>,
    volume: Arc<Volume>,
    queue: QueuePair,
    completions: CqReader,
    mkeys: Mkeys,
    inbox: Buffer,
    /// The data of commands between volume and wire.
    staging: Buffer,
    /// A copy of the data on their way between file and staging memory. Reads and writes of the file
    /// do not use the staging memory directly, because the device may write to that memory at any time.
    scratch: Vec<u8>,
    /// The commands whose data are on their way.
    slots: Vec<Option<(Command, Step)>>,
    request: Request,
    /// The index in the host's send queue that follows the last received command. Responses report it (SQHD).
    head: u16,
    /// The queue, once the host has sent Connect.
    connected: Option<Queue>,
}

impl Session {
    /// Creates the objects of a connection, and connects its queue pair.
    pub(crate) fn new(
        (device, pd): (&Device, &ProtectionDomain),
        (subsystem, volume): (&Arc<Subsystem>, &Arc<Volume>),
        request: Request,
        path: &Path,
    ) -> Result<Self> {
        let (depth, slots) = (usize::from(DEPTH), u32::from(DEPTH));
        let (cq, completions) = device.create_cq(CqSpec::entries_for(1, SEND_BLOCKS, slots, slots))?;
        let spec = QueuePairSpec {
            send_blocks: SEND_BLOCKS,
            receive_slots: slots,
            entries_per_slot: 1,
            ..QueuePairSpec::default()
        };
        let queue = device.create_qp(pd, &cq, &cq, spec)?;
        let spec = MkeySpec { max_entries: 4, signature: Some(&cq), ..MkeySpec::default() };
        let mut session = Self {
            subsystem: subsystem.clone(),
            volume: volume.clone(),
            queue,
            completions,
            mkeys: pd.create_mkeys(depth, spec)?,
            inbox: pd.alloc_buffer(depth * COMMAND, Access::LOCAL_WRITE)?,
            staging: pd.alloc_buffer(depth * STAGE, Access::LOCAL_WRITE)?,
            scratch: vec![0; STAGE],
            slots: vec![None; depth],
            request,
            head: 0,
            connected: None,
        };
        (0..depth).try_for_each(|slot| session.receive(slot))?;
        session.queue.control().connect(&path.peer, &path.options)?;
        Ok(session)
    }

    pub(crate) const fn qpn(&self) -> Qpn {
        self.queue.qpn()
    }

    /// Serves the host until its connection ends, or until another thread sets `is_over`.
    ///
    /// # Errors
    /// Errors of the device and of the protocol. The connection then has to end.
    pub(crate) fn serve(&mut self, is_over: &AtomicBool) -> Result {
        let begun = Instant::now();
        let served = loop {
            if is_over.load(Ordering::Relaxed) {
                break Ok(());
            }
            match self.connected {
                Some(queue) if !self.subsystem.is_alive(queue) => break Err("the host is lost".into()),
                None if begun.elapsed() > PATIENCE => break Err("the host does not send Connect".into()),
                _ => {}
            }
            if let Err(error) = self.advance() {
                break Err(error);
            }
        };
        self.connected.iter().for_each(|queue| self.subsystem.end(*queue));
        served
    }

    /// Handles the next completion. If there is none, sleeps for a while.
    fn advance(&mut self) -> Result {
        let mut router = QpRouter { queues: &mut self.queue, mkeys: &mut self.mkeys };
        // The router records a signature error in its mkey. `finish` finds it there.
        let Some(Completion::Work(work)) = self.completions.wait(&mut router, Some(IDLE))? else {
            return Ok(());
        };
        match work.outcome {
            Outcome::Sent { .. } if work.id == RESPONSE => Ok(()),
            Outcome::Sent { .. } => self.finish(work.id as usize),
            Outcome::Received { bytes, .. } if bytes as usize == COMMAND => self.begin(work.id as usize),
            Outcome::Received { bytes, .. } => Err(format!("a command of {bytes} bytes").into()),
            Outcome::Failed(failure) => Err(failure.syndrome.to_string().into()),
        }
    }

    fn receive(&mut self, slot: usize) -> Result {
        let sge = self.inbox.sge(slot * COMMAND..(slot + 1) * COMMAND)?;
        self.queue.post_receive(slot as u64, &[sge])?;
        self.queue.publish_receives();
        Ok(())
    }

    /// Begins a command: moves its data, or responds.
    fn begin(&mut self, slot: usize) -> Result {
        let mut bytes = [0; COMMAND];
        self.inbox.read(slot * COMMAND, &mut bytes)?;
        let command = Command::read_from_bytes(&bytes).map_err(|_| "a command is too short")?;
        self.head = (self.head + 1) % (self.request.sends.get() + 1);
        let step = match (self.connected, command.fabrics_type()) {
            (Some(queue), _) => self.subsystem.decide(queue, &command),
            (None, Some(Command::CONNECT)) if !command.data.is_keyed() => Err(Status::SGL_TYPE),
            (None, Some(Command::CONNECT)) if command.data.length() != size_of::<ConnectData>() => {
                Err(Status::SGL_LENGTH)
            }
            (None, Some(Command::CONNECT)) => Ok(Step::Connect),
            (None, _) => Err(Status::SEQUENCE),
        };
        match step {
            Err(status) => return self.respond(slot, &command, status, 0),
            Ok(Step::Respond(result)) => return self.respond(slot, &command, Status::SUCCESS, result),
            Ok(Step::Flush) => {
                let status = self.volume.flush().map_or(Status::WRITE_FAULT, |()| Status::SUCCESS);
                return self.respond(slot, &command, status, 0);
            }
            Ok(Step::Hold) => return Ok(()),
            Ok(Step::Give(ref bytes)) => {
                self.staging.write(slot * STAGE, bytes)?;
                let all = self.staging.sge(stage(slot, bytes.len()))?;
                let remote = remote(&command);
                self.queue.batch().request(slot as u64).signaled().rdma_write(remote, &[all])?;
            }
            Ok(Step::Connect) => {
                let all = self.staging.sge(stage(slot, size_of::<ConnectData>()))?;
                let remote = remote(&command);
                self.queue.batch().request(slot as u64).signaled().rdma_read(remote, &[all])?;
            }
            Ok(Step::Read(blocks)) => {
                let bytes = self.scratch.get_mut(..blocks.count * self.volume.geometry.stride());
                let bytes = bytes.ok_or("too many blocks")?;
                if self.volume.load(blocks.lba, bytes).is_err() {
                    return self.respond(slot, &command, Status::READ_ERROR, 0);
                }
                self.staging.write(slot * STAGE, bytes)?;
                self.transfer(slot, &command, &blocks)?;
            }
            Ok(Step::Write(blocks)) => self.transfer(slot, &command, &blocks)?,
        }
        let place = self.slots.get_mut(slot).ok_or("no such slot")?;
        *place = step.ok().map(|step| (command, step));
        Ok(())
    }

    /// Posts the transfer of blocks between the staging memory and the host, through the mkey of the slot.
    /// The device checks their T10-DIF.
    fn transfer(&mut self, slot: usize, command: &Command, blocks: &Blocks) -> Result {
        let geometry = self.subsystem.geometry();
        let mkey = self.mkeys.get_mut(slot).ok_or("no such mkey")?;
        let config = MkeyConfig {
            access: Some(Access::LOCAL_WRITE),
            signature: SignatureChange::Set(blocks.signature(geometry)),
            crypto: None,
        };
        let prepared = PreparedConfig::new(mkey.kind(), &config)?;
        let entry: KlmEntry = self.staging.entry(stage(slot, blocks.count * geometry.stride()))?;
        let mut batch = self.queue.batch();
        batch.request(slot as u64).configure_mkey(mkey, &prepared, &[entry])?;
        let all = Sge { address: 0, length: blocks.wire_bytes(geometry) as u32, lkey: mkey.key() };
        let request = batch.request(slot as u64).signaled();
        if command.opcode == Command::READ {
            request.rdma_write(remote(command), &[all])?;
        } else {
            request.rdma_read(remote(command), &[all])?;
        }
        Ok(())
    }

    /// Ends a command whose data have arrived: stores the data of a write, then responds.
    fn finish(&mut self, slot: usize) -> Result {
        let pending = self.slots.get_mut(slot).and_then(Option::take);
        let (command, step) = pending.ok_or("no such command")?;
        let (status, result) = match step {
            Step::Connect => match self.connect(slot, &command)? {
                Ok(queue) => (Status::SUCCESS, queue.controller.into()),
                Err(status) => (status, 0),
            },
            Step::Read(blocks) => (self.check(slot, &command, &blocks)?, 0),
            Step::Write(blocks) => {
                let mut status = self.check(slot, &command, &blocks)?;
                // Blocks with a wrong T10-DIF are not stored.
                if status == Status::SUCCESS {
                    let bytes = self.scratch.get_mut(..blocks.count * self.volume.geometry.stride());
                    let bytes = bytes.ok_or("too many blocks")?;
                    self.staging.read(slot * STAGE, bytes)?;
                    status = self.volume.store(blocks.lba, bytes).map_or(Status::WRITE_FAULT, |()| status);
                }
                (status, 0)
            }
            Step::Give(_) | Step::Respond(_) | Step::Flush | Step::Hold => (Status::SUCCESS, 0),
        };
        self.respond(slot, &command, status, result)
    }

    /// Connects the queue to a controller, by the data that the host has given.
    fn connect(&mut self, slot: usize, command: &Command) -> Result<core::result::Result<Queue, Status>> {
        let mut bytes = [0; size_of::<ConnectData>()];
        self.staging.read(slot * STAGE, &mut bytes)?;
        let data = ConnectData::read_from_bytes(&bytes).map_err(|_| "the data of Connect are too short")?;
        if self.connected.is_some() {
            return Ok(Err(Status::SEQUENCE));
        }
        let queue = self.subsystem.connect(command, &data, self.request.queue.get());
        self.connected = queue.ok();
        Ok(queue)
    }

    /// Returns the status of a command whose blocks have moved: whether the device has found a wrong T10-DIF.
    fn check(&mut self, slot: usize, command: &Command, blocks: &Blocks) -> Result<Status> {
        let mkey = self.mkeys.get_mut(slot).ok_or("no such mkey")?;
        let Some(error) = self.completions.check(mkey)? else { return Ok(Status::SUCCESS) };
        let queue = self.connected.ok_or("no queue")?;
        Ok(self.subsystem.report(queue, command, blocks, &error))
    }

    /// Posts the receive request for the next command of the slot, then sends the response of this command.
    fn respond(&mut self, slot: usize, command: &Command, status: Status, result: u64) -> Result {
        self.receive(slot)?;
        let response = Response {
            result: result.into(),
            sq_head: self.head.into(),
            reserved: 0.into(),
            id: command.id,
            status: status.field().into(),
        };
        let payload = Payload::Inline(response.as_bytes());
        let mut batch = self.queue.batch();
        let request = batch.request(RESPONSE).signaled();
        if status == Status::SUCCESS && command.data.is_invalidated() {
            request.send_invalidate(Key::from_raw(command.data.key()), payload)?;
        } else {
            request.send(payload)?;
        }
        Ok(())
    }
}

/// Returns the place of a slot's data in the staging memory.
const fn stage(slot: usize, length: usize) -> Range<usize> {
    slot * STAGE..slot * STAGE + length
}

/// Returns the memory of the host that a command names.
fn remote(command: &Command) -> Remote {
    Remote { address: command.data.address.get(), rkey: Key::from_raw(command.data.key()) }
}

#[cfg(test)]
mod tests;
