//! Every task of the project: `cargo xtask help`.

mod demo;
mod run;
mod test;
mod tidy;
mod vectors;

use std::process::ExitCode;

const HELP: &str = "\
cargo xtask TASK

  test                  everything that CI runs: tidy, format, lints, tests, vectors, freestanding build
  vectors [FILE… | -]   replay recorded work requests of the reference provider and compare every byte
                        (default: those of this repository; - reads standard input)
  demo [--file PATH] [--fault NAME]
                        run the examples of the manual pages, rows A to J and a file on the software device
  tidy                  check the rules of the house: which module may know which, where unsafe may stand
  help                  this text
";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let (task, rest) =
        arguments.split_first().map_or(("help", &[][..]), |(task, rest)| (task.as_str(), rest));
    match task {
        "test" => test::run(),
        "vectors" => vectors::run(rest),
        "demo" => demo::run(rest),
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
