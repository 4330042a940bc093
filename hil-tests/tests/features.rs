//! The table of features in the guide and the one in FEATURES.md must agree: each supported feature has tests
//! that exist, and the guide gives a reason for each unsupported one.

use super::proofs::{Kind, Proof, Sources, broken, proofs};
use std::collections::BTreeMap;
use std::path::Path;

/// The texts of the two pages with tables of features.
struct Tables {
    /// The guide's page, for users.
    guide: String,
    /// FEATURES.md, which names the tests of each feature.
    tests: String,
}

impl Tables {
    fn read() -> Self {
        let root = Path::new(env!("CARGO_MANIFEST_DIR"));
        let text = |path: &str| std::fs::read_to_string(root.join(path)).expect(path);
        Self { guide: text("../src/guide/features.md"), tests: text("FEATURES.md") }
    }
}

/// Returns the rows of all tables of a text, each as its cells. Only the first heading row is left out.
fn rows(text: &str) -> impl Iterator<Item = Vec<&str>> {
    let rows = text.lines().filter(|line| line.starts_with("| ")).skip(1);
    rows.map(|line| line.trim_matches('|').split(" | ").map(str::trim).collect())
}

/// Returns whether a cell contains the marker `behind`, and after it a reason of at least `words` words.
fn is_told(cell: &str, behind: &str, words: usize) -> bool {
    cell.split_once(behind).is_some_and(|(_, reason)| reason.split_whitespace().count() >= words)
}

/// Returns a sentence for each mistake in the two tables.
fn wrong_features(tables: &Tables, sources: &Sources) -> Vec<String> {
    let mut wrong = Vec::new();
    let mut tests = BTreeMap::new();
    for cells in rows(&tables.tests) {
        match cells[..] {
            [name, bytes, shown] => {
                if tests.insert(name, (bytes, shown)).is_some() {
                    wrong.push(format!("{name}: has two rows"));
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
        // If a feature is supported in part, the supported part has tests, and the guide gives a reason for
        // the rest.
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

/// Returns a sentence for each mistake in a row of FEATURES.md. `bytes` is the cell that names the tests that
/// compare the requests' bytes, `shown` the cell that names the tests that run the feature.
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

/// The guide is for users of the library and must not name tests.
#[test]
fn the_guide_names_no_test() {
    let Tables { guide, tests } = Tables::read();
    let named = tests.lines().filter(|line| line.starts_with("| ")).flat_map(proofs);
    let inside: Vec<_> = named.filter(|proof| guide.contains(&format!("`{}`", proof.name))).collect();
    assert!(inside.is_empty(), "{:?}", inside.iter().map(|proof| proof.name).collect::<Vec<_>>());
}

/// Changes a row of either table to contain each kind of mistake. The check must report the mistake with the
/// name of the row.
#[test]
fn a_broken_row_of_the_features_is_found() {
    const ROW: &str = "interleaved layout";
    const VECTORS: &str = "vectors `layout_interleaved`";
    const SCENARIO: &str = "scenario `r049_interleaved_example`";
    const EVENTS: &str = "events of queues";
    const IN_C: &str = "in C: block CRCs combined into one";
    const HERE: &str = " | no | no | yes | ";
    let of_tests = [
        (ROW, "`r049_interleaved_example`", "`r049_interleaved`", "there is no scenario"),
        (ROW, SCENARIO, "see the guide", "nothing runs it"),
        (ROW, VECTORS, "vectors `layout_strided`", "no vectors"),
        (ROW, VECTORS, "none: why", "nothing compares"),
        (ROW, VECTORS, "–", "nothing compares"),
        (ROW, VECTORS, SCENARIO, "nothing compares"),
        (ROW, "| vectors", "| yes | vectors", "not a row of FEATURES.md"),
        (ROW, "| interleaved", "| strided", "interleaved layout: here, and not in"),
        ("wrapped keys", "deks_and_logins_are_those_of_rdma_core", "deks", "unit test deks"),
        (EVENTS, "`errors_of_queues_are_told_of`", "`errors_of_queues`", "no test errors_of_queues"),
        (EVENTS, "devx/main.rs", "devx/queues.rs", "no file"),
        (EVENTS, " in `emulator/verbs/tests/devx/main.rs`", "", "no file"),
        (IN_C, "cargo xtask capi", "cargo xtask c-library", "there is no command"),
    ];
    let of_the_guide = [
        (ROW, HERE, " | no | no | no | ", "has tests"),
        (ROW, HERE, " | no | no | part | ", "lacks a reason"),
        (ROW, HERE, " | no | no | ? | ", "says nothing"),
        (ROW, HERE, " | no | yes | ", "not a row of the guide"),
        (ROW, " | yes | no | no | ", " | yes, surely | no | no | ", "not a row of the guide"),
        (ROW, "| interleaved", "| strided", "interleaved layout: not in the guide"),
        ("AES-GCM", "not here: AES-GCM is", "AES-GCM is", "lacks a reason"),
        ("AES-GCM", " | no | not here", " | yes | not here", "not in FEATURES.md"),
    ];
    let (Tables { guide, tests }, sources) = (Tables::read(), Sources::read());
    let check = |tables: &Tables, row: &str, found: &str| {
        let wrong = wrong_features(tables, &sources);
        assert!(wrong.iter().any(|wrong| wrong.contains(row) && wrong.contains(found)), "{found}: {wrong:?}");
    };
    for (row, from, to, found) in of_tests {
        check(&Tables { guide: guide.clone(), tests: broken(&tests, row, from, to) }, row, found);
    }
    for (row, from, to, found) in of_the_guide {
        check(&Tables { guide: broken(&guide, row, from, to), tests: tests.clone() }, row, found);
    }
}
