//! Peers that are built here from sources: the tests of the crate sideway, a program whose queues sideway
//! makes and this library takes over, and a program over librpma.

use super::device::{COMPARED, Device, LIMIT, Tell};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use xtask::debian;
use xtask::run::{At, answer, cargo, check, free_port, program, root};

/// The crate, and its version.
const SIDEWAY: &str = "sideway";
const VERSION: &str = "0.4.3";

/// The parts of the crate whose tests need a device, and the number of tests of all of them. The crate's
/// other tests check that certain mistakes do not compile.
const TESTS: &[&str] = &[
    "--lib",
    "--test=test_atomic",
    "--test=test_cq",
    "--test=test_mr_and_cq",
    "--test=test_post_send",
    "--test=test_qp",
];
const PASSED: u32 = 68;

/// The source of the program whose queues sideway makes.
const ADOPTED: &str = "hil-tests/peer/sideway/adopted.rs";

/// The source of the program over librpma.
const RPMA: &str = "hil-tests/peer/rpma/rpma.c";

pub(super) fn run(device: &Device<'_>, tell: Tell<'_>) -> Result<(), String> {
    debian::install(&[debian::C, debian::VERBS_HEADERS, debian::RPMA, debian::SIDEWAY].concat())?;
    tell("librpma", device.rpma());
    let workspace = sources()?;
    let mut build = cargo(&["test", "--quiet", "--no-run"]);
    build.args(TESTS).arg("--example=show_gids");
    check(of_sideway(build, &workspace))?;
    tell(&format!("tests of {SIDEWAY} {VERSION}"), device.sideway(&workspace));
    tell(&format!("show_gids of {SIDEWAY} {VERSION}"), device.show_gids(&workspace));
    tell(&format!("queues of {SIDEWAY} {VERSION}, taken over"), device.adopted(&workspace));
    Ok(())
}

/// Fetches the sources of the crate, and returns a folder with a workspace whose only package is the
/// unchanged crate. The folder `adopted` in it is a package of its own, which uses the crate.
fn sources() -> Result<PathBuf, String> {
    let workspace = root().join("target/built");
    // A package that depends on the crate makes cargo fetch the sources.
    let adopted = workspace.join("adopted");
    fs::create_dir_all(&adopted).at(&workspace)?;
    let (own, main) = (root(), root().join(ADOPTED));
    let manifest = format!(
        "[package]\nname = \"adopted\"\nedition = \"2024\"\n\
         [[bin]]\nname = \"adopted\"\npath = {main:?}\n\
         [dependencies]\n{SIDEWAY} = \"={VERSION}\"\n\
         mlx5-mkey = {{ path = {own:?}, features = [\"devx\"] }}\n\
         [workspace]\n"
    );
    fs::write(adopted.join("Cargo.toml"), manifest).at(&workspace)?;
    let mut metadata = cargo(&["metadata", "--format-version", "1", "--quiet"]);
    metadata.current_dir(&adopted);
    let metadata = answer(metadata)?;
    let folder = folder(&metadata).ok_or("cargo does not say where the sources of sideway are")?;
    check(program("cp", &["-rT", folder, &workspace.join(SIDEWAY).to_string_lossy()]))?;
    fs::write(
        workspace.join("Cargo.toml"),
        format!("[workspace]\nmembers = [\"{SIDEWAY}\"]\nresolver = \"2\"\n"),
    )
    .and_then(|()| fs::copy(workspace.join(SIDEWAY).join("Cargo.lock"), workspace.join("Cargo.lock")))
    .at(&workspace)?;
    Ok(workspace)
}

/// Takes the folder of the crate's sources from the output of `cargo metadata`.
fn folder(metadata: &str) -> Option<&str> {
    let (before, _) = metadata.split_once(&format!("/{SIDEWAY}-{VERSION}/Cargo.toml\""))?;
    let start = before.rfind('"')? + 1;
    metadata.get(start..before.len() + format!("/{SIDEWAY}-{VERSION}").len())
}

/// Completes a call of cargo for the crate, with the versions of dependencies that the crate names.
fn of_sideway(mut command: Command, workspace: &Path) -> Command {
    command.args(["--locked", "--package", SIDEWAY]).current_dir(workspace);
    command.env("CARGO_TARGET_DIR", workspace.join("target"));
    command
}

/// Returns the number of tests that have passed, or `None` if a test has failed or was ignored.
fn passed(output: &str) -> Option<u32> {
    let results = output.lines().filter_map(|line| line.strip_prefix("test result: "));
    let count = |result: &str| {
        let (passed, rest) = result.strip_prefix("ok. ")?.split_once(" passed; 0 failed; 0 ignored; ")?;
        rest.contains(" 0 filtered out").then(|| passed.parse::<u32>().ok())?
    };
    results.map(count).sum()
}

impl Device<'_> {
    fn rpma(&self) -> Result<String, String> {
        let built = self.folder.join("rpma").to_string_lossy().into_owned();
        let mut gcc = program("gcc", &["-std=gnu11", "-O2", "-Wall", "-Wextra", "-o", &built]);
        gcc.arg(root().join(RPMA)).args(["-lrpma", "-libverbs"]);
        check(gcc)?;
        let mut command = self.program(&built, "none");
        command.args(["127.0.0.1", &free_port()?.to_string()]);
        self.compared("rpma-run", command, &[COMPARED])
    }

    /// Returns a call of cargo that runs programs of the crate on the device. cargo itself and the compiler
    /// do not load the stand-in.
    fn cargo(&self, arguments: &[&str], workspace: &Path) -> Result<Command, String> {
        let host = answer(program("rustc", &["--print", "host-tuple"]))?;
        let runner = format!("CARGO_TARGET_{}_RUNNER", host.trim().to_uppercase().replace('-', "_"));
        let mut command = self.program("cargo", "plaintext");
        command.env_remove("LD_PRELOAD");
        command.env(runner, format!("/usr/bin/env LD_PRELOAD={}", self.library.display()));
        command.args(arguments);
        Ok(of_sideway(command, workspace))
    }

    fn sideway(&self, workspace: &Path) -> Result<String, String> {
        let mut command = self.cargo(&["test", "--no-fail-fast"], workspace)?;
        command.args(TESTS);
        let end = self.start("sideway", command)?.finish(LIMIT)?;
        match passed(&end.output) {
            Some(PASSED) if end.status.success() => Ok(format!("{PASSED} passed, none ignored")),
            found => Err(format!("expected {PASSED} tests that pass, found {found:?}: {end}")),
        }
    }

    /// Builds the program whose queues sideway makes, and runs it. The library takes over no queue pair that
    /// receives into completion entries, as libmlx5 makes them without the variable.
    fn adopted(&self, workspace: &Path) -> Result<String, String> {
        let mut build = cargo(&["build", "--quiet"]);
        build.current_dir(workspace.join("adopted")).env("CARGO_TARGET_DIR", workspace.join("target"));
        check(build)?;
        let program = workspace.join("target/debug/adopted");
        let mut command = self.program(&program.to_string_lossy(), "none");
        command.env("MLX5_SCATTER_TO_CQE", "0");
        self.compared("adopted", command, &[COMPARED])
    }

    fn show_gids(&self, workspace: &Path) -> Result<String, String> {
        let command = self.cargo(&["run", "--quiet", "--example=show_gids"], workspace)?;
        let end = self.start("show_gids", command)?.finish(LIMIT)?;
        if end.status.success() && end.output.contains("RoCEv2") {
            Ok("shows the table of GIDs".into())
        } else {
            Err(end.to_string())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_folder_of_the_sources_is_found() {
        let metadata = r#"{"a":"x","manifest_path":"/r/sideway-0.4.3/Cargo.toml","b":"y"}"#;
        assert_eq!(folder(metadata), Some("/r/sideway-0.4.3"));
        assert_eq!(folder("{}"), None);
    }

    #[test]
    fn passed_tests_are_added() {
        let line =
            |rest: &str| format!("test result: {rest}; 0 measured; 0 filtered out; finished in 0.1s\n");
        let fine = line("ok. 5 passed; 0 failed; 0 ignored");
        assert_eq!(passed(&fine.repeat(2)), Some(10));
        for bad in ["FAILED. 4 passed; 1 failed; 0 ignored", "ok. 4 passed; 0 failed; 1 ignored"] {
            assert_eq!(passed(&format!("{fine}{}", line(bad))), None, "{bad}");
        }
        assert_eq!(passed(&fine.replace("0 filtered", "1 filtered")), None);
    }
}
