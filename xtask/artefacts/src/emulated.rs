//! A minimal arm64 Debian system in a folder, for checks on a machine of another architecture. The kernel
//! starts its programs by qemu-user, so that shell scripts and the programs that they start run unchanged.

use std::path::{Path, PathBuf};
use std::process::Command;
use xtask::debian::{self, Architecture, Dependencies};
use xtask::run::{At, program};

/// The Debian packages of the system: those that the validation script assumes on every Debian system, and
/// libmlx5.
const PACKAGES: &[&str] = &[
    "base-files",
    "bash",
    "coreutils",
    "dash",
    "findutils",
    "grep",
    "gzip",
    "hostname",
    "ibverbs-providers",
    "sed",
    "tar",
    "util-linux",
];

/// A shell script that runs a command in the system. A user namespace makes the kernel start arm64 programs
/// by qemu-user, only for the processes of the namespace (Linux 6.7 or later). The arguments are the folder
/// of the system, the emulator, the folder of the command, and the command with its environment.
const ENTER: &str = "\
root=$1 emulator=$2 folder=$3
shift 3
mount -t binfmt_misc binfmt_misc /proc/sys/fs/binfmt_misc
printf '%s' ':arm64:M::\\x7fELF\\x02\\x01\\x01\\x00\\x00\\x00\\x00\\x00\\x00\\x00\\x00\\x00\\x02\\x00\\xb7\\x00\
:\\xff\\xff\\xff\\xff\\xff\\xff\\xff\\x00\\xff\\xff\\xff\\xff\\xff\\xff\\xff\\xff\\xfe\\xff\\xff\\xff:'\
\"$emulator\":F > /proc/sys/fs/binfmt_misc/register
for place in proc dev; do
    mkdir -p \"$root/$place\"
    mount --rbind \"/$place\" \"$root/$place\"
done
exec chroot \"$root\" /usr/bin/env -i --chdir=\"$folder\" PATH=/usr/sbin:/usr/bin:/sbin:/bin \
TMPDIR=\"$folder\" \"$@\"
";

/// The folder of the system, and the emulator of its programs.
pub(super) struct System {
    root: PathBuf,
    emulator: PathBuf,
}

impl System {
    /// Unpacks the system and the emulator into folders below `target`.
    pub(super) fn make() -> Result<Self, String> {
        let root = debian::unpack(None, Architecture::Arm64, "minimal", PACKAGES, Dependencies::Included)?;
        let emulator = debian::unpack(
            None,
            Architecture::Own,
            "qemu-user-static",
            &["qemu-user-static"],
            Dependencies::Omitted,
        )?;
        Ok(Self { root, emulator: emulator.join("usr/bin/qemu-aarch64-static") })
    }

    /// Makes a folder in the system. Dropping the returned value removes the folder.
    pub(super) fn temporary(&self) -> Result<tempfile::TempDir, String> {
        tempfile::Builder::new().prefix("check").tempdir_in(&self.root).at(&self.root)
    }

    /// Returns the path that a file has for programs of the system.
    pub(super) fn inside(&self, path: &Path) -> PathBuf {
        Path::new("/").join(path.strip_prefix(&self.root).unwrap_or(path))
    }

    /// Returns a command that runs a program of the system in a folder of the system. `variable` is an
    /// environment variable for the program, as `NAME=VALUE`.
    pub(super) fn command(&self, folder: &Path, variable: Option<String>, path: &Path) -> Command {
        let words =
            ["--user", "--map-root-user", "--mount", "--propagation", "private", "sh", "-ec", ENTER, "sh"];
        let mut command = program("unshare", &words);
        command.arg(&self.root).arg(&self.emulator).arg(self.inside(folder));
        command.args(variable).arg(self.inside(path));
        command
    }
}
