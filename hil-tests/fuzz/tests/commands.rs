//! The fuzz target `replies` must call each command of the library. The test compares the commands in the
//! sources with the commands that the target calls.
#![allow(clippy::unwrap_used, missing_docs)]

use std::collections::BTreeSet;
use std::path::Path;

/// Returns the text of all sources of a folder, tests excluded.
fn sources(folder: &Path) -> String {
    let mut text = String::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let (entry, name) = entry.map(|entry| (entry.path(), entry.file_name())).unwrap();
        match name.to_str().unwrap() {
            "tests" | "tests.rs" => {}
            _ if entry.is_dir() => text += &sources(&entry),
            name if name.ends_with(".rs") => text += &std::fs::read_to_string(entry).unwrap(),
            _ => {}
        }
    }
    text
}

fn word(text: &str) -> &str {
    let end = text.find(|letter: char| !letter.is_alphanumeric() && letter != '_');
    &text[..end.unwrap_or(text.len())]
}

/// Returns the items of a source whose first line begins with `start`. The last line of an item is a closing
/// brace.
fn items<'a>(source: &'a str, start: &str) -> Vec<&'a str> {
    let behind =
        format!("\n{source}").match_indices(&format!("\n{start}")).map(|(at, _)| at).collect::<Vec<_>>();
    behind
        .into_iter()
        .map(|at| &source[at..])
        .map(|item| &item[..item.find("\n}").unwrap_or(item.len())])
        .collect()
}

/// Returns the types that implement `Command`, by hand or by a macro.
fn commands(source: &str) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for line in source.lines() {
        if let Some((_, of)) =
            line.split_once("Command for ").filter(|_| line.trim_start().starts_with("impl"))
        {
            // For `$name` in a macro the word is empty. The empty word is removed below.
            found.insert(word(of).to_owned());
        }
    }
    found.remove("");
    for definition in items(source, "macro_rules! ") {
        if !definition.contains("Command for $") {
            continue;
        }
        let name = word(&definition["macro_rules! ".len()..]);
        let calls = items(source, &format!("{name}! {{"));
        // A row of the macro declares a command, for example `DestroyEq(Eqn) = DESTROY_EQ;`.
        let made = calls.iter().flat_map(|call| call.lines().skip(1)).filter(|line| line.contains(" = "));
        let made: Vec<_> = made.map(|line| word(line.trim_start()).to_owned()).collect();
        assert!(
            !made.is_empty() && made.iter().all(|name| !name.is_empty()),
            "the commands that {name} makes: {made:?}"
        );
        found.extend(made);
    }
    found
}

#[test]
fn all_commands_are_fuzzed() {
    let source = sources(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../../src/command"));
    assert_eq!(commands(&source), hil_fuzz::commands(), "left: src/command, right: src/replies.rs");
}

#[test]
fn commands_are_found_however_they_are_written() {
    let source = "
impl<const PAGES: usize> Command for CreateThing<PAGES> {
    fn write(&self) {}
}
macro_rules! others {
    ($name:ident) => { struct $name; };
}
macro_rules! makes {
    ($($(#[$doc:meta])* $name:ident($number:ty) = $opcode:ident;)+) => { $(
        impl $crate::command::Command for $name {}
    )+ };
}
others! {
    Other = 1;
}
makes! {
    /// Destroys it.
    DestroyThing(Thing) = DESTROY_THING;
    /// Frees it.
    FreeThing(Thing) = FREE_THING;
}
impl Command for Plain {}
";
    let found: Vec<_> = commands(source).into_iter().collect();
    assert_eq!(found, ["CreateThing", "DestroyThing", "FreeThing", "Plain"]);
}
