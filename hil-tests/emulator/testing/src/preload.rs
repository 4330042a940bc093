//! A test that starts its own program again, with the library before it.

use std::path::{Path, PathBuf};
use std::process::Command;

/// Tells a program that it is inside, and which part it plays.
pub const INSIDE: &str = "MLX5_UVERBS_TEST_INSIDE";

/// Where a program may put its files.
pub const DIRECTORY: &str = "MLX5_UVERBS_DIR";

/// The file in which a program says which test it has run.
const RAN: &str = "ran";

/// Returns where cargo puts programs and libraries of tests.
pub fn built() -> PathBuf {
    std::env::current_exe().unwrap().parent().unwrap().to_path_buf()
}

/// Returns the test called `name`, with its modules, as a program with the library before it.
pub fn program(name: &str, role: &str, directory: &Path) -> Command {
    let library = built().join("libmlx5_uverbs.so");
    assert!(library.exists(), "{} is missing", library.display());
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args([name, "--exact", "--nocapture", "--test-threads=1"]);
    command.env("LD_PRELOAD", library).env(INSIDE, role).env(DIRECTORY, directory);
    command
}

/// Runs `body` in a program of its own.
pub fn preloaded(name: &str, body: impl FnOnce()) {
    prepared(name, |_, _| (), body);
}

/// Runs `body` in a program of its own, after `prepare` has changed how it is started; that is told the
/// test's directory.
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
