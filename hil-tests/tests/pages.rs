//! Checks the Markdown pages in the folder `hil-tests`: the files that they name exist, README.md names every
//! page, and PLACES.md names every source file, test and folder.

use std::path::PathBuf;

/// Returns the folder `hil-tests`.
fn here() -> PathBuf {
    env!("CARGO_MANIFEST_DIR").into()
}

pub(super) fn text(page: &str) -> String {
    std::fs::read_to_string(here().join(page)).expect(page)
}

/// Returns the names of all files and folders in a folder below `hil-tests`.
fn names(folder: &str) -> Vec<String> {
    let entries = std::fs::read_dir(here().join(folder)).expect(folder);
    entries.map(|entry| entry.expect("an entry").file_name().into_string().expect("a name")).collect()
}

/// Returns the parts of a line that are quoted with backticks.
pub(super) fn quoted(line: &str) -> impl Iterator<Item = &str> {
    line.split('`').skip(1).step_by(2)
}

/// Returns the file that a path on a page names. A path that begins with a slash counts from the repository's
/// root, any other from `hil-tests`.
pub(super) fn place(path: &str) -> PathBuf {
    path.strip_prefix('/').map_or_else(|| here().join(path), |path| here().join("..").join(path))
}

#[test]
fn every_place_is_named() {
    let page = text("PLACES.md");
    for line in page.lines().filter(|line| line.starts_with("| `")) {
        for path in quoted(line.split(" | ").next().unwrap_or_default()) {
            assert!(place(path).exists(), "{path} does not exist");
        }
    }
    let is_named = |path: &str| page.contains(&format!("`{path}`")) || page.contains(&format!("`{path}/`"));
    for folder in ["src", "tests", "emulator"] {
        for name in names(folder) {
            let path = format!("{folder}/{name}");
            assert!(name == "lib.rs" || is_named(&path), "{path} is not in PLACES.md");
        }
    }
    for name in names(".").iter().filter(|name| here().join(name).is_dir()) {
        let known = is_named(name) || page.contains(&format!("`{name}/"));
        assert!(known || name == "proptest-regressions" || name == "target", "{name} is not in PLACES.md");
    }
}

/// Returns the names of items in a table row that occur in none of the files that the row names. If the row
/// names a folder, all its files count.
fn stale(row: &str) -> Vec<&str> {
    let is_file = |word: &&str| word.contains('/') && !word.contains(' ');
    let places = quoted(row).filter(is_file).map(place).collect();
    let texts: String =
        files(places, &[""]).iter().filter_map(|file| std::fs::read_to_string(file).ok()).collect();
    let is_item = |word: &&str| word.chars().all(|c| c.is_ascii_alphanumeric() || "_!".contains(c));
    let of_files = quoted(row).filter(is_item).filter(|_| !texts.is_empty());
    of_files.filter(|item| !texts.contains(item)).collect()
}

/// README.md must be short, because readers begin with it. The files that its table names for each kind of
/// change must exist.
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
    assert!(lost.is_empty(), "README.md names missing files: {lost:?}");
    let stale: Vec<&str> = rows.iter().flat_map(|row| stale(row)).collect();
    assert!(stale.is_empty(), "README.md names items that no file of their rows contains: {stale:?}");
    for kind in [
        "a scenario",
        "a requirement",
        "a capability of boards",
        "a switch that breaks the device",
        "a word of `--faults`",
        "a verb of the stand-in",
        "a peer program",
        "a board of my own",
        "a field on the wire",
        "an opcode in `inspect`",
    ] {
        assert!(rows.iter().any(|row| row.starts_with(&format!("| {kind} |"))), "no row for {kind}");
    }
}

/// Returns the files below `places` whose names have one of these endings, without build results and fuzzing
/// inputs.
pub(super) fn files(mut places: Vec<PathBuf>, endings: &[&str]) -> Vec<PathBuf> {
    let mut found = Vec::new();
    while let Some(place) = places.pop() {
        let name = |path: &PathBuf| path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if place.is_dir() {
            let inside =
                std::fs::read_dir(&place).expect("a folder").map(|entry| entry.expect("an entry").path());
            places.extend(inside.filter(|path| {
                let name = name(path);
                !path.is_dir() || !name.starts_with('.') && name != "target" && name != "corpus"
            }));
        } else if endings.iter().any(|ending| name(&place).ends_with(ending)) {
            found.push(place);
        }
    }
    found
}

/// Returns a text as one line, without the comment markers at the beginning of its lines.
fn joined(text: &str) -> String {
    let lines = text.lines().map(|line| {
        let line = line.trim();
        line.strip_prefix("//").map_or(line, |line| line.trim_start_matches(['/', '!']).trim_start())
    });
    lines.collect::<Vec<_>>().join(" ")
}

/// Returns the headings that a text cites as `PAGE.md, "Heading"`, with further ones after `and`. A section
/// number after the file name is an error, because headings have no number.
fn cited<'t>(text: &'t str, page: &str) -> Result<Vec<&'t str>, String> {
    let mut headings = Vec::new();
    for (at, _) in text.match_indices(page) {
        let rest = text.get(at + page.len()..).unwrap_or_default();
        let mut rest = rest.strip_prefix('`').unwrap_or(rest);
        if rest.strip_prefix(' ').is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()))
            || rest.starts_with(" part ")
        {
            return Err(rest.chars().take(20).collect());
        }
        while let Some(quoted) = rest.strip_prefix(", \"").or_else(|| rest.strip_prefix(" and \"")) {
            let (heading, behind) = quoted.split_once('"').ok_or("no end of the heading")?;
            headings.push(heading);
            rest = behind;
        }
    }
    Ok(headings)
}

/// Each heading of DEVICE.md that a source or a page cites exists, and exists once.
#[test]
fn every_cited_fact_has_its_heading() {
    // The test joins the file name from two words, because this source must not contain a citation itself.
    let (page, facts) = (["DEVICE", ".md"].concat(), text("DEVICE.md"));
    let headings: Vec<&str> = facts
        .lines()
        .filter_map(|line| line.strip_prefix('#'))
        .map(|line| line.trim_matches(['#', ' ']))
        .collect();
    for heading in &headings {
        assert_eq!(headings.iter().filter(|other| other == &heading).count(), 1, "two headings {heading}");
    }
    let mut count = 0;
    for path in files(vec![here().join("..")], &[".rs", ".md", ".toml", ".c", ".h"]) {
        let text = joined(&std::fs::read_to_string(&path).expect("a text"));
        let cited = cited(&text, &page).unwrap_or_else(|error| panic!("{}: {page}{error}", path.display()));
        count += cited.len();
        for heading in cited {
            assert!(headings.contains(&heading), "{}: no heading `{heading}` in {page}", path.display());
        }
    }
    assert!(count > 40, "{count} citations");
}

/// Comments and messages must state the rule of a requirement instead of its number, because their reader
/// does not have the table of requirements.
#[test]
fn comments_and_messages_say_the_rule_and_not_its_number() {
    let mut wrong = Vec::new();
    for path in files(vec![here().join("..")], &[".rs"])
        .iter()
        .filter(|path| !path.ends_with("tests/requirements.rs"))
    {
        let text = std::fs::read_to_string(path).expect("a text");
        for (number, line) in text.lines().enumerate() {
            if codes(line) > 0 {
                wrong.push(format!("{}:{}: {}", path.display(), number + 1, line.trim()));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    for (line, count) in
        [("// As the page says (@12, @157-@159).", 3), ("\"@177: the last one\"", 1), ("NEEDS, [\"@12\"]", 0)]
    {
        assert_eq!(codes(&line.replace('@', "R")), count, "{line}");
    }
}

/// Counts the words of a line that are numbers of requirements: a letter R, M or D, then up to three digits.
/// A string that consists of the number only does not count.
fn codes(line: &str) -> usize {
    let words = line.split(|c: char| !c.is_ascii_alphanumeric() && c != '_' && c != '"');
    words
        .filter(|word| {
            let is_string = word.len() > 1 && word.starts_with('"') && word.ends_with('"');
            let digits = word.trim_matches('"').strip_prefix(['R', 'M', 'D']).unwrap_or_default();
            !is_string
                && (1..=3).contains(&digits.len())
                && digits.bytes().all(|digit| digit.is_ascii_digit())
        })
        .count()
}
