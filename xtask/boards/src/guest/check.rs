//! `cargo xtask guest --check`: tests Linux's own drivers in several guests, for each port and kernel.

use super::boot::boot;
use super::network::{boot_beside, boot_two};
use super::options::{Options, SID};
use super::parts::{Guest, Parts};
use crate::machine::arch::Arch;
use std::path::PathBuf;
use std::process::ExitCode;
use xtask::{host, run};

const BEGIN: &str = include_str!("check/begin.sh");
const PROGRAMS: &str = include_str!("check/programs.sh");
const DEVX: &str = include_str!("check/devx.sh");
const CONNECTIONS: &str = include_str!("check/connections.sh");
const VOLUME: &str = include_str!("check/volume.sh");
const DISK: &str = include_str!("check/disk.sh");
const STORAGE: &str = include_str!("check/storage.sh");
const PROTECTION: &str = include_str!("check/protection.sh");
const LIFE: &str = include_str!("check/life.sh");
const TRAFFIC: &str = include_str!("check/traffic.sh");
const RECOVERY: &str = include_str!("check/recovery.sh");
const IDENTITY: &str = include_str!("check/identity.sh");
const SECOND: &str = include_str!("check/second.sh");
const SERVE: &str = include_str!("check/serve.sh");
const ORDERS: &str = include_str!("check/orders.sh");
const ISER: &str = include_str!("check/iser.sh");
const INSERT: &str = include_str!("check/insert.sh");
const OWN: &str = include_str!("check/own.sh");
const TARGET: &str = include_str!("check/target.sh");
const BETWEEN: &str = include_str!("check/between.sh");
const BESIDE: &str = include_str!("check/beside.sh");
const END: &str = include_str!("check/end.sh");

/// A guest of the check, with the scripts that it runs one after the other.
struct Part {
    arch: Arch,
    /// [`SID`] for the newest kernel of Debian sid. `None` for the kernel of this machine's Debian, so far
    /// Debian 12.
    kernel: Option<&'static str>,
    /// The kind of port that the PCI function has: `infiniband` or `ethernet`.
    port: &'static str,
    /// The model of the device (`--device` of the function). An empty text selects a BlueField-3.
    device: &'static str,
    /// The plan by which the function fails on purpose (`--faults`). Empty for a function without faults.
    faults: &'static str,
    scripts: &'static [&'static str],
    /// A name for the scripts in the description of the guest, or an empty text.
    about: &'static str,
    /// Whether the device announces block signatures to Linux. The device of [`Other::Guest`] always
    /// announces them.
    signatures: bool,
    other: Other,
}

/// The other machine on the network of a guest.
enum Other {
    /// The guest is alone.
    None,
    /// Another guest, with the scripts for each of its boots.
    Guest(&'static [&'static [&'static str]]),
    /// Programs on this machine, behind the stand-in for the kernel. The guest starts them over TCP.
    Programs,
}

const INFINIBAND: &[&str] = &[BEGIN, PROGRAMS, DEVX, LIFE, END];
const ETHERNET: &[&str] =
    &[BEGIN, PROGRAMS, CONNECTIONS, TRAFFIC, VOLUME, STORAGE, DISK, PROTECTION, LIFE, END];

/// A plan of faults: the device fails at its 600th completion, during the ping-pong. The plan counts
/// completions, because the start of the drivers takes few of them, but an unknown number of commands.
const FATAL: &str = "completion@600=fatal";

/// The scripts of a guest that carries out the orders (shell commands) of another guest.
const SERVES: &[&str] = &[BEGIN, VOLUME, OWN, DISK, SERVE];

/// The scripts of a guest that orders the other guest to be a storage target which inserts and strips
/// protection information.
const INSERTED: &[&str] = &[SECOND, BEGIN, ORDERS, VOLUME, INSERT, END];

/// The scripts of a guest that gives the other guest ([`SERVES`]) all orders of a check.
const ORDERED: &[&str] = &[SECOND, BEGIN, ORDERS, VOLUME, BETWEEN, END];

/// The scripts of a guest whose storage target is a program of this project.
const OURS: &[&str] = &[BEGIN, VOLUME, OWN, TARGET, END];

/// A guest with Debian 12's kernel on an InfiniBand port, alone.
const USUAL: Part = Part {
    arch: Arch::X86,
    kernel: None,
    port: "infiniband",
    device: "",
    faults: "",
    scripts: INFINIBAND,
    about: "",
    signatures: true,
    other: Other::None,
};

/// The scripts of a guest that checks the model of its device, with one ping-pong and one scenario.
const LOOK: &[&str] = &[BEGIN, IDENTITY, END];

const PARTS: &[Part] = &[
    USUAL,
    Part { port: "ethernet", scripts: ETHERNET, ..USUAL },
    Part { kernel: Some(SID), ..USUAL },
    Part { kernel: Some(SID), port: "ethernet", scripts: ETHERNET, ..USUAL },
    Part { port: "ethernet", faults: FATAL, scripts: &[BEGIN, RECOVERY], ..USUAL },
    Part { kernel: Some(SID), faults: FATAL, scripts: &[BEGIN, RECOVERY], ..USUAL },
    Part { port: "ethernet", scripts: ORDERED, other: Other::Guest(&[SERVES, SERVES]), ..USUAL },
    Part {
        kernel: Some(SID),
        port: "ethernet",
        scripts: ORDERED,
        other: Other::Guest(&[SERVES, SERVES]),
        ..USUAL
    },
    Part { port: "ethernet", scripts: INSERTED, signatures: false, other: Other::Guest(&[SERVES]), ..USUAL },
    Part {
        kernel: Some(SID),
        port: "ethernet",
        scripts: INSERTED,
        signatures: false,
        other: Other::Guest(&[SERVES]),
        ..USUAL
    },
    Part { port: "ethernet", scripts: &[BEGIN, BESIDE, END], other: Other::Programs, ..USUAL },
    Part { port: "ethernet", scripts: &[BEGIN, DISK, ISER, END], about: "iSER", ..USUAL },
    Part { kernel: Some(SID), port: "ethernet", scripts: &[BEGIN, DISK, ISER, END], about: "iSER", ..USUAL },
    Part { port: "ethernet", scripts: OURS, about: "our target", ..USUAL },
    Part { kernel: Some(SID), port: "ethernet", scripts: OURS, about: "our target", ..USUAL },
    Part { device: "bluefield2", scripts: LOOK, ..USUAL },
    Part { device: "connectx6dx", port: "ethernet", scripts: LOOK, ..USUAL },
    Part { device: "connectx7", scripts: LOOK, ..USUAL },
    Part { kernel: Some(SID), device: "bluefield2", port: "ethernet", scripts: LOOK, ..USUAL },
    Part { kernel: Some(SID), device: "connectx6dx", scripts: LOOK, ..USUAL },
    Part { kernel: Some(SID), device: "connectx7", port: "ethernet", scripts: LOOK, ..USUAL },
    Part { arch: Arch::Arm64, scripts: &[BEGIN, PROGRAMS, END], ..USUAL },
];

impl Part {
    /// Returns the guest, if the options select it. Absent options select all guests. If `--kernel` names a
    /// folder, the kernel there replaces that of Debian 12.
    fn asked(&self, options: &Options) -> Option<Guest> {
        let kernel = match (self.kernel, options.kernel.as_deref()) {
            (kernel, None) => kernel,
            (Some(kernel), Some(named)) if kernel == named => Some(kernel),
            (None, Some(named)) if named != SID => Some(named),
            _ => return None,
        };
        let is_asked = options.arch.is_none_or(|arch| arch == self.arch)
            && options.port.as_deref().is_none_or(|port| port == self.port);
        is_asked.then(|| Guest {
            arch: self.arch,
            kernel: kernel.map(String::from),
            port: self.port.to_owned(),
            device: Some(self.device.to_owned()).filter(|name| !name.is_empty()),
            faults: Some(self.faults.to_owned()).filter(|words| !words.is_empty()),
            // The checks of storage run over Ethernet only. This excludes the arm64 guest, whose port is
            // InfiniBand: Debian's kernel for arm64 has no `scsi_debug`.
            storage: self.port == "ethernet",
            signatures: self.signatures,
            reaches_host: matches!(self.other, Other::Programs),
            files: Vec::new(),
            command: self.command(self.scripts),
        })
    }

    /// Returns the script for the guest's shell. The first line sets the variable `device`.
    fn command(&self, scripts: &[&str]) -> String {
        format!("device={}\n{}", self.device, scripts.concat())
    }

    /// Builds the programs of this project that the scripts call.
    fn files(&self) -> Result<Vec<PathBuf>, String> {
        match self.other {
            Other::None if self.scripts == OURS => Ok(vec![host::nvme_target()?]),
            Other::None => Ok(vec![self.arch.scenarios()?]),
            Other::Guest(_) => Ok([self.arch.storage()?, vec![host::nvme_target()?]].concat()),
            Other::Programs => self.arch.storage(),
        }
    }

    /// Boots the guest, with the other machine of its network.
    fn boot(&self, options: &Options, guest: &Guest, parts: &Parts) -> Result<u8, String> {
        match self.other {
            Other::None => boot(options, guest, parts),
            Other::Programs => boot_beside(options, guest, parts),
            Other::Guest(boots) => {
                let other = |scripts: &&[&str]| Guest {
                    signatures: true,
                    command: self.command(scripts),
                    ..guest.clone()
                };
                boot_two(options, &boots.iter().map(other).collect::<Vec<_>>(), guest, parts)
            }
        }
    }

    fn words(&self, guest: &Guest) -> String {
        let kernel = guest.kernel.as_deref().unwrap_or("12");
        let fails = if self.faults.is_empty() { "" } else { ", a device that fails" };
        let two = match self.other {
            Other::None => "",
            Other::Guest(_) if self.signatures => ", two guests",
            Other::Guest(_) => ", a target that inserts",
            Other::Programs => ", a guest and programs",
        };
        let about = if self.about.is_empty() { String::new() } else { format!(", {}", self.about) };
        let device = if self.device.is_empty() { String::new() } else { format!(", {}", self.device) };
        format!("{:?}, kernel of Debian {kernel}, port {}{device}{about}{fails}{two}", self.arch, self.port)
    }
}

/// Returns the line of the results for a guest whose emulator, kernel or packages cannot be obtained. The
/// summary of `cargo xtask test` repeats lines of this form, with a number after the first word.
fn skipped(words: &str, why: &str) -> String {
    format!("SKIPPED    1: guest {words}: {why}")
}

/// Boots the guests one after the other. A guest whose emulator, kernel or packages cannot be obtained is
/// skipped, with the reason.
pub(super) fn run(options: &Options) -> ExitCode {
    let (mut results, mut failures) = (Vec::new(), 0);
    for (part, mut guest) in PARTS.iter().filter_map(|part| Some((part, part.asked(options)?))) {
        let words = part.words(&guest);
        if options.case.as_ref().is_some_and(|case| !words.contains(case)) {
            continue;
        }
        println!("guest: {words}");
        let parts = match Parts::find(options, &guest) {
            Ok(parts) => parts,
            Err(why) => {
                results.push(skipped(&words, &why));
                continue;
            }
        };
        let booted = part.files().and_then(|files| {
            guest.files = files;
            part.boot(options, &guest, &parts)
        });
        let outcome = match booted {
            Ok(0) => "passed ".to_owned(),
            Ok(status) => format!("FAILED with status {status}:"),
            Err(why) => format!("FAILED ({why}):"),
        };
        failures += usize::from(outcome != "passed ");
        results.push(format!("{outcome}  {words}"));
    }
    results.iter().for_each(|line| println!("{line}"));
    run::status(outcome(&results, failures))
}

/// Returns the outcome of the check. A check in which all guests were skipped is an error.
fn outcome(results: &[String], failures: usize) -> Result<(), String> {
    match failures {
        0 if results.iter().all(|line| line.starts_with("SKIPPED")) => Err("no guest was booted".into()),
        0 => Ok(()),
        failures => Err(format!("guests that failed: {failures}")),
    }
}

#[cfg(test)]
mod tests {
    use super::super::options::options;
    use super::*;

    #[test]
    fn a_guest_that_is_skipped_is_told_and_is_no_success() {
        let line = skipped("Arm64, kernel of Debian 12", "no QEMU");
        // `skipped` in xtask/src/test/report.rs finds these lines by their form, for the summary of `cargo
        // xtask test`.
        assert_eq!(line, "SKIPPED    1: guest Arm64, kernel of Debian 12: no QEMU");
        assert_eq!(outcome(&["passed   one".into(), line.clone()], 0), Ok(()));
        assert!(outcome(&[line], 0).unwrap_err().contains("no guest"));
        assert!(outcome(&["passed   one".into()], 1).is_err());
    }

    #[test]
    fn options_choose_guests() {
        let asked = |line: &str| {
            let options = options(&line.split_whitespace().map(String::from).collect::<Vec<_>>()).unwrap();
            let found = PARTS.iter().filter_map(|part| part.asked(&options));
            found.map(|guest| (guest.arch, guest.kernel, guest.port)).collect::<Vec<_>>()
        };
        assert_eq!(asked("--check").len(), PARTS.len());
        let named = |kernel: &str, port: &str| (Arch::X86, Some(kernel.to_owned()), port.to_owned());
        assert_eq!(asked("--kernel sid --port ethernet"), [(); 7].map(|()| named("sid", "ethernet")));
        let own = asked("--kernel /here --arch x86-64");
        let (ib, eth) = ("infiniband", "ethernet");
        let ports = [ib, eth, eth, eth, eth, eth, eth, eth, ib, eth, ib];
        assert_eq!(own, ports.map(|port| named("/here", port)));
        assert_eq!(asked("--arch arm64"), [(Arch::Arm64, None, "infiniband".to_owned())]);
    }
}
