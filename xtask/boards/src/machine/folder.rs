//! Lists the files in a folder, and finds a file by the beginning of its name.

use std::fs;
use std::path::Path;
use xtask::run::At;

/// Returns the names of the files in a folder, sorted.
pub(crate) fn names(folder: &Path) -> Result<Vec<String>, String> {
    let entries = fs::read_dir(folder).at(folder)?;
    let mut names: Vec<_> =
        entries.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    Ok(names)
}

/// Returns the name of the only file in a folder whose name begins with `beginning`.
pub(super) fn only(folder: &Path, beginning: &str) -> Result<String, String> {
    let mut found = names(folder)?;
    found.retain(|name| name.starts_with(beginning));
    match (found.pop(), found.is_empty()) {
        (Some(name), true) => Ok(name),
        _ => Err(format!("{}: not exactly one file {beginning}*", folder.display())),
    }
}
