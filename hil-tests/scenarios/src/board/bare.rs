//! A device that no driver has: registers, memory that it reaches, and a doorbell. Here the software device in reset.

#![allow(unsafe_code)]

use super::HostMemory;
use alloc::boxed::Box;
use alloc::rc::Rc;
use alloc::vec;
use alloc::vec::Vec;
use core::cell::RefCell;
use embedded_hal::delay::DelayNs;
use mlx5_mkey::command::UarPage;
use mlx5_mkey::hca::{CommandMemory, Register, Registers};
use mlx5_mkey::queue::{CqDoorbellRecord, Doorbell, DoorbellRecord, LastRequest};
use mlx5_mkey::wire::Wqebb;
use mlx5_mkey::wire::cqe::Cqe;
use mlx5_softdev::{Device, DeviceProfile, Memory};

/// Blocks of a send ring, and entries of a completion queue: a page of each.
const BLOCKS: usize = 64;

/// Rings and records of a queue pair with a send queue, and where the device reaches them. Rings have a page each, and their memory
/// is never given back.
pub struct BareRings {
    /// The send ring.
    pub blocks: (&'static mut [Wqebb], u64),
    /// Its doorbell record.
    pub record: (&'static DoorbellRecord, u64),
    /// The completion queue's entries, unwritten.
    pub entries: (&'static mut [Cqe], u64),
    /// Its doorbell record.
    pub cq_record: (&'static CqDoorbellRecord, u64),
}

/// What a machine gives whoever drives the device.
pub trait Bare {
    /// Returns the window of registers.
    fn registers(&mut self) -> Box<dyn Registers>;

    /// Returns the doorbell of a UAR page.
    fn doorbell(&mut self, page: UarPage) -> Box<dyn Doorbell>;

    /// Returns something that waits.
    fn delay(&mut self) -> Box<dyn DelayNs>;

    /// Returns memory for the command queue, and where the device reaches it.
    fn command_memory(&mut self) -> (&'static mut CommandMemory<16>, u64);

    /// Returns rings.
    fn rings(&mut self) -> BareRings;

    /// Returns where the device reaches this number of pages of zeros.
    fn pages(&mut self, count: u32) -> u64;

    /// Reads memory by the device's address.
    fn read(&self, address: u64, length: usize) -> Vec<u8>;

    /// Writes memory by the device's address.
    fn write(&mut self, address: u64, bytes: &[u8]);
}

/// The software device, shared by its registers and its doorbells as a device is.
#[derive(Clone)]
pub(super) struct SoftBare(Rc<RefCell<Device<HostMemory>>>);

impl SoftBare {
    /// Makes a device in reset that reaches this memory.
    pub(super) fn new(memory: HostMemory) -> Self {
        Self(Rc::new(RefCell::new(Device::new(memory, DeviceProfile::default()))))
    }
}

impl Registers for SoftBare {
    fn read(&mut self, register: Register) -> u32 {
        self.0.borrow_mut().read_register(register.offset())
    }

    fn write(&mut self, register: Register, value: u32) {
        self.0.borrow_mut().write_register(register.offset(), value);
    }
}

impl Doorbell for SoftBare {
    fn ring(&mut self, _: &LastRequest<'_>) {
        self.0.borrow_mut().run();
    }
}

/// The device does what it has to before anybody looks.
struct NoTime;

impl DelayNs for NoTime {
    fn delay_ns(&mut self, _: u32) {}
}

impl Bare for SoftBare {
    fn registers(&mut self) -> Box<dyn Registers> {
        Box::new(self.clone())
    }

    fn doorbell(&mut self, _: UarPage) -> Box<dyn Doorbell> {
        Box::new(self.clone())
    }

    fn delay(&mut self) -> Box<dyn DelayNs> {
        Box::new(NoTime)
    }

    fn command_memory(&mut self) -> (&'static mut CommandMemory<16>, u64) {
        let address = self.0.borrow_mut().memory_mut().alloc(size_of::<CommandMemory<16>>());
        let memory = core::ptr::with_exposed_provenance_mut::<CommandMemory<16>>(address as usize);
        // SAFETY: these pages of zeros are aligned, long enough and given to nobody else, and never given back; any bytes are such
        // memory. The command queue takes the reference and never reads through it.
        (unsafe { &mut *memory }, address)
    }

    fn rings(&mut self) -> BareRings {
        let mut device = self.0.borrow_mut();
        let memory = device.memory_mut();
        // SAFETY: rings and records go into queues of the library; the device only reads records.
        unsafe {
            BareRings {
                blocks: memory.share(Wqebb::ZERO, BLOCKS),
                record: memory.share_record(),
                entries: memory.share(Cqe::UNWRITTEN, BLOCKS),
                cq_record: memory.share_record(),
            }
        }
    }

    fn pages(&mut self, count: u32) -> u64 {
        self.0.borrow_mut().memory_mut().alloc(count as usize * 4096)
    }

    fn read(&self, address: u64, length: usize) -> Vec<u8> {
        let mut bytes = vec![0; length];
        self.0.borrow().memory().read(address, &mut bytes).expect("memory of this device");
        bytes
    }

    fn write(&mut self, address: u64, bytes: &[u8]) {
        self.0.borrow_mut().memory_mut().write(address, bytes).expect("memory of this device");
    }
}
