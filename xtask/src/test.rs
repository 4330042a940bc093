//! `cargo xtask test`: every check, each as a process of its own, all failures at the end.

mod report;
mod schedule;
mod steps;

use schedule::{Programs, Schedule};
use std::collections::BTreeSet;
use std::io;
use std::process::ExitCode;
use steps::{STEPS, Step, Tier};
use xtask::{debian, host, run};

pub(crate) const HELP: &str = "\
cargo xtask test [--rest] [--nightly] [STEP…]

Runs the steps of one tier, or the steps that are named. Each step is reported as it begins, with
the time that it took last, and as it ends, with its time and the CPU time that it took. Its output
is in target/test/STEP.log, and its end is shown where the step failed. Two steps run side by side.

  --rest      the second tier: what else must hold before a change lands; CI runs the first two
  --nightly   the third tier: what takes long or downloads much; CI does not run it. A step that
              cannot run on this machine is skipped and says why
";

/// What came of a step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    Passed,
    /// And why.
    Skipped(String),
    /// And what went wrong.
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
    let option = |word: &str| Tier::ALL.into_iter().find(|tier| tier.option() == Some(word));
    let is_known = |word: &&String| option(word).is_some() || STEPS.iter().any(|step| step.name == **word);
    if let Some(unknown) = arguments.iter().find(|word| !is_known(word)) {
        return run::misuse(&format!("unknown step `{unknown}`\n\n{}", help()));
    }
    let mut tiers: Vec<Tier> = arguments.iter().filter_map(|word| option(word)).collect();
    if arguments.is_empty() {
        tiers.push(Tier::First);
    }
    let is_named = |step: &Step| arguments.iter().any(|word| word == step.name);
    let is_wanted = |step: &&Step| is_named(step) || tiers.contains(&step.tier);
    let wanted: Vec<_> = STEPS.iter().filter(is_wanted).collect();
    // Who names steps knows what else there is.
    let left_out: Vec<_> = STEPS.iter().filter(|step| !tiers.is_empty() && !is_wanted(step)).collect();
    perform(wanted, &left_out)
}

/// Runs steps, and says which steps were left out.
fn perform(wanted: Vec<&'static Step>, left_out: &[&Step]) -> ExitCode {
    // Here, where it is shown, and once for all: while steps run, apt and cargo would have one wait for the other. A step that
    // needs a package which cannot be installed says that.
    let packages: Vec<_> = wanted.iter().flat_map(|step| (step.packages)()).collect();
    let _ = debian::install(&packages);
    let programs: BTreeSet<_> = wanted.iter().filter_map(|step| step.program).collect();
    // Where they cannot be built, steps ask cargo again and fail: a program that an earlier build has left is not to be run.
    let (programs, built) = if programs.is_empty() {
        (Programs::AskCargo, None)
    } else {
        let (ended, took) = schedule::timed(|| host::build_programs(&Vec::from_iter(programs)));
        let programs = match ended {
            Ok(()) => Programs::Built,
            Err(what) => {
                eprintln!("{what}");
                Programs::AskCargo
            }
        };
        (programs, Some(took))
    };
    let done = Schedule::new(wanted, programs).and_then(|schedule| {
        let reports = schedule.run(&mut io::stdout())?;
        report::summary(&reports, built, left_out, &mut io::stdout())?;
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
    let of = |tier: Tier| {
        let steps = STEPS.iter().filter(move |step| step.tier == tier);
        let lines = steps.map(|step| format!("  {:<14} {}\n", step.name, step.what)).collect::<String>();
        let option = tier.option().map(|option| format!("{option}, ")).unwrap_or_default();
        format!("\n{option}{}:\n{lines}", tier.purpose())
    };
    format!("{HELP}{}", Tier::ALL.map(of).concat())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn ci_runs_the_command_of_the_readme_and_then_the_rest() {
        let script = fs::read_to_string(run::root().join(".ci/run")).unwrap();
        let calls: Vec<_> = script.lines().filter(|line| line.starts_with("cargo ")).collect();
        assert_eq!(calls, ["cargo xtask test || status=1", "cargo xtask test --rest || status=1"]);
        assert!(script.ends_with("exit $status\n"), "{script}");
    }

    #[test]
    fn help_fits_a_line_and_names_each_step_once() {
        let help = help();
        assert_eq!(help.lines().find(|line| line.chars().count() > 100), None);
        for step in STEPS {
            assert_eq!(STEPS.iter().filter(|other| other.name == step.name).count(), 1, "{}", step.name);
            assert!(!step.name.contains(' '), "{} is one word for the command line", step.name);
            assert!(help.contains(&format!("\n  {} ", step.name)), "{}", step.name);
        }
    }
}
