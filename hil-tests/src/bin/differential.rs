//! Posts random requests with the library and with the installed libmlx5, and compares the bytes:
//! `differential [--count N] [--seed S] [--engine KIND]`. KIND is the AES-XTS engine: `multi-block` (the
//! default) or `single-block`. See `cargo xtask differential`.

use hil_tests::differential;
use std::process::ExitCode;
use std::time::{SystemTime, UNIX_EPOCH};

/// The number of mkey configurations that a run tries without `--count`.
const COUNT: u64 = 20_000;

/// The options of the command line.
struct Asked {
    count: u64,
    seed: u64,
    single_block: bool,
}

impl Asked {
    /// Parses the options. Returns `None` if they are invalid.
    fn parse(mut arguments: impl Iterator<Item = String>) -> Option<Self> {
        let fresh = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_nanos() as u64);
        let mut asked = Self { count: COUNT, seed: fresh, single_block: false };
        while let Some(argument) = arguments.next() {
            let value = arguments.next();
            let number = value.as_ref().and_then(|value| value.parse().ok());
            match (argument.as_str(), number, value.as_deref()) {
                ("--count", Some(value), _) if value > 0 => asked.count = value,
                ("--seed", Some(value), _) => asked.seed = value,
                ("--engine", _, Some("multi-block")) => asked.single_block = false,
                ("--engine", _, Some("single-block")) => asked.single_block = true,
                _ => return None,
            }
        }
        Some(asked)
    }
}

fn main() -> ExitCode {
    let Some(Asked { count, seed, single_block }) = Asked::parse(std::env::args().skip(1)) else {
        eprintln!("usage: differential [--count N] [--seed S] [--engine multi-block|single-block]");
        return ExitCode::from(2);
    };
    let tally = match differential::run(count, seed, single_block) {
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
    let counts = tally.coverage.counts();
    for (what, count) in &counts {
        println!("  {count:>8} {what}");
    }
    println!(
        "mkey_check: {} errors compared in full, {} in presence only, {} times no error",
        tally.coverage.checked, tally.presence_only, tally.without_error
    );
    let engine = if single_block { "single-block" } else { "multi-block" };
    println!(
        "{} configurations, {} differ, {} chains refused by both ({engine} engine, seed {seed})",
        tally.configurations, tally.differ, tally.refused
    );
    let missing: Vec<_> = counts.into_iter().filter(|(_, count)| *count == 0).collect();
    for (what, _) in &missing {
        println!("not covered: {what}");
    }
    if tally.differ == 0 && missing.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
