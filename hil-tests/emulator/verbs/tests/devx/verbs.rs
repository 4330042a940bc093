//! Helpers of the tests that do not use the library's module `devx`: contexts that a program opens itself,
//! and the stand-in's functions for tests.
#![allow(unsafe_code)]

use libloading::Library;
use mlx5_mkey::command::Command;
use mlx5_mkey::devx::{Device, DevxError, QpControl};
use mlx5_mkey::types::Cqn;
use std::ffi::{CString, c_char, c_int, c_void};
use std::os::fd::{AsFd, AsRawFd};
use std::path::PathBuf;
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// The arguments of `mlx5dv_open_device` (`struct mlx5dv_context_attr`), used only for the DEVX flag.
#[repr(C)]
struct ContextAttr {
    flags: u32,
    comp_mask: u64,
    fds: *mut c_void,
}

/// Calls a function of a library by its name.
macro_rules! call {
    ($library:expr, $name:literal: fn($($argument:expr => $kind:ty),*) $(-> $result:ty)?) => {{
        let library: &libloading::Library = $library;
        // SAFETY: each name is in its library's public header (or in the stand-in's `probe`) with these
        // types, and the arguments are as documented there.
        unsafe {
            let function = library
                .get::<unsafe extern "C" fn($($kind),*) $(-> $result)?>(concat!($name, "\0").as_bytes())
                .unwrap();
            function($($argument),*)
        }
    }};
}

fn library(name: &str) -> Library {
    // SAFETY: libibverbs and libmlx5 are written to be loaded by programs.
    unsafe { Library::new(name) }.unwrap()
}

/// Returns the path of the libibverbs that programs load.
pub(crate) fn libibverbs() -> PathBuf {
    let _loaded = library("libibverbs.so.1");
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let mut paths = maps.lines().filter_map(|line| line.find('/').and_then(|start| line.get(start..)));
    paths.find(|path| path.contains("/libibverbs.so.1")).unwrap().into()
}

/// A context that this program has opened, as any verbs program does.
pub(crate) struct Opened {
    pub(crate) verbs: Library,
    /// The library with the context's functions. It stays loaded as long as the context is open.
    pub(crate) mlx5: Library,
    pub(crate) raw: NonNull<c_void>,
}

impl Opened {
    /// Opens the first device for DEVX.
    pub(crate) fn new() -> Self {
        Self::try_new().unwrap()
    }

    /// Opens the first device for DEVX. Returns `None` on failure.
    pub(crate) fn try_new() -> Option<Self> {
        let (verbs, mlx5) = (library("libibverbs.so.1"), library("libmlx5.so.1"));
        let mut count: c_int = 0;
        let list = call!(&verbs, "ibv_get_device_list": fn(&mut count => *mut c_int) -> *mut *mut c_void);
        assert!(!list.is_null() && count == 1);
        // SAFETY: the list has one device.
        let device = unsafe { *list };
        let mut attr = ContextAttr { flags: 1, comp_mask: 0, fds: ptr::null_mut() };
        let raw = call!(&mlx5, "mlx5dv_open_device": fn(
            device => *mut c_void,
            &mut attr => *mut ContextAttr
        ) -> *mut c_void);
        call!(&verbs, "ibv_free_device_list": fn(list => *mut *mut c_void));
        Some(Self { verbs, mlx5, raw: NonNull::new(raw)? })
    }

    /// Lends the context to `devx`. The caller closes it after all objects that `devx` has made in it.
    pub(crate) fn adopt(&self) -> Result<Device, DevxError> {
        // SAFETY: `try_new` has opened the context with DEVX, and tests close it after all other objects.
        unsafe { Device::adopt(self.raw) }
    }

    /// Returns whether the context can still be used.
    pub(crate) fn works(&self) -> bool {
        let pd = call!(&self.verbs, "ibv_alloc_pd": fn(self.raw.as_ptr() => *mut c_void) -> *mut c_void);
        !pd.is_null() && call!(&self.verbs, "ibv_dealloc_pd": fn(pd => *mut c_void) -> c_int) == 0
    }

    pub(crate) fn close(self) {
        let result = call!(&self.verbs, "ibv_close_device": fn(self.raw.as_ptr() => *mut c_void) -> c_int);
        assert_eq!(result, 0);
    }
}

/// Returns the stand-in, a library that is preloaded into this program.
pub(crate) fn stand_in() -> Library {
    libloading::os::unix::Library::this().into()
}

/// Returns the time of this system's monotonic clock, in nanoseconds.
pub(crate) fn monotonic() -> u64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the call fills in `now`, which lives until it is over.
    assert_eq!(unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut now) }, 0);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// Makes the `nth` call from now and all later calls of its kind fail.
pub(crate) fn fail(nth: u32, errno: c_int, status: u8) {
    call!(&stand_in(), "mlx5_uverbs_fail": fn(nth => u32, errno => c_int, status => u8));
}

/// Makes the `nth` destruction of an object from now fail.
pub(crate) fn keep(nth: u32) {
    call!(&stand_in(), "mlx5_uverbs_keep": fn(nth => u32));
}

/// Makes the device reuse the numbers of destroyed objects at once.
pub(crate) fn reuse_numbers() {
    call!(&stand_in(), "mlx5_uverbs_reuse_numbers": fn());
}

/// Makes a completion queue overrun with its next entry, as if the program had taken no entry for long.
pub(crate) fn overrun(cq: Cqn) {
    call!(&stand_in(), "mlx5_uverbs_overrun": fn(cq.get() => u32));
}

/// Returns whether the planned failure of [`fail`] has happened, and cancels it otherwise.
pub(crate) fn has_failed() -> bool {
    let left = call!(&stand_in(), "mlx5_uverbs_left": fn() -> u32);
    fail(0, 0, 0);
    left == 0
}

/// Replaces the plan of faults, in the words of `mlx5-emulate --faults`. An empty string ends all faults.
pub(crate) fn faults(words: &str) {
    let words = CString::new(words).unwrap();
    let set = call!(&stand_in(), "mlx5_uverbs_faults": fn(words.as_ptr() => *const c_char) -> c_int);
    assert_eq!(set, 0, "{words:?}");
}

/// Returns the past faults, in the words of [`faults`].
pub(crate) fn trace() -> String {
    let mut buffer = vec![0; 1 << 16];
    let length = call!(&stand_in(), "mlx5_uverbs_trace": fn(
        buffer.as_mut_ptr() => *mut u8,
        buffer.len() => usize
    ) -> usize);
    buffer.truncate(length);
    String::from_utf8(buffer).unwrap()
}

/// Keeps all threads from the device's work, so that only [`work`] does it.
pub(crate) fn by_hand() {
    call!(&stand_in(), "mlx5_uverbs_by_hand": fn(1 => c_int));
}

/// Does the device's work once.
pub(crate) fn work() {
    call!(&stand_in(), "mlx5_uverbs_work": fn() -> c_int);
}

/// Returns the number of bytes that this program and the libraries below `devx` have allocated.
pub(crate) fn heap() -> usize {
    // SAFETY: the call takes no argument.
    let info = unsafe { libc::mallinfo2() };
    info.uordblks + info.hblkhd
}

/// The numbers of contexts, objects and channels on the device, and of refused destructions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(crate) contexts: u64,
    pub(crate) objects: u64,
    pub(crate) channels: u64,
    pub(crate) refused: u64,
}

impl Counts {
    /// No objects, and no refused destructions.
    pub(crate) const NONE: Self = Self { contexts: 0, objects: 0, channels: 0, refused: 0 };

    /// Returns the stand-in's current numbers.
    pub(crate) fn now() -> Self {
        let library = stand_in();
        let [contexts, objects, channels, refused] =
            [0, 1, 2, 3].map(|what| call!(&library, "mlx5_uverbs_count": fn(what => u32) -> u64));
        Self { contexts, objects, channels, refused }
    }
}

/// Modifies a queue pair by any command of the caller.
pub(crate) fn modify<C: Command<Reply = ()>>(control: &QpControl, command: &C) -> Result<(), DevxError> {
    // SAFETY: the tests post no request that a reset would repeat.
    unsafe { control.execute_modify(command) }
}

/// Returns the processor time that this thread has used.
pub(crate) fn thread_time() -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` lives until the call is over.
    assert_eq!(unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time) }, 0);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// Returns whether a descriptor is readable, or becomes readable within the limit.
pub(crate) fn readable(descriptor: &impl AsFd, limit: Duration) -> bool {
    let fd = descriptor.as_fd().as_raw_fd();
    let mut polled = libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
    // SAFETY: `polled` lives until the call is over.
    let ready = unsafe { libc::poll(&raw mut polled, 1, limit.as_millis() as c_int) };
    assert!(ready >= 0 && polled.revents & !libc::POLLIN == 0);
    ready == 1
}

/// Makes a doorbell record announce more blocks than the send ring has, as only a broken program does.
pub(crate) fn ring_nonsense(record: u64, counter: u16) {
    let second = ptr::with_exposed_provenance::<AtomicU32>(record as usize + 4);
    // SAFETY: the caller's queue pair lives, and with it its record: two words, which only atomics change.
    unsafe { (*second).store(u32::from(counter).to_be(), Ordering::Release) };
}
