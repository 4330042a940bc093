//! Known defects: wrong changes that reviewers made by hand, and that no test noticed at that time. Mutants
//! change one operator or expression, and do not produce these defects.

use crate::judge::{self, Verdict};
use crate::mutant::PARTS;
use crate::stages::{ALONE, STAGES, judges, packages};
use crate::tree::Tree;
use std::fs;
use xtask::run::root;

/// The defects, one in each line: the file, a text that occurs once in the file, the replacement, and a
/// description. `\n` means the end of a line.
const KNOWN: &str = include_str!("../known.tsv");

#[derive(Debug, PartialEq, Eq)]
struct Defect<'a> {
    file: &'a str,
    from: &'a str,
    to: &'a str,
    description: &'a str,
}

fn parse(text: &str) -> Result<Vec<Defect<'_>>, String> {
    text.lines()
        .map(|line| match line.split('\t').collect::<Vec<_>>()[..] {
            [file, from, to, description] => Ok(Defect { file, from, to, description }),
            _ => Err(format!("not four columns: {line}")),
        })
        .collect()
}

impl Defect<'_> {
    /// Returns the file's text with the defect in it.
    fn put(&self) -> Result<String, String> {
        let source =
            fs::read_to_string(root().join(self.file)).map_err(|error| format!("{}: {error}", self.file))?;
        let [from, to] = [self.from, self.to].map(|text| text.replace("\\n", "\n"));
        match source.matches(&from).count() {
            1 => Ok(source.replace(&from, &to)),
            count => Err(format!(
                "{}: `{}` occurs {count} times, not once: {}",
                self.file, self.from, self.description
            )),
        }
    }
}

/// Puts each defect in turn into a copy of the repository, and runs the tests.
///
/// # Errors
/// No test notices a defect, or a defect cannot be built.
pub(crate) fn run() -> Result<(), String> {
    let tree = Tree::copy()?;
    let mut missed = Vec::new();
    let all = parse(KNOWN)?;
    for defect in &all {
        match judged(&tree, defect)? {
            Some(by) => println!("{}: {}: caught by {by}", defect.file, defect.description),
            None => missed.push(format!("{}: {}: not noticed", defect.file, defect.description)),
        }
    }
    println!("{} of {} caught", all.len() - missed.len(), all.len());
    if missed.is_empty() { Ok(()) } else { Err(missed.join("\n")) }
}

fn judged(tree: &Tree, defect: &Defect<'_>) -> Result<Option<String>, String> {
    let part = PARTS.iter().find(|part| defect.file.starts_with(part.folder));
    let part = part.ok_or_else(|| format!("{} belongs to no part", defect.file))?;
    let text = defect.put()?;
    for stage in 0..STAGES.len() {
        let built = tree.build_text(defect.file, &text, &packages(stage, &[part]))?;
        let built =
            built.ok_or_else(|| format!("{}: {}: does not build", defect.file, defect.description))?;
        for name in judges(part, stage) {
            let judge = built.iter().find(|program| program.name == *name);
            let judge = judge.ok_or_else(|| format!("no tests of {name} were built"))?;
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
        assert_eq!(read, [Defect { file: "src/a.rs", from: "one", to: "two", description: "three" }]);
        assert!(parse("src/a.rs\tone\ttwo\n").is_err());
    }

    /// The text that a defect replaces must occur once in its file. If the source has changed, the defect
    /// must be changed too.
    #[test]
    fn each_defect_can_be_put_into_the_source() {
        let all = parse(KNOWN).unwrap();
        assert!(!all.is_empty());
        assert_eq!(all.iter().filter_map(|defect| defect.put().err()).collect::<Vec<_>>(), [""; 0]);
    }
}
