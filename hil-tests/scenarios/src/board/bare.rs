//! The trait [`Bare`]: a device in reset as a driver sees it, with registers, doorbells, and memory that the
//! device can access. Also its implementation by a software device.

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

/// Number of blocks of a send ring, and number of entries of a completion queue. Each ring fills a page.
const BLOCKS: usize = 64;

/// The memory of a queue pair with only a send queue, and of its completion queue: rings and doorbell
/// records, each with the address by which the device accesses it. Each ring has a page of its own. The
/// memory is never freed.
pub struct BareRings {
    /// The send ring.
    pub blocks: (&'static mut [Wqebb], u64),
    /// The doorbell record of the queue pair.
    pub record: (&'static DoorbellRecord, u64),
    /// The entries of the completion queue, none of which the device has written.
    pub entries: (&'static mut [Cqe], u64),
    /// The doorbell record of the completion queue (its consumer index).
    pub cq_record: (&'static CqDoorbellRecord, u64),
}

/// A machine with a device in reset, as a driver sees it.
pub trait Bare {
    /// Returns the registers of the device.
    fn registers(&mut self) -> Box<dyn Registers>;

    /// Returns the doorbell register in a UAR page.
    fn doorbell(&mut self, page: UarPage) -> Box<dyn Doorbell>;

    /// Returns a delay, by which the driver waits between two polls.
    fn delay(&mut self) -> Box<dyn DelayNs>;

    /// Returns memory for the command queue, and the address by which the device accesses it.
    fn command_memory(&mut self) -> (&'static mut CommandMemory<16>, u64);

    /// Returns new memory for a queue pair and its completion queue.
    fn rings(&mut self) -> BareRings;

    /// Allocates `count` pages of zeros. Returns the address by which the device accesses them.
    fn pages(&mut self, count: u32) -> u64;

    /// Reads memory at an address of the device.
    fn read(&self, address: u64, length: usize) -> Vec<u8>;

    /// Writes memory at an address of the device.
    fn write(&mut self, address: u64, bytes: &[u8]);
}

/// A software device in reset. Clones refer to the same device, so the registers and doorbells that the board
/// hands out are clones.
#[derive(Clone)]
pub(super) struct SoftBare(Rc<RefCell<Device<HostMemory>>>);

impl SoftBare {
    /// Makes a device in reset that accesses this memory.
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
    fn ring(&mut self, last: &LastRequest<'_>) {
        // Bytes 4 to 6 of the control segment are the queue pair number. An error is ignored, because
        // hardware also ignores a doorbell with an unknown number.
        let [_, _, _, _, a, b, c, _] = last.control();
        let _ = self.0.borrow_mut().doorbell(u32::from_be_bytes([0, a, b, c]));
    }
}

/// A delay that returns at once. The driver need not wait, because the software device acts at once.
#[derive(Debug)]
pub struct NoTime;

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
        // SAFETY: `alloc` returns pages of zeros that are aligned, long enough, never freed and used by
        // nobody else. Any bytes are a valid `CommandMemory`. The device writes to this memory, but the
        // command queue that takes the reference reads only through raw pointers.
        (unsafe { &mut *memory }, address)
    }

    fn rings(&mut self) -> BareRings {
        let mut device = self.0.borrow_mut();
        let memory = device.memory_mut();
        // SAFETY: rings and records go into queues of the library. The device only reads records.
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
