//! `cargo xtask test`: runs each check as a process, and reports all failures at the end.

mod report;
mod schedule;
mod steps;

use crate::outcome::Outcome;
use schedule::{SKIPPED, STEP, Schedule};
use std::collections::BTreeSet;
use std::io;
use std::process::ExitCode;
use steps::{STEPS, Step, Tier};
use xtask::{debian, host, run};

pub(crate) const HELP: &str = "\
cargo xtask test [--rest] [--nightly] [STEP…]

Runs the steps of one tier, or the named steps; two steps run side by side. A line reports the
begin of a step, with the duration of its last run, and another line its end, with duration and CPU
time. The output of a step is in target/test/STEP.log. If the step failed, the end of the output is
shown.

  --rest      the second tier: steps that must pass before a change lands; CI runs tiers 1 and 2
  --nightly   the third tier: steps that take long or download much; CI does not run them. A step
              that cannot run on this machine is skipped, with the reason
";

/// Runs the steps of a tier, or the named steps, and prints a summary.
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
    // A user who names steps needs no list of the others.
    let left_out: Vec<_> = STEPS.iter().filter(|step| !tiers.is_empty() && !is_wanted(step)).collect();
    perform(wanted, &left_out)
}

/// Runs steps, and prints which steps were left out.
fn perform(wanted: Vec<&'static Step>, left_out: &[&Step]) -> ExitCode {
    // Packages are installed before the first step. During the steps, two calls of apt would wait for each
    // other, and the log would not say why. If the installation fails, the step that needs the package
    // reports the error.
    let packages: Vec<_> = wanted.iter().flat_map(|step| (step.packages)()).collect();
    let _ = debian::install(&packages);
    let programs: BTreeSet<_> = wanted.iter().flat_map(|step| step.programs.iter().copied()).collect();
    let build = || host::build_programs(&Vec::from_iter(programs.iter().copied()));
    let built = (!programs.is_empty()).then(|| schedule::timed(build));
    if let Some((Err(error), _)) = &built {
        eprintln!("{error}");
    }
    // After a failed build, each step calls cargo again and fails. Otherwise a step could run an outdated
    // program.
    let are_built = matches!(built, Some((Ok(()), _)));
    let built = built.map(|(_, took)| took);
    let done = Schedule::new(wanted, are_built).and_then(|schedule| {
        let reports = schedule.run(&mut io::stdout())?;
        report::summary(&reports, built, left_out, &mut io::stdout())?;
        Ok(reports.iter().all(|report| !matches!(report.outcome, Outcome::Failed(_))))
    });
    match done {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => run::lost(&error),
    }
}

/// Runs a step in this process. The parent process reads the output.
fn be(step: &Step) -> ExitCode {
    match (step.run)() {
        Outcome::Passed => ExitCode::SUCCESS,
        Outcome::Skipped(reason) => run::print(&format!("{reason}\n"), SKIPPED),
        Outcome::Failed(error) => run::failed(&error),
    }
}

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
