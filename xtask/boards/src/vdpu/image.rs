//! The root file system of the virtual DPU.

use crate::machine::arch::Arch;
use crate::machine::image::{DRIVERS, Entry, Image};
use crate::machine::kernel::Kernel;
use std::path::Path;

/// The kernel modules for the network device of QEMU.
const NETWORK: &[&str] = &["virtio_mmio", "virtio_net"];

/// The programs of the SSH server.
const PROGRAMS: &[&str] = &["usr/bin/dropbearconvert", "usr/sbin/dropbear"];

/// Returns the root file system as an archive. The archive contains files of unpacked packages, the server's
/// private key, and the client's public key. `drives` adds Linux's own drivers for the device.
pub(super) fn build(
    packages: &Path,
    kernel: &Kernel,
    drives: bool,
    host_key: &str,
    authorized: &str,
) -> Result<Vec<u8>, String> {
    let drivers = [NETWORK, if drives { DRIVERS } else { &[] }].concat();
    let mut image = Image::new(Arch::Arm64, packages, kernel, &drivers, include_bytes!("init.sh"))?;
    image.put("etc/passwd", Entry::File(b"root:x:0:0:root:/root:/bin/sh\n".to_vec()));
    image.put("etc/group", Entry::File(b"root:x:0:\n".to_vec()));
    PROGRAMS.iter().try_for_each(|name| image.program(&packages.join(name)))?;
    image.put("etc/dropbear", Entry::Folder);
    image.put("etc/dropbear/openssh_host_key", Entry::Secret(host_key.into()));
    image.put("root/.ssh", Entry::Folder);
    image.put("root/.ssh/authorized_keys", Entry::Secret(authorized.into()));
    image.archive()
}
