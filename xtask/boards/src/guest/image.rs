//! The root file system of a guest.

use super::parts::{Guest, Parts};
use crate::machine::folder::names;
use crate::machine::image::{DRIVERS, Entry, Image};

/// The beginnings of the names of rdma-core's programs that query a device or move data over one.
const PROGRAMS: &[&str] = &["ib_", "ibv_", "rdma_", "rping", "ucmatose", "udaddy"];

/// Programs that show and set properties of the network interface and of the device, programs that send
/// commands to disks, and a `dd` with a page-aligned buffer, because Linux 6.1 compares protection
/// information wrongly if a block lies in two pages (`bio_integrity_process`). Scripts call this `dd` as
/// `/bin/dd`.
const TOOLS: &[&str] = &["dd", "devlink", "ethtool", "ip", "iscsiadm", "iscsid", "nvme", "sg_dd"];

/// The kernel modules with which a guest mounts the shared folder (9p).
const SHARE: &[&str] = &["virtio_pci", "9pnet_virtio", "9p"];

/// The kernel modules of NVMe over fabrics, which `guest --check` loads: target and initiator.
const STORAGE: &[&str] = &["nvmet_rdma", "nvme_rdma"];

/// The kernel modules of iSCSI over RDMA: target with its disks, and initiator.
const ISER: &[&str] = &["ib_isert", "target_core_iblock", "ib_iser"];

/// The kernel module for SCSI disks, on which the disk of [`DISK`] depends.
const PROTECTION: &[&str] = &["sd_mod"];

/// The kernel modules of the network interface with which the guest reaches this machine.
const USER_NETWORK: &[&str] = &["virtio_pci", "virtio_net"];

/// The kernel module that makes a SCSI disk in memory which stores protection information.
const DISK: &str = "scsi_debug";

/// Returns the root file system of a guest as an archive (cpio).
pub(super) fn build(guest: &Guest, Parts { packages, kernel, .. }: &Parts) -> Result<Vec<u8>, String> {
    let init = include_bytes!("init.sh");
    let mut image = Image::new(guest.arch, packages, kernel, &[SHARE, DRIVERS].concat(), init)?;
    if guest.storage {
        image.modules(kernel, STORAGE, "etc/storage")?;
        image.modules(kernel, ISER, "etc/iser")?;
        // Older kernels take CRC32C from a module. Later ones have no such module, so an error is ignored.
        let _ = image.modules(kernel, &["crc32c_generic"], "etc/crc");
        image.modules(kernel, PROTECTION, "etc/protection")?;
        image.modules(kernel, &[DISK], "etc/disk")?;
    }
    if guest.reaches_host {
        image.modules(kernel, USER_NETWORK, "etc/user")?;
    }
    image.put("etc/command", Entry::File(guest.command.clone().into()));
    guest.files.iter().try_for_each(|path| image.program(path))?;
    for name in TOOLS {
        let places = ["bin", "sbin", "usr/bin", "usr/sbin"].map(|place| packages.join(place).join(name));
        let found = places.iter().find(|path| path.is_file());
        image.program(found.ok_or_else(|| format!("the packages have no {name}"))?)?;
    }
    let programs = packages.join("usr/bin");
    for name in names(&programs)? {
        if PROGRAMS.iter().any(|beginning| name.starts_with(beginning)) {
            image.program(&programs.join(&name))?;
        }
    }
    image.archive()
}
