//! `cargo xtask fuzz`: has libFuzzer call the targets of `hil-tests/fuzz`, and says how often and what was reached.

mod coverage;

use coverage::Coverage;
use std::fs::{self, File};
use std::path::PathBuf;
use std::process::{Command, ExitCode};
use xtask::debian::{self, CXX};
use xtask::run::{self, answer, cargo, check, program, root};

pub(crate) const HELP: &str = "\
cargo xtask fuzz [--seconds N] [TARGET…]

Has libFuzzer call targets with inputs that it makes from those that reached something before, until
the time is over or one finds something wrong. Prints how often each was called, and which lines of
src/queue and src/inspect its inputs have reached: of the lines at which a branch begins, in what
was compiled. A function of which nothing was compiled does not count.

  --seconds N   for each target (default: 10)

What it finds is put into target/fuzz/found; copied to hil-tests/fuzz/corpus/TARGET it is a test.
Inputs that reach something are kept in target/fuzz/corpus, where the next run begins.

Targets:
";

/// Seconds for each target unless told otherwise.
const SECONDS: u64 = 10;

/// Seconds of all targets together where the tests run them.
const SECONDS_OF_TESTS: u64 = 60;

/// Parts of the library whose coverage is told.
const FOLDERS: [&str; 2] = ["src/queue", "src/inspect"];

/// A target: its name, the longest input, whether it is of the library, and what it is.
struct Target {
    name: &'static str,
    longest: u32,
    core: bool,
    what: &'static str,
}

const TARGETS: &[Target] = &[
    Target { name: "inspect", longest: 1024, core: true, what: "rings and completion entries back in words" },
    Target {
        name: "completions",
        longest: 256,
        core: true,
        what: "completion queues that another thread writes",
    },
    Target { name: "replies", longest: 4352, core: true, what: "replies of commands, and mailboxes" },
    Target { name: "calls", longest: 1024, core: true, what: "sequences of calls against a naive model" },
    Target {
        name: "device",
        longest: 4096,
        core: false,
        what: "the software device: rings, contexts, BSFs, messages",
    },
    Target {
        name: "parsers",
        longest: 8192,
        core: false,
        what: "vectors, boards.toml, runners' protocol, hex dumps",
    },
    Target { name: "standin", longest: 2048, core: false, what: "the stand-in's ioctl and write interface" },
];

/// Fuzzes the targets that are named, or all.
pub(crate) fn run(arguments: &[String]) -> ExitCode {
    if arguments.iter().any(|argument| matches!(argument.as_str(), "--help" | "-h")) {
        return run::print(&help(), 0);
    }
    match parse(arguments) {
        Some((seconds, targets)) => match fuzz(&targets, seconds) {
            Ok(()) => ExitCode::SUCCESS,
            Err(what) => run::failed(&what),
        },
        None => run::misuse(&help()),
    }
}

/// Fuzzes all targets as long as the tests do.
///
/// # Errors
/// What was found, or went wrong, in a sentence.
pub(crate) fn test() -> Result<(), String> {
    let targets: Vec<_> = TARGETS.iter().collect();
    fuzz(&targets, (SECONDS_OF_TESTS / targets.len() as u64).max(1))
}

fn help() -> String {
    let lines = TARGETS.iter().map(|target| format!("  {:<12} {}\n", target.name, target.what));
    format!("{HELP}{}", lines.collect::<String>())
}

fn parse(arguments: &[String]) -> Option<(u64, Vec<&'static Target>)> {
    let (mut seconds, mut targets) = (SECONDS, Vec::new());
    let mut rest = arguments.iter();
    while let Some(argument) = rest.next() {
        if argument == "--seconds" {
            seconds = rest.next()?.parse().ok().filter(|seconds| *seconds > 0)?;
        } else {
            targets.push(TARGETS.iter().find(|target| target.name == argument)?);
        }
    }
    Some((seconds, if targets.is_empty() { TARGETS.iter().collect() } else { targets }))
}

fn fuzz(targets: &[&Target], seconds: u64) -> Result<(), String> {
    debian::install(CXX)?;
    let fuzzer = Fuzzer::build()?;
    let (mut found, mut core) = (Vec::new(), 0);
    let mut coverage = Coverage::default();
    for target in targets {
        let executions = match fuzzer.run(target, seconds) {
            Ok(executions) => executions,
            Err(what) => {
                println!("{what}");
                found.push(target.name);
                continue;
            }
        };
        if target.core {
            core += executions;
            coverage.add(&fuzzer.reached(target)?);
        }
        println!("{:<12} {executions:>12} executions in {seconds} s", target.name);
    }
    if targets.iter().any(|target| target.core) {
        println!("{:<12} {core:>12} executions of the library's targets", "");
        for (folder, reached, all) in coverage.of(&fuzzer.program, &FOLDERS)? {
            println!(
                "{folder:<12} {reached:>5} of {all} lines at which a branch begins ({} %)",
                reached * 100 / all.max(1)
            );
        }
    }
    if found.is_empty() { Ok(()) } else { Err(format!("something was found by {}", found.join(", "))) }
}

/// The program with all targets, and where its inputs are.
struct Fuzzer {
    program: PathBuf,
    folder: PathBuf,
}

impl Fuzzer {
    fn build() -> Result<Self, String> {
        let folder = root().join("target/fuzz");
        let host = answer(program("rustc", &["--print", "host-tuple"]))?;
        let path = folder.to_string_lossy();
        // With `--target`, what runs while building is left as it is.
        let mut command =
            cargo(&["build", "--quiet", "--profile", "fuzz", "--target", &host, "--target-dir", &path]);
        command.args(["--package", "hil-fuzz", "--features", "libfuzzer"]);
        // What cargo-fuzz sets: a counter for each edge, a table of their places, and calls that tell what is compared.
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

    /// Where the inputs of a target are.
    fn corpus(&self, target: &Target) -> PathBuf {
        self.folder.join("corpus").join(target.name)
    }

    fn command(&self, target: &Target) -> Command {
        let mut command = program(&self.program.to_string_lossy(), &[]);
        command.env("FUZZ_TARGET", target.name);
        command
    }

    /// Fuzzes a target. Returns how often it was called.
    fn run(&self, target: &Target, seconds: u64) -> Result<u64, String> {
        let (corpus, found) = (self.corpus(target), self.folder.join("found"));
        let folders = [&corpus, &found].into_iter().try_for_each(fs::create_dir_all);
        let log = self.folder.join(format!("{}.log", target.name));
        let out = folders.and_then(|()| File::create(&log)).map_err(|error| error.to_string())?;
        let mut seeds = self.command(target);
        seeds.env("FUZZ_SEEDS", &corpus);
        answer(seeds)?;
        let mut command = self.command(target);
        command.arg(format!("-max_total_time={seconds}"));
        command.arg(format!("-max_len={}", target.longest));
        command.arg(format!("-artifact_prefix={}/{}-", found.display(), target.name));
        // An input that takes seconds is a finding, too.
        command.args(["-timeout=10", "-rss_limit_mb=1024", "-print_final_stats=1"]);
        command.arg(&corpus);
        let committed = root().join("hil-tests/fuzz/corpus").join(target.name);
        command.args(committed.exists().then_some(committed));
        let ended = out.try_clone().and_then(|copy| command.stdout(out).stderr(copy).status());
        let said = fs::read(&log).map_err(|error| error.to_string())?;
        let said = String::from_utf8_lossy(&said);
        match ended {
            Ok(status) if status.success() => {
                executions(&said).ok_or_else(|| format!("no count in {}", log.display()))
            }
            Ok(status) => {
                let last: Vec<_> = said.lines().rev().take(40).collect();
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

    /// Returns what the inputs of a target reach: a line for each edge.
    fn reached(&self, target: &Target) -> Result<String, String> {
        let mut command = self.command(target);
        command.env("FUZZ_COVERAGE", self.corpus(target));
        answer(command)
    }
}

/// Takes the number of calls from what libFuzzer says at its end.
fn executions(said: &str) -> Option<u64> {
    let line = said.lines().find_map(|line| line.strip_prefix("stat::number_of_executed_units:"))?;
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
            let words: Vec<String> = line.split_whitespace().map(String::from).collect();
            parse(&words).map(|(seconds, targets)| (seconds, targets.len()))
        };
        assert_eq!(parsed(""), Some((SECONDS, TARGETS.len())));
        assert_eq!(parsed("calls --seconds 7 inspect"), Some((7, 2)));
        for wrong in ["--seconds", "--seconds 0", "--seconds x", "nothing"] {
            assert_eq!(parsed(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn calls_are_counted() {
        let said = "Done 12 runs in 1 second(s)\nstat::number_of_executed_units: 12\nstat::average_exec_per_sec:     6\n";
        assert_eq!((executions(said), executions("")), (Some(12), None));
        assert_eq!(executions("stat::number_of_executed_units: 0"), None, "nothing was called");
    }
}
