//! The functions of the C library that are taken over: each hands on what is not about the device.
//!
//! The names are those that libibverbs and libmlx5 import, and their 64-bit twins, which programs import that ask for
//! large files; and for programs, what else makes a descriptor of another (`dup` and its like) or closes many. All of them have no effect on other files but the time for one comparison.
#![allow(unsafe_code)]

use crate::errno::Errno;
use crate::fabric::private_directory;
use crate::request::VERBS_IOCTL;
use crate::{settings, shared, sys, sysfs};
use std::cell::Cell;
use std::ffi::{CStr, CString, c_char, c_int, c_uint, c_ulong, c_void};
use std::os::unix::ffi::OsStringExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicPtr, Ordering};

/// `NETLINK_RDMA`.
const NETLINK_RDMA: c_int = 20;

/// Shorter pointers are no strings.
const FIRST_PAGE: usize = 4096;

/// A function of the next library, looked for when it is first needed.
struct Next {
    name: &'static CStr,
    address: AtomicPtr<c_void>,
}

impl Next {
    const fn new(name: &'static CStr) -> Self {
        Self { name, address: AtomicPtr::new(std::ptr::null_mut()) }
    }

    /// Returns the function's address, null where the next libraries have none.
    fn find(&self) -> *mut c_void {
        let known = self.address.load(Ordering::Acquire);
        if !known.is_null() {
            return known;
        }
        // SAFETY: the name ends with a zero.
        let found = unsafe { libc::dlsym(libc::RTLD_NEXT, self.name.as_ptr()) };
        self.address.store(found, Ordering::Release);
        found
    }
}

/// The next library's function of this name and these arguments; the caller ends with `ENOSYS` where there is none.
macro_rules! next {
    ($name:ident($($argument:ty),*)) => {{
        const NAME: &CStr = match CStr::from_bytes_with_nul(concat!(stringify!($name), "\0").as_bytes()) {
            Ok(name) => name,
            Err(_) => panic!("a name has a zero inside"),
        };
        static NEXT: Next = Next::new(NAME);
        let found = NEXT.find();
        if found.is_null() {
            return fail(Errno(libc::ENOSYS));
        }
        // SAFETY: the C library's function of this name takes these arguments; a mode that it does not look at does no
        // harm in the calling conventions of Linux.
        unsafe { std::mem::transmute::<*mut c_void, unsafe extern "C" fn($($argument),*) -> c_int>(found) }
    }};
}

fn fail(Errno(number): Errno) -> c_int {
    // SAFETY: the location of errno is always valid for its thread.
    unsafe { *libc::__errno_location() = number };
    -1
}

/// Calls into the device. A panic there is the device's fault and looks like a broken one.
fn guarded(body: impl FnOnce() -> Result<(), Errno>) -> Result<(), Errno> {
    shared::as_device(|| catch_unwind(AssertUnwindSafe(body)).unwrap_or(Err(Errno::IO)))
}

/// Whether `path` names the device's file.
///
/// # Safety
/// `path` is a C string, null, or an address below the first page.
unsafe fn is_device(path: *const c_char) -> bool {
    if path.addr() < FIRST_PAGE {
        return false;
    }
    // SAFETY: by contract a C string; it is read up to its first difference.
    let name = sysfs::CHARACTER_DEVICE.as_bytes();
    for (index, expected) in name.iter().chain([&0]).enumerate() {
        // SAFETY: all bytes before this one are equal to those of the name and not zero, so the string goes on.
        if unsafe { *path.add(index) } as u8 != *expected {
            return false;
        }
    }
    true
}

/// Notes that `descriptor`, which is open on the stand-in, is the device.
///
/// # Safety
/// `descriptor` is open and belongs to nobody yet.
unsafe fn adopt(descriptor: c_int) -> c_int {
    if descriptor < 0 {
        return descriptor;
    }
    let refused = if shared::is_borrowed() {
        Err(Errno::IO)
    } else if shared::is_too_high(descriptor) {
        Err(Errno(libc::EMFILE))
    } else {
        guarded(|| shared::open(descriptor))
    };
    match refused {
        Ok(()) => descriptor,
        Err(errno) => {
            // SAFETY: by contract nobody else has it.
            unsafe { libc::close(descriptor) };
            fail(errno)
        }
    }
}

macro_rules! opens {
    ($($(#[$doc:meta])* $name:ident;)*) => {
        $(
            $(#[$doc])*
            ///
            /// # Safety
            /// As the function of the C library.
            // SAFETY: the name is that of the function that it stands before.
            #[unsafe(no_mangle)]
            pub(crate) unsafe extern "C" fn $name(path: *const c_char, flags: c_int, mode: libc::mode_t) -> c_int {
                let next = next!($name(*const c_char, c_int, libc::mode_t));
                // SAFETY: handed on from the caller.
                unsafe {
                    if is_device(path) {
                        adopt(next(sysfs::STAND_IN.as_ptr(), flags, mode))
                    } else {
                        next(path, flags, mode)
                    }
                }
            }
        )*
    };
}

opens! {
    /// Opens a file; the device's is the device.
    open;
    /// As `open`.
    open64;
}

macro_rules! opens_at {
    ($($(#[$doc:meta])* $name:ident;)*) => {
        $(
            $(#[$doc])*
            ///
            /// # Safety
            /// As the function of the C library.
            // SAFETY: the name is that of the function that it stands before.
            #[unsafe(no_mangle)]
            pub(crate) unsafe extern "C" fn $name(
                directory: c_int,
                path: *const c_char,
                flags: c_int,
                mode: libc::mode_t,
            ) -> c_int {
                let next = next!($name(c_int, *const c_char, c_int, libc::mode_t));
                // SAFETY: handed on from the caller.
                unsafe {
                    if is_device(path) {
                        adopt(next(directory, sysfs::STAND_IN.as_ptr(), flags, mode))
                    } else {
                        next(directory, path, flags, mode)
                    }
                }
            }
        )*
    };
}

opens_at! {
    /// Opens a file; the device's is the device.
    openat;
    /// As `openat`.
    openat64;
}

macro_rules! stats {
    ($($(#[$doc:meta])* $name:ident;)*) => {
        $(
            $(#[$doc])*
            ///
            /// # Safety
            /// As the function of the C library.
            // SAFETY: the name is that of the function that it stands before.
            #[unsafe(no_mangle)]
            pub(crate) unsafe extern "C" fn $name(path: *const c_char, out: *mut c_void) -> c_int {
                let next = next!($name(*const c_char, *mut c_void));
                // SAFETY: handed on from the caller.
                unsafe { next(if is_device(path) { sysfs::STAND_IN.as_ptr() } else { path }, out) }
            }
        )*
    };
}

stats! {
    /// Looks at a file; the device's is there.
    stat;
    /// As `stat`.
    stat64;
}

/// Calls a device; calls of the verbs interface to a descriptor that is one go to the device.
///
/// # Safety
/// As the function of the C library.
// SAFETY: the name is that of the function that it stands before.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ioctl(descriptor: c_int, request: c_ulong, argument: *mut c_void) -> c_int {
    if request == VERBS_IOCTL as c_ulong && shared::is_ours(descriptor) {
        if shared::is_borrowed() {
            return fail(Errno::IO);
        }
        let address = argument.expose_provenance() as u64;
        return match guarded(|| shared::ioctl(descriptor, address)) {
            Ok(()) => 0,
            Err(errno) => fail(errno),
        };
    }
    let next = next!(ioctl(c_int, c_ulong, *mut c_void));
    // SAFETY: handed on from the caller.
    unsafe { next(descriptor, request, argument) }
}

/// Closes a descriptor; with a device's, what it holds is released.
///
/// # Safety
/// As the function of the C library.
// SAFETY: the name is that of the function that it stands before.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn close(descriptor: c_int) -> c_int {
    if !shared::may_close(descriptor) {
        return fail(Errno::BADF);
    }
    if shared::is_ours(descriptor) && !shared::is_borrowed() && !shared::is_inside() {
        let _ = guarded(|| {
            shared::close(descriptor);
            Ok(())
        });
    }
    let next = next!(close(c_int));
    // SAFETY: handed on from the caller.
    unsafe { next(descriptor) }
}

/// Closes a range of descriptors, each as `close` does. Some flags ask for something else than closing now.
///
/// # Safety
/// As the function of the C library.
// SAFETY: the name is that of the function that it stands before.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn close_range(first: c_uint, last: c_uint, flags: c_int) -> c_int {
    let next = next!(close_range(c_uint, c_uint, c_int));
    // What makes no sense is for the kernel to refuse.
    if first > last || flags & !(libc::CLOSE_RANGE_UNSHARE as c_int) != 0 {
        // SAFETY: handed on from the caller.
        return unsafe { next(first, last, flags) };
    }
    let one = |descriptor| {
        // SAFETY: as the caller asks for, one by one.
        unsafe { close(descriptor) };
    };
    // SAFETY: handed on from the caller, in parts.
    let part = |first, last| unsafe { next(first, last, flags) };
    shared::close_range(first, last, one, part)
}

/// Closes all descriptors from `low` up, each as `close` does.
///
/// # Safety
/// As the function of the C library.
// SAFETY: the name is that of the function that it stands before.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn closefrom(low: c_int) {
    let low = low.max(0);
    // SAFETY: handed on from the caller.
    if unsafe { close_range(low.unsigned_abs(), c_uint::MAX, 0) } < 0 {
        // An old kernel. Higher numbers are not given out unless a program asks for them.
        for descriptor in low..shared::DESCRIPTORS as c_int {
            // SAFETY: as the caller asks for, one by one.
            unsafe { close(descriptor) };
        }
    }
}

/// Notes that `new` was made of `old`, unless the call failed, and returns it.
///
/// # Safety
/// `new` is the result of such a call, and belongs to nobody yet.
unsafe fn duplicated(old: c_int, new: c_int) -> c_int {
    let known = shared::is_ours(old) || shared::is_ours(new);
    if new < 0 || old == new || !known || shared::is_borrowed() || shared::is_inside() {
        return new;
    }
    if shared::is_too_high(new) {
        // SAFETY: by contract nobody else has it.
        unsafe { libc::close(new) };
        return fail(Errno(libc::EMFILE));
    }
    let _ = guarded(|| {
        shared::duplicate(old, new);
        Ok(())
    });
    new
}

/// Makes another descriptor for a file; one for the device's is the device.
///
/// # Safety
/// As the function of the C library.
// SAFETY: the name is that of the function that it stands before.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn dup(descriptor: c_int) -> c_int {
    let next = next!(dup(c_int));
    // SAFETY: handed on from the caller.
    unsafe { duplicated(descriptor, next(descriptor)) }
}

/// As `dup`, with the number of the new descriptor, whose file is closed.
///
/// # Safety
/// As the function of the C library.
// SAFETY: the name is that of the function that it stands before.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn dup2(old: c_int, new: c_int) -> c_int {
    if old != new && !shared::may_close(new) {
        return fail(Errno::BUSY);
    }
    let next = next!(dup2(c_int, c_int));
    // SAFETY: handed on from the caller.
    unsafe { duplicated(old, next(old, new)) }
}

/// As `dup2`, with flags.
///
/// # Safety
/// As the function of the C library.
// SAFETY: the name is that of the function that it stands before.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn dup3(old: c_int, new: c_int, flags: c_int) -> c_int {
    if old != new && !shared::may_close(new) {
        return fail(Errno::BUSY);
    }
    let next = next!(dup3(c_int, c_int, c_int));
    // SAFETY: handed on from the caller.
    unsafe { duplicated(old, next(old, new, flags)) }
}

macro_rules! controls {
    ($($(#[$doc:meta])* $name:ident;)*) => {
        $(
            $(#[$doc])*
            ///
            /// # Safety
            /// As the function of the C library.
            // SAFETY: the name is that of the function that it stands before.
            #[unsafe(no_mangle)]
            pub(crate) unsafe extern "C" fn $name(descriptor: c_int, command: c_int, argument: *mut c_void) -> c_int {
                let next = next!($name(c_int, c_int, *mut c_void));
                // SAFETY: handed on from the caller.
                let result = unsafe { next(descriptor, command, argument) };
                match command {
                    // SAFETY: the result is a new descriptor.
                    libc::F_DUPFD | libc::F_DUPFD_CLOEXEC => unsafe { duplicated(descriptor, result) },
                    _ => result,
                }
            }
        )*
    };
}

controls! {
    /// Controls a file; some commands make another descriptor for it.
    fcntl;
    /// As `fcntl`.
    fcntl64;
}

/// Makes a socket, but none to the kernel's list of RDMA devices: libibverbs then looks where we have put ours.
///
/// # Safety
/// As the function of the C library.
// SAFETY: the name is that of the function that it stands before.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn socket(domain: c_int, kind: c_int, protocol: c_int) -> c_int {
    if domain == libc::AF_NETLINK && protocol == NETLINK_RDMA {
        return fail(Errno::PROTONOSUPPORT);
    }
    let next = next!(socket(c_int, c_int, c_int));
    // SAFETY: handed on from the caller.
    unsafe { next(domain, kind, protocol) }
}

thread_local! {
    /// Spin locks that this thread has taken and not given back.
    static SPIN_LOCKS: Cell<u32> = const { Cell::new(0) };
}

/// Takes a lock, as libmlx5 does for all that a program posts and polls.
///
/// # Safety
/// As the function of the C library.
// SAFETY: the name is that of the function that it stands before.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn pthread_spin_lock(lock: *mut libc::pthread_spinlock_t) -> c_int {
    let next = next!(pthread_spin_lock(*mut libc::pthread_spinlock_t));
    let _ = SPIN_LOCKS.try_with(|count| count.set(count.get().saturating_add(1)));
    // SAFETY: handed on from the caller.
    unsafe { next(lock) }
}

/// Gives a lock back. Whoever gives the last one back may have rung a doorbell, or is waiting for an answer, so this thread is
/// the device for a moment.
///
/// # Safety
/// As the function of the C library.
// SAFETY: the name is that of the function that it stands before.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn pthread_spin_unlock(lock: *mut libc::pthread_spinlock_t) -> c_int {
    let next = next!(pthread_spin_unlock(*mut libc::pthread_spinlock_t));
    // SAFETY: handed on from the caller.
    let result = unsafe { next(lock) };
    let left = SPIN_LOCKS.try_with(|count| {
        count.set(count.get().saturating_sub(1));
        count.get()
    });
    if left == Ok(0) {
        shared::look();
    }
    result
}

/// Run by the loader: makes libibverbs and DPDK look for devices where ours is.
extern "C" fn loaded() {
    let _ = catch_unwind(|| {
        // This library's own unit tests are no program that it is for.
        if cfg!(test) {
            return;
        }
        let directory = settings::directory();
        let tree = private_directory(&directory).and_then(|()| sysfs::write(&directory));
        let Ok(tree) = tree else { return };
        let devices = tree.join(sysfs::PCI_DEVICES);
        for (name, path) in [(c"SYSFS_PATH", tree), (c"SYSFS_PCI_DEVICES", devices)] {
            if let Ok(path) = CString::new(path.into_os_string().into_vec()) {
                sys::set_default(name, &path);
            }
        }
    });
}

// SAFETY: the loader calls what this section lists, with arguments that `loaded` does not look at.
#[used]
#[unsafe(link_section = ".init_array")]
static LOADED: extern "C" fn() = loaded;
