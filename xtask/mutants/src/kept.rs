//! The list of survivors in the repository. For each file it has counts, and its survivors, each with the
//! reason why no test notices it.

use crate::mutant::{Mutant, PARTS, Part};
use crate::results::{Outcome, Source};
use std::collections::BTreeMap;
use std::fmt::Write;
use std::fs;
use xtask::run::root;

const LIST: &str = "xtask/mutants/survivors.tsv";

/// The smallest share of caught mutants that the list may have, in percent of the caught and the surviving
/// ones. Endless mutants count as caught.
const LEAST: usize = 95;

/// Numbers of mutants, by their result. Survivors are not counted.
pub(crate) type Counts = BTreeMap<&'static str, usize>;

/// The results, in the order of the list.
const RESULTS: [&str; 5] = ["caught", "endless", "refused", "excluded", "open"];

/// The rows of a source file in the list of survivors (`survivors.tsv`).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Kept {
    /// The git hash of the file when its mutants were run.
    pub(crate) hash: String,
    pub(crate) counts: Counts,
    /// The survivors, each with its reason. An empty text means that the reason is missing.
    pub(crate) survivors: Vec<(Mutant, String)>,
}

pub(crate) type List = BTreeMap<String, Kept>;

/// Returns numbers of mutants in words.
pub(crate) fn words(counts: &Counts) -> String {
    let words = RESULTS.iter().filter_map(|result| Some(format!("{} {result}", counts.get(result)?)));
    words.collect::<Vec<_>>().join(", ")
}

impl Kept {
    /// Returns a file's entry after a run. A survivor keeps the reason that it has in the entry `before`.
    pub(crate) fn of(source: &Source, before: Option<&Self>) -> Self {
        let mut kept = Self { hash: source.hash.clone(), ..Self::default() };
        for (mutant, outcome) in &source.rows {
            let result = match outcome {
                Outcome::Caught(_) => "caught",
                Outcome::Endless(_) => "endless",
                Outcome::Refused => "refused",
                Outcome::Excluded(_) => "excluded",
                Outcome::Open(_) | Outcome::Alone => "open",
                Outcome::Survived => {
                    let reason = before.and_then(|before| before.reason(mutant)).unwrap_or_default();
                    kept.survivors.push((mutant.clone(), reason.to_owned()));
                    continue;
                }
            };
            *kept.counts.entry(result).or_default() += 1;
        }
        kept
    }

    /// Returns the reason of a survivor: the reason of the same mutant, otherwise of the same change
    /// elsewhere in the function, because edits may have moved the change.
    fn reason(&self, mutant: &Mutant) -> Option<&str> {
        let alike = |other: &&(Mutant, String)| {
            let (other, reason) = other;
            !reason.is_empty() && other.is_like(mutant)
        };
        let mut all = self.survivors.iter().filter(alike);
        let exact = all.clone().find(|(other, _)| other == mutant);
        exact.or_else(|| all.next()).map(|(_, reason)| reason.as_str())
    }

    /// Returns whether all mutants of the file were run and each survivor has a reason.
    pub(crate) fn is_done(&self) -> bool {
        !self.counts.contains_key("open") && self.survivors.iter().all(|(_, reason)| !reason.is_empty())
    }
}

/// Reads the list of survivors.
///
/// # Errors
/// A description of the first line that cannot be parsed.
pub(crate) fn read() -> Result<List, String> {
    let text = fs::read_to_string(root().join(LIST)).map_err(|error| format!("{LIST}: {error}"))?;
    parse(&text).map_err(|line| format!("{LIST}:{line}: the line cannot be parsed"))
}

pub(crate) fn write(list: &List) -> Result<(), String> {
    fs::write(root().join(LIST), text(list)).map_err(|error| format!("{LIST}: {error}"))
}

/// Describes what is wrong in the list: survivors without a reason, and a share of caught mutants below
/// [`LEAST`].
pub(crate) fn faults(list: &List) -> Vec<String> {
    let survivors = list.iter().flat_map(|(file, kept)| kept.survivors.iter().map(move |row| (file, row)));
    let unexplained = survivors.filter(|(_, (_, reason))| reason.is_empty());
    let mut faults: Vec<_> = unexplained
        .map(|(file, (mutant, _))| format!("{file}:{mutant}: survived, without a reason in {LIST}"))
        .collect();
    let (caught, of) = ratio(list);
    if caught * 100 < of * LEAST {
        faults.push(format!("{caught} of {of} are caught, less than {LEAST} %"));
    }
    faults
}

/// Returns the number of caught mutants (endless ones included), and the number of caught and surviving ones
/// together.
fn ratio(list: &List) -> (usize, usize) {
    let count = |result| list.values().filter_map(|kept| kept.counts.get(result)).sum::<usize>();
    let caught = count("caught") + count("endless");
    (caught, caught + list.values().map(|kept| kept.survivors.len()).sum::<usize>())
}

/// Prints all survivors, the files that have changed since their last run, and counts for each part of the
/// source.
pub(crate) fn report(list: &List) -> Result<(), String> {
    for (file, kept) in list {
        for (mutant, reason) in &kept.survivors {
            println!("survived: {file}:{mutant}: {reason}");
        }
    }
    for part in PARTS {
        let files = crate::results::files(part)?;
        for (file, hash) in files.iter().zip(crate::results::hashes(&files)?) {
            match list.get(file) {
                None => println!("not run: {file}"),
                Some(kept) if kept.hash != hash => println!("changed since its last run: {file}"),
                Some(_) => {}
            }
        }
        let of_part = |file: &&String| file.starts_with(&format!("{}/", part.folder));
        for file in list.keys().filter(of_part).filter(|file| !files.contains(file)) {
            println!("gone: {file}");
        }
        println!("{:<8} {}", part.name, of_part_in_words(part, list));
    }
    let (caught, of) = ratio(list);
    let tenths = caught * 1000 / of.max(1);
    println!("{caught} of {of} caught ({}.{} %)", tenths / 10, tenths % 10);
    Ok(())
}

fn of_part_in_words(part: &Part, list: &List) -> String {
    let of_part = || list.iter().filter(|(file, _)| file.starts_with(&format!("{}/", part.folder)));
    let survivors: usize = of_part().map(|(_, kept)| kept.survivors.len()).sum();
    let mut sum = Counts::new();
    for (result, count) in of_part().flat_map(|(_, kept)| &kept.counts) {
        *sum.entry(result).or_default() += count;
    }
    format!("{}, {survivors} survived", words(&sum))
}

fn text(list: &List) -> String {
    let mut text = String::new();
    for (file, Kept { hash, counts, survivors }) in list {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "= {file}\t{hash}\t{}", words(counts));
        for (Mutant { start, end, kind, replacement, function }, reason) in survivors {
            let line = format!("{start}-{end}\t{kind:?}\t{replacement}\t{function}\t{reason}");
            let _ = writeln!(text, "{}", line.trim_end());
        }
    }
    text
}

/// Parses the list of survivors. The error is the number of the wrong line.
fn parse(text: &str) -> Result<List, u32> {
    let mut list = List::new();
    let mut file = String::new();
    for (line, number) in text.lines().zip(1_u32..) {
        let columns: Vec<_> = line.split('\t').collect();
        match columns[..] {
            [name, hash, text] if name.starts_with("= ") => {
                name.trim_start_matches("= ").clone_into(&mut file);
                let counts = counts(text).ok_or(number)?;
                list.insert(file.clone(), Kept { hash: hash.into(), counts, survivors: Vec::new() });
            }
            [place, kind, replacement, function, ref reason @ ..] if reason.len() <= 1 => {
                let mutant = Mutant::read(place, kind, replacement, function).ok_or(number)?;
                let reason = reason.first().copied().unwrap_or_default();
                list.get_mut(&file).ok_or(number)?.survivors.push((mutant, reason.into()));
            }
            _ => return Err(number),
        }
    }
    Ok(list)
}

fn counts(text: &str) -> Option<Counts> {
    let count = |words: &str| {
        let (count, name) = words.split_once(' ')?;
        Some((*RESULTS.iter().find(|known| **known == name)?, count.parse().ok()?))
    };
    text.split(", ").filter(|words| !words.is_empty()).map(count).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "\
= src/queue/none.rs\t0123\t
= src/queue/ring.rs\t4567\t41 caught, 2 endless, 3 refused, 1 open
12:5-12:7\tBinaryOperator\t!=\tRing::at\tthe same value
13:9-13:10\tUnaryOperator\t\tRing::at
";

    #[test]
    fn the_list_is_read_as_it_was_written() {
        let list = parse(TEXT).unwrap();
        assert_eq!(text(&list), TEXT);
        assert_eq!(ratio(&list), (43, 45));
        for (text, line) in
            [("1:1-1:2\tMatchArm\t\tf\n", 1), ("= a\t0\t1 caught\n\n", 2), ("= a\t0\t1 well\n", 1)]
        {
            assert_eq!(parse(text), Err(line), "{text:?}");
        }
    }

    #[test]
    fn each_survivor_has_a_reason_and_most_mutants_are_caught() {
        let list = read().unwrap();
        assert_eq!(faults(&list), [""; 0]);
        assert!(list.len() > 100, "{} files", list.len());
    }

    #[test]
    fn a_survivor_without_a_reason_and_few_that_are_caught_are_faults() {
        let list = parse(TEXT).unwrap();
        let [fault] = &faults(&list)[..] else { panic!("{:?}", faults(&list)) };
        assert!(fault.starts_with("src/queue/ring.rs:13:9: UnaryOperator"), "{fault}");
        let few = parse(&TEXT.replace("41 caught", "10 caught")).unwrap();
        assert!(faults(&few).iter().any(|fault| fault.starts_with("12 of 14")), "{:?}", faults(&few));
    }

    #[test]
    fn a_reason_stays_with_a_survivor_that_has_moved() {
        let list = parse(TEXT).unwrap();
        let before = list.get("src/queue/ring.rs");
        let row = |place, replacement| {
            (Mutant::read(place, "BinaryOperator", replacement, "Ring::at").unwrap(), Outcome::Survived)
        };
        let mut source =
            Source { hash: "89".into(), rows: vec![row("20:5-20:7", "!="), row("20:5-20:7", "<")] };
        let caught = Outcome::Caught("mlx5_mkey tests::ends".into());
        source.rows.push((source.rows[1].0.clone(), caught));
        let kept = Kept::of(&source, before);
        assert_eq!(kept.survivors[0].1, "the same value");
        assert_eq!((kept.survivors[1].1.as_str(), kept.counts["caught"]), ("", 1));
        assert!(!kept.is_done());
    }
}
