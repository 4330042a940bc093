//! Compares the library with the installed libmlx5: `differential [--count N] [--seed S]`. See `cargo xtask differential`.

use hil_tests::differential;
use std::process::ExitCode;
use std::time::{SystemTime, UNIX_EPOCH};

/// Configurations that are tried unless told otherwise.
const COUNT: u64 = 20_000;

fn main() -> ExitCode {
    let fresh = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_nanos() as u64);
    let (mut count, mut seed) = (COUNT, fresh);
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        match (argument.as_str(), arguments.next().and_then(|value| value.parse().ok())) {
            ("--count", Some(value)) if value > 0 => count = value,
            ("--seed", Some(value)) => seed = value,
            _ => {
                eprintln!("usage: differential [--count N] [--seed S]");
                return ExitCode::from(2);
            }
        }
    }
    let tally = match differential::run(count, seed) {
        Ok(tally) => tally,
        Err(error) => {
            eprintln!("error: {error}");
            return ExitCode::from(2);
        }
    };
    for difference in &tally.differences {
        println!("{difference}");
    }
    println!(
        "{} chains, {} configurations in those that both sides post, {} blocks compared",
        tally.chains, tally.posted, tally.blocks
    );
    println!(
        "{} configurations, {} differ, {} refused by both (seed {seed})",
        tally.configurations, tally.differ, tally.refused
    );
    if tally.differ == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
