//! `cargo xtask fuzz`: has libFuzzer call the targets of `hil-tests/fuzz`. Reports the number of calls and
//! the coverage.

mod coverage;

use coverage::Coverage;
use std::fs::{self, File};
use std::num::NonZero;
use std::panic::resume_unwind;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use xtask::debian::{self, CXX};
use xtask::fuzz_targets::{self as targets, Part, Target};
use xtask::run::{self, answer, cargo, check, program, root};

pub(crate) const HELP: &str = "\
cargo xtask fuzz [--seconds N] [TARGET…]

Has libFuzzer call targets with generated inputs, until the time is over or an input fails. Prints
the number of calls of each target, and the coverage of src/queue and src/inspect: of all lines at
which a branch begins, the number that was reached. Functions without compiled code do not count.

  --seconds N   duration for each target (default: 10). Targets run side by side, one on each
                processor. From 1800 on, few calls are an error: fewer than 100,000,000 of all
                targets of the library together, or fewer than 100,000 of the stand-in's two

An input that fails is written to target/fuzz/found. As a file of hil-tests/fuzz/corpus/TARGET it
becomes a test: of the package mlx5-uverbs for the targets standin and rdma-cm, else of hil-fuzz.
Inputs that reach new code are kept in target/fuzz/corpus, from which the next run starts.

Targets:
";

const SECONDS: u64 = 10;

/// The sum of the targets' durations in the step `fuzz` of `cargo xtask test`, in seconds.
const SECONDS_OF_TESTS: u64 = 60;

/// Folders of the library for which the coverage is reported.
const FOLDERS: [&str; 2] = ["src/queue", "src/inspect"];

/// The duration for each target, in seconds, from which on too few calls are an error.
const LONG: u64 = 1800;

/// The smallest number of calls in a long run: the sum over all targets of a part of the project.
const FEWEST: [(Part, u64, &str); 2] = [
    (Part::Core, 100_000_000, "calls of the library's targets"),
    (Part::StandIn, 100_000, "calls of the stand-in's targets"),
];

pub(crate) fn run(arguments: &[String]) -> ExitCode {
    run::with_options(arguments, &help(), parse, |(seconds, targets)| run::status(fuzz(&targets, seconds)))
}

/// Fuzzes all targets, for the step `fuzz` of `cargo xtask test`.
pub(crate) fn test() -> Result<(), String> {
    let targets: Vec<_> = targets::ALL.iter().collect();
    fuzz(&targets, (SECONDS_OF_TESTS / targets.len() as u64).max(1))
}

fn help() -> String {
    let lines = targets::ALL.iter().map(|target| format!("  {:<13} {}\n", target.name, target.what));
    format!("{HELP}{}", lines.collect::<String>())
}

fn parse(words: &mut run::Options) -> Result<(u64, Vec<&'static Target>), String> {
    let (mut seconds, mut targets) = (SECONDS, Vec::new());
    while let Some(word) = words.word()? {
        match targets::ALL.iter().find(|target| target.name == word) {
            Some(target) => targets.push(target),
            None if word == "--seconds" => seconds = words.value::<NonZero<u64>>()?.get(),
            None => return Err(run::unknown(&word)),
        }
    }
    Ok((seconds, if targets.is_empty() { targets::ALL.iter().collect() } else { targets }))
}

fn fuzz(targets: &[&Target], seconds: u64) -> Result<(), String> {
    debian::install(CXX)?;
    let fuzzer = Fuzzer::build()?;
    let (mut found, mut counts) = (Vec::new(), Vec::new());
    let mut coverage = Coverage::default();
    for (target, ended) in fuzzer.run_all(targets, seconds) {
        let Some(executions) = ended else {
            found.push(target.name);
            continue;
        };
        counts.push((target.name, executions));
        if target.part == Part::Core {
            for folder in [fuzzer.corpus(target), committed(target)] {
                coverage.add(&fuzzer.reached(target, &folder)?);
            }
        }
    }
    for (part, _, unit) in FEWEST {
        if let Some(sum) = sum(part, &counts) {
            println!("{:<13} {sum:>12} {unit}", "");
        }
    }
    if targets.iter().any(|target| target.part == Part::Core) {
        for (folder, reached, all) in coverage.of(&fuzzer.program, &FOLDERS)? {
            println!(
                "{folder:<13} {reached:>5} of {all} lines at which a branch begins ({} %)",
                reached * 100 / all.max(1)
            );
        }
    }
    if !found.is_empty() {
        return Err(format!("these targets have a finding: {}", found.join(", ")));
    }
    enough(seconds, &counts)
}

/// Returns the number of calls of all targets of a part. Returns `None` if one of them was not called.
fn sum(part: Part, counts: &[(&str, u64)]) -> Option<u64> {
    let of = |target: &Target| counts.iter().find(|(name, _)| *name == target.name).map(|(_, count)| *count);
    targets::ALL.iter().filter(|target| target.part == part).map(of).sum()
}

/// Returns an error for too few calls in a long run. A short run is never an error: its number of calls
/// depends on the machine.
fn enough(seconds: u64, counts: &[(&str, u64)]) -> Result<(), String> {
    for (part, fewest, unit) in FEWEST {
        match sum(part, counts) {
            Some(sum) if seconds >= LONG && sum < fewest => {
                return Err(format!("{sum} {unit} in {seconds} s each, fewer than {fewest}"));
            }
            _ => {}
        }
    }
    Ok(())
}

/// Returns the folder of the inputs of a target that belong to the repository.
fn committed(target: &Target) -> PathBuf {
    root().join("hil-tests/fuzz/corpus").join(target.name)
}

struct Fuzzer {
    program: PathBuf,
    folder: PathBuf,
}

impl Fuzzer {
    fn build() -> Result<Self, String> {
        let folder = root().join("target/fuzz");
        let host = answer(program("rustc", &["--print", "host-tuple"]))?;
        let path = folder.to_string_lossy();
        // With `--target`, cargo leaves build scripts and procedural macros uninstrumented.
        let mut command =
            cargo(&["build", "--quiet", "--profile", "fuzz", "--target", &host, "--target-dir", &path]);
        command.args(["--package", "hil-fuzz", "--features", "libfuzzer"]);
        // The flags of cargo-fuzz: a counter for each edge, a table of the edges' addresses, and a hook for
        // each comparison.
        let flags = [
            "-Cpasses=sancov-module",
            "-Cllvm-args=-sanitizer-coverage-level=4",
            "-Cllvm-args=-sanitizer-coverage-inline-8bit-counters",
            "-Cllvm-args=-sanitizer-coverage-pc-table",
            "-Cllvm-args=-sanitizer-coverage-trace-compares",
        ];
        command.env("CARGO_ENCODED_RUSTFLAGS", flags.join("\x1f"));
        check(command)?;
        let program = folder.join(host).join("fuzz/fuzz");
        Ok(Self { program, folder })
    }

    /// Returns the folder of the generated inputs of a target.
    fn corpus(&self, target: &Target) -> PathBuf {
        self.folder.join("corpus").join(target.name)
    }

    fn command(&self, target: &Target) -> Command {
        let mut command = program(&self.program.to_string_lossy(), &[]);
        command.env("FUZZ_TARGET", target.name);
        command
    }

    /// Fuzzes targets, as many at a time as the machine has processors. Prints the number of calls, or the
    /// finding, of each. Returns the numbers, with `None` for a finding.
    fn run_all<'a>(&self, targets: &[&'a Target], seconds: u64) -> Vec<(&'a Target, Option<u64>)> {
        let processors = std::thread::available_parallelism().map_or(1, NonZero::get);
        let run = |target: &&'a Target| {
            let ended = self.run(target, seconds);
            match &ended {
                Ok(executions) => println!("{:<13} {executions:>12} calls in {seconds} s", target.name),
                Err(error) => println!("{error}"),
            }
            (*target, ended.ok())
        };
        // All targets run for the same time, so equal shares of the targets end at the same time.
        let share = |first| targets.iter().skip(first).step_by(processors).map(run).collect::<Vec<_>>();
        std::thread::scope(|scope| {
            let shares: Vec<_> = (0..processors).map(|first| scope.spawn(move || share(first))).collect();
            shares
                .into_iter()
                .flat_map(|share| share.join().unwrap_or_else(|panic| resume_unwind(panic)))
                .collect()
        })
    }

    /// Fuzzes a target. Returns the number of calls.
    fn run(&self, target: &Target, seconds: u64) -> Result<u64, String> {
        let (corpus, committed, found) = (self.corpus(target), committed(target), self.folder.join("found"));
        let folders = [&corpus, &committed, &found].into_iter().try_for_each(fs::create_dir_all);
        let log = self.folder.join(format!("{}.log", target.name));
        let out = folders.and_then(|()| File::create(&log)).map_err(|error| error.to_string())?;
        let mut command = self.command(target);
        command.arg(format!("-max_total_time={seconds}"));
        command.arg(format!("-max_len={}", target.longest));
        command.arg(format!("-artifact_prefix={}/{}-", found.display(), target.name));
        // An input that takes ten seconds is a finding as well.
        command.args(["-timeout=10", "-rss_limit_mb=1024", "-print_final_stats=1"]);
        command.args([corpus, committed]);
        let ended = out.try_clone().and_then(|copy| command.stdout(out).stderr(copy).status());
        let output = fs::read(&log).map_err(|error| error.to_string())?;
        let output = String::from_utf8_lossy(&output);
        match ended {
            Ok(status) if status.success() => {
                executions(&output).ok_or_else(|| format!("no count in {}", log.display()))
            }
            Ok(status) => {
                let last: Vec<_> = output.lines().rev().take(40).collect();
                let last: Vec<_> = last.into_iter().rev().collect();
                Err(format!(
                    "{}\n{} ended with {status}; see {}",
                    last.join("\n"),
                    target.name,
                    log.display()
                ))
            }
            Err(error) => Err(error.to_string()),
        }
    }

    /// Returns the coverage of a target's inputs in a folder, a line for each edge.
    fn reached(&self, target: &Target, folder: &Path) -> Result<String, String> {
        let mut command = self.command(target);
        command.env("FUZZ_COVERAGE", folder);
        answer(command)
    }
}

fn executions(output: &str) -> Option<u64> {
    let line = output.lines().find_map(|line| line.strip_prefix("stat::number_of_executed_units:"))?;
    line.trim().parse().ok().filter(|count| *count > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn help_fits_a_line() {
        assert_eq!(help().lines().find(|line| line.chars().count() > 100), None);
    }

    #[test]
    fn arguments() {
        let parsed = |line: &str| {
            let words = &mut run::Options::new(line.split_whitespace());
            parse(words).map(|(seconds, targets)| (seconds, targets.len())).ok()
        };
        assert_eq!(parsed(""), Some((SECONDS, targets::ALL.len())));
        assert_eq!(parsed("calls --seconds 7 inspect"), Some((7, 2)));
        for wrong in ["--seconds", "--seconds 0", "--seconds x", "nothing"] {
            assert_eq!(parsed(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn a_long_run_has_many_executions() {
        let core: Vec<_> = targets::ALL.iter().filter(|target| target.part == Part::Core).collect();
        assert_eq!(
            core.iter().map(|target| target.name).collect::<Vec<_>>(),
            ["inspect", "completions", "replies", "command-queue", "calls"]
        );
        let counts = |each: u64| core.iter().map(|target| (target.name, each)).collect::<Vec<_>>();
        let (few, many) = (counts(19_999_999), counts(20_000_000));
        let error = "99999995 calls of the library's targets in 1800 s each, fewer than 100000000";
        assert_eq!(enough(1800, &few), Err(error.to_owned()));
        assert_eq!((enough(1800, &many), enough(1799, &few)), (Ok(()), Ok(())));
        assert_eq!(enough(1800, &few[1..]), Ok(()), "one was not called");
        let standin = |count| enough(3600, &[("standin", count), ("rdma-cm", 1), ("device", 1)]);
        let error = "99999 calls of the stand-in's targets in 3600 s each, fewer than 100000";
        assert_eq!((standin(99_998), standin(99_999)), (Err(error.to_owned()), Ok(())));
    }

    #[test]
    fn calls_are_counted() {
        let output = "Done 12 runs in 1 second(s)\nstat::number_of_executed_units: 12\n\
                    stat::average_exec_per_sec:     6\n";
        assert_eq!((executions(output), executions("")), (Some(12), None));
        assert_eq!(executions("stat::number_of_executed_units: 0"), None, "nothing was called");
    }
}
