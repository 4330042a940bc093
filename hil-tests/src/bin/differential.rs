//! Posts random requests with the library and with the installed libmlx5, and compares the bytes:
//! `differential COUNT ENGINE [SEED]`. COUNT is the number of mkey configurations that the run tries. ENGINE
//! is the AES-XTS engine: `multi-block` or `single-block`. See `cargo xtask differential`.

use hil_tests::differential;
use std::error::Error;
use std::process::ExitCode;
use std::time::{SystemTime, UNIX_EPOCH};

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    match run(&words) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::from(2)
        }
    }
}

fn run(words: &[String]) -> Result<bool, Box<dyn Error>> {
    let (count, engine, seed) = match words {
        [count, engine, seed @ ..] if matches!(&engine[..], "multi-block" | "single-block") => {
            (count, engine, seed.first())
        }
        _ => return Err("usage: differential COUNT multi-block|single-block [SEED]".into()),
    };
    let fresh = SystemTime::now().duration_since(UNIX_EPOCH)?.as_nanos() as u64;
    let seed = seed.map_or(Ok(fresh), |seed| seed.parse())?;
    let tally = differential::run(count.parse()?, seed, engine == "single-block")?;
    println!("{tally} ({engine} engine, seed {seed})");
    Ok(tally.is_good())
}
