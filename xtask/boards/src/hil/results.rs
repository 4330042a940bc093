//! The results of a run on a board: plain data, for the summary and the reports.

use std::collections::BTreeMap;
use std::time::Duration;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    Passed,
    /// The case failed. The value is the reason.
    Failed(String),
    /// The case was skipped. The value is the reason, such as a capability that the board lacks.
    Skipped(String),
    /// The board hung. The value is the time for which the board was silent.
    Hung(String),
    /// The board's program died. The value describes its end.
    Died(String),
}

impl Verdict {
    pub(super) fn word(&self) -> &'static str {
        match self {
            Self::Passed => "passed",
            Self::Failed(_) => "FAILED",
            Self::Skipped(_) => "SKIPPED",
            Self::Hung(_) => "HUNG",
            Self::Died(_) => "DIED",
        }
    }

    pub(super) fn reason(&self) -> Option<&str> {
        match self {
            Self::Passed => None,
            Self::Failed(reason) | Self::Skipped(reason) | Self::Hung(reason) | Self::Died(reason) => {
                Some(reason)
            }
        }
    }

    pub(super) fn is_good(&self) -> bool {
        matches!(self, Self::Passed | Self::Skipped(_))
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Case {
    pub(super) name: String,
    pub(super) verdict: Verdict,
    /// The time from the case's first event to its last.
    pub(super) took: Duration,
    pub(super) measured: Vec<(String, String)>,
    pub(super) log: Vec<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) enum Ending {
    /// The board has reported all cases.
    #[default]
    Done,
    /// The board could not be reached. The value is the reason.
    Unreachable(String),
    /// The run ended early. The value is the reason.
    Broken(String),
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Results {
    pub(super) board: String,
    pub(super) device: String,
    /// Properties of the device and their values, in words.
    pub(super) about: Vec<(String, String)>,
    pub(super) capabilities: Vec<String>,
    /// The number of cases that the board announced.
    pub(super) announced: usize,
    pub(super) cases: Vec<Case>,
    pub(super) resets: Vec<String>,
    /// Problems that belong to no case: violations of the protocol, unexpected skips, differences between
    /// boards.
    pub(super) problems: Vec<String>,
    pub(super) ending: Ending,
    pub(super) took: Duration,
}

impl Results {
    pub(super) fn nothing(board: &str, ending: Ending) -> Self {
        Self { board: board.into(), ending, ..Self::default() }
    }

    /// Returns the results of a finished run with these cases, which took no time and have no log.
    #[cfg(test)]
    pub(super) fn of(board: &str, cases: &[(&str, Verdict)]) -> Self {
        let case = |(name, verdict): &(&str, Verdict)| Case {
            name: (*name).into(),
            verdict: verdict.clone(),
            took: Duration::ZERO,
            measured: vec![],
            log: vec![],
        };
        Self { cases: cases.iter().map(case).collect(), ..Self::nothing(board, Ending::Done) }
    }

    pub(super) fn count(&self, like: impl Fn(&Verdict) -> bool) -> usize {
        self.cases.iter().filter(|case| like(&case.verdict)).count()
    }

    /// Returns the number of cases that failed, hung or died.
    pub(super) fn bad(&self) -> usize {
        self.count(|verdict| !verdict.is_good())
    }

    /// Returns the number of announced cases without a verdict.
    pub(super) fn missing(&self) -> usize {
        self.announced.saturating_sub(self.cases.len())
    }

    /// Returns the reasons of skips, with the number of cases for each.
    pub(super) fn skipped(&self) -> BTreeMap<&str, usize> {
        let mut reasons = BTreeMap::new();
        for case in &self.cases {
            if let Verdict::Skipped(reason) = &case.verdict {
                *reasons.entry(reason.as_str()).or_default() += 1;
            }
        }
        reasons
    }

    /// Returns the faults of the run that belong to no case, as sentences. If `board_required`, a board that
    /// cannot be reached is a fault.
    pub(super) fn faults(&self, board_required: bool) -> Vec<String> {
        let mut faults: Vec<String> = self.problems.clone();
        match &self.ending {
            Ending::Done if self.announced == 0 => faults.push("no case matches the filter".into()),
            Ending::Done if self.count(|verdict| *verdict == Verdict::Passed) == 0 => {
                faults.push("no case passed".into());
            }
            Ending::Done => {}
            Ending::Unreachable(why) if board_required => {
                faults.push(format!("no board: {why} (--require-board)"));
            }
            Ending::Unreachable(_) => {}
            Ending::Broken(why) => faults.push(why.clone()),
        }
        faults
    }

    /// Returns whether all cases and the run itself are free of faults. If `board_required`, a board that
    /// cannot be reached is a fault.
    pub(super) fn is_good(&self, board_required: bool) -> bool {
        self.bad() == 0 && self.faults(board_required).is_empty()
    }
}
