//! `cargo xtask chaos`: device, kernel and peers that break their word, by seeds.

use std::process::{Command, ExitCode};
use xtask::debian;
use xtask::run::{self, cargo};

pub(crate) const HELP: &str = "\
cargo xtask chaos [--seeds N | --seed S]

Has the device and the kernel break their word while programs work: calls fail or are answered late,
destroying is refused, completions come late, twice, never or of strangers, queues overrun, the
device is removed. A seed says what goes wrong and what the program does meanwhile. Of each request
the program must be told once (it completed, failed, or was handed back by recovery), nothing may be
left over, and nothing may hang. A seed that fails is printed with the command that repeats it.

  --seeds N    seeds in one process, on the shim (default: 100000; the tests run 2000)
  --seed S     that one alone
  --help       this text
";

/// Tells the test which seeds it is to run.
const SEEDS: &str = "MLX5_CHAOS_SEEDS";

/// The test.
const TEST: &str = "chaos::each_request_is_told_of_once";

/// What the command line asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Options {
    seeds: std::ops::Range<u64>,
    help: bool,
}

/// Runs `cargo xtask chaos` with the arguments after `chaos`.
pub(crate) fn run(arguments: &[String]) -> ExitCode {
    let options = match parse(arguments) {
        Ok(Options { help: true, .. }) => return run::print(HELP, 0),
        Ok(options) => options,
        Err(message) => return run::misuse(&format!("error: {message}\n\n{HELP}")),
    };
    run::forward(shim(&options.seeds))
}

fn parse(arguments: &[String]) -> Result<Options, String> {
    use lexopt::prelude::*;
    let mut options = Options { seeds: 0..100_000, help: false };
    let explain = |error: lexopt::Error| error.to_string();
    let mut parser = lexopt::Parser::from_args(arguments);
    let number =
        |parser: &mut lexopt::Parser| parser.value().and_then(|value| value.parse::<u64>()).map_err(explain);
    while let Some(argument) = parser.next().map_err(explain)? {
        match argument {
            Long("seeds") => options.seeds = 0..number(&mut parser)?,
            Long("seed") => {
                let seed = number(&mut parser)?;
                options.seeds = seed..seed.saturating_add(1);
            }
            Long("help") | Short('h') => options.help = true,
            other => return Err(explain(other.unexpected())),
        }
    }
    Ok(options)
}

/// Returns the command that runs seeds in one process.
fn shim(seeds: &std::ops::Range<u64>) -> Result<Command, String> {
    debian::install(debian::VERBS)?;
    let mut command = cargo(&["test", "--release", "--quiet", "--package", "mlx5-uverbs", "--test", "devx"]);
    command.args(["--", TEST, "--exact", "--nocapture"]);
    command.env(SEEDS, format!("{}..{}", seeds.start, seeds.end));
    Ok(command)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(line: &str) -> Result<Options, String> {
        parse(&line.split_whitespace().map(String::from).collect::<Vec<_>>())
    }

    #[test]
    fn arguments() {
        assert_eq!(parsed("").unwrap().seeds, 0..100_000);
        assert_eq!(parsed("--seeds 7").unwrap().seeds, 0..7);
        assert_eq!(parsed("--seed 7").unwrap().seeds, 7..8);
        for wrong in ["--seeds", "--seed x", "7", "--pair"] {
            assert!(parsed(wrong).is_err(), "{wrong}");
        }
    }
}
