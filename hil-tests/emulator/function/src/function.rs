//! The PCI function: regions that are read and written, interrupts, resets, and the device behind them.

use crate::config::{BAR_BYTES, BYTES, ConfigSpace, Model, PENDING, TABLE, VECTORS};
use crate::memory::{GuestMemory, MapError, Rights};
use mlx5_softdev::{Device, DeviceProfile};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::os::fd::OwnedFd;

/// Regions, by their numbers in VFIO.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Region {
    /// BAR 0: initialization segment, vectors, doorbells.
    Bar,
    /// The configuration space.
    Config,
}

impl Region {
    /// How many numbers there are (`VFIO_PCI_NUM_REGIONS`).
    pub const COUNT: u32 = 9;

    /// Returns the region of a number.
    pub const fn numbered(number: u32) -> Option<Self> {
        match number {
            0 => Some(Self::Bar),
            7 => Some(Self::Config),
            _ => None,
        }
    }

    /// Returns its bytes.
    pub const fn bytes(self) -> u64 {
        match self {
            Self::Bar => BAR_BYTES,
            Self::Config => BYTES as u64,
        }
    }
}

/// Why the function refuses what a client asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// It reaches outside of its region, or there is none.
    Range,
    /// There are no such interrupts.
    Interrupt,
    /// Memory is not mapped.
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

/// Bytes of BAR 0 before the doorbells, of which registers are words.
const REGISTERS: u64 = 0x10000;

/// The software device as a PCI function.
#[derive(Debug)]
pub struct Function {
    config: ConfigSpace,
    device: Device<GuestMemory>,
    /// What the host has written into the table of vectors: who delivers interrupts, the client, looks at it.
    table: [u8; (TABLE.end - TABLE.start) as usize],
    vectors: [Option<OwnedFd>; VECTORS as usize],
}

impl Function {
    /// Makes a function in reset.
    pub fn new(model: Model, profile: DeviceProfile) -> Self {
        Self {
            config: ConfigSpace::new(model, profile.port),
            device: Device::new(GuestMemory::default(), profile),
            table: [0; (TABLE.end - TABLE.start) as usize],
            vectors: [const { None }; VECTORS as usize],
        }
    }

    /// Returns the device behind it.
    pub fn device_mut(&mut self) -> &mut Device<GuestMemory> {
        &mut self.device
    }

    /// Reads a region.
    ///
    /// # Errors
    /// [`Refusal::Range`].
    pub fn read(&mut self, region: Region, offset: u64, out: &mut [u8]) -> Result<(), Refusal> {
        inside(region, offset, out.len())?;
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
    /// [`Refusal::Range`].
    pub fn write(&mut self, region: Region, offset: u64, bytes: &[u8]) -> Result<(), Refusal> {
        inside(region, offset, bytes.len())?;
        match region {
            Region::Config => {
                let asked = self.config.write(offset as usize, bytes);
                if asked.reset {
                    self.reset();
                }
                self.device.memory_mut().is_open = self.config.is_master();
            }
            Region::Bar if offset >= REGISTERS => self.device.write_uar(offset, bytes),
            Region::Bar if TABLE.contains(&offset) => {
                let first = (offset - TABLE.start) as usize;
                self.table.iter_mut().skip(first).zip(bytes).for_each(|(to, from)| *to = *from);
            }
            Region::Bar => {
                let (words, _) = bytes.as_chunks::<4>();
                // A register hears whole words only.
                if offset.is_multiple_of(4) {
                    for (place, word) in (offset as usize..).step_by(4).zip(words) {
                        self.device.write_register(place, u32::from_be_bytes(*word));
                    }
                }
            }
        }
        self.raise();
        Ok(())
    }

    /// Reads what is before the doorbells: each word that a range touches once.
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
                word = (begin, self.device.read_register(begin as usize).to_be_bytes());
            }
            *byte = word.1.get((place & 3) as usize).copied().unwrap_or_default();
        }
    }

    /// Resets the function. What the client has mapped, and the descriptors of interrupts, are the client's
    /// and stay.
    pub fn reset(&mut self) {
        self.config.reset();
        self.device.reset_function();
        self.device.memory_mut().is_open = false;
        self.table.fill(0);
    }

    /// Forgets all that was the client's, which has gone.
    pub fn disconnect(&mut self) {
        self.reset();
        self.device.memory_mut().unmap_all();
        self.vectors = [const { None }; VECTORS as usize];
    }

    /// Maps memory of the client.
    ///
    /// # Errors
    /// [`Refusal::Map`].
    pub fn map(
        &mut self,
        address: u64,
        length: u64,
        rights: Rights,
        file: Option<(&OwnedFd, u64)>,
    ) -> Result<(), Refusal> {
        self.device.memory_mut().map(address, length, rights, file).map_err(Refusal::Map)
    }

    /// Takes memory of the client back; all of it without a range.
    ///
    /// # Errors
    /// [`Refusal::Map`] where part of something that is mapped would be left.
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

    /// Returns how many vectors there are.
    pub const fn vectors() -> u32 {
        VECTORS as u32
    }

    /// Has descriptors tell of vectors from `first` on, `None` for those of which nothing tells.
    ///
    /// # Errors
    /// [`Refusal::Interrupt`] where there are not so many: nothing has changed then.
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

    /// Raises vectors as a client asks for it.
    ///
    /// # Errors
    /// [`Refusal::Interrupt`].
    pub fn trigger(&mut self, first: u32, count: u32) -> Result<(), Refusal> {
        let end = first.checked_add(count).filter(|end| *end <= Self::vectors()).ok_or(Refusal::Interrupt)?;
        (first..end).for_each(|vector| self.interrupt(vector as usize));
        Ok(())
    }

    /// Does what is due without a doorbell: the rest of a block does not come, a receiver was not ready.
    /// Returns whether more is.
    pub fn run(&mut self) -> bool {
        self.device.settle_doorbells();
        if self.device.is_waiting() {
            self.device.run();
        }
        self.raise();
        self.is_due()
    }

    /// Returns whether [`Function::run`] has something to do.
    pub fn is_due(&self) -> bool {
        self.device.has_open_doorbell() || self.device.is_waiting()
    }

    /// Tells the client of interrupts.
    fn raise(&mut self) {
        for vector in self.device.take_interrupts() {
            self.interrupt(vector.into());
        }
    }

    fn interrupt(&self, vector: usize) {
        let Some(Some(descriptor)) = self.vectors.get(vector) else { return };
        // A descriptor on which a write would wait is not waited for: whoever reads it learns of one
        // interrupt instead of two.
        let mut polled = [PollFd::new(descriptor, PollFlags::OUT)];
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        if poll(&mut polled, Some(&now)) == Ok(1) {
            let _ = rustix::io::write(descriptor, &1_u64.to_ne_bytes());
        }
    }
}

/// Refuses what reaches outside of a region.
fn inside(region: Region, offset: u64, length: usize) -> Result<(), Refusal> {
    let end = offset.checked_add(length as u64).ok_or(Refusal::Range)?;
    if end <= region.bytes() { Ok(()) } else { Err(Refusal::Range) }
}
