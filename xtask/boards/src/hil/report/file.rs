//! The file of a report.

use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// An open file. It is opened before the run, so that a wrong path is found early. The file keeps its old
/// content until `write`.
pub(crate) struct ReportFile {
    path: PathBuf,
    file: File,
}

impl ReportFile {
    pub(crate) fn open(path: &Path) -> Result<Self, String> {
        match File::options().create(true).write(true).truncate(false).open(path) {
            Ok(file) => Ok(Self { path: path.into(), file }),
            Err(error) => Err(format!("{}: {error}", path.display())),
        }
    }

    /// Replaces the content of the file by a report.
    pub(crate) fn write(mut self, text: &str) -> io::Result<()> {
        let is_file = self.file.metadata().is_ok_and(|data| data.is_file());
        // A pipe cannot be truncated.
        let emptied = if is_file { self.file.set_len(0) } else { Ok(()) };
        emptied
            .and_then(|()| self.file.write_all(text.as_bytes()))
            .map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", self.path.display())))
    }
}
