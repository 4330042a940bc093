//! `cargo xtask differential`: random requests, by the installed libmlx5 and by the library.

use crate::emulate;
use crate::run::{self, cargo, check};
use std::process::ExitCode;

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
    match build() {
        Ok(runner) => {
            let words = ["--".into(), runner].into_iter().chain(arguments.iter().cloned());
            emulate::run(&words.collect::<Vec<String>>())
        }
        Err(message) => {
            eprintln!("error: {message}");
            ExitCode::FAILURE
        }
    }
}

/// Builds the runner and returns where it is: beside this very program.
fn build() -> Result<String, String> {
    check(cargo(&["build", "--quiet", "--package", "hil-tests", "--bin", "differential"]))?;
    let this = std::env::current_exe().map_err(|error| error.to_string())?;
    Ok(this.with_file_name("differential").to_string_lossy().into_owned())
}
