//! Installs labgrid's Python package below `target`, in the versions of `requirements.txt`. The Python of
//! this machine stays unchanged.

use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::sync::{Mutex, PoisonError};
use xtask::debian;
use xtask::run::{At, answer, check, program, root};

/// labgrid's Python package and its dependencies, each with a version.
const REQUIREMENTS: &str = include_str!("requirements.txt");
/// Debian's Python. Some of labgrid's dependencies are built for its version.
const PYTHON: &str = "/usr/bin/python3";

/// Returns a call of Python that finds labgrid's package. Installs the package first if necessary.
pub(crate) fn python() -> Result<Command, String> {
    let mut command = program(PYTHON, &[]);
    command.env("PYTHONPATH", install()?);
    Ok(command)
}

fn install() -> Result<PathBuf, String> {
    // One thread installs at a time. Several processes may install at once: each renames a complete folder
    // into place.
    static ONE: Mutex<()> = Mutex::new(());
    let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    debian::install(debian::PIP)?;
    // The content of the file that marks a complete installation. It names the version of Python, because
    // some of labgrid's dependencies are compiled for one version.
    let wanted = format!("# {}\n{REQUIREMENTS}", answer(program(PYTHON, &["--version"]))?);
    let home = root().join("target/labgrid");
    let is_there = || fs::read_to_string(home.join("installed")).is_ok_and(|there| there == wanted);
    if is_there() {
        return Ok(home);
    }
    let made = tempfile::tempdir_in(root().join("target")).at(&home)?.keep();
    let list = made.join("requirements.txt");
    fs::write(&list, REQUIREMENTS).at(&home)?;
    let mut pip = program(PYTHON, &["-m", "pip", "install", "--quiet", "--disable-pip-version-check"]);
    pip.args(["--root-user-action", "ignore", "--only-binary", ":all:", "--no-deps", "--no-compile"]);
    pip.arg("--target").arg(&made).arg("--requirement").arg(&list);
    let installed = check(pip).and_then(|()| fs::write(made.join("installed"), &wanted).at(&home));
    if installed.is_ok() {
        let _ = fs::remove_dir_all(&home);
        // The rename fails if another process has installed labgrid first.
        let _ = fs::rename(&made, &home);
    }
    let _ = fs::remove_dir_all(&made);
    installed.and_then(|()| {
        if is_there() { Ok(home.clone()) } else { Err(format!("{} is another version's", home.display())) }
    })
}
