//! `cargo xtask package`: builds and tests the library as a registry would hand it out.

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use xtask::run::{self, answer, cargo, check, root};

/// The answer to `--help`.
pub(crate) const HELP: &str = "\
cargo xtask package

Packs the library, unpacks it in an empty folder, and builds and tests what is there: nothing of it
may need the rest of the repository. The package is left in target/package.

  --help                this text
";

/// Runs `cargo xtask package`.
pub(crate) fn run() -> ExitCode {
    match test() {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => run::failed(&message),
    }
}

/// Packs and tests.
pub(crate) fn test() -> Result<(), String> {
    let target = run::itself()?.ancestors().nth(2).ok_or("no target directory")?;
    let packed = pack(target)?;
    let folder = run::temporary("package")?;
    unpack(&packed.file, folder.path())?;
    tests(&folder.path().join(&packed.name), target)
}

/// The library as a registry has it.
pub(crate) struct Packed {
    pub(crate) file: PathBuf,
    /// The folder in it.
    pub(crate) name: String,
}

/// Packs the library.
pub(crate) fn pack(target: &Path) -> Result<Packed, String> {
    // What is not committed is tested, too.
    let pack = ["package", "--package", "mlx5-mkey", "--no-verify", "--allow-dirty", "--quiet"];
    check(cargo(&pack))?;
    let version = answer(cargo(&["pkgid", "--package", "mlx5-mkey"]))?;
    let version = version.rsplit(['#', '@']).next().unwrap_or_default();
    let name = format!("mlx5-mkey-{version}");
    Ok(Packed { file: target.join("package").join(format!("{name}.crate")), name })
}

/// Unpacks it into a folder.
pub(crate) fn unpack(packed: &Path, folder: &Path) -> Result<(), String> {
    let mut tar = Command::new("tar");
    tar.arg("-xzf").arg(packed).arg("-C").arg(folder);
    check(tar)
}

/// Tests the unpacked package, beside what this repository's own builds have left.
fn tests(package: &Path, target: &Path) -> Result<(), String> {
    let repository = root();
    if package.starts_with(&repository) {
        return Err(format!("{} is inside of the repository", package.display()));
    }
    let mut command = cargo(&["test", "--quiet", "--features", "capi"]);
    command.current_dir(package).env("CARGO_TARGET_DIR", target.join("package-test"));
    // The repository's own tests try more.
    command.env("PROPTEST_CASES", "16");
    check(command)
}
