//! Recognises the paths of the device's files, and finds this library's own files that replace these files.
#![allow(unsafe_code)]

use crate::ground::port::View;
use crate::ground::{counters, notice, owner, sys, sysfs};
use std::ffi::{CStr, CString, OsStr, c_char, c_int};
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::panic::catch_unwind;
use std::path::Path;
use std::sync::OnceLock;

/// Addresses below this address are not read, because no string can be there. Faulty programs pass such
/// addresses.
const FIRST_PAGE: usize = 4096;

/// The longest path, with the zero at its end.
const PATH_MAX: usize = libc::PATH_MAX as usize;

/// The directory of the files that programs see in place of the files of `/sys`, or the reason why the
/// directory does not exist.
static TREE: OnceLock<Result<CString, String>> = OnceLock::new();

/// The number of devices. Without a value, there is one device.
static DEVICES: OnceLock<usize> = OnceLock::new();

/// Stores the number of devices.
pub(super) fn keep_devices(count: usize) {
    // Only the constructor of this library calls this function, and the loader runs the constructor once. The
    // value is therefore never set twice.
    let _ = DEVICES.set(count);
}

fn devices() -> usize {
    DEVICES.get().copied().unwrap_or(1)
}

/// Stores the directory to which this library has written its files, or the reason of the failure.
pub(super) fn keep(tree: Result<CString, String>) {
    // Only the constructor of this library calls this function, and the loader runs the constructor once. The
    // value is therefore never set twice.
    let _ = TREE.set(tree);
}

/// If this library has failed to write its files, prints the reason on standard error: the program looks for
/// devices and will find none.
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

/// The file of the device that a path names, if any.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    /// The file of the device with this number.
    Device(usize),
    /// A file of `/sys` that the stand-in has.
    Sysfs,
    /// The rdma_cm file.
    ConnectionManager,
    /// A file that has nothing to do with the device.
    Elsewhere,
}

/// Finds the file that a path names. The path is compared byte by byte: `.` and `..` are not resolved.
///
/// # Safety
/// The caller ensures that `path` is a C string, null, or an address below the first page.
unsafe fn place(path: *const c_char) -> Place {
    if path.addr() < FIRST_PAGE {
        return Place::Elsewhere;
    }
    // SAFETY: by contract, `path` is a C string.
    let names =
        |name: &str, ends: &[u8]| unsafe { behind(path, name) }.is_some_and(|end| ends.contains(&end));
    // SAFETY: by contract, `path` is a C string.
    if let Some(index) = unsafe { numbered(path, sysfs::CHARACTER_DEVICE) } {
        Place::Device(index)
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
/// The caller ensures that `string` is a C string.
unsafe fn behind(string: *const c_char, name: &str) -> Option<u8> {
    // SAFETY: the string equals the name in all bytes before `index`. No byte of the name is zero, so the
    // string does not end before `index`.
    let byte = |index| unsafe { *string.add(index) } as u8;
    let equal = name.bytes().enumerate().all(|(index, expected)| byte(index) == expected);
    equal.then(|| byte(name.len()))
}

/// Returns the number of a device, if a string consists of `name` and this number.
///
/// # Safety
/// The caller ensures that `string` is a C string.
unsafe fn numbered(string: *const c_char, name: &str) -> Option<usize> {
    // SAFETY: `string` is a C string, by contract.
    let digit = unsafe { behind(string, name) }?;
    let index = usize::from(digit.checked_sub(b'0')?);
    if index >= devices() {
        return None;
    }
    // SAFETY: the byte after the name is a digit, so the string has one more byte.
    let end = unsafe { *string.add(name.len() + 1) };
    (end == 0).then_some(index)
}

/// Returns the number of the device whose file `path` names.
///
/// # Safety
/// The caller ensures that `path` meets the conditions of [`place`].
pub(super) unsafe fn device(path: *const c_char) -> Option<usize> {
    // SAFETY: the caller keeps the contract of `place`.
    match unsafe { place(path) } {
        Place::Device(index) => Some(index),
        _ => None,
    }
}

/// Returns whether `path` names the rdma_cm file.
///
/// # Safety
/// The caller ensures that `path` meets the conditions of [`place`].
pub(super) unsafe fn is_connections(path: *const c_char) -> bool {
    // SAFETY: the caller keeps the contract of `place`.
    unsafe { place(path) == Place::ConnectionManager }
}

/// Calls `body` with the path of this library's file that replaces `path`, or with `path` itself if no file
/// replaces it.
///
/// # Safety
/// The caller ensures that `path` meets the conditions of [`place`].
pub(super) unsafe fn placed<T>(path: *const c_char, body: impl FnOnce(*const c_char) -> T) -> T {
    // SAFETY: the caller keeps the contract of `place`.
    match unsafe { place(path) } {
        Place::Device(_) | Place::ConnectionManager => body(sysfs::STAND_IN.as_ptr()),
        Place::Sysfs => {
            looked_for();
            let Some(Ok(tree)) = TREE.get() else { return body(path) };
            // SAFETY: `place` returns `Sysfs` only for a C string, and this string begins with the root's
            // name.
            let rest = unsafe { CStr::from_ptr(path.add(sysfs::ROOT.len())) };
            let mut room = [0; PATH_MAX];
            let Some(found) = joined(tree, rest, &mut room) else { return body(path) };
            refresh(tree, found);
            body(found.as_ptr())
        }
        Place::Elsewhere => body(path),
    }
}

/// Writes the files of the counters that a path names, with current values.
fn refresh(tree: &CStr, path: &CStr) {
    let Some((ports, wanted)) = counters::split(path.to_bytes()) else { return };
    let path = |bytes| Path::new(OsStr::from_bytes(bytes));
    let (Some((directory, view)), Ok(wanted)) =
        (sysfs::view_of(path(tree.to_bytes())), std::str::from_utf8(wanted))
    else {
        return;
    };
    // A failure leaves the files as they are.
    let _ = owner::as_device(|| {
        catch_unwind(|| {
            // The folder of the device is two levels above the folder of its port.
            let device = path(ports).ancestors().nth(2).and_then(Path::file_name);
            let index =
                device.and_then(OsStr::to_str).and_then(|name| name.strip_prefix("mlx5_")?.parse().ok());
            let view = View::device_name(view, index.unwrap_or(0));
            counters::refresh(directory, &view, path(ports), wanted);
        })
    });
}

/// A word that occurs in all paths of the device's files. A relative path is made absolute only if it
/// contains this word.
const SUBJECT: &[u8] = b"infiniband";

/// Calls `body` with the absolute path, if `path` contains [`SUBJECT`] and is relative to a directory of
/// `/sys` or `/dev`. Calls `body` with `path` itself otherwise.
///
/// # Safety
/// The caller ensures that `path` meets the conditions of [`place`].
pub(super) unsafe fn resolved<T>(
    directory: c_int,
    path: *const c_char,
    body: impl FnOnce(*const c_char) -> T,
) -> T {
    let mut room = [0; PATH_MAX];
    // SAFETY: the caller keeps the contract of `absolute`.
    body(unsafe { absolute(directory, path, &mut room) }.map_or(path, CStr::as_ptr))
}

/// Returns the absolute form of a path that contains [`SUBJECT`] and is relative to a directory of `/sys` or
/// `/dev`. Returns `None` for other paths.
///
/// # Safety
/// The caller ensures that `path` meets the conditions of [`place`].
unsafe fn absolute(directory: c_int, path: *const c_char, room: &mut [u8; PATH_MAX]) -> Option<&CStr> {
    if path.addr() < FIRST_PAGE {
        return None;
    }
    // SAFETY: by contract, `path` is a C string.
    let path = unsafe { CStr::from_ptr(path) }.to_bytes();
    if path.first().is_none_or(|first| *first == b'/')
        || !path.windows(SUBJECT.len()).any(|part| part == SUBJECT)
    {
        return None;
    }
    let mut link = [0; 32];
    match directory {
        libc::AT_FDCWD => link.as_mut_slice().write_all(b"/proc/self/cwd"),
        _ => write!(link.as_mut_slice(), "/proc/self/fd/{directory}"),
    }
    .ok()?;
    let length = sys::read_link(CStr::from_bytes_until_nul(&link).ok()?, room)?;
    let base = room.get(..length)?;
    let is_above = |root: &[u8]| {
        base.strip_prefix(root).is_some_and(|rest| rest.first().is_none_or(|byte| *byte == b'/'))
    };
    if !is_above(b"/sys") && !is_above(b"/dev") {
        return None;
    }
    let path = path.strip_prefix(b"./").unwrap_or(path);
    let (slash, rest) = room.get_mut(length..)?.split_first_mut()?;
    *slash = b'/';
    rest.get_mut(..path.len())?.copy_from_slice(path);
    *rest.get_mut(path.len())? = 0;
    CStr::from_bytes_until_nul(room).ok()
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
            (Place::Device(0), &["/dev/infiniband/uverbs0"][..]),
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
                    "/dev/infiniband/uverbs1",
                    "/dev/infiniband/uverbs:",
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
