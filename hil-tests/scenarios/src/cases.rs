//! Runs cases (scenarios and measurements) one after the other and reports each event. Test programs that
//! report by [`crate::protocol`] call these functions.

use crate::board::{Board, Capabilities};
use crate::history;
use crate::protocol::Event;
use crate::qp_pair::Verdict;
use crate::scenarios::measured::{self, Measurement};
use crate::scenarios::{self, Needs, Scenario};
use crate::way::{Way, Ways};
use alloc::boxed::Box;
use alloc::string::String;

/// Which cases a run executes, by which posting methods, and what it reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Selection<'a> {
    /// The name of the board in the command line that repeats a failed case (the log prints this line).
    /// `cargo xtask hil` replaces it by the board's name in `boards.toml`.
    pub board: &'a str,
    /// Selects cases whose name contains this text.
    pub filter: &'a str,
    /// Selects the cases after the one with this name, to continue a run whose connection to the board was
    /// lost. Selects no case if no case has this name.
    pub after: Option<&'a str>,
    /// The posting methods by which each selected case runs.
    pub ways: Ways,
    /// Also runs measurements on a board that is no hardware, and reports the observed behaviour wherever a
    /// scenario assumes one. On hardware both happen in any case.
    pub measure: bool,
}

impl Default for Selection<'_> {
    /// Selects all cases, by the posting method `request`. The command that repeats a failed case names the
    /// software device.
    fn default() -> Self {
        Self { board: "softdev", filter: "", after: None, ways: Ways::default(), measure: false }
    }
}

/// A case, the unit of a run: a scenario or a measurement.
#[derive(Clone, Copy, Debug)]
pub enum Case {
    /// Checks a requirement of devices.
    Scenario(&'static Scenario),
    /// Measures a value that no document states.
    Measurement(&'static Measurement),
}

impl Case {
    /// Returns the name of the case.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Scenario(scenario) => scenario.name,
            Self::Measurement(measurement) => measurement.name,
        }
    }

    /// Returns the capabilities that the case needs.
    pub const fn needs(&self) -> &'static Needs {
        match self {
            Self::Scenario(scenario) => &scenario.needs,
            Self::Measurement(measurement) => &measurement.needs,
        }
    }

    /// Runs the case on a board, and reports measured values by `tell`. With `assumptions`, also reports the
    /// observed behaviour at each assumption of a scenario.
    fn run(&self, board: &mut dyn Board, assumptions: bool, tell: &mut impl FnMut(Event<'_>)) -> Verdict {
        match self {
            Self::Scenario(scenario) => {
                let (name, verdict) = (scenario.name, scenario.run_on(board));
                for (what, value) in board.findings().drain(..).filter(|_| assumptions) {
                    tell(Event::Measured { name, what: &what, value: &value });
                }
                verdict
            }
            Self::Measurement(Measurement { name, run, .. }) => {
                run(board, &mut |what, value| tell(Event::Measured { name, what, value }))
            }
        }
    }
}

impl Selection<'_> {
    /// Returns the selected cases: scenarios, then measurements.
    pub fn cases(&self) -> impl Iterator<Item = Case> {
        let all = || scenarios::all().map(Case::Scenario).chain(measured::all().map(Case::Measurement));
        let behind = |(place, case): (usize, Case)| (Some(case.name()) == self.after).then_some(place + 1);
        let first = match self.after {
            None => 0,
            Some(_) => all().enumerate().find_map(behind).unwrap_or(usize::MAX),
        };
        all().skip(first).filter(|case| case.name().contains(self.filter))
    }
}

/// Runs the selected cases, each by its posting methods, and reports every event by `tell`. `open` makes a
/// new board for each run of a case. Returns true if no case failed.
///
/// # Errors
/// The reason why `open` made no board. Before the first case the reason is reported as [`Event::NoDevice`].
/// Later the run ends without [`Event::Done`].
pub fn run<E: core::fmt::Display>(
    selection: Selection<'_>,
    open: impl FnMut() -> Result<Box<dyn Board>, E>,
    tell: impl FnMut(Event<'_>),
) -> Result<bool, E> {
    run_guarded(selection, open, |case| case(), tell)
}

/// Runs the selected cases as [`run`] does, but calls each case through `guard`, which may turn a panic into
/// a failure.
///
/// # Errors
/// As [`run`].
pub fn run_guarded<E: core::fmt::Display>(
    selection: Selection<'_>,
    mut open: impl FnMut() -> Result<Box<dyn Board>, E>,
    mut guard: impl FnMut(&mut dyn FnMut() -> Verdict) -> Verdict,
    mut tell: impl FnMut(Event<'_>),
) -> Result<bool, E> {
    let (about, capabilities) = match open() {
        Ok(board) => (board.about(), board.capabilities()),
        Err(error) => {
            tell(Event::NoDevice(&format!("{error}")));
            return Err(error);
        }
    };
    about.iter().for_each(|(what, value)| tell(Event::About { what, value }));
    capabilities.names().for_each(|name| tell(Event::Capability(name)));
    tell(Event::Cases(u32::try_from(selection.cases().count()).unwrap_or(u32::MAX)));
    let mut good = true;
    let measured = Capabilities { hardware: capabilities.hardware || selection.measure, ..capabilities };
    for case in selection.cases() {
        let name = case.name();
        if let Some(what) = case.needs().missing(&measured) {
            tell(Event::Skipped { name, reason: &format!("the board lacks {what}") });
            continue;
        }
        tell(Event::Start(name));
        let mut failed = None;
        // A case that runs the programs of the storage example runs once, because the programs choose their
        // own posting method.
        let programs = case.needs().programs;
        let ways = if programs { 1 } else { usize::MAX };
        for way in selection.ways.of(name).into_iter().take(ways) {
            let mut board = open()?;
            *board.way() = way;
            if let Err(reason) = guard(&mut || case.run(&mut *board, measured.hardware, &mut tell)) {
                history::lines(&mut *board).iter().for_each(|line| tell(Event::Log(line)));
                tell(Event::Log(&again(selection.board, name, way)));
                failed = Some(if programs { reason } else { by(way, &reason) });
                break;
            }
        }
        match failed {
            None => tell(Event::Passed(name)),
            Some(reason) => {
                tell(Event::Failed { name, reason: &reason });
                good = false;
            }
        }
    }
    tell(Event::Done);
    Ok(good)
}

/// Returns a log line with the command that repeats a case by this posting method.
pub fn again(board: &str, name: &str, way: Way) -> String {
    format!("again: cargo xtask hil --board {board} --filter {name} --ways {}", way.name())
}

/// Adds the posting method to the reason of a failure.
pub fn by(way: Way, reason: &str) -> String {
    format!("by {}: {reason}", way.name())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::board::SoftBoard;
    use alloc::string::ToString;
    use alloc::vec::Vec;
    use mlx5_softdev::DeviceProfile;

    fn lines(selection: Selection<'_>) -> Vec<String> {
        let mut lines = Vec::new();
        let open = || Ok::<Box<dyn Board>, &str>(Box::new(SoftBoard::new(DeviceProfile::default())));
        assert_eq!(run(selection, open, |event| lines.push(event.to_string())), Ok(true));
        lines
    }

    #[test]
    fn a_run_tells_what_it_does() {
        assert_eq!(
            lines(Selection { filter: "r028_", ..Selection::default() }),
            [
                "hil: capability signature",
                "hil: capability xts",
                "hil: capability xts-many",
                "hil: capability drain",
                "hil: capability fixed-entries",
                "hil: capability long-lists",
                "hil: capability memcpy",
                "hil: capability masked-atomics",
                "hil: capability relaxed-ordering",
                "hil: capability dek-modify",
                "hil: capability clock",
                "hil: capability bare",
                "hil: cases 1",
                "hil: start r028_write_replaces_read",
                "hil: passed r028_write_replaces_read",
                "hil: done"
            ]
        );
        let skipped = lines(Selection { filter: "r171_rows", ..Selection::default() });
        let reason = "the board lacks an AES-XTS engine of single data units";
        assert!(
            skipped.contains(&format!("hil: skipped r171_rows_on_a_single_unit: {reason}")),
            "{skipped:?}"
        );
    }

    #[test]
    fn a_run_goes_on_behind_a_case() {
        let all: Vec<_> = Selection::default().cases().map(|case| case.name()).collect();
        let behind = |name| -> Vec<_> {
            Selection { after: Some(name), ..Selection::default() }.cases().map(|case| case.name()).collect()
        };
        assert_eq!(behind(all[3]), all[4..]);
        assert_eq!(behind(all[all.len() - 1]), [""; 0]);
        assert_eq!(behind("no such case"), [""; 0]);
    }

    #[test]
    fn a_guard_has_the_last_word() {
        let mut lines = Vec::new();
        let open = || Ok::<Box<dyn Board>, &str>(Box::new(SoftBoard::new(DeviceProfile::default())));
        let guard = |case: &mut dyn FnMut() -> Verdict| case().and(Err("panicked".into()));
        let selection = Selection { filter: "r028_", ..Selection::default() };
        assert_eq!(run_guarded(selection, open, guard, |event| lines.push(event.to_string())), Ok(false));
        assert!(
            lines.contains(&"hil: failed r028_write_replaces_read: by request: panicked".into()),
            "{lines:?}"
        );
    }

    #[test]
    fn without_a_device_there_is_a_reason() {
        let mut lines = Vec::new();
        let open = || Err("nothing\nhere");
        assert!(run(Selection::default(), open, |event| lines.push(event.to_string())).is_err());
        assert_eq!(lines, ["hil: no device: nothing here"]);
    }
}
