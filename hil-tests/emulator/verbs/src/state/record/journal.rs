//! The log in the form of lines of JSON: posted requests, requests of peers, completions. Several processes
//! may share the file.

use crate::ground::descriptors;
use mlx5_record::{Line, Queue, asked, completed, posted};
use mlx5_softdev::{Message, Seen};
use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::path::Path;
use std::sync::Arc;

/// The log file. Clones write to the same file.
#[derive(Clone, Debug)]
pub(crate) struct Journal(Arc<File>);

impl Journal {
    /// Opens the log file, to append to it.
    ///
    /// # Errors
    /// An error of the system, if the file cannot be created or written.
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        let file = OpenOptions::new().append(true).create(true).open(path)?;
        descriptors::keep(&file);
        Ok(Self(Arc::new(file)))
    }

    /// Logs a posted request, in the words of [`WorkRequest::summary`]. `block` is the number of the
    /// request's first block.
    pub(crate) fn request(&self, queue: &Queue, block: u16, bytes: &[u8]) {
        self.write(&posted(Line::now("request"), queue, block, bytes));
    }

    /// Logs a message of a peer or a completion. Messages that this process sends are skipped: they are
    /// posted requests, which are already in the log, or answers.
    pub(crate) fn seen(&self, seen: Seen<'_>) {
        match seen {
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
            | Seen::Request { .. }
            | Seen::Packet { .. } => {}
        }
    }

    /// Appends a line with one call, so that lines of several processes do not mix. A failure, such as a full
    /// disk, is ignored.
    fn write(&self, line: &str) {
        let _ = (&*self.0).write_all(line.as_bytes());
    }
}
