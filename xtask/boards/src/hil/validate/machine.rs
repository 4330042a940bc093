//! Checks the machine before a run: looks for reasons why programs cannot use the device, such as a missing
//! driver, and describes the machine.

use serde::{Deserialize, Serialize};
use std::fs::{self, File};
use std::io::ErrorKind;
use std::path::Path;

/// A property and its value, in words.
pub(super) type Property = (String, String);

/// The PSID (`board_id`) of the software devices of this repository.
const OURS: &str = "MLX5SOFTDEV";

/// Numbers of Linux's capabilities (`linux/capability.h`).
const CAP_NET_RAW: u32 = 13;
const CAP_IPC_LOCK: u32 = 14;

/// The most memory that the run locks, in bytes.
const LOCKED: u64 = 64 << 20;

/// The consequence of a check for the run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Weight {
    Good,
    /// The run is possible, but some of its cases may be skipped or may fail.
    Hint,
    /// The run is impossible.
    Missing,
}

/// The result of a check of one condition, such as the driver or the port.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Check {
    pub(super) what: String,
    pub(super) weight: Weight,
    /// The finding, and the command with which a user can change it. This program changes nothing.
    pub(super) words: String,
}

impl Check {
    fn new(what: &str, weight: Weight, words: impl Into<String>) -> Self {
        Self { what: what.into(), weight, words: words.into() }
    }
}

/// A machine, as the files in its `sys`, `proc` and `dev` describe it.
pub(super) struct Machine<'a> {
    /// The folder that contains `sys`, `proc` and `dev`: `/`, or a folder of files in tests.
    pub(super) root: &'a Path,
}

impl Machine<'_> {
    fn read(&self, path: &str) -> Option<String> {
        fs::read_to_string(self.root.join(path))
            .ok()
            .map(|text| text.trim().trim_end_matches('\0').to_owned())
    }

    fn names(&self, path: &str) -> Vec<String> {
        let entries = fs::read_dir(self.root.join(path)).into_iter().flatten().flatten();
        let mut names: Vec<String> =
            entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
        names.sort();
        names
    }

    pub(super) fn first_device(&self) -> Option<String> {
        self.names("sys/class/infiniband").into_iter().find(|name| name.starts_with("mlx5"))
    }

    fn is_ours(&self, device: &str) -> bool {
        let psid = self.read(&format!("sys/class/infiniband/{device}/board_id"));
        psid.is_some_and(|psid| psid.starts_with(OURS))
    }

    /// Returns the name by which NVIDIA's tools know a device: its PCI address.
    fn address(&self, device: &str) -> String {
        let link = fs::canonicalize(self.root.join(format!("sys/class/infiniband/{device}/device")));
        let name = link.ok().and_then(|path| Some(path.file_name()?.to_string_lossy().into_owned()));
        name.unwrap_or_else(|| "PCI-ADDRESS".into())
    }

    /// Checks driver, rights, locked memory and port, before any program opens the device.
    pub(super) fn checks(&self, device: &str) -> Vec<Check> {
        let driver = self.driver(device);
        if driver.weight == Weight::Missing {
            return vec![driver];
        }
        let mut checks = vec![driver, self.file(device)];
        if !self.is_ours(device) {
            checks.extend([self.rights(), self.memory()]);
        }
        checks.push(self.port(device));
        checks
    }

    fn driver(&self, device: &str) -> Check {
        let what = "driver";
        let devices = self.names("sys/class/infiniband");
        if devices.iter().any(|name| name == device) {
            return Check::new(what, Weight::Good, format!("Linux has the device {device}"));
        }
        let loaded = |module: &str| self.root.join("sys/module").join(module).exists();
        let words = if !devices.is_empty() {
            format!("there is no device {device}; there are {}", devices.join(", "))
        } else if !loaded("mlx5_core") {
            "no RDMA device, and the driver mlx5_core is not loaded. Is there a card (lspci -d 15b3:)? \
             Then as root: modprobe mlx5_ib"
                .into()
        } else if !loaded("mlx5_ib") {
            "the network driver mlx5_core is loaded, but mlx5_ib is not. As root: modprobe mlx5_ib".into()
        } else {
            "mlx5_ib is loaded, but there is no RDMA device. `dmesg | grep mlx5` may tell why".into()
        };
        Check::new(what, Weight::Missing, words)
    }

    /// Checks that this user may open the device's file in `/dev/infiniband`.
    fn file(&self, device: &str) -> Check {
        let what = "rights to the device";
        let folder = "sys/class/infiniband_verbs";
        let of_device = |name: &String| {
            self.read(&format!("{folder}/{name}/ibdev")).is_some_and(|of_file| of_file == device)
        };
        let Some(name) = self.names(folder).into_iter().find(of_device) else {
            let words = "programs cannot open the device: the module ib_uverbs is not loaded. As root: \
                         modprobe ib_uverbs";
            return Check::new(what, Weight::Missing, words);
        };
        let file = format!("dev/infiniband/{name}");
        match File::options().read(true).write(true).open(self.root.join(&file)) {
            Ok(_) => Check::new(what, Weight::Good, format!("this user may open /{file}")),
            Err(error) if error.kind() == ErrorKind::PermissionDenied => {
                let words = format!(
                    "this user may not open /{file}. Run this program as root (sudo), or let root make the \
                     file writable for a group of yours (a rule of udev)"
                );
                Check::new(what, Weight::Missing, words)
            }
            Err(error) => Check::new(what, Weight::Missing, format!("/{file}: {error}")),
        }
    }

    fn has(&self, capability: u32) -> bool {
        let status = self.read("proc/self/status").unwrap_or_default();
        let set = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
        set.and_then(|set| u64::from_str_radix(set.trim(), 16).ok())
            .is_some_and(|set| set >> capability & 1 != 0)
    }

    fn rights(&self) -> Check {
        let what = "rights of this process";
        if self.has(CAP_NET_RAW) {
            Check::new(what, Weight::Good, "it has CAP_NET_RAW")
        } else {
            let words = "it lacks CAP_NET_RAW, without which Linux refuses some commands to the device. \
                         Run this program as root (sudo)";
            Check::new(what, Weight::Hint, words)
        }
    }

    fn memory(&self) -> Check {
        let what = "memory that may be locked";
        if self.has(CAP_IPC_LOCK) {
            return Check::new(what, Weight::Good, "no limit (CAP_IPC_LOCK)");
        }
        let limits = self.read("proc/self/limits").unwrap_or_default();
        let limit = limits.lines().find_map(|line| line.strip_prefix("Max locked memory"));
        match limit.and_then(|rest| rest.split_whitespace().next()) {
            Some("unlimited") => Check::new(what, Weight::Good, "no limit"),
            Some(bytes) if bytes.parse::<u64>().is_ok_and(|bytes| bytes < LOCKED) => {
                let words = format!(
                    "{bytes} bytes; the run locks up to {LOCKED}. Before this program: ulimit -l unlimited \
                     (as root), or a line `* - memlock unlimited` in /etc/security/limits.conf and a new \
                     login"
                );
                Check::new(what, Weight::Hint, words)
            }
            Some(bytes) => Check::new(what, Weight::Good, format!("{bytes} bytes")),
            None => Check::new(what, Weight::Hint, "the limit is unknown"),
        }
    }

    fn port(&self, device: &str) -> Check {
        let what = "port 1";
        let state = self.read(&format!("sys/class/infiniband/{device}/ports/1/state")).unwrap_or_default();
        if state.contains("ACTIVE") {
            return Check::new(what, Weight::Good, "active");
        }
        let interfaces = self.names(&format!("sys/class/infiniband/{device}/device/net"));
        let interface = interfaces.first().map_or("INTERFACE", String::as_str);
        let words = format!(
            "its state is `{state}`. Cases that connect by address will fail, all others use the device's \
             loopback. As root: ip link set {interface} up; a port needs a cable or a peer to become active"
        );
        Check::new(what, Weight::Hint, words)
    }

    /// Judges the words by which the device describes its encryption (the property "AES-XTS and keys").
    pub(super) fn crypto(&self, device: &str, words: &str) -> Check {
        let address = self.address(device);
        let what = "encryption";
        if words.contains("keys are loaded in plaintext") {
            return Check::new(what, Weight::Good, words);
        }
        let advice = if words.contains("not commissioned") {
            format!(
                "The owner of the card commissions it once, by one command that also sets the first \
                 credential and the first key (DPDK's guide \"NVIDIA MLX5 Crypto Driver\"). The state: \
                 mlxreg -d {address} --reg_name CRYPTO_OPERATIONAL --get. The change: mlxreg -d {address} \
                 --reg_name CRYPTO_OPERATIONAL --set \"credential[0]=…, kek[0]=…\""
            )
        } else if words.contains("must be wrapped") {
            "Cases that load keys are skipped: only the owner of the card has the credential for a login"
                .into()
        } else if words.contains("tweaks grow by 2^64") {
            format!(
                "mlxconfig can change this setting of the firmware. The settings: mlxconfig -d {address} q"
            )
        } else {
            format!(
                "Cards are sold with and without encryption. Firmware offers AES-XTS from xx.32.0108 \
                 (ConnectX-6 Dx, BlueField-2) and xx.36 (ConnectX-7, BlueField-3) on (DPDK's guide). Card \
                 and firmware: flint -d {address} query"
            )
        };
        Check::new(what, Weight::Hint, format!("{words}. {advice}"))
    }

    pub(super) fn about(&self) -> Vec<Property> {
        let system = self.read("etc/os-release").unwrap_or_default();
        let system = system.lines().find_map(|line| line.strip_prefix("PRETTY_NAME="));
        let model = ["sys/class/dmi/id/product_name", "proc/device-tree/model"];
        let cores = std::thread::available_parallelism().map_or_else(|_| "?".into(), |n| n.to_string());
        let unknown = || "unknown".to_owned();
        [
            ("kernel", self.read("proc/sys/kernel/osrelease").unwrap_or_else(unknown)),
            ("system", system.map_or_else(unknown, |name| name.trim_matches('"').into())),
            ("machine", model.iter().find_map(|path| self.read(path)).unwrap_or_else(unknown)),
            ("processor", self.processor().unwrap_or_else(unknown)),
            ("cores for this program", cores),
            ("architecture", std::env::consts::ARCH.into()),
        ]
        .map(|(what, value)| (what.into(), value))
        .into()
    }

    fn processor(&self) -> Option<String> {
        let text = self.read("proc/cpuinfo")?;
        let value = |name: &str| {
            let lines = text.lines().filter_map(|line| line.split_once(':'));
            lines
                .into_iter()
                .find(|(found, _)| found.trim() == name)
                .map(|(_, value)| value.trim().to_owned())
        };
        if let Some(name) = value("model name") {
            return Some(name);
        }
        let (implementer, part) = (value("CPU implementer")?, value("CPU part")?);
        let name = match (implementer.as_str(), part.as_str()) {
            ("0x41", "0xd08") => "Cortex-A72",
            ("0x41", "0xd41" | "0xd42") => "Cortex-A78",
            _ => "unknown core",
        };
        Some(format!("{name} (implementer {implementer}, part {part})"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn machine(files: &[(&str, &str)]) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = folder.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        folder
    }

    const CARD: [(&str, &str); 4] = [
        ("sys/class/infiniband/mlx5_0/board_id", "MT_0000000540"),
        ("sys/class/infiniband/mlx5_0/ports/1/state", "4: ACTIVE"),
        ("sys/class/infiniband_verbs/uverbs3/ibdev", "mlx5_0"),
        ("dev/infiniband/uverbs3", ""),
    ];

    fn found(files: &[(&str, &str)], what: &str) -> Check {
        let folder = machine(files);
        let mut checks = Machine { root: folder.path() }.checks("mlx5_0");
        let at = checks.iter().position(|check| check.what == what).unwrap();
        checks.swap_remove(at)
    }

    #[test]
    fn a_missing_driver_has_its_command() {
        let check = found(&[], "driver");
        assert!(check.weight == Weight::Missing && check.words.ends_with("modprobe mlx5_ib"), "{check:?}");
        let check = found(&[("sys/module/mlx5_core/refcnt", "1")], "driver");
        assert!(check.words.contains("mlx5_ib is not"), "{check:?}");
        let check = found(&[("sys/class/infiniband/mlx5_3/fw_ver", "1")], "driver");
        assert!(check.words.contains("no device mlx5_0; there are mlx5_3"), "{check:?}");
    }

    #[test]
    fn rights_and_limits_are_told() {
        let good = [
            ("proc/self/status", "Name:\tx\nCapEff:\t0000000000006000\n"),
            ("proc/self/limits", "Max locked memory         8388608 8388608 bytes\n"),
        ];
        assert_eq!(found(&[&CARD[..], &good].concat(), "rights of this process").weight, Weight::Good);
        assert_eq!(found(&[&CARD[..], &good].concat(), "memory that may be locked").weight, Weight::Good);
        let poor = [("proc/self/status", "CapEff:\t0000000000000000\n"), good[1]];
        assert_eq!(found(&[&CARD[..], &poor].concat(), "rights of this process").weight, Weight::Hint);
        let check = found(&[&CARD[..], &poor].concat(), "memory that may be locked");
        assert!(check.words.starts_with("8388608 bytes; the run locks up to"), "{check:?}");
        // Without the device's file in `/dev/infiniband` or its entry in `/sys`, the device cannot be opened.
        assert_eq!(found(&CARD[..3], "rights to the device").weight, Weight::Missing);
        assert_eq!(found(&CARD[..2], "rights to the device").weight, Weight::Missing);
        assert_eq!(found(&CARD, "rights to the device").weight, Weight::Good);
    }

    #[test]
    fn a_port_that_is_down_names_its_interface() {
        let mut card = CARD;
        card[1].1 = "1: DOWN";
        let net = [("sys/class/infiniband/mlx5_0/device/net/p0/mtu", "1500")];
        let check = found(&[&card[..], &net].concat(), "port 1");
        assert!(check.weight == Weight::Hint && check.words.contains("ip link set p0 up"), "{check:?}");
    }

    #[test]
    fn encryption_that_is_off_has_the_command_that_enables_it() {
        let folder = machine(&CARD);
        let crypto = |words| Machine { root: folder.path() }.crypto("mlx5_0", words);
        assert_eq!(crypto("AES-XTS; keys are loaded in plaintext; up to 2^8 keys").weight, Weight::Good);
        let check = crypto("no AES-XTS: keys must be wrapped, but the device is not commissioned yet");
        assert!(check.words.contains("--reg_name CRYPTO_OPERATIONAL --set"), "{check:?}");
        assert!(crypto("no AES-XTS: the device does not encrypt").words.contains("flint -d"));
    }

    #[test]
    fn a_device_of_ours_needs_no_rights() {
        let mut card = CARD;
        card[0].1 = "MLX5SOFTDEV00001";
        let folder = machine(&card);
        let checks = Machine { root: folder.path() }.checks("mlx5_0");
        assert!(checks.iter().all(|check| check.weight == Weight::Good), "{checks:?}");
    }
}
