//! The outcome of a validation as plain data: the JSON of the archive, which the page shows.

use super::super::monitor::AGAIN;
use super::super::results::{Ending, Results, Verdict};
use super::machine::{Check, Property};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::LazyLock;

/// The version of the format of the JSON.
pub(super) const FORMAT: u32 = 1;

/// The value of the property `nature` for a real card.
const HARDWARE: &str = "hardware";

/// The sentence of each case, from the docstring of its function.
const SENTENCES: &[(&str, &str)] = include!(concat!(env!("OUT_DIR"), "/sentences.rs"));

const REQUIREMENTS: &str = include_str!("../../../../../hil-tests/REQUIREMENTS.md");
/// The number of instructions for each kind of request (`work`), as `cargo xtask bench --record` has counted
/// it.
const COUNTS: &str = include_str!("../../../../../hil-tests/benches/counts.csv");
const FACTS: &str = include_str!("../../../../../hil-tests/DEVICE.md");

/// A row of `REQUIREMENTS.md`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Requirement {
    pub(super) number: String,
    pub(super) source: String,
    pub(super) text: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Case {
    pub(super) name: String,
    /// `passed`, `FAILED`, `SKIPPED`, `HUNG` or `DIED`.
    pub(super) verdict: String,
    /// The deviation of a case that failed, or the capability that a skipped case lacks.
    pub(super) reason: String,
    pub(super) milliseconds: u64,
    /// The rule that the case tests, in a sentence.
    pub(super) sentence: String,
    pub(super) requirements: Vec<Requirement>,
    /// The observed behaviour, if the case tests an assumption or measures.
    pub(super) measured: Vec<Property>,
    /// Queue pairs, requests and completions of a failed case, in words.
    pub(super) log: Vec<String>,
    /// The command that runs a failed case again.
    pub(super) again: Option<String>,
}

impl Case {
    pub(super) fn is_bad(&self) -> bool {
        !matches!(self.verdict.as_str(), "passed" | "SKIPPED")
    }
}

/// The cost of posting a request on this core, without a device.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Own {
    pub(super) work: String,
    /// The number of requests that share a doorbell.
    pub(super) batch: u32,
    pub(super) nanoseconds: f64,
    /// `None` if the processor does not count instructions for programs.
    pub(super) instructions: Option<f64>,
    /// The number of instructions that `counts.csv` has for this work and architecture. It is also valid on
    /// this machine, because it depends on the compiled code alone.
    #[serde(default)]
    pub(super) recorded: Option<f64>,
}

/// Rate and latency of whole I/Os over the device's loopback.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Loopback {
    pub(super) kind: String,
    pub(super) bytes: u64,
    pub(super) result: LoopbackResult,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum LoopbackResult {
    Measured {
        ios_per_second: f64,
        /// Latency of single I/Os in microseconds: the median, the 99th percentile, the longest.
        microseconds: [f64; 3],
    },
    Skipped(String),
}

/// An assumption or open question of `DEVICE.md` (the facts about devices), and the answer that a device
/// gave.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Answer<'a> {
    pub(super) case: &'a str,
    pub(super) question: String,
    /// The assumed behaviour, which the software device has.
    pub(super) assumed: String,
    pub(super) found: String,
    /// Whether the device behaves as assumed. `None` if only a person can compare the two.
    pub(super) holds: Option<bool>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Record {
    pub(super) format: u32,
    /// The device in words: identity, then capabilities.
    pub(super) device: Vec<Property>,
    pub(super) machine: Vec<Property>,
    /// Date, version, commit, posting methods and filter.
    pub(super) run: Vec<Property>,
    pub(super) checks: Vec<Check>,
    pub(super) capabilities: Vec<String>,
    pub(super) announced: usize,
    pub(super) cases: Vec<Case>,
    /// Faults of the run, outside of its cases.
    pub(super) faults: Vec<String>,
    pub(super) own: Vec<Own>,
    pub(super) loopback: Vec<Loopback>,
    /// Reasons of measurements that failed or are incomplete.
    pub(super) remarks: Vec<String>,
}

impl Record {
    pub(super) fn property(&self, what: &str) -> Option<&str> {
        self.device.iter().find(|(name, _)| name == what).map(|(_, value)| value.as_str())
    }

    pub(super) fn is_hardware(&self) -> bool {
        self.property("nature") == Some(HARDWARE)
    }

    pub(super) fn is_good(&self) -> bool {
        self.faults.is_empty() && self.cases.iter().all(|case| !case.is_bad())
    }

    pub(super) fn count(&self, verdict: &str) -> usize {
        self.cases.iter().filter(|case| case.verdict == verdict).count()
    }

    pub(super) fn take(&mut self, results: &Results) {
        self.device.clone_from(&results.about);
        self.capabilities.clone_from(&results.capabilities);
        self.announced = results.announced;
        self.cases = results.cases.iter().map(case).collect();
        self.faults.extend(results.faults(true));
        self.faults
            .extend(results.resets.iter().map(|reset| format!("the program was started anew: it {reset}")));
        if matches!(results.ending, Ending::Done) && results.missing() > 0 {
            self.faults.push(format!("{} cases were not run", results.missing()));
        }
    }

    /// Returns the assumptions and open questions of `DEVICE.md` that cases check on a board, with the
    /// behaviour of this device: first each reported value, then the verdict of each case that only passes or
    /// fails.
    pub(super) fn answers(&self) -> Vec<Answer<'_>> {
        let gaps = gaps();
        let mut answers = Vec::new();
        for case in &self.cases {
            let gap = gaps.get(case.name.as_str());
            for (what, value) in &case.measured {
                let (question, assumed) = match gap {
                    Some((question, assumed)) => (format!("{what} (of: {question})"), (*assumed).to_owned()),
                    None => (what.clone(), "as assumed".into()),
                };
                let (found, holds, assumed) = match value.split_once(", not as assumed: ") {
                    Some((found, expected)) if gap.is_none() => (found, Some(false), expected.to_owned()),
                    _ => match value.strip_suffix(", as assumed") {
                        Some(found) if gap.is_none() => (found, Some(true), found.to_owned()),
                        _ => (value.as_str(), None, assumed),
                    },
                };
                answers.push(Answer { case: &case.name, question, assumed, found: found.into(), holds });
            }
            if let (Some((question, assumed)), true) = (gap, case.measured.is_empty()) {
                let found = format!("not measured: {} {}", case.verdict, case.reason);
                let (question, assumed) = ((*question).into(), (*assumed).into());
                answers.push(Answer { case: &case.name, question, assumed, found, holds: None });
            }
        }
        for (question, asked) in assumptions() {
            let asks = |case: &&Case| asked.is_ok_and(|cases| cases.contains(&format!("`{}`", case.name)));
            for case in self.cases.iter().filter(asks).filter(|case| case.measured.is_empty()) {
                let holds = match case.verdict.as_str() {
                    "passed" => Some(true),
                    "SKIPPED" => None,
                    _ => Some(false),
                };
                let found = format!("{} {}", case.verdict, case.reason).trim_end().to_owned();
                let assumed = "the case passes".into();
                answers.push(Answer { case: &case.name, question: question.into(), assumed, found, holds });
            }
        }
        answers
    }

    /// Adds a measurement from a line that `bench own` has printed.
    pub(super) fn take_own(&mut self, line: &str) {
        let words: Vec<&str> = line.split_whitespace().collect();
        if let [work, batch, nanoseconds, instructions] = words[..]
            && let (Ok(batch), Ok(nanoseconds)) = (batch.parse(), nanoseconds.parse())
        {
            let instructions = instructions.parse().ok();
            let known = |what: &str| self.machine.iter().find(|(name, _)| name == what);
            let value = |what| known(what).map_or("", |(_, value)| value.as_str());
            let recorded = recorded(core(value("architecture"), value("processor")), work, batch);
            self.own.push(Own { work: work.into(), batch, nanoseconds, instructions, recorded });
        }
    }

    /// Adds a measurement from a line that `bench loopback` has printed.
    pub(super) fn take_loopback(&mut self, line: &str) {
        let mut words = line.splitn(3, ' ');
        let (Some(kind), Some(Ok(bytes)), Some(rest)) =
            (words.next(), words.next().map(str::parse), words.next())
        else {
            return;
        };
        let result = match rest.strip_prefix("skipped ") {
            Some(reason) => LoopbackResult::Skipped(reason.into()),
            None => {
                let numbers: Vec<f64> = rest.split(' ').flat_map(str::parse).collect();
                let [rate, median, most, longest] = numbers[..] else { return };
                LoopbackResult::Measured { ios_per_second: rate, microseconds: [median, most, longest] }
            }
        };
        self.loopback.push(Loopback { kind: kind.into(), bytes, result });
    }
}

fn case(case: &super::super::results::Case) -> Case {
    let again = case.log.iter().find_map(|line| line.strip_prefix(AGAIN)).map(str::to_owned);
    let log = case.log.iter().filter(|line| !line.starts_with(AGAIN)).cloned().collect();
    let (sentence, requirements) = described(&case.name);
    Case {
        name: case.name.clone(),
        verdict: case.verdict.word().into(),
        reason: match &case.verdict {
            Verdict::Passed => String::new(),
            other => other.reason().unwrap_or_default().into(),
        },
        milliseconds: u64::try_from(case.took.as_millis()).unwrap_or(u64::MAX),
        sentence,
        requirements,
        measured: case.measured.clone(),
        log,
        again,
    }
}

/// Returns the sentence of a case, and the requirements that it tests.
pub(super) fn described(name: &str) -> (String, Vec<Requirement>) {
    let known = SENTENCES.iter().find(|(case, _)| *case == name);
    let scenario = hil_scenarios::scenarios::all().find(|scenario| scenario.name == name);
    let numbers = scenario.map_or(&[][..], |scenario| scenario.requirements);
    let found = numbers.iter().filter_map(|number| ROWS.get(number).cloned()).collect();
    (known.map_or_else(String::new, |(_, words)| (*words).into()), found)
}

/// Returns the cells of a row of a table in Markdown.
fn cells(line: &str) -> Option<Vec<&str>> {
    let row = line.strip_prefix("| ")?.strip_suffix(" |")?;
    Some(row.split(" | ").map(str::trim).collect())
}

/// The rows of `REQUIREMENTS.md` by number.
static ROWS: LazyLock<BTreeMap<&str, Requirement>> = LazyLock::new(requirements);

fn requirements() -> BTreeMap<&'static str, Requirement> {
    let row = |line: &'static str| {
        let [number, source, text, ..] = cells(line)?[..] else { return None };
        let is_number = number.strip_prefix(['R', 'M'])?.parse::<u32>().is_ok();
        is_number.then(|| {
            let [source, text] = [source, text].map(Into::into);
            (number, Requirement { number: number.into(), source, text })
        })
    };
    REQUIREMENTS.lines().filter_map(row).collect()
}

/// Returns the core that is most similar to a processor, among the cores in `counts.csv`.
fn core(architecture: &str, processor: &str) -> &'static str {
    match architecture {
        "aarch64" if processor.contains("A78") => "aarch64-cortex-a78",
        "aarch64" => "aarch64-cortex-a72",
        _ => "x86_64",
    }
}

/// Returns the number of instructions that `counts.csv` has for a kind of request (`work`) in a release
/// build.
fn recorded(core: &str, work: &str, batch: u32) -> Option<f64> {
    let row = |line: &str| {
        let mut cells = line.split(',');
        let key = [cells.next()?, cells.next()?, cells.next()?];
        let is_wanted = key == [core, "release", work] && cells.next()?.parse() == Ok(batch);
        if is_wanted { cells.next()?.parse().ok() } else { None }
    };
    COUNTS.lines().find_map(row)
}

/// Returns each open question of `DEVICE.md` with its assumed answer, by the name of the case that measures
/// the answer (`gap…`).
fn gaps() -> BTreeMap<&'static str, (&'static str, &'static str)> {
    let row = |line: &'static str| {
        let [name, question, assumed] = cells(line)?[..] else { return None };
        let name = name.trim_matches('`');
        name.starts_with("gap").then_some((name, (question, assumed)))
    };
    FACTS.lines().filter_map(row).collect()
}

/// Returns each assumption of the table "Every assumption" in `DEVICE.md`, with the names of the cases that
/// check it on a board, or the reason why no case does.
fn assumptions() -> impl Iterator<Item = (&'static str, Result<&'static str, &'static str>)> {
    let (_, table) = FACTS.split_once("## Every assumption").unwrap_or_default();
    table.lines().filter_map(cells).skip(1).filter_map(|row| {
        let [assumption, _, asked] = row[..] else { return None };
        Some((assumption, asked.strip_prefix("nobody: ").map_or(Ok(asked), Err)))
    })
}

/// Returns each assumption that no case checks on a board, with the reason.
pub(super) fn unasked() -> impl Iterator<Item = (&'static str, &'static str)> {
    assumptions().filter_map(|(assumption, asked)| Some((assumption, asked.err()?)))
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use hil_scenarios::cases::Selection;
    use std::time::Duration;

    /// A record of a device with one good case, one failed case and two answers.
    pub(in super::super) fn record(nature: &str) -> Record {
        let case = |name: &str, verdict, measured: &[(&str, &str)], log: &[&str]| {
            super::super::super::results::Case {
                name: name.into(),
                verdict,
                took: Duration::from_millis(7),
                measured: measured.iter().map(|(what, value)| ((*what).into(), (*value).into())).collect(),
                log: log.iter().map(|line| (*line).into()).collect(),
            }
        };
        let results = Results {
            about: [("device", "mlx5_0"), ("nature", nature), ("PSID", "MT_1"), ("firmware", "32.1.2")]
                .map(|(what, value)| (what.into(), value.into()))
                .into(),
            announced: 3,
            cases: vec![
                case("r028_write_replaces_read", Verdict::Passed, &[], &[]),
                case(
                    "r030_what_a_queue_pair_denies_no_key_gives",
                    Verdict::Failed("by request: no <access> error".into()),
                    &[
                        ("a right that is denied", "0x13, not as assumed: 0x12"),
                        ("another", "true, as assumed"),
                    ],
                    &[
                        "queue pair 0x77: Error, the device is at block 3",
                        "queue pair 0x77: block 2: RDMA_READ",
                        "completion of queue pair 0x77: request 1 failed",
                        "again: ./validate mlx5_0 --filter r030_what --ways request",
                    ],
                ),
                case(
                    "gap01_internet_checksum",
                    Verdict::Passed,
                    &[("checksum with seed ones", "start 0")],
                    &[],
                ),
            ],
            ..Results::nothing("mlx5_0", Ending::Done)
        };
        let mut record = Record {
            format: FORMAT,
            machine: vec![("kernel".into(), "6.1".into())],
            run: vec![("date".into(), "2026-11-27".into())],
            ..Record::default()
        };
        record.take(&results);
        record.take_own("io_list4 1 15.2 273.0");
        record.take_own("io_xts4 1 18.1 -");
        record.take_loopback("mkey 4096 812345 1.5 2.5 9.0");
        record.take_loopback("mkey+xts 65536 skipped the device does not encrypt");
        record
    }

    #[test]
    fn every_case_has_a_sentence_and_every_scenario_a_requirement() {
        for case in Selection::default().cases() {
            let (sentence, requirements) = described(case.name());
            assert!(sentence.ends_with('.') && sentence.len() > 20, "{}: {sentence}", case.name());
            let is_gap = case.name().starts_with("gap");
            assert_eq!(requirements.is_empty(), is_gap, "{}", case.name());
            assert_eq!(gaps().contains_key(case.name()), is_gap, "{}", case.name());
        }
        assert_eq!(requirements()["R28"].source, "CFG 148–153");
    }

    #[test]
    fn a_record_has_what_the_lines_say_and_can_be_read_back() {
        let record = record("hardware");
        assert!(record.is_hardware() && !record.is_good());
        let [_, failed, _] = &record.cases[..] else { panic!("{record:?}") };
        assert_eq!(failed.again.as_deref(), Some("./validate mlx5_0 --filter r030_what --ways request"));
        assert_eq!(failed.log.len(), 3);
        assert_eq!(record.own[0].instructions, Some(273.0));
        assert_eq!(record.own[1].instructions, None);
        // If a processor counts no instructions, the report shows the recorded count, which exists for each
        // architecture.
        assert!(recorded("x86_64", "list4", 1).is_some_and(|count| count > 50.0));
        assert!(recorded(core("aarch64", "Cortex-A78"), "list4", 16).is_some_and(|count| count > 50.0));
        assert_eq!(recorded("x86_64", "list4", 3), None);
        assert_eq!(record.loopback.len(), 2);
        let text = serde_json::to_string(&record).unwrap();
        assert_eq!(serde_json::from_str::<Record>(&text).unwrap(), record);
    }

    #[test]
    fn assumptions_are_told_with_what_the_device_does() {
        let record = record("hardware");
        let answers = record.answers();
        let [denied, other, gap] = &answers[..] else { panic!("{answers:?}") };
        assert_eq!(
            (denied.found.as_str(), denied.assumed.as_str(), denied.holds),
            ("0x13", "0x12", Some(false))
        );
        assert_eq!((other.found.as_str(), other.holds), ("true", Some(true)));
        assert_eq!((gap.found.as_str(), gap.assumed.as_str()), ("start 0", "at FFFF; complemented"));
    }

    #[test]
    fn an_assumption_whose_case_only_passes_has_that_answer_and_others_a_reason() {
        let mut record = record("hardware");
        record.cases.iter_mut().for_each(|case| case.name = "m40_a_dek_of_another_domain".into());
        let answers = record.answers();
        let [.., answer] = &answers[..] else { panic!("{answers:?}") };
        assert_eq!((answer.found.as_str(), answer.holds), ("passed", Some(true)));
        assert!(answer.question.contains("DEK of another protection domain"), "{answer:?}");
        let asked = assumptions().filter(|(_, asked)| asked.is_ok()).count();
        assert!(asked > 50 && unasked().count() > 10, "{asked} {}", unasked().count());
        assert!(unasked().all(|(_, reason)| !reason.starts_with("nobody")));
    }

    #[test]
    fn a_software_device_is_no_hardware() {
        assert!(!record("a software device of mlx5-mkey, no hardware").is_hardware());
    }
}
