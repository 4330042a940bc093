//! `cargo xtask tidy`: checks the project's rules that no compiler checks.

mod examples;
mod formats;
mod modules;
mod source;
mod tables;
mod unsafety;
mod width;

use modules::{Crate, Sources};
use source::{Source, code};
use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::PathBuf;
use std::process::ExitCode;
use tables::{FLOWS, PREDICTABLE, Row, TOP, UNSAFE};
use xtask::run::{self, root};

const HELP: &str = "\
cargo xtask tidy

Checks the rules of the house that no compiler checks, in all crates:

  modules import only the modules that a table allows, and never in a circle
  packages share code by libraries, not by #[path]
  unsafe occurs only in the files of a table
  lines have at most 110 columns
  the top folder contains only known names
  every public type of the library has a defmt::Format
  public modules, and public types that users construct, have an example
  files use no predictable name in the folder for temporary files
";

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
    let mut files: Vec<PathBuf> =
        TOP.iter().filter(|name| name.ends_with(".md")).map(|name| root.join(name)).collect();
    for folder in ["src", "hil-tests", "xtask"] {
        files.extend(run::files(&root.join(folder))?);
    }
    let mut packages = vec![String::new()];
    let mut all = Vec::new();
    for path in files {
        let name = path.strip_prefix(&root).unwrap_or(&path).to_string_lossy().replace('\\', "/");
        if let Some(folder) = name.strip_suffix("Cargo.toml") {
            packages.push(folder.to_string());
        } else if [".rs", ".md", ".sh"].iter().any(|ending| name.ends_with(ending)) {
            match Source::new(&name, fs::read_to_string(&path)?) {
                Ok(source) => all.push(source),
                Err(fault) => faults.push(fault),
            }
        }
    }
    for source in &all {
        check_width(source, &mut faults);
        if let Some(file) = &source.code {
            check_unsafe(&source.name, file, UNSAFE, &mut faults);
            formats::check(&source.name, &source.text, &mut faults);
            check_folders(&source.name, &source.text, &mut faults);
        }
    }
    for name in UNSAFE.iter().filter(|name| !all.iter().any(|source| source.name == **name)) {
        faults.push(format!("xtask/tidy/src/tables.rs: the file {name} does not exist"));
    }
    examples::check(&all, &mut faults);
    let sources: Sources<'_> = all.iter().map(|source| (&*source.name, source)).collect();
    modules::foreign(&sources, &packages, &mut faults);
    let crates = modules::crates(&sources);
    for one in &crates {
        faults.extend(one.circles());
    }
    for (root, rows) in FLOWS {
        match crates.iter().find(|one| one.root == *root) {
            Some(one) => check_flow(one, rows, &mut faults),
            None => faults.push(format!("xtask/tidy/src/tables.rs: {root} is not the root of a crate")),
        }
    }
    Ok(faults)
}

/// Checks the imports between the top modules of a crate against the table `FLOWS`. The root file may import
/// all modules.
fn check_flow(one: &Crate<'_>, rows: &[Row], faults: &mut Vec<String>) {
    const TABLES: &str = "xtask/tidy/src/tables.rs";
    let root = one.root;
    let top = one.top();
    let mut before = BTreeSet::new();
    for (name, known) in rows {
        if !top.contains(name) {
            faults.push(format!("{TABLES}: {root} declares no module {name}"));
        }
        for other in known.split_whitespace().filter(|other| !before.contains(other)) {
            faults.push(format!("{TABLES}: {root}: {name} imports {other}, which is not below it"));
        }
        before.insert(*name);
    }
    for name in top.iter().filter(|name| !before.contains(*name)) {
        faults.push(format!("{TABLES}: {root}: the module {name} has no row"));
    }
    for used in one.uses() {
        let ([name, ..], [other, ..]) = (&used.module[..], &used.used[..]) else { continue };
        let known = rows.iter().find(|(row, _)| row == name).map_or("", |(_, known)| known);
        if name != other && known.split_whitespace().all(|known| known != other) {
            faults.push(format!("{}:{}: {name} must not import {other}", used.file, used.line));
        }
    }
}

fn check_unsafe(name: &str, file: &syn::File, allowed: &[&str], faults: &mut Vec<String>) {
    let lines = unsafety::lines(file);
    if !allowed.contains(&name) {
        faults.extend(lines.iter().map(|line| format!("{name}:{line}: unsafe is not allowed here")));
    } else if lines.is_empty() {
        faults.push(format!("xtask/tidy/src/tables.rs: {name} contains no unsafe"));
    }
}

fn check_width(source: &Source, faults: &mut Vec<String>) {
    let lines = width::wide(&source.text);
    faults.extend(lines.map(|line| format!("{}:{line}: too many columns", source.name)));
}

/// Reports predictable names of temporary folders: such a folder may already exist and belong to another
/// user.
fn check_folders(name: &str, text: &str, faults: &mut Vec<String>) {
    if PREDICTABLE.contains(&name) {
        return;
    }
    for (number, line) in code(text) {
        if line.contains("temp_dir()") || line.contains("/tmp/") {
            faults.push(format!("{name}:{number}: a predictable folder for temporary files; use tempfile"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders_that_can_be_guessed_are_refused() {
        let found = |name: &str, text: &str| {
            let mut faults = Vec::new();
            check_folders(name, text, &mut faults);
            faults.len()
        };
        let guessed = "    let path = std::env::temp_dir().join(name);";
        assert_eq!(found("xtask/src/run.rs", guessed), 1);
        assert_eq!(found("hil-tests/src/lib.rs", "    let path = \"/tmp/volume\";"), 1);
        assert_eq!(found("hil-tests/emulator/peers/src/place.rs", guessed), 0);
        assert_eq!(found("xtask/src/run.rs", "    let folder = tempfile::tempdir()?;"), 0);
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
        assert_eq!(found(&[("one", "two"), ("two", "")]), ["one imports two, which is not below it"]);
        assert_eq!(found(&[("one", "")]), ["the module two has no row"]);
        let gone = "a/src/lib.rs declares no module gone";
        assert_eq!(found(&[("one", ""), ("two", ""), ("gone", "")]), [gone]);
    }

    #[test]
    fn unsafe_is_where_the_table_says() {
        let found = |text: &str, allowed: &[&str]| {
            let mut faults = Vec::new();
            check_unsafe("src/a.rs", &syn::parse_file(text).unwrap(), allowed, &mut faults);
            faults
        };
        assert_eq!(found("\nunsafe fn f() {}", &[]), ["src/a.rs:2: unsafe is not allowed here"]);
        assert_eq!(found("\nunsafe fn f() {}", &["src/a.rs"]), [""; 0]);
        assert_eq!(
            found("fn f() {}", &["src/a.rs"]),
            ["xtask/tidy/src/tables.rs: src/a.rs contains no unsafe"]
        );
    }

    #[test]
    fn wide_lines_are_refused() {
        let mut faults = Vec::new();
        let source = Source::new("new/src/a.rs", format!("// {}", "word ".repeat(30))).unwrap();
        check_width(&source, &mut faults);
        assert_eq!(faults, ["new/src/a.rs:1: too many columns"]);
    }

    #[test]
    fn files_of_another_package_are_refused() {
        let found = |path: &str| {
            let text = format!("#[path = \"{path}\"]\nmod b;");
            let files = read(&[("a/src/lib.rs", &text)]);
            let sources = files.iter().map(|source| (&*source.name, source)).collect();
            let mut faults = Vec::new();
            let packages = ["", "a/", "b/", "a/inner/"].map(String::from);
            modules::foreign(&sources, &packages, &mut faults);
            faults
        };
        for path in ["../../b/src/b.rs", "../../src/b.rs", "../inner/src/b.rs"] {
            let fault = "is in another package: packages share code by libraries";
            assert_eq!(found(path), [format!("a/src/lib.rs:1: `{path}` {fault}")]);
        }
        for path in ["other/b.rs", "../tests/b.rs"] {
            assert_eq!(found(path), [""; 0]);
        }
    }
}
