//! `cargo xtask chaos`: injects faults of device, kernel and peers while programs work. A seed determines the
//! faults.

use crate::storage::{self, MULTI_BLOCK, Running};
use std::collections::BTreeMap;
use std::fs;
use std::ops::Range;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, ExitStatus};
use std::time::{Duration, Instant};
use xtask::run::{self, At, cargo, check, free_port};
use xtask::{debian, host};

pub(crate) const HELP: &str = "\
cargo xtask chaos [--seeds N] [--pairs N] | --seed S | --pair S

Injects faults of device and kernel while a program works. Calls fail or return late. Destroy
commands are refused. Completions are late, duplicate, lost, or of unknown queue pairs. Completion
queues overrun. The device is removed. A seed determines the faults, and the program's calls. The
program must learn the end of each request exactly once: completed, failed, or returned by recovery.
No object may stay behind, and no call may hang. A seed that fails is printed with the command that
repeats it.

A pair is target and initiator of the storage example, two processes. Besides the faults above,
messages between them are lost or arrive in pieces, reads of events are short, and the device fails.
Both must go on by themselves, except after a fault before they are ready. Each may be killed at any
message, and is started again. Every command must be answered once, and every byte is compared.
Completions of signature errors are only late, or follow one of an unknown queue pair: mkey and
device count these errors, so a lost or duplicate one would silence the mkey.

  --seeds N    number of seeds, in one process (default: 100000; the step `tests` runs 700)
  --pairs N    number of pairs of processes (default: 200; the step `storage` runs 10)
  --seed S     run this seed alone
  --pair S     run this pair alone
  --help       this text
";

/// The environment variable that gives the test its range of seeds (`START..END`).
const SEEDS: &str = "MLX5_CHAOS_SEEDS";

/// The test that injects the faults of each seed.
const TEST: &str = "chaos::each_request_is_told_of_once";

#[derive(Clone, Debug, PartialEq, Eq)]
struct Options {
    seeds: Range<u64>,
    pairs: Range<u64>,
}

pub(crate) fn run(arguments: &[String]) -> ExitCode {
    run::with_options(arguments, HELP, parse, |options| {
        if let Err(error) = pairs(options.pairs) {
            return run::failed(&error);
        }
        let seeds = || shim(&options.seeds, &["--release", "--package", "mlx5-uverbs"]);
        if options.seeds.is_empty() { ExitCode::SUCCESS } else { run::forward(seeds()) }
    })
}

/// Runs 10 pairs of programs and the seeds 700 to 1999, for the step `storage` of `cargo xtask test`. The
/// step `tests` runs the seeds below 700.
pub(crate) fn test() -> Result<(), String> {
    pairs(0..10)?;
    check(shim(&(700..2000), &host::SELECTION)?)
}

fn parse(words: &mut run::Options) -> Result<Options, String> {
    let mut options = Options { seeds: 0..100_000, pairs: 0..200 };
    let alone = |number: u64| number..number.saturating_add(1);
    while let Some(option) = words.word()? {
        match option.as_str() {
            "--seeds" => options.seeds = 0..words.value()?,
            "--pairs" => options.pairs = 0..words.value()?,
            "--seed" => (options.seeds, options.pairs) = (alone(words.value()?), 0..0),
            "--pair" => (options.seeds, options.pairs) = (0..0, alone(words.value()?)),
            other => return Err(run::unknown(other)),
        }
    }
    Ok(options)
}

/// Returns the `cargo test` command that runs all seeds in one process. `selection` has cargo's options for
/// profile and packages.
fn shim(seeds: &Range<u64>, selection: &[&str]) -> Result<Command, String> {
    debian::install(debian::VERBS)?;
    let mut command = cargo(&["test", "--quiet", "--test", "devx"]);
    command.args(selection).args(["--", TEST, "--exact", "--nocapture"]);
    command.env(SEEDS, format!("{}..{}", seeds.start, seeds.end));
    Ok(command)
}

/// The longest duration of a pair of programs, restarts included, on a busy machine.
const LIMIT: Duration = Duration::from_secs(120);

/// The number of programs of a pair, restarts included, that start with faults. Later programs start without
/// faults.
const FAULTY: u64 = 8;

/// The seconds after which a command between the two programs counts as overdue, and their connection as
/// lost.
const TIME_LIMIT: &str = "2";

/// The beginning of the last line that the stand-in for the kernel prints in a program. A program with faults
/// prints the line unless it is killed.
const LEFT: &str = "left at the end: ";

/// The beginning of the log's last line if the program has destroyed all its objects.
const NOTHING_LEFT: &str = "left at the end: 0 contexts, 0 objects, 0 channels";

/// The beginning of the line that reports a refused destroy command. The object is left behind then.
const REFUSED: &str = "fault: end: ";

/// Numbers of events, by the names of the events.
type Counts = BTreeMap<&'static str, u64>;

/// Events that have no log line of their own: a fault killed the program, or the program failed before it was
/// ready.
const KILLED: &str = "killed programs";
const UNREADY: &str = "programs that failed before they were ready";

/// The name of the event that a command took longer than its limit. All other events must occur in a run with
/// enough pairs. This event may be absent.
const OVERDUE: &str = "overdue commands";

/// The other events, with parts of the log lines that show each event.
const EVENTS: [(&str, &[&str]); 11] = [
    ("failing calls", &["fault: call: "]),
    ("refused destroy commands", &[REFUSED]),
    ("faults of reads", &["fault: read: "]),
    ("faults of completions", &["fault: completion: "]),
    ("faults of signature errors", &["fault: signature: "]),
    ("faults of messages", &["fault: message: "]),
    ("short reads of the wire", &["fault: wire: "]),
    ("removed or failed devices", &[": removed\n", ": fatal\n"]),
    ("lost peers", &["the other side is lost"]),
    ("programs that went on after their device failed", &["the device has failed"]),
    (OVERDUE, &["a command is not done after"]),
];

/// Part of the line that a program prints when it is ready. A program without a device cannot become ready.
const READY: &str = " blocks";

/// Parts of the lines that programs print for a duplicate: a second answer to a command, or an object that
/// exists already.
const TWICE: [&str; 2] = ["a response to no command", "is in use"];

/// Part of the line that the initiator prints on success.
const NO_BYTE_LOST: &str = "no byte lost";

/// Runs pairs one after the other, and prints a summary.
fn pairs(pairs: Range<u64>) -> Result<(), String> {
    if pairs.is_empty() {
        return Ok(());
    }
    let (programs, start) = (host::storage()?, Instant::now());
    let mut counts = Counts::new();
    for number in pairs.clone() {
        let run = Pair::new(&programs, number).and_then(|pair| pair.run(&mut counts));
        run.map_err(|error| format!("pair {number}: {error}\nagain: cargo xtask chaos --pair {number}"))?;
    }
    let (seconds, count) = (start.elapsed().as_secs(), pairs.count());
    let events: Vec<_> = counts.iter().map(|(event, count)| format!("{count} {event}")).collect();
    println!("{count} pairs in {seconds} s, no byte lost: {}", events.join(", "));
    let mut expected = EVENTS.map(|(event, _)| event).into_iter().chain([KILLED]);
    match expected.find(|event| *event != OVERDUE && !counts.contains_key(event)) {
        Some(event) if count >= ENOUGH => {
            Err(format!("{count} pairs had no {event}, so this case was not tested"))
        }
        _ => Ok(()),
    }
}

/// The smallest number of pairs that must contain each event.
const ENOUGH: usize = 10;

/// A target and an initiator: the two programs of the storage example.
struct Pair<'p> {
    programs: &'p Path,
    folder: tempfile::TempDir,
    number: u64,
    started: u64,
    address: String,
}

impl<'p> Pair<'p> {
    fn new(programs: &'p Path, number: u64) -> Result<Self, String> {
        let address = format!("127.0.0.1:{}", free_port()?);
        Ok(Self { programs, folder: run::temporary("chaos")?, number, started: 0, address })
    }

    /// Starts a program, with faults unless [`FAULTY`] programs were started before.
    fn start(&mut self, name: &str, words: &[(&str, &str)]) -> Result<Program, String> {
        let mut all = vec![("--address", self.address.clone()), ("--time-limit", TIME_LIMIT.into())];
        all.extend(words.iter().map(|(option, value)| (*option, (*value).to_owned())));
        let folder = self.folder.path();
        let mut command = storage::program(self.programs.join(name), &all, MULTI_BLOCK, folder)?;
        let has_faults = self.started < FAULTY;
        if has_faults {
            command.env("MLX5_UVERBS_FAULTS", faults(self.number * FAULTY + self.started));
        }
        let log = folder.join(format!("{}-{name}.log", self.started));
        self.started += 1;
        Ok(Program { running: Running::start(command, &log)?, log, has_faults })
    }

    fn start_target(&mut self) -> Result<Program, String> {
        self.start("storage_target", &[("--blocks", "4096"), ("--depth", "8"), ("--corrupt", "2")])
    }

    fn start_initiator(&mut self) -> Result<Program, String> {
        // The initiator retries for 100 seconds: on a busy machine the target may take long to start.
        self.start("storage_initiator", &[("--ios", "200"), ("--patience", "100")])
    }

    /// Runs until the initiator has finished its I/Os. Restarts programs that end early.
    fn run(mut self, counts: &mut Counts) -> Result<(), String> {
        let (mut target, mut initiator) = (self.start_target()?, self.start_initiator()?);
        let start = Instant::now();
        while start.elapsed() < LIMIT {
            if let Some(status) = initiator.running.ended()? {
                if !initiator.has_fallen(status, counts).map_err(|error| self.tell(&error))? {
                    initiator.well(status, NO_BYTE_LOST).map_err(|error| self.tell(&error))?;
                    return self.end(target, LIMIT.saturating_sub(start.elapsed()), counts);
                }
                initiator = self.start_initiator()?;
            }
            if let Some(status) = target.running.ended()? {
                // A target may end before the initiator, once it knows that all I/Os are done.
                if target.has_fallen(status, counts).map_err(|error| self.tell(&error))? {
                    target = self.start_target()?;
                } else if !status.success() {
                    return Err(self.tell(&format!("the target: {status}")));
                }
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        Err(self.tell(&format!("the pair hangs: it is not done after {} s", LIMIT.as_secs())))
    }

    /// Waits for the end of the target, which has no I/O left. Searches the logs of all programs for
    /// duplicates, and counts the events.
    fn end(self, mut target: Program, limit: Duration, counts: &mut Counts) -> Result<(), String> {
        let status = target.running.wait(limit).map_err(|error| self.tell(&error))?;
        if !target.has_fallen(status, counts).map_err(|error| self.tell(&error))? {
            target.well(status, "target: ").map_err(|error| self.tell(&error))?;
        }
        for log in self.logs() {
            let text = fs::read_to_string(&log).at(&log)?;
            if let Some(twice) = TWICE.iter().find(|twice| text.contains(**twice)) {
                return Err(self.tell(&format!("{}: {twice}", log.display())));
            }
            for (event, words) in EVENTS {
                let count = words.iter().map(|word| text.matches(word).count()).sum::<usize>();
                add(counts, event, count as u64);
            }
        }
        Ok(())
    }

    fn logs(&self) -> Vec<PathBuf> {
        let logs = fs::read_dir(self.folder.path()).into_iter().flatten().flatten().map(|entry| entry.path());
        let mut logs: Vec<_> =
            logs.filter(|path| path.extension().is_some_and(|name| name == "log")).collect();
        logs.sort();
        logs
    }

    fn tell(&self, error: &str) -> String {
        let logs = self.logs();
        let text = logs
            .iter()
            .map(|log| format!("── {}\n{}", log.display(), fs::read_to_string(log).unwrap_or_default()));
        format!("{error}\n{}", text.collect::<String>())
    }
}

struct Program {
    running: Running,
    log: PathBuf,
    has_faults: bool,
}

impl Program {
    /// Returns whether faults have ended the program, and counts an end by faults. Returns an error if the
    /// program was not killed and has left objects behind, although no destroy command was refused. A program
    /// with faults must state in its last line how many objects it has left.
    fn has_fallen(&self, status: ExitStatus, counts: &mut Counts) -> Result<bool, String> {
        let text = fs::read_to_string(&self.log).at(&self.log)?;
        let has_died = status.signal() == Some(9);
        let has_not_begun = !status.success() && !text.contains(READY) && text.contains("fault: ");
        add(counts, KILLED, has_died.into());
        add(counts, UNREADY, has_not_begun.into());
        // Without faults, the stand-in for the kernel prints no last line.
        let is_clean = match text.contains(LEFT) {
            true => text.contains(NOTHING_LEFT) || text.contains(REFUSED),
            false => !self.has_faults,
        };
        if has_died || is_clean {
            Ok(has_died || has_not_begun)
        } else {
            Err(format!(
                "{}: {status}: the program did not report its last objects, or left some",
                self.log.display()
            ))
        }
    }

    /// Checks a program that no fault has ended: it must have succeeded and printed `word`.
    fn well(&self, status: ExitStatus, word: &str) -> Result<(), String> {
        let text = fs::read_to_string(&self.log).at(&self.log)?;
        if status.success() && text.contains(word) {
            Ok(())
        } else {
            Err(format!("{}: {status}", self.log.display()))
        }
    }
}

/// Returns the faults of a program, as the stand-in for the kernel reads them. For comparison: a program
/// without faults makes some hundred calls, reads some hundred events, and has some thousand messages and
/// completions.
fn faults(seed: u64) -> String {
    const CALLS: [&str; 7] = ["ENOMEM", "EINTR", "EIO", "ETIMEDOUT", "status:8", "unheard", "late"];
    const READS: [&str; 3] = ["short", "EINTR", "EAGAIN"];
    const ENDS: [&str; 3] = ["EBUSY", "EINTR", "status:8"];
    const FATES: [&str; 2] = ["removed", "fatal"];
    const COMPLETIONS: [&str; 6] = ["late", "twice", "dropped", "dropped", "stranger", "overrun"];
    let mut state = seed;
    let mut below = |end: u64| {
        // The pseudo-random generator is SplitMix64.
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (state ^ state >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ mixed >> 31) % end
    };
    let mut words = Vec::new();
    // Each row has the place of a fault; N, where one in N programs has the fault; M, where the fault happens
    // at one of the first M visits of the place; and the kinds of faults.
    let places: [(&str, u64, u64, &[&str]); 15] = [
        ("message", 1, 1000, &["lost"]),
        ("wire", 1, 500, &["short"]),
        ("wire", 1, 500, &["short"]),
        ("message", 2, 1500, &["dies"]),
        ("call", 2, 500, &CALLS),
        ("call", 2, 1000, &CALLS),
        ("read", 2, 500, &READS),
        ("read", 2, 500, &READS),
        ("end", 4, 200, &ENDS),
        ("completion", 3, 1000, &FATES),
        ("call", 6, 1000, &FATES),
        ("completion", 2, 100, &COMPLETIONS),
        ("completion", 1, 400, &COMPLETIONS),
        ("completion", 1, 800, &COMPLETIONS),
        ("signature", 1, 2, &["late", "stranger"]),
    ];
    for (place, one_in, times, choices) in places {
        let (comes, nth, choice) = (below(one_in) == 0, 1 + below(times), below(choices.len() as u64));
        if comes && let Some(fault) = choices.get(choice as usize) {
            words.push(format!("{place}@{nth}={fault}"));
        }
    }
    words.join(",")
}

fn add(counts: &mut Counts, event: &'static str, count: u64) {
    if count > 0 {
        *counts.entry(event).or_default() += count;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(line: &str) -> Result<Options, String> {
        parse(&mut run::Options::new(line.split_whitespace()))
    }

    #[test]
    fn arguments() {
        assert_eq!(parsed("").unwrap().seeds, 0..100_000);
        assert_eq!(parsed("--seeds 7").unwrap().seeds, 0..7);
        assert_eq!(parsed("--seed 7").unwrap().seeds, 7..8);
        assert!(parsed("--seed 7").unwrap().pairs.is_empty());
        assert_eq!(parsed("--seeds 0 --pairs 3").unwrap().pairs, 0..3);
        for wrong in ["--seeds", "--seed x", "7", "--pair", "--pairs x"] {
            assert!(parsed(wrong).is_err(), "{wrong}");
        }
    }
}
