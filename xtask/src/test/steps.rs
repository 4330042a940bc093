//! The list of all steps. Steps that find errors quickly come first.

use crate::outcome::Outcome;
use crate::{bench, chaos, fuzz, package, peer, sanitize, storage, versions};
use std::io;
use std::path::Path;
use std::process::Command;
use xtask::debian::{
    BUILDERS, C, CXX, EMULATORS, PEERS, PIP, Package, RPMA, SIDEWAY, SPDK, SSH, VALGRIND, VERBS,
    VERBS_HEADERS,
};
use xtask::host::{FIRMWARE, SELECTION};
use xtask::run::{self, cargo, check, program, succeeds};
use xtask::tools::{DENY, MUTANTS, SHEAR, Tool};
use xtask::{debian, emulate, host, toolchain};

/// The folders in which a step builds. Only steps of different lanes run at the same time, because cargo
/// locks the folder in which it builds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Lane {
    /// The step builds in `target/debug`.
    Main,
    /// The step builds in other folders: release builds, and builds for the Arm cores.
    Side,
}

/// The tier of a step: when it runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Tier {
    /// Runs when no option is given. The steps are short, because a person waits for their result.
    First,
    /// Runs with `--rest`: a change is merged only if these steps pass.
    Rest,
    /// Runs with `--nightly`: these steps take long, or download much.
    Nightly,
}

impl Tier {
    pub(super) const ALL: [Self; 3] = [Self::First, Self::Rest, Self::Nightly];

    /// Returns the option of `cargo xtask test` that runs the tier, or `None` for the first tier.
    pub(super) fn option(self) -> Option<&'static str> {
        match self {
            Self::First => None,
            Self::Rest => Some("--rest"),
            Self::Nightly => Some("--nightly"),
        }
    }

    /// Returns the purpose, for the help text and the list of steps that were left out.
    pub(super) fn purpose(self) -> &'static str {
        match self {
            Self::First => "steps that a person waits for",
            Self::Rest => "steps that must pass before a change lands",
            Self::Nightly => "steps that take long or download much",
        }
    }
}

pub(super) struct Step {
    /// The step's name on the command line, one word.
    pub(super) name: &'static str,
    pub(super) what: &'static str,
    pub(super) lane: Lane,
    pub(super) tier: Tier,
    /// The programs that serve the step, besides xtask itself.
    pub(super) programs: &'static [&'static str],
    pub(super) packages: fn() -> Vec<Package>,
    pub(super) run: fn() -> Outcome,
}

use Lane::{Main, Side};
use Tier::{First, Nightly, Rest};

#[rustfmt::skip]
pub(super) const STEPS: &[Step] = &[
    Step { name: "tidy", lane: Main, tier: First, programs: &["xtask-tidy"], packages: none,
           run: || task("xtask-tidy", &["tidy"]).into(),
           what: "imports between modules, places of unsafe code, width of lines" },
    Step { name: "format", lane: Main, tier: First, programs: &[], packages: none, run: format,
           what: "rustfmt (skipped where it is not installed)" },
    Step { name: "tests", lane: Main, tier: First, programs: &[],
           packages: || [C, VERBS_HEADERS, VERBS].concat(),
           run: || tests().into(),
           what: "unit tests, documentation examples, scenarios, inputs that fuzzing found" },
    Step { name: "vectors", lane: Main, tier: First, programs: &["xtask-device"], packages: none,
           run: || task("xtask-device", &["vectors"]).into(),
           what: "bytes against recorded requests of the reference provider" },
    Step { name: "lints", lane: Main, tier: First, programs: &[], packages: none, run: lints,
           what: "clippy (skipped where it is not installed)" },
    Step { name: "differential", lane: Main, tier: First, programs: &[], packages: || [VERBS].concat(),
           run: || tested(itself_with(&["differential", "--count", "10000"])).into(),
           what: "bytes against libmlx5, for random requests with 10,000 configurations" },
    Step { name: "hil", lane: Main, tier: First, programs: &["xtask-boards"], packages: || [VERBS].concat(),
           run: || tested(hil_with(&["--board", "softdev", "--board", "uverbs"])).into(),
           what: "scenarios on the software device, alone and behind libmlx5" },
    Step { name: "c-library", lane: Side, tier: First, programs: &["xtask-capi"],
           packages: || [C, VERBS_HEADERS].concat(),
           run: || task("xtask-capi", &["capi", "--compile"]).into(),
           what: "the library for C: its header, its ABI, compilation of programs in C" },

    Step { name: "differential-long", lane: Side, tier: Rest, programs: &[], packages: || [VERBS].concat(),
           run: || itself(&["differential"]).into(),
           what: "the step `differential`, with 20,000 configurations and optimised programs" },
    Step { name: "hil-variants", lane: Main, tier: Rest, programs: &["xtask-boards"],
           packages: || [VERBS].concat(), run: || hil_variants().into(),
           what: "scenarios behind libmlx5, with wrapped keys and the other AES-XTS engines" },
    Step { name: "validate", lane: Main, tier: Rest, programs: &["xtask-boards"],
           packages: || [VERBS].concat(), run: || ignored("xtask-boards", "validate").into(),
           what: "a validation of the stand-in's device, sound and broken: checks, report, comparison" },
    Step { name: "lab", lane: Main, tier: Rest, programs: &["xtask-boards"], packages: || [PIP].concat(),
           run: || task("xtask-boards", &["lab"]).into(),
           what: "two boards that labgrid's coordinator lends: taken, used at once, given back" },
    Step { name: "mutations", lane: Main, tier: Rest, programs: &[], packages: none,
           run: || mutations().into(),
           what: "scenarios notice each fault of the software device, and pass in random order" },
    Step { name: "defects", lane: Main, tier: Rest, programs: &["xtask-mutants"], packages: none,
           run: || task("xtask-mutants", &["mutants", "--known"]).into(),
           what: "tests notice each defect of xtask/mutants/known.tsv" },
    Step { name: "fuzz", lane: Main, tier: Rest, programs: &[], packages: || [CXX].concat(),
           run: || fuzz::test().into(),
           what: "a minute of fuzzing, all targets together" },
    Step { name: "function", lane: Main, tier: Rest, programs: &[], packages: none,
           run: || ignored("mlx5-function", "client").into(),
           what: "two drivers bring the PCI function up over vfio-user" },
    Step { name: "features", lane: Main, tier: Rest, programs: &[], packages: none, run: || features().into(),
           what: "each feature alone and all together; tests of the task `firmware`" },
    Step { name: "documentation", lane: Main, tier: Rest, programs: &[], packages: none,
           run: || documentation().into(),
           what: "rustdoc without a warning" },
    Step { name: "package", lane: Main, tier: Rest, programs: &[], packages: none,
           run: || package::run().into(),
           what: "build and tests of the library from its package" },
    Step { name: "copies", lane: Side, tier: Rest, programs: &[], packages: || [VERBS].concat(),
           run: || copies().into(),
           what: "a copy of shared memory is made once and checked, also with fat LTO" },
    Step { name: "peer", lane: Main, tier: Rest, programs: &["xtask-device"],
           packages: || [VERBS, PEERS].concat(), run: || peer::check(None).into(),
           what: "rdma-core's tests, perftest, UCX, qperf, fio, libfabric and DPDK's crypto driver" },
    Step { name: "storage", lane: Main, tier: Rest, programs: &[], packages: || [VERBS].concat(),
           run: || storage::test().and_then(|()| chaos::test()).into(),
           what: "the storage example: data, corrupt blocks, killed targets; 1,300 seeds of faults" },
    Step { name: "aarch64", lane: Side, tier: Rest, programs: &["xtask-artefacts"],
           packages: toolchain::packages, run: || task("xtask-artefacts", &[]).into(),
           what: "builds for both BlueFields: glibc version, no panic, no allocator, barriers" },
    Step { name: "dist", lane: Side, tier: Rest, programs: &["xtask-artefacts"],
           packages: || [VERBS, PEERS].concat(),
           run: || task("xtask-artefacts", &["dist", "--check"]).into(),
           what: "the archive of the stand-in: glibc version, a run as another user" },
    Step { name: "firmware", lane: Side, tier: Rest, programs: &[FIRMWARE],
           packages: || [&toolchain::packages(), EMULATORS].concat(),
           run: || task(FIRMWARE, &["firmware", "--check"]).into(),
           what: "bare-metal images in QEMU, with and without a provoked fault" },
    Step { name: "hil-arm", lane: Side, tier: Rest, programs: &["xtask-boards", FIRMWARE],
           packages: || [&toolchain::packages(), EMULATORS, SSH].concat(),
           run: || hil(&["--board", "arm"]).into(),
           what: "scenarios on emulated Arm cores" },
    Step { name: "capi", lane: Side, tier: Rest, programs: &["xtask-capi"],
           packages: || [C, VERBS_HEADERS, VERBS, VALGRIND, &toolchain::packages(), EMULATORS].concat(),
           run: || task("xtask-capi", &["capi", "--test"]).into(),
           what: "the library for C: programs under valgrind and on Arm" },
    Step { name: "lost-board", lane: Side, tier: Rest, programs: &[],
           packages: || [&toolchain::packages(), EMULATORS, SSH].concat(),
           run: || ignored("xtask-boards", "vdpu").into(),
           what: "scenarios go on after an emulated machine has hung or died" },
    Step { name: "bench", lane: Side, tier: Rest, programs: &[FIRMWARE],
           packages: || [VERBS, VALGRIND, &toolchain::packages(), EMULATORS].concat(),
           run: || bench::check(&mut io::stdout()),
           what: "instruction counts against the recorded ones" },

    Step { name: "audit", lane: Main, tier: Nightly, programs: &[], packages: none,
           run: || with_tools(&[DENY, SHEAR], || itself(&["audit"])),
           what: "licences, sources and advisories of all crates; no dependency is unused" },
    Step { name: "versions", lane: Side, tier: Nightly, programs: &[], packages: none,
           run: || versions::run().into(),
           what: "builds with the newest and the oldest versions of the dependencies" },
    Step { name: "mutants", lane: Main, tier: Nightly, programs: &["xtask-mutants"], packages: none,
           run: || with_tools(&[MUTANTS], || task("xtask-mutants", &["mutants"])),
           what: "tests notice small changes; each survivor has a reason" },
    Step { name: "sanitize", lane: Main, tier: Nightly, programs: &[],
           packages: || [VERBS, VALGRIND].concat(), run: sanitized,
           what: "tests and scenarios under AddressSanitizer and valgrind" },
    Step { name: "chaos", lane: Main, tier: Nightly, programs: &[], packages: || [VERBS].concat(),
           run: || itself(&["chaos"]).into(),
           what: "100,000 seeds of faults, 200 pairs of processes" },
    Step { name: "fuzz-long", lane: Main, tier: Nightly, programs: &[], packages: || [CXX].concat(),
           run: || itself(&["fuzz", "--seconds", "1800"]).into(),
           what: "half an hour of fuzzing for each target, with a minimum number of calls" },
    Step { name: "dist-chroot", lane: Side, tier: Nightly, programs: &["xtask-artefacts"],
           packages: || [VERBS, PEERS].concat(),
           run: || with_root(|| task("xtask-artefacts", &["dist", "--check-chroot", "--twice"])),
           what: "the archive of the stand-in in a new Debian, without root; two builds are equal" },
    Step { name: "dist-validate", lane: Side, tier: Nightly, programs: &["xtask-artefacts"],
           packages: || [VERBS].concat(),
           run: || validation_archives().into(),
           what: "the archives that validate a card, on the stand-in, sound and broken" },
    Step { name: "template", lane: Side, tier: Nightly, programs: &[FIRMWARE],
           packages: || [&toolchain::packages(), EMULATORS].concat(),
           run: || task(FIRMWARE, &["firmware", "--template"]).into(),
           what: "the template for firmware: built, tested and run in an empty folder" },
    Step { name: "dist-deb", lane: Side, tier: Nightly, programs: &["xtask-artefacts"],
           packages: || [VERBS, C].concat(),
           run: || with_root(|| task("xtask-artefacts", &["dist", "--deb", "--check-chroot"])),
           what: "the Debian packages, installed and used in a new Debian system" },
    Step { name: "cinstall", lane: Side, tier: Nightly, programs: &["xtask-capi"],
           packages: || [C, VERBS, BUILDERS].concat(),
           run: || task("xtask-capi", &["capi", "--cinstall"]).into(),
           what: "the library for C, installed by cargo-c" },
    Step { name: "publish", lane: Main, tier: Nightly, programs: &[], packages: none,
           run: || check(cargo(PUBLISH)).into(),
           what: "the registry would take the package: cargo publish --dry-run" },
    Step { name: "lab-machines", lane: Side, tier: Nightly, programs: &["xtask-boards"],
           packages: || [PIP, &toolchain::packages(), EMULATORS, SSH].concat(),
           run: || task("xtask-boards", &["lab", "--virtual-dpus"]).into(),
           what: "the step `lab` with emulated machines" },
    Step { name: "guest", lane: Side, tier: Nightly, programs: &["xtask-boards"], packages: none,
           run: || with_guest(&["guest", "--check"]),
           what: "Linux's own drivers of a guest, on the PCI function" },
    Step { name: "hil-guest", lane: Side, tier: Nightly, programs: &["xtask-boards"],
           packages: || [VERBS, &toolchain::packages(), SSH].concat(),
           run: || with_guest(HIL_GUEST),
           what: "all scenarios under Linux's own drivers, case by case as behind the stand-in" },
    Step { name: "dpdk", lane: Side, tier: Nightly, programs: &[], packages: || [VERBS, PEERS].concat(),
           run: || itself(&["peer", "--dpdk"]).into(),
           what: "DPDK's tests with queue pairs of the size that they ask for" },
    Step { name: "pypi", lane: Side, tier: Nightly, programs: &[], packages: || [VERBS, PIP].concat(),
           run: || itself(&["peer", "--pypi"]).into(),
           what: "two ranks of Open MPI 5 over UCX 1.20, and Mooncake" },
    Step { name: "built", lane: Side, tier: Nightly, programs: &[],
           packages: || [VERBS, C, VERBS_HEADERS, RPMA, SIDEWAY].concat(),
           run: || itself(&["peer", "--built"]).into(),
           what: "tests of the crate sideway, its queues taken over, and a program over librpma" },
    Step { name: "rdma-core", lane: Side, tier: Nightly, programs: &[], packages: || [VERBS, PEERS].concat(),
           run: || with_checkout("RDMA_CORE", "--rdma-core"),
           what: "all tests of a checkout of rdma-core (variable RDMA_CORE)" },
    Step { name: "spdk", lane: Side, tier: Nightly, programs: &[],
           packages: || [VERBS, C, VERBS_HEADERS, SPDK].concat(),
           run: || with_checkout("SPDK", "--spdk"),
           what: "lib/mlx5 of a checkout of SPDK (variable SPDK)" },
    Step { name: "empty-machine", lane: Side, tier: Nightly, programs: &[], packages: none,
           run: || with_root(|| itself(&["empty-machine"])),
           what: "the README's commands in a system with only the packages they need" },
];

/// The package is not built here: the step `package` builds and tests it.
const PUBLISH: &[&str] = &["publish", "--dry-run", "--allow-dirty", "--no-verify", "--package", "mlx5-mkey"];

fn none() -> Vec<Package> {
    Vec::new()
}

fn task(package: &str, arguments: &[&str]) -> Result<(), String> {
    check(host::task(package, arguments)?)
}

/// Runs another task of this program.
fn itself(arguments: &[&str]) -> Result<(), String> {
    check(itself_with(arguments)?)
}

/// Returns a call of another task of this program.
fn itself_with(arguments: &[&str]) -> Result<Command, String> {
    Ok(program(&run::itself()?.to_string_lossy(), arguments))
}

/// Builds all tests, as the step `tests` does, and runs a task with the programs of this build, so that
/// nobody waits for an optimised build.
fn tested(command: Result<Command, String>) -> Result<(), String> {
    check(host::with_tested(command?)?)
}

/// Runs a check that needs tools for cargo. Skips the check if a tool is neither installed nor can be built.
fn with_tools(tools: &[Tool], run: fn() -> Result<(), String>) -> Outcome {
    match tools.iter().try_for_each(|tool| tool.find().map(drop)) {
        Ok(()) => run().into(),
        Err(error) => Outcome::Skipped(format!("a tool is missing and cannot be built: {error}")),
    }
}

/// Runs a check that makes a Debian system, or skips it on a machine where this is impossible.
fn with_root(run: fn() -> Result<(), String>) -> Outcome {
    let has_apt = Path::new("/usr/bin/apt-get").exists();
    // A container may forbid mounts.
    let has_mounts = succeeds(program("unshare", &["--mount", "true"]));
    match (debian::is_root(), has_apt, has_mounts) {
        (true, true, true) => run().into(),
        (false, ..) => Outcome::Skipped("only root can make a Debian system".into()),
        (_, false, _) => Outcome::Skipped("this machine does not run Debian".into()),
        (.., false) => Outcome::Skipped("this machine forbids mounts".into()),
    }
}

/// Runs the tests of a peer whose checkout an environment variable names.
fn with_checkout(variable: &str, option: &str) -> Outcome {
    match std::env::var(variable) {
        Ok(folder) => itself(&["peer", option, &folder]).into(),
        Err(_) => Outcome::Skipped(format!("the variable {variable} names no checkout")),
    }
}

/// Runs AddressSanitizer and valgrind. Without AddressSanitizer's library, valgrind runs alone, and the step
/// counts as skipped if valgrind passes.
fn sanitized() -> Outcome {
    match sanitize::missing() {
        Ok(None) => itself(&["sanitize"]).into(),
        Ok(Some(reason)) => match itself(&["sanitize", "valgrind"]) {
            Ok(()) => Outcome::Skipped(format!("valgrind passed; {reason}")),
            Err(reason) => Outcome::Failed(reason),
        },
        Err(reason) => Outcome::Failed(reason),
    }
}

/// Runs all scenarios on boards. Fails if a board is missing, or if a board's program lacks a scenario.
fn hil(arguments: &[&str]) -> Result<(), String> {
    check(hil_with(arguments)?)
}

/// Returns the command that runs all scenarios on boards.
fn hil_with(arguments: &[&str]) -> Result<Command, String> {
    host::task("xtask-boards", &[&["hil", "--require-board", "--require-cases"], arguments].concat())
}

/// Runs scenarios on variants of the board `uverbs`. The variant `little-endian` runs only the AES-XTS
/// scenarios (r150 to r159), because only its tweaks differ. The variant `real-time` (real time stamps, low
/// limits) runs only the scenarios r010 to r019, because only the creation and the connection of its queue
/// pairs differ.
fn hil_variants() -> Result<(), String> {
    hil(&["--board", "uverbs-wrapped", "--board", "uverbs-single-block"])?;
    hil(&["--board", "uverbs-little-endian", "--filter", "r15"])?;
    hil(&["--board", "uverbs-real-time", "--filter", "r01"])
}

/// Runs the tests of all packages. Tests of the library's module `devx` need libibverbs and libmlx5.
fn tests() -> Result<(), String> {
    debian::install(VERBS)?;
    check(cargo(&[&["test"], &SELECTION[..], &["--quiet", "--no-fail-fast"]].concat()))
}

/// Builds `hil-copies` with fat LTO, and runs it behind the stand-in for the kernel.
fn copies() -> Result<(), String> {
    debian::install(VERBS)?;
    check(cargo(&["build", "--profile", "bench", "--quiet", "--package", "hil-copies"]))?;
    let program = run::built("release", "hil-copies")?;
    check(emulate::with_library(&emulate::library()?, &["--".into(), program.display().to_string()]))
}

/// Runs the long tests of the scenarios on the software device, which `cargo test` ignores by default.
fn mutations() -> Result<(), String> {
    let tests = ["--package", "hil-tests", "--test", "mutations", "--test", "tests"];
    check(cargo(&[&["test", "--quiet"], tests.as_slice(), &["--", "--ignored", "--nocapture"]].concat()))
}

/// The boards of the step `hil-guest`. The results of the other boards must equal those of the first
/// (`--alike`).
const HIL_GUEST: &[&str] = &["hil", "--board", "uverbs", "--board", "guest", "--board", "vdpu", "--alike"];

/// Runs a task that needs a QEMU with the device `vfio-user-pci`, or skips the step if there is none.
fn with_guest(arguments: &[&str]) -> Outcome {
    let find = match host::task("xtask-boards", &["guest", "--find-qemu"]) {
        Ok(command) => command,
        // A program that cannot be built is a failure, not a missing QEMU.
        Err(why) => return Outcome::Failed(why),
    };
    match check(find) {
        Ok(()) => task("xtask-boards", arguments).into(),
        Err(why) => Outcome::Skipped(format!("no QEMU of 10.1 or later: {why}")),
    }
}

/// Runs the tests of a file that `cargo test` ignores by default.
fn ignored(package: &str, file: &str) -> Result<(), String> {
    check(cargo(&["test", "--quiet", "--package", package, "--test", file, "--", "--ignored"]))
}

/// Checks the archive for this machine, and that for arm64 in an emulated system.
fn validation_archives() -> Result<(), String> {
    [&[][..], &["--arch", "arm64"]].into_iter().try_for_each(|architecture| {
        task("xtask-artefacts", &[&["dist", "--validate", "--check"], architecture].concat())
    })
}

fn format() -> Outcome {
    if !succeeds(cargo(&["fmt", "--version"])) {
        return Outcome::Skipped("rustfmt is not installed (rustup component add rustfmt)".into());
    }
    check(cargo(&["fmt", "--all", "--check"])).into()
}

fn lints() -> Outcome {
    if !has_clippy() {
        return Outcome::Skipped("clippy is not installed (rustup component add clippy)".into());
    }
    check(clippy(&SELECTION)).into()
}

fn has_clippy() -> bool {
    succeeds(cargo(&["clippy", "--version"]))
}

/// Returns a call of clippy for these packages.
fn clippy(selection: &[&str]) -> Command {
    let strictly = ["--all-targets", "--quiet", "--", "--deny", "warnings"];
    cargo(&[&["clippy"], selection, &strictly].concat())
}

/// Compiles the library with each feature and with all of them, and `xtask-boards`, the runner for boards,
/// with its feature `gpio`. Tests the package that the first tier leaves out.
fn features() -> Result<(), String> {
    check(cargo(&["test", "--quiet", "--package", FIRMWARE]))?;
    if has_clippy() {
        check(clippy(&["--package", FIRMWARE]))?;
    }
    ["alloc", "defmt", "devx", "capi", "defmt,capi"].into_iter().try_for_each(|features| {
        check(cargo(&["check", "--quiet", "--package", "mlx5-mkey", "--features", features]))
    })?;
    check(cargo(&["check", "--quiet", "--package", "xtask-boards", "--features", "gpio"]))
}

/// Documents the workspace, then the library alone: links from the library to its module `devx` must not
/// break in a build without this module.
fn documentation() -> Result<(), String> {
    [["--workspace"].as_slice(), &["--package", "mlx5-mkey"]].into_iter().try_for_each(|selection| {
        let mut command = cargo(&[&["doc", "--no-deps", "--quiet"], selection].concat());
        command.env("RUSTDOCFLAGS", "--deny warnings");
        check(command)
    })
}
