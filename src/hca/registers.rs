//! The registers that the command queue accesses. They are in the initialization segment, at the beginning of
//! BAR 0.

#![allow(unsafe_code)]

use crate::wire::prm::command_queue::offset;
use core::ptr::NonNull;

/// A register that the command queue accesses: a word of 32 bits in the initialization segment, at the
/// beginning of BAR 0.
///
/// ```
/// use mlx5_mkey::hca::{Register, Registers};
/// /// Registers that are accessed through a debugger.
/// struct Probe(fn(usize) -> u32, fn(usize, u32));
/// impl Registers for Probe {
///     fn read(&mut self, register: Register) -> u32 {
///         self.0(register.offset())
///     }
///     fn write(&mut self, register: Register, value: u32) {
///         self.1(register.offset(), value);
///     }
/// }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
#[non_exhaustive]
pub enum Register {
    /// Revision of the command interface.
    InterfaceRevision,
    /// Upper half of the command queue's address.
    QueueHigh,
    /// Lower half of the command queue's address, and the number and size of its entries.
    QueueLow,
    /// Doorbell of the command queue: bit n stands for entry n.
    Doorbell,
    /// State of the firmware: whether it is ready, and whether the PCI function belongs to embedded cores.
    Initializing,
}

impl Register {
    /// Returns the register's offset in BAR 0, in bytes.
    pub const fn offset(self) -> usize {
        match self {
            Self::InterfaceRevision => offset::INTERFACE_REVISION,
            Self::QueueHigh => offset::QUEUE_HIGH,
            Self::QueueLow => offset::QUEUE_LOW,
            Self::Doorbell => offset::DOORBELL,
            Self::Initializing => offset::INITIALIZING,
        }
    }
}

/// Access to the registers of a real device ([`MappedRegisters`]), or of a software device in tests.
///
/// Values are in the processor's byte order: an implementation converts them from and to big endian, the
/// device's byte order. Implementations need no barriers, because the command queue orders accesses to memory
/// and to the doorbell.
pub trait Registers {
    /// Reads a register.
    fn read(&mut self, register: Register) -> u32;

    /// Writes a register.
    fn write(&mut self, register: Register, value: u32);
}

impl<R: Registers + ?Sized> Registers for &mut R {
    fn read(&mut self, register: Register) -> u32 {
        (**self).read(register)
    }

    fn write(&mut self, register: Register, value: u32) {
        (**self).write(register, value);
    }
}

/// The registers of a real device. The caller has mapped the device's BAR 0.
///
/// ```
/// use core::ptr::NonNull;
/// use mlx5_mkey::hca::MappedRegisters;
/// /// # Safety
/// /// The contract of [`MappedRegisters::new`].
/// unsafe fn registers(bar: usize) -> Option<MappedRegisters> {
///     let bar = NonNull::new(core::ptr::with_exposed_provenance_mut(bar))?;
///     // SAFETY: the caller vouches for the mapping.
///     Some(unsafe { MappedRegisters::new(bar) })
/// }
/// ```
#[derive(Debug)]
pub struct MappedRegisters {
    base: *mut u32,
}

// SAFETY: the registers belong to the device, not to a thread. The caller of `new` vouches that nobody else
// uses them.
unsafe impl Send for MappedRegisters {}

impl MappedRegisters {
    /// Gives access to the registers of a device through the address at which its BAR 0 is mapped.
    ///
    /// # Safety
    /// A command queue with these registers makes the device execute commands. The caller vouches that
    /// - `bar` is the beginning of BAR 0, 4-byte aligned. Its first 512 bytes are mapped as device registers
    ///   (Arm: Device memory; reads and writes of 4 bytes reach the device unchanged). The mapping is valid
    ///   as long as the value lives, and nobody else uses it. The system allows the device to access memory
    ///   (PCI bus master);
    /// - the address that the command queue gets is the bus address of its memory, and this memory stays
    ///   reserved for the device until the PCI function is disabled or reset, even if the command queue is
    ///   dropped before, or a command has timed out;
    /// - addresses in commands (of pages for the firmware, of rings, of doorbell records) lead to memory that
    ///   is reserved for the device until the command that takes the memory back (for example DESTROY_QP) has
    ///   completed. Until then, Rust code uses the memory only through the library's types for rings and
    ///   doorbell records.
    pub const unsafe fn new(bar: NonNull<u32>) -> Self {
        Self { base: bar.as_ptr() }
    }

    const fn place(&self, register: Register) -> *mut u32 {
        // SAFETY: all registers are in the first 512 bytes, for which the caller of `new` vouches.
        unsafe { self.base.byte_add(register.offset()) }
    }
}

impl Registers for MappedRegisters {
    #[inline]
    fn read(&mut self, register: Register) -> u32 {
        // SAFETY: the caller of `new` vouches for the register. This is one load of 4 bytes.
        u32::from_be(unsafe { self.place(register).read_volatile() })
    }

    #[inline]
    fn write(&mut self, register: Register, value: u32) {
        // SAFETY: the caller of `new` vouches for the register. This is one store of 4 bytes.
        unsafe { self.place(register).write_volatile(value.to_be()) }
    }
}

#[cfg(feature = "defmt")]
impl defmt::Format for MappedRegisters {
    fn format(&self, f: defmt::Formatter<'_>) {
        defmt::write!(f, "MappedRegisters at {=usize:#x}", self.base.addr());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_big_endian_at_their_offsets() {
        let mut bar = [0_u32; 128];
        let base = NonNull::from(&mut bar).cast::<u32>();
        // SAFETY: the array outlives `registers`, and nothing else uses the array meanwhile.
        let mut registers = unsafe { MappedRegisters::new(base) };
        registers.write(Register::QueueHigh, 0x0102_0304);
        registers.write(Register::QueueLow, 0x0506_0708);
        registers.write(Register::Doorbell, 0x8000_0001);
        registers.write(Register::Initializing, 7);
        assert_eq!(registers.read(Register::QueueLow), 0x0506_0708);
        assert_eq!(registers.read(Register::InterfaceRevision), 0);
        let bytes = |index: usize| bar[index].to_ne_bytes();
        assert_eq!([bytes(4), bytes(5), bytes(6)], [[1, 2, 3, 4], [5, 6, 7, 8], [0x80, 0, 0, 1]]);
        assert_eq!(bytes(0x1fc / 4), [0, 0, 0, 7]);
    }
}
