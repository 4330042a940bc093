//! The table of requirements in README.md names what there is: all numbers, scenarios that exist, and each where it says.

#![allow(clippy::indexing_slicing, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use hil_tests::scenarios;
use std::collections::{BTreeMap, BTreeSet};
use std::io::Read;
use std::path::Path;

/// Requirements are R1 to this.
const LAST: u32 = 187;

/// A row: its scenarios, and what else tests it.
struct Row {
    scenarios: BTreeSet<String>,
    elsewhere: String,
}

fn rows() -> BTreeMap<u32, Row> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("README.md");
    let text = std::fs::read_to_string(path).expect("README.md");
    let mut rows = BTreeMap::new();
    for line in text.lines().filter(|line| line.starts_with("| R")) {
        let cells: Vec<&str> = line.trim_matches('|').split(" | ").map(str::trim).collect();
        let Some(number) = cells[0].strip_prefix('R').and_then(|number| number.parse().ok()) else {
            continue;
        };
        assert_eq!(cells.len(), 4, "cells of {line}");
        let names = cells[2].split(", ").filter(|name| *name != "–");
        let row = Row {
            scenarios: names.map(|name| name.trim_matches('`').to_owned()).collect(),
            elsewhere: cells[3].to_owned(),
        };
        assert!(rows.insert(number, row).is_none(), "R{number} stands twice");
    }
    rows
}

#[test]
fn every_requirement_has_a_row_with_a_test_or_a_reason() {
    let rows = rows();
    assert_eq!(rows.keys().copied().collect::<Vec<_>>(), (1..=LAST).collect::<Vec<_>>());
    for (number, row) in rows {
        assert!(
            !row.scenarios.is_empty() || row.elsewhere.len() > 3,
            "R{number} has neither test nor reason"
        );
    }
}

#[test]
fn the_table_and_the_scenarios_say_the_same() {
    let rows = rows();
    let mut differences = Vec::new();
    let mut told = BTreeSet::new();
    for scenario in scenarios::all() {
        for requirement in scenario.requirements {
            let (kind, number) = requirement.split_at(1);
            let number: u32 = number.parse().expect("a letter and a number");
            assert!(kind == "R" || kind == "M", "{}: requirement {requirement}", scenario.name);
            if kind == "M" {
                continue;
            }
            told.insert((number, scenario.name.to_owned()));
        }
    }
    for (number, row) in &rows {
        for name in &row.scenarios {
            if !told.contains(&(*number, name.clone())) {
                differences
                    .push(format!("R{number} names {name}, which does not name R{number} or does not exist"));
            }
        }
    }
    for (number, name) in &told {
        if !rows.get(number).is_some_and(|row| row.scenarios.contains(name)) {
            differences.push(format!("{name} shows R{number}, but its row does not name it"));
        }
    }
    assert!(differences.is_empty(), "{}", differences.join("\n"));
}

#[test]
fn every_scenario_and_every_place_is_named() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let text = std::fs::read_to_string(root.join("README.md")).expect("README.md");
    // In a table, by the letter of its requirement.
    let rows = |letter: &str| -> Vec<&str> {
        text.lines()
            .filter(|line| line.strip_prefix("| ").is_some_and(|row| row.starts_with(letter)))
            .collect()
    };
    let (requirements, related) = (rows("R"), rows("M"));
    for scenario in scenarios::all() {
        let name = format!("`{}`", scenario.name);
        let table = if scenario.name.starts_with('m') { &related } else { &requirements };
        let row = table.iter().find(|row| row.contains(&name));
        let Some(row) = row else { panic!("{name} is in no table of README.md") };
        if scenario.name.starts_with('m') {
            let numbers = row.split(" | ").next().unwrap_or_default().trim_start_matches("| ");
            let told: Vec<&str> =
                scenario.requirements.iter().copied().filter(|name| name.starts_with('M')).collect();
            assert_eq!(numbers, told.join(", "), "{name}");
        }
    }
    for line in text.lines().filter(|line| line.starts_with("| `")) {
        let places = line.split(" | ").next().unwrap_or_default();
        for place in places.split('`').skip(1).step_by(2) {
            assert!(root.join(place).exists(), "{place} is not there");
        }
    }
    for folder in ["src", "tests"] {
        for entry in std::fs::read_dir(root.join(folder)).expect("a folder") {
            let name = entry.expect("an entry").file_name().into_string().expect("a name");
            let place = format!("{folder}/{name}");
            let listed = text.contains(&format!("`{place}`")) || text.contains(&format!("`{place}/`"));
            assert!(name == "lib.rs" || listed, "{place} is not in README.md");
        }
    }
}

#[test]
fn files_vectors_and_tests_that_the_table_names_exist() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let properties = std::fs::read_to_string(root.join("tests/properties.rs")).expect("properties");
    let library: String = [
        "mkey/layout.rs",
        "mkey/crypto.rs",
        "mkey/signature.rs",
        "queue/send.rs",
        "types.rs",
        "command/tests.rs",
    ]
    .map(|file| std::fs::read_to_string(root.join("../src").join(file)).expect("a file of the library"))
    .concat();
    for (number, row) in rows() {
        let quoted: Vec<&str> = row.elsewhere.split('`').collect();
        for pair in quoted.chunks_exact(2) {
            let (before, name) = (pair[0], pair[1]);
            if before.ends_with("vectors ") {
                let group = name.split('/').next().unwrap_or_default();
                let file = std::fs::File::open(root.join(format!("vectors/{group}.jsonl.gz")));
                let mut lines = String::new();
                let mut reader = flate2::read::GzDecoder::new(file.expect("a group of vectors"));
                reader.read_to_string(&mut lines).expect("compressed text");
                assert!(lines.contains(&format!("\"id\":\"{name}")), "R{number}: vectors {name}");
            } else if before.ends_with("property ") {
                assert!(properties.contains(&format!("fn {name}(")), "R{number}: property {name}");
            } else if before.ends_with("unit ") {
                assert!(library.contains(&format!("fn {name}(")), "R{number}: unit test {name}");
            }
        }
    }
}
