//! `cargo xtask test`: all checks, all failures at the end.

use crate::run::{self, cargo, check, succeeds};
use crate::{tidy, vectors};
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
type Step = (&'static str, fn() -> Outcome);

/// The steps, in the order in which a fault is cheapest to find.
const STEPS: &[Step] = &[
    ("tidy", || tidy::check().into()),
    ("format", format),
    ("lints", lints),
    ("tests", || check(cargo(&["test", "--workspace", "--quiet"])).into()),
    ("defmt feature", || {
        check(cargo(&["build", "--quiet", "--package", "mlx5-mkey", "--features", "defmt"])).into()
    }),
    ("documentation", documentation),
    ("freestanding", || freestanding().into()),
    ("vectors", || vectors::check().into()),
];

/// Runs all steps and sums up.
pub(crate) fn run() -> ExitCode {
    let outcomes: Vec<(&str, Outcome)> = STEPS
        .iter()
        .map(|(name, step)| {
            println!("── {name}");
            (*name, step())
        })
        .collect();
    println!("\nSummary");
    let mut failed = false;
    for (name, outcome) in &outcomes {
        match outcome {
            Outcome::Passed => println!("  passed   {name}"),
            Outcome::Skipped(reason) => println!("  SKIPPED  {name}: {reason}"),
            Outcome::Failed(what) => {
                println!("  FAILED   {name}: {what}");
                failed = true;
            }
        }
    }
    if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS }
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

fn documentation() -> Outcome {
    let mut command = cargo(&["doc", "--workspace", "--no-deps", "--quiet"]);
    command.env("RUSTDOCFLAGS", "--deny warnings");
    check(command).into()
}

/// Links a program without std and alloc with the library.
fn freestanding() -> Result<(), String> {
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
    println!("a program without std and alloc was built with the library, as a static library");
    Ok(())
}
