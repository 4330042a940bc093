//! The results of mutants on this machine, in a file below `target`. If a run is interrupted, the next run
//! continues with this file.

use crate::mutant::{Mutant, Part};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use xtask::run::{answer, program, root};

#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub(crate) enum Outcome {
    /// The number of stages of tests that have not noticed the mutant. Later stages have not run yet.
    Open(usize),
    /// The mutant must be built alone, because the compiler evaluates its code, or because a condition cannot
    /// select its code. This build has not happened yet.
    Alone,
    /// The compiler refuses the mutant.
    Refused,
    /// The mutant is never run. The value is the reason.
    Excluded(String),
    /// A test failed. The value is the name of the test.
    Caught(String),
    /// A test did not end within its limit. The value is the name of the test.
    Endless(String),
    /// No test of any stage noticed the mutant.
    Survived,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
pub(crate) struct Source {
    /// The git hash of the file when its mutants were listed.
    pub(crate) hash: String,
    pub(crate) rows: Vec<(Mutant, Outcome)>,
}

pub(crate) type Results = BTreeMap<String, Source>;

impl Outcome {
    pub(crate) const fn is_open(&self) -> bool {
        matches!(self, Self::Open(_) | Self::Alone)
    }
}

/// Returns the source files of a part, without files of tests.
pub(crate) fn files(part: &Part) -> Result<Vec<String>, String> {
    let listed = answer(program("git", &["ls-files", "-co", "--exclude-standard", "--", part.folder]))?;
    let is_test = |file: &str| file.split(['/', '.']).any(|word| word == "tests");
    Ok(listed.lines().filter(|file| file.ends_with(".rs") && !is_test(file)).map(String::from).collect())
}

pub(crate) fn hashes(files: &[String]) -> Result<Vec<String>, String> {
    if files.is_empty() {
        return Ok(Vec::new());
    }
    let mut command = program("git", &["hash-object", "--"]);
    command.args(files);
    Ok(answer(command)?.lines().map(String::from).collect())
}

fn path() -> PathBuf {
    root().join("target/mutants/results.json")
}

pub(crate) fn read() -> Result<Results, String> {
    let path = path();
    if !path.exists() {
        return Ok(Results::new());
    }
    let lost = |error: &dyn std::fmt::Display| format!("{}: {error}", path.display());
    let text = fs::read(&path).map_err(|error| lost(&error))?;
    serde_json::from_slice(&text).map_err(|error| lost(&error))
}

/// Writes the results. If the program is interrupted meanwhile, the file contains either the old or the new
/// results.
pub(crate) fn write(results: &Results) -> Result<(), String> {
    let (path, new) = (path(), path().with_extension("new"));
    let lost = |error: std::io::Error| format!("{}: {error}", path.display());
    path.parent().map_or(Ok(()), fs::create_dir_all).map_err(lost)?;
    let text = serde_json::to_string(results).map_err(|error| error.to_string())?;
    fs::write(&new, text).and_then(|()| fs::rename(&new, &path)).map_err(lost)
}
