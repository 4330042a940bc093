//! The command interface, as a machine without a driver sees it: registers, the command queue, and the states from reset to running.
//!
//! It reads words at the offsets of the PRM (`mlx5_ifc.h` and `device.h` of Linux; DEVICE.md, "The command
//! interface of a bare device"), and shares nothing with what writes them.

mod commands;
mod delivery;
mod objects;
mod reply;
mod request;

use crate::device::Device;
use crate::memory::Memory;
use alloc::collections::BTreeSet;
use alloc::vec::Vec;

/// Registers, in bytes from the beginning of BAR 0.
mod register {
    pub(super) const INTERFACE_REVISION: usize = 0x4;
    pub(super) const QUEUE_HIGH: usize = 0x10;
    pub(super) const QUEUE_LOW: usize = 0x14;
    pub(super) const DOORBELL: usize = 0x18;
    pub(super) const INITIALIZING: usize = 0x1fc;
}

/// The revision of the command interface.
const REVISION: u32 = 5;

/// Logarithms of the entries, and of the bytes from one to the next: not the 64 of an entry, which is another power of two.
const LOG_SIZE: u32 = 4;
const LOG_STRIDE: u32 = 7;

/// How often the firmware is still starting when it is asked.
const STARTING: u32 = 3;

/// What the device does with commands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Phase {
    /// Takes ENABLE_HCA and nothing else.
    #[default]
    Reset,
    /// Takes what prepares it.
    Enabled,
    /// Makes objects.
    Running,
}

/// The command interface of one device.
#[derive(Debug, Default)]
pub(crate) struct Interface {
    /// How often INITIALIZING was read.
    asked: u32,
    high: u32,
    low: u32,
    phase: Phase,
    /// Pages that the firmware was given.
    pages: Vec<u64>,
    uars: BTreeSet<u32>,
    eqs: BTreeSet<u32>,
}

impl<M: Memory> Device<M> {
    /// Reads a register of the initialization segment, whose place is in bytes; the value is a number. There is nothing but 0 between
    /// them.
    pub fn read_register(&mut self, offset: usize) -> u32 {
        let interface = &mut self.interface;
        match offset {
            register::INTERFACE_REVISION => REVISION << 16,
            register::QUEUE_HIGH => interface.high,
            register::QUEUE_LOW => interface.low & !0xfff | LOG_SIZE << 4 | LOG_STRIDE,
            register::INITIALIZING => {
                interface.asked = interface.asked.saturating_add(1);
                if interface.asked <= STARTING { 1 << 31 } else { 0 }
            }
            _ => 0,
        }
    }

    /// Writes a register. The doorbell has the device carry out the entries that it names, at once. A device that is still starting
    /// hears nothing.
    pub fn write_register(&mut self, offset: usize, value: u32) {
        if self.interface.asked <= STARTING {
            return;
        }
        match offset {
            register::QUEUE_HIGH => self.interface.high = value,
            register::QUEUE_LOW => self.interface.low = value & !0xfff,
            register::DOORBELL => {
                for slot in (0..1 << LOG_SIZE).filter(|slot| value >> slot & 1 != 0) {
                    let queue = u64::from(self.interface.high) << 32 | u64::from(self.interface.low);
                    self.take_command(queue.wrapping_add(slot << LOG_STRIDE));
                }
            }
            _ => {}
        }
    }

    /// Returns in which state the command interface is.
    pub const fn phase(&self) -> Phase {
        self.interface.phase
    }

    /// Returns how many pages the firmware has.
    pub fn firmware_pages(&self) -> usize {
        self.interface.pages.len()
    }
}
