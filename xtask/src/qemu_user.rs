//! Programs for the Arm cores under qemu-aarch64, behind the arm64 libmlx5 and the stand-in for the kernel.

use crate::build;
use crate::debian::{self, Architecture, Dependencies};
use crate::toolchain::{Board, System};
use std::path::PathBuf;
use std::process::Command;

/// The stand-in, as it is built.
pub const STAND_IN: &str = "libmlx5_uverbs.so";

/// libmlx5, and what it is linked with.
const LIBRARIES: &[&str] = &["ibverbs-providers"];

/// Returns the variables by which a program finds the software device, which takes keys in the way that `crypto` says.
#[must_use]
pub fn variables(stand_in: String, crypto: &str) -> [(String, String); 2] {
    [("LD_PRELOAD", stand_in), ("MLX5_UVERBS_CRYPTO", crypto.into())]
        .map(|(name, value)| (name.into(), value))
}

/// Builds the stand-in for a BlueField's cores, and returns where it is.
///
/// # Errors
/// As [`build::build`].
pub fn stand_in(board: Board) -> Result<PathBuf, String> {
    build::file(board, System::Linux, STAND_IN)
}

/// Gets ready what a program needs, and returns the words that run one that stands behind them.
///
/// # Errors
/// What has to be installed, or what went wrong, in a sentence.
pub fn words(board: Board, crypto: &str) -> Result<Vec<String>, String> {
    debian::install(debian::EMULATORS)?;
    let libraries = debian::unpack(Architecture::Arm64, "verbs", LIBRARIES, Dependencies::Included)?;
    // The emulator's own environment is that of this machine's programs.
    let mut words = vec!["qemu-aarch64".to_owned(), "-L".into(), libraries.display().to_string()];
    for (name, value) in variables(stand_in(board)?.display().to_string(), crypto) {
        words.extend(["-E".into(), format!("{name}={value}")]);
    }
    Ok(words)
}

/// Returns a command of these words, in which only the emulated program has the stand-in.
///
/// # Errors
/// There are none.
pub fn command(words: &[String]) -> Result<Command, String> {
    let (emulator, rest) = words.split_first().ok_or("nothing to run")?;
    let mut command = Command::new(emulator);
    command.args(rest).env_remove("LD_PRELOAD").env_remove("SYSFS_PATH");
    Ok(command)
}
