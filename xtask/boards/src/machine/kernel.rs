//! The Linux kernel of an emulated machine: finds its image and its modules.

use super::arch::Arch;
use super::folder::only;
use std::path::{Path, PathBuf};
use xtask::debian::{self, Dependencies};

/// A kernel: the file that QEMU starts, and the folder of the kernel's modules.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Kernel {
    pub(crate) image: PathBuf,
    pub(crate) modules: PathBuf,
}

impl Kernel {
    /// Finds the only kernel below a folder: its modules in `lib/modules` or `usr/lib/modules`, its image
    /// beside them (`vmlinuz`) or in `boot` (`vmlinuz-RELEASE`). A folder with an unpacked kernel package of
    /// Debian has this layout.
    pub(crate) fn below(folder: &Path) -> Result<Self, String> {
        let places = ["lib/modules", "usr/lib/modules"].map(|place| folder.join(place));
        let found = places
            .iter()
            .find(|place| place.is_dir())
            .ok_or_else(|| format!("{}: no folder lib/modules or usr/lib/modules", folder.display()))?;
        let release = only(found, "")?;
        let modules = found.join(&release);
        let images = [modules.join("vmlinuz"), folder.join("boot").join(format!("vmlinuz-{release}"))];
        match images.iter().find(|image| image.is_file()) {
            Some(image) => Ok(Self { image: image.clone(), modules }),
            None => Err(format!("{}: no vmlinuz of {release}", folder.display())),
        }
    }

    /// Unpacks the newest kernel of Debian's unstable release below `target`.
    pub(crate) fn newest(arch: Arch) -> Result<Self, String> {
        let parts = Dependencies::Beginning("linux-");
        Self::below(&debian::unpack(debian::SID, arch.packages(), "kernel", &[arch.kernel()], parts)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn a_kernel_is_found_in_both_layouts() {
        let folder = tempfile::tempdir().unwrap();
        let put = |name: &str| {
            let path = folder.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, "").unwrap();
        };
        put("old/boot/vmlinuz-6.1");
        put("old/lib/modules/6.1/a.ko");
        put("new/usr/lib/modules/7.2/vmlinuz");
        put("two/lib/modules/1/vmlinuz");
        put("two/lib/modules/2/vmlinuz");
        put("none/lib/modules/1/a.ko");
        let found = |name: &str| Kernel::below(&folder.path().join(name));
        assert!(found("old").unwrap().image.ends_with("boot/vmlinuz-6.1"));
        assert!(found("new").unwrap().modules.ends_with("usr/lib/modules/7.2"));
        for name in ["two", "none", "absent"] {
            assert!(found(name).is_err(), "{name}");
        }
    }
}
