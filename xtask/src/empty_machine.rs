//! `cargo xtask empty-machine`: runs the README's commands in a system with only the packages that the README
//! names.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use xtask::debian;
use xtask::run::{At, answer, check, program, root};

pub(crate) const HELP: &str = "\
cargo xtask empty-machine

Makes a Debian system in target/empty-machine, and runs the two commands of the README there, in a
clone of the last commit. The system holds debootstrap's variant minbase, the packages that the
README names, and the Rust toolchain, certificates and name servers of this machine. Needs root,
Debian, and the time of these commands.
";

/// The packages that the README names beside a Rust toolchain.
const PACKAGES: [&str; 4] = ["gcc", "libc6-dev", "git", "ca-certificates"];

/// Paths inside the new system.
const TOOLCHAIN: &str = "opt/rust";
const CLONE: &str = "root/mlx5-mkey";

pub(crate) fn run() -> Result<(), String> {
    let system = make()?;
    check(enter(&system, &commands(&read(&root().join("README.md"))?)?)?)
}

fn read(path: &Path) -> Result<String, String> {
    fs::read_to_string(path).at(path)
}

/// Returns the shell commands of the README's first code block.
fn commands(readme: &str) -> Result<Vec<&str>, String> {
    let block = readme.split_once("```sh\n").and_then(|(_, rest)| rest.split_once("```"));
    let lines = block.map_or("", |(block, _)| block).lines();
    let commands: Vec<&str> = lines.map(|line| line.split('#').next().unwrap_or_default().trim()).collect();
    if commands.is_empty() { Err("README.md has no shell commands".into()) } else { Ok(commands) }
}

/// Makes the system anew and returns its folder.
fn make() -> Result<PathBuf, String> {
    let system = root().join("target/empty-machine");
    debian::bootstrap(&system, &PACKAGES)?;
    fs::create_dir_all(system.join(TOOLCHAIN)).map_err(|error| error.to_string())?;
    let clone = system.join(CLONE);
    check(program("git", &["clone", "--quiet", "--no-hardlinks", ".", &clone.to_string_lossy()]))?;
    Ok(system)
}

/// Returns a command that runs `commands` in the system. Mounts and processes of the run end with this
/// command.
fn enter(system: &Path, commands: &[&str]) -> Result<Command, String> {
    let toolchain = answer(program("rustc", &["--print", "sysroot"]))?;
    let script = format!(
        "set -e
         mount --bind '{toolchain}' {TOOLCHAIN}
         mount --bind /etc/ssl etc/ssl
         mount --rbind /dev dev
         mount -t proc proc proc
         mount -t sysfs sysfs sys
         cp /etc/resolv.conf /etc/hosts etc/
         exec chroot . /usr/bin/env -i HOME=/root CI=true LANG=C.UTF-8 \\
             PATH=/{TOOLCHAIN}/bin:/usr/sbin:/usr/bin:/sbin:/bin \\
             sh -exc 'cd /{CLONE}; {}'",
        commands.join("; ")
    );
    let mut command =
        program("unshare", &["--mount", "--pid", "--fork", "--kill-child", "sh", "-c", &script]);
    command.current_dir(system);
    Ok(command)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_readme_has_two_commands_and_names_what_they_need() {
        let readme = read(&root().join("README.md")).unwrap();
        assert_eq!(commands(&readme).unwrap(), ["cargo xtask demo", "cargo xtask test"]);
        let needed = format!("`{}`", PACKAGES.join(" "));
        let (before, _) = readme.split_once("```sh\n").unwrap();
        assert!(before.contains(&needed), "{needed}");
    }
}
