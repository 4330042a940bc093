//! Follows a run: reads the board's output and the time, and decides whether to read on, to reset the board,
//! or to end. The monitor uses no processes and no clock. The caller passes the time since the beginning of
//! the run.

use super::results::{Case, Ending, Results, Verdict};
use hil_scenarios::protocol::Event;
use std::collections::{HashSet, VecDeque};
use std::path::Path;
use std::time::Duration;
use xtask_parsers::limits::Limits;

/// The largest number of cases in a run. If a board announces more, the run ends.
const CASES: usize = 100_000;
/// The largest number of values that a case may measure, and of properties of a device.
const MEASURED: usize = 1_000;
/// The number of protocol violations that are reported one by one, and the largest number of capabilities
/// that are kept.
const PROBLEMS: usize = 20;
/// The number of log lines that are kept of a case.
const LOG: usize = 40;
/// The beginning of the log line with the command that runs a failed case again.
pub(super) const AGAIN: &str = "again: ";
/// The number of characters that are kept of a text.
const TEXT: usize = 4_000;

/// The next action of the caller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// Read the program's output, and call [`Monitor::tick`] at this time at the latest. The value is the
    /// time since the beginning of the run.
    Listen(Duration),
    /// End the board's program, reset the board, and start the program again.
    Reset,
    /// End the board's program. The run is over.
    Over,
}

enum Phase {
    /// The program has started, and has sent no event yet.
    Starting,
    /// The program has sent an event, and no case is running.
    Between,
    Running(Running),
    Over,
}

struct Running {
    name: String,
    since: Duration,
    measured: Vec<(String, String)>,
}

pub(super) struct Monitor {
    limits: Limits,
    /// The capabilities that `--require` names. The run ends if the board lacks one of them.
    required: Vec<String>,
    /// Capabilities that the description of the board promises.
    promised: Vec<String>,
    phase: Phase,
    /// When the time limit of the phase ends, as a time since the beginning of the run.
    deadline: Duration,
    names: HashSet<String>,
    /// The last log lines of the running case. Between two cases, the log lines since the end of the last
    /// case.
    log: VecDeque<String>,
    /// The last lines of standard error of the board's program, shown when the board hangs or dies. Their
    /// order against standard output is unknown, so these lines belong to no case.
    errors: VecDeque<String>,
    announced: Option<usize>,
    /// Whether the board was already reset after a hang, and after the death of its program. The monitor asks
    /// for one reset of each kind.
    has_hung: bool,
    has_died: bool,
    /// The command that runs cases on this board.
    command: String,
    results: Results,
}

impl Monitor {
    pub(super) fn new(board: &str, limits: Limits, required: Vec<String>, promised: Vec<String>) -> Self {
        Self {
            limits,
            required,
            promised,
            phase: Phase::Starting,
            deadline: limits.start,
            names: HashSet::new(),
            log: VecDeque::new(),
            errors: VecDeque::new(),
            announced: None,
            has_hung: false,
            has_died: false,
            command: format!("cargo xtask hil --board {board}"),
            results: Results::nothing(board, Ending::Broken("the run has not ended".into())),
        }
    }

    /// Adds `--boards FILE`, for the file that describes the user's board, to the command that repeats a
    /// case.
    pub(super) fn set_boards(&mut self, file: &Path) {
        self.command.push_str(&format!(" --boards {}", file.display()));
    }

    pub(super) fn set_command(&mut self, command: String) {
        self.command = command;
    }

    /// Returns the command that repeats a case on this board, if `line` is the log line in which the board's
    /// program prints such a command. The program does not know how it was started, so its line names another
    /// board. Returns `None` for other lines.
    fn repetition(&self, line: &str) -> Option<String> {
        let (_, options) = line.strip_prefix("again: cargo xtask hil --board ")?.split_once(' ')?;
        Some(format!("{AGAIN}{} {options}", self.command))
    }

    /// Records that the caller has started the board's program, for the first time or after a reset.
    pub(super) fn started(&mut self, now: Duration) -> Step {
        if !matches!(self.phase, Phase::Over) {
            self.phase = Phase::Starting;
            self.deadline = now.saturating_add(self.limits.start);
        }
        self.step()
    }

    /// Returns the last case that has ended. A restarted program continues after this case.
    pub(super) fn after(&self) -> Option<&str> {
        self.results.cases.last().map(|case| case.name.as_str())
    }

    /// Takes in a line of the board's standard output: an event, or a line of the log. Returns the caller's
    /// next action.
    pub(super) fn line(&mut self, now: Duration, line: &str) -> Step {
        // The time limits are checked for each line: a flood of log lines must not extend the limit.
        let step = self.tick(now);
        if !matches!(step, Step::Listen(_)) {
            return step;
        }
        let Some(event) = Event::parse(line) else {
            let repetition = self.repetition(line);
            keep(&mut self.log, repetition.as_deref().unwrap_or(line));
            return step;
        };
        if matches!(self.phase, Phase::Starting) {
            self.phase = Phase::Between;
        }
        self.event(now, event);
        self.deadline = now.saturating_add(self.limits.case);
        self.step()
    }

    /// Keeps a line of the board's standard error, and checks the time limits. Returns the caller's next
    /// action.
    pub(super) fn error(&mut self, now: Duration, line: &str) -> Step {
        keep(&mut self.errors, line);
        self.tick(now)
    }

    /// Checks the time limits. Returns the caller's next action.
    pub(super) fn tick(&mut self, now: Duration) -> Step {
        self.results.took = now;
        if matches!(self.phase, Phase::Over) {
            return Step::Over;
        }
        if now >= self.limits.total {
            let limit = format!("the run took longer than {} s", self.limits.total.as_secs_f32());
            self.lose(now, Verdict::Hung(limit.clone()));
            return self.end(Ending::Broken(limit));
        }
        if now < self.deadline {
            return self.step();
        }
        let limit = if matches!(self.phase, Phase::Starting) { self.limits.start } else { self.limits.case };
        let how = format!("no event for {} s", limit.as_secs_f32());
        let again = std::mem::replace(&mut self.has_hung, true);
        self.lost(now, Verdict::Hung(how), again)
    }

    /// Records that the board's program has ended, or has closed its output.
    pub(super) fn closed(&mut self, now: Duration, how: &str) -> Step {
        self.results.took = now;
        if matches!(self.phase, Phase::Over) {
            return Step::Over;
        }
        let again = std::mem::replace(&mut self.has_died, true);
        self.lost(now, Verdict::Died(how.into()), again)
    }

    pub(super) fn end(&mut self, ending: Ending) -> Step {
        if !matches!(self.phase, Phase::Over) {
            self.phase = Phase::Over;
            self.results.ending = ending;
        }
        Step::Over
    }

    pub(super) fn results(&self) -> &Results {
        &self.results
    }

    pub(super) fn running(&self) -> Option<&str> {
        match &self.phase {
            Phase::Running(running) => Some(&running.name),
            _ => None,
        }
    }

    fn step(&self) -> Step {
        match self.phase {
            Phase::Over => Step::Over,
            _ => Step::Listen(self.deadline.min(self.limits.total)),
        }
    }

    fn event(&mut self, now: Duration, event: Event<'_>) {
        match event {
            Event::NoDevice(reason) if self.announced.is_none() => {
                self.end(Ending::Unreachable(printable(reason)));
            }
            Event::NoDevice(reason) => {
                self.end(Ending::Broken(format!("the device is gone: {}", printable(reason))));
            }
            Event::About { what, value } => {
                let (what, value) = (printable(what), printable(value));
                let known = self.results.about.iter().any(|(known, _)| *known == what);
                if !known && self.results.about.len() < MEASURED {
                    self.results.about.push((what, value));
                }
            }
            Event::Capability(name) => {
                let known = self.results.capabilities.iter().any(|known| known == name);
                if !known && self.results.capabilities.len() < PROBLEMS {
                    self.results.capabilities.push(printable(name));
                }
            }
            Event::Cases(count) => self.cases(usize::try_from(count).unwrap_or(usize::MAX)),
            Event::Start(name) => {
                self.interrupted(now, name);
                let running = Running { name: printable(name), since: now, measured: vec![] };
                self.log.clear();
                self.phase = Phase::Running(running);
            }
            Event::Log(line) => keep(&mut self.log, line),
            Event::Passed(name) => self.ended(now, name, Verdict::Passed),
            Event::Failed { name, reason } => self.ended(now, name, Verdict::Failed(printable(reason))),
            // A skipped case may end without a start event.
            Event::Skipped { name, reason } if self.running() != Some(name) => {
                self.interrupted(now, name);
                self.push(now, None, printable(name), Verdict::Skipped(printable(reason)));
            }
            Event::Skipped { name, reason } => self.ended(now, name, Verdict::Skipped(printable(reason))),
            Event::Measured { name, what, value } => match &mut self.phase {
                Phase::Running(running) if running.name == name && running.measured.len() < MEASURED => {
                    let measured = (printable(what), printable(value));
                    // A case runs once for each posting method, and reports its measurements each time. A
                    // repeated value is not kept.
                    if !running.measured.contains(&measured) {
                        running.measured.push(measured);
                    }
                }
                _ => self.problem(format!("{} measured without running", printable(name))),
            },
            Event::Done => {
                self.interrupted(now, "nothing more");
                let missing = self.results.missing();
                if missing > 0 {
                    self.problem(format!("the board ended {missing} cases early"));
                }
                self.end(Ending::Done);
            }
        }
    }

    /// Takes in the number of cases that the board announces. The first number counts all cases, a number
    /// after a reset only the remaining ones.
    fn cases(&mut self, count: usize) {
        let total = count.saturating_add(self.results.cases.len());
        match self.announced {
            _ if total > CASES => {
                self.end(Ending::Broken(format!("the board announces {count} cases")));
                return;
            }
            Some(announced) if announced == total => return,
            Some(announced) => {
                self.problem(format!("{announced} cases were announced first, now {total}"));
                return;
            }
            None => {
                self.announced = Some(total);
                self.results.announced = total;
            }
        }
        let lacks = |name: &&String| !self.results.capabilities.contains(name);
        if let Some(name) = self.required.iter().find(lacks) {
            let why = format!("the board lacks {name} (--require {name})");
            self.end(Ending::Broken(why));
        } else if let Some(name) = self.promised.iter().find(lacks) {
            self.problem(format!("the board lacks {name}, which its description promises"));
        }
    }

    /// Ends a running case as failed, because the board has sent an event that must not occur during a case.
    /// `by` describes the event.
    fn interrupted(&mut self, now: Duration, by: &str) {
        if let Some(name) = self.running() {
            let verdict = Verdict::Failed(format!("no verdict before {}", printable(by)));
            let name = name.to_owned();
            self.ended(now, &name, verdict);
        }
    }

    fn ended(&mut self, now: Duration, name: &str, verdict: Verdict) {
        match std::mem::replace(&mut self.phase, Phase::Between) {
            Phase::Running(running) if running.name == name => {
                self.push(now, Some(running), printable(name), verdict);
            }
            other => {
                self.phase = other;
                self.problem(format!("{} ended without running", printable(name)));
            }
        }
    }

    fn push(&mut self, now: Duration, running: Option<Running>, name: String, verdict: Verdict) {
        if self.results.cases.len() >= self.announced.unwrap_or(0) {
            self.end(Ending::Broken("the board reports more cases than it announced".into()));
            return;
        }
        if !self.names.insert(name.clone()) {
            self.problem(format!("{name} ended twice"));
        }
        let (since, measured) = running.map_or((now, vec![]), |running| (running.since, running.measured));
        let log = match verdict {
            Verdict::Passed | Verdict::Skipped(_) => vec![],
            Verdict::Failed(_) => self.log.drain(..).collect(),
            Verdict::Hung(_) | Verdict::Died(_) => self.last_words(),
        };
        let took = now.saturating_sub(since);
        self.results.cases.push(Case { name, verdict, took, measured, log });
    }

    /// Ends the running case, if there is one, with this verdict.
    fn lose(&mut self, now: Duration, verdict: Verdict) {
        if let Some(name) = self.running().map(str::to_owned) {
            self.ended(now, &name, verdict);
        }
    }

    /// Records that the board is lost: it hung, or its program died. Asks for a reset. With `again`, the
    /// board was already reset after a loss of the same kind, and the run ends.
    fn lost(&mut self, now: Duration, verdict: Verdict, again: bool) -> Step {
        let how = verdict.reason().unwrap_or_default();
        let place = match (self.running(), self.after()) {
            (Some(name), _) => format!("in {name}"),
            (None, Some(name)) => format!("after {name}"),
            (None, None) => "before the first case".into(),
        };
        let loss = format!("{}: {how}, {place}", verdict.word().to_lowercase());
        if self.running().is_none() {
            // No case is running whose log could show the last line of the board, so the problem quotes this
            // line.
            let heard = self.last_words();
            let heard = heard.last().map(|line| format!("; last heard: {line}")).unwrap_or_default();
            self.problem(format!("the board {loss}{heard}"));
        }
        self.lose(now, verdict);
        if again {
            self.end(Ending::Broken(format!("after a reset for the same reason the board {loss}")))
        } else if matches!(self.phase, Phase::Over) {
            Step::Over
        } else {
            self.results.resets.push(loss);
            self.phase = Phase::Starting;
            Step::Reset
        }
    }

    /// Returns the last lines that the board printed before it was lost, and forgets them.
    fn last_words(&mut self) -> Vec<String> {
        self.log.drain(..).chain(self.errors.drain(..)).collect()
    }

    fn problem(&mut self, problem: String) {
        match self.results.problems.len() {
            count if count < PROBLEMS => self.results.problems.push(problem),
            PROBLEMS => self.results.problems.push("further problems are not listed".into()),
            _ => {}
        }
    }
}

/// Keeps the last [`LOG`] lines.
fn keep(log: &mut VecDeque<String>, line: &str) {
    if log.len() >= LOG {
        log.pop_front();
    }
    log.push_back(printable(line));
}

/// Returns a text without control characters, cut to a maximum length.
fn printable(text: &str) -> String {
    text.chars().filter(|c| !c.is_control()).take(TEXT).collect()
}

#[cfg(test)]
mod tests;
