//! `cargo xtask differential`: random requests, by the installed libmlx5 and by the library.

use std::process::{Command, ExitCode};
use xtask::{emulate, host, run};

pub(crate) const HELP: &str = "\
cargo xtask differential [--count N] [--seed S]

Has the installed libmlx5 (version 44) and the library write the same random requests, on a device
of the stand-in that does not execute them, and compares every byte that libmlx5 writes. Then both
rings are executed, each by a software device of its own, and everything that can be seen is
compared: memory, mkeys, PSVs, completions, and what both sides make of them. Each chain is posted
in a way that is drawn (one by one or in a batch, configurations as they were prepared or changed in
place), in rings of each size that libmlx5 makes, with its limits or without. Half run on a device
whose cipher takes many data units, the rest on one whose cipher takes one.

  --count N   configurations of mkeys that are tried (default 20000)
  --seed S    repeats a run (default: another one each time; it is printed)

Exit status: 0 nothing differs, 1 something does, or what is counted was never there (as in a run of
a few hundred), 2 there is no libmlx5, or it lacks something.
";

/// Configurations that are tried unless told otherwise.
const COUNT: u64 = 20_000;
/// The engines. Each gets half of the configurations: with 2500 it happens that an mkey with a signature error is never configured
/// again.
const ENGINES: [&str; 2] = ["multi-block", "single-block"];

/// Builds the runner and runs it under the stand-in.
pub(crate) fn run(arguments: &[String]) -> ExitCode {
    if arguments.iter().any(|argument| argument == "--help" || argument == "-h") {
        return run::print(HELP, 0);
    }
    let Some((count, seed)) = parse(arguments) else { return run::misuse(HELP) };
    let mut worst = ExitCode::SUCCESS;
    for command in prepare(count, seed) {
        let code = run::forward(command);
        if code != ExitCode::SUCCESS {
            worst = code;
        }
    }
    worst
}

/// Compares as many as CI does.
///
/// # Errors
/// What went wrong, in a sentence.
pub(crate) fn check() -> Result<(), String> {
    prepare(COUNT, None).into_iter().try_for_each(|command| run::check(command?))
}

fn parse(arguments: &[String]) -> Option<(u64, Option<u64>)> {
    let (mut count, mut seed) = (COUNT, None);
    let mut rest = arguments.iter();
    while let Some(argument) = rest.next() {
        let value = rest.next().and_then(|value| value.parse().ok())?;
        match argument.as_str() {
            "--count" if value > 0 => count = value,
            "--seed" => seed = Some(value),
            _ => return None,
        }
    }
    Some((count, seed))
}

/// Builds the runner and returns it as it is to be run under the stand-in, with each engine.
fn prepare(count: u64, seed: Option<u64>) -> [Result<Command, String>; 2] {
    ENGINES.map(|engine| {
        let runner = host::optimised("differential")?.to_string_lossy().into_owned();
        let count = count.div_ceil(2).to_string();
        let mut words = vec![runner, "--count".into(), count, "--engine".into(), engine.into()];
        if let Some(seed) = seed {
            words.extend(["--seed".into(), seed.to_string()]);
        }
        let mut command = emulate::command(words, "plaintext", engine)?;
        // Where libmlx5 would describe every error completion that it takes.
        command.env("MLX5_DEBUG_FILE", "/dev/null");
        Ok(command)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments() {
        let parsed = |line: &str| {
            let words: Vec<String> = line.split_whitespace().map(String::from).collect();
            parse(&words)
        };
        assert_eq!(parsed(""), Some((COUNT, None)));
        assert_eq!(parsed("--seed 7 --count 5"), Some((5, Some(7))));
        for wrong in ["--count", "--count 0", "--count x", "--engine single-block", "7"] {
            assert_eq!(parsed(wrong), None, "{wrong}");
        }
    }
}
