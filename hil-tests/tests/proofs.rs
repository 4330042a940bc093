//! Checks the proofs that FEATURES.md and REQUIREMENTS.md name (vectors, tests, properties, commands,
//! scenarios): each must exist.

use hil_tests::scenarios;
use std::io::Read;
use std::path::Path;

/// The words that precede the names of proofs on the two pages. Each word tells the kind of proof, and
/// thereby where the named proof must exist.
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

/// The kinds of proofs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Vectors,
    Property,
    Unit,
    Test,
    Command,
    Scenario,
}

/// A proof that a page names, and the file that the page names for it, if the proof is a test.
pub(super) struct Proof<'c> {
    pub(super) kind: Kind,
    pub(super) name: &'c str,
    file: Option<&'c str>,
}

/// Returns the proofs that a cell of a table names.
pub(super) fn proofs(cell: &str) -> Vec<Proof<'_>> {
    let (mut found, mut kind) = (Vec::<Proof<'_>>::new(), None);
    for (before, name) in quoted(cell) {
        if let (" in ", Some(Kind::Test), Some(last)) = (before, kind, found.last_mut()) {
            last.file = Some(name);
            continue;
        }
        let said = KINDS.iter().find(|(words, _)| before.ends_with(words)).map(|(_, kind)| *kind);
        // After `, `, the kind of the previous name applies: one word can precede a list of names.
        kind = said.or(kind.filter(|_| before == ", "));
        found.extend(kind.map(|kind| Proof { kind, name, file: None }));
    }
    found
}

/// Returns each part of a cell that is quoted with backticks, with the text before it.
pub(super) fn quoted(cell: &str) -> Vec<(&str, &str)> {
    let parts: Vec<&str> = cell.split('`').collect();
    parts.chunks_exact(2).map(|part| (part[0], part[1])).collect()
}

/// Returns a copy of a table with a mistake: the row that begins with `row` has `to` in place of `from`.
pub(super) fn broken(table: &str, row: &str, from: &str, to: &str) -> String {
    let line = table.lines().find(|line| line.starts_with(&format!("| {row}"))).expect(row);
    assert!(line.contains(from), "{line}");
    table.replace(line, &line.replacen(from, to, 1))
}

/// Returns the text of all files below a folder, with the indentation of lines removed.
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

/// The texts of the sources in which the check looks up the named proofs.
pub(super) struct Sources {
    library: String,
    properties: String,
    tasks: String,
}

impl Sources {
    pub(super) fn read() -> Self {
        let root = Path::new(env!("CARGO_MANIFEST_DIR"));
        let text = |path: &str| std::fs::read_to_string(root.join(path)).expect("a text");
        Self {
            library: texts(&root.join("../src")),
            properties: text("tests/properties.rs"),
            tasks: text("../xtask/src/main.rs"),
        }
    }

    /// Returns whether `cargo xtask` has a task of this name: a string of an arm in its `match`.
    fn has_task(&self, task: &str) -> bool {
        let arms = self.tasks.lines().filter_map(|line| line.split_once(" => "));
        arms.flat_map(|(names, _)| names.split(" | ")).any(|name| name.trim() == format!("\"{task}\""))
    }

    /// Returns why a proof is missing, or `None` if the proof exists.
    pub(super) fn lack(&self, proof: &Proof<'_>) -> Option<String> {
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
                let Ok(text) = std::fs::read_to_string(root.join(file)) else {
                    return Some(format!("no file {file}"));
                };
                text.contains(&format!("#[test]\nfn {name}("))
            }
            Kind::Command => {
                let task = name.strip_prefix("cargo xtask ").and_then(|words| words.split(' ').next());
                task.is_some_and(|task| self.has_task(task))
            }
        };
        let place = file.map(|file| format!(" in {file}")).unwrap_or_default();
        let what =
            if *kind == Kind::Unit { "unit test".to_owned() } else { format!("{kind:?}").to_lowercase() };
        (!is_there).then(|| format!("there is no {what} {name}{place}"))
    }
}
