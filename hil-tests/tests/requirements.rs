//! Checks the tables of REQUIREMENTS.md: each requirement has a row, and each test, scenario or command that
//! a row names exists.

use super::proofs::{Sources, broken, proofs};
use hil_tests::scenarios;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// The number of the last requirement of each letter: R for requirements of the three original manual pages,
/// M for those of related pages and of the device's interface.
const LAST: [(&str, u32); 2] = [("R", 187), ("M", 86)];

/// A row of the tables: the scenarios that it names, and the cell with its other proofs.
struct Row {
    scenarios: BTreeSet<String>,
    elsewhere: String,
}

/// Returns the text of REQUIREMENTS.md.
fn text() -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("REQUIREMENTS.md");
    std::fs::read_to_string(path).expect("REQUIREMENTS.md")
}

/// Returns the rows by requirement, for example "R39". The last two cells of a row name the scenarios and the
/// other proofs.
fn rows(text: &str) -> BTreeMap<String, Row> {
    let mut rows = BTreeMap::new();
    for line in text.lines().filter(|line| line.starts_with("| R") || line.starts_with("| M")) {
        let cells: Vec<&str> = line.trim_matches('|').split(" | ").map(str::trim).collect();
        let number = cells[0].get(1..).unwrap_or_default();
        if number.is_empty() || number.contains(|letter: char| !letter.is_ascii_digit()) {
            continue;
        }
        // A row of a related page has one cell less than a row of an original page.
        assert_eq!(cells.len(), if line.starts_with("| R") { 7 } else { 6 }, "cells of {line}");
        let names = cells[cells.len() - 2].split(", ").filter(|name| *name != "–");
        let row = Row {
            scenarios: names.map(|name| name.trim_matches('`').to_owned()).collect(),
            elsewhere: cells[cells.len() - 1].to_owned(),
        };
        assert!(rows.insert(cells[0].to_owned(), row).is_none(), "{} stands twice", cells[0]);
    }
    rows
}

/// Returns a sentence for each mistake in the tables.
fn wrong_rows(text: &str, sources: &Sources) -> Vec<String> {
    let (rows, mut wrong) = (rows(text), Vec::new());
    let all =
        LAST.iter().flat_map(|(letter, last)| (1..=*last).map(move |number| format!("{letter}{number}")));
    let (all, there) = (all.collect::<BTreeSet<_>>(), rows.keys().cloned().collect());
    wrong.extend(all.symmetric_difference(&there).map(|number| format!("{number} has no row, or no number")));
    let mut shown = BTreeSet::new();
    for scenario in scenarios::all() {
        shown.extend(scenario.requirements.iter().map(|requirement| (*requirement, scenario.name)));
    }
    for (requirement, Row { scenarios, elsewhere }) in &rows {
        if scenarios.is_empty() && elsewhere.len() <= 3 {
            wrong.push(format!("{requirement} has neither test nor reason"));
        }
        if requirement.starts_with('M') && scenarios.is_empty() {
            let is_shown = !proofs(elsewhere).is_empty();
            let is_told = elsewhere.strip_prefix("not built: ").is_some_and(|reason| reason.len() > 20);
            if !is_shown && !is_told {
                wrong.push(format!("{requirement}: neither shown nor `not built: reason`"));
            }
        }
        for name in scenarios {
            if !shown.contains(&(requirement.as_str(), name.as_str())) {
                wrong.push(format!("{requirement}: {name} does not name {requirement}, or does not exist"));
            }
        }
        let lacks = proofs(elsewhere).into_iter().filter_map(|proof| sources.lack(&proof));
        wrong.extend(lacks.map(|lack| format!("{requirement}: {lack}")));
    }
    for (requirement, name) in shown {
        if !rows.get(requirement).is_some_and(|row| row.scenarios.contains(name)) {
            wrong.push(format!("{requirement}: the row does not name {name}, which shows it"));
        }
    }
    wrong
}

#[test]
fn every_requirement_has_a_row_with_a_test_or_a_reason() {
    let wrong = wrong_rows(&text(), &Sources::read());
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn every_scenario_shows_a_requirement() {
    for scenario in scenarios::all() {
        assert!(!scenario.requirements.is_empty(), "{} shows nothing", scenario.name);
    }
}

/// Changes a row to contain each kind of mistake. The check must report the mistake with the name of the row.
#[test]
fn a_broken_row_of_the_requirements_is_found() {
    let (text, sources) = (text(), Sources::read());
    for (number, from, to, found) in [
        ("R39", "| R39 |", "| R339 |", "no row"),
        ("R39", "`r039_list_example`", "–", "does not name r039_list_example"),
        ("R39", "`r039_list_example`", "`r039_lists`", "r039_lists does not name R39"),
        ("R39", "`r039_list_example`", "`r049_interleaved_example`", "does not name R39"),
        ("R14", "vectors `access` (flag byte of the UMR)", "–", "neither test nor reason"),
        ("R14", "vectors `access`", "vectors `rights`", "there is no vectors rights"),
        ("R50", "`r50_a_stride_has_16_bits`", "`r50_a_stride`", "there is no unit test r50_a_stride"),
        ("R77", "`a_single_wrong_bit_is_found", "`a_wrong_bit_is_found", "there is no property"),
        ("M14", "unit `m62_", "see `m62_", "neither shown nor"),
        ("M7", "`a_failure_half_way_leaves_nothing_behind`", "`a_failure`", "there is no test a_failure"),
        ("M7", "tests/devx/main.rs", "tests/devx/other.rs", "no file"),
        ("M65", "`cargo xtask hil --board", "`cargo xtask hils --board", "there is no command"),
    ] {
        let wrong = wrong_rows(&broken(&text, &format!("{number} |"), from, to), &sources);
        assert!(wrong.iter().any(|wrong| wrong.contains(number) && wrong.contains(found)), "{to}: {wrong:?}");
    }
}
