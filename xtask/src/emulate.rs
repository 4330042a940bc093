//! `cargo xtask emulate -- COMMAND…`: runs any verbs program with a software device, which the program opens
//! as `mlx5_0`.

use crate::run::{self, root};
use crate::{debian, host};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

/// The launcher: a script that starts a program on the software device. It translates options to environment
/// variables. `cargo xtask dist` packs it.
pub const LAUNCHER: &str = "hil-tests/emulator/verbs/mlx5-emulate";

/// The environment variable with the path of the library that replaces the kernel (the stand-in), if the
/// library is not in the launcher's folder.
const LIBRARY: &str = "MLX5_EMULATE_LIBRARY";

/// Runs `cargo xtask emulate` with the arguments after `emulate`.
pub fn run(arguments: &[String]) -> ExitCode {
    // Words behind the first `--` belong to the command.
    let mut own = arguments.iter().take_while(|argument| *argument != "--");
    let command = if own.any(|argument| argument == "--help" || argument == "-h") {
        Ok(launcher(arguments))
    } else if arguments.iter().all(|argument| argument != "--") {
        return run::misuse("error: no command after `--` (cargo xtask emulate --help)");
    } else {
        prepare(arguments)
    };
    match command {
        Ok(command) => run::replace(command),
        Err(message) => run::failed(&message),
    }
}

/// Returns a command that runs a program, named by the first word, on the software device. `crypto` is the
/// form in which the device imports keys (`plaintext`, `wrapped` or `none`), `engine` its AES-XTS engine.
pub fn command(words: Vec<String>, crypto: &str, engine: &str) -> Result<Command, String> {
    let options = ["--crypto", crypto, "--engine", engine, "--"].map(String::from);
    prepare(&options.into_iter().chain(words).collect::<Vec<_>>())
}

/// Returns a command like that of [`command`], but with a software device that executes no work request.
/// Programs that compare rings, or measure the time to write requests, use this device.
pub fn idle(words: Vec<String>, crypto: &str, engine: &str) -> Result<Command, String> {
    let mut command = command(words, crypto, engine)?;
    command.env("MLX5_UVERBS_EXECUTE", "no");
    Ok(command)
}

/// Builds the stand-in for the kernel, and returns a call of the launcher with these arguments.
fn prepare(arguments: &[String]) -> Result<Command, String> {
    debian::install(debian::VERBS)?;
    Ok(with_library(&library()?, arguments))
}

/// Returns a call of the launcher with these arguments. `library` is the built stand-in for the kernel.
pub fn with_library(library: &Path, arguments: &[String]) -> Command {
    let mut command = launcher(arguments);
    command.env(LIBRARY, library);
    command
}

fn launcher(arguments: &[String]) -> Command {
    let mut command = Command::new(root().join(LAUNCHER));
    command.args(arguments);
    command
}

/// Builds the stand-in for the kernel, a library, and returns its path.
pub fn library() -> Result<PathBuf, String> {
    host::executes("libmlx5_uverbs.so")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::Permissions;
    use std::os::unix::fs::PermissionsExt;
    use std::process::Output;

    /// Returns output and exit status of the launcher, for words that need no device.
    fn launched(line: &str) -> (String, Option<i32>) {
        let output = output(line);
        (String::from_utf8(output.stdout).unwrap(), output.status.code())
    }

    fn output(line: &str) -> Output {
        let words: Vec<_> = line.split_whitespace().map(String::from).collect();
        let mut command = launcher(&words);
        // Any library will do: the programs of these tests look for no device.
        command.env_clear().env(LIBRARY, "/dev/null").env("PATH", "/usr/bin:/bin").output().unwrap()
    }

    #[test]
    fn options_become_variables_and_end_where_the_command_begins() {
        let all = "--crypto wrapped --engine=single-block --dir here --log --log-json=/logs/log --pcap /p \
                   --netdev eth1 --devices 2 --faults seed=1 -- env --";
        let (printed, status) = launched(all);
        assert_eq!(status, Some(0));
        let here = std::env::current_dir().unwrap().join("here");
        for variable in [
            "MLX5_UVERBS_CRYPTO=wrapped",
            "MLX5_UVERBS_ENGINE=single-block",
            &format!("MLX5_UVERBS_DIR={}", here.display()),
            "MLX5_UVERBS_LOG=1",
            "MLX5_UVERBS_LOG_JSON=/logs/log",
            "MLX5_UVERBS_PCAP=/p",
            "MLX5_UVERBS_NETDEV=eth1",
            "MLX5_UVERBS_DEVICES=2",
            "MLX5_UVERBS_FAULTS=seed=1",
            "LD_PRELOAD=/dev/null",
        ] {
            assert!(printed.lines().any(|line| line == variable), "{variable}: {printed}");
        }
        assert!(!printed.contains(LIBRARY));
        let file = std::env::current_dir().unwrap().join("plan");
        let faults = format!("MLX5_UVERBS_FAULTS=@{}", file.display());
        assert!(launched("--faults @plan env").0.lines().any(|line| line == faults));
        // The launcher does not interpret options of the command.
        assert_eq!(launched("--log echo --crypto nonsense").0, "--crypto nonsense\n");
    }

    #[test]
    fn without_options_nothing_is_asked_of_the_device() {
        assert!(!launched("env").0.contains("MLX5_UVERBS_"));
    }

    #[test]
    fn programs_that_cannot_have_the_library_are_named() {
        let folder = tempfile::tempdir().unwrap();
        let told = |name: &str, content: &[u8], rights: u32| {
            let path = folder.path().join(name);
            std::fs::write(&path, content).unwrap();
            std::fs::set_permissions(&path, Permissions::from_mode(rights)).unwrap();
            let errors = String::from_utf8(output(&path.display().to_string()).stderr).unwrap();
            errors
                .lines()
                .filter(|line| line.starts_with("mlx5-emulate: "))
                .map(String::from)
                .collect::<Vec<_>>()
        };
        let ends = |lines: Vec<String>, end: &str| matches!(&lines[..], [line] if line.ends_with(end));
        assert!(ends(told("static", b"\x7fELF\0\0", 0o755), "static is a static program: it sees no device"));
        assert!(ends(
            told("of-root", b"#!/bin/sh\n", 0o4755),
            "of-root is a set-user-id program: it sees no device"
        ));
        assert_eq!(told("dynamic", b"\x7fELF\0\0/lib64/ld-linux-x86-64.so.2\0", 0o755), [""; 0]);
        assert_eq!(told("arm64", b"\x7fELF\0\0/lib/ld-linux-aarch64.so.1\0", 0o755), [""; 0]);
        assert_eq!(told("script", b"#!/bin/sh\n", 0o755), [""; 0]);
    }

    #[test]
    fn nonsense_is_refused() {
        for line in [
            "",
            "--crypto",
            "--crypto magic -- ls",
            "--engine both -- ls",
            "--devices 0 ls",
            "--loud -- ls",
            "--",
            "--dir= ls",
            "--pcap -- ls",
        ] {
            assert_eq!(launched(line), (String::new(), Some(2)), "{line}");
        }
    }

    #[test]
    fn help_names_each_option_and_fits_a_line() {
        let (help, status) = launched("--help");
        assert_eq!(status, Some(0));
        assert_eq!(help.lines().find(|line| line.chars().count() > 100), None);
        let script = std::fs::read_to_string(root().join(LAUNCHER)).unwrap();
        for arm in script.lines().filter_map(|line| line.trim().strip_prefix("--")) {
            let name = arm.split([' ', ')', '=']).next().unwrap();
            assert!(help.contains(&format!("--{name}")), "{name}");
        }
    }
}
