//! Discovery of the device: programs find the device in files that this library writes while the loader loads
//! this library, instead of in the kernel's list.
#![allow(unsafe_code)]

use super::{mappings, paths};
use crate::fabric;
use crate::ground::port::View;
use crate::ground::{settings, sys, sysfs};
use std::ffi::CString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::panic::catch_unwind;
use std::path::PathBuf;

/// Makes libibverbs and DPDK look for devices in the files of this library. The loader calls this function.
extern "C" fn loaded() {
    let _ = catch_unwind(|| {
        // Unit tests of this library need no files.
        if !cfg!(test) {
            mappings::prepare();
            paths::keep(tree());
        }
    });
}

/// Writes the files that programs see in place of the files of `/sys`, and returns their directory.
///
/// # Errors
/// A sentence for the user that says why the files cannot be written.
fn tree() -> Result<CString, String> {
    let directory = settings::directory();
    fabric::prepare(&directory)?;
    let lost = |error: &dyn std::fmt::Display| format!("{}: {error}", directory.display());
    let view = View::from_environment();
    paths::keep_devices(view.devices()?);
    let tree = sysfs::write(&directory, &view, &view.ports()?).map_err(|error| lost(&error))?;
    let string = |path: PathBuf| CString::new(path.into_os_string().into_vec()).map_err(|error| lost(&error));
    let (devices, tree) = (string(tree.join(sysfs::PCI_DEVICES))?, string(tree)?);
    // A parent process with this library may have set the variables for another network namespace.
    let is_own = |value: &[u8]| value.starts_with(directory.as_os_str().as_bytes());
    sys::set_unless(c"SYSFS_PATH", &tree, is_own);
    sys::set_unless(c"SYSFS_PCI_DEVICES", &devices, is_own);
    Ok(tree)
}

// SAFETY: the loader calls each function in this section, with arguments that `loaded` ignores.
#[used]
#[unsafe(link_section = ".init_array")]
static LOADED: extern "C" fn() = loaded;
