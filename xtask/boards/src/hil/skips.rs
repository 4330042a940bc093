//! Compares the skipped cases of a board with the list of expected skips in the board's description.

use super::results::{Results, Verdict};
use hil_scenarios::cases::Selection;
use std::collections::BTreeMap;

/// Returns a sentence for each unexpected skip, and for each expected skip that is absent. `expected` has the
/// names of the cases with the missing capabilities. Cases that were not run are left out.
pub(super) fn compare(results: &Results, expected: &BTreeMap<String, String>) -> Vec<String> {
    let judge = |name: &str, verdict: &Verdict| match (verdict, expected.get(name)) {
        (Verdict::Skipped(reason), None) => {
            Some(format!("{name} is skipped ({reason}), and the list of skipped cases does not name it"))
        }
        (Verdict::Skipped(reason), Some(lacks)) if *reason != reason_for(name, lacks) => {
            Some(format!("{name} is skipped ({reason}), and the list says that the board lacks {lacks}"))
        }
        (Verdict::Skipped(_), Some(_)) | (_, None) => None,
        (other, Some(_)) => {
            Some(format!("{name} is {}, and the list of skipped cases names it", other.word().to_lowercase()))
        }
    };
    results.cases.iter().filter_map(|case| judge(&case.name, &case.verdict)).collect()
}

/// Returns the reason with which a board skips a case because it lacks a capability.
fn reason_for(case: &str, lacks: &str) -> String {
    let case = Selection::default().cases().find(|known| known.name() == case);
    format!("the board lacks {}", case.and_then(|case| case.needs().words(lacks)).unwrap_or(lacks))
}

#[cfg(test)]
mod tests {
    use super::*;
    use xtask::run::root;
    use xtask_parsers::boards;

    #[test]
    fn a_board_skips_exactly_its_list() {
        let skipped = |lacks: &str| Verdict::Skipped(format!("the board lacks {lacks}"));
        let cases = [
            ("a", skipped("xts")),
            ("b", skipped("xts")),
            ("c", Verdict::Passed),
            ("d", skipped("bare")),
            ("e", Verdict::Passed),
        ];
        let results = Results::of("board", &cases);
        let list = |pairs: &[(&str, &str)]| {
            pairs.iter().map(|(case, lacks)| ((*case).to_owned(), (*lacks).to_owned())).collect()
        };
        let expected = list(&[("a", "xts"), ("b", "xts"), ("d", "bare"), ("not run", "xts")]);
        assert_eq!(compare(&results, &expected), [""; 0]);
        let reason = reason_for("m64_a_bare_machine_brings_its_device_up", "bare");
        assert_eq!(reason, "the board lacks a device that no driver has");
        let problems = compare(&results, &list(&[("a", "xts"), ("c", "xts"), ("d", "xts")]));
        assert_eq!(problems.len(), 3, "{problems:?}");
        for (problem, words) in problems.iter().zip(["b is skipped", "c is passed", "d is skipped"]) {
            assert!(problem.starts_with(words), "{problem}");
        }
    }

    /// A board's description promises capabilities, and may list the skipped cases. This list must name
    /// exactly the cases that need other capabilities.
    #[test]
    fn lists_are_those_of_the_promised_capabilities() {
        let boards = boards::read(&root().join("hil-tests/boards.toml")).unwrap();
        for name in ["uverbs", "guest", "vdpu"] {
            let board = boards.find(name).unwrap().remove(0).1;
            let lacks = |needs: &&str| !board.capabilities.iter().any(|has| has == needs);
            let of = |case: hil_scenarios::cases::Case| {
                let lacks = case.needs().names().find(lacks)?;
                Some((case.name().to_owned(), lacks.to_owned()))
            };
            let found: BTreeMap<_, _> = Selection::default().cases().filter_map(of).collect();
            assert_eq!(board.skipped.as_ref(), Some(&found), "{name}");
        }
    }
}
