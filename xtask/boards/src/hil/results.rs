//! What came of a run on a board: plain data, for the summary and the reports.

use std::collections::BTreeMap;
use std::time::Duration;

/// What came of a case.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    Passed,
    /// What it found wrong.
    Failed(String),
    /// What the board lacks.
    Skipped(String),
    /// The board said nothing more, for so long.
    Hung(String),
    /// The board's program ended, and how.
    Died(String),
}

impl Verdict {
    /// The word that stands before a case in lists.
    pub(super) fn word(&self) -> &'static str {
        match self {
            Self::Passed => "passed",
            Self::Failed(_) => "FAILED",
            Self::Skipped(_) => "SKIPPED",
            Self::Hung(_) => "HUNG",
            Self::Died(_) => "DIED",
        }
    }

    /// What is told beside the word.
    pub(super) fn reason(&self) -> Option<&str> {
        match self {
            Self::Passed => None,
            Self::Failed(reason) | Self::Skipped(reason) | Self::Hung(reason) | Self::Died(reason) => {
                Some(reason)
            }
        }
    }

    /// Whether this is no reason to worry.
    pub(super) fn is_good(&self) -> bool {
        matches!(self, Self::Passed | Self::Skipped(_))
    }
}

/// A case that has ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Case {
    pub(super) name: String,
    pub(super) verdict: Verdict,
    /// From its first event to its last.
    pub(super) took: Duration,
    /// What it measured, and the value.
    pub(super) measured: Vec<(String, String)>,
    /// The last lines of log while it ran.
    pub(super) log: Vec<String>,
}

/// How the run as a whole ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Ending {
    /// All cases were told of.
    Done,
    /// There was no board to run anything on, and why.
    Unreachable(String),
    /// It was ended early, and why.
    Broken(String),
}

/// A run on one board.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Results {
    pub(super) board: String,
    /// What the board's device is, in words.
    pub(super) device: String,
    pub(super) capabilities: Vec<String>,
    /// How many cases the board said there are.
    pub(super) announced: usize,
    pub(super) cases: Vec<Case>,
    /// Why the board was reset, each time.
    pub(super) resets: Vec<String>,
    /// What the board said against the rules.
    pub(super) problems: Vec<String>,
    pub(super) ending: Ending,
    pub(super) took: Duration,
}

impl Results {
    /// The results of a board that could not be reached.
    pub(super) fn nothing(board: &str, ending: Ending) -> Self {
        Self {
            board: board.into(),
            device: String::new(),
            capabilities: vec![],
            announced: 0,
            cases: vec![],
            resets: vec![],
            problems: vec![],
            ending,
            took: Duration::ZERO,
        }
    }

    /// How many cases have a verdict like this.
    pub(super) fn count(&self, like: impl Fn(&Verdict) -> bool) -> usize {
        self.cases.iter().filter(|case| like(&case.verdict)).count()
    }

    /// How many cases failed, hung or died.
    pub(super) fn bad(&self) -> usize {
        self.count(|verdict| !verdict.is_good())
    }

    /// How many cases were announced and not told of.
    pub(super) fn missing(&self) -> usize {
        self.announced.saturating_sub(self.cases.len())
    }

    /// The reasons why cases were skipped, and how many for each.
    pub(super) fn skipped(&self) -> BTreeMap<&str, usize> {
        let mut reasons = BTreeMap::new();
        for case in &self.cases {
            if let Verdict::Skipped(reason) = &case.verdict {
                *reasons.entry(reason.as_str()).or_default() += 1;
            }
        }
        reasons
    }

    /// What is wrong with the run beyond its cases, in sentences.
    pub(super) fn faults(&self, board_required: bool) -> Vec<String> {
        let mut faults: Vec<String> = self.problems.clone();
        match &self.ending {
            Ending::Done if self.announced == 0 => faults.push("no case has such a name".into()),
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

    /// Whether nothing is wrong: neither with a case nor with the run.
    pub(super) fn is_good(&self, board_required: bool) -> bool {
        self.bad() == 0 && self.faults(board_required).is_empty()
    }
}
