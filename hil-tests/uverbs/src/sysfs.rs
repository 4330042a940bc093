//! The part of `/sys` by which libibverbs finds the device, as plain files.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// Name of the device.
pub(crate) const DEVICE: &str = "mlx5_0";

/// The character device that the program opens.
pub(crate) const CHARACTER_DEVICE: &str = "/dev/infiniband/uverbs0";

/// What is opened in its place: a character device that can be mapped as shared memory.
pub(crate) const STAND_IN: &std::ffi::CStr = c"/dev/zero";

/// Number of [`STAND_IN`], by which libibverbs recognises what it has opened.
const STAND_IN_NUMBER: &str = "1:5";

/// The device's GUID, in the order of the wire. The prefix is a locally administered one.
pub(crate) const GUID: [u8; 8] = [0x02, 0x6d, 0x6c, 0xff, 0xfe, 0x78, 0x35, 0x01];

/// PCI vendor and device: a ConnectX-6 Dx, which has all of this and is in every libmlx5's table.
pub(crate) const VENDOR: u32 = 0x15b3;
/// See [`VENDOR`].
pub(crate) const PART: u32 = 0x101d;

/// Writes the files below `directory` and returns what `SYSFS_PATH` has to be.
///
/// Several processes may do so at once: each file appears whole.
///
/// # Errors
/// When files cannot be written.
pub(crate) fn write(directory: &Path) -> io::Result<PathBuf> {
    let root = directory.join("sysfs");
    let guid: Vec<String> =
        GUID.chunks_exact(2).map(|pair| pair.iter().map(|byte| format!("{byte:02x}")).collect()).collect();
    let modalias = format!("pci:v{VENDOR:08X}d{PART:08X}sv{VENDOR:08X}sd00000001bc02sc00i00");
    let gid: Vec<String> =
        gid().chunks_exact(2).map(|pair| pair.iter().map(|byte| format!("{byte:02x}")).collect()).collect();
    let files: &[(&str, &str)] = &[
        ("class/infiniband_verbs/abi_version", "6"),
        ("class/infiniband_verbs/uverbs0/ibdev", DEVICE),
        ("class/infiniband_verbs/uverbs0/dev", STAND_IN_NUMBER),
        ("class/infiniband_verbs/uverbs0/abi_version", "1"),
        ("class/infiniband/mlx5_0/node_type", "1: CA"),
        ("class/infiniband/mlx5_0/node_guid", &guid.join(":")),
        ("class/infiniband/mlx5_0/sys_image_guid", &guid.join(":")),
        ("class/infiniband/mlx5_0/fw_ver", "22.99.0000"),
        ("class/infiniband/mlx5_0/board_id", "SOFTWARE"),
        ("class/infiniband/mlx5_0/device/modalias", &modalias),
        ("class/infiniband/mlx5_0/device/vendor", "0x15b3"),
        ("class/infiniband/mlx5_0/device/device", "0x101d"),
        ("class/infiniband/mlx5_0/device/numa_node", "-1"),
        ("class/infiniband/mlx5_0/ports/1/state", "4: ACTIVE"),
        ("class/infiniband/mlx5_0/ports/1/link_layer", "Ethernet"),
        ("class/infiniband/mlx5_0/ports/1/gids/0", &gid.join(":")),
        ("class/infiniband/mlx5_0/ports/1/pkeys/0", "0xffff"),
        ("class/infiniband/mlx5_0/ports/1/gid_attrs/types/0", "RoCE v2"),
    ];
    for (name, content) in files {
        let path = root.join(name);
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent)?;
        }
        let wanted = format!("{content}\n");
        if fs::read_to_string(&path).is_ok_and(|found| found == wanted) {
            continue;
        }
        // Beside the tree: libibverbs takes every entry of a directory for a device.
        let draft = directory.join(format!("draft-{}-{}", crate::sys::pid(), name.replace('/', "-")));
        fs::write(&draft, wanted)?;
        fs::rename(&draft, &path)?;
    }
    Ok(root)
}

/// Returns the port's MAC address: that from which its GUID would be made (EUI-64).
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
