//! Describes an mlx5 device in words, for the report of a run: its identity, its capabilities and its
//! completions.

use super::Finding;
use mlx5_mkey::devx::Device;
use mlx5_mkey::mkey::RelaxedOrdering;
use mlx5_mkey::queue::{Failure, Outcome, WorkCompletion};
use mlx5_softdev::PSID;
use std::fmt::Display;
use std::fs;

/// The folder in which Linux describes the RDMA devices.
const DEVICES: &str = "/sys/class/infiniband";

/// Returns the content of a file of a device in sysfs.
fn attribute(device: &str, name: &str) -> Option<String> {
    let text = fs::read_to_string(format!("{DEVICES}/{device}/{name}")).ok()?;
    Some(text.trim().to_owned())
}

/// Returns whether a device is a software device of this project. Such a device has a PSID (board
/// identification) of its own.
pub(super) fn is_ours(device: &str) -> bool {
    attribute(device, "board_id").as_deref() == Some(PSID)
}

/// Describes a device: its identity, then its capabilities.
pub(super) fn device(name: &str, is_ours: bool, device: &Device) -> Vec<Finding> {
    let psid = attribute(name, "board_id");
    let nature = match psid {
        _ if is_ours => "a software device of mlx5-mkey, no hardware",
        Some(_) => "hardware",
        None => "unknown, because its file board_id cannot be read",
    };
    let unknown = || "unknown".to_owned();
    let read = |file: &str| attribute(name, file).unwrap_or_else(unknown);
    let port = ["state", "link_layer", "rate"].map(|file| read(&format!("ports/1/{file}"))).join(", ");
    let mut about: Vec<Finding> = vec![
        ("device".into(), name.into()),
        ("nature".into(), nature.into()),
        ("PSID".into(), psid.unwrap_or_else(unknown)),
        ("type".into(), read("hca_type")),
        ("firmware".into(), read("fw_ver")),
        ("port 1".into(), port),
        ("rdma-core".into(), rdma_core().unwrap_or_else(unknown)),
    ];
    about.extend(capabilities(device));
    about
}

/// Describes the capabilities of a device.
fn capabilities(device: &Device) -> Vec<Finding> {
    let (general, crypto) = (device.capabilities(), device.crypto());
    let mut about = Vec::new();
    let mut put = |what: &str, value: &dyn Display| about.push((what.to_owned(), value.to_string()));
    let is = |has: bool| if has { "yes" } else { "no" };
    let power = |log: u8| if log == 0 { "not reported".into() } else { format!("up to 2^{log}") };
    match general.signatures() {
        Some(signatures) => put("signatures", &signatures),
        None => put("signatures", &"none"),
    }
    put("send queues that stop at signature errors", &is(general.drain_signature_errors));
    put("AES-XTS and keys", crypto);
    let values = crypto.crypto.is_some_and(|crypto| crypto.synchronizes_deks);
    put("DEKs that get other values (SYNC_CRYPTO)", &is(values));
    put("mkeys", &power(general.log_max_mkeys));
    put("entries of an mkey", &power(general.log_max_entries));
    put("entries of an mkey that requests change", &format!("up to {}", general.max_umr_entries()));
    put("bytes of an mkey", &power(general.log_max_mkey_bytes));
    put("mkeys whose entries have one length (KSM)", &is(general.fixed_buffer_size));
    put("depth of mkeys in mkeys", &general.max_indirection);
    let orders = match general.relaxed_ordering_umr() {
        Some(RelaxedOrdering { write: true, read: true }) => "of writes and of reads",
        Some(RelaxedOrdering { write: true, read: false }) => "of writes",
        Some(RelaxedOrdering { write: false, read: true }) => "of reads",
        _ => "none",
    };
    put("orders that a configuration relaxes", &orders);
    put("memory windows", &is(general.memory_windows));
    put("atomics", &is(general.atomic));
    let copies = general.log_max_memcpy_bytes().map_or_else(|| "none".into(), |log| power(log) + " bytes");
    put("copies of memory by requests", &copies);
    put("fence behind a change of an mkey", &format!("{:?}", general.umr_fence));
    put("time stamps", &format!("{:?}", device.timestamp_support()));
    put(
        "READs and atomics in flight",
        &format!(
            "requester up to 2^{}, responder up to 2^{}",
            general.log_max_reads_out, general.log_max_reads_in
        ),
    );
    put("message", &(power(general.log_max_message) + " bytes"));
    put("entries of a queue", &power(general.log_max_qp_entries));
    let blue_flame = general.log_blue_flame.map_or_else(|| "none".into(), |log| format!("2^{log} bytes"));
    put("BlueFlame register", &blue_flame);
    about
}

/// Returns the version of rdma-core: libmlx5's file name ends in the version of its symbols and the version
/// of rdma-core (`libmlx5.so.1.24.44.0`).
fn rdma_core() -> Option<String> {
    let maps = fs::read_to_string("/proc/self/maps").ok()?;
    let (_, file) = maps.lines().find(|line| line.contains("/libmlx5.so"))?.rsplit_once('/')?;
    Some(match version(file) {
        Some(version) => format!("{version} ({file})"),
        None => format!("unknown ({file})"),
    })
}

/// Returns the version of rdma-core in the file name of libmlx5.
fn version(file: &str) -> Option<&str> {
    let (_, version) = file.strip_prefix("libmlx5.so.")?.split_once('.')?;
    version.split_once('.').map(|(_, version)| version)
}

/// Describes a completion that a scenario took.
pub(super) fn completion(qpn: u32, work: &WorkCompletion) -> String {
    let outcome = match work.outcome {
        Outcome::Sent { kind, bytes: 0 } => format!("{kind:?} done"),
        Outcome::Sent { kind, bytes } => format!("{kind:?} done, {bytes} bytes"),
        Outcome::Received { message, bytes } => format!("{message:?} received, {bytes} bytes"),
        Outcome::Failed(Failure { syndrome, vendor, hardware, hardware_type }) => format!(
            "failed: {syndrome} (syndrome {:#04x}, vendor {vendor:#04x}, hardware {hardware:#04x} of type \
             {hardware_type:#04x})",
            syndrome.0
        ),
    };
    format!("completion of queue pair {qpn:#x}: request {}: {outcome}", work.id)
}

#[cfg(test)]
mod tests {
    use super::version;

    #[test]
    fn the_name_of_libmlx5_has_the_version_of_rdma_core() {
        assert_eq!(version("libmlx5.so.1.24.44.0"), Some("44.0"));
        assert_eq!(version("libmlx5.so.1"), None);
        assert_eq!(version("libmlx5-rdmav34.so"), None);
    }
}
