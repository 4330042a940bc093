//! A QEMU that accepts PCI functions over vfio-user, a protocol by which a process serves a PCI device.

use super::arch::Arch;
use super::unpacked;
use std::path::Path;
use std::process::{Command, Stdio};
use xtask::debian::{self, Architecture, Dependencies};
use xtask::run::{answer, program};

/// The versions of QEMU with which all of `cargo xtask guest --check` has passed.
const SEEN: &[&str] = &["11.1.3"];

/// A QEMU of 10.1 or later: the beginning of its command line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Qemu {
    words: Vec<String>,
}

impl Qemu {
    /// Finds the QEMU for a machine: the named program, else the program of the PATH, else the program of
    /// Debian's unstable release, which is unpacked below `target`.
    ///
    /// # Errors
    /// The named program does not know `vfio-user-pci`, or Debian's packages cannot be downloaded.
    pub(crate) fn find(arch: Arch, named: Option<&str>) -> Result<Self, String> {
        if let Some(named) = named {
            let found = Self { words: vec![named.to_owned()] };
            return if found.knows() {
                Ok(found)
            } else {
                Err(format!("{named} does not know vfio-user-pci: QEMU 10.1 or later does (--qemu PROGRAM)"))
            };
        }
        let found = Self { words: vec![arch.qemu().to_owned()] };
        if found.knows() {
            return Ok(found);
        }
        let (own, all) = (Architecture::Own, Dependencies::Included);
        let root = debian::unpack(debian::SID, own, arch.qemu(), arch.emulator(), all)?;
        let found = Self { words: words(&root, arch) };
        if !found.knows() {
            let qemu = arch.qemu();
            return Err(format!("{qemu} of Debian sid does not know vfio-user-pci (--qemu PROGRAM)"));
        }
        let version = found.version()?;
        if !SEEN.contains(&version.as_str()) {
            eprintln!("QEMU {version} of Debian sid has not been tried yet");
        }
        Ok(found)
    }

    /// Returns a command that runs QEMU. The system also ends QEMU if this process is killed.
    pub(crate) fn command(&self) -> Command {
        let mut command = program("setpriv", &["--pdeathsig", "KILL"]);
        command.args(&self.words);
        command
    }

    /// Returns whether QEMU has a device of this name. The output decides instead of the exit status: QEMU
    /// 7.2 also ends with 0 if it lacks the device, but then lists no options.
    pub(crate) fn has(&self, device: &str) -> bool {
        let mut command = self.command();
        command.args(["-machine", "none", "-device", &format!("{device},help")]).stderr(Stdio::null());
        answer(command).is_ok_and(|options| options.contains(&format!("{device} options")))
    }

    /// Returns whether QEMU accepts PCI functions over vfio-user.
    fn knows(&self) -> bool {
        self.has("vfio-user-pci")
    }

    /// Returns QEMU's version, without Debian's additions.
    fn version(&self) -> Result<String, String> {
        let mut command = self.command();
        command.arg("--version");
        let text = answer(command)?;
        let version = text.split_once("version ").map_or("", |(_, rest)| rest);
        Ok(version.split([' ', '(', '+', '\n']).next().unwrap_or_default().to_owned())
    }
}

/// Returns the beginning of the command line for a QEMU that was unpacked below `root`. It names the folders
/// of QEMU's data files.
fn words(root: &Path, arch: Arch) -> Vec<String> {
    let mut words = unpacked::words(root, arch.qemu());
    for data in ["usr/share/qemu", "usr/share/seabios"] {
        words.extend(["-L".into(), root.join(data).display().to_string()]);
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_without_the_device_is_no_such_qemu() {
        // Both programs end with status 0 and list no options of the device.
        for named in ["true", "echo"] {
            let error = Qemu::find(Arch::X86, Some(named)).unwrap_err();
            assert!(error.contains(named), "{error}");
        }
    }
}
