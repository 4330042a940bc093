//! The controllers of the NVMe subsystem. They decide the next step of each command ([`Step`]), and do not
//! use the RDMA device.

use super::capsule::{Command, ConnectData, Status};
use super::volume::Geometry;
use mlx5_mkey::mkey::{
    BlockSignature, Domain, Escape, Guard, Signature, SignatureError, SignatureErrorKind, T10Dif, check_mask,
};
use mlx5_mkey::types::Seed;
use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// The most commands of a queue at a time. Linux's admin queue has this depth.
pub(crate) const DEPTH: u16 = 32;

/// Base-2 logarithm of the most data of a command, in pages of 4096 bytes (MDTS).
const LOG_MAX_PAGES: u8 = 5;

/// The most data of a command in bytes, without T10-DIF.
pub(crate) const MAX_DATA: usize = 4096 << LOG_MAX_PAGES;

/// Bytes of the answer to Identify.
const PAGE: usize = 4096;

/// The version of NVM Express: 1.3.
const VERSION: u32 = 0x1_0300;

/// Blocks that a command reads or writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Blocks {
    pub(crate) lba: u64,
    pub(crate) count: usize,
    /// The parts of the T10-DIF that the device checks ([`check_mask`]).
    checks: u8,
    app_tag: u16,
    /// Whether the host sends and receives the blocks without T10-DIF (PRACT). The device then inserts and
    /// strips the T10-DIF.
    is_inserted: bool,
}

impl Blocks {
    /// Reads the fields of a command.
    fn of(command: &Command, geometry: &Geometry) -> Result<Self, Status> {
        let (lba, word) = (command.long(10), command.word(12));
        let count = (word & 0xffff) as usize + 1;
        if lba.checked_add(count as u64).is_none_or(|end| end > geometry.blocks) {
            return Err(Status::LBA_RANGE);
        }
        if count * geometry.data() > MAX_DATA {
            return Err(Status::INVALID_FIELD);
        }
        let bit = |bit: u32| word >> bit & 1 == 1;
        let [app_tag, app_mask] = [command.word(15) as u16, (command.word(15) >> 16) as u16];
        let mut checks = 0;
        if bit(28) {
            checks |= check_mask::T10DIF_GUARD;
        }
        if bit(27) {
            match app_mask {
                0 => {}
                u16::MAX => checks |= check_mask::T10DIF_APP_TAG,
                // The library compares either the whole application tag or nothing, so other masks are
                // refused.
                _ => return Err(Status::INVALID_FIELD),
            }
        }
        if bit(26) {
            if command.word(14) != lba as u32 {
                return Err(Status::INVALID_PROTECTION);
            }
            checks |= check_mask::T10DIF_REF_TAG;
        }
        let blocks = Self { lba, count, checks, app_tag, is_inserted: bit(29) };
        if command.data.length() != blocks.wire_bytes(geometry) {
            return Err(Status::SGL_LENGTH);
        }
        Ok(blocks)
    }

    /// Returns the bytes of the blocks on the wire.
    pub(crate) const fn wire_bytes(&self, geometry: &Geometry) -> usize {
        self.count * if self.is_inserted { geometry.data() } else { geometry.stride() }
    }

    /// Returns the signature of the mkey between volume and wire. If the wire has a T10-DIF, it is the same
    /// as the volume's: the device checks it and passes it on. If not, the device inserts or strips the
    /// T10-DIF.
    pub(crate) const fn signature(&self, geometry: &Geometry) -> BlockSignature {
        let dif = T10Dif {
            guard: Guard::Crc,
            seed: Seed::Zeros,
            app_tag: self.app_tag,
            ref_tag: self.lba as u32,
            ref_remap: true,
            escape: Escape::AppTag,
        };
        let domain = Domain { signature: Signature::T10Dif(dif), block_size: geometry.block_size };
        let signature = match self.is_inserted {
            true => BlockSignature::memory(domain),
            false => BlockSignature::both(domain, domain),
        };
        signature.with_check_mask(self.checks)
    }
}

/// The next step of a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// Respond with this result.
    Respond(u64),
    /// Write these bytes to the host, then respond.
    Give(Vec<u8>),
    /// Read the data of Connect from the host.
    Connect,
    /// Write blocks of the volume to the host.
    Read(Blocks),
    /// Read blocks of the volume from the host.
    Write(Blocks),
    /// Write the file to the disk, then respond.
    Flush,
    /// Do not respond: the host waits for an asynchronous event, and this target never has one.
    Hold,
}

/// A controller, which belongs to one host.
struct Controller {
    host: [u8; 16],
    /// The host's configuration (property CC).
    config: u32,
    has_event_request: bool,
    /// The time without a command after which the host counts as lost, if it asks for a limit.
    limit: Option<Duration>,
    heard: Instant,
    /// The last entry of the error log, and its number.
    error_log: [u8; 64],
    errors: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Queue {
    pub(crate) controller: u16,
    pub(crate) number: u16,
}

/// The subsystem: a volume and its controllers.
pub(crate) struct Subsystem {
    name: String,
    geometry: Geometry,
    controllers: Mutex<Controllers>,
}

#[derive(Default)]
struct Controllers {
    map: BTreeMap<u16, Controller>,
    /// The number of the controller that was created last.
    last: u16,
}

impl Subsystem {
    pub(crate) fn new(name: &str, geometry: Geometry) -> Self {
        Self { name: name.to_owned(), geometry, controllers: Mutex::default() }
    }

    pub(crate) const fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    /// Locks the controllers. A thread that has panicked leaves them usable, because each change is one
    /// assignment.
    fn lock(&self) -> MutexGuard<'_, Controllers> {
        self.controllers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns whether a controller exists and its host is not lost.
    pub(crate) fn is_alive(&self, queue: Queue) -> bool {
        let controllers = self.lock();
        let controller = controllers.map.get(&queue.controller);
        controller.is_some_and(|one| one.limit.is_none_or(|limit| one.heard.elapsed() < limit))
    }

    /// Ends a queue. The end of an admin queue is the end of its controller.
    pub(crate) fn end(&self, queue: Queue) {
        if queue.number == 0 {
            self.lock().map.remove(&queue.controller);
        }
    }

    /// Carries out Connect on a queue of this number: creates a controller for an admin queue, and finds the
    /// controller of another queue.
    pub(crate) fn connect(
        &self,
        command: &Command,
        data: &ConnectData,
        number: u16,
    ) -> Result<Queue, Status> {
        let [format, queue] = [command.word(10) as u16, (command.word(10) >> 16) as u16];
        if format != 0 {
            return Err(Status::CONNECT_FORMAT);
        }
        if queue != number || !data.is_for(&self.name) {
            return Err(Status::CONNECT_PARAMETERS);
        }
        let mut controllers = self.lock();
        if number > 0 {
            let controller = data.controller.get();
            let is_there = controllers.map.get(&controller).is_some_and(|one| one.host == data.host);
            return is_there.then_some(Queue { controller, number }).ok_or(Status::CONNECT_PARAMETERS);
        }
        if data.controller != ConnectData::NEW {
            return Err(Status::CONNECT_PARAMETERS);
        }
        // Numbers grow, so that a queue of a lost controller never reaches a new one by accident.
        let controller = controllers.last % 0xffef + 1;
        controllers.last = controller;
        let limit = Duration::from_millis(command.word(12).into());
        let new = Controller {
            host: data.host,
            config: 0,
            has_event_request: false,
            // The host promises to send Keep Alive within `limit`. The target waits twice as long, because a
            // busy host may be late.
            limit: (limit != Duration::ZERO).then_some(limit * 2),
            heard: Instant::now(),
            error_log: [0; 64],
            errors: 0,
        };
        controllers.map.insert(controller, new);
        Ok(Queue { controller, number })
    }

    /// Decides on a command of a connected queue.
    pub(crate) fn decide(&self, queue: Queue, command: &Command) -> Result<Step, Status> {
        let mut controllers = self.lock();
        let controller = controllers.map.get_mut(&queue.controller).ok_or(Status::SEQUENCE)?;
        controller.heard = Instant::now();
        let step = match (command.fabrics_type(), queue.number) {
            (Some(kind), _) => controller.property(kind, command),
            (None, 0) => self.admin(controller, queue, command),
            (None, _) => self.io(command),
        }?;
        if matches!(step, Step::Give(_) | Step::Read(_) | Step::Write(_)) && !command.data.is_keyed() {
            return Err(Status::SGL_TYPE);
        }
        Ok(step)
    }

    fn io(&self, command: &Command) -> Result<Step, Status> {
        if !matches!(command.opcode, Command::FLUSH | Command::READ | Command::WRITE) {
            return Err(Status::INVALID_OPCODE);
        }
        if command.namespace != 1 && (command.opcode != Command::FLUSH || command.namespace != u32::MAX) {
            return Err(Status::INVALID_NAMESPACE);
        }
        Ok(match command.opcode {
            Command::FLUSH => Step::Flush,
            Command::READ => Step::Read(Blocks::of(command, &self.geometry)?),
            _ => Step::Write(Blocks::of(command, &self.geometry)?),
        })
    }

    fn admin(&self, controller: &mut Controller, queue: Queue, command: &Command) -> Result<Step, Status> {
        let mut bytes = match command.opcode {
            Command::IDENTIFY => self.identify(queue, command)?,
            Command::GET_LOG_PAGE => match command.word(10) as u8 {
                1 => controller.error_log.to_vec(),
                // The SMART log and the log of firmware slots: both have only zeros.
                2 | 3 => vec![0; 512],
                _ => return Err(Status::INVALID_LOG_PAGE),
            },
            // Feature 7 is the number of I/O queues. The answer 0 grants one submission queue and one
            // completion queue.
            Command::SET_FEATURES if command.word(10) as u8 == 7 => return Ok(Step::Respond(0)),
            Command::SET_FEATURES => return Err(Status::INVALID_FIELD),
            // The answer is that the command was not aborted.
            Command::ABORT => return Ok(Step::Respond(1)),
            Command::KEEP_ALIVE => return Ok(Step::Respond(0)),
            Command::ASYNC_EVENT if controller.has_event_request => return Err(Status::TOO_MANY_EVENTS),
            Command::ASYNC_EVENT => {
                controller.has_event_request = true;
                return Ok(Step::Hold);
            }
            _ => return Err(Status::INVALID_OPCODE),
        };
        // A host may ask for a part of the bytes. Zeros follow a short log.
        bytes.resize(command.data.length().min(PAGE), 0);
        if bytes.is_empty() {
            return Err(Status::SGL_LENGTH);
        }
        Ok(Step::Give(bytes))
    }

    fn identify(&self, queue: Queue, command: &Command) -> Result<Vec<u8>, Status> {
        let mut page = Page(vec![0; PAGE]);
        let namespace = command.namespace.get();
        let mut id = [0_u8; 16];
        for (at, byte) in self.name.bytes().enumerate() {
            id.iter_mut().skip(at % 16).take(1).for_each(|place| *place = place.rotate_left(1) ^ byte);
        }
        match command.word(10) as u8 {
            0 if namespace == 1 => {
                (0..3).for_each(|field| page.put(field * 8, &self.geometry.blocks.to_le_bytes()));
                // FLBAS: format 0 with its metadata at the end of each block. MC: such metadata are possible.
                // DPC and DPS: protection of type 1, in the last bytes of the metadata.
                page.put(26, &[0x10, 1, 0x11, 1]);
                page.put(104, &id);
                let log = self.geometry.data().ilog2() as u8;
                page.put(128, &[super::volume::DIF as u8, 0, log, 0]);
            }
            1 => self.identify_controller(queue, &mut page),
            // The list of the active namespaces whose numbers are greater than `namespace`.
            2 if namespace == 0 => page.put(0, &1_u32.to_le_bytes()),
            2 => {}
            // The list of the namespace's identifiers has one entry: an NGUID of 16 bytes.
            3 if namespace == 1 => {
                page.put(0, &[2, 16]);
                page.put(4, &id);
            }
            0 | 3 => return Err(Status::INVALID_NAMESPACE),
            // The limits of the NVM command set: zeros mean that there are none.
            6 => {}
            _ => return Err(Status::INVALID_FIELD),
        }
        Ok(page.0)
    }

    fn identify_controller(&self, queue: Queue, page: &mut Page) {
        page.text(4, 20, "1");
        page.text(24, 40, "mlx5-mkey example");
        page.text(64, 8, env!("CARGO_PKG_VERSION"));
        page.put(77, &[LOG_MAX_PAGES]);
        page.put(78, &queue.controller.to_le_bytes());
        page.put(80, &VERSION.to_le_bytes());
        // KAS: the time of Keep Alive counts in units of 100 ms.
        page.put(320, &1_u16.to_le_bytes());
        // These bytes give the sizes of queue entries (64 and 16 bytes), then MAXCMD and the number of
        // namespaces.
        page.put(512, &[0x66, 0x44]);
        page.put(514, &DEPTH.to_le_bytes());
        page.put(516, &1_u32.to_le_bytes());
        // VWC: the volume has a cache, hence Linux flushes it.
        page.put(525, &[1]);
        // SGLS: keyed descriptors. No data are in capsules, which have 64 and 16 bytes (IOCCSZ, IORCSZ).
        page.put(536, &5_u32.to_le_bytes());
        page.put(768, self.name.as_bytes());
        page.put(1792, &4_u32.to_le_bytes());
        page.put(1796, &1_u32.to_le_bytes());
        // MSDBD: a command has one data descriptor.
        page.put(1803, &[1]);
    }

    /// Notes a signature error in the error log, and returns the status of its command.
    pub(crate) fn report(
        &self,
        queue: Queue,
        command: &Command,
        blocks: &Blocks,
        error: &SignatureError,
    ) -> Status {
        let status = match error.kind {
            SignatureErrorKind::AppTag => Status::APP_TAG,
            SignatureErrorKind::RefTag => Status::REF_TAG,
            SignatureErrorKind::Guard | SignatureErrorKind::Digest => Status::GUARD,
        };
        let lba = blocks.lba + error.block_index();
        println!("target: LBA {lba}: {error}");
        if let Some(controller) = self.lock().map.get_mut(&queue.controller) {
            controller.errors += 1;
            let mut page = Page(vec![0; 64]);
            page.put(0, &controller.errors.to_le_bytes());
            page.put(8, &queue.number.to_le_bytes());
            page.put(10, &command.id.get().to_le_bytes());
            page.put(12, &status.field().to_le_bytes());
            page.put(16, &lba.to_le_bytes());
            page.put(24, &1_u32.to_le_bytes());
            page.0.iter().zip(&mut controller.error_log).for_each(|(byte, place)| *place = *byte);
        }
        status
    }
}

impl Controller {
    /// Carries out Property Get or Property Set.
    fn property(&mut self, kind: u8, command: &Command) -> Result<Step, Status> {
        const CONFIG: u32 = 0x14;
        let offset = command.word(11);
        let is_enabled = u64::from(self.config & 1);
        // Bits 14 and 15 of CC ask for a shutdown, which is complete at once (CSTS.SHST is 2).
        let shutdown = if self.config >> 14 & 3 == 0 { 0 } else { 2 << 2 };
        match (kind, offset) {
            // CAP: entries of a queue minus 1, which are contiguous; 7.5 s until the controller is ready; the
            // NVM command set.
            (Command::PROPERTY_GET, 0) => {
                Ok(Step::Respond(u64::from(DEPTH - 1) | 1 << 16 | 15 << 24 | 1 << 37))
            }
            (Command::PROPERTY_GET, 8) => Ok(Step::Respond(VERSION.into())),
            (Command::PROPERTY_GET, CONFIG) => Ok(Step::Respond(self.config.into())),
            (Command::PROPERTY_GET, 0x1c) => Ok(Step::Respond(is_enabled | shutdown)),
            (Command::PROPERTY_SET, CONFIG) => {
                self.config = command.word(12);
                Ok(Step::Respond(0))
            }
            (Command::CONNECT, _) => Err(Status::SEQUENCE),
            _ => Err(Status::INVALID_FIELD),
        }
    }
}

/// A page of an answer. Bytes beyond its end are left out.
struct Page(Vec<u8>);

impl Page {
    fn put(&mut self, at: usize, bytes: &[u8]) {
        self.0.iter_mut().skip(at).zip(bytes).for_each(|(place, byte)| *place = *byte);
    }

    /// Writes a text, and spaces behind it.
    fn text(&mut self, at: usize, length: usize, text: &str) {
        self.put(at, &vec![b' '; length]);
        self.put(at, text.as_bytes().get(..length).unwrap_or(text.as_bytes()));
    }
}

#[cfg(test)]
mod tests;
