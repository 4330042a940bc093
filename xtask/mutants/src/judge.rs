//! Runs tests on mutants: a mutant is noticed if a test fails.

use crate::tree::Built;
use std::collections::{BTreeSet, VecDeque};
use std::fs::{self, File};
use std::io;
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use xtask::run::{self, answer, temporary};

/// The longest duration of a quick test. Quick tests run together in one process. Slower tests run after
/// them, one by one.
const QUICK: Duration = Duration::from_millis(60);

/// The CPU time limit of all quick tests together. The limit of a slower test is this time plus `TIMES` its
/// own duration.
const BEYOND: Duration = Duration::from_secs(10);
const TIMES: u32 = 4;
/// The largest CPU time limit: durations that were measured on a busy machine can be too long.
const MOST: Duration = Duration::from_secs(30);

/// The number of quick tests that are tried first, because they noticed the last mutants.
const LAST: usize = 4;

/// The limit of the elapsed time, as a multiple of the CPU time limit.
const WAITS: u32 = 20;

/// The memory limit of a test process, in KiB.
const MEMORY: u32 = 8 << 20;

/// Environment variables that make every run of the tests the same.
const SAME: [(&str, &str); 5] = [
    ("HIL_WAYS", "1"),
    ("PROPTEST_RNG_SEED", "1"),
    ("PROPTEST_DISABLE_FAILURE_PERSISTENCE", "1"),
    ("PROPTEST_MAX_SHRINK_ITERS", "0"),
    // This variable enables an unstable option of the test harness, which stops at the first failure.
    ("RUSTC_BOOTSTRAP", "1"),
];

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    Passed,
    /// A test failed. The value is its name.
    Failed(String),
    /// A test did not end within its limit. The value is its name.
    Endless(String),
}

/// A compiled test program, with its tests and the mutants that each test executes.
#[derive(Debug)]
pub(crate) struct Judge {
    built: Built,
    tests: Vec<Test>,
    /// The tests that failed last, latest first. They often notice neighbouring mutants too.
    last: VecDeque<String>,
}

#[derive(Debug)]
struct Test {
    name: String,
    took: Duration,
    reached: BTreeSet<u32>,
}

impl Judge {
    /// Runs each test of a program once, with all mutants off. Records its duration and the mutants whose
    /// code it executes.
    pub(crate) fn prepare(built: &Built) -> Result<Self, String> {
        let mut list = Command::new(&built.program);
        list.args(["--list", "--format", "terse"]).current_dir(&built.folder);
        let names = answer(list)?;
        let folder = temporary("mutants")?;
        let mut tests = Vec::new();
        for name in names.lines().filter_map(|line| line.strip_suffix(": test")) {
            let file = folder.path().join("reached");
            let start = Instant::now();
            // The limits are in force here too: a test that needs more would fail with every mutant.
            let mut command = limited(built, MOST);
            command.args(["--exact", name]).env("MUTANTS_REACHED", &file);
            answer(command)?;
            let took = start.elapsed();
            let reached = fs::read_to_string(&file).unwrap_or_default();
            let _ = fs::remove_file(&file);
            let reached = reached.lines().filter_map(|line| line.parse().ok()).collect();
            tests.push(Test { name: name.into(), took, reached });
        }
        Ok(Self { built: built.clone(), tests, last: VecDeque::new() })
    }

    pub(crate) fn name(&self) -> &str {
        &self.built.name
    }

    pub(crate) fn reaches(&self, mutant: u32) -> bool {
        self.tests.iter().any(|test| test.reached.contains(&mutant))
    }

    /// Runs the tests that execute the code of a mutant, quick tests first, until one fails.
    pub(crate) fn judge(&mut self, mutant: u32) -> Result<Verdict, String> {
        let mut reaching: Vec<_> = self.tests.iter().filter(|test| test.reached.contains(&mutant)).collect();
        reaching.sort_by_key(|test| test.took);
        let quick = reaching.partition_point(|test| test.took <= QUICK);
        let (quick, slow) = reaching.split_at(quick);
        let last: Vec<_> = quick.iter().filter(|test| self.last.contains(&test.name)).copied().collect();
        for tests in [&last, quick].into_iter().chain(slow.chunks(1)).filter(|tests| !tests.is_empty()) {
            let took: Duration = tests.iter().map(|test| test.took).sum();
            let names: Vec<_> = tests.iter().map(|test| test.name.as_str()).collect();
            let limit = if took > QUICK && names.len() == 1 { took * TIMES + BEYOND } else { BEYOND };
            let limit = limit.min(MOST);
            let verdict = ask(&self.built, Some(mutant), &names, limit)?;
            if let Verdict::Failed(test) = &verdict {
                self.last.retain(|other| other != test);
                self.last.push_front(test.clone());
                self.last.truncate(LAST);
            }
            if verdict != Verdict::Passed {
                return Ok(verdict);
            }
        }
        Ok(Verdict::Passed)
    }
}

/// Returns a command that runs a test program with a limit of CPU time and a limit of memory. A limit of
/// elapsed time would stop good tests on a busy machine.
fn limited(built: &Built, limit: Duration) -> Command {
    // A shell may accept one limit in each call of `ulimit` (dash), so there are two calls.
    let script = format!("ulimit -t {} && ulimit -v {MEMORY} && exec \"$@\"", limit.as_secs().max(1));
    let mut command = Command::new("sh");
    command.args(["-c", &script, "sh"]).arg(&built.program).current_dir(&built.folder).envs(SAME);
    command
}

/// Runs the named tests until one fails, with this mutant on. Without names, runs all tests.
pub(crate) fn ask(
    built: &Built,
    mutant: Option<u32>,
    tests: &[&str],
    limit: Duration,
) -> Result<Verdict, String> {
    let folder = temporary("mutants")?;
    let log = folder.path().join("log");
    let failed = |error: io::Error| format!("{}: {error}", built.program.display());
    let out = File::create(&log).map_err(failed)?;
    let mut command = limited(built, limit);
    command.args(["--test-threads=1", "-Zunstable-options", "--fail-fast"]);
    if !tests.is_empty() {
        command.arg("--exact").args(tests);
    }
    command.stdout(out).stderr(Stdio::null());
    if let Some(mutant) = mutant {
        command.env("MUTANT", mutant.to_string());
    }
    let mut child = command.spawn().map_err(failed)?;
    let ended = run::wait(&mut child, limit * WAITS).map_err(failed)?;
    if ended.is_none() {
        child.kill().and_then(|()| child.wait()).map_err(failed)?;
    }
    let output = fs::read(&log).map_err(failed)?;
    let output = String::from_utf8_lossy(&output);
    Ok(match ended {
        Some(status) if status.success() => Verdict::Passed,
        // At its limit of CPU time, a program gets SIGXCPU (24), and then SIGKILL (9).
        Some(status) if !matches!(status.signal(), Some(24 | 9)) => Verdict::Failed(last_test(&output)),
        _ => Verdict::Endless(last_test(&output)),
    })
}

/// Returns the name of the failed test, or of the test that was running.
fn last_test(output: &str) -> String {
    let names = || output.lines().filter_map(|line| line.strip_prefix("test ")?.split_once(" ... "));
    let failed = names().find(|(_, rest)| rest.ends_with("FAILED"));
    failed
        .or_else(|| names().next_back())
        .map_or_else(String::new, |(name, _)| name.trim_end_matches(" - should panic").into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn test_programs_run_under_both_limits() {
        let built = Built { name: String::new(), program: "sh".into(), folder: ".".into() };
        let mut command = limited(&built, Duration::from_secs(7));
        command.args(["-c", "ulimit -t; ulimit -v"]);
        assert_eq!(answer(command).unwrap(), format!("7\n{MEMORY}"));
    }

    #[test]
    fn the_test_that_stops_is_named() {
        let output = "\nrunning 3 tests\ntest a::b ... ok\ntest c ... FAILED\n\nfailures:\n";
        assert_eq!(last_test(output), "c");
        assert_eq!(last_test("running 1 test\ntest a::b ... ok\ntest c - should panic ... "), "c");
        assert_eq!(last_test("thread main panicked"), "");
    }
}
