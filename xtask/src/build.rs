//! `cargo xtask build`: builds the test programs for the Arm cores of a BlueField, for Linux or bare metal.

use crate::host::STORAGE;
use crate::run::{self, At, check};
use crate::toolchain::{self, Board, System, Toolchain};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// The help text.
pub const HELP: &str = "\
cargo xtask build --board bluefield2|bluefield3 --os none|linux [--release]

Builds the programs for the Arm cores of a BlueField, into target/BOARD/OS/PROFILE:

  linux   hil, the runner of the scenarios, and libmlx5_uverbs.so, the stand-in for the kernel
  none    the library for bare-metal programs, and the image that runs the scenarios: as
          hil-firmware-qemu-virt for QEMU (cargo xtask firmware), and as hil-firmware-bluefield for
          the board (linker/bluefield.x lists its assumptions)

The crates of this repository are compiled for the cores of the board, all others (core and alloc
included) once for both boards, with the instructions that both boards have.

The compiler is the one that runs this task, if its standard library for the target is installed
(rustup target add aarch64-unknown-linux-gnu, aarch64-unknown-none) or, for none, its sources
(rustup component add rust-src). Otherwise it is Debian's, which this task installs as root, and
else names. Toolchains of rustup are never changed.
";

/// The name of the bare-metal image for QEMU.
pub const QEMU_IMAGE: &str = "hil-firmware-qemu-virt";
/// The name of the bare-metal image for the board itself.
pub const BOARD_IMAGE: &str = "hil-firmware-bluefield";

/// Builds as the arguments say, and prints the paths of the built files.
pub fn run(arguments: &[String]) -> ExitCode {
    run::with_options(arguments, HELP, parse, |(board, system, release)| {
        run::status(build(board, system, release).map(|files| {
            files.iter().for_each(|file| println!("{}", file.display()));
        }))
    })
}

fn parse(words: &mut run::Options) -> Result<(Board, System, bool), String> {
    let (mut board, mut system, mut release) = (None, None, false);
    while let Some(option) = words.word()? {
        match option.as_str() {
            "--board" => board = Some(Board::named(&words.value::<String>()?)?),
            "--os" => system = Some(words.one_of(&System::ALL.map(|system| (system.name(), system)))?),
            "--release" => release = true,
            other => return Err(run::unknown(other)),
        }
    }
    Ok((board.ok_or("--board is missing")?, system.ok_or("--os is missing")?, release))
}

/// Builds the test programs for a board and a system in release mode, and returns the path of the program
/// `name`.
pub fn file(board: Board, system: System, name: &str) -> Result<PathBuf, String> {
    let files = build(board, system, true)?;
    files.into_iter().find(|file| file.ends_with(name)).ok_or_else(|| format!("{name} was not built"))
}

/// Builds the test programs for a board and a system, and returns their paths.
pub fn build(board: Board, system: System, release: bool) -> Result<Vec<PathBuf>, String> {
    let (selection, files) = match system {
        System::Linux => (
            // The default features compare with vectors and libmlx5, which a board does not need.
            &[
                "--no-default-features",
                "--package",
                "hil-tests",
                "--bin",
                "hil",
                "--package",
                "mlx5-uverbs",
                "--lib",
            ][..],
            &["hil", "libmlx5_uverbs.so"][..],
        ),
        System::None => (
            &["--package", "mlx5-mkey", "--package", "hil-firmware"][..],
            &["libmlx5_mkey.rlib", QEMU_IMAGE, BOARD_IMAGE][..],
        ),
    };
    build_these(board, system, release, selection, files)
}

/// Builds the programs of the storage example in release mode for a board's Linux, and returns their paths.
/// [`build`] leaves them out, because only some boards run them.
pub fn storage(board: Board) -> Result<Vec<PathBuf>, String> {
    build_these(board, System::Linux, true, &["--package", "hil-storage", "--bins"], &STORAGE)
}

/// Builds a selection of packages, and returns the paths of `files`.
fn build_these(
    board: Board,
    system: System,
    release: bool,
    selection: &[&str],
    files: &[&str],
) -> Result<Vec<PathBuf>, String> {
    let toolchain = Toolchain::find(board, system)?;
    eprintln!("building for {}, {}: {}", board.name(), system.name(), toolchain.name);
    let profile: &[&str] = if release { &["--release"] } else { &[] };
    check(toolchain.cargo(&[&["build", "--quiet"], profile, selection].concat()))?;
    copy_built(&toolchain, files, release, &toolchain::folder(board, system, release))
}

/// Copies files from cargo's output folder to `folder`, and returns their paths there.
fn copy_built(
    toolchain: &Toolchain,
    files: &[&str],
    release: bool,
    folder: &Path,
) -> Result<Vec<PathBuf>, String> {
    // Both boards share cargo's output folder for a system, because they share its target.
    let built = run::root().join("target/cross").join(&toolchain.triple);
    let built = built.join(if release { "release" } else { "debug" });
    let copy = |file: &&str| {
        let (from, to) = (built.join(file), folder.join(file));
        // The file is renamed into its place: another process may run the old file.
        let new = to.with_extension("new");
        let copied = fs::copy(&from, &new).and_then(|_| fs::rename(&new, &to));
        copied.map(|()| to).at(&from)
    };
    fs::create_dir_all(folder).at(folder)?;
    files.iter().map(copy).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(line: &str) -> Result<(Board, System, bool), String> {
        parse(&mut run::Options::new(line.split_whitespace()))
    }

    #[test]
    fn arguments() {
        let all = parsed("--os=linux --board bluefield3 --release");
        assert_eq!(all, Ok((Board::BlueField3, System::Linux, true)));
        for (line, expected) in [
            ("--board bluefield2", "--os is missing"),
            ("--os none", "--board is missing"),
            ("--board bluefield4 --os none", "unknown board `bluefield4`"),
            ("--board bluefield2 --os windows", "`windows` is not one of none, linux"),
            ("bluefield2", "invalid argument `bluefield2`"),
        ] {
            assert_eq!(parsed(line), Err(expected.into()), "{line}");
        }
    }
}
