//! Compares the results of boards, case by case (`--alike`): a case must end on each board as on the first.

use super::results::{Results, Verdict};
use std::collections::{BTreeMap, BTreeSet};

/// Compares each board with the first one. `expected` has, for each board, the cases that may end
/// differently, with the reasons. An unexpected difference becomes a problem of its board. So does an
/// expected difference that is absent.
pub(super) fn compare(all: &mut [Results], expected: &[&BTreeMap<String, String>]) {
    let Some((first, others)) = all.split_first_mut() else { return };
    let verdicts = |results: &Results| -> BTreeMap<String, String> {
        results.cases.iter().map(|case| (case.name.clone(), outcome(&case.verdict))).collect()
    };
    let known = verdicts(first);
    for (results, expected) in others.iter_mut().zip(expected.iter().skip(1)) {
        let here = verdicts(results);
        let none = "not run".to_owned();
        let names: BTreeSet<&String> = known.keys().chain(here.keys()).collect();
        for name in names {
            let (there, here) = (known.get(name).unwrap_or(&none), here.get(name).unwrap_or(&none));
            let board = &first.board;
            match (there == here, expected.contains_key(name)) {
                (false, false) => {
                    results.problems.push(format!("{name} is {here}, and on {board} {there} (--alike)"));
                }
                (true, true) => results
                    .problems
                    .push(format!("{name} is {here} as on {board}: the file of boards expects a difference")),
                _ => {}
            }
        }
    }
}

/// Returns the outcome of a case in words. Reasons of failures are left out, because they contain numbers
/// that differ from run to run.
fn outcome(verdict: &Verdict) -> String {
    match verdict {
        Verdict::Skipped(reason) => format!("skipped ({reason})"),
        other => other.word().to_lowercase(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn boards_are_alike_but_for_expected_cases() {
        let skipped = |reason: &str| Verdict::Skipped(reason.into());
        let first = [
            ("a", Verdict::Passed),
            ("b", skipped("x")),
            ("c", Verdict::Passed),
            ("d", Verdict::Failed("1".into())),
            ("e", Verdict::Passed),
            ("f", Verdict::Passed),
        ];
        let second = [
            ("a", Verdict::Passed),
            ("b", skipped("y")),
            ("c", skipped("x")),
            ("d", Verdict::Failed("2".into())),
            ("f", Verdict::Passed),
        ];
        let none = BTreeMap::new();
        let expected = [("c".to_owned(), "Linux refuses it".to_owned()), ("f".into(), "old".into())].into();
        let mut all = [Results::of("one", &first), Results::of("two", &second)];
        compare(&mut all, &[&none, &expected]);
        assert!(all[0].problems.is_empty());
        let problems = [
            "b is skipped (y), and on one skipped (x) (--alike)",
            "e is not run, and on one passed (--alike)",
            "f is passed as on one: the file of boards expects a difference",
        ];
        assert_eq!(all[1].problems, problems);
        let mut alike = [Results::of("one", &first), Results::of("two", &first)];
        compare(&mut alike, &[&none, &none]);
        assert!(alike[1].problems.is_empty());
    }
}
