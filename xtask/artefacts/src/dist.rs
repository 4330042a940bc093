//! `cargo xtask dist`: the stand-in and its launcher as an archive, for machines without cargo and Rust.

use super::glibc;
use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use xtask::run::{self, answer, check, program, root};
use xtask::toolchain::Toolchain;
use xtask::{debian, emulate};

const HELP: &str = "\
cargo xtask dist [--arch x86-64|arm64] [--check]

Makes target/dist/mlx5-emulate-VERSION-ARCH.tar.gz: the library that stands in for the kernel, the
launcher mlx5-emulate, licences and a README. Needed where it is unpacked: glibc as old as Debian
12's, a POSIX shell, libibverbs with libmlx5. hil-tests/EMULATOR.md is the page for who uses it.

  --arch NAME           x86-64 or arm64 (default: this machine's)
  --check               unpacks it, too, and runs ibv_devinfo in it, with an empty environment and,
                        where root runs this, as another user; on this machine's architecture
  --help                this text

The same sources and compiler make the same bytes.
";

/// What it is built for: the name on the command line, and the compiler's triple.
const ARCHITECTURES: &[(&str, &str, &str)] =
    &[("x86-64", "x86_64-unknown-linux-gnu", "x86_64"), ("arm64", "aarch64-unknown-linux-gnu", "aarch64")];

const LIBRARY: &str = "libmlx5_uverbs.so";

/// What is in the archive beside the library: the file here, its name there, its rights.
const FILES: &[(&str, &str, u32)] = &[
    (emulate::LAUNCHER, "mlx5-emulate", 0o755),
    ("hil-tests/uverbs/crypto_test_info.json", "crypto_test_info.json", 0o644),
    ("hil-tests/uverbs/bin/rdma", "bin/rdma", 0o755),
    ("hil-tests/EMULATOR.md", "README.md", 0o644),
    ("LICENSE-APACHE", "LICENSE-APACHE", 0o644),
    ("LICENSE-MIT", "LICENSE-MIT", 0o644),
];

/// Whoever runs the check as root becomes this: nobody's number on Debian.
const NOBODY: u32 = 65534;

/// Runs `cargo xtask dist` with the arguments after `dist`.
pub(super) fn run(arguments: &[String]) -> ExitCode {
    let (mut architecture, mut checked) = (std::env::consts::ARCH, false);
    let mut words = arguments.iter().map(String::as_str);
    while let Some(word) = words.next() {
        match word {
            "--help" | "-h" => return run::print(HELP, 0),
            "--check" => checked = true,
            "--arch" => architecture = words.next().unwrap_or_default(),
            other => return run::misuse(&format!("unexpected argument `{other}`\n\n{HELP}")),
        }
    }
    let known = ARCHITECTURES.iter().find(|(name, _, own)| [*name, *own].contains(&architecture));
    let Some((name, triple, own)) = known else {
        return run::misuse(&format!("unknown architecture `{architecture}`\n\n{HELP}"));
    };
    if checked && *own != std::env::consts::ARCH {
        return run::misuse(&format!("--check runs programs, which {name} is not for here"));
    }
    let made = make(name, triple).and_then(|archive| {
        if checked {
            try_out(&archive)?;
        }
        Ok(archive)
    });
    match made {
        Ok(archive) => run::print(&format!("{}\n", archive.display()), 0),
        Err(what) => run::failed(&what),
    }
}

/// Builds and packs, and returns the archive.
fn make(architecture: &str, triple: &str) -> Result<PathBuf, String> {
    let toolchain = Toolchain::portable(triple)?;
    check(toolchain.cargo(&["build", "--quiet", "--release", "--package", "mlx5-uverbs", "--lib"]))?;
    let library = root().join("target/cross").join(triple).join("release").join(LIBRARY);
    eprintln!("{}", glibc::check(&library, glibc::DEBIAN_12)?);
    let name = format!("mlx5-emulate-{}-{architecture}", env!("CARGO_PKG_VERSION"));
    let dist = root().join("target/dist");
    let folder = dist.join(&name);
    let lost = |error: std::io::Error| format!("{}: {error}", folder.display());
    if folder.exists() {
        fs::remove_dir_all(&folder).map_err(lost)?;
    }
    fs::create_dir_all(&folder).map_err(lost)?;
    put(&library, &folder.join(LIBRARY), 0o644)?;
    for (from, to, rights) in FILES {
        put(&root().join(from), &folder.join(to), *rights)?;
    }
    let archive = dist.join(format!("{name}.tar"));
    let mut tar = program("tar", &["--sort=name", "--mtime=@0", "--owner=0", "--group=0", "--numeric-owner"]);
    // Rights of files are set above; those of the folder would be the umask's.
    tar.args(["--format=ustar", "--mode=u=rwX,go=rX", "--directory"]).arg(&dist);
    tar.arg("--create").arg("--file").arg(&archive).arg(&name);
    check(tar)?;
    check(program("gzip", &["--no-name", "--best", "--force", &archive.to_string_lossy()]))?;
    Ok(archive.with_extension("tar.gz"))
}

fn put(from: &Path, to: &Path, rights: u32) -> Result<(), String> {
    let folder = to.parent().map_or(Ok(()), fs::create_dir_all);
    let copied = folder
        .and_then(|()| fs::copy(from, to))
        .and_then(|_| fs::set_permissions(to, fs::Permissions::from_mode(rights)));
    copied.map_err(|error| format!("{}: {error}", from.display()))
}

/// Runs `ibv_devinfo` from the unpacked archive as somebody who has nothing else.
fn try_out(archive: &Path) -> Result<(), String> {
    debian::install(&[debian::VERBS, debian::PEERS].concat())?;
    let folder = run::temporary("dist")?;
    // The other user goes through it.
    let opened = fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755));
    opened.map_err(|error| format!("{}: {error}", folder.path().display()))?;
    let place = folder.path().to_string_lossy();
    check(program("tar", &["-xzf", &archive.to_string_lossy(), "-C", &place]))?;
    let name = archive.file_stem().and_then(|name| Path::new(name).file_stem()).unwrap_or_default();
    let unpacked = folder.path().join(name);
    let devices = folder.path().join("devices");
    let lost = |error: std::io::Error| format!("{}: {error}", devices.display());
    fs::create_dir(&devices).map_err(lost)?;
    let mut command = Command::new("./mlx5-emulate");
    command.args(["--dir", &devices.to_string_lossy(), "ibv_devinfo", "-d", "mlx5_0"]);
    command.env_clear().current_dir(&unpacked);
    if fs::metadata("/proc/self").is_ok_and(|process| std::os::unix::fs::MetadataExt::uid(&process) == 0) {
        chown(&devices, Some(NOBODY), Some(NOBODY)).map_err(lost)?;
        command.gid(NOBODY).uid(NOBODY);
    }
    let printed = answer(command)?;
    if printed.contains("PORT_ACTIVE") {
        Ok(())
    } else {
        Err(format!("ibv_devinfo shows no active port:\n{printed}"))
    }
}
