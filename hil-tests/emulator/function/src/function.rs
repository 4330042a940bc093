//! The PCI function: its regions, interrupts, resets, and the device behind it.

use crate::config::{BAR_BYTES, BYTES, ConfigSpace, Model, PENDING, TABLE, VECTORS};
use crate::memory::{GuestMemory, MapError, Rights};
use crate::network::Network;
use crate::planned::Planned;
use crate::times::Times;
use mlx5_faults::Ending;
use mlx5_plan::Plan;
use mlx5_softdev::{Device, DeviceProfile};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::fs::File;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::time::Instant;

/// The regions of the function that a client can access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Region {
    /// BAR 0: initialization segment, vectors, doorbells.
    Bar,
    /// The configuration space.
    Config,
}

impl Region {
    /// The number of regions of a PCI device in VFIO (`VFIO_PCI_NUM_REGIONS`). This function has two of them.
    pub const COUNT: u32 = 9;

    /// Returns the region with this VFIO number.
    pub const fn numbered(number: u32) -> Option<Self> {
        match number {
            0 => Some(Self::Bar),
            7 => Some(Self::Config),
            _ => None,
        }
    }

    /// Returns the region's length in bytes.
    pub const fn bytes(self) -> u64 {
        match self {
            Self::Bar => BAR_BYTES,
            Self::Config => BYTES as u64,
        }
    }
}

/// The reason for which the function refuses a client's request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The access reaches outside of its region, or the region does not exist.
    Range,
    /// The interrupts do not exist.
    Interrupt,
    /// The memory cannot be mapped.
    Map(MapError),
}

impl core::fmt::Display for Refusal {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::Range => f.write_str("no such place in a region"),
            Self::Interrupt => f.write_str("no such interrupts"),
            Self::Map(error) => write!(f, "{error}"),
        }
    }
}

impl core::error::Error for Refusal {}

/// The number of bytes of BAR 0 before the doorbells. Registers there are accessed as words of 4 bytes.
const REGISTERS: u64 = 0x10000;

/// Registers in BAR 0 by which a device reports that it has failed (`struct health_buffer` of Linux): their
/// offsets, and their values after a failure.
mod health {
    pub(super) const INITIALIZING: u64 = 0x1fc;
    /// The value at `INITIALIZING`: a driver may reset the device.
    pub(super) const RESETS: u32 = 1 << 30;
    pub(super) const SEVERITY: u64 = 0x238;
    pub(super) const SYNDROME: u64 = 0x23c;
    /// The value at `SEVERITY`: the driver has to reset the function (`rfr`).
    pub(super) const FATAL: u32 = 1 << 31;
    /// The value at `SYNDROME`: the firmware has an internal error.
    pub(super) const INTERNAL_ERROR: u32 = 1 << 16;
}

/// The software device as a PCI function.
#[derive(Debug)]
pub struct Function {
    config: ConfigSpace,
    device: Device<GuestMemory>,
    /// The table of vectors, as the host has written it. The function does not use the table: the client
    /// reads it to deliver interrupts.
    table: [u8; (TABLE.end - TABLE.start) as usize],
    vectors: [Option<OwnedFd>; VECTORS as usize],
    planned: Option<Planned>,
    /// How the device has ended, if a planned fault has ended it.
    ended: Option<Ending>,
    times: Option<Times>,
    network: Option<Network>,
}

impl Function {
    /// Makes a function in the state after a reset.
    pub fn new(model: Model, profile: DeviceProfile) -> Self {
        Self {
            config: ConfigSpace::new(model, profile.port),
            device: Device::new(GuestMemory::default(), profile),
            table: [0; (TABLE.end - TABLE.start) as usize],
            vectors: [const { None }; VECTORS as usize],
            planned: None,
            ended: None,
            times: None,
            network: None,
        }
    }

    /// Writes the count of send doorbells and the time that the device takes for them into a file, from now
    /// on.
    pub fn time_doorbells(&mut self, file: File) {
        self.times = Some(Times::new(file));
    }

    /// Makes the device fail as a plan says, from now on. Each fault calls `tell` with a sentence about it.
    pub fn plan(&mut self, plan: Plan, tell: impl FnMut(&str) + Send + 'static) {
        self.planned = Some(Planned::new(plan, &mut self.device, Box::new(tell)));
    }

    /// Puts the function on a network. The caller ensures that the function's profile has the network's GID
    /// ([`Network::gid`]).
    pub fn join(&mut self, network: Network) {
        let (first, last) = network.numbers();
        // The call fails only for an invalid range of numbers. A network's range is valid.
        let _ = self.device.join(first, last);
        self.network = Some(network);
        self.raise();
    }

    /// Asks the peers on the network to wake this process when they send, and returns the descriptors that
    /// become readable when messages arrive. Without a network, there are none.
    pub fn prepare_sleep(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.network.iter().flat_map(Network::prepare_sleep)
    }

    /// Takes messages and frames of the network.
    pub fn receive(&mut self) {
        if let Some(network) = &mut self.network {
            network.receive(&mut self.device);
        }
        self.raise();
    }

    /// Returns the device behind the function.
    pub fn device_mut(&mut self) -> &mut Device<GuestMemory> {
        &mut self.device
    }

    /// Reads a region.
    ///
    /// # Errors
    /// [`Refusal::Range`] for an access outside of the region.
    pub fn read(&mut self, region: Region, offset: u64, out: &mut [u8]) -> Result<(), Refusal> {
        inside(region, offset, out.len())?;
        if self.ended == Some(Ending::Removed) {
            // All reads of a PCI device that was removed return ones.
            out.fill(0xff);
            return Ok(());
        }
        match region {
            Region::Config => self.config.read(offset as usize, out),
            Region::Bar => {
                out.fill(0);
                if offset < REGISTERS {
                    self.read_registers(offset, out);
                }
            }
        }
        self.raise();
        Ok(())
    }

    /// Writes a region.
    ///
    /// # Errors
    /// [`Refusal::Range`] for an access outside of the region.
    pub fn write(&mut self, region: Region, offset: u64, bytes: &[u8]) -> Result<(), Refusal> {
        inside(region, offset, bytes.len())?;
        match region {
            _ if self.ended == Some(Ending::Removed) => {}
            // A device that has failed takes no command and no doorbell until a driver resets it.
            Region::Bar if self.ended.is_some() && !is_reset(offset, bytes) => {}
            Region::Config => {
                if self.config.write(offset as usize, bytes) {
                    self.reset();
                }
                self.device.memory_mut().is_open = self.config.is_master() && self.ended.is_none();
            }
            Region::Bar if offset >= REGISTERS => {
                let begin = self.times.is_some().then(Instant::now);
                self.device.write_uar(offset, bytes);
                if let (Some(times), Some(begin)) = (&mut self.times, begin.filter(|_| is_send(offset))) {
                    times.add(begin);
                }
            }
            Region::Bar if TABLE.contains(&offset) => {
                let first = (offset - TABLE.start) as usize;
                self.table.iter_mut().skip(first).zip(bytes).for_each(|(to, from)| *to = *from);
            }
            Region::Bar => {
                if self.ended.take().is_some() {
                    self.device.memory_mut().is_open = self.config.is_master();
                }
                let (words, _) = bytes.as_chunks::<4>();
                // Registers take only whole words.
                if offset.is_multiple_of(4) {
                    for (place, word) in (offset as usize..).step_by(4).zip(words) {
                        self.device.write_register(place, u32::from_be_bytes(*word));
                    }
                    // A command may have moved a queue pair to the error state. The device now flushes the
                    // requests of this queue pair.
                    self.device.settle();
                }
            }
        }
        self.raise();
        Ok(())
    }

    /// Reads bytes of BAR 0 before the doorbells. Each register among them is read once, even if several of
    /// its bytes are read.
    fn read_registers(&mut self, offset: u64, out: &mut [u8]) {
        let mut word = (u64::MAX, [0; 4]);
        for (place, byte) in (offset..).zip(out) {
            if TABLE.contains(&place) {
                *byte = self.table.get((place - TABLE.start) as usize).copied().unwrap_or_default();
                continue;
            }
            let begin = place & !3;
            if PENDING.contains(&place) {
                continue;
            }
            if word.0 != begin {
                let value = match (self.ended, begin) {
                    (None, _) => self.device.read_register(begin as usize),
                    (Some(_), health::INITIALIZING) => health::RESETS,
                    (Some(_), health::SEVERITY) => health::FATAL,
                    (Some(_), health::SYNDROME) => health::INTERNAL_ERROR,
                    // All other registers read 0. The health counter is one of them: a driver sees that the
                    // counter stands still, and takes the device for failed.
                    (Some(_), _) => 0,
                };
                word = (begin, value.to_be_bytes());
            }
            *byte = word.1.get((place & 3) as usize).copied().unwrap_or_default();
        }
    }

    /// Resets the function. The client's mappings and interrupt descriptors stay.
    pub fn reset(&mut self) {
        if self.ended == Some(Ending::Failed) {
            self.ended = None;
        }
        self.config.reset();
        self.device.reset_function();
        self.device.memory_mut().is_open = false;
        self.table.fill(0);
        if let Some(network) = &mut self.network {
            network.reset();
        }
    }

    /// Resets the function and forgets all mappings and descriptors of the client, which has disconnected.
    pub fn disconnect(&mut self) {
        self.ended = None;
        self.reset();
        self.device.memory_mut().unmap_all();
        self.vectors = [const { None }; VECTORS as usize];
    }

    /// Maps memory of the client.
    ///
    /// # Errors
    /// [`Refusal::Map`] with the reason.
    pub fn map(
        &mut self,
        address: u64,
        length: u64,
        rights: Rights,
        file: Option<(&OwnedFd, u64)>,
    ) -> Result<(), Refusal> {
        self.device.memory_mut().map(address, length, rights, file).map_err(Refusal::Map)
    }

    /// Unmaps a range (address and length) of the client's memory, or all memory if `range` is `None`.
    ///
    /// # Errors
    /// [`Refusal::Map`] if a part of a mapping would remain.
    pub fn unmap(&mut self, range: Option<(u64, u64)>) -> Result<(), Refusal> {
        let memory = self.device.memory_mut();
        match range {
            None => memory.unmap_all(),
            Some((address, length)) if !memory.unmap(address, length) => {
                return Err(Refusal::Map(MapError::Overlap));
            }
            Some(_) => {}
        }
        Ok(())
    }

    /// Returns the number of vectors.
    pub const fn vectors() -> u32 {
        VECTORS as u32
    }

    /// Sets the descriptors that signal the vectors from `first` on. A vector with `None` is not signalled.
    ///
    /// # Errors
    /// [`Refusal::Interrupt`] if some of the vectors do not exist. No descriptor has changed then.
    pub fn set_vectors(
        &mut self,
        first: u32,
        descriptors: impl ExactSizeIterator<Item = Option<OwnedFd>>,
    ) -> Result<(), Refusal> {
        let first = first as usize;
        let places = first.checked_add(descriptors.len()).and_then(|end| self.vectors.get_mut(first..end));
        places.ok_or(Refusal::Interrupt)?.iter_mut().zip(descriptors).for_each(|(to, from)| *to = from);
        Ok(())
    }

    /// Raises `count` vectors, from `first` on, at a client's request.
    ///
    /// # Errors
    /// [`Refusal::Interrupt`] if some of the vectors do not exist.
    pub fn trigger(&mut self, first: u32, count: u32) -> Result<(), Refusal> {
        let end = first.checked_add(count).filter(|end| *end <= Self::vectors()).ok_or(Refusal::Interrupt)?;
        (first..end).for_each(|vector| self.interrupt(vector as usize));
        Ok(())
    }

    /// Does the work that is due without a new doorbell. Executes a doorbell whose BlueFlame block has not
    /// arrived completely. Repeats requests whose receiver was not ready. Flushes receive requests of failed
    /// queue pairs. Returns whether more work is due.
    pub fn run(&mut self) -> bool {
        self.device.settle_doorbells();
        self.device.release();
        if self.device.is_waiting() {
            self.device.run();
        } else {
            self.device.settle();
        }
        self.receive();
        self.is_due()
    }

    /// Returns whether [`Function::run`] has work.
    pub fn is_due(&self) -> bool {
        self.device.has_open_doorbell()
            || self.device.is_waiting()
            || self.device.has_failed()
            || self.device.holds_entries()
            || self.network.as_ref().is_some_and(Network::is_due)
    }

    /// Sends messages to the network, and signals raised interrupts to the client. If the plan of faults has
    /// ended the device, the interrupts are dropped instead.
    fn raise(&mut self) {
        if let Some(network) = &mut self.network {
            network.transmit(&mut self.device);
        }
        if let Some(ending) = self.planned.as_ref().and_then(Planned::ending) {
            self.ended = Some(ending);
            self.device.memory_mut().is_open = false;
        }
        if self.ended.is_some() {
            self.device.take_interrupts();
            return;
        }
        for vector in self.device.take_interrupts() {
            self.interrupt(vector.into());
        }
    }

    fn interrupt(&self, vector: usize) {
        let Some(Some(descriptor)) = self.vectors.get(vector) else { return };
        // A write to an eventfd whose counter is full would block, and is skipped. The client then learns of
        // one interrupt instead of two.
        let mut polled = [PollFd::new(descriptor, PollFlags::OUT)];
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        if poll(&mut polled, Some(&now)) == Ok(1) {
            let _ = rustix::io::write(descriptor, &1_u64.to_ne_bytes());
        }
    }
}

/// Returns whether a write to BAR 0 resets the device: the write sets the state of the driver's interface to
/// "reset" (`MLX5_NIC_IFC_SW_RESET` in `health.c` of Linux).
fn is_reset(offset: u64, bytes: &[u8]) -> bool {
    const QUEUE_LOW: u64 = 0x14;
    offset == QUEUE_LOW && bytes.try_into().is_ok_and(|word| u32::from_be_bytes(word) >> 8 & 7 == 7)
}

/// Returns whether a place in BAR 0 is a send doorbell of a UAR page (`MLX5_BF_OFFSET` of Linux).
const fn is_send(offset: u64) -> bool {
    offset % 4096 >= 0x800
}

/// Refuses an access that reaches outside of a region.
fn inside(region: Region, offset: u64, length: usize) -> Result<(), Refusal> {
    let end = offset.checked_add(length as u64).ok_or(Refusal::Range)?;
    if end <= region.bytes() { Ok(()) } else { Err(Refusal::Range) }
}
