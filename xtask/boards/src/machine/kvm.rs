//! Decides whether guests run on the processor itself (KVM), or are emulated (TCG).

use super::arch::Arch;
use super::kernel::Kernel;
use super::qemu::Qemu;
use std::fs;
use std::io::Read;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;
use xtask::run::{Ends, root, wait};

/// The way in which QEMU executes the guest's instructions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Accelerator {
    /// QEMU translates the instructions.
    Tcg,
    /// The processor executes the instructions.
    Kvm,
}

/// The time limit of the trial with KVM. A kernel without a root file system ends after two seconds.
const TRIAL: Duration = Duration::from_secs(10);

/// The device file of KVM.
const DEVICE: &str = "/dev/kvm";

/// The text that a kernel without a root file system prints at its end.
const PANIC: &str = "Kernel panic";

impl Accelerator {
    /// Returns KVM if this machine has it and a trial has shown that a guest's kernel boots. On some machines
    /// the device file exists, but guests never leave the firmware. The outcome of the trial is kept until
    /// this machine starts again.
    pub(crate) fn find(qemu: &Qemu, arch: Arch, kernel: &Kernel) -> Self {
        let is_own = matches!(arch, Arch::X86) == cfg!(target_arch = "x86_64");
        if !is_own || !Path::new(DEVICE).exists() {
            return Self::Tcg;
        }
        let folder = root().join("target/guest");
        let kept = folder.join("kvm");
        let start = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
        if let Some(outcome) = fs::read_to_string(&kept).ok().and_then(|text| outcome(&text, &start)) {
            return outcome;
        }
        eprintln!("KVM: a trial of at most {} s", TRIAL.as_secs());
        let (found, words) = match boots(command(qemu, arch, kernel)) {
            true => (Self::Kvm, "a guest boots"),
            false => (Self::Tcg, "no guest boots; guests are emulated"),
        };
        eprintln!("KVM: {words}");
        // If the outcome cannot be kept, the next guest tries again.
        let _ = fs::create_dir_all(&folder).and_then(|()| fs::write(kept, format!("{found:?} {start}")));
        found
    }

    /// Returns QEMU's options for the accelerator and the processor.
    pub(crate) fn options(self, arch: Arch) -> [&'static str; 4] {
        match self {
            Self::Tcg => ["-accel", "tcg,thread=multi", "-cpu", arch.machine().1],
            Self::Kvm => ["-accel", "kvm", "-cpu", "host"],
        }
    }
}

/// Returns the outcome of an earlier trial, if this machine has not started again since. `text` is the kept
/// outcome with the boot ID at that time, `start` the present boot ID.
fn outcome(text: &str, start: &str) -> Option<Accelerator> {
    let (found, of) = text.split_once(' ')?;
    let found = [Accelerator::Tcg, Accelerator::Kvm].into_iter().find(|one| format!("{one:?}") == found)?;
    (of == start && !start.is_empty()).then_some(found)
}

/// Returns a command that boots the kernel with KVM, without a root file system.
fn command(qemu: &Qemu, arch: Arch, kernel: &Kernel) -> Command {
    let parameters = format!("console={}0 panic=-1", arch.port());
    let mut command = qemu.command();
    command
        .args(Accelerator::Kvm.options(arch))
        .args(["-machine", arch.machine().0, "-m", "256M", "-nodefaults", "-display", "none", "-no-reboot"])
        .args(["-serial", "stdio", "-append", &parameters, "-kernel"])
        .arg(&kernel.image);
    command
}

/// Returns whether a command prints [`PANIC`], the last text of a kernel that boots, and ends within the time
/// limit.
fn boots(mut command: Command) -> bool {
    let spawned = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn();
    let Ok(mut child) = spawned.map(Ends) else { return false };
    let output = child.0.stdout.take();
    let reader = std::thread::spawn(move || {
        let mut text = Vec::new();
        // If the read fails, the bytes before the error are searched.
        let _ = output.map(|mut output| output.read_to_end(&mut text));
        String::from_utf8_lossy(&text).contains(PANIC)
    });
    let has_ended = matches!(wait(&mut child.0, TRIAL), Ok(Some(_)));
    drop(child);
    reader.join().unwrap_or_default() && has_ended
}

#[cfg(test)]
mod tests {
    use super::*;
    use xtask::run::program;

    #[test]
    fn a_guest_boots_that_says_so_and_ends() {
        let shell = |script: &str| program("sh", &["-c", script]);
        assert!(boots(shell("echo 'Kernel panic - not syncing'")));
        assert!(!boots(shell("echo SeaBIOS")), "the guest stays in its firmware");
        assert!(!boots(program("/does/not/exist", &[])));
    }

    #[test]
    fn an_outcome_counts_until_the_machine_starts_again() {
        assert_eq!(outcome("Kvm one\n", "one\n"), Some(Accelerator::Kvm));
        for (text, start) in [("Kvm one\n", "two\n"), ("Fast one\n", "one\n"), ("", "one\n"), ("Kvm ", "")] {
            assert_eq!(outcome(text, start), None, "{text}");
        }
    }
}
