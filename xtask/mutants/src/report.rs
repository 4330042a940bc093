//! What is known of all mutants.

use crate::mutant::{Mutant, PARTS};
use crate::results::{self, Outcome, Results};
use std::collections::BTreeMap;

/// Prints survivors, timeouts, exclusions, what was not run, a line for each part, and the sum.
///
/// # Errors
/// The source cannot be read.
pub(crate) fn all(results: &Results) -> Result<(), String> {
    for (file, mutant, outcome) in rows(results) {
        let place = format!("{file}:{mutant}");
        match outcome {
            Outcome::Survived(reason) if reason.is_empty() => println!("survived, no reason: {place}"),
            Outcome::Survived(reason) => println!("survived: {place}: {reason}"),
            Outcome::Endless(test) => println!("did not end: {place}: {test}"),
            Outcome::Excluded(reason) => println!("excluded: {place}: {reason}"),
            Outcome::Open(_) | Outcome::Alone | Outcome::Refused | Outcome::Caught(_) => {}
        }
    }
    let mut stale = Vec::new();
    for part in PARTS {
        let files = results::files(part)?;
        for (file, hash) in files.iter().zip(results::hashes(&files)?) {
            match results.get(file) {
                None => println!("not run: {file}"),
                Some(source) if source.hash != hash => {
                    println!("changed since it was run: {file}");
                    stale.push(file.clone());
                }
                Some(source) => {
                    let open = source.rows.iter().filter(|(_, outcome)| outcome.is_open()).count();
                    if open > 0 {
                        println!("not run: {open} of {} in {file}", source.rows.len());
                    }
                }
            }
        }
    }
    println!(
        "part     mutants refused excluded   open caught (vectors, scenarios) endless passed survived without reason"
    );
    for part in PARTS {
        let of_part = |file: &str| file.starts_with(&format!("{}/", part.folder));
        let counts = Counts::of(rows(results).filter(|(file, ..)| of_part(file)));
        println!("{:<8} {counts}", part.name);
    }
    let counts = Counts::of(rows(results));
    println!("{:<8} {counts}", "all");
    if !stale.is_empty() {
        println!(
            "{} files have changed since they were run: their results are of what they were",
            stale.len()
        );
    }
    println!(
        "open: not run; passed: not noticed by unit tests, and not run further: they count as not caught"
    );
    println!("endless: tests did not end in many times their time: they count as caught");
    let (caught, of) = counts.ratio();
    println!("{caught} of {of} caught ({} %)", percent(caught, of));
    Ok(())
}

/// Returns all mutants, with their files and what is known of them.
fn rows(results: &Results) -> impl Iterator<Item = (&str, &Mutant, &Outcome)> {
    results.iter().flat_map(|(file, source)| {
        source.rows.iter().map(move |(mutant, outcome)| (file.as_str(), mutant, outcome))
    })
}

/// Returns what of the results is less than was promised: survivors without a reason, and fewer caught than [`LEAST`].
pub(crate) fn faults(results: &Results) -> Vec<String> {
    let unexplained = rows(results).filter(|(.., outcome)| **outcome == Outcome::Survived(String::new()));
    let mut faults: Vec<_> = unexplained
        .map(|(file, mutant, _)| format!("{file}:{mutant}: survived, and nobody says why"))
        .collect();
    let (caught, of) = Counts::of(rows(results)).ratio();
    if caught * 100 < of * LEAST {
        faults.push(format!("{caught} of {of} are caught: less than {LEAST} %"));
    }
    faults
}

/// How many of a hundred that build have to be caught.
const LEAST: usize = 95;

fn percent(part: usize, of: usize) -> String {
    let tenths = part * 1000 / of.max(1);
    format!("{}.{}", tenths / 10, tenths % 10)
}

/// How many mutants there are of each outcome.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    refused: usize,
    excluded: usize,
    open: usize,
    /// Not noticed by unit tests; others were not asked yet.
    passed: usize,
    /// By the program whose test failed.
    by: BTreeMap<String, usize>,
    endless: usize,
    survived: usize,
    unreasoned: usize,
}

impl Counts {
    fn of<'r>(rows: impl Iterator<Item = (&'r str, &'r Mutant, &'r Outcome)>) -> Self {
        let mut counts = Self::default();
        for (.., outcome) in rows {
            match outcome {
                Outcome::Open(0) | Outcome::Alone => counts.open += 1,
                Outcome::Open(_) => counts.passed += 1,
                Outcome::Refused => counts.refused += 1,
                Outcome::Excluded(_) => counts.excluded += 1,
                Outcome::Caught(test) => {
                    let program = test.split(' ').next().unwrap_or_default();
                    *counts.by.entry(program.into()).or_default() += 1;
                }
                Outcome::Endless(_) => counts.endless += 1,
                Outcome::Survived(reason) => {
                    counts.survived += 1;
                    counts.unreasoned += usize::from(reason.is_empty());
                }
            }
        }
        counts
    }

    fn caught(&self) -> usize {
        self.by.values().sum()
    }

    /// Returns how many are caught, and of how many: open ones are none of them.
    fn ratio(&self) -> (usize, usize) {
        let caught = self.caught() + self.endless;
        (caught, caught + self.passed + self.survived)
    }

    fn by(&self, program: &str) -> usize {
        self.by.get(program).copied().unwrap_or_default()
    }
}

impl std::fmt::Display for Counts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let caught = self.caught() + self.endless;
        let all = self.refused + self.excluded + self.open + caught + self.passed + self.survived;
        write!(
            f,
            "{all:>7} {:>7} {:>8} {:>6} {:>6} ({:>7}, {:>9}) {:>7} {:>6} {:>8} {:>14}",
            self.refused,
            self.excluded,
            self.open,
            self.caught(),
            self.by("hil_tests"),
            self.by("tests"),
            self.endless,
            self.passed,
            self.survived,
            self.unreasoned
        )
    }
}
