//! `cargo xtask vectors`: ground truth.

use hil_tests::vectors::{Tally, repository_files};
use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Differences that are printed in full; the rest is counted.
const SHOWN: usize = 20;

/// Replays the files that are named, or those of the repository.
pub(crate) fn run(arguments: &[String]) -> ExitCode {
    match replay(arguments) {
        Ok(tally) if tally.differences.is_empty() => ExitCode::SUCCESS,
        Ok(_) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::from(2)
        }
    }
}

/// Replays the files of the repository.
///
/// # Errors
/// How many chains differ, or what could not be read.
pub(crate) fn check() -> Result<(), String> {
    let tally = replay(&[]).map_err(|error| error.to_string())?;
    if tally.differences.is_empty() {
        Ok(())
    } else {
        Err(format!("{} chains differ", tally.differences.len()))
    }
}

fn replay(arguments: &[String]) -> io::Result<Tally> {
    let files: Vec<PathBuf> = if arguments.is_empty() {
        repository_files()?
    } else {
        arguments.iter().map(PathBuf::from).collect()
    };
    let mut tally = Tally::default();
    for file in files {
        if file == Path::new("-") {
            tally.add_lines(io::stdin().lock())?;
        } else {
            tally.add_file(&file)?;
        }
    }
    for (vector, chain, what) in tally.differences.iter().take(SHOWN) {
        println!("{vector} chain {chain}: {what}");
    }
    println!("{}", tally.summary());
    Ok(tally)
}
