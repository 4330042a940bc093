//! Runs programs for the Arm cores under qemu-aarch64, with the arm64 libmlx5 and the stand-in for the
//! kernel.

use crate::build;
use crate::debian::{self, Architecture, Dependencies};
use crate::toolchain::{Board, System};
use std::path::PathBuf;
use std::process::Command;

/// The file name of the stand-in for the kernel.
pub const STAND_IN: &str = "libmlx5_uverbs.so";

/// The package with libmlx5. Its dependencies are unpacked as well.
const LIBRARIES: &[&str] = &["ibverbs-providers"];

/// Returns the environment variables with which a program finds the software device. `stand_in` is the path
/// of the stand-in for the kernel, `crypto` the form in which the device imports keys.
#[must_use]
pub fn variables(stand_in: String, crypto: &str) -> [(String, String); 2] {
    [("LD_PRELOAD", stand_in), ("MLX5_UVERBS_CRYPTO", crypto.into())]
        .map(|(name, value)| (name.into(), value))
}

/// Builds the stand-in for the kernel for the cores of a BlueField, and returns its path.
pub fn stand_in(board: Board) -> Result<PathBuf, String> {
    build::file(board, System::Linux, STAND_IN)
}

/// Installs the emulator and libraries. Returns the beginning of a command line that emulates a program for a
/// board. The caller appends the path of that program.
pub fn words(board: Board, crypto: &str) -> Result<Vec<String>, String> {
    debian::install(debian::EMULATORS)?;
    let libraries = debian::unpack(None, Architecture::Arm64, "verbs", LIBRARIES, Dependencies::Included)?;
    // `-E` sets a variable for the emulated program only. The emulator itself is a program of this machine.
    let mut words = vec!["qemu-aarch64".to_owned(), "-L".into(), libraries.display().to_string()];
    for (name, value) in variables(stand_in(board)?.display().to_string(), crypto) {
        words.extend(["-E".into(), format!("{name}={value}")]);
    }
    Ok(words)
}

/// Returns a command of these words, without this process's own `LD_PRELOAD`: the emulator is a program of
/// this machine, and only the emulated program gets the stand-in for the kernel.
///
/// # Errors
/// `words` is empty.
pub fn command(words: &[String]) -> Result<Command, String> {
    let (emulator, rest) = words.split_first().ok_or("nothing to run")?;
    let mut command = Command::new(emulator);
    command.args(rest).env_remove("LD_PRELOAD").env_remove("SYSFS_PATH");
    Ok(command)
}
