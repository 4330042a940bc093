//! The tasks of `cargo xtask` that run on boards (devices and emulated machines): `guest`, `hil`, `lab` and
//! `validate`.

mod guest;
mod hil;
mod lab;
mod labgrid;
mod machine;
mod vdpu;

use std::process::ExitCode;
use xtask::run;

fn main() -> ExitCode {
    // The first call of `itself` stores the path of this program. A task may run this program again after a
    // build has replaced its file, when the system no longer knows the path.
    let _ = run::itself();
    let arguments = run::arguments();
    match arguments.split_first().map(|(task, rest)| (task.as_str(), rest)) {
        Some(("guest", rest)) => guest::run(rest),
        Some(("hil", rest)) => hil::run(rest),
        Some(("lab", rest)) => lab::run(rest),
        Some(("validate", rest)) => hil::validate::run(rest),
        _ => run::misuse("call this program by `cargo xtask`"),
    }
}
