//! Reports steps: a line when a step begins, a line when the step ends, the end of a failed step's output,
//! and a summary.

use super::steps::{Step, Tier};
use crate::outcome::Outcome;
use std::io::{self, Write};
use std::time::Duration;

/// The number of lines that are shown of a failed step's output.
const SHOWN: usize = 300;

#[derive(Clone, Debug)]
pub(super) struct Report {
    pub(super) name: &'static str,
    pub(super) took: Took,
    pub(super) outcome: Outcome,
    pub(super) log: String,
}

/// The elapsed time and the CPU time of a step, or of the build before the steps.
#[derive(Clone, Copy, Debug)]
pub(super) struct Took {
    pub(super) time: Duration,
    pub(super) cpu: Duration,
}

/// Writes a line for a step that begins, with the duration of its last run if that is known.
pub(super) fn begins(step: &Step, last: Option<u64>, out: &mut dyn Write) -> io::Result<()> {
    let last = last.map(|seconds| format!("took {seconds} s last time")).unwrap_or_default();
    writeln!(out, "{}", format!("  runs     {:<14} {last}", step.name).trim_end())?;
    out.flush()
}

/// Writes a line for an ended step, after the step's output if the step failed.
pub(super) fn line(report: &Report, out: &mut dyn Write) -> io::Result<()> {
    let Report { name, outcome, log, .. } = report;
    if let Outcome::Failed(_) = outcome {
        let lines: Vec<&str> = log.lines().collect();
        let from = lines.len().saturating_sub(SHOWN);
        writeln!(out, "── {name}: target/test/{name}.log, from line {}", from + 1)?;
        lines.iter().skip(from).try_for_each(|line| writeln!(out, "{line}"))?;
    }
    writeln!(out, "{}", row(report))?;
    out.flush()
}

fn row(report: &Report) -> String {
    let Report { name, took, outcome, .. } = report;
    let row = times(outcome.word(), name, *took);
    match outcome {
        Outcome::Passed => row,
        Outcome::Skipped(why) => format!("{row}  {why}"),
        Outcome::Failed(why) => format!("{row}  {why}; again: cargo xtask test {name}"),
    }
}

fn times(word: &str, name: &str, took: Took) -> String {
    format!("  {word:<8} {name:<14} {:>5} s {:>7} s", took.time.as_secs(), took.cpu.as_secs())
}

/// Writes a table of all steps, with the reasons of skips inside of steps, and lists the steps that were left
/// out.
pub(super) fn summary(
    reports: &[Report],
    built: Option<Took>,
    left_out: &[&Step],
    out: &mut dyn Write,
) -> io::Result<()> {
    writeln!(out, "\nSummary          step            time   CPU time")?;
    if let Some(built) = built {
        writeln!(out, "{}", times("built", "programs", built))?;
    }
    for report in reports {
        writeln!(out, "{}", row(report))?;
        skipped(&report.log).iter().try_for_each(|line| writeln!(out, "             {line}"))?;
    }
    let cpu: Duration = reports.iter().map(|report| report.took).chain(built).map(|took| took.cpu).sum();
    writeln!(out, "           {:<14} {:>5}   {:>7} s", "all", "", cpu.as_secs())?;
    for tier in Tier::ALL {
        let names: Vec<_> = left_out.iter().filter(|step| step.tier == tier).map(|step| step.name).collect();
        if !names.is_empty() {
            let option = tier.option().map(|option| format!(" {option}")).unwrap_or_default();
            let purpose = tier.purpose();
            writeln!(out, "left out: {purpose} (cargo xtask test{option}): {}", names.join(", "))?;
        }
    }
    let count = |is: fn(&Outcome) -> bool| reports.iter().filter(|report| is(&report.outcome)).count();
    let passed = count(|outcome| *outcome == Outcome::Passed);
    let failed = count(|outcome| matches!(outcome, Outcome::Failed(_)));
    // Scripts parse this line.
    writeln!(out, "steps: {passed} passed, {failed} failed, {} skipped", reports.len() - passed - failed)?;
    out.flush()
}

/// Returns the lines that tell how many parts of a step were skipped and why, each line once.
fn skipped(log: &str) -> Vec<&str> {
    let mut lines: Vec<&str> = Vec::new();
    for line in log.lines().map(str::trim) {
        // Lines for single skipped scenarios are left out: a later line has their number.
        let is_sum = line
            .strip_prefix("SKIPPED ")
            .is_some_and(|rest| rest.trim_start().starts_with(|c: char| c.is_ascii_digit()));
        if is_sum && !lines.contains(&line) {
            lines.push(line);
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::super::steps::STEPS;
    use super::*;

    fn report(outcome: Outcome, log: &str) -> Report {
        let took = Took { time: Duration::from_millis(61_900), cpu: Duration::from_millis(90_100) };
        Report { name: "tests", took, outcome, log: log.into() }
    }

    fn shown(report: &Report) -> String {
        let mut out = Vec::new();
        line(report, &mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn output_is_shown_only_of_what_failed() {
        let passed = "  passed   tests             61 s      90 s\n";
        assert_eq!(shown(&report(Outcome::Passed, "one\ntwo\n")), passed);
        let text = shown(&report(Outcome::Failed("two".into()), "one\ntwo\n"));
        assert!(
            text.starts_with("── tests: target/test/tests.log, from line 1\none\ntwo\n  FAILED   tests"),
            "{text}"
        );
        assert!(text.ends_with("  two; again: cargo xtask test tests\n"), "{text}");
        let long: String = (0..1000).map(|number| format!("{number}\n")).collect();
        assert_eq!(shown(&report(Outcome::Failed(String::new()), &long)).lines().count(), SHOWN + 2);
    }

    #[test]
    fn what_was_skipped_is_never_folded() {
        let log =
            "passed x\nSKIPPED  a: lacks login\n  SKIPPED    1: lacks login\n  SKIPPED    1: lacks login\n";
        assert_eq!(skipped(log), ["SKIPPED    1: lacks login"]);
        let mut out = Vec::new();
        let reports = [report(Outcome::Passed, log), report(Outcome::Skipped("no such tool".into()), "")];
        summary(&reports, Some(reports[0].took), &[], &mut out).unwrap();
        let text = String::from_utf8(out).unwrap();
        assert!(text.contains("SKIPPED    1: lacks login") && text.contains("s  no such tool"), "{text}");
        assert!(text.contains("  built    programs          61 s      90 s\n"), "{text}");
        assert!(
            text.lines().any(|line| line.trim_start().starts_with("all ") && line.ends_with(" 270 s")),
            "{text}"
        );
        assert!(text.ends_with("steps: 1 passed, 0 failed, 1 skipped\n"), "{text}");
    }

    #[test]
    fn what_is_left_out_is_named_with_its_command() {
        let left_out: Vec<_> = STEPS.iter().filter(|step| step.tier != Tier::First).collect();
        let mut out = Vec::new();
        summary(&[], None, &left_out, &mut out).unwrap();
        let text = String::from_utf8(out).unwrap();
        let lines: Vec<_> = text.lines().filter(|line| line.starts_with("left out: ")).collect();
        let [rest, nightly] = lines[..] else { panic!("{text}") };
        assert!(rest.contains("(cargo xtask test --rest)") && rest.contains(" aarch64,"), "{rest}");
        assert!(nightly.contains("(cargo xtask test --nightly)") && nightly.contains(" chaos,"), "{nightly}");
    }

    #[test]
    fn a_step_that_begins_says_how_long_it_took_last() {
        let begin_of = |last| {
            let mut out = Vec::new();
            begins(&STEPS[0], last, &mut out).unwrap();
            String::from_utf8(out).unwrap()
        };
        assert_eq!(begin_of(Some(12)), "  runs     tidy           took 12 s last time\n");
        assert_eq!(begin_of(None), "  runs     tidy\n");
    }
}
