//! A line for each case as it ends, a progress bar on a terminal, and a summary.

use super::super::monitor::Monitor;
use super::super::results::{Case, Ending, Results, Verdict};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::fmt::Write as _;
use std::io::{self, Write};
use std::mem;

/// Shows the results in a terminal during the run.
pub(crate) struct Terminal<'a> {
    out: &'a mut dyn Write,
    bar: ProgressBar,
    shown: usize,
    resets: usize,
    result: io::Result<()>,
}

impl<'a> Terminal<'a> {
    /// Creates an output with a progress bar on standard error, if standard error is a terminal.
    pub(crate) fn new(out: &'a mut dyn Write) -> Self {
        Self::with(out, ProgressDrawTarget::stderr())
    }

    /// Creates an output without a progress bar.
    pub(crate) fn plain(out: &'a mut dyn Write) -> Self {
        Self::with(out, ProgressDrawTarget::hidden())
    }

    fn with(out: &'a mut dyn Write, target: ProgressDrawTarget) -> Self {
        let bar = ProgressBar::with_draw_target(Some(0), target);
        // On an error in the template, the bar has its default style.
        if let Ok(style) = ProgressStyle::with_template("{bar:30} {pos}/{len} {wide_msg}") {
            bar.set_style(style);
        }
        Self { out, bar, shown: 0, resets: 0, result: Ok(()) }
    }

    pub(crate) fn say(&mut self, line: &str) {
        self.write(&format!("{line}\n"));
    }

    /// Writes the cases and resets since the last call, and moves the bar.
    pub(crate) fn watch(&mut self, monitor: &Monitor) {
        let results = monitor.results();
        let mut text = String::new();
        for case in results.cases.iter().skip(self.shown) {
            describe(case, &mut text);
        }
        for reset in results.resets.iter().skip(self.resets) {
            let _ = writeln!(text, "reset    the board {reset}");
        }
        (self.shown, self.resets) = (results.cases.len(), results.resets.len());
        self.write(&text);
        self.bar.set_length(results.announced as u64);
        self.bar.set_position(results.cases.len() as u64);
        self.bar.set_message(monitor.running().unwrap_or_default().to_owned());
    }

    fn write(&mut self, text: &str) {
        if !text.is_empty() && self.result.is_ok() {
            let out = &mut self.out;
            self.result = self.bar.suspend(|| out.write_all(text.as_bytes()).and_then(|()| out.flush()));
        }
    }

    pub(crate) fn finish(&mut self) -> io::Result<()> {
        self.bar.finish_and_clear();
        mem::replace(&mut self.result, Ok(()))
    }
}

/// Appends the line of a case to a text. Writing to a string cannot fail, so the results of `writeln!` are
/// ignored.
fn describe(case: &Case, text: &mut String) {
    for (name, value) in &case.measured {
        let _ = writeln!(text, "measured {}: {name} = {value}", case.name);
    }
    let _ = match case.verdict.reason() {
        None => writeln!(text, "{:<8} {}", case.verdict.word(), case.name),
        Some(reason) => writeln!(text, "{:<8} {}: {reason}", case.verdict.word(), case.name),
    };
    for line in &case.log {
        let _ = writeln!(text, "         | {line}");
    }
}

/// Returns the summary of a run: numbers of cases, reasons of skips, and faults that belong to no case.
pub(crate) fn summary(results: &Results, board_required: bool) -> String {
    let mut text = String::new();
    if let (Ending::Unreachable(why), false) = (&results.ending, board_required) {
        let _ = writeln!(text, "board {}: SKIPPED: {why}", results.board);
        return text;
    }
    let passed = results.count(|verdict| *verdict == Verdict::Passed);
    let hung = results.count(|verdict| matches!(verdict, Verdict::Hung(_)));
    let died = results.count(|verdict| matches!(verdict, Verdict::Died(_)));
    let failed = results.bad() - hung - died;
    let skipped = results.cases.len() - passed - results.bad();
    let _ = write!(
        text,
        "board {}: {} of {} cases: {passed} passed, {failed} failed, {skipped} skipped",
        results.board,
        results.cases.len(),
        results.announced
    );
    for (count, word) in [
        (hung, "hung"),
        (died, "died"),
        (results.resets.len(), if results.resets.len() == 1 { "reset" } else { "resets" }),
        (results.missing(), "not run"),
    ] {
        if count > 0 {
            let _ = write!(text, ", {count} {word}");
        }
    }
    text.push('\n');
    for (reason, count) in results.skipped() {
        let _ = writeln!(text, "  SKIPPED {count:>4}: {reason}");
    }
    for fault in results.faults(board_required) {
        let _ = writeln!(text, "  FAILED: {fault}");
    }
    text
}
