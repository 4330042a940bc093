//! How a step of `cargo xtask test` ended.

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    Passed,
    /// The step was skipped. The value is the reason.
    Skipped(String),
    /// The step failed. The value is the error.
    Failed(String),
}

impl Outcome {
    pub(crate) fn word(&self) -> &'static str {
        match self {
            Self::Passed => "passed",
            Self::Skipped(_) => "SKIPPED",
            Self::Failed(_) => "FAILED",
        }
    }
}

impl From<Result<(), String>> for Outcome {
    fn from(result: Result<(), String>) -> Self {
        match result {
            Ok(()) => Self::Passed,
            Err(error) => Self::Failed(error),
        }
    }
}
