//! What this library tells whoever runs the program.

use std::collections::BTreeSet;
use std::io::Write as _;
use std::sync::{Mutex, PoisonError};

/// Says something on standard error, once in a process.
pub(crate) fn once(what: &str) {
    static SAID: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());
    if !SAID.lock().unwrap_or_else(PoisonError::into_inner).insert(what.to_owned()) {
        return;
    }
    always(what);
}

/// Says something on standard error.
pub(crate) fn always(what: &str) {
    // At once, so that nothing of others comes between.
    let _ = std::io::stderr().write_all(format!("mlx5-uverbs: {what}\n").as_bytes());
}
