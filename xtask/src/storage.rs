//! `cargo xtask storage`: a storage target and an initiator, two processes, on the software device.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, ExitStatus, Stdio};
use std::time::Duration;
use xtask::run::{self, free_port};
use xtask::{emulate, host};

pub(crate) const HELP: &str = "\
cargo xtask storage [options]

Runs storage_target and storage_initiator of hil-tests/examples/storage on the software device:
reads and writes of a volume that is encrypted and protected by T10-DIF. Every byte that is read
is compared; blocks that the target corrupts must be named, each of them and no other.

  --ios N            reads and writes (default: 20000)
  --corrupt N        blocks that the target corrupts (default: 20)
  --kill             kill the target half way, and start it again
  --queues N         queue pairs (default: 2)
  --depth N          commands of a queue pair at a time (default: 32)
  --engine KIND      the AES-XTS engine: multi-block (default) or single-block
  --idle-seconds N   then do nothing for N seconds, and tell what both processes take
  --help             this text
";

/// AES-XTS engines.
pub(crate) const MULTI_BLOCK: &str = "multi-block";
const SINGLE_BLOCK: &str = "single-block";

/// What the initiator says when half of its work is done.
const HALF: &str = "initiator: 50 %";

/// What it says at the end where nothing has failed.
const UNBROKEN: &str = "connections: 1, I/Os that were repeated: 0";

/// How long the target takes to end, once the initiator has.
const LIMIT: Duration = Duration::from_secs(60);

/// What the command line asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Options {
    ios: u64,
    corrupt: u64,
    queues: u64,
    depth: u64,
    idle_seconds: u64,
    engine: String,
    kill: bool,
    help: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            ios: 20_000,
            corrupt: 20,
            queues: 2,
            depth: 32,
            idle_seconds: 0,
            engine: MULTI_BLOCK.into(),
            kill: false,
            help: false,
        }
    }
}

/// Runs `cargo xtask storage` with the arguments after `storage`.
pub(crate) fn run(arguments: &[String]) -> ExitCode {
    let options = match parse(arguments) {
        Ok(options) if options.help => return run::print(HELP, 0),
        Ok(options) => options,
        Err(message) => return run::misuse(&format!("error: {message}\n\n{HELP}")),
    };
    match perform(&options) {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => run::failed(&message),
    }
}

/// Runs what the tests run: 20,000 reads and writes with corruptions and a target that is killed, and a few on the other engine.
///
/// # Errors
/// What went wrong, in a sentence.
pub(crate) fn test() -> Result<(), String> {
    perform(&Options { kill: true, ..Options::default() })?;
    perform(&Options { ios: 1_000, engine: SINGLE_BLOCK.into(), ..Options::default() })
}

fn parse(arguments: &[String]) -> Result<Options, String> {
    use lexopt::prelude::*;
    let mut options = Options::default();
    let mut parser = lexopt::Parser::from_args(arguments);
    let explain = |error: lexopt::Error| error.to_string();
    let number =
        |parser: &mut lexopt::Parser| parser.value().and_then(|value| value.parse::<u64>()).map_err(explain);
    while let Some(argument) = parser.next().map_err(explain)? {
        match argument {
            Long("ios") => options.ios = number(&mut parser)?,
            Long("corrupt") => options.corrupt = number(&mut parser)?,
            Long("queues") => options.queues = number(&mut parser)?,
            Long("depth") => options.depth = number(&mut parser)?,
            Long("idle-seconds") => options.idle_seconds = number(&mut parser)?,
            Long("engine") => {
                options.engine = parser.value().and_then(|value| value.string()).map_err(explain)?
            }
            Long("kill") => options.kill = true,
            Long("help") | Short('h') => options.help = true,
            other => return Err(explain(other.unexpected())),
        }
    }
    if ![MULTI_BLOCK, SINGLE_BLOCK].contains(&options.engine.as_str()) {
        return Err(format!("`{}` is not one of {MULTI_BLOCK}, {SINGLE_BLOCK}", options.engine));
    }
    Ok(options)
}

/// Runs both programs, and sees that they end well and leave nothing behind.
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
        // Where commands are short, it takes many to fill a volume.
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
    let mut initiator = Running(initiator.spawn().map_err(|error| format!("storage_initiator: {error}"))?);
    let said = initiator.0.stdout.take().ok_or("the initiator has no output")?;
    let (mut was_killed, mut was_unbroken) = (false, false);
    for line in BufReader::new(said).lines() {
        let line = line.map_err(|error| error.to_string())?;
        // Where nobody reads, the run still counts.
        let _ = writeln!(std::io::stdout(), "{line}");
        was_unbroken |= line == UNBROKEN;
        if options.kill && !was_killed && line.starts_with(HALF) {
            was_killed = true;
            drop(target);
            target = start_target(again)?;
        }
    }
    let ended = initiator.wait(LIMIT)?;
    let outcome = if ended.success() {
        // It has nothing to do any more.
        target
            .wait(LIMIT)
            .and_then(|status| if status.success() { Ok(()) } else { Err(format!("the target: {status}")) })
    } else {
        Err(format!("the initiator: {ended}"))
    };
    if let Err(what) = outcome {
        let logs = logs.iter().filter_map(|log| fs::read_to_string(log).ok()).collect::<String>();
        return Err(format!("{what}\n{logs}"));
    }
    if options.kill && !was_killed {
        return Err(format!("the initiator never said `{HALF}`, so the target was not killed"));
    }
    if was_unbroken == options.kill {
        return Err(format!("`{UNBROKEN}` is to be said unless the target is killed, and only then"));
    }
    if volume.exists() || volume.with_extension("corrupted").exists() {
        return Err("the target has left its volume behind".into());
    }
    Ok(())
}

/// Returns one of the two programs as it is to be run on the software device; those of one folder reach each other.
pub(crate) fn program(
    program: PathBuf,
    words: &[(&str, String)],
    engine: &str,
    folder: &Path,
) -> Result<Command, String> {
    let program = program.to_string_lossy().into_owned();
    let words = words.iter().flat_map(|(option, value)| [(*option).to_owned(), value.clone()]);
    let mut command = emulate::command(std::iter::once(program).chain(words).collect(), "plaintext", engine)?;
    // What was freed goes back to the system, so that resident memory is what is in use.
    command.env("MALLOC_MMAP_THRESHOLD_", "131072").env("MALLOC_TRIM_THRESHOLD_", "131072");
    command.env("MLX5_UVERBS_DIR", folder.join("fabric")).current_dir(folder).stdin(Stdio::null());
    Ok(command)
}

/// A program that runs. It is killed when this is dropped.
pub(crate) struct Running(pub(crate) Child);

impl Running {
    /// Starts a program whose output goes to a file.
    pub(crate) fn start(mut command: Command, log: &Path) -> Result<Self, String> {
        let name = command.get_program().to_string_lossy().into_owned();
        let lost = |error| format!("{}: {error}", log.display());
        let file = fs::File::create(log).map_err(lost)?;
        command.stderr(file.try_clone().map_err(lost)?).stdout(file);
        command.spawn().map(Self).map_err(|error| format!("{name}: {error}"))
    }

    /// Returns how it has ended, if it has.
    pub(crate) fn ended(&mut self) -> Result<Option<ExitStatus>, String> {
        self.0.try_wait().map_err(|error| error.to_string())
    }

    pub(crate) fn wait(&mut self, limit: Duration) -> Result<ExitStatus, String> {
        let ended = run::wait(&mut self.0, limit).map_err(|error| error.to_string())?;
        ended.ok_or_else(|| format!("a program still runs after {} s", limit.as_secs()))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // Fails where it has ended.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(line: &str) -> Result<Options, String> {
        parse(&line.split_whitespace().map(String::from).collect::<Vec<_>>())
    }

    #[test]
    fn options_have_defaults() {
        assert_eq!(parsed(""), Ok(Options::default()));
        let options = parsed("--ios 7 --engine single-block --kill").unwrap();
        assert_eq!((options.ios, options.kill, options.engine.as_str()), (7, true, "single-block"));
    }

    #[test]
    fn nonsense_is_refused() {
        for line in ["--ios", "--ios many", "--engine both", "--loud", "more"] {
            assert!(parsed(line).is_err(), "{line}");
        }
    }
}
