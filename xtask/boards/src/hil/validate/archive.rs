//! The archive of a validation: a page for people, and the same record as JSON.

use super::page::page;
use super::record::{FORMAT, Record};
use std::fs;
use std::path::Path;
use std::process::Command;
use xtask::run::{self, At, answer, check};

const PAGE: &str = "report.html";
const DATA: &str = "report.json";

/// Writes the archive. It contains one folder, which has the name of the archive without the ending from
/// `.tar` on.
pub(super) fn write(record: &Record, file: &Path) -> Result<(), String> {
    let name = file.file_name().unwrap_or_default().to_string_lossy();
    let name = name.split(".tar").next().filter(|name| !name.is_empty()).unwrap_or("mlx5-validate");
    let temporary = run::temporary("validate")?;
    let folder = temporary.path().join(name);
    fs::create_dir(&folder).at(&folder)?;
    fs::write(folder.join(PAGE), page(record)).at(&folder)?;
    let data = serde_json::to_string_pretty(record).map_err(|error| error.to_string())?;
    fs::write(folder.join(DATA), data + "\n").at(&folder)?;
    // `run::program` would start `tar` in the repository's root, which may not exist on a user's machine.
    let mut tar = Command::new("tar");
    tar.arg("-czf").arg(file).arg("-C").arg(temporary.path()).arg(name);
    check(tar)
}

/// Reads the record of an archive, or of a JSON file.
pub(super) fn read(file: &Path) -> Result<Record, String> {
    let lost = |error: &dyn std::fmt::Display| format!("{}: {error}", file.display());
    let text = if file.extension().is_some_and(|extension| extension == "json") {
        fs::read_to_string(file).map_err(|error| lost(&error))?
    } else {
        let mut tar = Command::new("tar");
        tar.args(["--wildcards", "-xzOf"]).arg(file).arg(format!("*/{DATA}"));
        answer(tar)?
    };
    let record: Record = serde_json::from_str(&text).map_err(|error| lost(&error))?;
    if record.format != FORMAT {
        return Err(lost(&format!("format {}, and this program reads {FORMAT}", record.format)));
    }
    Ok(record)
}

#[cfg(test)]
mod tests {
    use super::super::record::tests::record;
    use super::{read, write};

    #[test]
    fn an_archive_can_be_read_back() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("mlx5-validate-mlx5_0.tar.gz");
        let record = record("hardware");
        write(&record, &file).unwrap();
        assert_eq!(read(&file), Ok(record));
        assert!(read(&folder.path().join("none.tar.gz")).is_err());
    }
}
