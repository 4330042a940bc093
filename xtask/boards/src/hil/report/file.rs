//! A file that a report is going to be written to.

use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// A file that is open, so that writing it will not fail for its path. It keeps what it holds until then.
pub(crate) struct ReportFile {
    path: PathBuf,
    file: File,
}

impl ReportFile {
    /// Opens or creates a file.
    ///
    /// # Errors
    /// Why it cannot be written, in a sentence.
    pub(crate) fn open(path: &Path) -> Result<Self, String> {
        match File::options().create(true).write(true).truncate(false).open(path) {
            Ok(file) => Ok(Self { path: path.into(), file }),
            Err(error) => Err(format!("{}: {error}", path.display())),
        }
    }

    /// Writes a report instead of what the file holds.
    ///
    /// # Errors
    /// As writing may fail, with the path.
    pub(crate) fn write(mut self, text: &str) -> io::Result<()> {
        let is_file = self.file.metadata().is_ok_and(|data| data.is_file());
        // A pipe has no length.
        let emptied = if is_file { self.file.set_len(0) } else { Ok(()) };
        emptied
            .and_then(|()| self.file.write_all(text.as_bytes()))
            .map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", self.path.display())))
    }
}
