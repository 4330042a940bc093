//! The target architectures of `cargo xtask dist`, and the files of the emulator for archives and Debian
//! packages: the library that stands in for the kernel's mlx5 driver, its launcher, and related files.

use super::glibc;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use xtask::emulate;
use xtask::run::{At, check, root};
use xtask::toolchain::Toolchain;

/// A target architecture of `cargo xtask dist`, with its names.
#[derive(Clone, Copy, Debug)]
pub(super) struct Target {
    /// The name on the command line (`--arch`).
    pub(super) name: &'static str,
    /// The compiler's triple.
    pub(super) triple: &'static str,
    /// The name in `std::env::consts::ARCH`.
    own: &'static str,
    /// The name in Debian packages.
    pub(super) debian: &'static str,
    /// The name of Debian's folder for libraries of this architecture.
    pub(super) multiarch: &'static str,
}

impl Target {
    /// Returns whether this machine has the architecture.
    pub(super) fn is_own(&self) -> bool {
        self.own == std::env::consts::ARCH
    }
}

pub(super) static ARCHITECTURES: [Target; 2] = [
    Target {
        name: "x86-64",
        triple: "x86_64-unknown-linux-gnu",
        own: "x86_64",
        debian: "amd64",
        multiarch: "x86_64-linux-gnu",
    },
    Target {
        name: "arm64",
        triple: "aarch64-unknown-linux-gnu",
        own: "aarch64",
        debian: "arm64",
        multiarch: "aarch64-linux-gnu",
    },
];

const LIBRARY: &str = "libmlx5_uverbs.so";

/// The program and cargo package that joins emulated devices over TCP. All programs on one machine meet in a
/// directory, and the gateway joins the directories of several machines.
const GATEWAY: &str = "mlx5-fabric";

/// The page for users of the archive. It becomes the README of the archive.
pub(super) const PAGE: &str = "hil-tests/emulator/EMULATOR.md";

/// The other files of the emulator's archive: the path in the repository, the path in the archive, and the
/// permissions.
const FILES: &[(&str, &str, u32)] = &[
    (emulate::LAUNCHER, "mlx5-emulate", 0o755),
    ("hil-tests/emulator/verbs/crypto_test_info.json", "crypto_test_info.json", 0o644),
    ("hil-tests/emulator/faults/include/mlx5_faults.h", "include/mlx5_faults.h", 0o644),
    (PAGE, "README.md", 0o644),
    ("hil-tests/emulator/CI.md", "CI.md", 0o644),
    ("LICENSE-APACHE", "LICENSE-APACHE", 0o644),
    ("LICENSE-MIT", "LICENSE-MIT", 0o644),
];

/// The folder of the crate `mlx5-faults`, in the repository and in the archive. Programs in Rust use this
/// crate to ask the emulator for failures.
const CRATE: (&str, &str) = ("hil-tests/emulator/faults", "rust/mlx5-faults");
/// The files of `mlx5-faults` that the archive contains, except the manifest.
const CRATE_FILES: &[&str] = &[
    "src/emulator.rs",
    "src/incident.rs",
    "src/lib.rs",
    "src/rule.rs",
    "src/status.rs",
    "src/visits.rs",
    "src/word.rs",
];

/// The start of the manifest of `mlx5-faults` in the archive, where the crate belongs to no workspace. The
/// version follows.
const MANIFEST: &str = "\
[package]
name = \"mlx5-faults\"
description = \"Failures on demand, for programs that run on the emulated mlx5 device.\"
edition = \"2024\"
rust-version = \"1.89\"
license = \"MIT OR Apache-2.0\"
publish = false
version = ";

/// The end of the manifest of `mlx5-faults` in the archive: the dependencies.
const DEPENDENCIES: &str = "\n\n[dependencies]\nlibc = \"0.2\"\n";

/// Copies the crate `mlx5-faults` to its place in a folder, with a manifest for use outside of a workspace.
fn put_crate(folder: &Path) -> Result<(), String> {
    let (from, to) = (root().join(CRATE.0), folder.join(CRATE.1));
    CRATE_FILES.iter().try_for_each(|file| put(&from.join(file), &to.join(file), 0o644))?;
    let manifest = format!("{MANIFEST}\"{}\"{DEPENDENCIES}", env!("CARGO_PKG_VERSION"));
    let file = to.join("Cargo.toml");
    fs::write(&file, manifest)
        .and_then(|()| fs::set_permissions(&file, fs::Permissions::from_mode(0o644)))
        .at(&file)
}

/// Returns cargo's output folder for a triple.
pub(super) fn cross(triple: &str) -> PathBuf {
    root().join("target/cross").join(triple).join("release")
}

/// Builds the stand-in for the kernel's driver and the gateway. Returns the toolchain.
pub(super) fn stand_in(triple: &str) -> Result<Toolchain, String> {
    let toolchain = Toolchain::portable(triple)?;
    check(toolchain.cargo(&["build", "--quiet", "--release", "--package", "mlx5-uverbs", "--lib"]))?;
    check(toolchain.cargo(&["build", "--quiet", "--release", "--package", GATEWAY, "--bin", GATEWAY]))?;
    Ok(toolchain)
}

/// Puts the stand-in, its launcher and the gateway into a folder.
pub(super) fn put_emulator(triple: &str, folder: &Path) -> Result<(), String> {
    let library = cross(triple).join(LIBRARY);
    eprintln!("{}", glibc::check(&library, glibc::DEBIAN_12)?);
    put(&library, &folder.join(LIBRARY), 0o644)?;
    let gateway = cross(triple).join(GATEWAY);
    eprintln!("{}", glibc::check(&gateway, glibc::DEBIAN_12)?);
    put(&gateway, &folder.join(GATEWAY), 0o755)?;
    FILES.iter().try_for_each(|(from, to, rights)| put(&root().join(from), &folder.join(to), *rights))?;
    put_crate(folder)
}

/// Copies a file, makes the folders above it, and sets its permissions.
pub(super) fn put(from: &Path, to: &Path, rights: u32) -> Result<(), String> {
    let folder = to.parent().map_or(Ok(()), fs::create_dir_all);
    let copied = folder
        .and_then(|()| fs::copy(from, to))
        .and_then(|_| fs::set_permissions(to, fs::Permissions::from_mode(rights)));
    copied.at(from)
}
