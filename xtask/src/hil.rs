//! `cargo xtask hil`: the scenarios on a board.

use crate::emulate;
use crate::run::{self, cargo};
use std::process::{Command, ExitCode};

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
    run::forward(prepare(arguments))
}

/// Runs all scenarios on the software device behind libmlx5.
///
/// # Errors
/// What went wrong, in a sentence.
pub(crate) fn check() -> Result<(), String> {
    run::check(prepare(&["--board".into(), "uverbs".into()])?)
}

/// Builds the runner and returns it as it is to be run on the board that is named.
fn prepare(arguments: &[String]) -> Result<Command, String> {
    let runner = runner("hil")?;
    let uverbs = arguments
        .windows(2)
        .any(|pair| matches!(pair, [name, value] if name == "--board" && value == "uverbs"));
    if uverbs {
        return emulate::command(std::iter::once(runner).chain(arguments.iter().cloned()).collect());
    }
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    Ok(run::program(&runner, &arguments))
}

/// Builds a runner of hil-tests and returns where it is: beside this very program.
///
/// # Errors
/// What went wrong, in a sentence.
pub(crate) fn runner(name: &str) -> Result<String, String> {
    run::check(cargo(&["build", "--quiet", "--package", "hil-tests", "--bin", name]))?;
    let this = std::env::current_exe().map_err(|error| error.to_string())?;
    Ok(this.with_file_name(name).to_string_lossy().into_owned())
}
