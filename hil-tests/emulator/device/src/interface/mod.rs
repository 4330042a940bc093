//! The interface of the PCI function for drivers, such as Linux's or one on a bare machine: registers, the
//! command queue, the states from reset to running, doorbells and event queues.
//!
//! The interface reads fields at the offsets of the PRM (`mlx5_ifc.h` and `device.h` of Linux; DEVICE.md,
//! "The command interface of a bare device"). It shares no code with the library's encoders of commands.

mod commands;
mod delivery;
mod ethernet;
mod events;
mod frames;
mod objects;
mod opcode;
mod packets;
mod port;
mod queue_pairs;
mod reception;
mod rings;
mod uar;
mod users;

use crate::device::{Device, Error};
use crate::gids::Gids;
use crate::interface_state::{Interface, Phase, Traffic};
use crate::memory::Memory;
use crate::object::Objects;
use crate::outbound::Outbound;
use ethernet::SEND_QUEUES;
pub use frames::transport_checksum;
pub use uar::announced;

/// Offsets of registers in BAR 0, in bytes.
mod register {
    /// The minor version of the firmware in the upper half, the major version in the lower half.
    pub(super) const FIRMWARE: usize = 0;
    pub(super) const INTERFACE_REVISION: usize = 0x4;
    pub(super) const QUEUE_HIGH: usize = 0x10;
    pub(super) const QUEUE_LOW: usize = 0x14;
    pub(super) const DOORBELL: usize = 0x18;
    pub(super) const INITIALIZING: usize = 0x1fc;
    pub(super) const TIMER_HIGH: usize = 0x1000;
    pub(super) const TIMER_LOW: usize = 0x1004;
    pub(super) const HEALTH_COUNTER: usize = 0x1010;
}

/// The minor version of the firmware.
const MINOR: u32 = 99;

/// The revision of the command interface.
const REVISION: u32 = 5;

/// Logarithms of the number of entries of the command queue, and of the distance in bytes between two
/// entries. The distance differs from the length of an entry, which is 64 bytes.
const LOG_SIZE: u32 = 4;
const LOG_STRIDE: u32 = 7;

/// The state of the driver's interface, in bits 8 to 10 of the register with the lower half of the command
/// queue's address (`MLX5_NIC_IFC_*` of Linux).
mod driver {
    pub(super) const OFFSET: u32 = 8;
    pub(super) const DISABLED: u32 = 1;
    pub(super) const SOFTWARE_RESET: u32 = 7;
}

/// A flag of the register INITIALIZING: a driver may reset the device by the state of the driver's interface
/// (`MLX5_FW_RESET_SUPPORTED_OFFSET` of Linux).
const RESETS: u32 = 1 << 30;

/// The number of reads of INITIALIZING during which the firmware is still starting.
const STARTING: u32 = 3;

impl<M: Memory> Device<M> {
    /// Reads a register of the initialization segment at an offset in bytes. The value is in host byte order.
    /// Offsets without a register read as 0.
    pub fn read_register(&mut self, offset: usize) -> u32 {
        let interface = &mut self.interface;
        match offset {
            register::FIRMWARE => MINOR << 16 | u32::from(self.profile.firmware),
            register::INTERFACE_REVISION => REVISION << 16,
            register::QUEUE_HIGH => interface.high,
            register::QUEUE_LOW => {
                interface.low & !0xfff | interface.driver << driver::OFFSET | LOG_SIZE << 4 | LOG_STRIDE
            }
            register::INITIALIZING => {
                interface.asked = interface.asked.saturating_add(1);
                RESETS | if interface.asked <= STARTING { 1 << 31 } else { 0 }
            }
            register::TIMER_HIGH => (self.clock.ticks() >> 32) as u32,
            register::TIMER_LOW => self.clock.ticks() as u32,
            // A driver considers a device dead if its health counter stands still.
            register::HEALTH_COUNTER => {
                interface.health = interface.health.wrapping_add(1) & 0x00ff_ffff;
                interface.health
            }
            _ => 0,
        }
    }

    /// Writes a register. A write to the doorbell executes the commands in the named entries of the command
    /// queue at once. While the firmware is starting, writes are ignored. A driver resets the device by the
    /// state of its interface (`health.c` of Linux). The interface is then disabled until the driver sets the
    /// address of a command queue.
    pub fn write_register(&mut self, offset: usize, value: u32) {
        if self.interface.asked <= STARTING {
            return;
        }
        match offset {
            register::QUEUE_HIGH => self.interface.high = value,
            register::QUEUE_LOW => match value >> driver::OFFSET & 7 {
                driver::SOFTWARE_RESET => {
                    self.reset_function();
                    self.interface.driver = driver::DISABLED;
                }
                state => {
                    self.interface.low = value & !0xfff;
                    self.interface.driver = state;
                }
            },
            register::DOORBELL => {
                for slot in (0..1 << LOG_SIZE).filter(|slot| value >> slot & 1 != 0) {
                    let queue = u64::from(self.interface.high) << 32 | u64::from(self.interface.low);
                    let is_told = self.interface.is_told(events::kind::COMMAND);
                    let is_done = self.take_command(queue.wrapping_add(slot << LOG_STRIDE));
                    if is_done && is_told {
                        self.interface.completed |= 1 << slot;
                    }
                }
            }
            _ => {}
        }
    }

    /// Resets the PCI function: destroys all objects and the state of the command interface. The firmware
    /// starts again. Settings of the device, such as its profile and its clock, stay.
    pub fn reset_function(&mut self) {
        self.drop_objects();
        self.interface = Interface::default();
    }

    /// Puts the device on a network of devices, from now on and after resets of the PCI function. Queue pairs
    /// get numbers from `first` to `last`. The caller ensures that no other device of the network has these
    /// numbers. A GID that is not the port's leads to another device.
    ///
    /// # Errors
    /// [`Error::BadAttribute`] for an empty range, or for numbers from 0xf0_0000 on, which belong to the send
    /// queues of packets.
    pub fn join(&mut self, first: u32, last: u32) -> Result<(), Error> {
        if first > last || last >= SEND_QUEUES.start {
            return Err(Error::BadAttribute("object numbers"));
        }
        self.network = Some((first, last));
        self.apply_network();
        Ok(())
    }

    /// Sets the range of queue pair numbers and the GIDs of the network, if the device is on a network.
    fn apply_network(&mut self) {
        if let Some((first, last)) = self.network {
            self.objects.qps.set_range(first, last);
            self.gids.reach_all();
        }
    }

    /// Destroys all objects, with their events and the messages between them.
    fn drop_objects(&mut self) {
        self.objects = Objects::new();
        self.active.clear();
        self.waiting.clear();
        self.stalled.clear();
        self.failed.clear();
        self.local.clear();
        self.events.clear();
        self.held.clear();
        self.outbound = Outbound::default();
        self.gids = Gids::new(self.profile.port_gid);
        self.apply_network();
        // The completion entries that the gate holds back belong to queues that no longer exist.
        drop(self.gate.open());
        self.memory.close_all();
        let interface = &mut self.interface;
        interface.uars.clear();
        interface.eqs.clear();
        interface.cqs.clear();
        interface.numbers.clear();
        interface.owners.clear();
        interface.umems.clear();
        interface.over_umems.clear();
        interface.opaques.clear();
        interface.contexts.clear();
        interface.completed = 0;
        interface.page_request = None;
        interface.more_pages = false;
        interface.blue_flame = None;
        interface.packets.clear();
        interface.traffic = Traffic::default();
        interface.receivers.clear();
        interface.received = Traffic::default();
        interface.frames.clear();
    }

    /// Returns the state of the command interface.
    pub const fn phase(&self) -> Phase {
        self.interface.phase
    }

    /// Returns the number of pages that the firmware has.
    pub fn firmware_pages(&self) -> usize {
        self.interface.pages.len()
    }
}
