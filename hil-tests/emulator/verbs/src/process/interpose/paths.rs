//! Finds the paths that belong to the device, and the files that stand for them.
#![allow(unsafe_code)]

use crate::ground::{notice, sysfs};
use std::ffi::{CStr, CString, c_char};
use std::os::unix::ffi::OsStrExt;
use std::sync::OnceLock;

/// Addresses below this one are never strings.
const FIRST_PAGE: usize = 4096;

/// The longest path, with the zero at its end.
const PATH_MAX: usize = libc::PATH_MAX as usize;

/// The directory of the files that stand for those of `/sys`, or the reason why it does not exist.
static TREE: OnceLock<Result<CString, String>> = OnceLock::new();

/// Keeps the directory to which this library has written its files, or the reason of the failure.
pub(super) fn keep(tree: Result<CString, String>) {
    // The loader calls this once, so the value is never set twice.
    let _ = TREE.set(tree);
}

/// Reports on standard error why a program that looks for devices will find none, if this library has failed
/// to write its files.
pub(super) fn looked_for() {
    if let Some(Err(why)) = TREE.get() {
        notice::once(why);
    }
}

/// Returns whether programs look for devices in the files of this library. The user may have chosen other
/// files (`SYSFS_PATH`).
pub(super) fn is_device_there() -> bool {
    let Some(Ok(tree)) = TREE.get() else { return false };
    std::env::var_os("SYSFS_PATH").is_none_or(|chosen| chosen.as_bytes() == tree.to_bytes())
}

/// The file that a path names.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    /// The device's file.
    Device,
    /// A file of `/sys` that the stand-in has.
    Sysfs,
    /// The file of connection management.
    ConnectionManager,
    /// A file that has nothing to do with the device.
    Elsewhere,
}

/// Finds the file that a path names. The path is compared byte by byte: `.` and `..` are not resolved.
///
/// # Safety
/// `path` is a C string, null, or an address below the first page.
unsafe fn place(path: *const c_char) -> Place {
    if path.addr() < FIRST_PAGE {
        return Place::Elsewhere;
    }
    // SAFETY: by contract, `path` is a C string.
    let names =
        |name: &str, ends: &[u8]| unsafe { behind(path, name) }.is_some_and(|end| ends.contains(&end));
    if names(sysfs::CHARACTER_DEVICE, b"\0") {
        Place::Device
    } else if names(sysfs::CONNECTION_MANAGER, b"\0") {
        Place::ConnectionManager
    } else if sysfs::TAKEN_OVER.iter().any(|name| names(name, b"\0/")) {
        Place::Sysfs
    } else {
        Place::Elsewhere
    }
}

/// Returns the byte that follows `name` in a string that begins with it.
///
/// # Safety
/// `string` is a C string.
unsafe fn behind(string: *const c_char, name: &str) -> Option<u8> {
    // SAFETY: `index` is at most one more than the number of bytes equal to those of the name. None of these
    // is zero, so the string reaches at least to `index`.
    let byte = |index| unsafe { *string.add(index) } as u8;
    let equal = name.bytes().enumerate().all(|(index, expected)| byte(index) == expected);
    equal.then(|| byte(name.len()))
}

/// Returns whether `path` names the device's file.
///
/// # Safety
/// `path` meets the conditions of [`place`].
pub(super) unsafe fn is_device(path: *const c_char) -> bool {
    // SAFETY: the caller keeps the contract of `place`.
    unsafe { place(path) == Place::Device }
}

/// Returns whether `path` names the file of connection management.
///
/// # Safety
/// `path` meets the conditions of [`place`].
pub(super) unsafe fn is_connections(path: *const c_char) -> bool {
    // SAFETY: the caller keeps the contract of `place`.
    unsafe { place(path) == Place::ConnectionManager }
}

/// Calls `body` with the path of the file that stands for `path`, or with `path` itself if no file stands for
/// it.
///
/// # Safety
/// `path` meets the conditions of [`place`].
pub(super) unsafe fn placed<T>(path: *const c_char, body: impl FnOnce(*const c_char) -> T) -> T {
    // SAFETY: the caller keeps the contract of `place`.
    match unsafe { place(path) } {
        Place::Device | Place::ConnectionManager => body(sysfs::STAND_IN.as_ptr()),
        Place::Sysfs => {
            looked_for();
            let Some(Ok(tree)) = TREE.get() else { return body(path) };
            // SAFETY: `place` returns `Sysfs` only for a C string, and this string begins with the root's
            // name.
            let rest = unsafe { CStr::from_ptr(path.add(sysfs::ROOT.len())) };
            let mut room = [0; PATH_MAX];
            body(joined(tree, rest, &mut room).map_or(path, CStr::as_ptr))
        }
        Place::Elsewhere => body(path),
    }
}

/// Joins directory and rest to a path. Returns `None` if the path would be longer than [`PATH_MAX`].
fn joined<'a>(directory: &CStr, rest: &CStr, room: &'a mut [u8; PATH_MAX]) -> Option<&'a CStr> {
    let (directory, rest) = (directory.to_bytes(), rest.to_bytes_with_nul());
    let (first, second) = room.split_at_mut_checked(directory.len())?;
    first.copy_from_slice(directory);
    second.get_mut(..rest.len())?.copy_from_slice(rest);
    CStr::from_bytes_until_nul(room).ok()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn place_of(path: &str) -> Place {
        let path = CString::new(path).unwrap();
        // SAFETY: the argument is a C string that lives until the call is over.
        unsafe { place(path.as_ptr()) }
    }

    #[test]
    fn only_the_device_s_paths_are_its() {
        let expected = [
            (Place::Device, &["/dev/infiniband/uverbs0"][..]),
            (Place::ConnectionManager, &["/dev/infiniband/rdma_cm"]),
            (
                Place::Sysfs,
                &[
                    "/sys/class/infiniband",
                    "/sys/class/infiniband/",
                    "/sys/class/infiniband/mlx5_0/ports/1/state",
                    "/sys/class/infiniband_verbs",
                    "/sys/class/infiniband_verbs/uverbs0/dev",
                ],
            ),
            (
                Place::Elsewhere,
                &[
                    "",
                    "/",
                    "/dev/infiniband",
                    "/dev/infiniband/uverbs",
                    "/dev/infiniband/uverbs00",
                    "/dev/infiniband/uverbs0/",
                    "/sys/class/infiniban",
                    "/sys/class/infiniband_mad",
                    "/sys/class/infiniband_verbose",
                    "sys/class/infiniband",
                ],
            ),
        ];
        for (place, paths) in expected {
            for path in paths {
                assert!(place_of(path) == place, "{path}");
            }
        }
        // SAFETY: `place` reads neither address.
        let wild = unsafe { [place(std::ptr::null()), place(std::ptr::without_provenance(0x10))] };
        assert!(wild == [Place::Elsewhere; 2]);
    }

    #[test]
    fn paths_that_grow_too_long_stay_as_they_were() {
        let mut room = [0; PATH_MAX];
        assert_eq!(joined(c"/tree", c"/class", &mut room), Some(c"/tree/class"));
        let long = |length| CString::new(vec![b'x'; length]).unwrap();
        assert!(joined(&long(PATH_MAX - 3), c"/a", &mut room).is_some());
        assert_eq!(joined(&long(PATH_MAX - 2), c"/a", &mut room), None);
        assert_eq!(joined(&long(PATH_MAX + 1), c"/a", &mut room), None);
    }
}
