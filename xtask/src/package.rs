//! `cargo xtask package`: builds and tests the library from its package, the form in which a registry
//! distributes the library.

use std::path::{Path, PathBuf};
use std::process::Command;
use xtask::run::{self, answer, cargo, check, root};

pub(crate) const HELP: &str = "\
cargo xtask package

Packs the library, unpacks it in an empty folder, and builds and tests it there, without the rest of
the repository. The package stays in target/package.

  --help                this text
";

pub(crate) fn run() -> Result<(), String> {
    let target = run::itself()?.ancestors().nth(2).ok_or("no target directory")?;
    let packed = pack(target)?;
    let folder = run::temporary("package")?;
    unpack(&packed.file, folder.path())?;
    tests(&folder.path().join(&packed.name), target)
}

pub(crate) struct Packed {
    pub(crate) file: PathBuf,
    /// The name of the only folder in the package, `mlx5-mkey-VERSION`.
    pub(crate) name: String,
}

pub(crate) fn pack(target: &Path) -> Result<Packed, String> {
    // `--allow-dirty` packs and tests uncommitted changes too.
    let pack = ["package", "--package", "mlx5-mkey", "--no-verify", "--allow-dirty", "--quiet"];
    check(cargo(&pack))?;
    let version = answer(cargo(&["pkgid", "--package", "mlx5-mkey"]))?;
    let version = version.rsplit(['#', '@']).next().unwrap_or_default();
    let name = format!("mlx5-mkey-{version}");
    Ok(Packed { file: target.join("package").join(format!("{name}.crate")), name })
}

pub(crate) fn unpack(packed: &Path, folder: &Path) -> Result<(), String> {
    let mut tar = Command::new("tar");
    tar.arg("-xzf").arg(packed).arg("-C").arg(folder);
    check(tar)
}

/// Tests an unpacked package, in a separate target folder.
fn tests(package: &Path, target: &Path) -> Result<(), String> {
    let repository = root();
    if package.starts_with(&repository) {
        return Err(format!("{} is inside the repository", package.display()));
    }
    let mut command = cargo(&["test", "--quiet", "--features", "capi"]);
    command.current_dir(package).env("CARGO_TARGET_DIR", target.join("package-test"));
    // Few cases are enough here: the repository's own tests try more.
    command.env("PROPTEST_CASES", "16");
    check(command)
}
