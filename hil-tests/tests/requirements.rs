//! The tables of requirements in README.md name what there is: all numbers, scenarios that exist, and each where it says. So does the
//! guide's table of features.

use hil_tests::scenarios;
use std::collections::{BTreeMap, BTreeSet};
use std::io::Read;
use std::path::Path;

/// Requirements of the three pages are R1 to this, those of the related ones M1 to this.
const LAST: [(&str, u32); 2] = [("R", 187), ("M", 83)];

/// The words before a quoted name, which say where the name is looked for.
const KINDS: [&str; 7] = ["vectors ", "property ", "unit ", "test ", "command ", "scenario ", "scenarios "];

/// A row: its scenarios, and what else tests it.
struct Row {
    scenarios: BTreeSet<String>,
    elsewhere: String,
}

/// Reads the rows, by requirement: "R39".
fn rows() -> BTreeMap<String, Row> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("README.md");
    let text = std::fs::read_to_string(path).expect("README.md");
    let mut rows = BTreeMap::new();
    for line in text.lines().filter(|line| line.starts_with("| R") || line.starts_with("| M")) {
        let cells: Vec<&str> = line.trim_matches('|').split(" | ").map(str::trim).collect();
        let number = cells[0].get(1..).unwrap_or_default();
        if number.is_empty() || number.contains(|letter: char| !letter.is_ascii_digit()) {
            continue;
        }
        assert_eq!(cells.len(), 4, "cells of {line}");
        let names = cells[2].split(", ").filter(|name| *name != "–");
        let row = Row {
            scenarios: names.map(|name| name.trim_matches('`').to_owned()).collect(),
            elsewhere: cells[3].to_owned(),
        };
        assert!(rows.insert(cells[0].to_owned(), row).is_none(), "{} stands twice", cells[0]);
    }
    rows
}

/// The rows of the guide's table of features: the name, whether it is here, and by what it is shown, or why it is not.
fn features() -> Vec<(String, String, String)> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../src/guide/features.md");
    let text = std::fs::read_to_string(path).expect("features.md");
    let rows = text.lines().filter(|line| line.starts_with("| ")).skip(1);
    let row = |line: &str| {
        let cells: Vec<&str> = line.trim_matches('|').split(" | ").map(str::trim).collect();
        assert_eq!(cells.len(), 6, "cells of {line}");
        let known = ["yes", "no", "part", "–", "?"];
        assert!(cells[1..5].iter().all(|cell| known.contains(cell)), "{line}");
        (cells[0].to_owned(), cells[4].to_owned(), cells[5].to_owned())
    };
    rows.map(row).collect()
}

#[test]
fn every_feature_has_a_test_or_a_reason() {
    let features = features();
    assert!(features.len() > 40, "{}", features.len());
    for (feature, here, cell) in features {
        let is_shown =
            quoted(&cell).iter().any(|(before, _)| KINDS.iter().any(|kind| before.ends_with(kind)));
        let reason = cell.split_once("not here: ").map(|(_, reason)| reason);
        let is_told = reason.is_some_and(|reason| reason.split(' ').count() >= 5);
        assert_eq!(is_told, reason.is_some(), "{feature}: a reason, not {reason:?}");
        // What is here in part has both: what shows the part, and why the rest is not here.
        let expected = match here.as_str() {
            "yes" => (true, false),
            "no" => (false, true),
            "part" => (true, true),
            nothing => panic!("{feature}: here `{nothing}` says nothing"),
        };
        assert_eq!((is_shown, is_told), expected, "{feature}: {cell}");
    }
}

/// What a cell quotes, each behind the text between it and the one before.
fn quoted(cell: &str) -> Vec<(&str, &str)> {
    let parts: Vec<&str> = cell.split('`').collect();
    parts.chunks_exact(2).map(|part| (part[0], part[1])).collect()
}

#[test]
fn every_requirement_has_a_row_with_a_test_or_a_reason() {
    let rows = rows();
    let all =
        LAST.iter().flat_map(|(letter, last)| (1..=*last).map(move |number| format!("{letter}{number}")));
    assert_eq!(rows.keys().cloned().collect::<BTreeSet<_>>(), all.collect());
    for (requirement, row) in rows {
        let Row { scenarios, elsewhere } = row;
        assert!(!scenarios.is_empty() || elsewhere.len() > 3, "{requirement} has neither test nor reason");
        if requirement.starts_with('M') && scenarios.is_empty() {
            let is_shown =
                quoted(&elsewhere).iter().any(|(before, ..)| KINDS.iter().any(|kind| before.ends_with(kind)));
            let is_told = elsewhere.strip_prefix("not built: ").is_some_and(|reason| reason.len() > 20);
            assert!(is_shown || is_told, "{requirement}: neither shown nor `not built: reason`");
        }
    }
}

#[test]
fn the_table_and_the_scenarios_say_the_same() {
    let rows = rows();
    let mut differences = Vec::new();
    let mut told = BTreeSet::new();
    for scenario in scenarios::all() {
        assert!(!scenario.requirements.is_empty(), "{} shows nothing", scenario.name);
        told.extend(scenario.requirements.iter().map(|requirement| (*requirement, scenario.name)));
    }
    for (requirement, row) in &rows {
        for name in &row.scenarios {
            if !told.contains(&(requirement.as_str(), name.as_str())) {
                differences.push(format!(
                    "{requirement} names {name}, which does not name {requirement} or does not exist"
                ));
            }
        }
    }
    for (requirement, name) in &told {
        if !rows.get(*requirement).is_some_and(|row| row.scenarios.contains(*name)) {
            differences.push(format!("{name} shows {requirement}, but its row does not name it"));
        }
    }
    assert!(differences.is_empty(), "{}", differences.join("\n"));
}

#[test]
fn every_place_is_named() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let text = std::fs::read_to_string(root.join("README.md")).expect("README.md");
    let places = text.split("\n## ").next().unwrap_or_default();
    for line in places.lines().filter(|line| line.starts_with("| `")) {
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

/// Returns all files of a folder and those below, with the lines not indented.
fn texts(folder: &Path) -> String {
    let entries = std::fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("an entry").path());
    let mut all = String::new();
    for path in entries {
        if path.is_dir() {
            all += &texts(&path);
        } else {
            let text = std::fs::read_to_string(path).expect("a text");
            text.lines().for_each(|line| {
                all += line.trim_start();
                all.push('\n');
            });
        }
    }
    all
}

#[test]
fn vectors_tests_and_commands_that_the_tables_name_exist() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let properties = std::fs::read_to_string(root.join("tests/properties.rs")).expect("properties");
    let library = texts(&root.join("../src"));
    let tasks = std::fs::read_to_string(root.join("../xtask/src/main.rs")).expect("the tasks");
    let rows = rows().into_iter().map(|(number, row)| (number, row.elsewhere));
    for (number, cell) in rows.chain(features().into_iter().map(|(name, _, cell)| (name, cell))) {
        let quoted = quoted(&cell);
        let mut listed = false;
        for (index, (before, name)) in quoted.iter().enumerate() {
            listed =
                before.ends_with("scenario ") || before.ends_with("scenarios ") || listed && *before == ", ";
            if listed {
                assert!(scenarios::all().any(|scenario| scenario.name == *name), "{number}: scenario {name}");
            } else if before.ends_with("vectors ") {
                let group = name.split('/').next().unwrap_or_default();
                let file = std::fs::File::open(root.join(format!("vectors/{group}.jsonl.gz")));
                let mut lines = String::new();
                let mut reader = flate2::read::GzDecoder::new(file.expect("a group of vectors"));
                reader.read_to_string(&mut lines).expect("compressed text");
                assert!(lines.contains(&format!("\"id\":\"{name}")), "{number}: vectors {name}");
            } else if before.ends_with("property ") {
                assert!(properties.contains(&format!("fn {name}(")), "{number}: property {name}");
            } else if before.ends_with("unit ") {
                assert!(library.contains(&format!("#[test]\nfn {name}(")), "{number}: unit test {name}");
            } else if before.ends_with("test ") {
                let (_, file) = quoted.get(index + 1).filter(|(between, _)| *between == " in ").expect(name);
                // From here, or in pages for users from the repository's root.
                let place = if file.starts_with("hil-tests/") { root.join("..") } else { root.into() };
                let text = std::fs::read_to_string(place.join(file)).expect(file);
                assert!(text.contains(&format!("#[test]\nfn {name}(")), "{number}: test {name} in {file}");
            } else if before.ends_with("command ") {
                let task = name.strip_prefix("cargo xtask ").and_then(|words| words.split(' ').next());
                let task = task.expect("a task of the project");
                assert!(tasks.contains(&format!("\n        \"{task}\" => ")), "{number}: command {name}");
            }
        }
    }
}
