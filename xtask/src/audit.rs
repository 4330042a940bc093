//! `cargo xtask audit`: licences, sources and advisories of all dependencies, and dependencies that nothing
//! uses.

use std::fs;
use std::path::{Path, PathBuf};
use xtask::run::{self, check, program};
use xtask::tools::{DENY, SHEAR};

pub(crate) const HELP: &str = "\
cargo xtask audit

Checks licences, sources, versions and advisories of all crates in Cargo.lock with cargo-deny, by
the rules of xtask/deny.toml, and looks for unused dependencies with cargo-shear. Advisories come
from RustSec's database. If the database can neither be fetched nor was fetched before, they are
skipped, and the last line of the output says so. xtask/src/tools.rs names the version of each tool;
a tool of another version is built in target/tools, which takes ten minutes. The step `audit` of
`cargo xtask test --nightly` runs this task.
";

pub(crate) fn run() -> Result<(), String> {
    let deny = DENY.find()?;
    let deny = deny.to_string_lossy();
    let checked = |how: &[&str], checks: &[&str]| {
        let words = [&["--workspace", "--config", "xtask/deny.toml"], how, &["check"], checks].concat();
        program(&deny, &words)
    };
    check(checked(&["--log-level", "error"], &["licenses", "bans", "sources"]))?;
    println!("licences, versions and sources obey xtask/deny.toml");
    let fetched = run::succeeds(program(&deny, &["--config", "xtask/deny.toml", "fetch", "db"]));
    let known = fetched || has_database(&databases()?);
    if known {
        let offline: &[&str] = if fetched { &[] } else { &["--offline"] };
        check(checked(offline, &["advisories"]))?;
        println!("no crate has an advisory");
    }
    let shear = SHEAR.find()?;
    check(program(&shear.to_string_lossy(), &["shear"]))?;
    println!("all dependencies are used");
    // The line about skipped advisories is the last line of the output, where nobody overlooks it.
    if !known {
        println!("SKIPPED: advisories; RustSec's database was never fetched and cannot be fetched now");
    }
    Ok(())
}

fn databases() -> Result<PathBuf, String> {
    let home = std::env::var_os("CARGO_HOME").map(PathBuf::from);
    let home = home.or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".cargo")));
    Ok(home.ok_or("neither CARGO_HOME nor HOME is set")?.join("advisory-dbs"))
}

/// Returns whether a fetch of this or an earlier run has stored a database of advisories. The exit status of
/// cargo-deny does not show a missing database: cargo-deny also fails if a crate has an advisory.
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
        // A failed fetch leaves only this folder behind.
        fs::create_dir_all(databases.join("advisory-db-1/.git")).unwrap();
        assert!(!has_database(&databases));
        fs::create_dir_all(databases.join("advisory-db-1/crates")).unwrap();
        assert!(has_database(&databases));
    }
}
