//! Functions that read the device's clock, and that convert ticks and time stamps into nanoseconds.

#![allow(unsafe_code)] // `no_mangle` is unsafe, and so is the use of pointers of the caller.

use super::device::Device;
use super::error::{Error, attempt, given};
use crate::queue::{ClockInfo, real_time};
use core::mem::MaybeUninit;

/// The kernel's data for converting the device's ticks into nanoseconds (struct mlx5dv_clock_info).
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Clock {
    /// The kernel's time in nanoseconds at which the device's clock showed `cycles`.
    pub base: u64,
    /// The value of the device's clock, in ticks, at time `base`.
    pub cycles: u64,
    /// A fraction of a nanosecond to add to `base`, in units of 2^-`shift` nanoseconds.
    pub fraction: u64,
    /// The largest value of the device's clock, for example 2^48 - 1. After this value the clock starts again
    /// at 0.
    pub mask: u64,
    /// The length of a tick, in units of 2^-`shift` nanoseconds.
    pub multiplier: u32,
    /// The number of bits by which the product of ticks and `multiplier` is shifted right, to get
    /// nanoseconds.
    pub shift: u32,
}

/// Writes the current value of the device's clock, in ticks, to `ticks`. The function makes no system call:
/// the kernel has mapped the clock's register into the process.
///
/// Errors: MLX5MK_COMMAND where the kernel has not mapped the clock, MLX5MK_SYSTEM.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mlx5mk_device_ticks(
    device: Option<&Device>,
    ticks: Option<&mut MaybeUninit<u64>>,
    error: Option<&mut MaybeUninit<Error>>,
) -> i32 {
    attempt(error, || {
        let (Device(device), ticks) = (given(device, "device")?, given(ticks, "ticks")?);
        ticks.write(device.clock()?.ticks());
        Ok(0)
    })
}

/// Writes the kernel's data for converting ticks into nanoseconds (`mlx5dv_get_clock_info`). The device's
/// clock and the kernel's clock drift apart, so a conversion with old data is inexact: call this function
/// about once a second.
///
/// Errors: MLX5MK_SYSTEM where the kernel has no such data.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mlx5mk_device_clock(
    device: Option<&Device>,
    clock: Option<&mut MaybeUninit<Clock>>,
    error: Option<&mut MaybeUninit<Error>>,
) -> i32 {
    attempt(error, || {
        let (Device(device), clock) = (given(device, "device")?, given(clock, "clock")?);
        let ClockInfo { base, cycles, fraction, multiplier, shift, mask } = device.clock_info()?;
        clock.write(Clock { base, cycles, fraction, mask, multiplier, shift });
        Ok(0)
    })
}

/// Converts a time stamp in ticks of the free-running clock into nanoseconds (`mlx5dv_ts_to_ns`). Returns 0
/// if `clock` is NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mlx5mk_clock_nanoseconds(clock: Option<&Clock>, timestamp: u64) -> u64 {
    let Some(&Clock { base, cycles, fraction, mask, multiplier, shift }) = clock else { return 0 };
    ClockInfo { base, cycles, fraction, multiplier, shift, mask }.nanoseconds(timestamp)
}

/// Converts a time stamp of a queue pair with MLX5MK_TIMESTAMPS_REAL_TIME into nanoseconds since the epoch of
/// the device's clock.
#[unsafe(no_mangle)]
pub extern "C" fn mlx5mk_real_time_nanoseconds(timestamp: u64) -> u64 {
    real_time(timestamp).as_nanos() as u64
}
