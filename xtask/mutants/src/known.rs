//! Defects that were made by hand once and that no test noticed then: no small change of an operator makes them.

use crate::judge::{self, Verdict};
use crate::mutant::PARTS;
use crate::tree::Tree;
use crate::{ALONE, STAGES, judges, packages, program};
use std::fs;
use xtask::run::root;

/// In each line a file, a text that is in it once, another that is to take its place, and what is wrong then. `\n` ends a line.
const KNOWN: &str = include_str!("../known.tsv");

/// A defect.
#[derive(Debug, PartialEq, Eq)]
struct Defect<'a> {
    file: &'a str,
    from: &'a str,
    to: &'a str,
    what: &'a str,
}

fn parse(text: &str) -> Result<Vec<Defect<'_>>, String> {
    text.lines()
        .map(|line| match line.split('\t').collect::<Vec<_>>()[..] {
            [file, from, to, what] => Ok(Defect { file, from, to, what }),
            _ => Err(format!("no defect: {line}")),
        })
        .collect()
}

impl Defect<'_> {
    /// Returns the file with the defect.
    fn put(&self) -> Result<String, String> {
        let source =
            fs::read_to_string(root().join(self.file)).map_err(|error| format!("{}: {error}", self.file))?;
        let [from, to] = [self.from, self.to].map(|text| text.replace("\\n", "\n"));
        match source.matches(&from).count() {
            1 => Ok(source.replace(&from, &to)),
            count => Err(format!("{}: `{}` is there {count} times: {}", self.file, self.from, self.what)),
        }
    }
}

/// Puts each into the copy in turn, and has the tests judge it.
///
/// # Errors
/// One is not noticed, or cannot be built.
pub(crate) fn run() -> Result<(), String> {
    let tree = Tree::copy()?;
    let mut missed = Vec::new();
    let all = parse(KNOWN)?;
    for defect in &all {
        match judged(&tree, defect)? {
            Some(by) => println!("{}: {}: caught by {by}", defect.file, defect.what),
            None => missed.push(format!("{}: {}: not noticed", defect.file, defect.what)),
        }
    }
    println!("{} of {} caught", all.len() - missed.len(), all.len());
    if missed.is_empty() { Ok(()) } else { Err(missed.join("\n")) }
}

fn judged(tree: &Tree, defect: &Defect<'_>) -> Result<Option<String>, String> {
    let part = PARTS.iter().find(|part| defect.file.starts_with(part.folder));
    let part = part.ok_or_else(|| format!("{} is of no part", defect.file))?;
    let text = defect.put()?;
    for stage in 0..STAGES.len() {
        let built = tree.build_text(defect.file, &text, &packages(stage, &[part]))?;
        let built = built.ok_or_else(|| format!("{}: {}: does not build", defect.file, defect.what))?;
        for name in judges(part, stage) {
            let judge = program(&built, name).ok_or_else(|| format!("no tests of {name} were built"))?;
            if let Verdict::Failed(test) | Verdict::Endless(test) = judge::ask(judge, None, &[], ALONE)? {
                return Ok(Some(format!("{name} {test}")));
            }
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn defects_have_four_columns() {
        let read = parse("src/a.rs\tone\ttwo\tthree\n").unwrap();
        assert_eq!(read, [Defect { file: "src/a.rs", from: "one", to: "two", what: "three" }]);
        assert!(parse("src/a.rs\tone\ttwo\n").is_err());
    }

    /// A change of the source that a defect is of changes the defect, too.
    #[test]
    fn each_defect_can_be_put_into_the_source() {
        let all = parse(KNOWN).unwrap();
        assert!(!all.is_empty());
        assert_eq!(all.iter().filter_map(|defect| defect.put().err()).collect::<Vec<_>>(), [""; 0]);
    }
}
