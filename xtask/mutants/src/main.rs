//! `cargo xtask mutants`: makes small changes (mutants) of the library and of the software device. Tests must
//! notice each.
//!
//! cargo-mutants lists the mutants. All of them are built into one program, each behind a condition that
//! turns it on at run time ([`schema`]). Each mutant is turned on alone, and the tests that execute its code
//! run.

mod judge;
mod kept;
mod known;
mod mutant;
mod results;
mod schema;
mod stages;
mod tree;

use judge::{Judge, Verdict};
use kept::{Kept, List};
use mutant::{Mutant, PARTS, Part};
use results::{Outcome, Results, Source};
use stages::{ALONE, STAGES, judges, packages};
use std::collections::BTreeSet;
use std::process::ExitCode;
use std::time::{Duration, Instant};
use tree::{Built, Left, Tree};
use xtask::run;

const HELP: &str = "\
cargo xtask mutants [--shard K/N] [FILE | FOLDER…]
cargo xtask mutants --known | --list

Makes small changes of the library and the software device, one at a time, and runs the tests that
reach the change: unit tests first, then the recorded vectors, then scenarios. A change that no test
notices is a survivor. xtask/mutants/survivors.tsv records for each file the number of caught
changes, and each survivor. Its last column is the reason why the change may survive; a person
writes it. A survivor without a reason is an error.

Runs the named files. Without a name, it runs all files that have changed since their last run, or
have a survivor without a reason. An interrupted run continues from the results in
target/mutants/results.json.

  --shard K/N   run the K-th of N parts of all files, counted from 1
  --known       put the defects of xtask/mutants/known.tsv into the source, one at a time: tests
                must notice each
  --list        print the list of survivors, and run nothing
";

/// The interval at which a run writes its results to a file.
const KEEP: Duration = Duration::from_secs(20);

fn main() -> ExitCode {
    let arguments = run::arguments();
    // The first argument is the name of the task.
    let words = arguments.get(1..).unwrap_or_default();
    let done = match words.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["--list"] => kept::read().and_then(|list| kept::report(&list)),
        ["--known"] => known::run(),
        _ => return run::with_options(words, HELP, parse, |options| run::status(mutate(&options))),
    };
    run::status(done)
}

#[derive(Debug, PartialEq, Eq)]
struct Options {
    /// The index of this run's share of the files (counted from 0), and the number of shares.
    shard: (usize, usize),
    /// Beginnings of names of the files to run. Without any, the run includes all files whose results are not
    /// up to date.
    files: Vec<String>,
}

fn parse(words: &mut run::Options) -> Result<Options, String> {
    let mut options = Options { shard: (0, 1), files: Vec::new() };
    while let Some(word) = words.word()? {
        match word.as_str() {
            "--shard" => {
                let value: String = words.value()?;
                options.shard = shard(&value).ok_or(format!("`{value}` is no K/N"))?;
            }
            option if option.starts_with('-') => return Err(run::unknown(option)),
            _ => options.files.push(word),
        }
    }
    Ok(options)
}

fn shard(value: &str) -> Option<(usize, usize)> {
    let (shard, of) = value.split_once('/')?;
    let (shard, of): (usize, usize) = (shard.parse().ok()?, of.parse().ok()?);
    Some((shard.checked_sub(1).filter(|shard| *shard < of)?, of))
}

/// A mutant whose result is to be determined by this run.
struct Pending {
    /// The number that turns the mutant on.
    number: u32,
    part: &'static Part,
    file: String,
    mutant: Mutant,
    outcome: Outcome,
}

fn mutate(options: &Options) -> Result<(), String> {
    let (mut results, mut list) = (results::read()?, kept::read()?);
    let files = update(&mut results, &list, options)?;
    let mut pending: Vec<Pending> = Vec::new();
    for (part, file) in &files {
        for (mutant, outcome) in results.get(file).into_iter().flat_map(|source| &source.rows) {
            if outcome.is_open() {
                let (number, file) = (pending.len() as u32, file.clone());
                let (mutant, outcome) = (mutant.clone(), outcome.clone());
                pending.push(Pending { number, part, file, mutant, outcome });
            }
        }
    }
    if !pending.is_empty() {
        let (left, reached) = (Left::default(), BTreeSet::new());
        let mut run = Run { tree: Tree::copy()?, pending, left, reached, results: &mut results };
        for (stage, name) in STAGES.iter().enumerate() {
            run.stage(stage, name)?;
        }
        for it in run.pending.iter_mut().filter(|it| it.outcome == Outcome::Open(STAGES.len())) {
            // No test noticed the mutant. If its function is constant, and no test reached the mutant at run
            // time, the compiler may have evaluated the function: the mutant must be built alone.
            let computed = run.left.constant.contains(&it.number) && !run.reached.contains(&it.number);
            it.outcome = if computed { Outcome::Alone } else { Outcome::Survived };
        }
        run.alone()?;
        run.keep()?;
    }
    compare(&files, &results, &mut list)
}

/// Prints the results of the files, and where they differ from the list of survivors. Writes the new list.
///
/// # Errors
/// A survivor has no reason, or too few mutants are caught.
fn compare(files: &[(&Part, String)], results: &Results, list: &mut List) -> Result<(), String> {
    for (_, file) in files {
        let Some(source) = results.get(file) else { continue };
        let before = list.get(file);
        let kept = Kept::of(source, before);
        for (mutant, reason) in before.iter().flat_map(|before| &before.survivors) {
            if !kept.survivors.iter().any(|(other, _)| other.is_like(mutant)) {
                println!("no longer survives: {file}:{mutant}: {reason}");
            }
        }
        for (mutant, outcome) in &source.rows {
            match outcome {
                Outcome::Caught(test) => println!("caught: {file}:{mutant}: {test}"),
                Outcome::Endless(test) => println!("did not end: {file}:{mutant}: {test}"),
                _ => {}
            }
        }
        for (mutant, reason) in &kept.survivors {
            println!("survived: {file}:{mutant}: {}", if reason.is_empty() { "no reason" } else { reason });
        }
        println!("{file}: {}, {} survived", kept::words(&kept.counts), kept.survivors.len());
        list.insert(file.clone(), kept);
    }
    let mut there = Vec::new();
    for part in PARTS {
        there.extend(results::files(part)?);
    }
    list.retain(|file, _| there.contains(file));
    kept::write(list)?;
    let faults = kept::faults(list);
    if faults.is_empty() { Ok(()) } else { Err(faults.join("\n")) }
}

/// Lists the mutants of new and changed files, and removes the results of deleted files. Returns the files of
/// this run.
fn update(
    results: &mut Results,
    list: &List,
    options: &Options,
) -> Result<Vec<(&'static Part, String)>, String> {
    let (mut chosen, mut stale, mut there) = (Vec::new(), Vec::new(), BTreeSet::new());
    for part in PARTS {
        let files = results::files(part)?;
        let hashes = results::hashes(&files)?;
        for (file, hash) in files.into_iter().zip(hashes) {
            // Shards get the files in turn, and are therefore about equally large. All files are counted,
            // also those with complete results: each file stays in its shard during a whole run.
            let (shard, of) = options.shard;
            let is_in_shard = there.len() % of == shard;
            there.insert(file.clone());
            let is_wanted = match &options.files[..] {
                [] => list.get(&file).is_none_or(|kept| kept.hash != hash || !kept.is_done()),
                names => names.iter().any(|name| file.starts_with(name.as_str())),
            };
            if is_in_shard && is_wanted {
                if results.get(&file).is_none_or(|source| source.hash != hash) {
                    stale.push((file.clone(), hash));
                }
                chosen.push((part, file));
            }
        }
    }
    results.retain(|file, _| there.contains(file));
    let listed = mutant::list(stale.iter().map(|(file, _)| file.as_str()))?;
    for (file, hash) in stale {
        let rows = listed.iter().filter(|(of, _)| *of == file).map(|(_, mutant)| {
            let outcome = excluded(mutant).map_or(Outcome::Open(0), |why| Outcome::Excluded(why.into()));
            (mutant.clone(), outcome)
        });
        let rows = rows.collect();
        results.insert(file, Source { hash, rows });
    }
    for (_, file) in &chosen {
        for (_, outcome) in results.get_mut(file).into_iter().flat_map(|source| &mut source.rows) {
            // A mutant that tests let pass is run again, because tests may have changed since.
            if matches!(outcome, Outcome::Open(_) | Outcome::Survived) {
                *outcome = Outcome::Open(0);
            }
        }
    }
    Ok(chosen)
}

fn excluded(mutant: &Mutant) -> Option<&'static str> {
    mutant.function.contains("defmt::Format").then_some("code of a feature that tests do not enable")
}

fn outcome(program: &str, verdict: Verdict) -> Option<Outcome> {
    match verdict {
        Verdict::Passed => None,
        Verdict::Failed(test) => Some(Outcome::Caught(format!("{program} {test}"))),
        Verdict::Endless(test) => Some(Outcome::Endless(format!("{program} {test}"))),
    }
}

/// A run of mutants.
struct Run<'r> {
    tree: Tree,
    pending: Vec<Pending>,
    left: Left,
    /// The mutants whose code a test has executed.
    reached: BTreeSet<u32>,
    results: &'r mut Results,
}

impl Run<'_> {
    /// Builds the tests of a stage, with all mutants that no earlier stage has noticed. Runs the tests on
    /// each of these mutants.
    fn stage(&mut self, stage: usize, name: &str) -> Result<(), String> {
        let open: Vec<_> = self.pending.iter().filter(|it| it.outcome == Outcome::Open(stage)).collect();
        if open.is_empty() {
            return Ok(());
        }
        let count = open.len();
        println!("{name}: {count} mutants are built");
        let start = Instant::now();
        let wanted: Vec<_> = open.iter().map(|it| (it.number, it.file.as_str(), &it.mutant)).collect();
        let parts: Vec<_> = open.iter().map(|it| it.part).collect();
        let built = self.tree.build(&wanted, &packages(stage, &parts), &mut self.left)?;
        println!("{name}: built in {} s", start.elapsed().as_secs());
        for it in &mut self.pending {
            if self.left.refused.contains(&it.number) {
                it.outcome = Outcome::Refused;
            } else if self.left.alone.contains(&it.number) {
                it.outcome = Outcome::Alone;
            }
        }
        self.keep()?;
        let mut programs = built.iter().map(Judge::prepare).collect::<Result<Vec<_>, _>>()?;
        println!("{name}: each test was run without a mutant, {} s", start.elapsed().as_secs());
        let (mut kept, mut done) = (Instant::now(), 0);
        for at in 0..self.pending.len() {
            let it = self.pending.get_mut(at).filter(|it| it.outcome == Outcome::Open(stage));
            let Some(it) = it else { continue };
            it.outcome = Outcome::Open(stage + 1);
            for name in judges(it.part, stage) {
                let judge = programs.iter_mut().find(|judge| judge.name() == *name);
                let judge = judge.ok_or("a program of tests was not built")?;
                if judge.reaches(it.number) {
                    self.reached.insert(it.number);
                }
                if let Some(outcome) = outcome(name, judge.judge(it.number)?) {
                    it.outcome = outcome;
                    break;
                }
            }
            done += 1;
            if kept.elapsed() > KEEP {
                println!("{name}: {done} of {count} after {} s", start.elapsed().as_secs());
                self.keep()?;
                kept = Instant::now();
            }
        }
        println!("{name}: done in {} s", start.elapsed().as_secs());
        self.keep()
    }

    /// Builds and runs, one by one, the mutants that cannot be built together with others.
    fn alone(&mut self) -> Result<(), String> {
        for at in 0..self.pending.len() {
            let it = self.pending.get_mut(at).filter(|it| it.outcome == Outcome::Alone);
            let Some(it) = it else { continue };
            it.outcome = Outcome::Survived;
            'stages: for stage in 0..STAGES.len() {
                let selection = packages(stage, &[it.part]);
                let Some(programs) = self.tree.build_alone(&it.file, &it.mutant, &selection)? else {
                    it.outcome = Outcome::Refused;
                    break;
                };
                let is_judge = |built: &&Built| judges(it.part, stage).contains(&built.name.as_str());
                for program in programs.iter().filter(is_judge) {
                    if let Some(outcome) = outcome(&program.name, judge::ask(program, None, &[], ALONE)?) {
                        it.outcome = outcome;
                        break 'stages;
                    }
                }
            }
            println!("alone: {} {} {:?}", it.file, it.mutant, it.outcome);
            self.keep()?;
        }
        Ok(())
    }

    /// Copies the results of this run's mutants to all results, and writes these to the file.
    fn keep(&mut self) -> Result<(), String> {
        for it in &self.pending {
            let rows = self.results.get_mut(&it.file).into_iter().flat_map(|source| &mut source.rows);
            if let Some((_, outcome)) = rows.into_iter().find(|(mutant, _)| *mutant == it.mutant) {
                *outcome = it.outcome.clone();
            }
        }
        results::write(self.results)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments() {
        let shard = |words: &[&str]| parse(&mut run::Options::new(words)).ok().map(|options| options.shard);
        assert_eq!(shard(&["--shard", "2/4", "src/queue"]), Some((1, 4)));
        assert_eq!(shard(&[]), Some((0, 1)));
        for wrong in
            [&["--shard"][..], &["--shard", "0/2"], &["--shard", "3/2"], &["--shard", "1"], &["--what"]]
        {
            assert_eq!(shard(wrong), None, "{wrong:?}");
        }
    }
}
