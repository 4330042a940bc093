//! `cargo xtask firmware --template`: copies the template for firmware to an empty folder. Builds, tests and
//! runs it there as the template's page says.

use super::image::emulate;
use std::fs;
use std::io::Write;
use xtask::debian;
use xtask::run::{self, At, check, program, root};
use xtask::toolchain::{Board, System, Toolchain};

const TEMPLATE: &str = "hil-tests/examples/firmware-template";
/// The path by which the template depends on this repository. In the copy it is replaced by an absolute path.
const DEPENDENCY: &str = "path = \"../../..\"";
/// The path of the built image in the copy of the template.
const IMAGE: &str = "target/aarch64-firmware/release/firmware";

/// The beginnings of lines that the image must log, in this order.
const LOG: [&str; 4] = [
    "info: UMR configure mkey 0x001234/00: access remote read, list of 2 entries, 128 bytes",
    "info: RDMA_WRITE: 128 bytes in 1 data segment",
    "info: no completion: TimedOut",
    "info: done",
];

/// Follows the commands of the template's page, and writes the image's log to `out`.
pub(super) fn follow(out: &mut dyn Write) -> Result<(), String> {
    debian::install(debian::EMULATORS)?;
    let folder = run::temporary("template")?;
    check(program("cp", &["-rT", TEMPLATE, &folder.path().to_string_lossy()]))?;
    // The template may contain build results.
    let _ = fs::remove_dir_all(folder.path().join("target"));
    let manifest = folder.path().join("Cargo.toml");
    let text = fs::read_to_string(&manifest).at(&manifest)?;
    if !text.contains(DEPENDENCY) {
        return Err(format!("{TEMPLATE}/Cargo.toml has no `{DEPENDENCY}`"));
    }
    fs::write(&manifest, text.replace(DEPENDENCY, &format!("path = {:?}", root()))).at(&manifest)?;
    let toolchain = Toolchain::find(Board::BlueField2, System::None)?;
    check(toolchain.elsewhere(folder.path(), false, &["test", "--lib", "--quiet"]))?;
    check(toolchain.elsewhere(folder.path(), true, &["firmware", "--quiet"]))?;
    let image = folder.path().join(IMAGE);
    let mut machine = program("timeout", &["60", "setpriv", "--pdeathsig", "KILL", "qemu-system-aarch64"]);
    machine.args(["-M", "virt", "-cpu", "cortex-a72", "-m", "1G", "-display", "none", "-monitor", "none"]);
    machine.args(["-nic", "none", "-serial", "stdio", "-kernel"]).arg(&image);
    let mut log = Vec::new();
    let status = emulate(machine, &image, &mut log)?;
    let log = String::from_utf8_lossy(&log).into_owned();
    out.write_all(log.as_bytes()).map_err(|error| error.to_string())?;
    let mut lines = log.lines();
    match LOG.into_iter().find(|wanted| !lines.any(|line| line.starts_with(wanted))) {
        Some(wanted) => Err(format!("the log of the template lacks `{wanted}`")),
        None if status != 0 => Err(format!("QEMU ended with {status}")),
        None => Ok(()),
    }
}
