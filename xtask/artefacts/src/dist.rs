//! `cargo xtask dist`: packs archives for machines without cargo and Rust. One contains the emulator: a
//! library that stands in for the kernel's mlx5 driver, and its launcher. The other one contains everything
//! that validates a card.

use super::emulated::System;
use super::files::{ARCHITECTURES, PAGE, Target, cross, put, put_emulator, stand_in};
use super::{glibc, packages};
use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use xtask::debian;
use xtask::debian::{Architecture, Dependencies};
use xtask::host::STORAGE;
use xtask::run::{self, At, answer, check, program, root};
use xtask::toolchain::Toolchain;

const HELP: &str = "\
cargo xtask dist [--validate | --deb] [--arch x86-64|arm64] [--check] [--check-chroot] [--twice]

Makes target/dist/mlx5-emulate-VERSION-ARCH.tar.gz. It contains the stand-in for the kernel, the
launcher mlx5-emulate, licences, and hil-tests/emulator/EMULATOR.md as its README. A machine that
uses it needs Debian 12's glibc or a newer one, a POSIX shell, and libibverbs with libmlx5.

  --validate      make target/dist/mlx5-validate-VERSION-ARCH.tar.gz instead: scenarios,
                  benchmarks, the examples, the stand-in, and a script ./validate that runs them on
                  a card and packs a report (src/guide/bluefield.md). With --check, the script runs
                  on the stand-in, also with a fault of its device; for arm64 on another machine, in
                  a minimal Debian system whose programs qemu-user runs
  --deb           make Debian packages in target/dist instead: mlx5-emulate (the stand-in and its
                  launcher), libmlx5-mkey1 and libmlx5-mkey-dev (the library for C, its header,
                  symbols and file for pkg-config), with the crates in each (CycloneDX) and the
                  checksums of all files there (SHA256SUMS). --check-chroot installs and uses them
                  in a new Debian system. The variable DEBEMAIL names their maintainer
  --arch NAME     x86-64 or arm64 (default: this machine's)
  --check         also unpack the archive and run ibv_devinfo with it, in an empty environment: as
                  user nobody if root runs this, and under qemu-user for another architecture
  --check-chroot  also make a Debian system in target/dist/system, from debootstrap's variant
                  minbase, ibverbs-providers and ibverbs-utils, and run there the README's first
                  steps, and its steps for several machines in two network namespaces, all as user
                  nobody in a user namespace; needs root to make the system, and this machine's
                  architecture
  --twice         build the archive twice, each time from the beginning, and compare both: the same
                  sources, compiler and folder make the same bytes
  --help          print this text
";

/// The content of the archive that validates a card: the page that becomes its README, its script, and its
/// programs. For each program: the cargo package, the name in the package, and the name in the archive.
const VALIDATION_PAGE: &str = "src/guide/bluefield.md";
const SCRIPT: &str = "xtask/boards/src/hil/validate/validate.sh";
const VALIDATION: &[(&str, &str, &str)] = &[
    ("xtask-boards", "xtask-boards", "runner"),
    ("hil-tests", "hil", "hil"),
    ("mlx5-bench", "bench", "bench"),
    ("hil-storage", STORAGE[0], STORAGE[0]),
    ("hil-storage", STORAGE[1], STORAGE[1]),
];
/// The examples of the cargo package `hil-tests` that the archive for validation contains, each with a text
/// that it prints.
const EXAMPLES: &[(&str, &str)] = &[
    ("protected_write", "block 1"),
    ("nvme_tcp_digests", "both digests are good"),
    ("async_completions", "sent 40, got "),
];

/// The number of Debian's user `nobody`. If root runs `dist`, checks run as this user.
const NOBODY: u32 = 65534;

/// The sections of the README ([`PAGE`]) whose commands are run, and the script that runs them.
const SECTIONS: [&str; 2] = ["First steps", "Several machines"];
const UNPRIVILEGED: &str = "xtask/artefacts/src/unprivileged.sh";

/// The Debian packages that the commands of the README need.
const UTILITIES: &[&str] = &["ibverbs-providers", "ibverbs-utils"];

struct Options {
    target: Target,
    /// The content of the archive, or `None` for Debian packages.
    content: Option<Content>,
    /// The checks: `--check` (`own`), `--check-chroot` and `--twice`.
    own: bool,
    chroot: bool,
    twice: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Content {
    Emulator,
    Validation,
}

pub(super) fn run(arguments: &[String]) -> ExitCode {
    run::with_options(arguments, HELP, parse, |options| match perform(&options) {
        Ok(made) => {
            let lines: String = made.iter().map(|file| format!("{}\n", file.display())).collect();
            run::print(&lines, 0)
        }
        Err(error) => run::failed(&error),
    })
}

fn parse(words: &mut run::Options) -> Result<Options, String> {
    let mut target = ARCHITECTURES.into_iter().find(Target::is_own);
    let (mut content, [mut own, mut chroot, mut twice]) = (Some(Content::Emulator), [false; 3]);
    while let Some(option) = words.word()? {
        match option.as_str() {
            "--validate" => content = Some(Content::Validation),
            "--deb" => content = None,
            "--check" => own = true,
            "--check-chroot" => chroot = true,
            "--twice" => twice = true,
            "--arch" => target = Some(words.one_of(&ARCHITECTURES.map(|target| (target.name, target)))?),
            other => return Err(run::unknown(other)),
        }
    }
    let target = target.ok_or("this machine is neither x86-64 nor arm64: name one with --arch")?;
    let is_emulated = target.is_own() || target.name == "arm64";
    match content {
        _ if chroot && !target.is_own() => {
            Err(format!("--check-chroot runs programs for {}, which this machine cannot run", target.name))
        }
        Some(Content::Validation) if chroot => Err("--validate has the check --check only".into()),
        Some(Content::Validation) if own && !is_emulated => {
            Err("--check of --validate runs programs of this machine, and of arm64".into())
        }
        None if own || twice => Err("--deb has the check --check-chroot only".into()),
        content => Ok(Options { target, content, own, chroot, twice }),
    }
}

/// Makes the archive or the packages, and checks them. Returns their paths.
fn perform(Options { target, content, own, chroot, twice }: &Options) -> Result<Vec<PathBuf>, String> {
    let Some(content) = *content else {
        let made = packages::make(target)?;
        if *chroot {
            packages::try_out(&made)?;
        }
        return Ok(made);
    };
    let archive = if *twice { make_twice(content, target)? } else { make(content, target)? };
    if *own {
        debian::install(debian::VERBS)?;
        if content == Content::Validation {
            let system = if target.is_own() { None } else { Some(System::make()?) };
            validate(&archive, system.as_ref())?;
        } else {
            debian::install(if target.is_own() { debian::PEERS } else { debian::EMULATORS })?;
            try_out(&archive, target.is_own())?;
        }
    }
    if *chroot {
        follow_the_page(&archive)?;
    }
    Ok(vec![archive])
}

/// Builds the archive twice, each time without earlier results, and compares both.
fn make_twice(content: Content, target: &Target) -> Result<PathBuf, String> {
    let read = |archive: &Path| fs::read(archive).at(archive);
    let built = cross(target.triple);
    let anew = || {
        if built.exists() {
            fs::remove_dir_all(&built).at(&built)?;
        }
        make(content, target)
    };
    let first = read(&anew()?)?;
    let archive = anew()?;
    if read(&archive)? == first { Ok(archive) } else { Err("two builds made different archives".into()) }
}

/// Builds the content of an archive, packs it, and returns the path of the archive.
fn make(content: Content, Target { name: architecture, triple, .. }: &Target) -> Result<PathBuf, String> {
    let toolchain = stand_in(triple)?;
    let kind = match content {
        Content::Validation => "validate",
        Content::Emulator => "emulate",
    };
    let name = format!("mlx5-{kind}-{}-{architecture}", env!("CARGO_PKG_VERSION"));
    let dist = root().join("target/dist");
    let folder = dist.join(&name);
    run::empty(&folder)?;
    match content {
        Content::Validation => put_validation(&toolchain, triple, &folder)?,
        Content::Emulator => put_emulator(triple, &folder)?,
    }
    let archive = dist.join(format!("{name}.tar"));
    let mut tar = program("tar", &["--sort=name", "--mtime=@0", "--owner=0", "--group=0", "--numeric-owner"]);
    // `put` has set the permissions of files. The permissions of folders depend on the umask, so tar must set
    // them.
    tar.args(["--format=ustar", "--mode=u=rwX,go=rX", "--directory"]).arg(&dist);
    tar.arg("--create").arg("--file").arg(&archive).arg(&name);
    check(tar)?;
    check(program("gzip", &["--no-name", "--best", "--force", &archive.to_string_lossy()]))?;
    Ok(archive.with_extension("tar.gz"))
}

/// Builds everything that the archive for validation contains, and copies it to a folder.
fn put_validation(toolchain: &Toolchain, triple: &str, folder: &Path) -> Result<(), String> {
    let selection = VALIDATION.iter().flat_map(|(package, name, _)| ["--package", package, "--bin", name]);
    let words: Vec<&str> = ["build", "--quiet", "--release"].into_iter().chain(selection).collect();
    check(toolchain.cargo(&words))?;
    for (_, name, to) in VALIDATION {
        let program = cross(triple).join(name);
        eprintln!("{}", glibc::check(&program, glibc::UBUNTU_22_04)?);
        put(&program, &folder.join("bin").join(to), 0o755)?;
    }
    let examples = EXAMPLES.iter().flat_map(|(name, _)| ["--example", name]);
    let words = ["build", "--quiet", "--release", "--package", "hil-tests"].into_iter().chain(examples);
    check(toolchain.cargo(&words.collect::<Vec<_>>()))?;
    for (name, _) in EXAMPLES {
        let example = cross(triple).join("examples").join(name);
        eprintln!("{}", glibc::check(&example, glibc::UBUNTU_22_04)?);
        put(&example, &folder.join("bin").join(name), 0o755)?;
    }
    let write = |name: &str, text: &str| {
        let file = folder.join(name);
        fs::write(&file, format!("{text}\n")).at(&file)
    };
    write("machine", triple.split('-').next().unwrap_or_default())?;
    // Sources without a git repository have no commit.
    let commit = answer(program("git", &["describe", "--always", "--dirty"]));
    write("bin/commit", &commit.unwrap_or_else(|_| "unknown".into()))?;
    let built = ["xtask-boards", "hil-tests", "mlx5-bench", "hil-storage", "mlx5-uverbs"];
    write("crates.cdx.json", packages::bill(&built, triple)?.trim_end())?;
    put_emulator(triple, &folder.join("emulator"))?;
    put(&root().join(SCRIPT), &folder.join("validate"), 0o755)?;
    for (from, to) in
        [(VALIDATION_PAGE, "README.md"), ("LICENSE-APACHE", "LICENSE-APACHE"), ("LICENSE-MIT", "LICENSE-MIT")]
    {
        put(&root().join(from), &folder.join(to), 0o644)?;
    }
    Ok(())
}

/// Runs the script of the unpacked archive on the stand-in, in an empty environment: a case that passes, the
/// examples, then a case that fails by a fault of the device. The report of the failing case must explain the
/// failure. On this machine, root runs the script as user `nobody`. In another system (`system`), the script
/// can use only the programs of that system.
fn validate(archive: &Path, system: Option<&System>) -> Result<(), String> {
    let folder = match system {
        None => run::temporary("dist")?,
        Some(system) => system.temporary()?,
    };
    let opened = fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755));
    opened.at(folder.path())?;
    let unpacked = unpack(archive, folder.path())?;
    let writable = folder.path().join("reports");
    fs::create_dir(&writable).at(&writable)?;
    let is_nobody = system.is_none() && debian::is_root();
    if is_nobody {
        chown(&writable, Some(NOBODY), Some(NOBODY)).at(&writable)?;
    }
    let command = |program: &Path, fault: Option<&str>| {
        let mut command = match system {
            None => {
                let mut command = Command::new(program);
                command.env_clear().env("PATH", "/usr/bin:/bin").env("TMPDIR", &writable);
                command.envs(fault.map(|fault| ("HIL_BREAK", fault))).current_dir(&writable);
                command
            }
            Some(system) => {
                system.command(&writable, fault.map(|fault| format!("HIL_BREAK={fault}")), program)
            }
        };
        if is_nobody {
            command.gid(NOBODY).uid(NOBODY);
        }
        command
    };
    let seen = |path: &Path| system.map_or_else(|| path.to_owned(), |system| system.inside(path));
    let run = |case: &str, fault: Option<&str>| -> Result<(bool, String, String), String> {
        let file = writable.join(format!("{case}.tar.gz"));
        let mut command = command(&unpacked.join("validate"), fault);
        command.args(["--stand-in", "--filter", case, "--ways", "request", "--out"]).arg(seen(&file));
        let output = command.output().map_err(|error| format!("./validate: {error}"))?;
        let said = [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
        let mut tar = Command::new("tar");
        tar.args(["--wildcards", "-xzOf"]).arg(&file).arg("*/report.html");
        let page = answer(tar).map_err(|error| format!("{error}\n./validate said:\n{}", said.concat()))?;
        Ok((output.status.success(), said.concat(), page))
    };
    let (good, said, page) = run("r028_write_replaces_read", None)?;
    if !good || !said.contains("1 of 1 cases passed") || !page.contains("Not hardware") {
        return Err(format!("./validate says of a sound device:\n{said}"));
    }
    for (name, text) in EXAMPLES {
        let mut example = command(&unpacked.join("emulator/mlx5-emulate"), None);
        example.arg("--").arg(seen(&unpacked.join("bin").join(name)));
        let printed = answer(example)?;
        if !printed.contains(text) {
            return Err(format!("the example {name} says:\n{printed}"));
        }
    }
    let (good, said, page) = run("r030_what_a_queue_pair_denies_no_key_gives", Some("denied-as-access"))?;
    let explained =
        ["The deviation: ", "CFG 147", "block 0: RDMA_READ", "./validate --stand-in --filter r030_"];
    match explained.into_iter().find(|part| !page.contains(part)) {
        _ if good => Err(format!("./validate says nothing of a broken device:\n{said}")),
        Some(part) => Err(format!("the report of a broken device lacks `{part}`:\n{page}")),
        None => Ok(()),
    }
}

/// Unpacks the archive into a folder, and returns the path of the archive's own folder in it.
fn unpack(archive: &Path, folder: &Path) -> Result<PathBuf, String> {
    check(program("tar", &["-xzf", &archive.to_string_lossy(), "-C", &folder.to_string_lossy()]))?;
    let name = archive.file_stem().and_then(|name| Path::new(name).file_stem()).unwrap_or_default();
    Ok(folder.join(name))
}

/// Runs `ibv_devinfo` on the software device of the unpacked archive, with an empty environment. If the
/// archive is for this machine's architecture (`is_own`), root runs the program as user `nobody`. Otherwise
/// qemu-user runs it.
fn try_out(archive: &Path, is_own: bool) -> Result<(), String> {
    let folder = run::temporary("dist")?;
    // The user `nobody` must be allowed to enter the folder.
    let opened = fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755));
    opened.at(folder.path())?;
    let unpacked = unpack(archive, folder.path())?;
    let devices = folder.path().join("devices");
    fs::create_dir(&devices).at(&devices)?;
    let mut command = Command::new("./mlx5-emulate");
    command.env_clear().current_dir(&unpacked).args(["--dir", &devices.to_string_lossy()]);
    if is_own {
        command.arg("ibv_devinfo");
        if debian::is_root() {
            chown(&devices, Some(NOBODY), Some(NOBODY)).at(&devices)?;
            command.gid(NOBODY).uid(NOBODY);
        }
    } else {
        // The shell and the loader that start the emulated program are programs of this machine. Each warns
        // that it cannot load the arm64 library, which is for the emulated program. This is harmless.
        let system =
            debian::unpack(None, Architecture::Arm64, "utilities", UTILITIES, Dependencies::Included)?;
        command.args(["qemu-aarch64", "-L"]).arg(&system).arg(system.join("usr/bin/ibv_devinfo"));
    }
    command.args(["-d", "mlx5_0"]);
    let printed = answer(command)?;
    if printed.contains("PORT_ACTIVE") {
        Ok(())
    } else {
        Err(format!("ibv_devinfo shows no active port:\n{printed}"))
    }
}

/// Follows the README ([`PAGE`]) in a new Debian system, with only the packages that the README's steps need,
/// without root rights: as user `nobody`, in namespaces of this user.
fn follow_the_page(archive: &Path) -> Result<(), String> {
    let page = root().join(PAGE);
    let page = fs::read_to_string(&page).at(&page)?;
    let [steps, machines] = SECTIONS.map(|name| commands(&page, name).ok_or(format!("{PAGE}: no {name}")));
    let system = root().join("target/dist/system");
    debian::bootstrap(&system, UTILITIES)?;
    let home = system.join("home/user");
    fs::create_dir_all(&home).at(&home)?;
    let name = archive.file_name().unwrap_or_default();
    fs::copy(archive, home.join(name)).at(&home)?;
    chown(&home, Some(NOBODY), Some(NOBODY)).at(&home)?;
    // This file defines the address of `localhost`, which the steps use.
    fs::copy("/etc/hosts", system.join("etc/hosts")).at(&home)?;
    let mut command = program("unshare", &["--user", "--map-root-user", "--mount", "--net"]);
    // At the end of the time, all processes of the script are killed.
    command.args(["timeout", "300", "sh"]).arg(root().join(UNPRIVILEGED)).args([steps?, machines?]);
    command.current_dir(&system).gid(NOBODY).uid(NOBODY);
    let printed = answer(command)?;
    // Each of the two parts ends with a ping-pong between two processes, and each of the four prints the
    // duration of a round trip.
    let (active, turns) = (printed.contains("PORT_ACTIVE"), printed.matches(" usec/iter").count());
    if active && turns == 4 { Ok(()) } else { Err(format!("the commands of {PAGE} say:\n{printed}")) }
}

/// Returns the first shell commands of a section of the README.
fn commands<'a>(page: &'a str, section: &str) -> Option<&'a str> {
    let (_, block) = page.split_once(&format!("## {section}\n"))?.1.split_once("```sh\n")?;
    Some(block.split_once("```")?.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_has_first_steps() {
        let page = fs::read_to_string(root().join(PAGE)).unwrap();
        let [steps, machines] = SECTIONS.map(|section| commands(&page, section).unwrap());
        assert!(steps.starts_with("tar ") && steps.ends_with(" localhost\n"), "{steps}");
        // The script names the commands by their numbers.
        let programs =
            ["head ", "./mlx5-fabric --l", "./mlx5-fabric --c", "./mlx5-emulate ", "./mlx5-emulate "];
        let lines: Vec<&str> = machines.lines().collect();
        assert!(lines.len() == 5 && lines.iter().zip(programs).all(|(a, b)| a.starts_with(b)), "{machines}");
        assert!(root().join(VALIDATION_PAGE).exists() && root().join(SCRIPT).exists());
    }
}
