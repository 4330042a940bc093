//! The root file system of a machine: an archive that its kernel unpacks into memory.

use super::arch::Arch;
use super::folder::{names, only};
use super::kernel::Kernel;
use super::modules;
use cpio::newc::ModeFileType;
use cpio::{NewcBuilder, write_cpio};
use std::fs;
use std::io::Cursor;
use std::path::Path;
use xtask::run::At;

const FOLDERS: &[&str] =
    &["bin", "dev", "etc", "etc/libibverbs.d", "lib", "lib64", "proc", "root", "sys", "tmp", "usr"];

/// Symbolic links in the archive, each with its target: other folders in which programs look for the files of
/// `bin` and `lib`.
const LINKS: &[(&str, &str)] =
    &[("sbin", "bin"), ("usr/bin", "../bin"), ("usr/lib", "../lib"), ("usr/sbin", "../bin")];

/// Linux's drivers for the device, and the modules that make the device files for programs (verbs and RDMA
/// CM).
pub(crate) const DRIVERS: &[&str] = &["mlx5_core", "mlx5_ib", "ib_uverbs", "rdma_ucm"];

pub(crate) enum Entry {
    Folder,
    Program(Vec<u8>),
    File(Vec<u8>),
    /// A file that only its owner can read.
    Secret(Vec<u8>),
    Link(String),
}

pub(crate) struct Image {
    entries: Vec<(String, Entry)>,
}

impl Image {
    /// Returns the files that every machine needs: `init`, a shell, all libraries of unpacked packages,
    /// libmlx5 as a provider of libibverbs, and kernel modules with their dependencies. `etc/modules` names
    /// the modules in order.
    pub(crate) fn new(
        arch: Arch,
        packages: &Path,
        kernel: &Kernel,
        drivers: &[&str],
        init: &[u8],
    ) -> Result<Self, String> {
        let mut image = Self { entries: Vec::new() };
        FOLDERS.iter().for_each(|name| image.put(name, Entry::Folder));
        LINKS.iter().for_each(|(name, target)| image.put(name, Entry::Link((*target).into())));
        image.put("init", Entry::Program(init.to_vec()));
        image.program(&packages.join("bin/busybox"))?;
        let folder = format!("lib/{}", arch.triplet());
        image.put(&folder, Entry::Folder);
        for place in [packages.join(&folder), packages.join("usr").join(&folder)] {
            // A package may have no libraries in one of the two places.
            for name in names(&place).unwrap_or_default().iter().filter(|name| name.contains(".so")) {
                let path = place.join(name);
                let entry = match fs::read_link(&path) {
                    Ok(target) if target.components().count() == 1 => {
                        Entry::Link(target.to_string_lossy().into_owned())
                    }
                    _ => Entry::Program(read(&path)?),
                };
                image.put(&format!("{folder}/{name}"), entry);
            }
        }
        let loader = Path::new(arch.loader()).file_name().unwrap_or_default().to_string_lossy();
        image.put(arch.loader(), Entry::Link(format!("/{folder}/{loader}")));
        let driver = "etc/libibverbs.d/mlx5.driver";
        image.put(driver, Entry::File(read(&packages.join(driver))?));
        // libibverbs loads its providers from this folder. Their file names contain the version of
        // libibverbs. The file here is a link to libmlx5.
        let providers = format!("{folder}/libibverbs");
        image.put(&providers, Entry::Folder);
        let provider = only(&packages.join("usr").join(&providers), "libmlx5-")?;
        image.put(&format!("{providers}/{provider}"), Entry::Link("../libmlx5.so.1".into()));
        image.put("lib/modules", Entry::Folder);
        image.modules(kernel, drivers, "etc/modules")?;
        Ok(image)
    }

    /// Adds kernel modules with their dependencies. The file `list` of the archive gets their names in the
    /// order of loading.
    pub(crate) fn modules(&mut self, kernel: &Kernel, drivers: &[&str], list: &str) -> Result<(), String> {
        let mut names = String::new();
        for (name, module) in modules::in_order(&kernel.modules, drivers)? {
            names += &format!("{name}\n");
            let path = format!("lib/modules/{name}.ko");
            if !self.entries.iter().any(|(there, _)| *there == path) {
                self.put(&path, Entry::File(module));
            }
        }
        self.put(list, Entry::File(names.into_bytes()));
        Ok(())
    }

    /// Adds a file. The caller ensures that no other file has this name.
    pub(crate) fn put(&mut self, name: &str, entry: Entry) {
        self.entries.push((name.to_owned(), entry));
    }

    /// Adds a file of this machine to the folder `bin` of the archive, as a program.
    pub(crate) fn program(&mut self, path: &Path) -> Result<(), String> {
        let name = path.file_name().ok_or_else(|| format!("{} names no file", path.display()))?;
        self.put(&format!("bin/{}", name.to_string_lossy()), Entry::Program(read(path)?));
        Ok(())
    }

    pub(crate) fn archive(self) -> Result<Vec<u8>, String> {
        let inputs = self.entries.into_iter().map(|(name, entry)| {
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
}

fn read(path: &Path) -> Result<Vec<u8>, String> {
    fs::read(path).at(path)
}
