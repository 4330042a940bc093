//! Debian packages that tasks need. Tools that run on this machine are installed. Packages for the Arm cores,
//! and large sets of packages, are only unpacked, below `target`.

use crate::run::{self, At, answer, check, program, root};
use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

/// The name of a package, and a file that exists if the package is installed.
pub type Package = (&'static str, &'static str);

/// libibverbs with libmlx5.
pub const VERBS: &[Package] = &[("ibverbs-providers", "/etc/libibverbs.d/mlx5.driver")];

/// The compiler for libFuzzer.
pub const CXX: &[Package] = &[("g++", "/usr/bin/g++")];

/// The tool that counts instructions.
pub const VALGRIND: &[Package] = &[("valgrind", "/usr/bin/valgrind")];

/// rdma-core's tests, examples and diagnostics, perftest, UCX, qperf, `rdma`, fio and libfabric.
pub const PEERS: &[Package] = &[
    ("ibverbs-utils", "/usr/bin/ibv_devinfo"),
    ("python3-pyverbs", "/usr/share/doc/rdma-core/tests/run_tests.py"),
    // One of rdma-core's tests builds packets with scapy.
    ("python3-scapy", "/usr/lib/python3/dist-packages/scapy/__init__.py"),
    ("perftest", "/usr/bin/ib_write_bw"),
    ("ucx-utils", "/usr/bin/ucx_perftest"),
    ("qperf", "/usr/bin/qperf"),
    ("infiniband-diags", "/usr/sbin/ibstat"),
    ("iproute2", "/usr/bin/rdma"),
    ("rdmacm-utils", "/usr/bin/rping"),
    ("fio", "/usr/bin/fio"),
    ("libfabric-bin", "/usr/bin/fi_pingpong"),
];

/// rdma-core's examples, and perftest.
pub const PROGRAMS: &[Package] =
    &[("ibverbs-utils", "/usr/bin/ibv_devinfo"), ("perftest", "/usr/bin/ib_write_bw")];

/// Compilers for C and C++.
pub const C: &[Package] = &[
    ("gcc", "/usr/bin/gcc"),
    ("g++", "/usr/bin/g++"),
    ("libc6-dev", "/usr/include/stdio.h"),
    ("pkg-config", "/usr/bin/pkg-config"),
];

/// Programs that build projects in C.
pub const BUILDERS: &[Package] = &[("cmake", "/usr/bin/cmake"), ("meson", "/usr/bin/meson")];

/// The installer of Python packages.
pub const PIP: &[Package] = &[("python3-pip", "/usr/bin/pip3")];

/// Libraries that the Python package of Mooncake needs but does not contain.
pub const MOONCAKE: &[Package] = &[
    ("libnuma1", "/usr/lib/x86_64-linux-gnu/libnuma.so.1"),
    ("libcurl4", "/usr/lib/x86_64-linux-gnu/libcurl.so.4"),
];

/// Tools that build the crate sideway, beside a compiler: its bindings are made from headers of C.
pub const SIDEWAY: &[Package] =
    &[("cmake", "/usr/bin/cmake"), ("libclang-dev", "/usr/share/doc/libclang-dev")];

/// librpma, a library for access to remote persistent memory.
pub const RPMA: &[Package] = &[("librpma-dev", "/usr/include/librpma.h")];

/// The headers of libibverbs.
pub const VERBS_HEADERS: &[Package] = &[("libibverbs-dev", "/usr/include/infiniband/verbs.h")];

/// Libraries for SPDK's `lib/mlx5` and its test program, beside a compiler and the headers of libibverbs.
pub const SPDK: &[Package] =
    &[("librdmacm-dev", "/usr/include/rdma/rdma_cma.h"), ("libssl-dev", "/usr/include/openssl/evp.h")];

/// Debian's Rust compiler for aarch64, its standard library as sources for bare metal, and a linker. Its
/// rustc and cargo belong to the set, because Debian's standard library for arm64 fits no other compiler.
pub const CROSS: &[Package] = &[
    // Another package can install `/usr/bin/rustc`, so the presence of dpkg's file list shows that the
    // package is installed.
    ("rustc-web", "/var/lib/dpkg/info/rustc-web.list"),
    ("cargo-web", "/var/lib/dpkg/info/cargo-web.list"),
    ("rust-web-src", "/usr/lib/rustlib/src/rust"),
    GCC,
    LIBC,
];

/// The linker for aarch64.
pub const LINKER: &[Package] = &[GCC, LIBC];
const GCC: Package = ("gcc-aarch64-linux-gnu", "/usr/bin/aarch64-linux-gnu-gcc");
const LIBC: Package = ("libc6-dev-arm64-cross", "/usr/aarch64-linux-gnu/lib/libc.so");

/// Emulators for aarch64 programs: for Linux programs, and for bare metal.
pub const EMULATORS: &[Package] =
    &[("qemu-user", "/usr/bin/qemu-aarch64"), ("qemu-system-arm", "/usr/bin/qemu-system-aarch64")];

/// The tool that installs a Debian system into a folder.
const BOOTSTRAP: &[Package] = &[("debootstrap", "/usr/sbin/debootstrap")];

/// The SSH client.
pub const SSH: &[Package] = &[("openssh-client", "/usr/bin/ssh-keygen")];

/// Returns whether the current user is root.
#[must_use]
pub fn is_root() -> bool {
    // `/proc/self` belongs to the user that the process runs as.
    fs::metadata("/proc/self").is_ok_and(|process| process.uid() == 0)
}

/// The age up to which a package list is used without an update.
const LISTS: Duration = Duration::from_secs(60 * 60);

/// Whether packages are unpacked together with their dependencies.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Dependencies {
    /// Dependencies as apt resolves them, without recommended packages.
    Included,
    /// Only the named packages.
    Omitted,
    /// Only the packages and dependencies whose names begin with this text.
    Beginning(&'static str),
}

/// The machine that packages are for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Architecture {
    /// The Arm cores of a BlueField.
    Arm64,
    /// The architecture of this machine.
    Own,
}

/// Debian's unstable release.
pub const SID: Option<&str> = Some("sid");

/// Unpacks packages of a release, or of the release of this machine's apt, into a folder that is named after
/// `set`, and returns the folder.
///
/// Needs no root and changes nothing outside of `target`: apt gets a state folder of its own there. Scripts
/// of packages are not run. The folder is kept and used again until other packages (`name` or `name=version`)
/// are asked for. The size of a download is printed before it begins.
pub fn unpack(
    release: Option<&str>,
    architecture: Architecture,
    set: &str,
    packages: &[&str],
    dependencies: Dependencies,
) -> Result<PathBuf, String> {
    // Packages for the Arm cores and packages for this machine have separate folders, even on an arm64
    // machine: two tasks may unpack at the same time.
    let (kind, architecture) = match architecture {
        Architecture::Arm64 => ("arm64", "arm64".to_owned()),
        Architecture::Own => ("own", answer(program("dpkg", &["--print-architecture"]))?),
    };
    let home = release.map_or_else(|| kind.to_owned(), |release| format!("{release}-{kind}"));
    Archive::new(&home, &architecture, release)?.unpack(set, packages, dependencies)
}

/// A call of apt-get with a state folder below `target`, which leaves the packages of this machine alone.
struct Archive {
    home: PathBuf,
    options: Vec<(&'static str, String)>,
    /// The release of the packages, in words.
    release: String,
}

impl Archive {
    /// `release` is the name of a Debian release, or `None` for the release of this machine's apt.
    fn new(home: &str, architecture: &str, release: Option<&str>) -> Result<Self, String> {
        let home = root().join("target/debian").join(home);
        let state = home.join("state");
        fs::create_dir_all(state.join("lists/partial")).at(&state)?;
        // With an empty list of installed packages, apt fetches every dependency.
        fs::write(state.join("status"), "").at(&state)?;
        let mut options = vec![
            ("APT::Architecture", architecture.to_owned()),
            ("APT::Architectures::", architecture.to_owned()),
            ("APT::Sandbox::User", String::new()),
            ("Acquire::Languages", "none".into()),
            ("Dir::State", state.display().to_string()),
            ("Dir::State::status", state.join("status").display().to_string()),
            ("Dir::Log", state.display().to_string()),
        ];
        if let Some(release) = release {
            let (uri, _) = base(&targets()?).ok_or("apt has no archive of Debian")?;
            let list = state.join("sources.list");
            let signed =
                if Path::new(KEYRING).exists() { format!("[signed-by={KEYRING}] ") } else { String::new() };
            fs::write(&list, format!("deb {signed}{uri} {release} main\n")).at(&state)?;
            options.push(("Dir::Etc::SourceList", list.display().to_string()));
            options.push(("Dir::Etc::SourceParts", "/dev/null".into()));
        }
        let release = release.map_or_else(|| "this machine's Debian".into(), |name| format!("Debian {name}"));
        Ok(Self { home, options, release })
    }

    /// Returns a call of apt-get. `folder` keeps downloaded packages.
    fn apt(&self, folder: &Path, arguments: &[&str]) -> Command {
        let mut command = program("apt-get", &["--quiet", "--quiet"]);
        let folders =
            [("Dir::Cache", folder.to_path_buf()), ("Dir::Cache::archives", folder.join("archives"))];
        let folders = folders.map(|(name, folder)| (name, folder.display().to_string()));
        for (name, value) in self.options.iter().chain(&folders) {
            command.args(["--option", &format!("{name}={value}")]);
        }
        command.args(arguments);
        command
    }

    fn unpack(&self, set: &str, packages: &[&str], dependencies: Dependencies) -> Result<PathBuf, String> {
        let (folder, wanted) = (self.home.join(set), packages.join("\n"));
        let contents = folder.join("root");
        if fs::read_to_string(folder.join("packages")).is_ok_and(|there| there == wanted) {
            return Ok(contents);
        }
        let archives = folder.join("archives");
        run::empty(&folder)?;
        for name in [&archives.join("partial"), &contents] {
            fs::create_dir_all(name).at(&folder)?;
        }
        // An old list can name package versions that the archive has removed.
        let is_old = |list: fs::DirEntry| {
            let age =
                list.metadata().and_then(|list| list.modified()).ok().and_then(|time| time.elapsed().ok());
            age.is_none_or(|age| age > LISTS)
        };
        let mut known = fs::read_dir(self.home.join("state/lists"))
            .at(&folder)?
            .flatten()
            .filter(|list| list.file_name().to_string_lossy().contains("Packages"));
        if known.all(is_old) {
            check(quiet(self.apt(&folder, &["update"])))?;
        }
        let with_dependencies = ["install", "--no-install-recommends"];
        let (list, beginning) = match dependencies {
            Dependencies::Included => (&with_dependencies[..], ""),
            Dependencies::Omitted => (&["download"][..], ""),
            Dependencies::Beginning(text) => (&with_dependencies[..], text),
        };
        let uris = answer(self.apt(&folder, &[list, &["--print-uris"], packages].concat()))?;
        let fetched: Vec<(&str, u64)> = downloads(&uris, beginning).collect();
        eprintln!("{}", announcement(packages, &fetched, &self.release));
        let mut download = self.apt(&folder, &["download"]);
        match dependencies {
            // These names may have versions.
            Dependencies::Omitted => download.args(packages),
            _ => download.args(fetched.iter().map(|(name, _)| name)),
        };
        download.current_dir(&archives);
        check(quiet(download))?;
        for entry in fs::read_dir(&archives).at(&folder)? {
            let path = entry.at(&folder)?.path();
            if path.extension().is_some_and(|extension| extension == "deb") {
                let mut unpack = program("dpkg-deb", &["--extract"]);
                unpack.args([&path, &contents]);
                check(unpack)?;
            }
        }
        fs::remove_dir_all(&archives).at(&folder)?;
        // The file `packages` is written last. Without this file, a folder was unpacked only in part, and is
        // unpacked again.
        fs::write(folder.join("packages"), wanted).at(&folder)?;
        Ok(contents)
    }
}

/// The keys of Debian's archives, where the package `debian-archive-keyring` has them.
const KEYRING: &str = "/usr/share/keyrings/debian-archive-keyring.gpg";

/// Returns the words for a download: the packages with their number and size.
fn announcement(packages: &[&str], fetched: &[(&str, u64)], release: &str) -> String {
    let bytes: u64 = fetched.iter().map(|(_, size)| size).sum();
    let (set, count) = (packages.join(" "), fetched.len());
    format!(
        "{set}: {count} packages of {release}, {} MB, are fetched and unpacked",
        bytes.div_ceil(1_000_000)
    )
}

fn quiet(mut command: Command) -> Command {
    command.stdout(Stdio::null());
    command
}

/// Returns names and sizes in bytes of the packages that `apt-get --print-uris` lists and whose names begin
/// with `beginning`.
fn downloads<'a>(uris: &'a str, beginning: &str) -> impl Iterator<Item = (&'a str, u64)> {
    uris.lines().filter_map(move |line| {
        let mut words = line.split(' ').skip(1);
        let (name, _) = words.next()?.split_once('_')?;
        let size = words.next()?.parse().ok()?;
        name.starts_with(beginning).then_some((name, size))
    })
}

/// Returns the version of an installed package.
pub fn version(package: &str) -> Result<String, String> {
    answer(program("dpkg-query", &["--show", "--showformat=${Version}", package]))
}

/// Installs missing packages if the user is root. Returns an error if a package is still missing.
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
    // Debian installs the tests of rdma-core as documentation. Slim images tell dpkg to leave documentation
    // out, hence the option `--path-include`.
    let lock = ["--option", "DPkg::Lock::Timeout=600"];
    let documented = ["--option", "Dpkg::Options::=--path-include=/usr/share/doc/rdma-core/*"];
    let install = [&["install", "--yes", "--reinstall"], &lock[..], &documented, &missing()].concat();
    for arguments in [vec!["update"], install] {
        let mut apt = Command::new("apt-get");
        apt.args(arguments).env("DEBIAN_FRONTEND", "noninteractive").stdout(Stdio::null());
        // The exit status of apt-get does not matter: after the installation, `missing` looks for the files
        // of each package.
        let _ = apt.status();
    }
    match missing() {
        names if names.is_empty() => Ok(()),
        names => refused(names),
    }
}

/// Makes a new Debian system in a folder: debootstrap's `minbase` variant and these packages, from the
/// archives that apt of this machine uses. Needs root.
pub fn bootstrap(system: &Path, packages: &[&str]) -> Result<(), String> {
    install(BOOTSTRAP)?;
    let place = system.to_string_lossy();
    if system.exists() {
        // The folder has no mounts: earlier mounts ended with the processes that made them.
        check(program("rm", &["-rf", "--one-file-system", &place]))?;
    }
    let sources = sources()?;
    let (uri, suite) = base(&sources).ok_or("apt has no archive of Debian")?;
    let include = format!("--include={}", packages.join(","));
    check(program("debootstrap", &["--variant=minbase", &include, &suite, &place, &uri]))?;
    let lists: String = sources.iter().map(|source| format!("deb {source}\n")).collect();
    fs::write(system.join("etc/apt/sources.list"), lists).map_err(|error| error.to_string())
}

/// Updates apt's package lists. Returns the Debian archives that apt uses, as lines of a source list:
/// address, suite, component.
fn sources() -> Result<BTreeSet<String>, String> {
    check(program("apt-get", &["--quiet", "--quiet", "update"]))?;
    targets()
}

/// Returns the archives of [`sources`] as apt knows them, without an update.
fn targets() -> Result<BTreeSet<String>, String> {
    let format = "$(REPO_URI) $(RELEASE) $(COMPONENT)";
    let words = ["indextargets", "--format", format, "Created-By: Packages", "Origin: Debian"];
    Ok(answer(program("apt-get", &words))?.lines().map(String::from).collect())
}

/// Returns address and suite of the main archive: the first whose suite is neither `-updates` nor
/// `-security`.
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
    fn a_download_has_names_and_sizes() {
        let uris = "Reading package lists...\n'http://a/x.deb' linux-x_1.2_all.deb 1000 SHA256:00\n\
                    'http://a/y.deb' y_1%3a1_amd64.deb 234 SHA256:11\n";
        let found = |beginning| downloads(uris, beginning).collect::<Vec<_>>();
        assert_eq!(found(""), [("linux-x", 1000), ("y", 234)]);
        assert_eq!(found("linux-"), [("linux-x", 1000)]);
        let words = announcement(&["linux-x"], &[("linux-x", 41_000_001), ("y", 234)], "Debian sid");
        assert_eq!(words, "linux-x: 2 packages of Debian sid, 42 MB, are fetched and unpacked");
    }

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
