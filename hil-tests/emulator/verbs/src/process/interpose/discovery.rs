//! Discovery of the device: programs find it in files that this library writes while it is loaded, instead of
//! in the kernel's list.
#![allow(unsafe_code)]

use super::next::{fail, next};
use super::paths;
use crate::fabric;
use crate::ground::errno::Errno;
use crate::ground::{settings, sys, sysfs};
use std::ffi::{CString, c_int};
use std::os::unix::ffi::OsStringExt;
use std::panic::catch_unwind;
use std::path::PathBuf;

/// `NETLINK_RDMA`.
const NETLINK_RDMA: c_int = 20;

/// Makes a socket, but refuses one to the kernel's list of RDMA devices. libibverbs then looks in the files
/// of this library.
///
/// # Safety
/// As the function of the C library.
// SAFETY: the name is deliberately that of the C library's function, which this one replaces.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn socket(domain: c_int, kind: c_int, protocol: c_int) -> c_int {
    if domain == libc::AF_NETLINK && protocol == NETLINK_RDMA {
        paths::looked_for();
        return fail(Errno::PROTONOSUPPORT);
    }
    let next = next!(socket(c_int, c_int, c_int) -> c_int);
    // SAFETY: handed on from the caller.
    unsafe { next(domain, kind, protocol) }
}

/// Makes libibverbs and DPDK look for devices in the files of this library. The loader calls it.
extern "C" fn loaded() {
    let _ = catch_unwind(|| {
        // Unit tests of this library need no files.
        if !cfg!(test) {
            paths::keep(tree());
        }
    });
}

/// Writes the files that stand for those of `/sys`, and returns their directory.
///
/// # Errors
/// A sentence that says why they cannot be written.
fn tree() -> Result<CString, String> {
    let directory = settings::directory();
    fabric::prepare(&directory)?;
    let lost = |error: &dyn std::fmt::Display| format!("{}: {error}", directory.display());
    let tree = sysfs::write(&directory).map_err(|error| lost(&error))?;
    let string = |path: PathBuf| CString::new(path.into_os_string().into_vec()).map_err(|error| lost(&error));
    let (devices, tree) = (string(tree.join(sysfs::PCI_DEVICES))?, string(tree)?);
    sys::set_default(c"SYSFS_PATH", &tree);
    sys::set_default(c"SYSFS_PCI_DEVICES", &devices);
    Ok(tree)
}

// SAFETY: the loader calls each function in this section, with arguments that `loaded` ignores.
#[used]
#[unsafe(link_section = ".init_array")]
static LOADED: extern "C" fn() = loaded;
