//! `cargo xtask audit`: what the project is built of, and under which licences.

use std::process::ExitCode;
use xtask::run::{self, check, program};
use xtask::tools::{DENY, SHEAR};

pub(crate) const HELP: &str = "\
cargo xtask audit

Checks all crates of Cargo.lock with cargo-deny: licences, sources, versions, and advisories, if
RustSec's database can be fetched or was before (else it says that they were not checked); and with
cargo-shear that each dependency is used. What they ask is in xtask/deny.toml. Programs that are not
there in the version of xtask/src/tools.rs are built in target/tools, which takes ten minutes. The
test command does not run this.
";

/// Runs all of it.
pub(crate) fn run() -> ExitCode {
    match audit() {
        Ok(()) => ExitCode::SUCCESS,
        Err(what) => run::failed(&what),
    }
}

fn audit() -> Result<(), String> {
    let deny = DENY.find()?;
    let deny = deny.to_string_lossy();
    let checked = |how: &[&str], what: &[&str]| {
        let words = [&["--workspace", "--config", "xtask/deny.toml"], how, &["check"], what].concat();
        program(&deny, &words)
    };
    check(checked(&["--log-level", "error"], &["licenses", "bans", "sources"]))?;
    println!("licences, versions and sources are as xtask/deny.toml says");
    // A database that cannot be had says nothing of the crates.
    let fetched = run::succeeds(program(&deny, &["--config", "xtask/deny.toml", "fetch", "db"]));
    let offline: &[&str] = if fetched { &[] } else { &["--offline"] };
    let known = fetched || run::succeeds(checked(&["--offline"], &["advisories"]));
    if known {
        check(checked(offline, &["advisories"]))?;
        println!("no advisory is about them");
    } else {
        println!("NOT CHECKED: advisories; RustSec's database cannot be fetched and was not before");
    }
    let shear = SHEAR.find()?;
    check(program(&shear.to_string_lossy(), &["shear"]))?;
    println!("all dependencies are used");
    Ok(())
}
