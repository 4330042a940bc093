//! The root file system of the guest: an archive that its kernel unpacks into memory.

use crate::vdpu::image::{Entry, archive, library, only, read};
use crate::vdpu::modules;
use std::fs;
use std::path::{Path, PathBuf};

/// The name of Debian's library folder for x86-64.
const TRIPLET: &str = "x86_64-linux-gnu";

/// Linux's drivers for the device, and the modules whose device files programs open.
const MODULES: &[&str] = &["mlx5_core", "mlx5_ib", "ib_uverbs", "rdma_ucm"];

const FOLDERS: &[&str] =
    &["bin", "dev", "etc", "etc/libibverbs.d", "lib", "lib64", "proc", "root", "sys", "tmp", "usr"];

/// Links to `bin` and `lib` at other usual places.
const LINKS: &[(&str, &str)] =
    &[("sbin", "bin"), ("usr/bin", "../bin"), ("usr/lib", "../lib"), ("usr/sbin", "../bin")];

/// The libraries of rdma-core's programs, and of libmlx5.
const LIBRARIES: &[&str] = &[
    "libc.so.6",
    "libgcc_s.so.1",
    "libibverbs.so.1",
    "libm.so.6",
    "libmlx5.so.1",
    "libnl-3.so.200",
    "libnl-route-3.so.200",
];

/// Returns the archive. `command` is the shell script that the guest runs. `files` are files of this machine,
/// which become programs of the guest.
pub(crate) fn build(packages: &Path, files: &[PathBuf], command: &str) -> Result<Vec<u8>, String> {
    let mut entries: Vec<(String, Entry)> = Vec::new();
    let mut put = |name: &str, entry| entries.push((name.to_owned(), entry));
    FOLDERS.iter().for_each(|name| put(name, Entry::Folder));
    LINKS.iter().for_each(|(name, target)| put(name, Entry::Link((*target).into())));
    put("init", Entry::Program(include_bytes!("init.sh").to_vec()));
    put("etc/command", Entry::File(command.into()));
    put("bin/busybox", Entry::Program(read(&packages.join("bin/busybox"))?));
    for path in files {
        let name = path.file_name().ok_or_else(|| format!("{} names no file", path.display()))?;
        put(&format!("bin/{}", name.to_string_lossy()), Entry::Program(read(path)?));
    }
    // The programs of rdma-core that query a device or move data over one.
    let programs = packages.join("usr/bin");
    for entry in fs::read_dir(&programs).map_err(|error| format!("{}: {error}", programs.display()))? {
        let name = entry.map_err(|error| error.to_string())?.file_name().to_string_lossy().into_owned();
        if name.starts_with("ibv_") {
            put(&format!("bin/{name}"), Entry::Program(read(&programs.join(&name))?));
        }
    }
    put("lib64/ld-linux-x86-64.so.2", Entry::Program(library(packages, TRIPLET, "ld-linux-x86-64.so.2")?));
    let folder = format!("lib/{TRIPLET}");
    put(&folder, Entry::Folder);
    for name in LIBRARIES {
        put(&format!("{folder}/{name}"), Entry::File(library(packages, TRIPLET, name)?));
    }
    put("etc/libibverbs.d/mlx5.driver", Entry::File(read(&packages.join("etc/libibverbs.d/mlx5.driver"))?));
    // libibverbs loads providers by names that contain its version. This name is a link to libmlx5.
    let providers = format!("{folder}/libibverbs");
    put(&providers, Entry::Folder);
    let provider = only(&packages.join("usr").join(&providers), "libmlx5-")?;
    put(&format!("{providers}/{provider}"), Entry::Link("../libmlx5.so.1".into()));
    let releases = packages.join("lib/modules");
    let release = releases.join(only(&releases, "")?);
    put("lib/modules", Entry::Folder);
    let mut names = String::new();
    for (name, module) in modules::in_order(&release, MODULES)? {
        names += &format!("{name}\n");
        put(&format!("lib/modules/{name}.ko"), Entry::File(module));
    }
    put("etc/modules", Entry::File(names.into_bytes()));
    archive(entries)
}
