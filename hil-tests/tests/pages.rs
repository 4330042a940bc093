//! The pages of this package name what there is: README.md and PLACES.md each place, and each page and place is named there.

use std::path::PathBuf;

/// The folder of this package.
fn here() -> PathBuf {
    env!("CARGO_MANIFEST_DIR").into()
}

fn text(page: &str) -> String {
    std::fs::read_to_string(here().join(page)).expect(page)
}

/// Returns the names of what is in a folder of this package.
fn names(folder: &str) -> Vec<String> {
    let entries = std::fs::read_dir(here().join(folder)).expect(folder);
    entries.map(|entry| entry.expect("an entry").file_name().into_string().expect("a name")).collect()
}

/// Returns what a line of a page quotes.
fn quoted(line: &str) -> impl Iterator<Item = &str> {
    line.split('`').skip(1).step_by(2)
}

/// Where a path of a page points: a path with a slash in front counts from the repository's root.
fn place(path: &str) -> PathBuf {
    path.strip_prefix('/').map_or_else(|| here().join(path), |path| here().join("..").join(path))
}

#[test]
fn every_place_is_named() {
    let page = text("PLACES.md");
    for line in page.lines().filter(|line| line.starts_with("| `")) {
        for path in quoted(line.split(" | ").next().unwrap_or_default()) {
            assert!(place(path).exists(), "{path} is not there");
        }
    }
    for folder in ["src", "tests"] {
        for name in names(folder) {
            let path = format!("{folder}/{name}");
            let listed = page.contains(&format!("`{path}`")) || page.contains(&format!("`{path}/`"));
            assert!(name == "lib.rs" || listed, "{path} is not in PLACES.md");
        }
    }
}

/// README.md is where a stranger begins: it is short, and its table says for each kind of change which files to touch.
#[test]
fn the_readme_leads_to_every_page_and_to_places_that_exist() {
    let readme = text("README.md");
    assert!(readme.lines().count() <= 150, "{} lines", readme.lines().count());
    for page in names("").iter().filter(|name| name.ends_with(".md") && *name != "README.md") {
        assert!(readme.contains(&format!("`{page}`")), "README.md does not lead to {page}");
    }
    let rows: Vec<&str> = readme.lines().filter(|line| line.starts_with("| ")).collect();
    let paths = rows.iter().flat_map(|row| quoted(row)).filter(|path| {
        !path.contains(' ') && (path.contains('/') || path.ends_with(".md")) && *path != "fuzz/corpus/TARGET"
    });
    let lost: Vec<&str> = paths.filter(|path| !place(path).exists()).collect();
    assert!(lost.is_empty(), "README.md names what is not there: {lost:?}");
    for kind in [
        "a scenario",
        "a requirement",
        "a capability of boards",
        "a fault of the device",
        "a verb of the stand-in",
        "a peer program",
        "a board of my own",
        "a field on the wire",
        "an opcode in `inspect`",
    ] {
        assert!(rows.iter().any(|row| row.starts_with(&format!("| {kind} |"))), "no row for {kind}");
    }
}
