//! `cargo xtask test`: all checks, all failures at the end.

use crate::run::{self, cargo, check, succeeds};
use crate::{differential, hil, peer, tidy, vectors};
use std::io::{self, Write};
use std::process::ExitCode;

/// What came of a step.
enum Outcome {
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
cargo xtask test

Everything that CI runs: tidy, format, lints, tests, features, aarch64, documentation, a
freestanding program, vectors, differential with 10,000 configurations, the scenarios through
libmlx5 (hil --board uverbs) and other people's tests (peer). A step whose Rust component is not
installed is skipped; Debian packages that are missing are installed when this runs as root, else
named, and the step fails.
";

/// The steps, in the order in which a fault is cheapest to find.
const STEPS: &[Step] = &[
    ("tidy", |out| tidy::check(out).into()),
    ("format", |_| format()),
    ("lints", |_| lints()),
    ("tests", |_| check(cargo(&["test", "--workspace", "--quiet"])).into()),
    ("features", |_| features().into()),
    ("aarch64", |_| aarch64()),
    ("documentation", |_| documentation()),
    ("freestanding", |out| freestanding(out).into()),
    ("vectors", |out| vectors::check(out).into()),
    ("differential", |_| differential::check().into()),
    ("hil", |_| hil::check().into()),
    ("peer", |_| peer::check().into()),
];

/// Runs all steps and sums up.
pub(crate) fn run(arguments: &[String]) -> ExitCode {
    if let Some(status) = run::no_arguments(arguments, HELP) {
        return status;
    }
    match all(&mut io::stdout()) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => run::lost(&error),
    }
}

fn all(out: &mut dyn Write) -> io::Result<bool> {
    let mut outcomes = Vec::new();
    for (name, step) in STEPS {
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

/// Builds the library with each of its features and with all.
fn features() -> Result<(), String> {
    ["defmt", "devx", "defmt,devx"].into_iter().try_for_each(|features| {
        check(cargo(&["build", "--quiet", "--package", "mlx5-mkey", "--features", features]))
    })
}

/// Checks the library for the cores of a BlueField, where rustup has the target.
fn aarch64() -> Outcome {
    const TARGET: &str = "aarch64-unknown-none";
    let rustc = std::env::var("RUSTC").unwrap_or_else(|_| "rustc".into());
    let folder = run::program(&rustc, &["--print", "target-libdir", "--target", TARGET]).output();
    let installed = folder
        .is_ok_and(|output| std::path::Path::new(String::from_utf8_lossy(&output.stdout).trim()).exists());
    if !installed {
        return Outcome::Skipped("no core for aarch64-unknown-none (rustup target add aarch64-unknown-none)");
    }
    check(cargo(&["check", "--quiet", "--package", "mlx5-mkey", "--target", TARGET])).into()
}

fn documentation() -> Outcome {
    let mut command = cargo(&["doc", "--workspace", "--no-deps", "--quiet"]);
    command.env("RUSTDOCFLAGS", "--deny warnings");
    check(command).into()
}

/// Links a program without std and alloc with the library.
fn freestanding(out: &mut dyn Write) -> Result<(), String> {
    // A folder that is named here, since the compiler is called directly behind cargo.
    let folder = "target/check";
    let target = "target/check/freestanding";
    check(cargo(&[
        "build",
        "--quiet",
        "--package",
        "mlx5-mkey",
        "--no-default-features",
        "--profile",
        "freestanding",
        "--target-dir",
        folder,
    ]))?;
    let library = format!("mlx5_mkey={target}/libmlx5_mkey.rlib");
    let dependencies = format!("dependency={target}/deps");
    let output = format!("{target}/libfreestanding.a");
    let rustc = std::env::var("RUSTC").unwrap_or_else(|_| "rustc".into());
    check(run::program(
        &rustc,
        &[
            "--edition=2024",
            "--crate-type=staticlib",
            "-Cpanic=abort",
            "-Copt-level=2",
            "--extern",
            &library,
            "-L",
            &dependencies,
            "-o",
            &output,
            "hil-tests/freestanding.rs",
        ],
    ))?;
    writeln!(out, "a program without std and alloc was built with the library, as a static library")
        .map_err(|error| error.to_string())
}
