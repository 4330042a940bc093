//! What the test command does: some mutants, drawn by the commit, and the list of survivors.

use crate::judge::{self, Verdict};
use crate::mutant::{Mutant, Part};
use crate::results::{self, Outcome, Results};
use crate::tree::{Built, Left, Tree};
use crate::{PARTS, known, packages, program, report};
use std::time::Duration;
use xtask::run;
use xtask::run::{answer, root};

/// How many are drawn.
const DRAWN: usize = 30;

/// How long a test may compute.
const LIMIT: Duration = Duration::from_secs(60);

/// Draws mutants that a unit test has caught, and has that test judge them again.
///
/// # Errors
/// A test does not notice what it did; a survivor has no reason, or is not in the source, nor what a known defect changes; fewer are
/// caught than was promised.
pub(crate) fn check() -> Result<(), String> {
    let results = results::read()?;
    let mut faults = known::gone()?;
    faults.extend(report::faults(&results));
    faults.extend(survivors(&results)?);
    let drawn = draw(&results)?;
    if drawn.is_empty() {
        return Err("no results are of the files as they are: cargo xtask mutants".into());
    }
    let tree = Tree::copy()?;
    let wanted: Vec<_> =
        (0..).zip(&drawn).map(|(number, drawn)| (number, drawn.file, drawn.mutant)).collect();
    let mut left = Left::default();
    let parts: Vec<_> = PARTS.iter().collect();
    let built = tree.build(&wanted, &packages(0, &parts), &mut left)?;
    let (mut missed, mut alone) = (Vec::new(), Vec::new());
    for (number, drawn) in (0..).zip(&drawn) {
        if judge::ask(drawn.judge(&built)?, None, &[drawn.test], LIMIT)? != Verdict::Passed {
            return Err(format!("{} of {} fails without a mutant", drawn.test, drawn.program));
        }
        if left.alone.contains(&number) {
            alone.push(drawn);
        } else if !drawn.is_noticed(&built, Some(number))? {
            // With a constant function the compiler may have computed before the mutant was on.
            let computed = left.constant.contains(&number);
            if computed { alone.push(drawn) } else { missed.push(drawn.missed()) }
        }
    }
    // Last, as each overwrites the programs that were built with the others.
    for drawn in alone {
        let built = tree.build_alone(drawn.file, drawn.mutant, &packages(0, &[drawn.part]))?;
        let built = built.ok_or_else(|| format!("{}:{} is not built", drawn.file, drawn.mutant))?;
        if !drawn.is_noticed(&built, None)? {
            missed.push(drawn.missed());
        }
    }
    println!("{} of {} mutants that were drawn are caught", drawn.len() - missed.len(), drawn.len());
    if !left.refused.is_empty() {
        missed.push(format!("{} mutants that were caught are not built", left.refused.len()));
    }
    missed.extend(faults);
    if missed.is_empty() { Ok(()) } else { Err(missed.join("\n")) }
}

/// A mutant that was drawn, and the test that caught it.
struct Drawn<'a> {
    part: &'static Part,
    file: &'a str,
    mutant: &'a Mutant,
    program: &'a str,
    test: &'a str,
}

impl Drawn<'_> {
    /// Returns the program of the test.
    fn judge<'b>(&self, built: &'b [Built]) -> Result<&'b Built, String> {
        program(built, self.program).ok_or_else(|| format!("no tests of {} were built", self.program))
    }

    /// Returns whether the test notices the mutant, or another, as a test may have another name by now. The mutant is switched on by
    /// its number, or always on in what was built.
    fn is_noticed(&self, built: &[Built], number: Option<u32>) -> Result<bool, String> {
        let judge = self.judge(built)?;
        let passes =
            |tests: &[&str]| judge::ask(judge, number, tests, LIMIT).map(|said| said == Verdict::Passed);
        Ok(!passes(&[self.test])? || !passes(&[])?)
    }

    fn missed(&self) -> String {
        let Self { file, mutant, program, test, .. } = self;
        format!("{file}:{mutant}: not noticed by {test} of {program}, nor by another test")
    }
}

/// Compares the list of survivors with the source: returns what is wrong, and prints what is old.
fn survivors(results: &Results) -> Result<Vec<String>, String> {
    let mut faults = Vec::new();
    for part in PARTS {
        let files = results::files(part)?;
        let of_part = |file: &&String| file.starts_with(&format!("{}/", part.folder));
        faults.extend(
            results
                .keys()
                .filter(of_part)
                .filter(|file| !files.contains(file))
                .map(|file| format!("{file} is gone")),
        );
        for (file, hash) in files.iter().zip(results::hashes(&files)?) {
            let Some(source) = results.get(file) else {
                println!("not run: {file}");
                continue;
            };
            if source.hash == hash {
                continue;
            }
            println!("changed since it was run: {file}");
            let text =
                std::fs::read_to_string(root().join(file)).map_err(|error| format!("{file}: {error}"))?;
            let survivors = source.rows.iter().filter(|(_, outcome)| matches!(outcome, Outcome::Survived(_)));
            faults.extend(
                survivors.filter(|(mutant, _)| !has_function(&text, &mutant.function)).map(|(mutant, _)| {
                    format!("{file}:{mutant}: a survivor of a function that is not there")
                }),
            );
        }
    }
    if !faults.is_empty() {
        faults.push("run them again: cargo xtask mutants FILE".into());
    }
    Ok(faults)
}

/// Returns whether a text defines a function, of which the path is given: constants are in none.
fn has_function(text: &str, path: &str) -> bool {
    if path.is_empty() {
        return true;
    }
    let name = path.rsplit("::").next().unwrap_or(path);
    let begins = format!("fn {name}");
    text.match_indices(&begins).any(|(at, _)| {
        let next = text.get(at + begins.len()..).and_then(|rest| rest.chars().next());
        next.is_some_and(|next| !next.is_alphanumeric() && next != '_')
    })
}

/// Draws from what unit tests have caught in files that are as they were, by the commit.
fn draw(results: &Results) -> Result<Vec<Drawn<'_>>, String> {
    let mut caught = Vec::new();
    for part in PARTS {
        let files = results::files(part)?;
        for (file, hash) in files.iter().zip(results::hashes(&files)?) {
            let Some((file, source)) = results.get_key_value(file).filter(|(_, source)| source.hash == hash)
            else {
                continue;
            };
            caught.extend(source.rows.iter().filter_map(|(mutant, outcome)| {
                let Outcome::Caught(test) = outcome else { return None };
                let (program, test) = test.split_once(' ')?;
                let unit = crate::judges(part, 0).contains(&program);
                unit.then_some(Drawn { part, file, mutant, program, test })
            }));
        }
    }
    let commit = answer(run::program("git", &["rev-parse", "HEAD"]))?;
    println!("{DRAWN} of {} are drawn by {commit}", caught.len());
    let seed = commit.get(..16).and_then(|digits| u64::from_str_radix(digits, 16).ok());
    Ok(pick(caught, seed.ok_or_else(|| format!("{commit} is no commit"))?))
}

/// Picks some at random, no more than are drawn.
fn pick<T>(mut all: Vec<T>, mut seed: u64) -> Vec<T> {
    let mut picked = Vec::new();
    while picked.len() < DRAWN && !all.is_empty() {
        // Knuth's linear congruence; the high half is random enough.
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let at = usize::try_from(seed >> 32).unwrap_or_default() % all.len();
        picked.push(all.swap_remove(at));
    }
    picked
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thirty_are_picked_and_none_twice() {
        let picked = |seed| pick((0..100).collect(), seed);
        let mut sorted = picked(7);
        sorted.sort_unstable();
        sorted.dedup();
        assert_eq!(sorted.len(), DRAWN);
        assert_eq!((picked(7), pick(vec![1, 2], 7).len()), (picked(7), 2));
        assert_ne!(picked(7), picked(8));
    }

    #[test]
    fn functions_are_found_by_their_names() {
        let text = "impl A { fn end(self) {} const fn ends<T>() {} }";
        assert!(has_function(text, "A::end") && has_function(text, "<impl A for B>::ends"));
        assert!(has_function(text, ""));
        assert!(!has_function(text, "A::en") && !has_function(text, "A::begin"));
    }
}
