//! The device's clock, for the time stamps of completions.

use super::{Device, DevxError, sys};
use crate::command::error::CommandError;
use crate::command::{Command, QueryGeneralCapabilities};
use crate::queue::{ClockInfo, DeviceClock};
use std::sync::Arc;

/// The device's clock: a register that the kernel maps into the process.
#[derive(Clone)]
pub struct MappedClock {
    clock: DeviceClock,
    _context: Arc<sys::Context>,
}

impl MappedClock {
    /// Returns the clock's current value: see [`DeviceClock::ticks`].
    pub fn ticks(&self) -> u64 {
        self.clock.ticks()
    }
}

impl Device {
    /// Returns the device's clock, which can be read without a system call (`ibv_query_rt_values_ex`).
    ///
    /// # Errors
    /// [`DevxError::Command`]: the kernel has not mapped the clock. [`DevxError::Call`].
    pub fn clock(&self) -> Result<MappedClock, DevxError> {
        let (command, what) = (QueryGeneralCapabilities::OPCODE, "its clock: the kernel does not map it");
        let clock = self.context.clock()?.ok_or(CommandError::Unsupported { command, what })?;
        Ok(MappedClock { clock, _context: self.context.clone() })
    }

    /// Returns the kernel's data for converting ticks of the clock into the time of this system
    /// (`mlx5dv_get_clock_info`). The device's clock and the kernel's clock drift apart, so a conversion with
    /// old data is inexact: call this function about once a second.
    ///
    /// # Errors
    /// [`DevxError::Call`]: the kernel keeps no such data (EINVAL).
    pub fn clock_info(&self) -> Result<ClockInfo, DevxError> {
        self.context.clock_info()
    }
}
