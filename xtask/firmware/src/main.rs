//! `cargo xtask firmware`: runs the scenarios as a bare-metal image in QEMU.
//!
//! The task is a program of its own, because the decoder of the image's log has many dependencies that no
//! other task needs.

mod check;
mod image;
mod template;

use image::{build, emulate, machine};
use std::io;
use std::path::PathBuf;
use std::process::ExitCode;
use xtask::run;
use xtask::toolchain::Board;

const HELP: &str = "\
cargo xtask firmware --board bluefield2|bluefield3 [--image FILE] [--filter TEXT]
                     [--after CASE] [--ways WAYS] [--provoke WAY]
cargo xtask firmware --check
cargo xtask firmware --template
cargo xtask firmware --board bluefield2|bluefield3 --count

Builds the bare-metal image that runs the scenarios on the software device (hil-tests/firmware),
runs it in QEMU's machine `virt`, on the core that is most similar to the board's, and prints its
log. The exit status is the image's.

  --image FILE    run this image instead of building one
  --filter TEXT   run only scenarios whose name contains TEXT
  --after CASE    run only scenarios after CASE
  --ways WAYS     the posting methods, see `cargo xtask hil --help`
  --provoke WAY   run no scenario, but provoke a fault that the image must report: data-abort,
                  write-to-code, stack-overflow, panic, panic-while-logging; or hang
  --check         check the images of both boards, with each provoked fault except a hang
  --template      build, test and run hil-tests/examples/firmware-template in an empty folder, as
                  its page says
  --count         count the instructions of the benchmarks, for `cargo xtask bench`
";

/// The options with a value. The first two are for this task, the others are passed to the image.
const OPTIONS: [&str; 6] = ["--board", "--image", "--filter", "--after", "--ways", "--provoke"];

fn main() -> ExitCode {
    let arguments = run::arguments();
    match arguments.split_first() {
        Some((task, rest)) if task == "firmware" => perform(rest),
        _ => run::misuse("call this program by `cargo xtask`"),
    }
}

/// Performs the task that the arguments name: runs the image and returns its exit status, checks the images
/// of both boards, follows the page of the template, or counts instructions.
fn perform(arguments: &[String]) -> ExitCode {
    if arguments == ["--check"] {
        return run::status(check::check(&mut io::stdout()));
    }
    if arguments == ["--template"] {
        return run::status(template::follow(&mut io::stdout()));
    }
    if let [name, board, count] = arguments
        && (name.as_str(), count.as_str()) == ("--board", "--count")
    {
        return run::status(Board::named(board).and_then(count_instructions));
    }
    run::with_options(arguments, HELP, parse, |Options { board, image, words }| {
        let image = image.map_or_else(|| build(board), Ok);
        match image.and_then(|image| emulate(machine(board, &image, &words), &image, &mut io::stdout())) {
            Ok(status) => ExitCode::from(status),
            Err(error) => run::failed(&error),
        }
    })
}

#[derive(Debug, PartialEq, Eq)]
struct Options {
    board: Board,
    /// The path of an image that is already built. `None`: the task builds one.
    image: Option<PathBuf>,
    /// The image's command line.
    words: Vec<String>,
}

fn parse(arguments: &mut run::Options) -> Result<Options, String> {
    let (mut board, mut image, mut words) = (None, None, Vec::new());
    while let Some(option) = arguments.word()? {
        if !OPTIONS.contains(&option.as_str()) {
            return Err(run::unknown(&option));
        }
        let value: String = arguments.value()?;
        if option == "--board" {
            board = Some(Board::named(&value)?);
        } else if option == "--image" {
            image = Some(value.into());
        } else if value.is_empty() || value.contains(char::is_whitespace) {
            // The image splits its command line at blanks: a value must not contain any.
            return Err(format!("{option} takes one word, not `{value}`"));
        } else {
            words.extend([option, value]);
        }
    }
    Ok(Options { board: board.ok_or("--board is missing")?, image, words })
}

/// Runs the image in a mode that counts the instructions of the benchmarks, and prints the counts.
fn count_instructions(board: Board) -> Result<(), String> {
    let image = build(board)?;
    let mut machine = machine(board, &image, &["--count".into(), "benchmarks".into()]);
    // With this setting, QEMU's clock advances by a nanosecond with each instruction, and the image reads
    // cycles from that clock.
    machine.args(["-icount", "shift=0"]);
    match emulate(machine, &image, &mut io::stdout())? {
        0 => Ok(()),
        status => Err(format!("the image ended with {status}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(words: &[&str]) -> Result<Options, String> {
        parse(&mut run::Options::new(words))
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
        for (words, expected) in [
            (&["--filter", "r1"][..], "--board is missing"),
            (&["--board", "bluefield4"], "unknown board `bluefield4`"),
            (&["--board", "bluefield2", "--filter", "a b"], "--filter takes one word, not `a b`"),
            (&["--board", "bluefield2", "--filter", ""], "--filter takes one word, not ``"),
            (&["--board", "bluefield2", "--speed", "1"], "invalid argument `--speed`"),
            (&["bluefield2"], "invalid argument `bluefield2`"),
        ] {
            assert_eq!(parsed(words), Err(expected.into()), "{words:?}");
        }
    }
}
