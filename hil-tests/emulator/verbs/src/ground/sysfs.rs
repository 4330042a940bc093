//! The part of `/sys` by which libibverbs, DPDK and UCX find the device, as plain files.

use std::fs;
use std::io;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

/// Name of the device.
pub(crate) const DEVICE: &str = "mlx5_0";

/// The character device that the program opens.
pub(crate) const CHARACTER_DEVICE: &str = "/dev/infiniband/uverbs0";

/// The connection manager's character device, which does not exist here.
pub(crate) const CONNECTION_MANAGER: &str = "/dev/infiniband/rdma_cm";

/// Programs see the files of [`write`] below this directory.
pub(crate) const ROOT: &str = "/sys";

/// The directories below [`ROOT`] that programs see exactly as [`write`] wrote them, by whichever call a
/// program reads them.
pub(crate) const TAKEN_OVER: &[&str] = &["/sys/class/infiniband", "/sys/class/infiniband_verbs"];

/// The file that is opened in place of [`CHARACTER_DEVICE`]: a character device that can be mapped as shared
/// memory.
pub(crate) const STAND_IN: &std::ffi::CStr = c"/dev/zero";

/// Device number of [`STAND_IN`]. libibverbs compares it with the number of the opened file.
const STAND_IN_NUMBER: &str = "1:5";

/// The device's GUID, in the order of the wire. The prefix is a locally administered one.
pub(crate) const GUID: [u8; 8] = [0x02, 0x6d, 0x6c, 0xff, 0xfe, 0x78, 0x35, 0x01];

/// PCI vendor and device: a ConnectX-6 Dx, which has all features of this device and is in the table of every
/// libmlx5.
pub(crate) const VENDOR: u32 = 0x15b3;
/// See [`VENDOR`].
pub(crate) const PART: u32 = 0x101d;

/// Directory of the PCI devices, below the path that [`write`] returns. DPDK reads the directory that
/// `SYSFS_PCI_DEVICES` names.
pub(crate) const PCI_DEVICES: &str = "bus/pci/devices";

/// The PCI function's memory, of which none can be mapped: start, end and flags of each of 6 regions and the
/// ROM.
const RESOURCE: &str = "0x0000000000000000 0x0000000000000000 0x0000000000000000";

/// Symbolic links. UCX finds the PCI function by the target of the device's link. DPDK takes only functions
/// that have a driver.
const LINKS: &[(&str, &str)] = &[
    ("bus/pci/devices/0000:c1:00.0", "../../../devices/pci0000:c0/0000:c1:00.0"),
    ("class/infiniband/mlx5_0", "../../devices/pci0000:c0/0000:c1:00.0/infiniband/mlx5_0"),
    ("devices/pci0000:c0/0000:c1:00.0/driver", "../../../bus/pci/drivers/mlx5_core"),
    ("devices/pci0000:c0/0000:c1:00.0/infiniband/mlx5_0/device", "../../../0000:c1:00.0"),
];

/// The PCI function, below [`ROOT`].
const FUNCTION: &str = "devices/pci0000:c0/0000:c1:00.0";
/// The RDMA device of [`FUNCTION`].
const OF_FUNCTION: &str = "devices/pci0000:c0/0000:c1:00.0/infiniband/mlx5_0";
const VERBS: &str = "class/infiniband_verbs";

/// Writes the files below `directory` and returns the value for `SYSFS_PATH`.
///
/// Several processes may do so at once: each file appears whole.
///
/// # Errors
/// When files cannot be written.
pub(crate) fn write(directory: &Path) -> io::Result<PathBuf> {
    let root = directory.join("sys");
    let guid: Vec<String> =
        GUID.chunks_exact(2).map(|pair| pair.iter().map(|byte| format!("{byte:02x}")).collect()).collect();
    let modalias = format!("pci:v{VENDOR:08X}d{PART:08X}sv{VENDOR:08X}sd00000001bc02sc00i00");
    let gid: Vec<String> =
        gid().chunks_exact(2).map(|pair| pair.iter().map(|byte| format!("{byte:02x}")).collect()).collect();
    let event = format!(
        "DRIVER=mlx5_core\nPCI_CLASS=20000\nPCI_ID=15B3:101D\nPCI_SUBSYS_ID=15B3:0000\n\
         PCI_SLOT_NAME=0000:c1:00.0\nMODALIAS={modalias}"
    );
    let files: &[(&str, &str, &str)] = &[
        (VERBS, "abi_version", "6"),
        (VERBS, "uverbs0/ibdev", DEVICE),
        (VERBS, "uverbs0/dev", STAND_IN_NUMBER),
        (VERBS, "uverbs0/abi_version", "1"),
        (FUNCTION, "modalias", &modalias),
        (FUNCTION, "vendor", "0x15b3"),
        (FUNCTION, "device", "0x101d"),
        (FUNCTION, "subsystem_vendor", "0x15b3"),
        (FUNCTION, "subsystem_device", "0x0000"),
        (FUNCTION, "class", "0x020000"),
        (FUNCTION, "sriov_numvfs", "0"),
        (FUNCTION, "resource", &[RESOURCE; 7].join("\n")),
        (FUNCTION, "uevent", &event),
        (FUNCTION, "numa_node", "-1"),
        (OF_FUNCTION, "node_type", "1: CA"),
        (OF_FUNCTION, "node_guid", &guid.join(":")),
        (OF_FUNCTION, "sys_image_guid", &guid.join(":")),
        (OF_FUNCTION, "fw_ver", "22.99.0000"),
        (OF_FUNCTION, "board_id", "SOFTWARE"),
        (OF_FUNCTION, "ports/1/state", "4: ACTIVE"),
        (OF_FUNCTION, "ports/1/link_layer", "Ethernet"),
        (OF_FUNCTION, "ports/1/gids/0", &gid.join(":")),
        (OF_FUNCTION, "ports/1/pkeys/0", "0xffff"),
        (OF_FUNCTION, "ports/1/gid_attrs/types/0", "RoCE v2"),
    ];
    // Drafts are outside the tree: libibverbs takes every entry of a directory for a device.
    let draft = |name: &str| {
        directory.join(format!("draft-{}-{}", crate::ground::sys::pid(), name.replace('/', "-")))
    };
    let place = |name: &str| -> io::Result<PathBuf> {
        let path = root.join(name);
        path.parent().map_or(Ok(()), fs::create_dir_all)?;
        Ok(path)
    };
    for (folder, name, content) in files {
        let name = format!("{folder}/{name}");
        let (path, wanted) = (place(&name)?, format!("{content}\n"));
        if fs::read_to_string(&path).is_ok_and(|found| found == wanted) {
            continue;
        }
        fs::write(draft(&name), wanted)?;
        fs::rename(draft(&name), &path)?;
    }
    for (name, target) in LINKS {
        let path = place(name)?;
        if fs::read_link(&path).is_ok_and(|found| found == Path::new(target)) {
            continue;
        }
        symlink(target, draft(name))?;
        fs::rename(draft(name), &path)?;
    }
    Ok(root)
}

/// Returns the port's MAC address, the address from which EUI-64 makes the port's GUID.
pub(crate) const fn mac() -> [u8; 6] {
    let [a, b, c, _, _, d, e, f] = GUID;
    [a ^ 2, b, c, d, e, f]
}

/// Returns the only entry of the port's table of addresses: link-local, from the GUID.
pub(crate) fn gid() -> [u8; 16] {
    let mut gid = [0; 16];
    let (prefix, interface) = gid.split_at_mut(8);
    prefix.copy_from_slice(&[0xfe, 0x80, 0, 0, 0, 0, 0, 0]);
    interface.copy_from_slice(&GUID);
    gid
}
