//! What the test command does: some mutants, drawn by the commit, and the list of survivors.

use crate::judge::{self, Verdict};
use crate::mutant::Mutant;
use crate::results::{self, Outcome, Results};
use crate::tree::{Left, Tree};
use crate::{PARTS, known, packages, program};
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
/// A test does not notice what it did; a survivor has no reason, or is not in the source.
pub(crate) fn check() -> Result<(), String> {
    let results = results::read()?;
    for gone in known::gone()? {
        println!("{gone}");
    }
    let faults = survivors(&results)?;
    let drawn = draw(&results)?;
    if drawn.is_empty() {
        return Err("no results are of the files as they are: cargo xtask mutants".into());
    }
    let tree = Tree::copy()?;
    let wanted: Vec<_> =
        (0..).zip(&drawn).map(|(number, (file, mutant, _))| (number, *file, *mutant)).collect();
    let mut left = Left::default();
    let parts: Vec<_> = PARTS.iter().collect();
    let built = tree.build(&wanted, &packages(0, &parts), &mut left)?;
    let mut missed = Vec::new();
    for (number, (file, mutant, test)) in (0..).zip(&drawn) {
        let (of, test) = test.split_once(' ').unwrap_or((test, ""));
        if left.alone.contains(&number) {
            continue;
        }
        let judge = program(&built, of).ok_or_else(|| format!("no tests of {of} were built"))?;
        if judge::ask(judge, None, &[test], LIMIT)? != Verdict::Passed {
            return Err(format!("{test} of {of} fails without a mutant"));
        }
        let named = judge::ask(judge, Some(number), &[test], LIMIT)?;
        // A test may have another name by now.
        if named == Verdict::Passed && judge::ask(judge, Some(number), &[], LIMIT)? == Verdict::Passed {
            missed.push(format!("{file}:{mutant}: not noticed by {test} of {of}, nor by another test"));
        }
    }
    // Of constants, say: they cannot be switched on while tests run. After the others, as each changes what is built.
    for (_, (file, mutant, test)) in (0..).zip(&drawn).filter(|(number, _)| left.alone.contains(number)) {
        let (of, test) = test.split_once(' ').unwrap_or((test, ""));
        let part = PARTS.iter().filter(|part| file.starts_with(&format!("{}/", part.folder)));
        let built = tree.build_alone(file, mutant, &packages(0, &part.collect::<Vec<_>>()))?;
        let judge = built.as_deref().and_then(|built| program(built, of));
        let judge = judge.ok_or_else(|| format!("{file}:{mutant}: no tests of {of} were built"))?;
        if judge::ask(judge, None, &[test], LIMIT)? == Verdict::Passed
            && judge::ask(judge, None, &[], LIMIT)? == Verdict::Passed
        {
            missed.push(format!("{file}:{mutant}: not noticed by {test} of {of}, nor by another test"));
        }
    }
    println!("{} of {} mutants that were drawn are caught", drawn.len() - missed.len(), drawn.len());
    if !left.refused.is_empty() {
        missed.push(format!("{} mutants that were caught are not built", left.refused.len()));
    }
    missed.extend(faults);
    if missed.is_empty() { Ok(()) } else { Err(missed.join("\n")) }
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

/// Returns whether a text defines a function, of which the path is given.
fn has_function(text: &str, path: &str) -> bool {
    let name = path.rsplit("::").next().unwrap_or(path);
    let begins = format!("fn {name}");
    text.match_indices(&begins).any(|(at, _)| {
        let next = text.get(at + begins.len()..).and_then(|rest| rest.chars().next());
        next.is_some_and(|next| !next.is_alphanumeric() && next != '_')
    })
}

/// Draws from what unit tests have caught in files that are as they were, by the commit.
fn draw(results: &Results) -> Result<Vec<(&str, &Mutant, &str)>, String> {
    let mut caught = Vec::new();
    for part in PARTS {
        let files = results::files(part)?;
        for (file, hash) in files.iter().zip(results::hashes(&files)?) {
            let Some((file, source)) = results.get_key_value(file).filter(|(_, source)| source.hash == hash)
            else {
                continue;
            };
            caught.extend(source.rows.iter().filter_map(|(mutant, outcome)| match outcome {
                Outcome::Caught(test)
                    if crate::judges(part, 0).iter().any(|name| test.starts_with(&format!("{name} "))) =>
                {
                    Some((file.as_str(), mutant, test.as_str()))
                }
                _ => None,
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
        assert!(!has_function(text, "A::en") && !has_function(text, "A::begin"));
    }
}
