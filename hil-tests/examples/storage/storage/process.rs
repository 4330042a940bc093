//! The resource usage of a process.

use serde::{Deserialize, Serialize};
use std::fs;
use std::time::Duration;

/// The resource usage of a process.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Usage {
    /// Processor time since the start.
    pub(crate) cpu: Duration,
    /// Resident memory in KiB.
    pub(crate) resident: u64,
}

impl Usage {
    /// Returns the usage of this process, or zeros if the system does not report it.
    pub(crate) fn of_this_process() -> Self {
        let stat = fs::read_to_string("/proc/self/stat").unwrap_or_default();
        // In `/proc/self/stat`, the name of the program is in parentheses and may hold any character. Behind
        // the last parenthesis, user and system time are fields 12 and 13, in hundredths of a second.
        let fields = stat.rsplit(')').next().unwrap_or_default().split_ascii_whitespace();
        let ticks: u64 = fields.skip(11).take(2).filter_map(|field| field.parse::<u64>().ok()).sum();
        let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
        let resident = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let resident = resident.and_then(|rest| rest.trim().trim_end_matches(" kB").parse().ok());
        Self { cpu: Duration::from_millis(ticks * 10), resident: resident.unwrap_or(0) }
    }
}
