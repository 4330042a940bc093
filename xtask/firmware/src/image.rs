//! Builds the bare-metal image with the scenarios, runs it in QEMU, and decodes its log (defmt frames).

use defmt_decoder::{DecodeError, Table};
use std::fs;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use xtask::build::QEMU_IMAGE;
use xtask::debian;
use xtask::run::{At, program};
use xtask::toolchain::{Board, System};

/// The size of the emulated machine's memory, as in `linker/qemu-virt.x`.
const MEMORY: &str = "1G";

/// Installs QEMU, builds the image that runs in QEMU, and returns its path.
pub(super) fn build(board: Board) -> Result<PathBuf, String> {
    debian::install(debian::EMULATORS)?;
    xtask::build::file(board, System::None, QEMU_IMAGE)
}

/// Runs QEMU with an image, writes each line of the image's log to `out`, and returns the exit status.
///
/// # Errors
/// A description of a failure outside of the image.
pub(super) fn emulate(mut machine: Command, image: &Path, out: &mut dyn Write) -> Result<u8, String> {
    let elf = fs::read(image).at(image)?;
    let table = Table::parse(&elf).map_err(|error| error.to_string())?.ok_or("the image has no log table")?;
    machine.stdin(Stdio::null()).stdout(Stdio::piped());
    let mut child = machine.spawn().map_err(|error| format!("QEMU could not be run: {error}"))?;
    let frames = child.stdout.take().ok_or("no output to read")?;
    let shown = decode(&table, frames, out);
    if shown.is_err() {
        // The log cannot be written, so the run is useless. A failed kill shows in `wait` below.
        let _ = child.kill();
    }
    let status = child.wait().map_err(|error| error.to_string())?;
    shown.map_err(|error| error.to_string())?;
    status.code().and_then(|code| u8::try_from(code).ok()).ok_or(format!("QEMU ended with {status}"))
}

/// Returns a command that runs an image in QEMU, with `words` as the image's command line. QEMU ends when
/// this process ends.
pub(super) fn machine(board: Board, image: &Path, words: &[String]) -> Command {
    let core = match board {
        Board::BlueField2 => "cortex-a72",
        // QEMU 7.2 does not emulate the Cortex-A78. The Neoverse N1 is of the same family, and also
        // implements Armv8.2.
        Board::BlueField3 => "neoverse-n1",
    };
    let mut semihosting = String::from("enable=on,target=native,arg=hil-firmware");
    for word in words {
        // QEMU reads a comma as the end of an argument, and two commas as one comma.
        semihosting.push_str(",arg=");
        semihosting.push_str(&word.replace(',', ",,"));
    }
    let qemu = ["--pdeathsig", "KILL", "qemu-system-aarch64", "-M", "virt", "-m", MEMORY, "-cpu", core];
    // The machine has no displays, ports or network.
    let nothing = ["-display", "none", "-serial", "none", "-monitor", "none", "-nic", "none"];
    let image = image.to_string_lossy();
    let image = ["-semihosting-config", &semihosting, "-kernel", &image];
    program("setpriv", &[&qemu[..], &nothing, &image].concat())
}

/// Decodes the image's log frames, and writes each line as soon as it arrives.
fn decode(table: &Table, mut frames: impl Read, out: &mut dyn Write) -> io::Result<()> {
    let mut decoder = table.new_stream_decoder();
    let mut bytes = [0; 4096];
    loop {
        let read = match frames.read(&mut bytes) {
            Ok(0) => return Ok(()),
            Ok(read) => read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        };
        decoder.received(bytes.get(..read).unwrap_or_default());
        loop {
            match decoder.decode() {
                Ok(frame) => match frame.level() {
                    Some(level) => writeln!(out, "{}: {}", level.as_str(), frame.display_message())?,
                    None => writeln!(out, "{}", frame.display_message())?,
                },
                Err(DecodeError::UnexpectedEof) => break,
                // After a malformed frame, the decoder continues with the next one.
                Err(DecodeError::Malformed) => writeln!(out, "error: a malformed log frame")?,
            }
        }
        out.flush()?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commas_arrive() {
        let command = machine(Board::BlueField2, Path::new("image"), &["--filter".into(), "a,b".into()]);
        let words: Vec<_> = command.get_args().filter_map(|word| word.to_str()).collect();
        let semihosting = "enable=on,target=native,arg=hil-firmware,arg=--filter,arg=a,,b";
        assert!(words.contains(&semihosting), "{words:?}");
    }
}
