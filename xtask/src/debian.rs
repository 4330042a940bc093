//! Debian packages that some tasks need: installed where they are tools of this machine, unpacked under `target` where
//! they are for the Arm cores, or many.

use crate::run::{answer, check, program, root};
use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

/// A package, and a file of it that shows that it is there.
pub type Package = (&'static str, &'static str);

/// libibverbs with libmlx5.
pub const VERBS: &[Package] = &[("ibverbs-providers", "/etc/libibverbs.d/mlx5.driver")];

/// Compiles libFuzzer.
pub const CXX: &[Package] = &[("g++", "/usr/bin/g++")];

/// Counts instructions.
pub const VALGRIND: &[Package] = &[("valgrind", "/usr/bin/valgrind")];

/// rdma-core's tests and examples, perftest, UCX and qperf.
pub const PEERS: &[Package] = &[
    ("ibverbs-utils", "/usr/bin/ibv_devinfo"),
    ("python3-pyverbs", "/usr/share/doc/rdma-core/tests/run_tests.py"),
    // One of those tests makes its commands with it.
    ("python3-scapy", "/usr/lib/python3/dist-packages/scapy/__init__.py"),
    ("perftest", "/usr/bin/ib_write_bw"),
    ("ucx-utils", "/usr/bin/ucx_perftest"),
    ("qperf", "/usr/bin/qperf"),
];

/// What programs in C and C++ are compiled with.
pub const C: &[Package] = &[
    ("gcc", "/usr/bin/gcc"),
    ("g++", "/usr/bin/g++"),
    ("libc6-dev", "/usr/include/stdio.h"),
    ("pkg-config", "/usr/bin/pkg-config"),
];

/// Python, and what installs its packages.
pub const PIP: &[Package] = &[("python3-pip", "/usr/bin/pip3")];

/// What programs of libibverbs are compiled with.
pub const VERBS_HEADERS: &[Package] = &[("libibverbs-dev", "/usr/include/infiniband/verbs.h")];

/// What SPDK's library and its test are compiled with.
pub const SPDK: &[Package] = &[
    ("gcc", "/usr/bin/gcc"),
    ("libc6-dev", "/usr/include/stdio.h"),
    ("libibverbs-dev", "/usr/include/infiniband/mlx5dv.h"),
    ("librdmacm-dev", "/usr/include/rdma/rdma_cma.h"),
    ("libssl-dev", "/usr/include/openssl/evp.h"),
];

/// A compiler for aarch64 from end to end. Debian's rustc and cargo, since its standard library for arm64 fits no other;
/// the library's sources for bare metal; and what links.
pub const CROSS: &[Package] = &[
    // Another package has a /usr/bin/rustc too, so dpkg is asked.
    ("rustc-web", "/var/lib/dpkg/info/rustc-web.list"),
    ("cargo-web", "/var/lib/dpkg/info/cargo-web.list"),
    ("rust-web-src", "/usr/lib/rustlib/src/rust"),
    GCC,
    LIBC,
];

/// What links for aarch64.
pub const LINKER: &[Package] = &[GCC, LIBC];
const GCC: Package = ("gcc-aarch64-linux-gnu", "/usr/bin/aarch64-linux-gnu-gcc");
const LIBC: Package = ("libc6-dev-arm64-cross", "/usr/aarch64-linux-gnu/lib/libc.so");

/// Runs aarch64 programs, of Linux and without a system.
pub const EMULATORS: &[Package] =
    &[("qemu-user", "/usr/bin/qemu-aarch64"), ("qemu-system-arm", "/usr/bin/qemu-system-aarch64")];

/// Makes systems.
pub const BOOTSTRAP: &[Package] = &[("debootstrap", "/usr/sbin/debootstrap")];

/// Speaks to other machines.
pub const SSH: &[Package] = &[("openssh-client", "/usr/bin/ssh-keygen")];

/// Returns whether root runs this.
#[must_use]
pub fn is_root() -> bool {
    // A process belongs to the user that it runs as.
    fs::metadata("/proc/self").is_ok_and(|process| process.uid() == 0)
}

/// How long a list of packages is taken for true.
const LISTS: Duration = Duration::from_secs(60 * 60);

/// Whether packages are unpacked with what they depend on.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Dependencies {
    /// As apt resolves them, without the recommended ones.
    Included,
    /// The packages alone.
    Omitted,
}

/// For whom packages are.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Architecture {
    /// The Arm cores.
    Arm64,
    /// This machine.
    Own,
}

/// Unpacks packages into a folder that is named after `set`, and returns it.
///
/// Neither root nor a change to this machine is needed: apt works on a state of its own under `target`. Nothing of a
/// package is run. What was unpacked once is kept, until other packages are asked for (`name` or `name=version`).
///
/// # Errors
/// What apt or dpkg-deb said, in a sentence.
pub fn unpack(
    architecture: Architecture,
    set: &str,
    packages: &[&str],
    dependencies: Dependencies,
) -> Result<PathBuf, String> {
    // Apart even where both are the same: two may be at it at once.
    let (home, architecture) = match architecture {
        Architecture::Arm64 => ("arm64", "arm64".to_owned()),
        Architecture::Own => ("own", answer(program("dpkg", &["--print-architecture"]))?),
    };
    let home = root().join("target/debian").join(home);
    let (folder, wanted) = (home.join(set), packages.join("\n"));
    let contents = folder.join("root");
    if fs::read_to_string(folder.join("packages")).is_ok_and(|there| there == wanted) {
        return Ok(contents);
    }
    let lost = |error: std::io::Error| format!("{}: {error}", folder.display());
    let archives = folder.join("archives");
    if folder.exists() {
        fs::remove_dir_all(&folder).map_err(lost)?;
    }
    for name in [&home.join("state/lists/partial"), &archives.join("partial"), &contents] {
        fs::create_dir_all(name).map_err(lost)?;
    }
    let state = home.join("state");
    // No package counts as installed here, so that every dependency is unpacked.
    fs::write(state.join("status"), "").map_err(lost)?;
    let apt = |arguments: &[&str]| {
        let mut command = program("apt-get", &["--quiet", "--quiet"]);
        for (name, value) in [
            ("APT::Architecture", architecture.clone()),
            ("APT::Architectures::", architecture.clone()),
            ("APT::Sandbox::User", String::new()),
            ("Acquire::Languages", "none".into()),
            ("Dir::State", state.display().to_string()),
            ("Dir::State::status", state.join("status").display().to_string()),
            ("Dir::Cache", folder.display().to_string()),
            ("Dir::Cache::archives", archives.display().to_string()),
            ("Dir::Log", state.display().to_string()),
        ] {
            command.args(["--option", &format!("{name}={value}")]);
        }
        command.args(arguments).stdout(Stdio::null());
        command
    };
    // What the lists name may be gone from the archive, if they are old.
    let lists = state.join("lists");
    let is_old = |list: fs::DirEntry| {
        let age = list.metadata().and_then(|list| list.modified()).ok().and_then(|time| time.elapsed().ok());
        age.is_none_or(|age| age > LISTS)
    };
    let mut known = fs::read_dir(&lists)
        .map_err(lost)?
        .flatten()
        .filter(|list| list.file_name().to_string_lossy().contains("Packages"));
    if known.all(is_old) {
        check(apt(&["update"]))?;
    }
    let mut fetch = match dependencies {
        Dependencies::Included => apt(&["install", "--download-only", "--yes", "--no-install-recommends"]),
        Dependencies::Omitted => {
            let mut download = apt(&["download"]);
            download.current_dir(&archives);
            download
        }
    };
    fetch.args(packages);
    check(fetch)?;
    for entry in fs::read_dir(&archives).map_err(lost)? {
        let path = entry.map_err(lost)?.path();
        if path.extension().is_some_and(|extension| extension == "deb") {
            let mut unpack = program("dpkg-deb", &["--extract"]);
            unpack.args([&path, &contents]);
            check(unpack)?;
        }
    }
    fs::remove_dir_all(&archives).map_err(lost)?;
    // Last, so that a set which was left half unpacked is made anew.
    fs::write(folder.join("packages"), wanted).map_err(lost)?;
    Ok(contents)
}

/// Returns the version of an installed package.
///
/// # Errors
/// What dpkg said, in a sentence.
pub fn version(package: &str) -> Result<String, String> {
    answer(program("dpkg-query", &["--show", "--showformat=${Version}", package]))
}

/// Installs the packages that are missing, if this user may.
///
/// # Errors
/// The names of those that are still missing, in a sentence.
pub fn install(packages: &[Package]) -> Result<(), String> {
    let missing = || {
        let gone = packages.iter().filter(|(_, file)| !Path::new(file).exists());
        gone.map(|(name, _)| *name).collect::<BTreeSet<_>>().into_iter().collect::<Vec<_>>()
    };
    if missing().is_empty() {
        return Ok(());
    }
    let refused = |names: Vec<&str>| {
        Err(format!("missing Debian packages (install them as root): {}", names.join(" ")))
    };
    if !is_root() {
        return refused(missing());
    }
    // The tests of rdma-core are its documentation, which slim images leave out of every package.
    let lock = ["--option", "DPkg::Lock::Timeout=600"];
    let documented = ["--option", "Dpkg::Options::=--path-include=/usr/share/doc/rdma-core/*"];
    let install = [&["install", "--yes", "--reinstall"], &lock[..], &documented, &missing()].concat();
    for arguments in [vec!["update"], install] {
        let mut apt = Command::new("apt-get");
        apt.args(arguments).env("DEBIAN_FRONTEND", "noninteractive").stdout(Stdio::null());
        // Whether it worked shows in what is there.
        let _ = apt.status();
    }
    match missing() {
        names if names.is_empty() => Ok(()),
        names => refused(names),
    }
}

/// Makes a Debian system in a folder, anew: what debootstrap calls minbase and these packages, with the archives that apt uses
/// here. Needs root.
///
/// # Errors
/// What went wrong, in a sentence.
pub fn bootstrap(system: &Path, packages: &[&str]) -> Result<(), String> {
    install(BOOTSTRAP)?;
    let place = system.to_string_lossy();
    if system.exists() {
        // Nothing is mounted there: mounts are those of the processes that ran in it.
        check(program("rm", &["-rf", "--one-file-system", &place]))?;
    }
    let sources = sources()?;
    let (uri, suite) = base(&sources).ok_or("apt knows no archive of Debian")?;
    let include = format!("--include={}", packages.join(","));
    check(program("debootstrap", &["--variant=minbase", &include, &suite, &place, &uri]))?;
    let lists: String = sources.iter().map(|source| format!("deb {source}\n")).collect();
    fs::write(system.join("etc/apt/sources.list"), lists).map_err(|error| error.to_string())
}

/// Returns the archives of Debian that apt uses here, as its list has them: address, suite, component.
fn sources() -> Result<BTreeSet<String>, String> {
    check(program("apt-get", &["--quiet", "--quiet", "update"]))?;
    let format = "$(REPO_URI) $(RELEASE) $(COMPONENT)";
    let words = ["indextargets", "--format", format, "Created-By: Packages", "Origin: Debian"];
    Ok(answer(program("apt-get", &words))?.lines().map(String::from).collect())
}

/// Returns address and suite of the archive that is no addition to another.
fn base(sources: &BTreeSet<String>) -> Option<(String, String)> {
    let mut suites = sources.iter().filter_map(|source| {
        let mut words = source.split(' ');
        Some((words.next()?.to_owned(), words.next()?.to_owned()))
    });
    suites.find(|(_, suite)| !suite.contains(['-', '/']))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_archive_is_that_of_no_update() {
        let sources = [
            "http://a/debian bookworm-updates main",
            "http://a/debian bookworm main",
            "http://b/s bookworm-security main",
        ];
        let base = base(&sources.map(String::from).into());
        assert_eq!(base, Some(("http://a/debian".into(), "bookworm".into())));
    }
}
