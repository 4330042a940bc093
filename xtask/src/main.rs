//! Every task of the project: `cargo xtask help`.

mod debian;
mod decode;
mod demo;
mod differential;
mod emulate;
mod hex;
mod hil;
mod peer;
mod run;
mod test;
mod tidy;
mod vectors;

use std::process::ExitCode;

const HELP: &str = "\
cargo xtask TASK

  demo [--file PATH] [--fault NAME]
                        run the examples of the manual pages, rows A to J and a file on the software
                        device
  test                  everything that CI runs
  vectors [FILE… | -]   replay recorded work requests of the reference provider and compare every
                        byte (default: those of this repository; - reads standard input)
  decode HEX|FILE|-     print work requests (or, with --cqe, completions) in words, and what a
                        device would refuse
  hil [--board softdev|uverbs|DEVICE] [--filter TEXT]
                        run the scenarios on a board: the software device, the same behind libmlx5,
                        or a device of this machine
  differential [--count N] [--seed S]
                        compare random requests with what the installed libmlx5 writes
  emulate [options] -- COMMAND…
                        run any verbs program on a software mlx5_0 (`emulate --help`)
  peer                  rdma-core's tests and perftest, unchanged, on the software device
  tidy                  check the rules of the house: which module may know which, where unsafe may
                        stand
  help                  this text

Each task answers --help. Exit status: 0 all is well, 1 it is not, 2 the arguments make no sense.
";

fn main() -> ExitCode {
    let arguments: Vec<String> =
        std::env::args_os().skip(1).map(|argument| argument.to_string_lossy().into_owned()).collect();
    let (task, rest) =
        arguments.split_first().map_or(("help", &[][..]), |(task, rest)| (task.as_str(), rest));
    match task {
        "demo" => demo::run(rest),
        "test" => test::run(rest),
        "vectors" => vectors::run(rest),
        "decode" => decode::run(rest),
        "hil" => hil::run(rest),
        "differential" => differential::run(rest),
        "emulate" => emulate::run(rest),
        "peer" => run::no_arguments(rest, peer::HELP).unwrap_or_else(peer::run),
        "tidy" => tidy::run(rest),
        "help" | "--help" | "-h" => run::no_arguments(rest, HELP).unwrap_or_else(|| run::print(HELP, 0)),
        _ => run::misuse(&format!("unknown task `{task}`\n\n{HELP}")),
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn help_fits_a_line() {
        for help in [
            super::HELP,
            super::decode::USAGE,
            super::differential::HELP,
            super::hil::HELP,
            super::peer::HELP,
            super::test::HELP,
            super::tidy::HELP,
        ] {
            assert_eq!(help.lines().find(|line| line.chars().count() > 100), None);
        }
    }
}
