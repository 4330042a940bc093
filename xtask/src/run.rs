//! Running other programs, reading command lines, and ending this program.

use lexopt::ValueExt;
use std::ffi::OsString;
use std::fmt::Display;
use std::fs;
use std::io::{self, Write};
use std::net::{Ipv4Addr, TcpListener};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, ExitStatus};
use std::str::FromStr;
use std::sync::OnceLock;
use std::thread::sleep;
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// The pause between two checks whether a program has ended.
const LOOK: Duration = Duration::from_millis(10);

/// Makes a temporary folder with `name` in its own name. Dropping the returned value removes the folder.
pub fn temporary(name: &str) -> Result<TempDir, String> {
    tempfile::Builder::new()
        .prefix(&format!("mlx5-{name}-"))
        .tempdir()
        .map_err(|error| format!("no folder for {name}: {error}"))
}

/// Adds to an error the file or folder that it concerns.
pub trait At<T> {
    /// Puts the path and a colon in front of the error.
    fn at(self, path: impl AsRef<Path>) -> Result<T, String>;
}

impl<T, E: Display> At<T> for Result<T, E> {
    fn at(self, path: impl AsRef<Path>) -> Result<T, String> {
        self.map_err(|error| format!("{}: {error}", path.as_ref().display()))
    }
}

/// Returns the command-line arguments of this program.
#[must_use]
pub fn arguments() -> Vec<String> {
    std::env::args_os().skip(1).map(|argument| argument.to_string_lossy().into_owned()).collect()
}

/// Prints a text and returns `status`, or an error status if the text cannot be written.
pub fn print(text: &str, status: u8) -> ExitCode {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Ok(()) => ExitCode::from(status),
        Err(error) => lost(&error),
    }
}

/// Returns the exit status for an error in reading or writing. Prints the error, unless a reader has closed
/// its pipe.
pub fn lost(error: &io::Error) -> ExitCode {
    // The reader has closed its pipe, as `head` does. Part of the text was not shown.
    if error.kind() == io::ErrorKind::BrokenPipe {
        ExitCode::FAILURE
    } else {
        misuse(&format!("error: {error}"))
    }
}

/// Prints a message and returns status 2, the status for invalid arguments.
pub fn misuse(message: &str) -> ExitCode {
    // If standard error is closed, the message is lost.
    let _ = writeln!(io::stderr(), "{message}");
    ExitCode::from(2)
}

/// Prints an error and returns status 1.
pub fn failed(message: &str) -> ExitCode {
    misuse(&format!("error: {message}"));
    ExitCode::FAILURE
}

/// Returns the exit status of a task: 0, or 1 after printing its error.
pub fn status(done: Result<(), String>) -> ExitCode {
    done.map_or_else(|message| failed(&message), |()| ExitCode::SUCCESS)
}

/// The options of a task, in the order of its command line.
pub struct Options(lexopt::Parser);

impl Options {
    /// Takes the words after the name of the task. The methods below read these words one by one.
    pub fn new<W: Into<OsString>>(words: impl IntoIterator<Item = W>) -> Self {
        Self(lexopt::Parser::from_args(words.into_iter().map(Into::into).collect::<Vec<OsString>>()))
    }

    /// Returns the name of the next option, with its dashes, or the next word that is no option. Returns
    /// `None` at the end of the line.
    pub fn word(&mut self) -> Result<Option<String>, String> {
        let word = match self.0.next().map_err(|error| error.to_string())? {
            None => return Ok(None),
            Some(lexopt::Arg::Long(name)) => format!("--{name}"),
            Some(lexopt::Arg::Short(name)) => format!("-{name}"),
            Some(lexopt::Arg::Value(word)) => word.string().map_err(|error| error.to_string())?,
        };
        Ok(Some(word))
    }

    /// Returns the value of the option that was read last.
    pub fn value<T: FromStr<Err: Display>>(&mut self) -> Result<T, String> {
        let value = self.0.value().and_then(ValueExt::string).map_err(|error| error.to_string())?;
        value.parse().map_err(|error| format!("`{value}`: {error}"))
    }

    /// Returns the value of the option that was read last, which is one of some names.
    pub fn one_of<T: Copy>(&mut self, known: &[(&str, T)]) -> Result<T, String> {
        let name: String = self.value()?;
        let found = known.iter().find(|(known, _)| *known == name);
        found.map(|(_, value)| *value).ok_or_else(|| {
            let names: Vec<&str> = known.iter().map(|(known, _)| *known).collect();
            format!("`{name}` is not one of {}", names.join(", "))
        })
    }
}

/// Returns the error for a word that the task does not have.
pub fn unknown(word: &str) -> String {
    format!("invalid argument `{word}`")
}

/// Parses the options of a task and performs the task. With `--help` or `-h`, prints the help text instead.
/// If `parse` returns an error, prints the error and the help text.
pub fn with_options<O>(
    arguments: &[String],
    help: &str,
    parse: impl FnOnce(&mut Options) -> Result<O, String>,
    perform: impl FnOnce(O) -> ExitCode,
) -> ExitCode {
    if arguments.iter().any(|argument| argument == "--help" || argument == "-h") {
        return print(help, 0);
    }
    match parse(&mut Options::new(arguments)) {
        Ok(options) => perform(options),
        Err(message) => misuse(&format!("error: {message}\n\n{help}")),
    }
}

/// Returns the answer for a task that has no arguments: the help text for `--help`, an error for other
/// arguments. Returns `None` if there are no arguments.
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

/// Returns the path that this program had at the first call. `main` calls this function at its start, because
/// a task can have cargo rebuild this program: the process then runs from a deleted file, and the path names
/// the rebuilt program.
pub fn itself() -> Result<&'static Path, String> {
    static ITSELF: OnceLock<Result<PathBuf, String>> = OnceLock::new();
    let place = ITSELF.get_or_init(|| std::env::current_exe().map_err(|error| error.to_string()));
    place.as_deref().map_err(String::clone)
}

/// Makes a folder without any file. The files of an existing folder are removed.
pub fn empty(folder: &Path) -> Result<(), String> {
    if folder.exists() {
        fs::remove_dir_all(folder).at(folder)?;
    }
    fs::create_dir_all(folder).at(folder)
}

/// Returns the path of a file that cargo has built. `folder` is the path of the build profile's folder below
/// cargo's target folder.
pub fn built(folder: &str, name: &str) -> Result<PathBuf, String> {
    let target = itself()?.ancestors().nth(2).ok_or("no target directory")?;
    let file = target.join(folder).join(name);
    if file.exists() { Ok(file) } else { Err(format!("{} was not built", file.display())) }
}

/// Returns a call of the cargo that runs this task, in the root of the repository.
pub fn cargo(arguments: &[&str]) -> Command {
    program(&tool("cargo"), arguments)
}

/// Returns the path of the `cargo` or `rustc` that the environment names, or else its name.
#[must_use]
pub fn tool(name: &str) -> String {
    std::env::var(name.to_uppercase()).unwrap_or_else(|_| name.into())
}

/// Returns a call of a program, in the root of the repository.
pub fn program(name: &str, arguments: &[&str]) -> Command {
    let mut command = Command::new(name);
    command.args(arguments).current_dir(root());
    command
}

/// Runs a command. Its output appears as it is written.
pub fn check(mut command: Command) -> Result<(), String> {
    let line = describe(&command);
    match command.status() {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(format!("`{line}` ended with {status}")),
        Err(error) => Err(format!("`{line}` could not be run: {error}")),
    }
}

/// Runs a command and returns its output without trailing white space.
pub fn answer(mut command: Command) -> Result<String, String> {
    let line = describe(&command);
    match command.output() {
        Ok(output) if output.status.success() => {
            Ok(String::from_utf8_lossy(&output.stdout).trim_end().to_owned())
        }
        Ok(output) => {
            let message = String::from_utf8_lossy(&output.stderr).trim_end().to_owned();
            Err(format!("`{line}` ended with {}: {message}", output.status))
        }
        Err(error) => Err(format!("`{line}` could not be run: {error}")),
    }
}

/// A child process. Dropping this value kills the process.
#[derive(Debug)]
pub struct Ends(pub Child);

impl Drop for Ends {
    fn drop(&mut self) {
        // `kill` fails if the process has ended.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Waits for the end of a program, for `limit` at most. Returns `None` if the program still runs.
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

/// Returns a port of the loopback interface that is free at the moment.
pub fn free_port() -> Result<u16, String> {
    let address = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).and_then(|listener| listener.local_addr());
    let address = address.map_err(|error| format!("no port of the loopback interface: {error}"))?;
    Ok(address.port())
}

/// Replaces this process by another program, in the folder where this one was started.
pub fn replace(mut command: Command) -> ExitCode {
    if let Ok(folder) = std::env::current_dir() {
        command.current_dir(folder);
    }
    // `exec` returns only if it fails.
    let error = command.exec();
    failed(&format!("`{}` could not be run: {error}", describe(&command)))
}

/// Runs a command and returns its exit status. If `command` is an error, prints the error.
pub fn forward(command: Result<Command, String>) -> ExitCode {
    match command.map(|mut command| command.status()) {
        Ok(Ok(status)) => ExitCode::from(status.code().and_then(|code| u8::try_from(code).ok()).unwrap_or(1)),
        Ok(Err(error)) => lost(&error),
        Err(message) => failed(&message),
    }
}

/// Quotes a word for the shell.
#[must_use]
pub fn quote(word: &str) -> String {
    format!("'{}'", word.replace('\'', r"'\''"))
}

/// Returns whether a command runs and succeeds. Its output is dropped.
pub fn succeeds(mut command: Command) -> bool {
    command.output().is_ok_and(|output| output.status.success())
}

fn describe(command: &Command) -> String {
    let program = Path::new(command.get_program());
    let name = program.file_name().unwrap_or(program.as_os_str()).to_string_lossy().into_owned();
    let words = command.get_args().map(|word| word.to_string_lossy().into_owned());
    std::iter::once(name).chain(words).collect::<Vec<_>>().join(" ")
}
