//! Programs of this workspace that run on this machine. They are built when they are needed.

use crate::run::{self, Ends, cargo, check};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// The environment variable that a parent process sets after it has built the programs that serve tasks. A
/// process with this variable skips its own call of cargo, which would wait for other builds.
pub const BUILT: &str = "XTASK_PROGRAMS_ARE_BUILT";

/// The environment variable that a parent process sets after it has built all tests. A process with this
/// variable runs the programs of that build instead of optimised ones.
const TESTED: &str = "XTASK_RUNS_PROGRAMS_OF_TESTS";

/// The program that serves the task `firmware`.
pub const FIRMWARE: &str = "xtask-firmware";

/// Cargo's options that select the packages of the first tier: all packages but [`FIRMWARE`], whose
/// dependencies would add about a tenth to the build.
///
/// Each call of cargo in the first tier has this selection. With another selection, dependencies may have
/// other features, and cargo would build them again.
pub const SELECTION: [&str; 3] = ["--workspace", "--exclude", FIRMWARE];

/// Builds programs of the workspace.
pub fn build_programs(names: &[&str]) -> Result<(), String> {
    let (apart, others): (Vec<&str>, Vec<&str>) = names.iter().partition(|name| **name == FIRMWARE);
    if !apart.is_empty() {
        check(cargo(&["build", "--package", FIRMWARE]))?;
    }
    if others.is_empty() {
        return Ok(());
    }
    let programs = others.iter().flat_map(|name| ["--bin", name]);
    check(cargo(&["build"].into_iter().chain(SELECTION).chain(programs).collect::<Vec<_>>()))
}

/// Builds the program that serves a task, and returns a command that runs it with these arguments.
pub fn task(package: &str, arguments: &[&str]) -> Result<Command, String> {
    if std::env::var_os(BUILT).is_none() {
        build_programs(&[package])?;
    }
    Ok(run::program(&run::built("debug", package)?.to_string_lossy(), arguments))
}

/// The programs of the storage example.
pub const STORAGE: [&str; 2] = ["storage_target", "storage_initiator"];

/// Builds the programs of the storage example, and returns their folder.
pub fn storage() -> Result<PathBuf, String> {
    build_programs(&STORAGE)?;
    let target = run::built("debug", STORAGE[0])?;
    target.parent().map(Path::to_path_buf).ok_or_else(|| format!("{} is in no folder", target.display()))
}

/// Builds the target of NVMe over fabrics, and returns its path.
pub fn nvme_target() -> Result<PathBuf, String> {
    const NAME: &str = "nvme_target";
    build_programs(&[NAME])?;
    run::built("debug", NAME)
}

/// Builds all tests, and sets a command to run the programs of this build, which are not optimised.
pub fn with_tested(mut command: Command) -> Result<Command, String> {
    check(cargo(&[&["test"], &SELECTION[..], &["--no-run", "--quiet"]].concat()))?;
    command.env(TESTED, "1");
    Ok(command)
}

/// Builds the programs and the library that execute work requests, in release mode unless the parent of this
/// process called [`with_tested`]. Returns the path of one of their files: `hil`, `differential`,
/// `mlx5-fabric`, `mlx5-function` or `libmlx5_uverbs.so`. One call of cargo builds all of them, so that their
/// dependencies are built once.
pub fn executes(name: &str) -> Result<PathBuf, String> {
    if std::env::var_os(TESTED).is_some() {
        // `cargo test` builds the library in `debug/deps` only. An outdated library of an earlier `cargo
        // build` may be in `debug`.
        return run::built("debug/deps", name).or_else(|_| run::built("debug", name));
    }
    // One build serves the whole process: otherwise a task that starts hundreds of programs would wait for
    // cargo each time.
    static BUILD: OnceLock<Result<(), String>> = OnceLock::new();
    let packages =
        ["hil-tests", "mlx5-fabric", "mlx5-function", "mlx5-uverbs"].map(|package| ["--package", package]);
    let build = [&["build", "--release"], packages.as_flattened()].concat();
    BUILD.get_or_init(|| check(cargo(&build))).clone()?;
    run::built("release", name)
}

/// Starts the process `mlx5-function`, which serves the software device as a PCI function over vfio-user.
/// Waits until the process listens on its socket.
pub fn serve(socket: &Path, arguments: &[String]) -> Result<Ends, String> {
    const LISTENS: Duration = Duration::from_secs(10);
    let path = executes("mlx5-function")?;
    // An earlier process that was killed may have left the file of its socket. The loop below waits for a new
    // file.
    let _ = std::fs::remove_file(socket);
    // `setpriv` ends the process of the function also if this process is killed.
    let mut function = run::program("setpriv", &["--pdeathsig", "KILL"]);
    function.arg(path).arg("--socket").arg(socket).args(arguments);
    let spawned = function.stdin(Stdio::null()).spawn();
    let mut function = Ends(spawned.map_err(|error| format!("the function cannot be started: {error}"))?);
    let end = Instant::now() + LISTENS;
    while !socket.exists() {
        let has_ended = matches!(function.0.try_wait(), Ok(Some(_)));
        if has_ended || Instant::now() > end {
            return Err("the function does not listen".into());
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    Ok(function)
}
