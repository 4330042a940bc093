//! The configuration space of the PCI function: identity, BAR, capabilities (PCI Local Bus 3.0, 6.1; PCI
//! Express 4.0, 7.5).

use mlx5_softdev::{DeviceProfile, Port, XtsEngine};

/// The number of bytes of the configuration space, including the part for extended capabilities, of which
/// there are none.
pub(crate) const BYTES: usize = 4096;

/// The number of bytes of BAR 0.
pub(crate) const BAR_BYTES: u64 = 32 << 20;

/// Number of interrupt vectors.
pub(crate) const VECTORS: u16 = 64;

/// Ranges in BAR 0 of the table of interrupt vectors and of their pending bits (MSI-X).
pub(crate) const TABLE: core::ops::Range<u64> = 0x2000..0x2000 + VECTORS as u64 * 16;
pub(crate) const PENDING: core::ops::Range<u64> = 0x3000..0x3000 + VECTORS as u64 / 8;

/// Offsets of registers in the configuration space.
mod register {
    pub(super) const VENDOR: usize = 0x00;
    pub(super) const DEVICE: usize = 0x02;
    pub(super) const COMMAND: usize = 0x04;
    pub(super) const STATUS: usize = 0x06;
    pub(super) const CLASS: usize = 0x0a;
    pub(super) const BAR: usize = 0x10;
    pub(super) const SUBSYSTEM_VENDOR: usize = 0x2c;
    pub(super) const SUBSYSTEM: usize = 0x2e;
    pub(super) const CAPABILITIES: usize = 0x34;
    pub(super) const INTERRUPT_LINE: usize = 0x3c;
}

/// Offsets of the PCI capabilities (power management, PCI Express, MSI-X), and of the device control
/// register, which belongs to the PCI Express capability.
const POWER: usize = 0x40;
const EXPRESS: usize = 0x60;
const DEVICE_CONTROL: usize = EXPRESS + 0x8;
const MSI_X: usize = 0x9c;

/// The bit "bus master" of the command register. If the bit is set, the function may read and write the
/// host's memory.
const BUS_MASTER: u8 = 1 << 2;
/// The bit of the upper byte of the device control register that resets the function (FLR).
const RESET: u8 = 1 << 7;

/// The product that the function presents itself as.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Model {
    /// BlueField-2, integrated ConnectX-6 Dx.
    BlueField2,
    /// BlueField-3, integrated ConnectX-7.
    #[default]
    BlueField3,
    /// ConnectX-6 Dx.
    ConnectX6Dx,
    /// ConnectX-7.
    ConnectX7,
}

impl Model {
    /// Returns the model with this name, as the option `--device` takes it.
    pub fn named(name: &str) -> Option<Self> {
        Some(match name {
            "bluefield2" => Self::BlueField2,
            "bluefield3" => Self::BlueField3,
            "connectx6dx" => Self::ConnectX6Dx,
            "connectx7" => Self::ConnectX7,
            _ => return None,
        })
    }

    /// Returns the profile with the properties in which the models differ according to public sources
    /// (DEVICE.md, "Models"). A device without crypto ignores the AES-XTS engine (`xts`).
    pub const fn profile(self, profile: DeviceProfile) -> DeviceProfile {
        match self {
            Self::BlueField3 => DeviceProfile { firmware: 32, doorbell_alone: true, ..profile },
            Self::BlueField2 => DeviceProfile { firmware: 24, xts: XtsEngine::SingleBlock, ..profile },
            Self::ConnectX6Dx => {
                DeviceProfile { firmware: 22, xts: XtsEngine::SingleBlock, log_max_copy: None, ..profile }
            }
            Self::ConnectX7 => {
                DeviceProfile { firmware: 28, log_max_copy: None, doorbell_alone: true, ..profile }
            }
        }
    }

    /// Returns the PCI device number (`mlx5_core_pci_table` of Linux).
    const fn device(self) -> u16 {
        match self {
            Self::BlueField2 => 0xa2d6,
            Self::BlueField3 => 0xa2dc,
            Self::ConnectX6Dx => 0x101d,
            Self::ConnectX7 => 0x1021,
        }
    }
}

/// Returns the class of the function: a network controller for Ethernet or for InfiniBand.
const fn class(port: Port) -> u16 {
    match port {
        Port::Ethernet => 0x0200,
        Port::InfiniBand => 0x0207,
    }
}

/// The configuration space: its contents, and the bits that a host may write.
pub(crate) struct ConfigSpace {
    model: Model,
    port: Port,
    bytes: Box<[u8; BYTES]>,
    writable: Box<[u8; BYTES]>,
}

impl core::fmt::Debug for ConfigSpace {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "ConfigSpace({:?}, {:?})", self.model, self.port)
    }
}

impl ConfigSpace {
    pub(crate) fn new(model: Model, port: Port) -> Self {
        let mut space = Self { model, port, bytes: Box::new([0; BYTES]), writable: Box::new([0; BYTES]) };
        space.put(register::VENDOR, &0x15b3_u16.to_le_bytes());
        space.put(register::DEVICE, &model.device().to_le_bytes());
        // Writable bits: memory space, bus master, parity, system errors, and the switch for legacy
        // interrupts.
        space.allow(register::COMMAND, &0x0546_u16.to_le_bytes());
        // The status register says that the function has a list of capabilities.
        space.put(register::STATUS, &0x0010_u16.to_le_bytes());
        space.put(register::CLASS, &class(port).to_le_bytes());
        // The function has one BAR, of 64-bit prefetchable memory. The lower bits of the BAR stay 0, from
        // which a host learns the size of the BAR.
        space.put(register::BAR, &[0xc]);
        space.allow(register::BAR, &(!(BAR_BYTES - 1)).to_le_bytes());
        space.put(register::SUBSYSTEM_VENDOR, &0x15b3_u16.to_le_bytes());
        space.put(register::SUBSYSTEM, &0x0001_u16.to_le_bytes());
        space.put(register::CAPABILITIES, &[EXPRESS as u8]);
        space.allow(register::INTERRUPT_LINE, &[0xff]);
        // The PCI Express capability has version 2. It shows an endpoint with payloads of 512 bytes, FLR, and
        // 8 lanes of 16 GT/s.
        space.put(EXPRESS, &[0x10, MSI_X as u8, 0x02, 0x00]);
        space.put(EXPRESS + 0x4, &0x1000_8002_u32.to_le_bytes());
        space.allow(DEVICE_CONTROL, &0x7fff_u16.to_le_bytes());
        space.put(EXPRESS + 0xc, &0x0000_0084_u32.to_le_bytes());
        space.allow(EXPRESS + 0x10, &0x0fff_u16.to_le_bytes());
        space.put(EXPRESS + 0x12, &0x0084_u16.to_le_bytes());
        space.allow(EXPRESS + 0x28, &0xffff_u16.to_le_bytes());
        space.put(EXPRESS + 0x2c, &0x0000_001e_u32.to_le_bytes());
        space.put(EXPRESS + 0x30, &0x0004_u16.to_le_bytes());
        // The MSI-X capability has the number of vectors, and the offsets of their table and of the pending
        // bits in BAR 0. A host may mask all vectors, and enable MSI-X.
        space.put(MSI_X, &[0x11, POWER as u8]);
        space.put(MSI_X + 2, &(VECTORS - 1).to_le_bytes());
        space.allow(MSI_X + 2, &0xc000_u16.to_le_bytes());
        space.put(MSI_X + 4, &(TABLE.start as u32).to_le_bytes());
        space.put(MSI_X + 8, &(PENDING.start as u32).to_le_bytes());
        // The power management capability has version 3. The return from D3hot does not reset the function.
        space.put(POWER, &[0x01, 0x00, 0x03, 0x00, 0x08, 0x00]);
        space.allow(POWER + 4, &[0x03]);
        space
    }

    fn put(&mut self, at: usize, bytes: &[u8]) {
        self.bytes.iter_mut().skip(at).zip(bytes).for_each(|(to, from)| *to = *from);
    }

    fn allow(&mut self, at: usize, bits: &[u8]) {
        self.writable.iter_mut().skip(at).zip(bits).for_each(|(to, from)| *to = *from);
    }

    fn byte(&self, at: usize) -> u8 {
        self.bytes.get(at).copied().unwrap_or_default()
    }

    /// Reads the space from an offset on. Bytes after the end of the space are 0.
    pub(crate) fn read(&self, at: usize, out: &mut [u8]) {
        out.fill(0);
        out.iter_mut().zip(self.bytes.iter().skip(at)).for_each(|(to, from)| *to = *from);
    }

    /// Writes `bytes` from an offset on, but only the bits that a host may write. Returns whether the write
    /// requests a reset.
    pub(crate) fn write(&mut self, at: usize, bytes: &[u8]) -> bool {
        let mut resets = false;
        let places = self.bytes.iter_mut().zip(self.writable.iter()).enumerate().skip(at);
        for ((place, (byte, writable)), new) in places.zip(bytes) {
            *byte = *byte & !writable | new & writable;
            resets |= place == DEVICE_CONTROL + 1 && new & RESET != 0;
        }
        resets
    }

    /// Returns whether the function may read and write memory.
    pub(crate) fn is_master(&self) -> bool {
        self.byte(register::COMMAND) & BUS_MASTER != 0
    }

    /// Restores the initial contents of the space.
    pub(crate) fn reset(&mut self) {
        *self = Self::new(self.model, self.port);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mlx5_softdev::capabilities::capabilities;

    fn read<const N: usize>(space: &ConfigSpace, at: usize) -> [u8; N] {
        let mut bytes = [0xa5; N];
        space.read(at, &mut bytes);
        bytes
    }

    #[test]
    fn a_host_finds_a_bluefield_and_the_size_of_its_bar() {
        let mut space = ConfigSpace::new(Model::BlueField2, Port::InfiniBand);
        assert_eq!(read(&space, 0), [0xb3, 0x15, 0xd6, 0xa2]);
        assert_eq!(read(&space, 0x8), [0, 0, 0x07, 0x02]);
        space.write(0x10, &[0xff; 8]);
        assert_eq!(u64::from_le_bytes(read(&space, 0x10)), !(BAR_BYTES - 1) | 0xc);
        // Bytes without a register stay 0.
        space.write(0x18, &[0xff; 16]);
        assert_eq!(read(&space, 0x18), [0; 16]);
    }

    /// The models differ in the capability bits by which drivers tell the AES-XTS engines apart
    /// (`mlx5_ifc.h`).
    #[test]
    fn models_differ_in_engines_and_copies() {
        let bits = |model: Model| {
            let found = capabilities(1, &model.profile(DeviceProfile::default())).unwrap();
            let [single, many] = [0x40, 0x20].map(|bit| found[0x7e] & bit != 0);
            (single, many, found[0xe9] & 0x80 != 0)
        };
        assert_eq!(bits(Model::BlueField3), (false, true, true));
        assert_eq!(bits(Model::BlueField2), (true, false, true));
        assert_eq!(bits(Model::ConnectX6Dx), (true, false, false));
        assert_eq!(bits(Model::ConnectX7), (false, true, false));
    }

    #[test]
    fn capabilities_are_a_chain_that_ends() {
        let space = ConfigSpace::new(Model::default(), Port::default());
        let (mut at, mut found) = (read::<1>(&space, 0x34)[0], vec![]);
        while at != 0 {
            let [id, next] = read(&space, at.into());
            found.push(id);
            at = next;
        }
        assert_eq!(found, [0x10, 0x11, 0x01]);
        assert_eq!(read(&space, MSI_X + 2), (VECTORS - 1).to_le_bytes());
        assert_eq!(read(&space, 0x100), [0; 4], "no extended capability");
    }

    #[test]
    fn only_the_bit_of_the_reset_asks_for_one() {
        let mut space = ConfigSpace::new(Model::default(), Port::default());
        assert!(!space.write(DEVICE_CONTROL, &[0xff, 0x7f]));
        assert!(space.write(DEVICE_CONTROL, &[0, 0x80]));
        assert_eq!(read(&space, DEVICE_CONTROL), [0, 0], "it reads as 0");
        assert!(space.write(EXPRESS, &[0xff; 10]));
        assert!(!space.write(BYTES - 1, &[0xff; 64]));
    }

    #[test]
    fn it_is_a_master_until_it_is_reset() {
        let mut space = ConfigSpace::new(Model::default(), Port::default());
        assert!(!space.is_master());
        space.write(0x4, &[0x06, 0]);
        assert!(space.is_master());
        space.reset();
        assert!(!space.is_master());
    }
}
