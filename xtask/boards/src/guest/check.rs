//! `cargo xtask guest --check`: tests Linux's own drivers in several guests, for each port and kernel.

use super::boot::boot;
use super::options::{Options, SID};
use super::parts::{Guest, Parts};
use crate::machine::arch::Arch;
use std::process::ExitCode;
use xtask::run;

const BEGIN: &str = include_str!("check/begin.sh");
const PROGRAMS: &str = include_str!("check/programs.sh");
const DEVX: &str = include_str!("check/devx.sh");
const CONNECTIONS: &str = include_str!("check/connections.sh");
const STORAGE: &str = include_str!("check/storage.sh");
const PROTECTION: &str = include_str!("check/protection.sh");
const LIFE: &str = include_str!("check/life.sh");
const TRAFFIC: &str = include_str!("check/traffic.sh");
const RECOVERY: &str = include_str!("check/recovery.sh");
const END: &str = include_str!("check/end.sh");

/// A guest of the check: its processor, its kernel (`None`: the kernel of Debian 12), the port of its PCI
/// function, and the scripts that it runs one after the other.
struct Part {
    arch: Arch,
    kernel: Option<&'static str>,
    port: &'static str,
    /// The plan of faults of the function, or no words.
    faults: &'static str,
    scripts: &'static [&'static str],
}

const INFINIBAND: &[&str] = &[BEGIN, PROGRAMS, DEVX, LIFE, END];
const ETHERNET: &[&str] = &[BEGIN, PROGRAMS, CONNECTIONS, TRAFFIC, STORAGE, PROTECTION, LIFE, END];

/// The device fails at a completion of the ping-pong. The start of the drivers takes few completions, and an
/// unknown number of commands.
const FATAL: &str = "completion@600=fatal";

const PARTS: &[Part] = &[
    Part { arch: Arch::X86, kernel: None, port: "infiniband", faults: "", scripts: INFINIBAND },
    Part { arch: Arch::X86, kernel: None, port: "ethernet", faults: "", scripts: ETHERNET },
    Part { arch: Arch::X86, kernel: Some(SID), port: "infiniband", faults: "", scripts: INFINIBAND },
    Part { arch: Arch::X86, kernel: Some(SID), port: "ethernet", faults: "", scripts: ETHERNET },
    Part { arch: Arch::X86, kernel: None, port: "ethernet", faults: FATAL, scripts: &[BEGIN, RECOVERY] },
    Part {
        arch: Arch::X86,
        kernel: Some(SID),
        port: "infiniband",
        faults: FATAL,
        scripts: &[BEGIN, RECOVERY],
    },
    Part {
        arch: Arch::Arm64,
        kernel: None,
        port: "infiniband",
        faults: "",
        scripts: &[BEGIN, PROGRAMS, END],
    },
];

impl Part {
    /// Returns the guest, if the options select it. An option that is not given excludes no guest. A kernel
    /// in a folder replaces that of Debian 12.
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
            faults: Some(self.faults.to_owned()).filter(|words| !words.is_empty()),
            storage: true,
            files: Vec::new(),
            command: self.scripts.concat(),
        })
    }

    /// Returns a description of this guest for the output.
    fn words(&self, guest: &Guest) -> String {
        let kernel = guest.kernel.as_deref().unwrap_or("12");
        let fails = if self.faults.is_empty() { "" } else { ", a device that fails" };
        format!("{:?}, kernel of Debian {kernel}, port {}{fails}", self.arch, self.port)
    }
}

/// Returns the line for a guest whose parts cannot be had. The summary of `cargo xtask test` repeats lines of
/// this form, with a number behind the first word.
fn skipped(words: &str, why: &str) -> String {
    format!("SKIPPED    1: guest {words}: {why}")
}

/// Boots the guests one after the other. A guest whose parts cannot be had is skipped, with the reason.
pub(super) fn run(options: &Options) -> ExitCode {
    let (mut results, mut failures) = (Vec::new(), 0);
    for (part, mut guest) in PARTS.iter().filter_map(|part| Some((part, part.asked(options)?))) {
        let words = part.words(&guest);
        println!("guest: {words}");
        let parts = match Parts::find(options, &guest) {
            Ok(parts) => parts,
            Err(why) => {
                results.push(skipped(&words, &why));
                continue;
            }
        };
        let booted = part.arch.scenarios().and_then(|scenarios| {
            guest.files = vec![scenarios];
            boot(options, &guest, &parts)
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

/// Returns the outcome of the check. A check that has booted no guest has not passed.
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
        // `skipped` of xtask/src/test/report.rs repeats these lines.
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
        assert_eq!(asked("--kernel sid --port ethernet"), [named("sid", "ethernet")]);
        let own = asked("--kernel /here --arch x86-64");
        assert_eq!(own, ["infiniband", "ethernet", "ethernet"].map(|port| named("/here", port)));
        assert_eq!(asked("--arch arm64"), [(Arch::Arm64, None, "infiniband".to_owned())]);
    }
}
