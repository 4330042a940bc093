//! Writes the time that the device takes for doorbells into a file that a benchmark reads.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};

/// The number of doorbells between two writes of the file. A write for each doorbell would delay the messages
/// that the doorbells announce.
const OFTEN: u64 = 64;

/// The count of send doorbells, and the time from the arrival of each doorbell until the device has executed
/// its requests and has written their completions.
#[derive(Debug)]
pub(crate) struct Times {
    file: File,
    doorbells: u64,
    time: Duration,
}

impl Times {
    pub(crate) fn new(file: File) -> Self {
        Self { file, doorbells: 0, time: Duration::ZERO }
    }

    /// Adds a doorbell that arrived at `begin`.
    pub(crate) fn add(&mut self, begin: Instant) {
        self.doorbells += 1;
        self.time += begin.elapsed();
        if self.doorbells.is_multiple_of(OFTEN) {
            let line = format!("{:20} doorbells {:20} ns\n", self.doorbells, self.time.as_nanos());
            // A failed write is ignored: the benchmark then reads older numbers.
            let _ = self.file.write_all_at(line.as_bytes(), 0);
        }
    }
}
