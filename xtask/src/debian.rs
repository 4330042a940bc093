//! Debian packages that some tasks need.

use std::path::Path;
use std::process::{Command, Stdio};

/// A package, and a file of it that shows that it is there.
pub(crate) type Package = (&'static str, &'static str);

/// libibverbs with libmlx5.
pub(crate) const VERBS: &[Package] = &[("ibverbs-providers", "/etc/libibverbs.d/mlx5.driver")];

/// rdma-core's tests and examples, and perftest.
pub(crate) const PEERS: &[Package] = &[
    ("ibverbs-utils", "/usr/bin/ibv_devinfo"),
    ("python3-pyverbs", "/usr/share/doc/rdma-core/tests/run_tests.py"),
    ("perftest", "/usr/bin/ib_write_bw"),
];

/// Installs the packages that are missing, if this user may.
///
/// # Errors
/// The names of those that are still missing, in a sentence.
pub(crate) fn install(packages: &[Package]) -> Result<(), String> {
    let missing = || {
        let gone = packages.iter().filter(|(_, file)| !Path::new(file).exists());
        gone.map(|(name, _)| *name).collect::<Vec<_>>()
    };
    if missing().is_empty() {
        return Ok(());
    }
    // The tests of rdma-core are its documentation, which slim images leave out of every package.
    let documented = ["--option", "Dpkg::Options::=--path-include=/usr/share/doc/rdma-core/*"];
    let install = [&["install", "--yes", "--reinstall"], &documented[..], &missing()].concat();
    for arguments in [vec!["update"], install] {
        let mut apt = Command::new("apt-get");
        apt.args(arguments).env("DEBIAN_FRONTEND", "noninteractive").stdout(Stdio::null());
        // Whether it worked shows in what is there.
        let _ = apt.status();
    }
    match missing() {
        names if names.is_empty() => Ok(()),
        names => Err(format!("missing Debian packages (install them as root): {}", names.join(" "))),
    }
}
