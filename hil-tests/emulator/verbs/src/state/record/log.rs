//! Prints requests and failed completions on standard error.

use crate::ground::notice;
use mlx5_mkey::inspect::cqe::CompletionEntry;
use mlx5_record::{Queue, request};
use mlx5_softdev::Cause;
use std::io::Write as _;

/// Prints a request on standard error, with one call. Ignores a failure, since the program may have closed
/// its standard error.
pub(crate) fn print(queue: &Queue, index: u16, bytes: &[u8]) {
    let text = request(queue, index, bytes);
    let _ = std::io::stderr().lock().write_all(format!("{text}\n").as_bytes());
}

/// Reports on standard error which request failed, and why.
pub(crate) fn failure(entry: &[u8; 64], cause: &Cause) {
    notice::always(&failed(entry, cause));
}

fn failed(entry: &[u8; 64], cause: &Cause) -> String {
    match CompletionEntry::parse(entry) {
        Ok(entry) => format!("mlx5_0 {}: {cause}", entry.summary(None)),
        Err(error) => format!("mlx5_0 {error}: {cause}"),
    }
}
