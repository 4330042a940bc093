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
use std::collections::{BTreeMap, BTreeSet};
use std::process::ExitCode;
use std::time::{Duration, Instant};
use tree::{Left, Tree};
use xtask::run;

const HELP: &str = "\
cargo xtask mutants [--shard K/N] [--no-alone] [FILE | FOLDER…]
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
  --no-alone    leave out changes of code that the compiler evaluates: each needs its own build
  --known       put the defects of xtask/mutants/known.tsv into the source, one at a time: tests
                must notice each
  --list        print the list of survivors, and run nothing
";

/// The interval at which a run writes its results to a file.
const KEEP: Duration = Duration::from_secs(20);

fn main() -> ExitCode {
    let arguments = run::arguments();
    let words: Vec<_> = arguments.iter().skip(1).map(String::as_str).collect();
    let done = match words[..] {
        ["--help" | "-h"] => return run::print(HELP, 0),
        ["--list"] => kept::read().and_then(|list| kept::report(&list)),
        ["--known"] => known::run(),
        _ => match options(&words) {
            Some(options) => mutate(&options),
            None => return run::misuse(HELP),
        },
    };
    run::status(done)
}

#[derive(Debug, PartialEq, Eq)]
struct Options {
    /// The index of this run's share of the files (counted from 0), and the number of shares.
    shard: (usize, usize),
    alone: bool,
    /// Beginnings of names of the files to run. Without any, the run includes all files whose results are not
    /// up to date.
    files: Vec<String>,
}

fn options(words: &[&str]) -> Option<Options> {
    let mut options = Options { shard: (0, 1), alone: true, files: Vec::new() };
    let mut words = words.iter();
    while let Some(word) = words.next() {
        match *word {
            "--shard" => {
                let (shard, of) = words.next()?.split_once('/')?;
                let (shard, of): (usize, usize) = (shard.parse().ok()?, of.parse().ok()?);
                options.shard = (shard.checked_sub(1).filter(|shard| *shard < of)?, of);
            }
            "--no-alone" => options.alone = false,
            option if option.starts_with('-') => return None,
            file => options.files.push(file.into()),
        }
    }
    Some(options)
}

/// A mutant whose result is to be determined by this run.
struct Pending {
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
        let rows = results.get(file).map(|source| source.rows.as_slice()).unwrap_or_default();
        let open = rows.iter().filter(|(_, outcome)| outcome.is_open());
        pending.extend(open.map(|(mutant, outcome)| Pending {
            part,
            file: file.clone(),
            mutant: mutant.clone(),
            outcome: outcome.clone(),
        }));
    }
    if !pending.is_empty() {
        let tree = Tree::copy()?;
        let mut left = Left::default();
        let mut reached = BTreeSet::new();
        for stage in 0..STAGES.len() {
            run_stage(&tree, stage, &mut pending, &mut left, &mut reached, &mut results)?;
        }
        for (number, pending) in (0..).zip(&mut pending) {
            if pending.outcome == Outcome::Open(STAGES.len()) {
                // No test noticed the mutant. If its function is constant, and no test reached the mutant at
                // run time, the compiler may have evaluated the function: the mutant must be built alone.
                let computed = left.constant.contains(&number) && !reached.contains(&number);
                pending.outcome = if computed { Outcome::Alone } else { Outcome::Survived };
            }
        }
        if options.alone {
            run_alone(&tree, &mut pending, &mut results)?;
        }
        keep(&pending, &mut results)?;
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
        println!("{file}: {}, {} survived", kept.counts, kept.survivors.len());
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
    let (mut all, mut stale, mut known) = (Vec::new(), Vec::new(), BTreeSet::new());
    for part in PARTS {
        let files = results::files(part)?;
        let hashes = results::hashes(&files)?;
        for (file, hash) in files.into_iter().zip(hashes) {
            if list.get(&file).is_some_and(|kept| kept.hash == hash && kept.is_done()) {
                known.insert(file.clone());
            }
            if results.get(&file).is_none_or(|source| source.hash != hash) {
                stale.push((file.clone(), hash));
            }
            all.push((part, file));
        }
    }
    results.retain(|file, _| all.iter().any(|(_, there)| there == file));
    // Shards get the files in turn, and are therefore about equally large. All files are counted, also those
    // with complete results: each file stays in its shard during a whole run.
    let wanted = |file: &str| match &options.files[..] {
        [] => !known.contains(file),
        names => names.iter().any(|name| file.starts_with(name.as_str())),
    };
    let in_shard = |position: usize| position % options.shard.1 == options.shard.0;
    let chosen: Vec<_> = all
        .into_iter()
        .enumerate()
        .filter(|(position, (_, file))| in_shard(*position) && wanted(file))
        .map(|(_, entry)| entry)
        .collect();
    stale.retain(|(file, _)| chosen.iter().any(|(_, there)| there == file));
    if !stale.is_empty() {
        let names: Vec<_> = stale.iter().map(|(file, _)| file.clone()).collect();
        let mut listed: BTreeMap<String, Vec<Mutant>> = BTreeMap::new();
        for (file, mutant) in mutant::list(&names)? {
            listed.entry(file).or_default().push(mutant);
        }
        for (file, hash) in stale {
            let mutants = listed.remove(&file).unwrap_or_default();
            let rows = mutants.into_iter().map(|mutant| {
                let outcome = excluded(&mutant).map_or(Outcome::Open(0), |why| Outcome::Excluded(why.into()));
                (mutant, outcome)
            });
            results.insert(file, Source { hash, rows: rows.collect() });
        }
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

/// Builds the tests of a stage, with all mutants that no earlier stage has noticed. Runs the tests on each of
/// these mutants.
fn run_stage(
    tree: &Tree,
    stage: usize,
    pending: &mut [Pending],
    left: &mut Left,
    reached: &mut BTreeSet<u32>,
    results: &mut Results,
) -> Result<(), String> {
    let Some(name) = STAGES.get(stage) else { return Ok(()) };
    let open: Vec<u32> = (0..)
        .zip(pending.iter())
        .filter(|(_, pending)| pending.outcome == Outcome::Open(stage))
        .map(|(number, _)| number)
        .collect();
    if open.is_empty() {
        return Ok(());
    }
    println!("{name}: {} mutants are built", open.len());
    let start = Instant::now();
    let wanted: Vec<_> = open
        .iter()
        .filter_map(|number| pending.get(*number as usize).map(|it| (*number, it.file.as_str(), &it.mutant)))
        .collect();
    let numbers = open.iter().filter_map(|number| pending.get(*number as usize));
    let parts: Vec<_> = numbers.map(|it| it.part).collect();
    let built = tree.build(&wanted, &packages(stage, &parts), left)?;
    println!("{name}: built in {} s", start.elapsed().as_secs());
    for (number, it) in (0..).zip(pending.iter_mut()) {
        if left.refused.contains(&number) {
            it.outcome = Outcome::Refused;
        } else if left.alone.contains(&number) {
            it.outcome = Outcome::Alone;
        }
    }
    keep(pending, results)?;
    let mut judges_of: Vec<(String, Judge)> = built
        .iter()
        .map(|built| Ok((built.name.clone(), Judge::prepare(built)?)))
        .collect::<Result<_, String>>()?;
    println!("{name}: each test was run without a mutant, {} s", start.elapsed().as_secs());
    let mut kept = Instant::now();
    for (done, number) in open.iter().enumerate() {
        let Some(it) = pending.get_mut(*number as usize) else { continue };
        if it.outcome != Outcome::Open(stage) {
            continue;
        }
        it.outcome = Outcome::Open(stage + 1);
        for judge in judges(it.part, stage) {
            let judge = judges_of.iter_mut().find(|(name, _)| name == judge).map(|(_, judge)| judge);
            let judge = judge.ok_or("a program of tests was not built")?;
            if judge.reaches(*number) {
                reached.insert(*number);
            }
            let verdict = judge.judge(*number)?;
            if let Some(outcome) = outcome(judge.name(), verdict) {
                it.outcome = outcome;
                break;
            }
        }
        if kept.elapsed() > KEEP {
            println!("{name}: {} of {} after {} s", done + 1, open.len(), start.elapsed().as_secs());
            keep(pending, results)?;
            kept = Instant::now();
        }
    }
    println!("{name}: done in {} s", start.elapsed().as_secs());
    keep(pending, results)
}

fn outcome(program: &str, verdict: Verdict) -> Option<Outcome> {
    match verdict {
        Verdict::Passed => None,
        Verdict::Failed(test) => Some(Outcome::Caught(format!("{program} {test}"))),
        Verdict::Endless(test) => Some(Outcome::Endless(format!("{program} {test}"))),
    }
}

/// Builds and runs, one by one, the mutants that cannot be built together with others.
fn run_alone(tree: &Tree, pending: &mut [Pending], results: &mut Results) -> Result<(), String> {
    for at in 0..pending.len() {
        let Some(it) = pending.get_mut(at).filter(|it| it.outcome == Outcome::Alone) else { continue };
        it.outcome = Outcome::Survived;
        'stages: for stage in 0..STAGES.len() {
            let selection = packages(stage, &[it.part]);
            let Some(programs) = tree.build_alone(&it.file, &it.mutant, &selection)? else {
                it.outcome = Outcome::Refused;
                break;
            };
            for program in
                programs.iter().filter(|built| judges(it.part, stage).contains(&built.name.as_str()))
            {
                if let Some(outcome) = outcome(&program.name, judge::ask(program, None, &[], ALONE)?) {
                    it.outcome = outcome;
                    break 'stages;
                }
            }
        }
        println!("alone: {} {} {:?}", it.file, it.mutant, it.outcome);
        keep(pending, results)?;
    }
    Ok(())
}

/// Copies the results of this run's mutants into `results`, and writes all results to the file.
fn keep(pending: &[Pending], results: &mut Results) -> Result<(), String> {
    for it in pending {
        let rows = results.get_mut(&it.file).into_iter().flat_map(|source| &mut source.rows);
        if let Some((_, outcome)) = rows.into_iter().find(|(mutant, _)| *mutant == it.mutant) {
            *outcome = it.outcome.clone();
        }
    }
    results::write(results)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments() {
        let shard = |words: &[&str]| options(words).map(|options| options.shard);
        assert_eq!(shard(&["--shard", "2/4", "src/queue"]), Some((1, 4)));
        assert_eq!(shard(&[]), Some((0, 1)));
        for wrong in
            [&["--shard"][..], &["--shard", "0/2"], &["--shard", "3/2"], &["--shard", "1"], &["--what"]]
        {
            assert_eq!(shard(wrong), None, "{wrong:?}");
        }
    }
}
