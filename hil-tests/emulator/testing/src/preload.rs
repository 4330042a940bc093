//! Functions for tests that start their own program again, with the kernel's stand-in (`libmlx5_uverbs.so`)
//! preloaded.

use std::path::{Path, PathBuf};
use std::process::Command;

/// The environment variable that marks a program started by a test. Its value names the program's role.
pub const INSIDE: &str = "MLX5_UVERBS_TEST_INSIDE";

/// The environment variable that names the directory for the program's files.
pub const DIRECTORY: &str = "MLX5_UVERBS_DIR";

/// The file that a started program makes when it runs the test.
const RAN: &str = "ran";

/// Returns the directory in which cargo places test programs and libraries.
pub fn built() -> PathBuf {
    std::env::current_exe().unwrap().parent().unwrap().to_path_buf()
}

/// Returns a command that starts this test program again, with the stand-in for the kernel
/// (`libmlx5_uverbs.so`) preloaded. The program then runs only the calling test, in this role.
pub fn program(role: &str, directory: &Path) -> Command {
    let library = built().join("libmlx5_uverbs.so");
    assert!(library.exists(), "{} is missing", library.display());
    // The test harness gives the thread of a test the name of the test, with its modules.
    let thread = std::thread::current();
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args([thread.name().unwrap(), "--exact", "--nocapture", "--test-threads=1"]);
    command.env("LD_PRELOAD", library).env(INSIDE, role).env(DIRECTORY, directory);
    // The stand-in for the kernel takes the properties of its RoCE port from the loopback interface, so that
    // they are the same on each machine.
    command.env("MLX5_UVERBS_NETDEV", "lo");
    command
}

/// The program that runs a part of a test.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// The separate program, with the stand-in for the kernel preloaded.
    Inside,
    /// The program that runs all tests. The separate program has ended without an error.
    Outside,
}

/// Runs the calling test in a separate program with the stand-in for the kernel (`libmlx5_uverbs.so`)
/// preloaded. Returns in both programs, in the program of all tests after the end of the separate program:
///
/// ```no_run
/// # use mlx5_testing::preload::{Side::Inside, preloaded};
/// let Inside = preloaded() else { return };
/// // The steps of the test.
/// ```
#[must_use]
pub fn preloaded() -> Side {
    prepared(|_, _| ())
}

/// Works like [`preloaded`], with these environment variables.
#[must_use]
pub fn preloaded_with(variables: &[(&str, &str)]) -> Side {
    prepared(|command, _| _ = command.envs(variables.iter().copied()))
}

/// Works like [`preloaded`]. Before the start, `prepare` may change the command of the separate program; it
/// also gets the test's directory.
#[must_use]
pub fn prepared(prepare: impl FnOnce(&mut Command, &Path)) -> Side {
    if std::env::var_os(INSIDE).is_some() {
        std::fs::write(Path::new(&std::env::var_os(DIRECTORY).unwrap()).join(RAN), "").unwrap();
        return Side::Inside;
    }
    let directory = tempfile::tempdir().unwrap();
    let mut command = program("alone", directory.path());
    prepare(&mut command, directory.path());
    let status = command.status().unwrap();
    assert!(status.success(), "{status}");
    assert!(directory.path().join(RAN).exists(), "the program has not run the test");
    Side::Outside
}
