//! `cargo xtask vectors`: ground truth.

use hil_tests::vectors::{Tally, repository_files};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use xtask::run;

/// Differences that are printed in full; the rest is counted.
const SHOWN: usize = 20;

pub(crate) const HELP: &str = "\
cargo xtask vectors [FILE... | -]

Replays recorded work requests of the reference provider and compares every byte. Without FILE:
those of this repository; - reads standard input. Files that end in .gz are compressed.

Exit status: 0 nothing differs, 1 something does, 2 there is nothing to compare or it is unreadable.
";

/// Replays the files that are named, or those of the repository.
pub(crate) fn run(arguments: &[String]) -> ExitCode {
    let option = |argument: &&String| argument.starts_with('-') && *argument != "-";
    match arguments.iter().find(option).map(String::as_str) {
        Some("--help" | "-h") => return run::print(HELP, 0),
        Some(option) => return run::misuse(&format!("unknown option {option}\n\n{HELP}")),
        None => {}
    }
    match replay(&mut io::stdout(), arguments) {
        Ok(tally) if tally.differences.is_empty() => ExitCode::SUCCESS,
        Ok(tally) => run::failed(&format!("{} chains differ", tally.differences.len())),
        Err(error) => run::lost(&error),
    }
}

fn replay(out: &mut dyn Write, arguments: &[String]) -> io::Result<Tally> {
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
    if tally.sequences == 0 {
        return Err(io::Error::other("no vectors"));
    }
    for (vector, chain, what) in tally.differences.iter().take(SHOWN) {
        writeln!(out, "{vector} chain {chain}: {what}")?;
    }
    writeln!(out, "{} chains in {} sequences", tally.chains(), tally.sequences)?;
    writeln!(out, "{}", tally.summary())?;
    out.flush()?;
    Ok(tally)
}
