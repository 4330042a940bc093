//! The tasks of `cargo xtask` that need the library or the software device.

mod decode;
mod demo;
mod dpdk;
mod vectors;

use std::process::ExitCode;
use xtask::run;

fn main() -> ExitCode {
    let arguments = run::arguments();
    match arguments.split_first().map(|(task, rest)| (task.as_str(), rest)) {
        Some(("decode", rest)) => decode::run(rest),
        Some(("demo", rest)) => demo::run(rest),
        Some(("dpdk", rest)) => dpdk::run(rest),
        Some(("vectors", rest)) => vectors::run(rest),
        _ => run::misuse("not called by `cargo xtask`"),
    }
}
