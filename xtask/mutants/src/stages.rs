//! The stages of the tests: packages to build, and programs to run.

use crate::mutant::Part;
use std::time::Duration;

/// The stages, in order. A mutant that one stage does not notice goes to the next.
pub(crate) const STAGES: [&str; 3] = ["unit tests", "vectors", "scenarios"];

/// Returns the arguments with which cargo builds a stage for these parts.
pub(crate) fn packages(stage: usize, parts: &[&Part]) -> Vec<&'static str> {
    match stage {
        0 => {
            let has = |core| parts.iter().any(|part| part.core == core);
            let core = has(true).then_some(["--package", "mlx5-mkey"].as_slice());
            let device = has(false)
                .then_some(["--package", "mlx5-softdev", "--package", "mlx5-softdev-tests"].as_slice());
            core.into_iter().chain(device).flatten().copied().chain(["--lib"]).collect()
        }
        1 => vec!["--package", "hil-tests", "--lib"],
        _ => vec!["--package", "hil-tests", "--test", "tests"],
    }
}

/// Returns the test programs of a stage that judge a part.
pub(crate) fn judges(part: &Part, stage: usize) -> &'static [&'static str] {
    match (stage, part.core) {
        (0, true) => &["mlx5_mkey"],
        (0, false) => &["mlx5_softdev", "mlx5_softdev_tests"],
        (1, _) => &["hil_tests"],
        _ => &["tests"],
    }
}

/// The CPU time limit of a test program, for a mutant that is built alone.
pub(crate) const ALONE: Duration = Duration::from_secs(150);
