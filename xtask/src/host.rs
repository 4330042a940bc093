//! Programs of this workspace that run on this machine, built when they are needed.

use crate::run::{self, cargo, check};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// Set for a process whose parent has just built the programs of tasks: asking cargo again would only wait for another build.
pub const BUILT: &str = "XTASK_PROGRAMS_ARE_BUILT";

/// Builds programs of the workspace, those that serve tasks among them.
///
/// # Errors
/// What went wrong, in a sentence.
pub fn build_programs(names: &[&str]) -> Result<(), String> {
    // Of the whole workspace, so that what they depend on has the features that it has in `cargo test --workspace` and is built
    // once for both.
    let selection = names.iter().flat_map(|name| ["--bin", name]);
    check(cargo(&["build", "--workspace"].into_iter().chain(selection).collect::<Vec<_>>()))
}

/// Builds the program that serves a task and returns a command that runs it with these arguments.
///
/// # Errors
/// What went wrong, in a sentence.
pub fn task(package: &str, arguments: &[&str]) -> Result<Command, String> {
    if std::env::var_os(BUILT).is_none() {
        build_programs(&[package])?;
    }
    Ok(run::program(&run::built("debug", package)?.to_string_lossy(), arguments))
}

/// The programs of the storage example.
pub const STORAGE: [&str; 2] = ["storage_target", "storage_initiator"];

/// Builds the programs of the storage example, and returns where they are.
///
/// # Errors
/// What went wrong, in a sentence.
pub fn storage() -> Result<PathBuf, String> {
    build_programs(&STORAGE)?;
    let target = run::built("debug", STORAGE[0])?;
    target.parent().map(Path::to_path_buf).ok_or_else(|| format!("{} is in no folder", target.display()))
}

/// Builds what executes work requests, optimised, and returns where a file of it is: `hil`, `differential` or
/// `libmlx5_uverbs.so`. All of them in one call, so that each library under them is built once.
///
/// # Errors
/// What went wrong, in a sentence.
pub fn optimised(name: &str) -> Result<PathBuf, String> {
    // Once for this process: who starts programs by the hundred would wait for cargo each time.
    static BUILD: OnceLock<Result<(), String>> = OnceLock::new();
    let packages = ["build", "--release", "--package", "hil-tests", "--package", "mlx5-uverbs"];
    BUILD.get_or_init(|| check(cargo(&packages))).clone()?;
    run::built("release", name)
}
