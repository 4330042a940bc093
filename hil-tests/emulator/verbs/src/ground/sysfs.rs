//! The part of `/sys` by which libibverbs, DPDK and UCX find the device, as plain files.

use crate::ground::counters::{self, LIFESPAN};
use crate::ground::port::{Entry, Interface, Port, SUBNET_MANAGER, Version, View, guid, shown};
use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

/// Returns the name of a device.
pub(crate) fn device(index: usize) -> String {
    format!("mlx5_{index}")
}

/// The path of the character device that the program opens, without the number at its end.
pub(crate) const CHARACTER_DEVICE: &str = "/dev/infiniband/uverbs";

/// The character device of connection management (rdma_cm).
pub(crate) const CONNECTION_MANAGER: &str = "/dev/infiniband/rdma_cm";

/// Programs see the files of [`write`] below this directory.
pub(crate) const ROOT: &str = "/sys";

/// The first part of the name of the directory with the files of [`write`]. The name of the [`View`] follows.
const TREE: &str = "sys-";

/// Splits a path that [`write`] has returned into the directory that `write` was called with, and the name of
/// the view.
pub(crate) fn view_of(tree: &Path) -> Option<(&Path, &str)> {
    Some((tree.parent()?, tree.file_name()?.to_str()?.strip_prefix(TREE)?))
}

/// The directories below [`ROOT`] in whose place programs always see the files of [`write`], whichever
/// function of the C library reads them.
pub(crate) const TAKEN_OVER: &[&str] = &["/sys/class/infiniband", "/sys/class/infiniband_verbs"];

/// The file that is opened instead of [`CHARACTER_DEVICE`]: a character device that can be mapped as shared
/// memory.
pub(crate) const STAND_IN: &std::ffi::CStr = c"/dev/zero";

/// The device number of [`STAND_IN`]. libibverbs compares this number with that of the opened file.
const STAND_IN_NUMBER: &str = "1:5";
/// The number of [`STAND_IN_NUMBER`], with major and minor part in one integer.
pub(crate) const STAND_IN_NUMBERS: u64 = 0x105;

/// The PCI vendor number of Mellanox.
pub(crate) const VENDOR: u32 = 0x15b3;
/// The PCI device number of a ConnectX-6 Dx, which has all features of this device and is in the table of
/// every libmlx5.
pub(crate) const PART: u32 = 0x101d;

/// The firmware version that the device reports.
pub(crate) const FIRMWARE: &str = "22.99.0000";

/// The capability bit of a port that supports connection management (`IB_PORT_CM_SUP`).
pub(crate) const CONNECTION_MANAGEMENT: u32 = 1 << 16;

/// The directory of the PCI devices, below the path that [`write`] returns. DPDK reads the directory that the
/// variable `SYSFS_PCI_DEVICES` names.
pub(crate) const PCI_DEVICES: &str = "bus/pci/devices";

/// One line of the PCI function's file `resource`: start, end and flags of a region that cannot be mapped.
/// The file has 7 lines, for 6 regions and the ROM.
const RESOURCE: &str = "0x0000000000000000 0x0000000000000000 0x0000000000000000";

/// Returns the directory of a device's PCI function, below [`ROOT`].
fn function(device: usize) -> String {
    format!("devices/pci0000:c0/{}", slot(device))
}

/// Returns the name of a device's PCI function.
fn slot(device: usize) -> String {
    format!("0000:c1:00.{device}")
}

/// Returns the directory of the RDMA device of a PCI function.
fn of_function(index: usize) -> String {
    format!("{}/infiniband/{}", function(index), device(index))
}

/// Returns the symbolic links of a device, each as path and target. UCX finds the PCI function by the target
/// of the device's link. DPDK takes only PCI functions whose link `driver` exists.
fn links(index: usize) -> [(String, String); 4] {
    let (slot, name, function) = (slot(index), device(index), function(index));
    [
        (format!("bus/pci/devices/{slot}"), format!("../../../{function}")),
        (format!("class/infiniband/{name}"), format!("../../{function}/infiniband/{name}")),
        (format!("{function}/driver"), "../../../bus/pci/drivers/mlx5_core".to_owned()),
        (format!("{function}/infiniband/{name}/device"), format!("../../../{slot}")),
    ]
}

const VERBS: &str = "class/infiniband_verbs";

/// Writes the files below `directory` and returns the value for `SYSFS_PATH`. Processes of several network
/// namespaces may share the directory, so each namespace has its own files.
///
/// Several processes may write the files at once: each file appears whole.
///
/// # Errors
/// An error of the system, if a file cannot be written.
pub(crate) fn write(directory: &Path, view: &View, ports: &[Port]) -> io::Result<PathBuf> {
    let tree = format!("{TREE}{}", view.name());
    let (root, stamp) = (directory.join(&tree), directory.join(format!("{tree}.stamp")));
    let files: Vec<_> = ports.iter().enumerate().flat_map(|(index, port)| files(index, port)).collect();
    let all: String = files.iter().map(|(name, content)| format!("{name}\n{content}\n")).collect();
    if fs::read_to_string(&stamp).is_ok_and(|found| found == all) && root.is_dir() {
        return Ok(root);
    }
    // Drafts are outside the tree: libibverbs takes every entry of a directory for a device.
    let draft = |name: &str| {
        directory.join(format!("draft-{}-{}", crate::ground::sys::pid(), name.replace('/', "-")))
    };
    let place = |name: &str| -> io::Result<PathBuf> {
        let path = root.join(name);
        path.parent().map_or(Ok(()), fs::create_dir_all)?;
        Ok(path)
    };
    // Files of equal content, such as the many empty entries of the GID table, are links to one file: a new
    // file costs the system far more than a link.
    let mut written = BTreeMap::new();
    for (name, content) in &files {
        let (path, wanted) = (place(name)?, format!("{content}\n"));
        if !fs::read_to_string(&path).is_ok_and(|found| found == wanted) {
            let link = written.get(content).is_some_and(|equal| fs::hard_link(equal, draft(name)).is_ok());
            if !link {
                fs::write(draft(name), wanted)?;
            }
            fs::rename(draft(name), &path)?;
        }
        written.insert(content, path);
    }
    // This loop removes the interfaces that the port had at an earlier call.
    for (device, port) in ports.iter().enumerate() {
        let netdevs = root.join(format!("{}/net", function(device)));
        for entry in fs::read_dir(netdevs).into_iter().flatten().flatten() {
            if entry.file_name() != port.interface.name.as_str() {
                let _ = fs::remove_dir_all(entry.path());
            }
        }
        // Empty entries of the GID table have no attributes, so files from an earlier call are removed.
        for index in port.entries.len()..port.gids() {
            for kind in ["types", "ndevs"] {
                let name = format!("{}/ports/1/gid_attrs/{kind}/{index}", of_function(device));
                let _ = fs::remove_file(root.join(name));
            }
        }
        for (name, target) in links(device) {
            let path = place(&name)?;
            if fs::read_link(&path).is_ok_and(|found| found == Path::new(&target)) {
                continue;
            }
            symlink(target, draft(&name))?;
            fs::rename(draft(&name), &path)?;
        }
    }
    // The stamp is written last: a tree without the stamp may be incomplete.
    fs::write(draft("stamp"), all)?;
    fs::rename(draft("stamp"), stamp)?;
    Ok(root)
}

/// Returns the name and the content of each file of a device.
fn files(index: usize, port: &Port) -> Vec<(String, String)> {
    let (slot, of_function, function) = (slot(index), of_function(index), function(index));
    let (of_function, function) = (of_function.as_str(), function.as_str());
    let (name, uverbs) = (device(index), format!("{VERBS}/uverbs{index}"));
    let guid: Vec<String> = guid(index)
        .chunks_exact(2)
        .map(|pair| pair.iter().map(|byte| format!("{byte:02x}")).collect())
        .collect();
    // The PCI class of the function is that of an InfiniBand controller, or of an Ethernet controller.
    let (layer, class, manager) = match port.is_infiniband() {
        true => ("InfiniBand", "07", SUBNET_MANAGER),
        false => ("Ethernet", "00", 0),
    };
    let modalias = format!("pci:v{VENDOR:08X}d{PART:08X}sv{VENDOR:08X}sd00000001bc02sc{class}i00");
    let event = format!(
        "DRIVER=mlx5_core\nPCI_CLASS=2{class}00\nPCI_ID=15B3:101D\nPCI_SUBSYS_ID=15B3:0000\n\
         PCI_SLOT_NAME={slot}\nMODALIAS={modalias}"
    );
    let (state, physical) =
        if port.is_active { ("4: ACTIVE", "5: LinkUp") } else { ("1: DOWN", "3: Disabled") };
    let fixed: &[(&str, &str, &str)] = &[
        (VERBS, "abi_version", "6"),
        (&uverbs, "ibdev", &name),
        (&uverbs, "dev", STAND_IN_NUMBER),
        (&uverbs, "abi_version", "1"),
        (function, "modalias", &modalias),
        (function, "vendor", "0x15b3"),
        (function, "device", "0x101d"),
        (function, "subsystem_vendor", "0x15b3"),
        (function, "subsystem_device", "0x0000"),
        (function, "class", &format!("0x02{class}00")),
        (function, "sriov_numvfs", "0"),
        (function, "resource", &[RESOURCE; 7].join("\n")),
        (function, "uevent", &event),
        (function, "numa_node", "-1"),
        (of_function, "node_type", "1: CA"),
        (of_function, "node_guid", &guid.join(":")),
        (of_function, "sys_image_guid", &guid.join(":")),
        (of_function, "node_desc", &format!("{name} of mlx5-emulate")),
        (of_function, "fw_ver", FIRMWARE),
        (of_function, "hw_rev", "0"),
        (of_function, "hca_type", &format!("MT{PART}")),
        (of_function, "board_id", mlx5_softdev::PSID),
        (of_function, "ports/1/state", state),
        (of_function, "ports/1/phys_state", physical),
        (of_function, "ports/1/link_layer", layer),
        (of_function, "ports/1/rate", "100 Gb/sec (4X EDR)"),
        (of_function, "ports/1/lid", &format!("{:#x}", port.lid)),
        (of_function, "ports/1/lid_mask_count", "0"),
        (of_function, "ports/1/sm_lid", &format!("{manager:#x}")),
        (of_function, "ports/1/sm_sl", "0"),
        (of_function, "ports/1/cap_mask", &format!("0x{CONNECTION_MANAGEMENT:08x}")),
        (of_function, "ports/1/pkeys/0", "0xffff"),
    ];
    let fixed =
        fixed.iter().map(|(folder, name, content)| (format!("{folder}/{name}"), (*content).to_owned()));
    let zeros = counters::FILES.iter().map(|(name, _)| (format!("{of_function}/ports/1/{name}"), "0".into()));
    let lifespan = (format!("{of_function}/ports/1/hw_counters/lifespan"), LIFESPAN.to_string());
    // The kernel's directory of an interface has more files. Verbs programs need little more than the
    // interface's name.
    let Interface { index, name, mac } = &port.interface;
    let mac = mac.map(|byte| format!("{byte:02x}")).join(":");
    let netdev = [
        ("address", mac.as_str()),
        ("ifindex", &index.to_string()),
        ("operstate", if port.is_active { "up" } else { "down" }),
        ("dev_id", "0x0"),
        ("dev_port", "0"),
    ];
    let netdev: Vec<_> = netdev
        .into_iter()
        .filter(|_| !name.is_empty())
        .map(|(file, content)| (format!("{function}/net/{name}/{file}"), content.to_owned()))
        .collect();
    let table = (0..port.gids()).flat_map(|index| {
        let entry = port.entries.get(index);
        let ports = format!("{of_function}/ports/1");
        let version = |entry: &Entry| match entry.version {
            Version::V1 => "IB/RoCE v1",
            Version::V2 => "RoCE v2",
        };
        let interface = entry.map(|entry| entry.interface.name.as_str()).filter(|name| !name.is_empty());
        [
            Some((format!("{ports}/gids/{index}"), shown(entry.map_or([0; 16], |entry| entry.gid)))),
            entry.map(|entry| (format!("{ports}/gid_attrs/types/{index}"), version(entry).to_owned())),
            interface.map(|name| (format!("{ports}/gid_attrs/ndevs/{index}"), name.to_owned())),
        ]
        .into_iter()
        .flatten()
    });
    fixed.chain(zeros).chain([lifespan]).chain(netdev).chain(table).collect()
}
