//! The guide's table of features and FEATURES.md agree: each feature that is here has tests that exist, each other one a reason.

use super::proofs::{Kind, Proof, Sources, proofs};
use std::collections::BTreeMap;
use std::path::Path;

/// Both tables as texts.
struct Tables {
    /// The guide's, for users.
    guide: String,
    /// That of FEATURES.md.
    tests: String,
}

impl Tables {
    fn read() -> Self {
        let root = Path::new(env!("CARGO_MANIFEST_DIR"));
        let text = |path: &str| std::fs::read_to_string(root.join(path)).expect(path);
        Self { guide: text("../src/guide/features.md"), tests: text("FEATURES.md") }
    }
}

/// Returns the rows of the first table of a text, behind its heading, as cells.
fn rows(text: &str) -> impl Iterator<Item = Vec<&str>> {
    let rows = text.lines().filter(|line| line.starts_with("| ")).skip(1);
    rows.map(|line| line.trim_matches('|').split(" | ").map(str::trim).collect())
}

/// Whether a cell gives a reason of this number of words behind these.
fn is_told(cell: &str, behind: &str, words: usize) -> bool {
    cell.split_once(behind).is_some_and(|(_, reason)| reason.split_whitespace().count() >= words)
}

/// Returns what is wrong in the two tables.
fn wrong_features(tables: &Tables, sources: &Sources) -> Vec<String> {
    let mut wrong = Vec::new();
    let mut tests = BTreeMap::new();
    for cells in rows(&tables.tests) {
        match cells[..] {
            [name, bytes, shown] => {
                if tests.insert(name, (bytes, shown)).is_some() {
                    wrong.push(format!("{name}: stands twice"));
                }
            }
            _ => wrong.push(format!("not a row of FEATURES.md: {}", cells.join(" | "))),
        }
    }
    let known = ["yes", "no", "part", "–"];
    for cells in rows(&tables.guide) {
        let (name, here, note) = match cells[..] {
            [name, a, b, c, here, note] if [a, b, c].iter().all(|cell| known.contains(cell)) => {
                (name, here, note)
            }
            _ => {
                wrong.push(format!("not a row of the guide: {}", cells.join(" | ")));
                continue;
            }
        };
        // A feature that is here in part has both: tests of the part, and why the rest is not here.
        let (is_here, is_missing) = match here {
            "yes" => (true, false),
            "no" => (false, true),
            "part" => (true, true),
            _ => {
                wrong.push(format!("{name}: here `{here}` says nothing"));
                continue;
            }
        };
        if is_told(note, "not here: ", 5) != is_missing {
            wrong.push(format!("{name}: here `{here}`, but there is or lacks a reason: {note}"));
        }
        match tests.remove(name) {
            Some(row) if is_here => wrong.extend(unproven(name, row, sources)),
            Some(_) => wrong.push(format!("{name}: not here, and has tests")),
            None if is_here => wrong.push(format!("{name}: here, and not in FEATURES.md")),
            None => {}
        }
    }
    wrong.extend(tests.keys().map(|name| format!("{name}: not in the guide")));
    wrong
}

/// Returns what is wrong in a row of FEATURES.md: its cells for bytes and for what runs the feature.
fn unproven(name: &str, (bytes, shown): (&str, &str), sources: &Sources) -> Vec<String> {
    let mut wrong = Vec::new();
    let named = [proofs(bytes), proofs(shown)];
    let compares = |proof: &Proof<'_>| !matches!(proof.kind, Kind::Scenario | Kind::Test);
    let runs = |proof: &Proof<'_>| matches!(proof.kind, Kind::Scenario | Kind::Test | Kind::Command);
    if !is_told(bytes, "none: ", 2) && !named[0].iter().any(compares) {
        wrong.push(format!("{name}: nothing compares its bytes, and there is no reason"));
    }
    if !named[1].iter().any(runs) {
        wrong.push(format!("{name}: nothing runs it: {shown}"));
    }
    let lacks = named.iter().flatten().filter_map(|proof| sources.lack(proof));
    wrong.extend(lacks.map(|lack| format!("{name}: {lack}")));
    wrong
}

#[test]
fn every_feature_has_a_test_or_a_reason() {
    let (tables, sources) = (Tables::read(), Sources::read());
    let features = (rows(&tables.guide).count(), rows(&tables.tests).count());
    assert!(features.0 >= 63 && features.1 >= 50, "{features:?}");
    let wrong = wrong_features(&tables, &sources);
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// The guide is for users of the library: it names no test.
#[test]
fn the_guide_names_no_test() {
    let Tables { guide, tests } = Tables::read();
    let named = tests.lines().filter(|line| line.starts_with("| ")).flat_map(proofs);
    let inside: Vec<_> = named.filter(|proof| guide.contains(&format!("`{}`", proof.name))).collect();
    assert!(inside.is_empty(), "{:?}", inside.iter().map(|proof| proof.name).collect::<Vec<_>>());
}

/// Each way in which a row can be wrong is found, and named with its row.
#[test]
fn a_broken_row_of_the_features_is_found() {
    let sources = Sources::read();
    for (row, from, to, found) in [
        ("interleaved layout", "`r049_interleaved_example`", "`r049_interleaved`", "there is no scenario"),
        ("interleaved layout", "scenario `r049_interleaved_example`", "see the guide", "nothing runs it"),
        ("interleaved layout", "vectors `layout_interleaved`", "vectors `layout_strided`", "no vectors"),
        ("interleaved layout", "vectors `layout_interleaved`", "none: why", "nothing compares"),
        ("interleaved layout", "vectors `layout_interleaved`", "–", "nothing compares"),
        (
            "interleaved layout",
            "vectors `layout_interleaved`",
            "scenario `r049_interleaved_example`",
            "nothing compares",
        ),
        ("interleaved layout", "| vectors", "| yes | vectors", "not a row of FEATURES.md"),
        ("interleaved layout", "| interleaved", "| strided", "interleaved layout: here, and not in"),
        (
            "wrapped keys",
            "`deks_and_logins_are_those_of_rdma_core`",
            "`deks_and_logins`",
            "unit test deks_and_logins",
        ),
        (
            "events of queues",
            "`errors_of_queues_are_told_of`",
            "`errors_of_queues`",
            "no test errors_of_queues",
        ),
        ("events of queues", "devx/main.rs", "devx/queues.rs", "no file"),
        ("events of queues", " in `emulator/verbs/tests/devx/main.rs`", "", "no file"),
        ("in C", "cargo xtask capi", "cargo xtask c-library", "there is no command"),
    ] {
        let mut tables = Tables::read();
        tables.tests = broken(&tables.tests, row, from, to);
        let wrong = wrong_features(&tables, &sources);
        assert!(wrong.iter().any(|wrong| wrong.contains(row) && wrong.contains(found)), "{to}: {wrong:?}");
    }
    for (row, from, to, found) in [
        ("interleaved layout", " | no | no | yes | ", " | no | no | no | ", "has tests"),
        ("interleaved layout", " | no | no | yes | ", " | no | no | part | ", "lacks a reason"),
        ("interleaved layout", " | no | no | yes | ", " | no | no | ? | ", "says nothing"),
        ("interleaved layout", " | no | no | yes | ", " | no | yes | ", "not a row of the guide"),
        (
            "interleaved layout",
            " | yes | no | no | ",
            " | yes, surely | no | no | ",
            "not a row of the guide",
        ),
        ("interleaved layout", "| interleaved", "| strided", "interleaved layout: not in the guide"),
        ("AES-GCM", "not here: AES-GCM is", "AES-GCM is", "lacks a reason"),
        ("AES-GCM", " | no | not here", " | yes | not here", "not in FEATURES.md"),
        ("in C", "not here: logins", "logins", "lacks a reason"),
    ] {
        let mut tables = Tables::read();
        tables.guide = broken(&tables.guide, row, from, to);
        let wrong = wrong_features(&tables, &sources);
        assert!(wrong.iter().any(|wrong| wrong.contains(row) && wrong.contains(found)), "{to}: {wrong:?}");
    }
}

/// Returns a table with the row of this name changed.
fn broken(table: &str, row: &str, from: &str, to: &str) -> String {
    let line = table.lines().find(|line| line.starts_with(&format!("| {row}"))).expect(row);
    assert!(line.contains(from), "{line}");
    table.replace(line, &line.replacen(from, to, 1))
}
