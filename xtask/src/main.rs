//! Every task of the project: `cargo xtask help`.

mod decode;
mod demo;
mod emulate;
mod peer;
mod run;
mod test;
mod tidy;
mod vectors;

use std::process::ExitCode;

const HELP: &str = "\
cargo xtask TASK

  demo [--file PATH] [--fault NAME]
                        run the examples of the manual pages, rows A to J and a file on the software device
  test                  everything that CI runs
  vectors [FILE… | -]   replay recorded work requests of the reference provider and compare every byte
                        (default: those of this repository; - reads standard input)
  decode HEX|FILE|-     print work requests (or, with --cqe, completions) in words, and what a device would refuse
  emulate [options] -- COMMAND…
                        run any verbs program on a software mlx5_0 (`emulate --help`)
  peer                  rdma-core's tests and perftest, unchanged, on the software device
  tidy                  check the rules of the house: which module may know which, where unsafe may stand
  help                  this text
";

fn main() -> ExitCode {
    let arguments: Vec<String> =
        std::env::args_os().skip(1).map(|argument| argument.to_string_lossy().into_owned()).collect();
    let (task, rest) =
        arguments.split_first().map_or(("help", &[][..]), |(task, rest)| (task.as_str(), rest));
    match task {
        "demo" => demo::run(rest),
        "test" => test::run(),
        "vectors" => vectors::run(rest),
        "decode" => decode::run(rest),
        "emulate" => emulate::run(rest),
        "peer" => peer::run(),
        "tidy" => tidy::run(),
        "help" | "--help" | "-h" => {
            print!("{HELP}");
            ExitCode::SUCCESS
        }
        _ => {
            eprint!("unknown task `{task}`\n\n{HELP}");
            ExitCode::from(2)
        }
    }
}
