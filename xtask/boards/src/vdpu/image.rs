//! The root file system of the virtual DPU: an archive that its kernel unpacks into memory.

use super::modules;
use cpio::newc::ModeFileType;
use cpio::{NewcBuilder, write_cpio};
use std::fs;
use std::io::Cursor;
use std::path::{Path, PathBuf};

/// The name of Debian's library folder for arm64.
const TRIPLET: &str = "aarch64-linux-gnu";

/// The kernel modules for QEMU's network.
const MODULES: &[&str] = &["virtio_mmio", "virtio_net"];

const FOLDERS: &[&str] =
    &["bin", "dev", "etc", "etc/dropbear", "etc/libibverbs.d", "lib", "proc", "root", "sys", "tmp", "usr"];

/// Links to `bin` and `lib` at other usual places.
const LINKS: &[(&str, &str)] =
    &[("sbin", "bin"), ("usr/bin", "../bin"), ("usr/lib", "../lib"), ("usr/sbin", "../bin")];

const PROGRAMS: &[&str] = &["bin/busybox", "usr/bin/dropbearconvert", "usr/sbin/dropbear"];

/// The libraries of these programs, of the program `hil`, and of libmlx5.
const LIBRARIES: &[&str] = &[
    "libc.so.6",
    "libcrypt.so.1",
    "libgcc_s.so.1",
    "libgmp.so.10",
    "libibverbs.so.1",
    "libm.so.6",
    "libmlx5.so.1",
    "libnl-3.so.200",
    "libnl-route-3.so.200",
    "libtomcrypt.so.1",
    "libtommath.so.1",
    "libz.so.1",
];

/// The kind and content of a file in the archive.
pub(crate) enum Entry {
    Folder,
    Program(Vec<u8>),
    File(Vec<u8>),
    /// A file that only its owner can read.
    Secret(Vec<u8>),
    Link(String),
}

/// Returns the archive. It contains files of unpacked packages, the server's private key, and the client's
/// public key.
pub(crate) fn build(packages: &Path, host_key: &str, authorized: &str) -> Result<Vec<u8>, String> {
    let mut entries: Vec<(String, Entry)> = Vec::new();
    let mut put = |name: &str, entry| entries.push((name.to_owned(), entry));
    FOLDERS.iter().for_each(|name| put(name, Entry::Folder));
    LINKS.iter().for_each(|(name, target)| put(name, Entry::Link((*target).into())));
    put("init", Entry::Program(include_bytes!("init.sh").to_vec()));
    put("etc/passwd", Entry::File(b"root:x:0:0:root:/root:/bin/sh\n".to_vec()));
    put("etc/group", Entry::File(b"root:x:0:\n".to_vec()));
    for name in PROGRAMS {
        let base = name.rsplit('/').next().unwrap_or(name);
        put(&format!("bin/{base}"), Entry::Program(read(&packages.join(name))?));
    }
    put("lib/ld-linux-aarch64.so.1", Entry::Program(library(packages, TRIPLET, "ld-linux-aarch64.so.1")?));
    put("lib/aarch64-linux-gnu", Entry::Folder);
    for name in LIBRARIES {
        put(&format!("lib/aarch64-linux-gnu/{name}"), Entry::File(library(packages, TRIPLET, name)?));
    }
    put("etc/libibverbs.d/mlx5.driver", Entry::File(read(&packages.join("etc/libibverbs.d/mlx5.driver"))?));
    // libibverbs loads providers by names that contain its version. This name is a link to libmlx5.
    let providers = "lib/aarch64-linux-gnu/libibverbs";
    put(providers, Entry::Folder);
    let provider = only(&packages.join("usr").join(providers), "libmlx5-")?;
    put(&format!("{providers}/{provider}"), Entry::Link("../libmlx5.so.1".into()));
    let release = packages.join("lib/modules").join(only(&packages.join("lib/modules"), "")?);
    put("lib/modules", Entry::Folder);
    let mut names = String::new();
    for (name, module) in modules::in_order(&release, MODULES)? {
        names += &format!("{name}\n");
        put(&format!("lib/modules/{name}.ko"), Entry::File(module));
    }
    put("etc/modules", Entry::File(names.into_bytes()));
    put("etc/dropbear/openssh_host_key", Entry::Secret(host_key.into()));
    put("root/.ssh", Entry::Folder);
    put("root/.ssh/authorized_keys", Entry::Secret(authorized.into()));
    archive(entries)
}

/// Returns the archive of these files, by their names.
pub(crate) fn archive(entries: Vec<(String, Entry)>) -> Result<Vec<u8>, String> {
    let inputs = entries.into_iter().map(|(name, entry)| {
        let (kind, mode, content) = match entry {
            Entry::Folder => (ModeFileType::Directory, 0o755, Vec::new()),
            Entry::Program(content) => (ModeFileType::Regular, 0o755, content),
            Entry::File(content) => (ModeFileType::Regular, 0o644, content),
            Entry::Secret(content) => (ModeFileType::Regular, 0o600, content),
            Entry::Link(target) => (ModeFileType::Symlink, 0o777, target.into_bytes()),
        };
        (NewcBuilder::new(&name).mode(mode).set_mode_file_type(kind), Cursor::new(content))
    });
    write_cpio(inputs, Vec::new()).map_err(|error| error.to_string())
}

/// Returns the path of the kernel among the unpacked packages.
pub(crate) fn kernel(packages: &Path) -> Result<PathBuf, String> {
    let boot = packages.join("boot");
    Ok(boot.join(only(&boot, "vmlinuz-")?))
}

pub(crate) fn read(path: &Path) -> Result<Vec<u8>, String> {
    fs::read(path).map_err(|error| format!("{}: {error}", path.display()))
}

/// Reads a library from either of the folders where packages install libraries of an architecture.
pub(crate) fn library(packages: &Path, triplet: &str, name: &str) -> Result<Vec<u8>, String> {
    let place = Path::new("lib").join(triplet).join(name);
    read(&packages.join(&place)).or_else(|_| read(&packages.join("usr").join(place)))
}

/// Returns the name of the only file in a folder whose name begins with `beginning`.
pub(crate) fn only(folder: &Path, beginning: &str) -> Result<String, String> {
    let entries = fs::read_dir(folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    let names = entries.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned());
    let mut found: Vec<_> = names.filter(|name| name.starts_with(beginning)).collect();
    match (found.pop(), found.is_empty()) {
        (Some(name), true) => Ok(name),
        _ => Err(format!("{}: not exactly one file {beginning}*", folder.display())),
    }
}
