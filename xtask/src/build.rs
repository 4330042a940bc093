//! `cargo xtask build`: what runs on the Arm cores of a BlueField.

use crate::host::STORAGE;
use crate::run::{self, check};
use crate::toolchain::{self, Board, System, Toolchain};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// The answer to `--help`.
pub const HELP: &str = "\
cargo xtask build --board bluefield2|bluefield3 --os none|linux [--release]

Builds what runs on the Arm cores of a BlueField, into target/BOARD/OS/PROFILE:

  linux   hil, the runner of the scenarios, and libmlx5_uverbs.so, which stands in for the kernel
  none    the library, for programs without a system, and the image that runs the scenarios:
          hil-firmware-qemu-virt for QEMU (cargo xtask firmware) and hil-firmware-bluefield for the
          board (linker/bluefield.x says what it assumes)

The compiler is the one that runs this task, if it has the target (rustup target add
aarch64-unknown-linux-gnu, aarch64-unknown-none) or, for none, the sources of its library (rustup
component add rust-src); else Debian's, which is installed when this runs as root, else named.
rustup is asked, never changed.
";

/// The bare-metal image for QEMU.
pub const QEMU_IMAGE: &str = "hil-firmware-qemu-virt";
/// The one for the board itself.
pub const BOARD_IMAGE: &str = "hil-firmware-bluefield";

/// Builds as the arguments say and prints where it is.
pub fn run(arguments: &[String]) -> ExitCode {
    if arguments.iter().any(|argument| argument == "--help" || argument == "-h") {
        return run::print(HELP, 0);
    }
    let (board, system, release) = match parse(arguments) {
        Ok(wanted) => wanted,
        Err(what) => return run::misuse(&format!("{what}\n\n{HELP}")),
    };
    match build(board, system, release) {
        Ok(files) => {
            let lines: String = files.iter().map(|file| format!("{}\n", file.display())).collect();
            run::print(&lines, 0)
        }
        Err(what) => run::failed(&what),
    }
}

fn parse(arguments: &[String]) -> Result<(Board, System, bool), String> {
    use lexopt::prelude::*;
    let mut parser = lexopt::Parser::from_args(arguments.iter().map(std::ffi::OsString::from));
    let (mut board, mut system, mut release) = (None, None, false);
    let explain = |error: lexopt::Error| error.to_string();
    while let Some(argument) = parser.next().map_err(explain)? {
        match argument {
            Long("board") => {
                let name = parser.value().and_then(|value| value.string()).map_err(explain)?;
                board = Some(Board::named(&name)?);
            }
            Long("os") => {
                let name = parser.value().and_then(|value| value.string()).map_err(explain)?;
                let known = System::ALL.into_iter().find(|system| system.name() == name);
                system = Some(known.ok_or(format!("unknown system `{name}`"))?);
            }
            Long("release") => release = true,
            other => return Err(explain(other.unexpected())),
        }
    }
    Ok((board.ok_or("--board is missing")?, system.ok_or("--os is missing")?, release))
}

/// Builds the release for a board and returns where one of its files is.
///
/// # Errors
/// As [`build`].
pub fn file(board: Board, system: System, name: &str) -> Result<PathBuf, String> {
    let files = build(board, system, true)?;
    files.into_iter().find(|file| file.ends_with(name)).ok_or_else(|| format!("{name} was not built"))
}

/// Builds for a board and returns the files.
///
/// # Errors
/// What went wrong, or what has to be installed, in a sentence.
pub fn build(board: Board, system: System, release: bool) -> Result<Vec<PathBuf>, String> {
    let (selection, files) = match system {
        System::Linux => (
            // The runner without what compares, which stays with the sources.
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

/// Builds the release of the storage example's programs for a board's Linux and returns the files. Only boards that run
/// them need them, so [`build`] leaves them out.
///
/// # Errors
/// As [`build`].
pub fn storage(board: Board) -> Result<Vec<PathBuf>, String> {
    build_these(board, System::Linux, true, &["--package", "hil-storage", "--bins"], &STORAGE)
}

/// Builds what a selection of cargo's names and returns these files of it.
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

/// Copies files from where cargo has left them.
fn copy_built(
    toolchain: &Toolchain,
    files: &[&str],
    release: bool,
    folder: &Path,
) -> Result<Vec<PathBuf>, String> {
    // Cargo's folder is one for all boards, since Linux has one triple for both.
    let built = run::root().join("target/cross").join(&toolchain.triple);
    let built = built.join(if release { "release" } else { "debug" });
    let copy = |file: &&str| {
        let (from, to) = (built.join(file), folder.join(file));
        // Moved into its place as a whole: another process may run what was there before.
        let new = to.with_extension("new");
        let copied = fs::copy(&from, &new).and_then(|_| fs::rename(&new, &to));
        copied.map(|()| to).map_err(|error| format!("{}: {error}", from.display()))
    };
    fs::create_dir_all(folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    files.iter().map(copy).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(line: &str) -> Result<(Board, System, bool), String> {
        parse(&line.split_whitespace().map(String::from).collect::<Vec<_>>())
    }

    #[test]
    fn arguments() {
        let all = parsed("--os=linux --board bluefield3 --release");
        assert_eq!(all, Ok((Board::BlueField3, System::Linux, true)));
        for (line, what) in [
            ("--board bluefield2", "--os is missing"),
            ("--os none", "--board is missing"),
            ("--board bluefield4 --os none", "unknown board `bluefield4`"),
            ("--board bluefield2 --os windows", "unknown system `windows`"),
            ("bluefield2", "unexpected argument \"bluefield2\""),
        ] {
            assert_eq!(parsed(line), Err(what.into()), "{line}");
        }
    }
}
