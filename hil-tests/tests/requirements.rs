//! The tables of requirements in README.md name what there is: all numbers, scenarios that exist, and each where it says. So does the
//! guide's table of features.

use hil_tests::scenarios;
use std::collections::{BTreeMap, BTreeSet};
use std::io::Read;
use std::path::Path;

/// Requirements of the three pages are R1 to this, those of the related ones M1 to this.
const LAST: [(&str, u32); 2] = [("R", 187), ("M", 84)];

/// The words before a quoted name, or before several, which say where the names are looked for.
const KINDS: [(&str, Kind); 9] = [
    ("vectors ", Kind::Vectors),
    ("property ", Kind::Property),
    ("unit ", Kind::Unit),
    ("units ", Kind::Unit),
    ("test ", Kind::Test),
    ("tests ", Kind::Test),
    ("command ", Kind::Command),
    ("scenario ", Kind::Scenario),
    ("scenarios ", Kind::Scenario),
];

/// What shows that something is as it is said to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Vectors,
    Property,
    Unit,
    Test,
    Command,
    Scenario,
}

/// Something that is named as a proof: of tests with the file.
struct Proof<'c> {
    kind: Kind,
    name: &'c str,
    file: Option<&'c str>,
}

/// Returns the proofs that a cell names.
fn proofs(cell: &str) -> Vec<Proof<'_>> {
    let (mut found, mut kind) = (Vec::<Proof<'_>>::new(), None);
    for (before, name) in quoted(cell) {
        if let (" in ", Some(Kind::Test), Some(last)) = (before, kind, found.last_mut()) {
            last.file = Some(name);
            continue;
        }
        let said = KINDS.iter().find(|(words, _)| before.ends_with(words)).map(|(_, kind)| *kind);
        // Names of one kind follow one another.
        kind = said.or(kind.filter(|_| before == ", "));
        found.extend(kind.map(|kind| Proof { kind, name, file: None }));
    }
    found
}

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

/// The guide's table of features.
fn table() -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../src/guide/features.md");
    std::fs::read_to_string(path).expect("features.md")
}

/// A row of the table of features.
struct Feature<'t> {
    name: &'t str,
    here: &'t str,
    /// What its bytes are compared with, or why it has none.
    bytes: &'t str,
    /// What shows it on the wire, or why it is not here.
    shown: &'t str,
}

/// Returns the rows of a table of features, each where it can be read.
fn features(table: &str) -> impl Iterator<Item = Result<Feature<'_>, String>> {
    let rows = table.lines().filter(|line| line.starts_with("| ")).skip(1);
    rows.map(|line| {
        let cells: Vec<&str> = line.trim_matches('|').split(" | ").map(str::trim).collect();
        let known = ["yes", "no", "part", "–", "?"];
        match cells[..] {
            [name, a, b, c, here, bytes, shown]
                if [a, b, c, here].iter().all(|cell| known.contains(cell)) =>
            {
                Ok(Feature { name, here, bytes, shown })
            }
            _ => Err(format!("not a row: {line}")),
        }
    })
}

/// Whether a cell gives a reason of this number of words behind these.
fn is_told(cell: &str, behind: &str, words: usize) -> bool {
    cell.split_once(behind).is_some_and(|(_, reason)| reason.split_whitespace().count() >= words)
}

/// Returns what is wrong in a table of features.
fn wrong_features(table: &str, sources: &Sources) -> Vec<String> {
    let mut wrong = Vec::new();
    for row in features(table) {
        let Feature { name, here, bytes, shown } = match row {
            Ok(row) => row,
            Err(unreadable) => {
                wrong.push(unreadable);
                continue;
            }
        };
        let named = [proofs(bytes), proofs(shown)];
        let compares = |proof: &Proof<'_>| !matches!(proof.kind, Kind::Scenario | Kind::Test);
        let runs = |proof: &Proof<'_>| matches!(proof.kind, Kind::Scenario | Kind::Test | Kind::Command);
        let has = [named[0].iter().any(compares), named[1].iter().any(runs)];
        let (no_bytes, missing) = (is_told(bytes, "none: ", 2), is_told(shown, "not here: ", 5));
        // What is here in part has both: what shows the part, and why the rest is not here.
        let (is_here, is_missing) = match here {
            "yes" => (true, false),
            "no" => (false, true),
            "part" => (true, true),
            _ => {
                wrong.push(format!("{name}: here `{here}` says nothing"));
                continue;
            }
        };
        if is_here && !no_bytes && !has[0] {
            wrong.push(format!("{name}: nothing compares its bytes, and there is no reason"));
        }
        if !is_here && bytes != "–" {
            wrong.push(format!("{name}: not here, and its bytes are compared"));
        }
        if has[1] != is_here || missing != is_missing {
            wrong.push(format!("{name}: here `{here}`, but it is shown or missing otherwise: {shown}"));
        }
        let proofs = named.iter().flatten();
        wrong.extend(proofs.filter_map(|proof| sources.lack(proof)).map(|lack| format!("{name}: {lack}")));
    }
    wrong
}

#[test]
fn every_feature_has_a_test_or_a_reason() {
    let (table, sources) = (table(), Sources::read());
    assert!(features(&table).count() > 40);
    let wrong = wrong_features(&table, &sources);
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Each way in which a row can be wrong is found, and named with its row.
#[test]
fn a_broken_row_of_the_table_of_features_is_found() {
    let (table, sources) = (table(), Sources::read());
    for (row, from, to, found) in [
        (
            "interleaved layout",
            "scenario `r049_interleaved_example`",
            "scenario `r049_interleaved`",
            "scenario",
        ),
        ("interleaved layout", "scenario `r049_interleaved_example`", "see the guide", "shown"),
        ("interleaved layout", "vectors `layout_interleaved`", "vectors `layout_strided`", "vectors"),
        ("interleaved layout", "vectors `layout_interleaved`", "none: why", "nothing compares"),
        ("interleaved layout", "vectors `layout_interleaved`", "–", "nothing compares"),
        (
            "interleaved layout",
            "vectors `layout_interleaved`",
            "scenario `r049_interleaved_example`",
            "nothing",
        ),
        ("interleaved layout", " | no | no | yes | ", " | no | no | no | ", "not here"),
        ("interleaved layout", " | no | no | yes | ", " | no | no | part | ", "missing otherwise"),
        ("interleaved layout", " | no | no | yes | ", " | no | no | ? | ", "says nothing"),
        ("interleaved layout", " | no | no | yes | ", " | no | yes | ", "not a row"),
        ("interleaved layout", " | no | no | yes | ", " | no | no | yes, surely | ", "not a row"),
        ("AES-GCM", "not here: a request", "a request", "missing otherwise"),
        ("AES-GCM", " | – | ", " | unit `an_mkey_brings_its_list` | ", "its bytes are compared"),
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
            "test errors_of_queues in",
        ),
        ("events of queues", "devx/main.rs", "devx/queues.rs", "no file"),
        ("events of queues", " in `hil-tests/emulator/verbs/tests/devx/main.rs`", "", "no file"),
        ("in C", "cargo xtask capi", "cargo xtask c-library", "command"),
    ] {
        let is_row = |line: &&str| line.starts_with(&format!("| {row}"));
        let line = table.lines().find(is_row).expect(row);
        assert!(line.contains(from), "{line}");
        let broken = table.replace(line, &line.replacen(from, to, 1));
        let wrong = wrong_features(&broken, &sources);
        assert!(wrong.iter().any(|wrong| wrong.contains(row) && wrong.contains(found)), "{to}: {wrong:?}");
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
            let is_shown = !proofs(&elsewhere).is_empty();
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

/// Where proofs are looked for.
struct Sources {
    library: String,
    properties: String,
    tasks: String,
}

impl Sources {
    fn read() -> Self {
        let root = Path::new(env!("CARGO_MANIFEST_DIR"));
        let text = |path: &str| std::fs::read_to_string(root.join(path)).expect("a text");
        Self {
            library: texts(&root.join("../src")),
            properties: text("tests/properties.rs"),
            tasks: text("../xtask/src/main.rs"),
        }
    }

    /// Says what there is not of a proof.
    fn lack(&self, proof: &Proof<'_>) -> Option<String> {
        let root = Path::new(env!("CARGO_MANIFEST_DIR"));
        let Proof { kind, name, file } = proof;
        let is_there = match kind {
            Kind::Scenario => scenarios::all().any(|scenario| scenario.name == *name),
            Kind::Vectors => {
                let group = name.split('/').next().unwrap_or_default();
                let file = std::fs::File::open(root.join(format!("vectors/{group}.jsonl.gz"))).ok();
                let mut lines = String::new();
                let read = file.map(|file| flate2::read::GzDecoder::new(file).read_to_string(&mut lines));
                read.is_some_and(|read| read.is_ok()) && lines.contains(&format!("\"id\":\"{name}"))
            }
            Kind::Property => self.properties.contains(&format!("fn {name}(")),
            Kind::Unit => self.library.contains(&format!("#[test]\nfn {name}(")),
            Kind::Test => {
                let Some(file) = file else { return Some(format!("no file of test {name}")) };
                // From here, or in pages for users from the repository's root.
                let place = if file.starts_with("hil-tests/") { root.join("..") } else { root.into() };
                let Ok(text) = std::fs::read_to_string(place.join(file)) else {
                    return Some(format!("no file {file}"));
                };
                text.contains(&format!("#[test]\nfn {name}("))
            }
            Kind::Command => {
                let task = name.strip_prefix("cargo xtask ").and_then(|words| words.split(' ').next());
                task.is_some_and(|task| self.tasks.contains(&format!("\n        \"{task}\" => ")))
            }
        };
        let place = file.map(|file| format!(" in {file}")).unwrap_or_default();
        let what =
            if *kind == Kind::Unit { "unit test".to_owned() } else { format!("{kind:?}").to_lowercase() };
        (!is_there).then(|| format!("there is no {what} {name}{place}"))
    }
}

#[test]
fn vectors_tests_and_commands_that_the_table_names_exist() {
    let sources = Sources::read();
    for (number, row) in rows() {
        for proof in proofs(&row.elsewhere) {
            assert_eq!(sources.lack(&proof), None, "{number}");
        }
    }
}
