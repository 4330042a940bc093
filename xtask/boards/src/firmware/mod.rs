//! `cargo xtask firmware`: the scenarios as a bare-metal image, in QEMU.

mod check;

use defmt_decoder::{DecodeError, Table};
use std::fs;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use xtask::build::QEMU_IMAGE;
use xtask::debian;
use xtask::run::{self, program};
use xtask::toolchain::{Board, System};

pub(crate) const HELP: &str = "\
cargo xtask firmware --board bluefield2|bluefield3 [--image FILE] [--filter TEXT]
                     [--after CASE] [--ways WAYS] [--provoke WAY]
cargo xtask firmware --check
cargo xtask firmware --board bluefield2|bluefield3 --count

Builds the bare-metal image that runs the scenarios on the software device (hil-tests/firmware),
runs it in QEMU's machine `virt`, on the core that is nearest to the board's, and prints what it
logs. The exit status is the image's.

  --image FILE    do not build, run this one
  --filter TEXT   only scenarios whose name holds TEXT
  --after CASE    only scenarios behind CASE
  --ways WAYS     in which ways requests are posted, see `cargo xtask hil --help`
  --provoke WAY   no scenario, but something that goes wrong, and must be noticed: data-abort,
                  write-to-code, stack-overflow, panic, panic-while-logging; or hang
  --check         the images of both boards, with all that can go wrong but a hang
  --count         counts the instructions of the benchmarks (cargo xtask bench shows them)
";

/// Memory of the machine, as `linker/qemu-virt.x` has it.
const MEMORY: &str = "1G";

/// Two options are for this task, the others for the image.
const OPTIONS: [&str; 6] = ["board", "image", "filter", "after", "ways", "provoke"];

/// Builds the image, runs it, and ends as it ends.
pub(crate) fn run(arguments: &[String]) -> ExitCode {
    if arguments.iter().any(|argument| argument == "--help" || argument == "-h") {
        return run::print(HELP, 0);
    }
    if arguments == ["--check"] {
        return check::check(&mut io::stdout())
            .map_or_else(|what| run::failed(&what), |()| ExitCode::SUCCESS);
    }
    if let [name, board, count] = arguments
        && (name.as_str(), count.as_str()) == ("--board", "--count")
    {
        let counted = Board::named(board).and_then(count_instructions);
        return counted.map_or_else(|what| run::failed(&what), |()| ExitCode::SUCCESS);
    }
    let Options { board, image, words } = match parse(arguments) {
        Ok(options) => options,
        Err(what) => return run::misuse(&format!("{what}\n\n{HELP}")),
    };
    let image = image.map_or_else(|| build(board), Ok);
    match image.and_then(|image| emulate(machine(board, &image, &words), &image, &mut io::stdout())) {
        Ok(status) => ExitCode::from(status),
        Err(what) => run::failed(&what),
    }
}

/// What the command line asks for.
#[derive(Debug, PartialEq, Eq)]
struct Options {
    board: Board,
    /// An image that is there.
    image: Option<PathBuf>,
    /// Words for the image.
    words: Vec<String>,
}

fn parse(arguments: &[String]) -> Result<Options, String> {
    use lexopt::prelude::*;
    let mut parser = lexopt::Parser::from_args(arguments.iter().map(std::ffi::OsString::from));
    let (mut board, mut image, mut words) = (None, None, Vec::new());
    let explain = |error: lexopt::Error| error.to_string();
    while let Some(argument) = parser.next().map_err(explain)? {
        let Long(name) = argument else { return Err(explain(argument.unexpected())) };
        let name = name.to_owned();
        if !OPTIONS.contains(&name.as_str()) {
            return Err(format!("invalid option '--{name}'"));
        }
        let value = parser.value().and_then(|value| value.string()).map_err(explain)?;
        if name == "board" {
            board = Some(Board::named(&value)?);
        } else if name == "image" {
            image = Some(value.into());
        } else if value.is_empty() || value.contains(char::is_whitespace) {
            // The image has a command line, not words.
            return Err(format!("--{name} takes one word, not `{value}`"));
        } else {
            words.extend([format!("--{name}"), value]);
        }
    }
    Ok(Options { board: board.ok_or("--board is missing")?, image, words })
}

/// Installs what is needed, builds the image and returns where it is.
///
/// # Errors
/// What went wrong, in a sentence.
fn build(board: Board) -> Result<PathBuf, String> {
    debian::install(debian::EMULATORS)?;
    let files = xtask::build::build(board, System::None, true)?;
    let image = files.into_iter().find(|file| file.ends_with(QEMU_IMAGE));
    image.ok_or_else(|| format!("the build has left no {QEMU_IMAGE}"))
}

/// Builds the image for a board, and returns the words of a command that runs it as this task does.
///
/// # Errors
/// What went wrong, in a sentence.
pub(crate) fn command(board: Board) -> Result<Vec<String>, String> {
    let image = build(board)?;
    let (this, image) = (run::itself()?.to_string_lossy(), image.to_string_lossy());
    Ok([&*this, "firmware", "--board", board.name(), "--image", &*image].map(String::from).into())
}

/// Has an image count the work of the benchmarks, and prints what it says.
fn count_instructions(board: Board) -> Result<(), String> {
    let image = build(board)?;
    let mut machine = machine(board, &image, &["--count".into(), "benchmarks".into()]);
    // An instruction takes a nanosecond, which is a cycle of the core.
    machine.args(["-icount", "shift=0"]);
    match emulate(machine, &image, &mut io::stdout())? {
        0 => Ok(()),
        status => Err(format!("the image ended with {status}")),
    }
}

/// Runs QEMU with an image, writes what that logs line by line, and returns its exit status.
///
/// # Errors
/// What went wrong around the image, in a sentence.
fn emulate(mut machine: Command, image: &Path, out: &mut dyn Write) -> Result<u8, String> {
    let elf = fs::read(image).map_err(|error| format!("{}: {error}", image.display()))?;
    let table = Table::parse(&elf).map_err(|error| error.to_string())?.ok_or("the image has no log table")?;
    machine.stdin(Stdio::null()).stdout(Stdio::piped());
    let mut child = machine.spawn().map_err(|error| format!("QEMU could not be run: {error}"))?;
    let frames = child.stdout.take().ok_or("no output to read")?;
    let shown = decode(&table, frames, out);
    if shown.is_err() {
        // Nobody listens any more, so nobody would end it. Whether it could be ended shows below.
        let _ = child.kill();
    }
    let status = child.wait().map_err(|error| error.to_string())?;
    shown.map_err(|error| error.to_string())?;
    status.code().and_then(|code| u8::try_from(code).ok()).ok_or(format!("QEMU ended with {status}"))
}

/// Returns QEMU as it is to be run. It ends with this program, whatever ends that.
fn machine(board: Board, image: &Path, words: &[String]) -> Command {
    let core = match board {
        Board::BlueField2 => "cortex-a72",
        // QEMU 7.2 has no Cortex-A78; this is its other core of Armv8.2 and the same family.
        Board::BlueField3 => "neoverse-n1",
    };
    let mut semihosting = String::from("enable=on,target=native,arg=hil-firmware");
    for word in words {
        // A comma ends an argument, two are one.
        semihosting.push_str(",arg=");
        semihosting.push_str(&word.replace(',', ",,"));
    }
    let qemu = ["--pdeathsig", "KILL", "qemu-system-aarch64", "-M", "virt", "-m", MEMORY, "-cpu", core];
    // No device but memory and the core.
    let nothing = ["-display", "none", "-serial", "none", "-monitor", "none", "-nic", "none"];
    let image = image.to_string_lossy();
    let image = ["-semihosting-config", &semihosting, "-kernel", &image];
    program("setpriv", &[&qemu[..], &nothing, &image].concat())
}

/// Writes the lines that an image logs, each as soon as it is there.
fn decode(table: &Table, mut frames: impl Read, out: &mut dyn Write) -> io::Result<()> {
    let mut decoder = table.new_stream_decoder();
    let mut bytes = [0; 4096];
    loop {
        let read = match frames.read(&mut bytes) {
            Ok(0) => return Ok(()),
            Ok(read) => read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        };
        decoder.received(bytes.get(..read).unwrap_or_default());
        loop {
            match decoder.decode() {
                Ok(frame) => match frame.level() {
                    Some(level) => writeln!(out, "{}: {}", level.as_str(), frame.display_message())?,
                    None => writeln!(out, "{}", frame.display_message())?,
                },
                Err(DecodeError::UnexpectedEof) => break,
                // The next one can be found.
                Err(DecodeError::Malformed) => writeln!(out, "error: a log frame that makes no sense")?,
            }
        }
        out.flush()?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(words: &[&str]) -> Result<Options, String> {
        parse(&words.iter().copied().map(String::from).collect::<Vec<_>>())
    }

    #[test]
    fn arguments_are_for_this_task_or_for_the_image() {
        let words =
            &["--filter=r1", "--board", "bluefield3", "--image", "file", "--after", "r17", "--ways", "7"];
        let options = Options {
            board: Board::BlueField3,
            image: Some("file".into()),
            words: ["--filter", "r1", "--after", "r17", "--ways", "7"].map(String::from).into(),
        };
        assert_eq!(parsed(words), Ok(options));
        for (words, what) in [
            (&["--filter", "r1"][..], "--board is missing"),
            (&["--board", "bluefield4"], "unknown board `bluefield4`"),
            (&["--board", "bluefield2", "--filter", "a b"], "--filter takes one word, not `a b`"),
            (&["--board", "bluefield2", "--filter", ""], "--filter takes one word, not ``"),
            (&["--board", "bluefield2", "--speed", "1"], "invalid option '--speed'"),
            (&["bluefield2"], "unexpected argument \"bluefield2\""),
        ] {
            assert_eq!(parsed(words), Err(what.into()), "{words:?}");
        }
    }

    #[test]
    fn commas_arrive() {
        let command = machine(Board::BlueField2, Path::new("image"), &["--filter".into(), "a,b".into()]);
        let words: Vec<_> = command.get_args().filter_map(|word| word.to_str()).collect();
        let semihosting = "enable=on,target=native,arg=hil-firmware,arg=--filter,arg=a,,b";
        assert!(words.contains(&semihosting), "{words:?}");
    }
}
