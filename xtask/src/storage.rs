//! `cargo xtask storage`: runs the storage example, a target and an initiator, on the software device.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, ExitStatus, Stdio};
use std::time::Duration;
use xtask::run::{self, At, Ends, free_port};
use xtask::{emulate, host};

pub(crate) const HELP: &str = "\
cargo xtask storage [options]

Runs storage_target and storage_initiator of hil-tests/examples/storage on the software device. They
read and write a volume that is encrypted and protected by T10-DIF. Every byte that is read is
compared. The initiator must report exactly the blocks that the target corrupts.

  --ios N            number of reads and writes (default: 20000)
  --corrupt N        number of blocks that the target corrupts (default: 20)
  --rotate N         keys that the target replaces in the course of the run (not with --kill)
  --kill             kill the target after half of the I/Os, and start it again
  --queues N         number of queue pairs (default: 2)
  --depth N          commands that a queue pair has in flight (default: 32)
  --engine KIND      the AES-XTS engine: multi-block (default) or single-block
  --idle-seconds N   afterwards do nothing for N seconds, and report CPU time and memory
  --help             this text
";

/// The AES-XTS engines of the software device.
pub(crate) const MULTI_BLOCK: &str = "multi-block";
const SINGLE_BLOCK: &str = "single-block";

/// The beginning of the line that the initiator prints when half of its I/Os are done.
const HALF: &str = "initiator: 50 %";

/// The line that the initiator prints at the end of a run without a lost connection.
const UNBROKEN: &str = "connections: 1, I/Os that were repeated: 0";

/// The longest time from the end of the initiator to the end of the target.
const LIMIT: Duration = Duration::from_secs(60);

#[derive(Clone, Debug, PartialEq, Eq)]
struct Options {
    ios: u64,
    corrupt: u64,
    rotate: u64,
    queues: u64,
    depth: u64,
    idle_seconds: u64,
    engine: String,
    kill: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            ios: 20_000,
            corrupt: 20,
            rotate: 0,
            queues: 2,
            depth: 32,
            idle_seconds: 0,
            engine: MULTI_BLOCK.into(),
            kill: false,
        }
    }
}

pub(crate) fn run(arguments: &[String]) -> ExitCode {
    run::with_options(arguments, HELP, parse, |options| run::status(perform(&options)))
}

/// Runs the tests of the step `storage` of `cargo xtask test`: 20,000 I/Os with corrupt blocks and a killed
/// target, and fewer I/Os with rotating keys on both engines.
pub(crate) fn test() -> Result<(), String> {
    perform(&Options { kill: true, ..Options::default() })?;
    perform(&Options { ios: 4_000, rotate: 2, ..Options::default() })?;
    perform(&Options { ios: 1_000, rotate: 1, engine: SINGLE_BLOCK.into(), ..Options::default() })
}

fn parse(words: &mut run::Options) -> Result<Options, String> {
    let mut options = Options::default();
    while let Some(option) = words.word()? {
        match option.as_str() {
            "--ios" => options.ios = words.value()?,
            "--corrupt" => options.corrupt = words.value()?,
            "--rotate" => options.rotate = words.value()?,
            "--queues" => options.queues = words.value()?,
            "--depth" => options.depth = words.value()?,
            "--idle-seconds" => options.idle_seconds = words.value()?,
            "--engine" => options.engine = words.value()?,
            "--kill" => options.kill = true,
            other => return Err(run::unknown(other)),
        }
    }
    if ![MULTI_BLOCK, SINGLE_BLOCK].contains(&options.engine.as_str()) {
        return Err(format!("`{}` is not one of {MULTI_BLOCK}, {SINGLE_BLOCK}", options.engine));
    }
    if options.kill && options.rotate > 0 {
        return Err("--kill and --rotate: the target keeps the keys of its blocks in memory".into());
    }
    Ok(options)
}

/// Runs target and initiator. Checks that both succeed, that the initiator has printed the lines that the
/// options make it print, and that the target has removed its volume.
fn perform(options: &Options) -> Result<(), String> {
    let programs = host::storage()?;
    let folder = run::temporary("storage")?;
    let folder = folder.path();
    let (address, volume) = (format!("127.0.0.1:{}", free_port()?), folder.join("volume"));
    let target_words = [
        ("--address", address.clone()),
        ("--volume", volume.to_string_lossy().into_owned()),
        ("--queues", options.queues.to_string()),
        ("--depth", options.depth.to_string()),
        ("--corrupt", options.corrupt.to_string()),
        ("--rotate", options.rotate.to_string()),
        // With the single-block engine, a command between initiator and target moves fewer bytes. So the
        // commands of a run can fill only a smaller volume.
        ("--blocks", if options.engine == SINGLE_BLOCK { 1 << 13 } else { 1 << 17 }.to_string()),
    ];
    let initiator_words = [
        ("--address", address),
        ("--ios", options.ios.to_string()),
        ("--idle-seconds", options.idle_seconds.to_string()),
    ];
    let mut initiator =
        program(programs.join("storage_initiator"), &initiator_words, &options.engine, folder)?;
    let logs = [folder.join("target.log"), folder.join("target-again.log")];
    let [log, again] = &logs;
    let start_target = |log| {
        Running::start(program(programs.join("storage_target"), &target_words, &options.engine, folder)?, log)
    };
    let mut target = start_target(log)?;
    initiator.stdout(Stdio::piped());
    let mut initiator =
        Running(Ends(initiator.spawn().map_err(|error| format!("storage_initiator: {error}"))?));
    let output = initiator.0.0.stdout.take().ok_or("the initiator has no output")?;
    let replaced = format!("keys replaced: {},", options.rotate);
    let (mut was_killed, mut was_unbroken, mut was_rotated) = (false, false, options.rotate == 0);
    for line in BufReader::new(output).lines() {
        let line = line.map_err(|error| error.to_string())?;
        // If standard output is closed, the run continues.
        let _ = writeln!(std::io::stdout(), "{line}");
        was_unbroken |= line == UNBROKEN;
        was_rotated |= line.starts_with(&replaced);
        if options.kill && !was_killed && line.starts_with(HALF) {
            was_killed = true;
            drop(target);
            target = start_target(again)?;
        }
    }
    let ended = initiator.wait(LIMIT)?;
    let outcome = if ended.success() {
        // The target ends by itself after the initiator.
        target
            .wait(LIMIT)
            .and_then(|status| if status.success() { Ok(()) } else { Err(format!("the target: {status}")) })
    } else {
        Err(format!("the initiator: {ended}"))
    };
    if let Err(error) = outcome {
        let logs = logs.iter().filter_map(|log| fs::read_to_string(log).ok()).collect::<String>();
        return Err(format!("{error}\n{logs}"));
    }
    if options.kill && !was_killed {
        return Err(format!("the initiator did not print `{HALF}`, so the target was not killed"));
    }
    if !was_rotated {
        return Err(format!("the initiator did not print `{replaced}`"));
    }
    if was_unbroken == options.kill {
        return Err(format!("the initiator must print `{UNBROKEN}` unless the target is killed"));
    }
    if volume.exists() || volume.with_extension("corrupted").exists() {
        return Err("the target has not removed its volume".into());
    }
    Ok(())
}

/// Returns a command that runs target or initiator on the software device. Programs with the same `folder`
/// can connect to each other.
pub(crate) fn program(
    program: PathBuf,
    words: &[(&str, String)],
    engine: &str,
    folder: &Path,
) -> Result<Command, String> {
    let program = program.to_string_lossy().into_owned();
    let words = words.iter().flat_map(|(option, value)| [(*option).to_owned(), value.clone()]);
    let mut command = emulate::command(std::iter::once(program).chain(words).collect(), "plaintext", engine)?;
    // With these thresholds, malloc returns freed memory to the system: resident memory is memory in use.
    command.env("MALLOC_MMAP_THRESHOLD_", "131072").env("MALLOC_TRIM_THRESHOLD_", "131072");
    command.env("MLX5_UVERBS_DIR", folder.join("fabric")).current_dir(folder).stdin(Stdio::null());
    Ok(command)
}

/// A running program.
pub(crate) struct Running(pub(crate) Ends);

impl Running {
    /// Starts a program, and writes its output to a file.
    pub(crate) fn start(mut command: Command, log: &Path) -> Result<Self, String> {
        let name = command.get_program().to_string_lossy().into_owned();
        let file = fs::File::create(log).at(log)?;
        command.stderr(file.try_clone().at(log)?).stdout(file);
        command.spawn().map(|child| Self(Ends(child))).map_err(|error| format!("{name}: {error}"))
    }

    /// Returns the exit status, if the program has ended.
    pub(crate) fn ended(&mut self) -> Result<Option<ExitStatus>, String> {
        self.0.0.try_wait().map_err(|error| error.to_string())
    }

    pub(crate) fn wait(&mut self, limit: Duration) -> Result<ExitStatus, String> {
        let ended = run::wait(&mut self.0.0, limit).map_err(|error| error.to_string())?;
        ended.ok_or_else(|| format!("a program still runs after {} s", limit.as_secs()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(line: &str) -> Result<Options, String> {
        parse(&mut run::Options::new(line.split_whitespace()))
    }

    #[test]
    fn options_have_defaults() {
        assert_eq!(parsed(""), Ok(Options::default()));
        let options = parsed("--ios 7 --engine single-block --kill").unwrap();
        assert_eq!((options.ios, options.kill, options.engine.as_str()), (7, true, "single-block"));
    }

    #[test]
    fn nonsense_is_refused() {
        for line in ["--ios", "--ios many", "--engine both", "--loud", "more", "--kill --rotate 1"] {
            assert!(parsed(line).is_err(), "{line}");
        }
    }
}
