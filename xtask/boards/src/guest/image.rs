//! The root file system of the guest.

use crate::machine::arch::Arch;
use crate::machine::image::{DRIVERS, Entry, Image, names};
use std::path::{Path, PathBuf};

/// The beginnings of the names of rdma-core's programs that query a device or move data over one.
const PROGRAMS: &[&str] = &["ib_", "ibv_", "rdma_", "rping", "ucmatose", "udaddy"];

/// Returns the archive. `command` is the shell script that the guest runs. `files` are files of this machine,
/// which become programs of the guest.
pub(super) fn build(
    arch: Arch,
    packages: &Path,
    files: &[PathBuf],
    command: &str,
) -> Result<Vec<u8>, String> {
    let mut image = Image::new(arch, packages, DRIVERS, include_bytes!("init.sh"))?;
    image.put("etc/command", Entry::File(command.into()));
    files.iter().try_for_each(|path| image.program(path))?;
    let programs = packages.join("usr/bin");
    for name in names(&programs)? {
        if PROGRAMS.iter().any(|beginning| name.starts_with(beginning)) {
            image.program(&programs.join(&name))?;
        }
    }
    image.archive()
}
