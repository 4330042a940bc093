//! A counter of the instructions that this thread executes outside of the kernel (`perf_event_open`).

#![allow(unsafe_code)]

use core::ffi::{c_int, c_long, c_ulong};
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{FromRawFd, OwnedFd};

/// The number of the system call `perf_event_open`.
const PERF_EVENT_OPEN: c_long = if cfg!(target_arch = "aarch64") { 241 } else { 298 };
/// `PERF_COUNT_HW_INSTRUCTIONS`, of type `PERF_TYPE_HARDWARE` (0).
const INSTRUCTIONS: u64 = 1;
/// The flags `exclude_kernel` and `exclude_hv`. Without them the call needs further rights.
const USER_ONLY: u64 = 1 << 5 | 1 << 6;
/// `PERF_FLAG_FD_CLOEXEC`.
const CLOSE_ON_EXEC: c_ulong = 8;

/// The first version of `struct perf_event_attr`, which every kernel knows.
#[repr(C)]
struct Attributes {
    kind: u32,
    size: u32,
    config: u64,
    sample_period: u64,
    sample_type: u64,
    read_format: u64,
    flags: u64,
    wakeup: u32,
    breakpoint_kind: u32,
    breakpoint: u64,
}

unsafe extern "C" {
    /// The C library's function for any system call.
    safe fn syscall(
        number: c_long,
        attributes: &Attributes,
        process: c_int,
        processor: c_int,
        group: c_int,
        flags: c_ulong,
    ) -> c_long;
}

/// A running counter.
pub(crate) struct Counter(File);

impl Counter {
    /// Starts a counter.
    ///
    /// # Errors
    /// The processor or the emulator has no counter, or `kernel.perf_event_paranoid` forbids its use.
    pub(crate) fn start() -> io::Result<Self> {
        let attributes = Attributes {
            kind: 0,
            size: size_of::<Attributes>() as u32,
            config: INSTRUCTIONS,
            sample_period: 0,
            sample_type: 0,
            read_format: 0,
            flags: USER_ONLY,
            wakeup: 0,
            breakpoint_kind: 0,
            breakpoint: 0,
        };
        // The arguments 0, -1 and -1 stand for: this thread, on any processor, in no group of counters.
        let descriptor = syscall(PERF_EVENT_OPEN, &attributes, 0, -1, -1, CLOSE_ON_EXEC);
        let Ok(descriptor @ 0..) = c_int::try_from(descriptor) else {
            return Err(io::Error::last_os_error());
        };
        // SAFETY: the kernel has just opened the descriptor, and nothing else owns it.
        Ok(Self(File::from(unsafe { OwnedFd::from_raw_fd(descriptor) })))
    }

    /// Returns the instructions since the start.
    ///
    /// # Errors
    /// The counter cannot be read.
    pub(crate) fn read(&mut self) -> io::Result<u64> {
        let mut count = [0; 8];
        self.0.read_exact(&mut count)?;
        Ok(u64::from_ne_bytes(count))
    }
}
