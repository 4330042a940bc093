//! Messages of this library to the person who runs the program.

use std::collections::BTreeSet;
use std::io::Write as _;
use std::sync::{Mutex, PoisonError};

/// Writes a message to standard error, only once in a process.
pub(crate) fn once(what: &str) {
    static SAID: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());
    if !SAID.lock().unwrap_or_else(PoisonError::into_inner).insert(what.to_owned()) {
        return;
    }
    always(what);
}

/// Writes a message to standard error.
pub(crate) fn always(what: &str) {
    // One write, so that the output of other threads does not split the line.
    let _ = std::io::stderr().write_all(format!("mlx5-uverbs: {what}\n").as_bytes());
}
