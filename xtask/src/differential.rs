//! `cargo xtask differential`: compares random requests of the installed libmlx5 with the same requests of
//! the library.

use std::num::NonZero;
use std::process::{Command, ExitCode};
use xtask::{emulate, host, run};

pub(crate) const HELP: &str = "\
cargo xtask differential [--count N] [--seed S]

Lets the installed libmlx5 (version 44) and the library write the same random requests, on a device
that does not execute them, and compares every byte that libmlx5 writes. Then two software devices
execute the rings, and memory, mkeys, PSVs and completions are compared, and also their decoding by
libmlx5 and by the library. The posting method of each request is random: alone or in a batch, with
the prepared configuration unchanged or changed in place. Rings have each size that libmlx5 makes,
with its limits or without. Half of the configurations run on a device with the multi-block AES-XTS
engine, half on one with the single-block engine.

  --count N   number of mkey configurations (default 20000); a run goes on up to four times this
              number while a kind of request has not occurred
  --seed S    repeat the run with this seed (default: a new seed, which is printed)

Exit status: 0 no difference; 1 a difference, or a kind of request never occurred, as in a run of a
few hundred configurations; 2 libmlx5 is missing or too old.
";

const COUNT: u64 = 20_000;
/// The AES-XTS engines. Each gets half of the configurations.
const ENGINES: [&str; 2] = ["multi-block", "single-block"];

/// Builds the program `differential`, and runs it behind the stand-in for the kernel, once for each AES-XTS
/// engine.
pub(crate) fn run(arguments: &[String]) -> ExitCode {
    run::with_options(arguments, HELP, parse, |(count, seed)| {
        let ends = prepare(count, seed).map(run::forward);
        ends.into_iter().find(|end| *end != ExitCode::SUCCESS).unwrap_or(ExitCode::SUCCESS)
    })
}

fn parse(words: &mut run::Options) -> Result<(u64, Option<u64>), String> {
    let (mut count, mut seed) = (NonZero::new(COUNT), None);
    while let Some(option) = words.word()? {
        match option.as_str() {
            "--count" => count = Some(words.value()?),
            "--seed" => seed = Some(words.value()?),
            other => return Err(run::unknown(other)),
        }
    }
    Ok((count.map_or(COUNT, NonZero::get), seed))
}

/// Builds the program `differential`. Returns a command for each AES-XTS engine, which runs the program
/// behind the stand-in for the kernel.
fn prepare(count: u64, seed: Option<u64>) -> [Result<Command, String>; 2] {
    ENGINES.map(|engine| {
        let runner = host::executes("differential")?.to_string_lossy().into_owned();
        let mut words = vec![runner, count.div_ceil(2).to_string(), engine.into()];
        words.extend(seed.map(|seed| seed.to_string()));
        let mut command = emulate::idle(words, "plaintext", engine)?;
        // libmlx5 would write a description of every error completion to standard error.
        command.env("MLX5_DEBUG_FILE", "/dev/null");
        Ok(command)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments() {
        let parsed = |line: &str| parse(&mut run::Options::new(line.split_whitespace()));
        assert_eq!(parsed(""), Ok((COUNT, None)));
        assert_eq!(parsed("--seed 7 --count 5"), Ok((5, Some(7))));
        for wrong in ["--count", "--count 0", "--count x", "--engine single-block", "7"] {
            assert!(parsed(wrong).is_err(), "{wrong}");
        }
    }
}
