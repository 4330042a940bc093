//! Running other programs, and ending this one.

use std::fs;
use std::io::{self, Write};
use std::net::{Ipv4Addr, TcpListener};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, ExitStatus};
use std::sync::OnceLock;
use std::thread::sleep;
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// How often a program is looked at that is waited for.
const LOOK: Duration = Duration::from_millis(10);

/// Makes a folder for the time being, with `name` in its own: it goes away with the value, and is nobody else's.
///
/// # Errors
/// It cannot be made.
pub fn temporary(name: &str) -> Result<TempDir, String> {
    tempfile::Builder::new()
        .prefix(&format!("mlx5-{name}-"))
        .tempdir()
        .map_err(|error| format!("no folder for {name}: {error}"))
}

/// Returns the words behind this program's name.
#[must_use]
pub fn arguments() -> Vec<String> {
    std::env::args_os().skip(1).map(|argument| argument.to_string_lossy().into_owned()).collect()
}

/// Prints a text and ends with this status, if the text arrives.
pub fn print(text: &str, status: u8) -> ExitCode {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Ok(()) => ExitCode::from(status),
        Err(error) => lost(&error),
    }
}

/// Ends where reading or writing failed.
pub fn lost(error: &io::Error) -> ExitCode {
    // Whoever listened has heard enough; not all was shown.
    if error.kind() == io::ErrorKind::BrokenPipe {
        ExitCode::FAILURE
    } else {
        misuse(&format!("error: {error}"))
    }
}

/// Says what makes no sense, and ends with status 2.
pub fn misuse(what: &str) -> ExitCode {
    // Where nobody listens nothing can be said.
    let _ = writeln!(io::stderr(), "{what}");
    ExitCode::from(2)
}

/// Says what went wrong, and ends with status 1.
pub fn failed(what: &str) -> ExitCode {
    misuse(&format!("error: {what}"));
    ExitCode::FAILURE
}

/// Answers `--help` of a task that takes no other argument, and refuses the rest; `None` where there is nothing.
pub fn no_arguments(arguments: &[String], help: &str) -> Option<ExitCode> {
    match arguments.iter().map(String::as_str).find(|argument| !matches!(*argument, "--help" | "-h")) {
        Some(argument) => Some(misuse(&format!("unexpected argument `{argument}`\n\n{help}"))),
        None if arguments.is_empty() => None,
        None => Some(print(help, 0)),
    }
}

/// Returns the root of the repository.
pub fn root() -> PathBuf {
    let xtask = Path::new(env!("CARGO_MANIFEST_DIR"));
    xtask.parent().unwrap_or(xtask).to_path_buf()
}

/// Returns all files of a folder and of the folders in it, sorted.
///
/// # Errors
/// A folder cannot be read.
pub fn files(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() { found.extend(files(&path)?) } else { found.push(path) }
    }
    found.sort();
    Ok(found)
}

/// Returns where this very program is, as it was when this was asked first (`main` does so at its start): a task that has
/// cargo build this program anew runs from a deleted file then, whose successor is at the same place.
///
/// # Errors
/// The system does not tell.
pub fn itself() -> Result<&'static Path, String> {
    static ITSELF: OnceLock<Result<PathBuf, String>> = OnceLock::new();
    let place = ITSELF.get_or_init(|| std::env::current_exe().map_err(|error| error.to_string()));
    place.as_deref().map_err(String::clone)
}

/// Returns where cargo has put a file that it was told to build with a profile of that folder: beside this very program's
/// folder.
///
/// # Errors
/// It is not there.
pub fn built(folder: &str, name: &str) -> Result<PathBuf, String> {
    let target = itself()?.ancestors().nth(2).ok_or("no target directory")?;
    let file = target.join(folder).join(name);
    if file.exists() { Ok(file) } else { Err(format!("{} was not built", file.display())) }
}

/// Returns the cargo that runs this task, to be called in the repository's root.
pub fn cargo(arguments: &[&str]) -> Command {
    program(&std::env::var("CARGO").unwrap_or_else(|_| "cargo".into()), arguments)
}

/// Returns a program to be called in the repository's root.
pub fn program(name: &str, arguments: &[&str]) -> Command {
    let mut command = Command::new(name);
    command.args(arguments).current_dir(root());
    command
}

/// Runs a command with its output passed through.
///
/// # Errors
/// What went wrong, in a sentence.
pub fn check(mut command: Command) -> Result<(), String> {
    let line = describe(&command);
    match command.status() {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(format!("`{line}` ended with {status}")),
        Err(error) => Err(format!("`{line}` could not be run: {error}")),
    }
}

/// Runs a command and returns what it printed, without the last line's end.
///
/// # Errors
/// What went wrong, in a sentence.
pub fn answer(mut command: Command) -> Result<String, String> {
    let line = describe(&command);
    match command.output() {
        Ok(output) if output.status.success() => {
            Ok(String::from_utf8_lossy(&output.stdout).trim_end().to_owned())
        }
        Ok(output) => {
            let what = String::from_utf8_lossy(&output.stderr).trim_end().to_owned();
            Err(format!("`{line}` ended with {}: {what}", output.status))
        }
        Err(error) => Err(format!("`{line}` could not be run: {error}")),
    }
}

/// Waits until a program has ended, but no longer than this: `None` where it still runs.
///
/// # Errors
/// As [`Child::try_wait`].
pub fn wait(child: &mut Child, limit: Duration) -> io::Result<Option<ExitStatus>> {
    let start = Instant::now();
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status));
        }
        let rest = limit.saturating_sub(start.elapsed());
        if rest.is_zero() {
            return Ok(None);
        }
        sleep(rest.min(LOOK));
    }
}

/// Returns a port of the loopback interface that nobody has at the moment.
///
/// # Errors
/// There is none, in a sentence.
pub fn free_port() -> Result<u16, String> {
    let address = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).and_then(|listener| listener.local_addr());
    let address = address.map_err(|error| format!("no port of the loopback interface: {error}"))?;
    Ok(address.port())
}

/// Becomes another program, in the folder where this one was started.
pub fn replace(mut command: Command) -> ExitCode {
    if let Ok(folder) = std::env::current_dir() {
        command.current_dir(folder);
    }
    // Returns only if it fails.
    let error = command.exec();
    failed(&format!("`{}` could not be run: {error}", describe(&command)))
}

/// Runs a command, if it could be prepared, and ends as it ends.
pub fn forward(command: Result<Command, String>) -> ExitCode {
    match command.map(|mut command| command.status()) {
        Ok(Ok(status)) => ExitCode::from(status.code().and_then(|code| u8::try_from(code).ok()).unwrap_or(1)),
        Ok(Err(error)) => lost(&error),
        Err(message) => failed(&message),
    }
}

/// Returns whether a command runs and succeeds; its output is dropped.
pub fn succeeds(mut command: Command) -> bool {
    command.output().is_ok_and(|output| output.status.success())
}

fn describe(command: &Command) -> String {
    let program = Path::new(command.get_program());
    let name = program.file_name().unwrap_or(program.as_os_str()).to_string_lossy().into_owned();
    let words = command.get_args().map(|word| word.to_string_lossy().into_owned());
    std::iter::once(name).chain(words).collect::<Vec<_>>().join(" ")
}
