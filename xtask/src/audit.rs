//! `cargo xtask audit`: what the project is built of, and under which licences.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use xtask::run::{self, check, program};
use xtask::tools::{DENY, SHEAR};

pub(crate) const HELP: &str = "\
cargo xtask audit

Checks all crates of Cargo.lock with cargo-deny: licences, sources, versions, and advisories, if
RustSec's database can be fetched or was before (else it says at the end that they were skipped);
and with cargo-shear that each dependency is used. What they ask is in xtask/deny.toml. Programs
that are not there in the version of xtask/src/tools.rs are built in target/tools, which takes ten
minutes. The step `audit` of `cargo xtask test --nightly` runs this.
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
    let fetched = run::succeeds(program(&deny, &["--config", "xtask/deny.toml", "fetch", "db"]));
    let known = fetched || has_database(&databases()?);
    if known {
        let offline: &[&str] = if fetched { &[] } else { &["--offline"] };
        check(checked(offline, &["advisories"]))?;
        println!("no advisory is about them");
    }
    let shear = SHEAR.find()?;
    check(program(&shear.to_string_lossy(), &["shear"]))?;
    println!("all dependencies are used");
    // Last, where it is seen.
    if !known {
        println!("SKIPPED: advisories; RustSec's database cannot be fetched and was not before");
    }
    Ok(())
}

/// Returns where cargo-deny keeps its databases.
fn databases() -> Result<PathBuf, String> {
    let home = std::env::var_os("CARGO_HOME").map(PathBuf::from);
    let home = home.or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".cargo")));
    Ok(home.ok_or("neither CARGO_HOME nor HOME is set")?.join("advisory-dbs"))
}

/// Whether one was fetched at some time. One that has something to say of the crates is there, too: it is not for cargo-deny to tell.
fn has_database(databases: &Path) -> bool {
    let folders = fs::read_dir(databases).into_iter().flatten().flatten();
    folders.into_iter().any(|folder| folder.path().join("crates").is_dir())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_database_has_advisories_of_crates() {
        let folder = run::temporary("audit").unwrap();
        let databases = folder.path().join("advisory-dbs");
        assert!(!has_database(&databases));
        // What a fetch that fails leaves behind.
        fs::create_dir_all(databases.join("advisory-db-1/.git")).unwrap();
        assert!(!has_database(&databases));
        fs::create_dir_all(databases.join("advisory-db-1/crates")).unwrap();
        assert!(has_database(&databases));
    }
}
