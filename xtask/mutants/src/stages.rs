//! The stages of tests: which packages each builds, and which programs it runs.

use crate::mutant::Part;
use std::time::Duration;

/// The stages of tests, in order. A stage runs on the mutants that no earlier stage has noticed.
pub(crate) const STAGES: [&str; 3] = ["unit tests", "vectors", "scenarios"];

/// Returns the arguments with which cargo builds the tests of a stage for these parts of the source.
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

/// Returns the names of the test programs that a stage runs on the mutants of a part.
pub(crate) fn judges(part: &Part, stage: usize) -> &'static [&'static str] {
    match (stage, part.core) {
        (0, true) => &["mlx5_mkey"],
        (0, false) => &["mlx5_softdev", "mlx5_softdev_tests"],
        (1, _) => &["hil_tests"],
        _ => &["tests"],
    }
}

/// The CPU time limit of a whole test program with a mutant that is built alone, or with a known defect.
pub(crate) const ALONE: Duration = Duration::from_secs(150);
