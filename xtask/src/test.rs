//! `cargo xtask test`: all checks, all failures at the end.

use crate::run::{self, cargo, check, succeeds};
use crate::{artefacts, bench, debian, differential, firmware, hil, peer, tidy, vectors};
use std::io::{self, Write};
use std::process::ExitCode;

/// What came of a step.
pub(crate) enum Outcome {
    Passed,
    Skipped(&'static str),
    Failed(String),
}

impl From<Result<(), String>> for Outcome {
    fn from(result: Result<(), String>) -> Self {
        match result {
            Ok(()) => Self::Passed,
            Err(what) => Self::Failed(what),
        }
    }
}

/// A name and what to do.
type Step = (&'static str, fn(&mut dyn Write) -> Outcome);

pub(crate) const HELP: &str = "\
cargo xtask test [STEP…]

Everything that CI runs, or the steps that are named: tidy, format, lints, tests, features,
aarch64 (builds for both BlueFields and reads what was built: glibc, panics, allocator, barriers),
documentation, vectors, differential with 10,000 configurations, firmware (bare-metal images in
QEMU, right and wrong), the scenarios here and on emulated Arm cores (hil), a machine that hangs
and dies under them (lost board), instruction counts (bench) and other people's tests (peer). A
step whose Rust component is not installed is skipped; Debian packages that are missing are
installed when this runs as root, else named, and the step fails.
";

/// The steps, in the order in which a fault is cheapest to find.
const STEPS: &[Step] = &[
    ("tidy", |out| tidy::check(out).into()),
    ("format", |_| format()),
    ("lints", |_| lints()),
    ("tests", |_| tests().into()),
    ("features", |_| features().into()),
    ("aarch64", |out| artefacts::check_all(out).into()),
    ("documentation", |_| documentation()),
    ("vectors", |out| vectors::check(out).into()),
    ("differential", |_| differential::check().into()),
    ("firmware", |out| firmware::check(out).into()),
    ("hil", |out| hil::check(out).into()),
    ("lost board", |_| {
        check(cargo(&["test", "--quiet", "--package", "xtask", "--test", "vdpu", "--", "--ignored"])).into()
    }),
    ("bench", bench::check),
    ("peer", |_| peer::check().into()),
];

/// Runs all steps, or those that are named, and sums up.
pub(crate) fn run(arguments: &[String]) -> ExitCode {
    let is_step = |argument: &&String| STEPS.iter().any(|(name, _)| name == argument);
    let others: Vec<_> = arguments.iter().filter(|argument| !is_step(argument)).cloned().collect();
    if let Some(status) = run::no_arguments(&others, HELP) {
        return status;
    }
    match steps(&mut io::stdout(), |name| arguments.is_empty() || arguments.iter().any(|step| step == name)) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => run::lost(&error),
    }
}

fn steps(out: &mut dyn Write, is_wanted: impl Fn(&str) -> bool) -> io::Result<bool> {
    let mut outcomes = Vec::new();
    for (name, step) in STEPS.iter().filter(|(name, _)| is_wanted(name)) {
        writeln!(out, "── {name}")?;
        outcomes.push((name, step(out)));
    }
    writeln!(out, "\nSummary")?;
    let mut good = true;
    for (name, outcome) in &outcomes {
        match outcome {
            Outcome::Passed => writeln!(out, "  passed   {name}")?,
            Outcome::Skipped(reason) => writeln!(out, "  SKIPPED  {name}: {reason}")?,
            Outcome::Failed(what) => {
                writeln!(out, "  FAILED   {name}: {what}")?;
                good = false;
            }
        }
    }
    out.flush()?;
    Ok(good)
}

/// Runs the tests of all packages; those of the shim need libibverbs and libmlx5.
fn tests() -> Result<(), String> {
    debian::install(debian::VERBS)?;
    check(cargo(&["test", "--workspace", "--quiet"]))
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

/// Builds the library with each of its features and with all, and these tasks with theirs.
fn features() -> Result<(), String> {
    ["defmt", "devx", "defmt,devx"].into_iter().try_for_each(|features| {
        check(cargo(&["build", "--quiet", "--package", "mlx5-mkey", "--features", features]))
    })?;
    check(cargo(&["check", "--quiet", "--package", "xtask", "--features", "gpio"]))
}

fn documentation() -> Outcome {
    let mut command = cargo(&["doc", "--workspace", "--no-deps", "--quiet"]);
    command.env("RUSTDOCFLAGS", "--deny warnings");
    check(command).into()
}
