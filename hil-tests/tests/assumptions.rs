//! Compares the table of assumptions in DEVICE.md with the marks on that page, with the comments in the code,
//! and with the cases that ask a board.

use super::pages::{files, place, quoted, text};
use hil_scenarios::cases::Selection;
use std::collections::BTreeMap;

/// The heading of the table.
const TABLE: &str = "## Every assumption";

/// The folders whose comments mark assumptions. Scenarios are left out, because each scenario itself asks the
/// board about its assumptions.
const FOLDERS: [&str; 2] = ["emulator", "/src"];

/// The number of marks of each heading or file.
type Marks = BTreeMap<String, usize>;

fn count(marks: impl Iterator<Item = String>) -> Marks {
    marks.fold(Marks::new(), |mut marks, place| {
        *marks.entry(place).or_default() += 1;
        marks
    })
}

/// Counts the marks of a page below each of its headings. The preface, which explains the mark, and the table
/// itself are left out.
fn on_the_page(page: &str) -> Marks {
    let mut heading = "";
    let marks = page.lines().take_while(|line| *line != TABLE).flat_map(|line| {
        if line.starts_with('#') {
            heading = line.trim_matches(['#', ' ']);
        }
        let count = if heading.starts_with("What is known") { 0 } else { line.matches("[?]").count() };
        std::iter::repeat_n(format!("\"{heading}\""), count)
    });
    count(marks)
}

/// Counts the comments of each file that mark an assumption.
fn in_the_code() -> Marks {
    let marks = FOLDERS.into_iter().flat_map(|folder| {
        files(vec![place(folder)], &[".rs"]).into_iter().flat_map(move |file| {
            let below = file.strip_prefix(place(folder)).expect("a file of the folder").display().to_string();
            let text = std::fs::read_to_string(&file).expect("a text");
            let is_mark = |line: &&str| {
                let comment = line.trim_start().strip_prefix("//");
                comment.is_some_and(|words| words.contains("Assumption:") || words.contains("Assumptions:"))
            };
            std::iter::repeat_n(below, text.lines().filter(is_mark).count())
        })
    });
    count(marks)
}

/// A row: the places that the cell "Marked in" names, and the names of cases in the cell "Asked by", or the
/// reason why no case asks.
type Row<'p> = (Vec<String>, Result<Vec<&'p str>, &'p str>);

/// Returns the rows of the table.
fn rows(page: &str) -> Vec<Row<'_>> {
    let (_, table) = page.split_once(TABLE).expect("the table");
    let cells = table.lines().filter_map(|line| line.strip_prefix("| ")?.strip_suffix(" |"));
    cells
        .skip(1)
        .map(|row| {
            let cells: Vec<&str> = row.split(" | ").collect();
            let [_, marked, asked] = cells[..] else { panic!("{row}") };
            let headings = marked.split('"').skip(1).step_by(2).map(|heading| format!("\"{heading}\""));
            let places = headings.chain(quoted(marked).map(str::to_owned)).collect();
            let asked = asked.strip_prefix("nobody: ").map_or_else(|| Ok(quoted(asked).collect()), Err);
            (places, asked)
        })
        .collect()
}

#[test]
fn every_assumption_has_its_row() {
    let page = text("DEVICE.md");
    let mut marked = on_the_page(&page);
    marked.extend(in_the_code());
    let named = count(rows(&page).into_iter().flat_map(|(places, _)| places));
    let differ = |one: &Marks, other: &Marks| -> Vec<String> {
        let different = one.iter().filter(|(place, count)| other.get(*place) != Some(count));
        different.map(|(place, count)| format!("{place}: {count}")).collect()
    };
    assert_eq!(differ(&marked, &named), Vec::<String>::new(), "marks that the table does not count");
    assert_eq!(differ(&named, &marked), Vec::<String>::new(), "rows without a mark");
}

#[test]
fn every_assumption_is_asked_or_has_a_reason() {
    let page = text("DEVICE.md");
    let rows = rows(&page);
    assert!(rows.len() > 60, "{} rows", rows.len());
    let cases: Vec<_> = Selection::default().cases().collect();
    for (places, asked) in rows {
        match asked {
            Ok(names) => {
                assert!(!names.is_empty(), "{places:?} names no case");
                for name in names {
                    assert!(cases.iter().any(|case| case.name() == name), "no case {name}");
                }
            }
            Err(reason) => assert!(reason.len() > 10, "{places:?}: {reason}"),
        }
    }
}
