//! `cargo xtask test`: every check, each as a process of its own, all failures at the end.

mod report;
mod schedule;
mod steps;

use schedule::{Programs, Schedule};
use std::collections::BTreeSet;
use std::io;
use std::process::ExitCode;
use steps::{STEPS, Step};
use xtask::{debian, host, run};

pub(crate) const HELP: &str = "\
cargo xtask test [--quick] [STEP…]

Everything that CI runs, or the steps that are named. Each step is reported as it ends, with its
time and the CPU time that it took; its output is in target/test/STEP.log, and is shown where it
failed. Two steps run side by side: one that builds for this machine, one for the Arm cores.

  --quick    the steps that are marked with *; what is left out is listed

";

/// What came of a step.
#[derive(Clone, Debug, PartialEq, Eq)]
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

/// Says that this process is to be a step, not to run some.
const STEP: &str = "--step";
/// The status of a step that was skipped; the last line that it prints says why.
const SKIPPED: u8 = 77;

/// Runs all steps, or those that are named, and sums up.
pub(crate) fn run(arguments: &[String]) -> ExitCode {
    if let [option, name] = arguments
        && option == STEP
    {
        return STEPS.iter().find(|step| step.name == name).map_or_else(|| run::misuse(&help()), be);
    }
    if arguments.iter().any(|argument| matches!(argument.as_str(), "--help" | "-h")) {
        return run::print(&help(), 0);
    }
    let is_known = |name: &&String| *name == "--quick" || STEPS.iter().any(|step| step.name == **name);
    if let Some(unknown) = arguments.iter().find(|name| !is_known(name)) {
        return run::misuse(&format!("unknown step `{unknown}`\n\n{}", help()));
    }
    let quick = arguments.iter().any(|argument| argument == "--quick");
    let named = |step: &Step| arguments.iter().any(|name| name == step.name);
    let is_wanted = |step: &&Step| named(step) || if quick { step.is_quick() } else { arguments.is_empty() };
    let (wanted, left_out): (Vec<_>, Vec<_>) = STEPS.iter().partition(is_wanted);
    perform(wanted, if quick { &left_out } else { &[] })
}

/// Runs steps, and names those that `--quick` leaves out.
fn perform(wanted: Vec<&'static Step>, left_out: &[&Step]) -> ExitCode {
    // Here, where it is shown, and once for all: while steps run, apt and cargo would have one wait for the other. Of packages that
    // cannot be installed the steps say so that need them.
    let packages: Vec<_> = wanted.iter().flat_map(|step| (step.packages)()).collect();
    let _ = debian::install(&packages);
    let programs: BTreeSet<_> = wanted.iter().filter_map(|step| step.program).collect();
    // Where they cannot be built, steps ask cargo again and fail: a program that an earlier build has left is not to be run.
    let programs = if programs.is_empty() {
        Programs::AskCargo
    } else {
        match host::build_programs(&Vec::from_iter(programs)) {
            Ok(()) => Programs::Built,
            Err(what) => {
                eprintln!("{what}");
                Programs::AskCargo
            }
        }
    };
    let done = Schedule::new(wanted, programs).and_then(|schedule| {
        let reports = schedule.run(&mut io::stdout())?;
        report::summary(&reports, left_out, &mut io::stdout())?;
        Ok(reports.iter().all(|report| !matches!(report.outcome, report::Ended::Failed(_))))
    });
    match done {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => run::lost(&error),
    }
}

/// Is a step: what it prints goes where its parent reads it.
fn be(step: &Step) -> ExitCode {
    match (step.run)() {
        Outcome::Passed => ExitCode::SUCCESS,
        Outcome::Skipped(reason) => run::print(&format!("{reason}\n"), SKIPPED),
        Outcome::Failed(what) => run::failed(&what),
    }
}

/// Returns the help, with a line for each step.
fn help() -> String {
    let mark = |step: &Step| if step.is_quick() { '*' } else { ' ' };
    let lines = STEPS.iter().map(|step| format!("  {} {:<14} {}\n", mark(step), step.name, step.what));
    format!("{HELP}{}", lines.collect::<String>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn help_fits_a_line_and_names_each_step_once() {
        let help = help();
        assert_eq!(help.lines().find(|line| line.chars().count() > 100), None);
        for step in STEPS {
            assert_eq!(STEPS.iter().filter(|other| other.name == step.name).count(), 1, "{}", step.name);
            assert!(!step.name.contains(' '), "{} is one word for the command line", step.name);
        }
    }
}
