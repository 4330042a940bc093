//! What came of each mutant that was run on this machine, below `target`: a run that is interrupted continues there.

use crate::mutant::{Mutant, PARTS, Part};
use std::collections::BTreeMap;
use std::fmt::Write;
use std::fs;
use std::path::PathBuf;
use xtask::run::{answer, program, root};

/// What came of a mutant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// That number of judges have let it pass; the next was not asked yet.
    Open(usize),
    /// As not asked yet, and to be built alone: what it changes is computed by the compiler.
    Alone,
    /// The compiler refuses it.
    Refused,
    /// Not asked, and why.
    Excluded(String),
    /// A test has failed, which is named.
    Caught(String),
    /// A test did not end in many times its time.
    Endless(String),
    /// No judge has noticed it.
    Survived,
}

/// What came of the mutants of a file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Source {
    /// Of the file when its mutants were listed.
    pub(crate) hash: String,
    pub(crate) rows: Vec<(Mutant, Outcome)>,
}

/// All results, by file.
pub(crate) type Results = BTreeMap<String, Source>;

impl Outcome {
    /// Returns whether it is not known yet.
    pub(crate) const fn is_open(&self) -> bool {
        matches!(self, Self::Open(_) | Self::Alone)
    }

    fn write(&self) -> (String, &str) {
        match self {
            Self::Open(0) => ("open".into(), ""),
            Self::Open(passed) => (format!("open-{passed}"), ""),
            Self::Alone => ("alone".into(), ""),
            Self::Refused => ("refused".into(), ""),
            Self::Excluded(reason) => ("excluded".into(), reason),
            Self::Caught(test) => ("caught".into(), test),
            Self::Endless(test) => ("endless".into(), test),
            Self::Survived => ("survived".into(), ""),
        }
    }

    fn read(word: &str, by: &str) -> Option<Self> {
        let by = by.to_owned();
        Some(match word {
            "open" => Self::Open(0),
            "alone" => Self::Alone,
            "refused" => Self::Refused,
            "excluded" => Self::Excluded(by),
            "caught" => Self::Caught(by),
            "endless" => Self::Endless(by),
            "survived" => Self::Survived,
            _ => Self::Open(word.strip_prefix("open-")?.parse().ok()?),
        })
    }
}

/// Returns the files of a part that may have mutants.
///
/// # Errors
/// The folder cannot be read.
pub(crate) fn files(part: &Part) -> Result<Vec<String>, String> {
    let said = answer(program("git", &["ls-files", "-co", "--exclude-standard", "--", part.folder]))?;
    let is_test = |file: &str| file.split(['/', '.']).any(|word| word == "tests");
    Ok(said.lines().filter(|file| file.ends_with(".rs") && !is_test(file)).map(String::from).collect())
}

/// Returns the hashes of files, in their order.
///
/// # Errors
/// One cannot be read.
pub(crate) fn hashes(files: &[String]) -> Result<Vec<String>, String> {
    if files.is_empty() {
        return Ok(Vec::new());
    }
    let mut command = program("git", &["hash-object", "--"]);
    command.args(files);
    Ok(answer(command)?.lines().map(String::from).collect())
}

fn path(part: &Part) -> PathBuf {
    root().join("target/mutants/results").join(format!("{}.tsv", part.name))
}

/// Reads the results of all parts.
///
/// # Errors
/// A line is none, in a sentence.
pub(crate) fn read() -> Result<Results, String> {
    let mut results = Results::new();
    for part in PARTS {
        let path = path(part);
        if path.exists() {
            let text = fs::read_to_string(&path).map_err(|error| error.to_string())?;
            parse(&text, &mut results).map_err(|line| format!("{}:{line}: no result", path.display()))?;
        }
    }
    Ok(results)
}

/// Writes the results of a part.
///
/// # Errors
/// It cannot be written.
pub(crate) fn write(part: &Part, results: &Results) -> Result<(), String> {
    let of_part = results.iter().filter(|(file, _)| file.starts_with(&format!("{}/", part.folder)));
    let path = path(part);
    let folder = path.parent().map_or(Ok(()), fs::create_dir_all);
    folder
        .and_then(|()| fs::write(&path, text(of_part)))
        .map_err(|error| format!("{}: {error}", path.display()))
}

fn text<'a>(sources: impl Iterator<Item = (&'a String, &'a Source)>) -> String {
    let mut text = String::new();
    for (file, source) in sources {
        // A text takes whatever is written to it.
        let _ = writeln!(text, "= {file}\t{}", source.hash);
        for (mutant, outcome) in &source.rows {
            let Mutant { start, end, kind, replacement, function } = mutant;
            let (word, by) = outcome.write();
            let line = format!("{start}-{end}\t{kind}\t{replacement}\t{function}\t{word}\t{by}");
            let _ = writeln!(text, "{}", line.trim_end());
        }
    }
    text
}

/// Adds what a text says; else the number of the line that says nothing.
fn parse(text: &str, results: &mut Results) -> Result<(), u32> {
    let mut file = String::new();
    for (line, number) in text.lines().zip(1_u32..) {
        if let Some((name, hash)) = line.strip_prefix("= ").and_then(|rest| rest.split_once('\t')) {
            name.clone_into(&mut file);
            results.insert(file.clone(), Source { hash: hash.into(), rows: Vec::new() });
        } else {
            let row = row(line).ok_or(number)?;
            results.get_mut(&file).ok_or(number)?.rows.push(row);
        }
    }
    Ok(())
}

fn row(line: &str) -> Option<(Mutant, Outcome)> {
    let mut columns = line.split('\t');
    let mut next = || columns.next();
    let mutant = Mutant::read(next()?, next()?, next()?, next()?)?;
    let outcome = Outcome::read(next()?, next().unwrap_or_default())?;
    next().is_none().then_some((mutant, outcome))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "\
= src/queue/ring.rs\t0123
12:5-12:7\tbinary\t!=\tRing::at\tcaught\tunit:queue::ring::tests::ends
12:5-12:7\tbinary\t<\tRing::at\tendless\tscenarios:all
13:9-13:10\tunary\t\tRing::at\tsurvived
14:9-15:2\tbody\tNone\tRing::at\topen-2
16:1-16:2\tarm\t\tRing::at\topen
16:1-16:2\tguard\ttrue\tRing::at\trefused
16:1-16:2\tguard\tfalse\tRing::at\talone
16:1-16:2\tfield\t\tRing::at\texcluded\tno code
";

    #[test]
    fn results_are_read_as_they_were_written() {
        let mut results = Results::new();
        parse(TEXT, &mut results).unwrap();
        assert_eq!(results["src/queue/ring.rs"].rows.len(), 8);
        assert_eq!(text(results.iter()), TEXT);
    }

    #[test]
    fn what_says_nothing_is_named() {
        for (text, line) in
            [("1:1-1:2\tarm\t\tf\topen\n", 1), ("= a\t0\n1:1-1:2\tarm\t\tf\twell\n", 2), ("= a\t0\n\n", 2)]
        {
            assert_eq!(parse(text, &mut Results::new()), Err(line), "{text:?}");
        }
    }
}
