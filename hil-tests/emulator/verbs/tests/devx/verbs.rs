//! What the shim does not do itself: contexts that a program opens, memory, and what the stand-in tells
//! tests.
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

/// `struct mlx5dv_context_attr`: flags for DEVX, and nothing more.
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
        // SAFETY: each name stands in its library's public header (or in the stand-in's `probe`) with these
        // types, and what is handed over is as it says there.
        unsafe {
            let function = library
                .get::<unsafe extern "C" fn($($kind),*) $(-> $result)?>(concat!($name, "\0").as_bytes())
                .unwrap();
            function($($argument),*)
        }
    }};
}

fn library(name: &str) -> Library {
    // SAFETY: these libraries are written to be loaded by programs.
    unsafe { Library::new(name) }.unwrap()
}

/// Returns where the libibverbs is that programs load.
pub(crate) fn libibverbs() -> PathBuf {
    let _loaded = library("libibverbs.so.1");
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let mut paths = maps.lines().filter_map(|line| line.find('/').and_then(|start| line.get(start..)));
    paths.find(|path| path.contains("/libibverbs.so.1")).unwrap().into()
}

/// A context that this program opened, as any verbs program does.
pub(crate) struct Opened {
    pub(crate) verbs: Library,
    /// Loaded as long as the context is open: the context's functions are in it.
    pub(crate) mlx5: Library,
    pub(crate) raw: NonNull<c_void>,
}

impl Opened {
    /// Opens the first device for DEVX.
    pub(crate) fn new() -> Self {
        Self::try_new().unwrap()
    }

    /// Opens the first device for DEVX, if it can be opened.
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

    /// Lends it to the shim. The caller closes it after all that was made.
    pub(crate) fn adopt(&self) -> Result<Device, DevxError> {
        // SAFETY: opened by `new` with DEVX; tests close it last.
        unsafe { Device::adopt(self.raw) }
    }

    /// Whether it can still be used.
    pub(crate) fn works(&self) -> bool {
        let pd = call!(&self.verbs, "ibv_alloc_pd": fn(self.raw.as_ptr() => *mut c_void) -> *mut c_void);
        !pd.is_null() && call!(&self.verbs, "ibv_dealloc_pd": fn(pd => *mut c_void) -> c_int) == 0
    }

    /// Closes it.
    pub(crate) fn close(self) {
        let result = call!(&self.verbs, "ibv_close_device": fn(self.raw.as_ptr() => *mut c_void) -> c_int);
        assert_eq!(result, 0);
    }
}

/// The stand-in, which is in this program.
pub(crate) fn stand_in() -> Library {
    libloading::os::unix::Library::this().into()
}

/// Returns what the monotonic clock of this system shows, in nanoseconds.
pub(crate) fn monotonic() -> u64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the call fills in `now`, which lives until it is over.
    assert_eq!(unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut now) }, 0);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// Has the `nth` call from now fail, and all of its kind behind it.
pub(crate) fn fail(nth: u32, errno: c_int, status: u8) {
    call!(&stand_in(), "mlx5_uverbs_fail": fn(nth => u32, errno => c_int, status => u8));
}

/// Has the `nth` destroying from now be refused.
pub(crate) fn keep(nth: u32) {
    call!(&stand_in(), "mlx5_uverbs_keep": fn(nth => u32));
}

/// Has the device give numbers of objects that are gone out again at once.
pub(crate) fn reuse_numbers() {
    call!(&stand_in(), "mlx5_uverbs_reuse_numbers": fn());
}

/// Has a completion queue overrun with its next entry, as if nobody had taken any for long.
pub(crate) fn overrun(cq: Cqn) {
    call!(&stand_in(), "mlx5_uverbs_overrun": fn(cq.get() => u32));
}

/// Whether the call that was to fail has failed; else it need not fail any more.
pub(crate) fn has_failed() -> bool {
    let left = call!(&stand_in(), "mlx5_uverbs_left": fn() -> u32);
    fail(0, 0, 0);
    left == 0
}

/// Has these faults come from now on, in the words of `mlx5-emulate --faults`; none for no words.
pub(crate) fn faults(words: &str) {
    let words = CString::new(words).unwrap();
    let set = call!(&stand_in(), "mlx5_uverbs_faults": fn(words.as_ptr() => *const c_char) -> c_int);
    assert_eq!(set, 0, "{words:?}");
}

/// Returns the faults that have come, in such words.
pub(crate) fn trace() -> String {
    let mut buffer = vec![0; 1 << 16];
    let length = call!(&stand_in(), "mlx5_uverbs_trace": fn(
        buffer.as_mut_ptr() => *mut u8,
        buffer.len() => usize
    ) -> usize);
    buffer.truncate(length);
    String::from_utf8(buffer).unwrap()
}

/// Has the device do nothing by itself from now on: [`work`] moves it.
pub(crate) fn by_hand() {
    call!(&stand_in(), "mlx5_uverbs_by_hand": fn(1 => c_int));
}

/// Has the device do what there is to do, once.
pub(crate) fn work() {
    call!(&stand_in(), "mlx5_uverbs_work": fn() -> c_int);
}

/// Returns how many bytes are allocated, by this program and by the libraries below the shim.
pub(crate) fn heap() -> usize {
    // SAFETY: takes nothing.
    let info = unsafe { libc::mallinfo2() };
    info.uordblks + info.hblkhd
}

/// What there is on the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(crate) contexts: u64,
    pub(crate) objects: u64,
    pub(crate) channels: u64,
    pub(crate) refused: u64,
}

impl Counts {
    /// Nothing, and nothing went wrong.
    pub(crate) const NONE: Self = Self { contexts: 0, objects: 0, channels: 0, refused: 0 };

    /// Asks the stand-in.
    pub(crate) fn now() -> Self {
        let library = stand_in();
        let [contexts, objects, channels, refused] =
            [0, 1, 2, 3].map(|what| call!(&library, "mlx5_uverbs_count": fn(what => u32) -> u64));
        Self { contexts, objects, channels, refused }
    }
}

/// Changes a queue pair by any command. Tests post nothing that a reset would have the device execute again.
pub(crate) fn modify<C: Command<Reply = ()>>(control: &QpControl, command: &C) -> Result<(), DevxError> {
    // SAFETY: see above.
    unsafe { control.execute_modify(command) }
}

/// Returns the processor time that this thread has used.
pub(crate) fn thread_time() -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` lives until the call is over.
    assert_eq!(unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time) }, 0);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// Whether a descriptor is readable, or becomes so in time.
pub(crate) fn readable(descriptor: &impl AsFd, limit: Duration) -> bool {
    let fd = descriptor.as_fd().as_raw_fd();
    let mut polled = libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
    // SAFETY: `polled` lives until the call is over.
    let ready = unsafe { libc::poll(&raw mut polled, 1, limit.as_millis() as c_int) };
    assert!(ready >= 0 && polled.revents & !libc::POLLIN == 0);
    ready == 1
}

/// Rings a send queue for more than its ring holds, as only a broken program does.
pub(crate) fn ring_nonsense(record: u64, counter: u16) {
    let second = ptr::with_exposed_provenance::<AtomicU32>(record as usize + 4);
    // SAFETY: the caller's queue pair lives, and with it its record: two words, which only atomics change.
    unsafe { (*second).store(u32::from(counter).to_be(), Ordering::Release) };
}
