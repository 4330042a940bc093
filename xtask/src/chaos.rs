//! `cargo xtask chaos`: device, kernel and peers that break their word, by seeds.

use crate::storage::{self, MULTI_BLOCK, Running};
use std::fs;
use std::ops::Range;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, ExitStatus};
use std::time::{Duration, Instant};
use xtask::run::{self, cargo, free_port};
use xtask::{debian, host};

pub(crate) const HELP: &str = "\
cargo xtask chaos [--seeds N] [--pairs N] | --seed S | --pair S

Has the device and the kernel break their word while programs work: calls fail or are answered late,
destroying is refused, completions come late, twice, never or of strangers, queues overrun, the
device is removed. A seed says what goes wrong and what the program does meanwhile. Of each request
the program must be told once (it completed, failed, or was handed back by recovery), nothing may be
left over, and nothing may hang. A seed that fails is printed with the command that repeats it.

Pairs are the storage example, target and initiator. Messages between them are lost or come in
pieces, completions come late, twice, never or of strangers, queues overrun, calls fail, reads of
events are short, destroying is refused, the device is removed or fails: each goes on by itself, but
for what comes before it is ready. Each may die at any message, and is started again. Every command
must be answered once, and every byte is compared. What tells of a signature error is late or behind
a completion of a stranger, and no more: mkey and device count these errors, and one that is lost or
comes twice leaves the mkey silent.

  --seeds N    seeds in one process, on the shim (default: 100000; the tests run 2000)
  --pairs N    pairs of processes (default: 200; the tests run 10)
  --seed S     that seed alone
  --pair S     that pair alone
  --help       this text
";

/// Tells the test which seeds it is to run.
const SEEDS: &str = "MLX5_CHAOS_SEEDS";

/// The test.
const TEST: &str = "chaos::each_request_is_told_of_once";

/// What the command line asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Options {
    seeds: Range<u64>,
    pairs: Range<u64>,
    help: bool,
}

/// Runs `cargo xtask chaos` with the arguments after `chaos`.
pub(crate) fn run(arguments: &[String]) -> ExitCode {
    let options = match parse(arguments) {
        Ok(Options { help: true, .. }) => return run::print(HELP, 0),
        Ok(options) => options,
        Err(message) => return run::misuse(&format!("error: {message}\n\n{HELP}")),
    };
    if let Err(what) = pairs(options.pairs) {
        return run::failed(&what);
    }
    if options.seeds.is_empty() { ExitCode::SUCCESS } else { run::forward(shim(&options.seeds)) }
}

/// Runs as many pairs as the tests do.
///
/// # Errors
/// What went wrong, and how to repeat it.
pub(crate) fn test() -> Result<(), String> {
    pairs(0..10)
}

fn parse(arguments: &[String]) -> Result<Options, String> {
    use lexopt::prelude::*;
    let mut options = Options { seeds: 0..100_000, pairs: 0..200, help: false };
    let alone = |number: u64| number..number.saturating_add(1);
    let explain = |error: lexopt::Error| error.to_string();
    let mut parser = lexopt::Parser::from_args(arguments);
    let number =
        |parser: &mut lexopt::Parser| parser.value().and_then(|value| value.parse::<u64>()).map_err(explain);
    while let Some(argument) = parser.next().map_err(explain)? {
        match argument {
            Long("seeds") => options.seeds = 0..number(&mut parser)?,
            Long("pairs") => options.pairs = 0..number(&mut parser)?,
            Long("seed") => (options.seeds, options.pairs) = (alone(number(&mut parser)?), 0..0),
            Long("pair") => (options.seeds, options.pairs) = (0..0, alone(number(&mut parser)?)),
            Long("help") | Short('h') => options.help = true,
            other => return Err(explain(other.unexpected())),
        }
    }
    Ok(options)
}

/// Returns the command that runs seeds in one process.
fn shim(seeds: &Range<u64>) -> Result<Command, String> {
    debian::install(debian::VERBS)?;
    let mut command = cargo(&["test", "--release", "--quiet", "--package", "mlx5-uverbs", "--test", "devx"]);
    command.args(["--", TEST, "--exact", "--nocapture"]);
    command.env(SEEDS, format!("{}..{}", seeds.start, seeds.end));
    Ok(command)
}

/// How long a pair may take, with its deaths, on a machine with much else to do.
const LIMIT: Duration = Duration::from_secs(120);

/// Programs of a pair that are started with faults. Those behind them have none.
const FAULTY: u64 = 8;

/// How long a command may take, in seconds.
const TIME_LIMIT: &str = "2";

/// What the stand-in says at the end of a program with faults that was not killed.
const LEFT: &str = "left at the end: ";

/// And what it says where that is nothing.
const NOTHING_LEFT: &str = "left at the end: 0 contexts, 0 objects, 0 channels";

/// What a program says where destroying is refused: what could not be destroyed is left behind.
const REFUSED: &str = "fault: end: ";

/// What programs say when a fault comes, and what to call these.
const FAULTS: [(&[&str], &str); 8] = [
    (&["fault: call: "], "failing calls"),
    (&[REFUSED], "refused destroyings"),
    (&["fault: read: "], "faults of reads"),
    (&["fault: completion: "], "faults of completions"),
    (&["fault: signature: "], "faults of signature errors"),
    (&["fault: message: "], "faults of messages"),
    (&["fault: wire: "], "short reads of the wire"),
    (&[": removed\n", ": fatal\n"], "removed or failed devices"),
];

/// What a program says when it is ready, after its name. Without its device, it cannot begin.
const READY: &str = " blocks";

/// What programs say where a command is answered that was answered before, or is there that was there before.
const TWICE: [&str; 2] = ["a response to no command", "is in use"];

/// What the initiator says where all is well.
const NO_BYTE_LOST: &str = "no byte lost";

/// Runs pairs one after the other, and sums up.
fn pairs(pairs: Range<u64>) -> Result<(), String> {
    if pairs.is_empty() {
        return Ok(());
    }
    let (programs, start) = (host::storage()?, Instant::now());
    let mut ends = Ends::default();
    for number in pairs.clone() {
        let outcome = Pair::new(&programs, number).and_then(Pair::run);
        ends += outcome
            .map_err(|what| format!("pair {number}: {what}\nagain: cargo xtask chaos --pair {number}"))?;
    }
    let (seconds, count) = (start.elapsed().as_secs(), pairs.count());
    println!("{count} pairs in {seconds} s, no byte lost: {ends}");
    match ends.absent() {
        Some(what) if count >= ENOUGH => {
            Err(format!("in {count} pairs there were no {what}: they show nothing of these"))
        }
        _ => Ok(()),
    }
}

/// From this number of pairs on there is each kind of fault.
const ENOUGH: usize = 10;

/// A target and an initiator.
struct Pair<'p> {
    programs: &'p Path,
    folder: tempfile::TempDir,
    number: u64,
    /// Programs that were started.
    started: u64,
    address: String,
}

impl<'p> Pair<'p> {
    fn new(programs: &'p Path, number: u64) -> Result<Self, String> {
        let address = format!("127.0.0.1:{}", free_port()?);
        Ok(Self { programs, folder: run::temporary("chaos")?, number, started: 0, address })
    }

    /// Starts a program, with faults unless there were many before.
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
        // On a machine with much else to do the other program takes its time to start.
        self.start("storage_initiator", &[("--ios", "200"), ("--patience", "100")])
    }

    /// Has the initiator do all that it is to do, and starts again what ends meanwhile. Returns how often programs did.
    fn run(mut self) -> Result<Ends, String> {
        let (mut target, mut initiator) = (self.start_target()?, self.start_initiator()?);
        let (start, mut ends) = (Instant::now(), Ends::default());
        while start.elapsed() < LIMIT {
            if let Some(status) = initiator.running.ended()? {
                if !initiator.has_fallen(status, &mut ends).map_err(|what| self.tell(&what))? {
                    initiator.well(status, NO_BYTE_LOST).map_err(|what| self.tell(&what))?;
                    return self.end(target, LIMIT.saturating_sub(start.elapsed()), ends);
                }
                initiator = self.start_initiator()?;
            }
            if let Some(status) = target.running.ended()? {
                // One that was told that all is done ends before the initiator does.
                if target.has_fallen(status, &mut ends).map_err(|what| self.tell(&what))? {
                    target = self.start_target()?;
                } else if !status.success() {
                    return Err(self.tell(&format!("the target: {status}")));
                }
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        Err(self.tell(&format!("it hangs: not done after {} s", LIMIT.as_secs())))
    }

    /// Waits for the target, which has nothing to do any more.
    fn end(self, mut target: Program, limit: Duration, mut ends: Ends) -> Result<Ends, String> {
        let status = target.running.wait(limit).map_err(|what| self.tell(&what))?;
        if !target.has_fallen(status, &mut ends).map_err(|what| self.tell(&what))? {
            target.well(status, "target: ").map_err(|what| self.tell(&what))?;
        }
        for log in self.logs() {
            let said = read(&log)?;
            if let Some(twice) = TWICE.iter().find(|twice| said.contains(**twice)) {
                return Err(self.tell(&format!("{}: {twice}", log.display())));
            }
            for (count, (words, _)) in ends.faults.iter_mut().zip(FAULTS) {
                *count += words.iter().map(|word| said.matches(word).count() as u64).sum::<u64>();
            }
            ends.overdue += said.matches("a command is not done after").count() as u64;
            ends.peers += said.matches("the other side is lost").count() as u64;
            ends.devices += said.matches("the device has failed").count() as u64;
        }
        Ok(ends)
    }

    /// Returns what all programs have said, in order.
    fn logs(&self) -> Vec<PathBuf> {
        let logs = fs::read_dir(self.folder.path()).into_iter().flatten().flatten().map(|entry| entry.path());
        let mut logs: Vec<_> =
            logs.filter(|path| path.extension().is_some_and(|name| name == "log")).collect();
        logs.sort();
        logs
    }

    /// Adds what all programs have said.
    fn tell(&self, what: &str) -> String {
        let logs = self.logs();
        let said = logs
            .iter()
            .map(|log| format!("── {}\n{}", log.display(), fs::read_to_string(log).unwrap_or_default()));
        format!("{what}\n{}", said.collect::<String>())
    }
}

/// A program of a pair.
struct Program {
    running: Running,
    log: PathBuf,
    has_faults: bool,
}

impl Program {
    /// Counts a program that faults have ended. Returns whether they have. Who is not killed must have told of its end, and have left
    /// nothing behind.
    fn has_fallen(&self, status: ExitStatus, ends: &mut Ends) -> Result<bool, String> {
        let said = read(&self.log)?;
        let has_died = status.signal() == Some(9);
        let has_not_begun = !status.success() && !said.contains(READY) && said.contains("fault: ");
        ends.deaths += u64::from(has_died);
        ends.not_begun += u64::from(has_not_begun);
        // Without faults nothing is told of the end.
        let is_clean = match said.contains(LEFT) {
            true => said.contains(NOTHING_LEFT) || said.contains(REFUSED),
            false => !self.has_faults,
        };
        if has_died || is_clean {
            Ok(has_died || has_not_begun)
        } else {
            Err(format!(
                "{}: {status}: nothing is said of what is left, or something is left",
                self.log.display()
            ))
        }
    }

    /// Checks the end of a program that faults have not ended.
    fn well(&self, status: ExitStatus, word: &str) -> Result<(), String> {
        let said = read(&self.log)?;
        if status.success() && said.contains(word) {
            Ok(())
        } else {
            Err(format!("{}: {status}", self.log.display()))
        }
    }
}

/// Returns the faults of a program. Without them it makes some hundred calls, reads some hundred events, has some hundred messages
/// to one of some thousand, and some thousand completions.
fn faults(seed: u64) -> String {
    const CALLS: [&str; 7] = ["ENOMEM", "EINTR", "EIO", "ETIMEDOUT", "status:8", "unheard", "late"];
    const READS: [&str; 3] = ["short", "EINTR", "EAGAIN"];
    const ENDS: [&str; 3] = ["EBUSY", "EINTR", "status:8"];
    const FATES: [&str; 2] = ["removed", "fatal"];
    const COMPLETIONS: [&str; 6] = ["late", "twice", "dropped", "dropped", "stranger", "overrun"];
    let mut state = seed;
    let mut below = |end: u64| {
        // SplitMix64.
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (state ^ state >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ mixed >> 31) % end
    };
    let mut words = Vec::new();
    // The place, one program in how many, its first times, and what it can be.
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

/// How programs of pairs have ended before their time.
#[derive(Clone, Copy, Debug, Default)]
struct Ends {
    /// Killed, as faults kill.
    deaths: u64,
    /// With an error before they were ready.
    not_begun: u64,
    /// How often a program went on after the other side was lost.
    peers: u64,
    /// How often one went on after its device had failed.
    devices: u64,
    /// Of [`FAULTS`], how often each came.
    faults: [u64; FAULTS.len()],
    /// How often a command took too long.
    overdue: u64,
}

impl Ends {
    /// Returns what has not been there, of what many pairs have.
    fn absent(&self) -> Option<&'static str> {
        let Self { deaths, peers, devices, faults, .. } = *self;
        let kinds = [
            (deaths, "deaths"),
            (peers, "lost peers"),
            (devices, "programs that went on without their device"),
        ];
        let faults = faults.into_iter().zip(FAULTS.map(|(_, what)| what));
        kinds.into_iter().chain(faults).find_map(|(count, what)| (count == 0).then_some(what))
    }
}

impl std::fmt::Display for Ends {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { deaths, not_begun, peers, devices, faults, overdue } = self;
        let faults: Vec<_> =
            faults.iter().zip(FAULTS).map(|(count, (_, what))| format!("{count} {what}")).collect();
        write!(
            f,
            "{deaths} programs died, {not_begun} could not begin; {peers} times the other side was lost, {devices} times the device; \
             {overdue} times a command took too long; {}",
            faults.join(", ")
        )
    }
}

impl std::ops::AddAssign for Ends {
    fn add_assign(&mut self, other: Self) {
        self.deaths += other.deaths;
        self.not_begun += other.not_begun;
        self.peers += other.peers;
        self.devices += other.devices;
        for (count, more) in self.faults.iter_mut().zip(other.faults) {
            *count += more;
        }
        self.overdue += other.overdue;
    }
}

fn read(log: &Path) -> Result<String, String> {
    fs::read_to_string(log).map_err(|error| format!("{}: {error}", log.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(line: &str) -> Result<Options, String> {
        parse(&line.split_whitespace().map(String::from).collect::<Vec<_>>())
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
