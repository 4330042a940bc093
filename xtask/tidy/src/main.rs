//! `cargo xtask tidy`: checks the project's rules that no compiler checks.

mod examples;
mod formats;
mod modules;
mod source;
mod tables;
mod width;

use modules::{Crate, Sources};
use source::{Source, code};
use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::process::ExitCode;
use tables::{FLOWS, Row, TOP, WORDS, Words};
use xtask::run::{self, root};

const HELP: &str = "\
cargo xtask tidy

Checks the rules of the house that no compiler checks, in all crates:

  modules import only the modules that a table allows, and never in a circle
  packages share code by libraries, not by #[path]
  all packages have the lints of the workspace, which refuse unsafe
  unsafe is allowed only in the files of a table
  lines have at most 110 columns
  the top folder contains only known names
  every public type of the library has a defmt::Format
  public modules, and public types that users construct, have an example
  files use no predictable name in the folder for temporary files
";

const TABLES: &str = "xtask/tidy/src/tables.rs";

fn main() -> ExitCode {
    let arguments = run::arguments();
    // The first argument is the name of the task.
    if let Some(status) = run::no_arguments(arguments.get(1..).unwrap_or_default(), HELP) {
        return status;
    }
    let faults = match faults() {
        Ok(faults) => faults,
        Err(error) => return run::lost(&error),
    };
    for fault in &faults {
        println!("{fault}");
    }
    match faults.len() {
        0 => ExitCode::SUCCESS,
        count => run::failed(&format!("{count} violations of the rules of the house")),
    }
}

fn faults() -> io::Result<Vec<String>> {
    let root = root();
    let mut faults = Vec::new();
    for entry in fs::read_dir(&root)? {
        let name = entry?.file_name().to_string_lossy().into_owned();
        if !name.starts_with('.') && !TOP.contains(&name.as_str()) {
            faults.push(format!("{name}: unexpected in the top folder"));
        }
    }
    let is_read = |name: &&str| name.ends_with(".md") || *name == "Cargo.toml";
    let mut files: Vec<_> = TOP.iter().copied().filter(is_read).map(|name| root.join(name)).collect();
    for folder in ["src", "hil-tests", "xtask"] {
        files.extend(run::files(&root.join(folder))?);
    }
    let mut all = Vec::new();
    for path in files {
        let name = path.strip_prefix(&root).unwrap_or(&path).to_string_lossy().replace('\\', "/");
        if name.ends_with("Cargo.toml") {
            check_lints(&name, &fs::read_to_string(&path)?, &mut faults);
        } else if [".rs", ".md", ".sh"].iter().any(|ending| name.ends_with(ending)) {
            match Source::new(&name, fs::read_to_string(&path)?) {
                Ok(source) => all.push(source),
                Err(fault) => faults.push(fault),
            }
        }
    }
    for source in &all {
        check_width(source, &mut faults);
        if source.code.is_some() {
            formats::check(&source.name, &source.text, &mut faults);
        }
    }
    for words in WORDS {
        check_words(&all, words, &mut faults);
    }
    examples::check(&all, &mut faults);
    let sources: Sources<'_> = all.iter().map(|source| (&*source.name, source)).collect();
    let crates = modules::crates(&sources);
    for one in &crates {
        faults.extend(one.circles());
    }
    for (root, rows) in FLOWS {
        match crates.iter().find(|one| one.root == *root) {
            Some(one) => check_flow(one, rows, &mut faults),
            None => faults.push(format!("{TABLES}: {root} is not the root of a crate")),
        }
    }
    Ok(faults)
}

/// Checks the imports between the top modules of a crate against the table `FLOWS`. The root file may import
/// all modules.
fn check_flow(one: &Crate<'_>, rows: &[Row], faults: &mut Vec<String>) {
    let root = one.root;
    let top = one.top();
    let mut before = BTreeSet::new();
    for (names, known) in rows {
        for name in names.split(' ').filter(|name| !top.contains(name)) {
            faults.push(format!("{TABLES}: {root} declares no module {name}"));
        }
        for other in known.split_whitespace().filter(|other| !before.contains(other)) {
            faults.push(format!("{TABLES}: {root}: {names} imports {other}, which is not below it"));
        }
        before.extend(names.split(' '));
    }
    for name in top.iter().filter(|name| !before.contains(*name)) {
        faults.push(format!("{TABLES}: {root}: the module {name} has no row"));
    }
    for used in one.uses() {
        let ([name, ..], [other, ..]) = (&used.module[..], &used.used[..]) else { continue };
        let row = rows.iter().find(|(names, _)| names.split(' ').any(|row| row == name));
        let known = row.map_or("", |(_, known)| known);
        if name != other && known.split_whitespace().all(|known| known != other) {
            faults.push(format!("{}:{}: {name} must not import {other}", used.file, used.line));
        }
    }
}

/// Checks that a package has the lints of the workspace, or at least the lint that refuses `unsafe`.
fn check_lints(name: &str, manifest: &str, faults: &mut Vec<String>) {
    let (shared, own) = ("[lints]\nworkspace = true\n", "unsafe_code = \"deny\"\n");
    if !manifest.contains(own) && (name == "Cargo.toml" || !manifest.contains(shared)) {
        faults.push(format!("{name}: the package has no lint against unsafe"));
    }
}

/// Reports lines of code with words that their file may not contain, and files that need no permission. The
/// files of this package contain all words as texts.
fn check_words(files: &[Source], Words { words, files: allowed, fault }: &Words, faults: &mut Vec<String>) {
    let mut used = BTreeSet::new();
    for Source { name, text, .. } in files.iter().filter(|file| file.name.ends_with(".rs")) {
        let row = allowed.iter().find(|row| name == *row || row.ends_with('/') && name.starts_with(**row));
        for (number, line) in code(text).filter(|(_, line)| !line.starts_with("#![forbid(")) {
            match row {
                _ if name.starts_with("xtask/tidy/") || !words.iter().any(|word| line.contains(word)) => {}
                Some(row) => drop(used.insert(row)),
                None => faults.push(format!("{name}:{number}: {fault}")),
            }
        }
    }
    let unused = allowed.iter().filter(|row| !used.contains(row));
    faults.extend(unused.map(|row| format!("{TABLES}: {row} contains none of {words:?}")));
}

fn check_width(source: &Source, faults: &mut Vec<String>) {
    let lines = width::wide(&source.text);
    faults.extend(lines.map(|line| format!("{}:{line}: too many columns", source.name)));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_where_the_table_says() {
        let rule = Words { words: &["lint", "#[path"], files: &["src/a.rs", "src/b/"], fault: "refused" };
        let found = |name: &str, text: &str| {
            let allowed = [("src/a.rs", "lint"), ("src/b/c.rs", "\n#[path = \"d\"]\nmod d;")];
            let files = allowed.into_iter().filter(|(other, _)| *other != name).chain([(name, text)]);
            let read =
                |(name, text): (&str, &str)| Source { name: name.into(), text: text.into(), code: None };
            let mut faults = Vec::new();
            check_words(&files.map(read).collect::<Vec<_>>(), &rule, &mut faults);
            faults
        };
        assert_eq!(found("src/c.rs", "\n#![allow(\n    lint,\n)]"), ["src/c.rs:3: refused"]);
        assert_eq!(found("src/a.rs.rs", "#[path"), ["src/a.rs.rs:1: refused"]);
        for text in ["// lint", "#![forbid(lint)]", "#[pat]"] {
            assert_eq!(found("src/c.rs", text), [""; 0]);
        }
        assert_eq!(found("src/a.rs", ""), [format!("{TABLES}: src/a.rs contains none of {:?}", rule.words)]);
    }

    #[test]
    fn packages_need_a_lint_against_unsafe() {
        let found = |manifest: &str| {
            let mut faults = Vec::new();
            check_lints("a/Cargo.toml", manifest, &mut faults);
            faults
        };
        assert_eq!(found("[package]\nname = \"a\"\n\n[lints]\nworkspace = true\n"), [""; 0]);
        assert_eq!(found("[lints.rust]\nunsafe_code = \"deny\"\n"), [""; 0]);
        let fault = "a/Cargo.toml: the package has no lint against unsafe";
        assert_eq!(found("[package]\nedition.workspace = true\n"), [fault]);
        let mut faults = Vec::new();
        check_lints("Cargo.toml", "[lints]\nworkspace = true\n", &mut faults);
        assert_eq!(faults, ["Cargo.toml: the package has no lint against unsafe"]);
    }

    fn read(files: &[(&str, &str)]) -> Vec<Source> {
        files.iter().map(|(name, text)| Source::new(name, (*text).into()).unwrap()).collect()
    }

    /// Returns the violations in a crate with three modules, in which `file` replaces one file.
    fn flow(file: (&str, &str)) -> Vec<String> {
        let rows: &[Row] = &[("wire", ""), ("mkey", "wire"), ("queue", "wire mkey")];
        let mut files = vec![
            ("a/src/lib.rs", "mod mkey;\nmod queue;\nmod wire;\nuse queue::Ring;\nfn f(_: Ring) {}"),
            ("a/src/mkey/mod.rs", "mod layout;\nmod other;"),
            ("a/src/mkey/layout.rs", ""),
            ("a/src/mkey/other.rs", ""),
            ("a/src/queue.rs", "use crate::mkey::layout::A;\npub struct Ring;"),
            ("a/src/wire.rs", ""),
        ];
        files.retain(|(name, _)| *name != file.0);
        files.push(file);
        let sources = read(&files);
        let sources: Sources<'_> = sources.iter().map(|source| (&*source.name, source)).collect();
        let crates = modules::crates(&sources);
        let mut faults = Vec::new();
        crates.iter().for_each(|one| check_flow(one, rows, &mut faults));
        faults
    }

    #[test]
    fn imports_follow_the_flow() {
        for (name, text) in [
            ("a/src/mkey/layout.rs", "use crate::wire::klm;"),
            ("a/src/mkey/layout.rs", "use super::other::Access;\n// use crate::queue::Ring;"),
            ("a/src/mkey/layout.rs", "#[cfg(test)]\nmod tests {\n    use crate::queue::Ring;\n}"),
            ("a/src/mkey/layout.rs", "#[cfg(test)]\nuse crate::queue::Ring;"),
            ("a/src/mkey/layout.rs", "const TEXT: &str = \"crate::queue::Ring\";"),
        ] {
            assert_eq!(flow((name, text)), [""; 0], "{name}: {text}");
        }
        for (name, text) in [
            ("a/src/mkey/layout.rs", "\nuse crate::queue::Ring;"),
            ("a/src/mkey/layout.rs", "\nuse super::super::queue::Ring;"),
            ("a/src/mkey/layout.rs", "fn f() {\n    crate::queue::run();\n}"),
            ("a/src/mkey/layout.rs", "fn f() {\n    g!(&crate::queue::run());\n}"),
            ("a/src/mkey/layout.rs", "mod inner {\n    use super::super::super::queue::Ring;\n}"),
            ("a/src/wire.rs", "\npub(crate) use super::{queue::Ring};\nfn f(_: Ring) {}"),
        ] {
            let module = if name.contains("wire") { "wire" } else { "mkey" };
            assert_eq!(flow((name, text)), [format!("{name}:2: {module} must not import queue")], "{text}");
        }
    }

    #[test]
    fn tables_of_the_flow_are_whole_and_run_one_way() {
        let files =
            read(&[("a/src/lib.rs", "mod one;\nmod two;"), ("a/src/one.rs", ""), ("a/src/two.rs", "")]);
        let sources: Sources<'_> = files.iter().map(|source| (&*source.name, source)).collect();
        let crates = modules::crates(&sources);
        let found = |rows: &[Row]| {
            let mut faults = Vec::new();
            check_flow(&crates[0], rows, &mut faults);
            faults.iter().map(|fault| fault.rsplit(": ").next().unwrap().to_owned()).collect::<Vec<_>>()
        };
        assert_eq!(found(&[("one", ""), ("two", "one")]), [""; 0]);
        assert_eq!(found(&[("one two", "")]), [""; 0]);
        assert_eq!(found(&[("one", "two"), ("two", "")]), ["one imports two, which is not below it"]);
        assert_eq!(found(&[("one", "")]), ["the module two has no row"]);
        let gone = "a/src/lib.rs declares no module gone";
        assert_eq!(found(&[("one", ""), ("two", ""), ("gone", "")]), [gone]);
    }

    #[test]
    fn wide_lines_are_refused() {
        let mut faults = Vec::new();
        let source = Source::new("new/src/a.rs", format!("// {}", "word ".repeat(30))).unwrap();
        check_width(&source, &mut faults);
        assert_eq!(faults, ["new/src/a.rs:1: too many columns"]);
    }
}
