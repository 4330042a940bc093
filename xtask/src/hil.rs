//! `cargo xtask hil`: the scenarios on a board.

use crate::emulate;
use crate::run::{self, cargo, check};
use std::process::ExitCode;

pub(crate) const HELP: &str = "\
cargo xtask hil [--board NAME] [--filter TEXT]

Runs the scenarios of hil-tests on a board, one line each:

  softdev   the software device, in this process (default)
  uverbs    the software device behind libmlx5 and the stand-in for the kernel
  DEVICE    an mlx5 device of this machine, by its name (mlx5_0, say), through libmlx5

  --filter TEXT   only scenarios whose name holds TEXT
";

/// Builds the runner and runs it on the board that is named.
pub(crate) fn run(arguments: &[String]) -> ExitCode {
    if arguments.iter().any(|argument| argument == "--help" || argument == "-h") {
        return run::print(HELP, 0);
    }
    let runner = match build() {
        Ok(runner) => runner,
        Err(message) => {
            eprintln!("error: {message}");
            return ExitCode::FAILURE;
        }
    };
    let words: Vec<String> = std::iter::once(runner).chain(arguments.iter().cloned()).collect();
    let uverbs = arguments
        .windows(2)
        .any(|pair| matches!(pair, [name, value] if name == "--board" && value == "uverbs"));
    if uverbs {
        let emulated: Vec<String> = std::iter::once("--".into()).chain(words).collect();
        return emulate::run(&emulated);
    }
    let (program, rest) =
        words.split_first().map_or(("", &[][..]), |(program, rest)| (program.as_str(), rest));
    let rest: Vec<&str> = rest.iter().map(String::as_str).collect();
    match run::program(program, &rest).status() {
        // The runner's own: 1 where a scenario failed, 2 where the board could not be opened.
        Ok(status) => ExitCode::from(status.code().and_then(|code| u8::try_from(code).ok()).unwrap_or(1)),
        Err(error) => run::lost(&error),
    }
}

/// Builds the runner and returns where it is: beside this very program.
fn build() -> Result<String, String> {
    check(cargo(&["build", "--quiet", "--package", "hil-tests", "--bin", "hil"]))?;
    let this = std::env::current_exe().map_err(|error| error.to_string())?;
    Ok(this.with_file_name("hil").to_string_lossy().into_owned())
}
