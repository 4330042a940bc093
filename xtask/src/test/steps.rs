//! The steps, in the order in which a fault is cheapest to find.

use super::Outcome;
use crate::{bench, chaos, differential, fuzz, package, peer, storage, tidy};
use std::io;
use xtask::debian::{C, CXX, EMULATORS, PEERS, PIP, Package, SSH, VALGRIND, VERBS, VERBS_HEADERS};
use xtask::run::{cargo, check, succeeds};
use xtask::{host, toolchain};

/// What a step builds for, and so beside what it runs: two of one kind would wait for each other's builds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Lane {
    /// This machine.
    Host,
    /// The Arm cores.
    Arm,
}

/// When a step runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Tier {
    /// Always.
    Quick,
    /// Without `--quick`.
    Full,
}

/// A check.
pub(super) struct Step {
    /// One word.
    pub(super) name: &'static str,
    /// What it checks.
    pub(super) what: &'static str,
    pub(super) lane: Lane,
    pub(super) tier: Tier,
    /// The program behind it, if it is not xtask itself.
    pub(super) program: Option<&'static str>,
    /// What it needs of Debian.
    pub(super) packages: fn() -> Vec<Package>,
    pub(super) run: fn() -> Outcome,
}

impl Step {
    pub(super) fn is_quick(&self) -> bool {
        self.tier == Quick
    }
}

use Lane::{Arm, Host};
use Tier::{Full, Quick};

#[rustfmt::skip]
pub(super) const STEPS: &[Step] = &[
    Step { name: "tidy", lane: Host, tier: Quick, program: None, packages: none, run: || tidy::check(&mut io::stdout()).into(),
           what: "which module may know which, where unsafe may stand" },
    Step { name: "format", lane: Host, tier: Quick, program: None, packages: none, run: format,
           what: "rustfmt (skipped where it is not installed)" },
    Step { name: "tests", lane: Host, tier: Quick, program: None, packages: || [VERBS].concat(), run: || tests().into(),
           what: "unit tests, examples of the documentation, scenarios on the software device" },
    Step { name: "vectors", lane: Host, tier: Quick, program: Some("xtask-device"), packages: none, run: || task("xtask-device", &["vectors"]).into(),
           what: "recorded requests of the reference provider" },
    Step { name: "differential", lane: Host, tier: Quick, program: None, packages: || [VERBS].concat(), run: || differential::check().into(),
           what: "random requests beside libmlx5, 20,000 configurations" },
    Step { name: "hil", lane: Host, tier: Quick, program: Some("xtask-boards"), packages: || [VERBS].concat(), run: || hil(&["softdev", "uverbs"]).into(),
           what: "scenarios, alone and behind libmlx5" },
    Step { name: "hil-variants", lane: Host, tier: Full, program: Some("xtask-boards"), packages: || [VERBS].concat(), run: || hil_variants().into(),
           what: "scenarios behind libmlx5, with wrapped keys, with the other AES-XTS engines" },
    Step { name: "lab", lane: Host, tier: Full, program: Some("xtask-boards"), packages: || [PIP].concat(), run: || task("xtask-boards", &["lab"]).into(),
           what: "two boards at once that labgrid's coordinator lends, taken and given back" },
    Step { name: "mutations", lane: Host, tier: Full, program: None, packages: none, run: || mutations().into(),
           what: "scenarios notice each way in which the software device can be broken" },
    Step { name: "fuzz", lane: Host, tier: Full, program: None, packages: || [CXX].concat(), run: || fuzz::test().into(),
           what: "a minute of fuzzing, all targets together" },
    Step { name: "mutants", lane: Host, tier: Full, program: Some("xtask-mutants"), packages: none, run: || task("xtask-mutants", &["mutants", "--check"]).into(),
           what: "unit tests notice small changes, drawn by the commit; the list of survivors" },
    Step { name: "lints", lane: Host, tier: Full, program: None, packages: none, run: lints,
           what: "clippy (skipped where it is not installed)" },
    Step { name: "features", lane: Host, tier: Full, program: None, packages: none, run: || features().into(),
           what: "each feature alone and all together" },
    Step { name: "documentation", lane: Host, tier: Full, program: None, packages: none, run: || documentation().into(),
           what: "rustdoc without a warning" },
    Step { name: "package", lane: Host, tier: Full, program: None, packages: none, run: || package::test().into(),
           what: "the library as a registry would hand it out" },
    Step { name: "peer", lane: Host, tier: Full, program: Some("xtask-device"), packages: || [VERBS, PEERS].concat(), run: || peer::check(None).into(),
           what: "rdma-core's tests, perftest and DPDK's crypto driver, on the software device" },
    Step { name: "storage", lane: Host, tier: Full, program: None, packages: || [VERBS].concat(), run: || storage::test().and_then(|()| chaos::test()).into(),
           what: "a service example: each byte, each corrupt block, killed targets, faults by seeds" },
    Step { name: "aarch64", lane: Arm, tier: Full, program: Some("xtask-artefacts"), packages: toolchain::packages, run: || task("xtask-artefacts", &[]).into(),
           what: "builds for both BlueFields: glibc, panics, allocator, barriers" },
    Step { name: "dist", lane: Arm, tier: Full, program: Some("xtask-artefacts"), packages: || [VERBS, PEERS].concat(), run: || task("xtask-artefacts", &["dist", "--check"]).into(),
           what: "the archive of the stand-in: glibc, and a program run from it by a stranger" },
    Step { name: "firmware", lane: Arm, tier: Full, program: Some("xtask-boards"), packages: || [&toolchain::packages(), EMULATORS].concat(), run: || task("xtask-boards", &["firmware", "--check"]).into(),
           what: "bare-metal images in QEMU, right and wrong" },
    Step { name: "hil-arm", lane: Arm, tier: Full, program: Some("xtask-boards"), packages: || [&toolchain::packages(), EMULATORS, SSH].concat(), run: || hil(&["arm"]).into(),
           what: "scenarios on emulated Arm cores" },
    Step { name: "capi", lane: Arm, tier: Full, program: Some("xtask-capi"), packages: || [C, VERBS_HEADERS, VERBS, VALGRIND, &toolchain::packages(), EMULATORS].concat(), run: || task("xtask-capi", &["capi", "--test"]).into(),
           what: "the library for C: the header, its ABI, programs under valgrind and on Arm" },
    Step { name: "lost-board", lane: Arm, tier: Full, program: None, packages: || [&toolchain::packages(), EMULATORS, SSH].concat(), run: || lost_board().into(),
           what: "an emulated machine that hangs and dies under the scenarios" },
    Step { name: "bench", lane: Arm, tier: Full, program: Some("xtask-boards"), packages: || [VERBS, VALGRIND, &toolchain::packages(), EMULATORS].concat(), run: || bench::check(&mut io::stdout()),
           what: "instruction counts as they were recorded" },
];

fn none() -> Vec<Package> {
    Vec::new()
}

/// Runs the program that serves a task.
fn task(package: &str, arguments: &[&str]) -> Result<(), String> {
    check(host::task(package, arguments)?)
}

/// Runs all scenarios on boards, which must be there and know all of them.
fn hil(boards: &[&str]) -> Result<(), String> {
    let boards: Vec<_> = boards.iter().flat_map(|board| ["--board", board]).collect();
    hil_with(&boards)
}

fn hil_with(arguments: &[&str]) -> Result<(), String> {
    task("xtask-boards", &[&["hil", "--require-board", "--require-cases"], arguments].concat())
}

/// An engine with tweaks in little endian differs in nothing else: the scenarios r150 to r159 are those of
/// AES-XTS.
fn hil_variants() -> Result<(), String> {
    hil(&["uverbs-wrapped", "uverbs-single-block"])?;
    hil_with(&["--board", "uverbs-little-endian", "--filter", "r15"])
}

/// Runs the tests of all packages; those of the shim need libibverbs and libmlx5.
fn tests() -> Result<(), String> {
    xtask::debian::install(VERBS)?;
    check(cargo(&["test", "--workspace", "--quiet", "--no-fail-fast"]))
}

fn mutations() -> Result<(), String> {
    check(cargo(&[
        "test",
        "--package",
        "hil-tests",
        "--test",
        "mutations",
        "--quiet",
        "--",
        "--ignored",
        "--nocapture",
    ]))
}

fn lost_board() -> Result<(), String> {
    check(cargo(&["test", "--quiet", "--package", "xtask-boards", "--test", "vdpu", "--", "--ignored"]))
}

fn format() -> Outcome {
    if !succeeds(cargo(&["fmt", "--version"])) {
        return Outcome::Skipped("rustfmt is not installed (rustup component add rustfmt)");
    }
    check(cargo(&["fmt", "--all", "--check"])).into()
}

fn lints() -> Outcome {
    if !succeeds(cargo(&["clippy", "--version"])) {
        return Outcome::Skipped("clippy is not installed (rustup component add clippy)");
    }
    check(cargo(&["clippy", "--workspace", "--all-targets", "--quiet", "--", "--deny", "warnings"])).into()
}

/// Compiles the library with each of its features and with all, and the boards' runner with its own.
fn features() -> Result<(), String> {
    ["defmt", "devx", "capi", "defmt,capi"].into_iter().try_for_each(|features| {
        check(cargo(&["check", "--quiet", "--package", "mlx5-mkey", "--features", features]))
    })?;
    check(cargo(&["check", "--quiet", "--package", "xtask-boards", "--features", "gpio"]))
}

/// Documents the workspace, with all features of the library, and the library alone: no link to the shim may be broken there.
fn documentation() -> Result<(), String> {
    [["--workspace"].as_slice(), &["--package", "mlx5-mkey"]].into_iter().try_for_each(|what| {
        let mut command = cargo(&[&["doc", "--no-deps", "--quiet"], what].concat());
        command.env("RUSTDOCFLAGS", "--deny warnings");
        check(command)
    })
}
