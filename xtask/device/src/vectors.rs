//! `cargo xtask vectors`: posts the inputs of recorded work requests of the reference provider (libmlx5) with
//! this library, and compares the bytes of the library's requests with the recorded bytes.

use hil_tests::recording::compare::compare;
use hil_tests::vectors::format::Vector;
use hil_tests::vectors::{Replay, SPDK, Tally, folder, read, read_file, repository_files};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use xtask::run;

/// The number of differences that are printed for each combination of posting method and queue limits.
/// Further differences are only counted.
const SHOWN: usize = 20;

pub(crate) const HELP: &str = "\
cargo xtask vectors [FILE... | -]

Replays recorded work requests of the reference provider and compares every byte, in each way of
posting, as recorded and with the queue's limits lifted. Without FILE: those of this repository, and
the work requests of SPDK, those of each doorbell posted anew as a chain and compared. - reads
standard input. Files that end in .gz are compressed.

Exit status: 0 nothing differs, 1 something does, 2 there is nothing to compare or it is unreadable.
";

/// Replays the vectors (recorded work requests) of the files that the arguments name. Without arguments,
/// replays the vectors of the repository.
pub(crate) fn run(arguments: &[String]) -> ExitCode {
    let option = |argument: &&String| argument.starts_with('-') && *argument != "-";
    match arguments.iter().find(option).map(String::as_str) {
        Some("--help" | "-h") => return run::print(HELP, 0),
        Some(option) => return run::misuse(&format!("unknown option {option}\n\n{HELP}")),
        None => {}
    }
    match replay(&mut io::stdout(), arguments) {
        Ok(0) => ExitCode::SUCCESS,
        Ok(count) => run::failed(&format!("{count} chains or requests differ")),
        Err(error) => run::lost(&error),
    }
}

/// Compares the vectors of the files, and prints the differences. Returns the number of chains and requests
/// that differ.
fn replay(out: &mut dyn Write, arguments: &[String]) -> io::Result<usize> {
    let files: Vec<PathBuf> = if arguments.is_empty() {
        repository_files()?
    } else {
        arguments.iter().map(PathBuf::from).collect()
    };
    let mut vectors: Vec<Vector> = Vec::new();
    for file in files {
        vectors.extend(if file == Path::new("-") { read(io::stdin().lock())? } else { read_file(&file)? });
    }
    if vectors.is_empty() {
        return Err(io::Error::other("no vectors"));
    }
    let chains: usize = vectors.iter().map(|vector| vector.chains.len()).sum();
    writeln!(out, "{chains} chains in {} sequences", vectors.len())?;
    let mut differ = 0;
    for how in Replay::all() {
        let tally = Tally::of(&vectors, how);
        for (vector, chain, what) in tally.differences.iter().take(SHOWN) {
            writeln!(out, "{how}: {vector} chain {chain}: {what}")?;
        }
        writeln!(out, "{how}: {}", tally.summary())?;
        differ += tally.differences.len();
    }
    if arguments.is_empty() {
        let comparison = compare(&read_file(&folder().join(SPDK))?);
        for what in comparison.differences.iter().take(SHOWN) {
            writeln!(out, "SPDK: {what}")?;
        }
        writeln!(out, "SPDK: {comparison}")?;
        differ += comparison.differences.len();
    }
    out.flush()?;
    Ok(differ)
}
