//! The description of a guest, and the parts from which it is made: an emulator, a kernel, and packages of
//! programs.

use super::options::{Options, SID};
use crate::machine::arch::Arch;
use crate::machine::kernel::Kernel;
use crate::machine::qemu::Qemu;
use std::path::{Path, PathBuf};
use xtask::debian::{self, Dependencies};

/// The Debian packages in the guest, beside the kernel.
const PACKAGES: &[&str] = &[
    "busybox-static",
    "ethtool",
    "ibverbs-providers",
    "ibverbs-utils",
    "iproute2",
    "nvme-cli",
    "open-iscsi",
    "perftest",
    "rdmacm-utils",
    "sg3-utils",
];

/// The description of a guest, with the shell script that runs in it.
#[derive(Clone)]
pub(super) struct Guest {
    pub(super) arch: Arch,
    /// A folder with a kernel, or [`SID`]. `None` selects the kernel of the Debian release that this
    /// machine's apt uses.
    pub(super) kernel: Option<String>,
    pub(super) port: String,
    /// The model of the device: the option `--device` of the program that serves the PCI function to the
    /// guest. `None` selects a BlueField-3.
    pub(super) device: Option<String>,
    /// The plan of faults of the PCI function, if the function fails on purpose.
    pub(super) faults: Option<String>,
    /// Whether the guest also has the kernel modules of NVMe over fabrics, iSER and disks.
    pub(super) storage: bool,
    /// Whether the device announces block signatures to Linux.
    pub(super) signatures: bool,
    /// Whether programs of the guest can reach TCP ports of this machine.
    pub(super) reaches_host: bool,
    /// Files of this machine that are put into `/bin` of the guest as programs.
    pub(super) files: Vec<PathBuf>,
    /// The script. If the script is empty, the guest runs an interactive shell.
    pub(super) command: String,
}

/// The parts of the guest: an emulator, a kernel, and unpacked packages of programs.
pub(super) struct Parts {
    pub(super) qemu: Qemu,
    pub(super) kernel: Kernel,
    pub(super) packages: PathBuf,
}

impl Parts {
    /// Finds the emulator, the kernel and the packages, and downloads missing ones.
    pub(super) fn find(options: &Options, guest: &Guest) -> Result<Self, String> {
        let arch = guest.arch;
        if arch == Arch::X86 && !cfg!(target_arch = "x86_64") {
            return Err("packages for an x86-64 guest are unpacked on x86-64 machines only".into());
        }
        let qemu = Qemu::find(arch, options.qemu.as_deref())?;
        let names = [&[arch.kernel()], PACKAGES].concat();
        let packages = debian::unpack(None, arch.packages(), "guest", &names, Dependencies::Included)?;
        let kernel = match guest.kernel.as_deref() {
            None => Kernel::below(&packages)?,
            Some(SID) => Kernel::newest(arch)?,
            Some(folder) => Kernel::below(Path::new(folder))?,
        };
        Ok(Self { qemu, kernel, packages })
    }
}
