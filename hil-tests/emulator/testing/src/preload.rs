//! Functions for tests that start their own program again, with the kernel's stand-in (`libmlx5_uverbs.so`)
//! preloaded.

use std::path::{Path, PathBuf};
use std::process::Command;

/// The environment variable that marks a program started by a test. Its value names the program's role.
pub const INSIDE: &str = "MLX5_UVERBS_TEST_INSIDE";

/// The environment variable that names the directory for the program's files.
pub const DIRECTORY: &str = "MLX5_UVERBS_DIR";

/// The file into which a started program writes the name of the test that it has run.
const RAN: &str = "ran";

/// Returns the directory in which cargo places test programs and libraries.
pub fn built() -> PathBuf {
    std::env::current_exe().unwrap().parent().unwrap().to_path_buf()
}

/// Returns a command that starts this test program again, with the stand-in for the kernel
/// (`libmlx5_uverbs.so`) preloaded. The program then runs only the test `name` (path with modules), in this
/// role.
pub fn program(name: &str, role: &str, directory: &Path) -> Command {
    let library = built().join("libmlx5_uverbs.so");
    assert!(library.exists(), "{} is missing", library.display());
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args([name, "--exact", "--nocapture", "--test-threads=1"]);
    command.env("LD_PRELOAD", library).env(INSIDE, role).env(DIRECTORY, directory);
    // The stand-in for the kernel takes the properties of its RoCE port from the loopback interface, so that
    // they are the same on each machine.
    command.env("MLX5_UVERBS_NETDEV", "lo");
    command
}

/// Runs `body` in a separate program with the stand-in for the kernel (`libmlx5_uverbs.so`) preloaded.
pub fn preloaded(name: &str, body: impl FnOnce()) {
    prepared(name, |_, _| (), body);
}

/// Runs `body` as [`preloaded`] does, with these environment variables.
pub fn preloaded_with(variables: &[(&str, &str)], name: &str, body: impl FnOnce()) {
    let prepare = |command: &mut Command, _: &Path| {
        command.envs(variables.iter().copied());
    };
    prepared(name, prepare, body);
}

/// Runs `body` in a separate program with the stand-in for the kernel (`libmlx5_uverbs.so`) preloaded. Before
/// the start, `prepare` may change the command of this program; it also gets the test's directory.
pub fn prepared(name: &str, prepare: impl FnOnce(&mut Command, &Path), body: impl FnOnce()) {
    if std::env::var_os(INSIDE).is_some() {
        body();
        std::fs::write(Path::new(&std::env::var_os(DIRECTORY).unwrap()).join(RAN), name).unwrap();
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let mut command = program(name, "alone", directory.path());
    prepare(&mut command, directory.path());
    let status = command.status().unwrap();
    let ran = std::fs::read_to_string(directory.path().join(RAN));
    assert!(status.success(), "{status}");
    assert_eq!(ran.ok().as_deref(), Some(name), "no test of this name (with its modules) has run");
}
