//! The processors of emulated machines, and their names in QEMU, Debian and Linux.

use std::path::PathBuf;
use xtask::debian::Architecture;
use xtask::toolchain::{Board, System};
use xtask::{build, host};
use xtask_parsers::boards::Processor;

/// The processor of a machine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Arch {
    /// x86-64, with QEMU's machine for a PC.
    #[default]
    X86,
    /// aarch64, with QEMU's machine `virt`.
    Arm64,
}

impl Arch {
    /// Returns the processor that a value of the option `--arch` names.
    pub(crate) fn named(name: &str) -> Option<Self> {
        Some(match name {
            "x86-64" => Self::X86,
            "arm64" => Self::Arm64,
            _ => return None,
        })
    }

    /// Builds the program that runs the scenarios, and returns its path.
    pub(crate) fn scenarios(self) -> Result<PathBuf, String> {
        match self {
            Self::X86 => host::executes("hil"),
            Self::Arm64 => build::file(Board::BlueField2, System::Linux, "hil"),
        }
    }

    /// Builds the programs of the storage example, and returns their paths.
    pub(crate) fn storage(self) -> Result<Vec<PathBuf>, String> {
        match self {
            Self::X86 => host::storage().map(|folder| host::STORAGE.map(|name| folder.join(name)).into()),
            Self::Arm64 => build::storage(Board::BlueField2),
        }
    }

    /// Returns the name of QEMU's program.
    pub(crate) const fn qemu(self) -> &'static str {
        match self {
            Self::X86 => "qemu-system-x86_64",
            Self::Arm64 => "qemu-system-aarch64",
        }
    }

    /// Returns the Debian packages with QEMU's program, and with the firmware that it loads.
    pub(crate) const fn emulator(self) -> &'static [&'static str] {
        match self {
            Self::X86 => &["qemu-system-x86", "seabios"],
            Self::Arm64 => &["qemu-system-arm"],
        }
    }

    /// Returns the Debian package that depends on the newest kernel.
    pub(crate) const fn kernel(self) -> &'static str {
        match self {
            Self::X86 => "linux-image-amd64",
            Self::Arm64 => "linux-image-arm64",
        }
    }

    /// Returns the architecture of the packages for the guest. An x86-64 guest needs an x86-64 machine, so it
    /// takes the packages of this machine.
    pub(crate) const fn packages(self) -> Architecture {
        match self {
            Self::X86 => Architecture::Own,
            Self::Arm64 => Architecture::Arm64,
        }
    }

    /// Returns Debian's triplet, which is the name of a folder in the paths of libraries.
    pub(crate) const fn triplet(self) -> &'static str {
        match self {
            Self::X86 => "x86_64-linux-gnu",
            Self::Arm64 => "aarch64-linux-gnu",
        }
    }

    /// Returns the path of the dynamic linker.
    pub(crate) const fn loader(self) -> &'static str {
        match self {
            Self::X86 => "lib64/ld-linux-x86-64.so.2",
            Self::Arm64 => "lib/ld-linux-aarch64.so.1",
        }
    }

    /// Returns the beginning of the names that Linux gives to serial ports.
    pub(crate) const fn port(self) -> &'static str {
        match self {
            Self::X86 => "ttyS",
            Self::Arm64 => "ttyAMA",
        }
    }

    /// Returns QEMU's name of the machine, and of its processor.
    pub(crate) const fn machine(self) -> (&'static str, &'static str) {
        match self {
            Self::X86 => ("q35", "max"),
            Self::Arm64 => ("virt", "cortex-a72"),
        }
    }
}

impl From<Processor> for Arch {
    fn from(processor: Processor) -> Self {
        match processor {
            Processor::X86 => Self::X86,
            Processor::Arm64 => Self::Arm64,
        }
    }
}
