//! The log in the form of lines of JSON: posted requests, requests of peers, completions. Several processes
//! may share the file.

use crate::ground::descriptors;
use mlx5_mkey::inspect::DeviceContext;
use mlx5_record::{Line, Queue, asked, completed, posted};
use mlx5_softdev::{Message, Seen};
use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::path::Path;

/// The log file.
#[derive(Debug)]
pub(crate) struct Journal(File);

impl Journal {
    /// Opens the log file, to append to it.
    ///
    /// # Errors
    /// An error of the system, if the file cannot be created or written.
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        let file = OpenOptions::new().append(true).create(true).open(path)?;
        descriptors::keep(&file);
        Ok(Self(file))
    }

    /// Logs a posted request, a message of a peer or a completion. Messages that this process sends are
    /// skipped: they are posted requests, which are already in the log, or answers.
    pub(crate) fn seen(&self, seen: Seen<'_>, device: DeviceContext) {
        match seen {
            Seen::Request { queue, transport, block, bytes } => {
                let queue = Queue { number: queue, transport, device };
                self.write(&posted(Line::now("request"), &queue, block, bytes));
            }
            Seen::Completion { cqn, entry, cause } => {
                self.write(&completed(Line::now("completion"), cqn, entry, cause));
            }
            Seen::Received(
                Message::Request { from, to, request, .. } | Message::Unanswered { from, to, request, .. },
            ) => {
                self.write(&asked(Line::now("peer"), *from, *to, request));
            }
            Seen::Received(Message::Response { .. })
            | Seen::Sent(_)
            | Seen::Command { .. }
            | Seen::Packet { .. } => {}
        }
    }

    /// Appends a line with one call, so that lines of several processes do not mix. A failure, such as a full
    /// disk, is ignored.
    fn write(&self, line: &str) {
        let _ = (&self.0).write_all(line.as_bytes());
    }
}
