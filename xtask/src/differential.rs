//! `cargo xtask differential`: random requests, by the installed libmlx5 and by the library.

use crate::{emulate, hil, run};
use std::process::{Command, ExitCode};

pub(crate) const HELP: &str = "\
cargo xtask differential [--count N] [--seed S]

Has the installed libmlx5 (version 44) and the library write the same random requests, on a device
of the stand-in that does not execute them, and compares every byte that libmlx5 writes.

  --count N   configurations of mkeys that are tried (default 20000)
  --seed S    repeats a run (default: another one each time; it is printed)

Exit status: 0 nothing differs, 1 something does, 2 there is no libmlx5, or it lacks something.
";

/// Builds the runner and runs it under the stand-in.
pub(crate) fn run(arguments: &[String]) -> ExitCode {
    if arguments.iter().any(|argument| argument == "--help" || argument == "-h") {
        return run::print(HELP, 0);
    }
    run::forward(prepare(arguments))
}

/// Compares as many as CI does.
///
/// # Errors
/// What went wrong, in a sentence.
pub(crate) fn check() -> Result<(), String> {
    run::check(prepare(&["--count".into(), "10000".into()])?)
}

/// Builds the runner and returns it as it is to be run under the stand-in.
fn prepare(arguments: &[String]) -> Result<Command, String> {
    let runner = hil::runner("differential")?;
    emulate::command(std::iter::once(runner).chain(arguments.iter().cloned()).collect())
}
