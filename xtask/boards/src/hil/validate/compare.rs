//! The differences of two records of a validation, and the facts about a card that one record shows.

use super::machine::Property;
use super::record::{Answer, LoopbackResult, Record};
use std::collections::BTreeMap;
use std::fmt::{Debug, Write as _};

/// Describes the differences of two records: device, machine, verdicts, answers, then times as ratios.
pub(super) fn compare(first: &Record, second: &Record) -> String {
    let mut text = String::new();
    for (title, of) in [
        ("device", (|record| &record.device) as fn(&Record) -> &Vec<Property>),
        ("machine", |record| &record.machine),
        ("run", |record| &record.run),
    ] {
        let map = |record| of(record).iter().map(|(what, value)| (what.clone(), value.clone())).collect();
        differences(&mut text, title, &map(first), &map(second));
    }
    let verdicts = |record: &Record| {
        let word = |case: &super::record::Case| match case.reason.as_str() {
            "" => case.verdict.clone(),
            reason => format!("{}: {reason}", case.verdict),
        };
        record.cases.iter().map(|case| (case.name.clone(), word(case))).collect()
    };
    differences(&mut text, "verdicts", &verdicts(first), &verdicts(second));
    let answers = |record: &Record| {
        let key = |answer: &Answer<'_>| format!("{}, {}", answer.case, answer.question);
        record.answers().iter().map(|answer| (key(answer), answer.found.clone())).collect()
    };
    differences(&mut text, "answers", &answers(first), &answers(second));
    ratios(&mut text, "nanoseconds of a request", &nanoseconds(first), &nanoseconds(second));
    ratios(&mut text, "I/Os per second over the loopback", &rates(first), &rates(second));
    text
}

/// Writes the entries in which two tables differ.
fn differences(
    text: &mut String,
    title: &str,
    first: &BTreeMap<String, String>,
    second: &BTreeMap<String, String>,
) {
    let keys: std::collections::BTreeSet<&String> = first.keys().chain(second.keys()).collect();
    let value = |map: &BTreeMap<String, String>, key| map.get(key).cloned().unwrap_or_else(|| "–".into());
    let lines: Vec<String> = keys
        .into_iter()
        .map(|key| (key, value(first, key), value(second, key)))
        .filter(|(_, first, second)| first != second)
        .map(|(key, first, second)| format!("  {key}\n    A: {first}\n    B: {second}\n"))
        .collect();
    // Writing to a string cannot fail.
    let _ = match lines.len() {
        0 => writeln!(text, "{title}: equal"),
        count => writeln!(text, "{title}: {count} differ\n{}", lines.concat().trim_end()),
    };
}

fn nanoseconds(record: &Record) -> BTreeMap<(String, u64), f64> {
    record.own.iter().map(|own| ((own.work.clone(), own.batch.into()), own.nanoseconds)).collect()
}

fn rates(record: &Record) -> BTreeMap<(String, u64), f64> {
    let rate = |row: &super::record::Loopback| match row.result {
        LoopbackResult::Measured { ios_per_second, .. } => {
            Some(((row.kind.clone(), row.bytes), ios_per_second))
        }
        LoopbackResult::Skipped(_) => None,
    };
    record.loopback.iter().filter_map(rate).collect()
}

/// Writes the numbers that both tables have, and the ratio of the second to the first.
fn ratios<K: Ord + Debug>(
    text: &mut String,
    title: &str,
    first: &BTreeMap<(String, K), f64>,
    second: &BTreeMap<(String, K), f64>,
) {
    let _ = writeln!(text, "{title}: A, B, B/A");
    for (key @ (name, detail), first) in first {
        if let Some(second) = second.get(key) {
            let ratio = second / first;
            let _ = writeln!(text, "  {name} {detail:?}: {first:.1} {second:.1} {ratio:.2}");
        }
    }
}

/// Returns proposed lines for `DEVICE.md`: the behaviour of a card where that file has an assumption or an
/// open question.
///
/// # Errors
/// The record is not of hardware.
pub(super) fn facts(record: &Record) -> Result<String, String> {
    if !record.is_hardware() {
        let nature = record.property("nature").unwrap_or("unknown");
        return Err(format!("the record is not of hardware ({nature}): no fact follows from it"));
    }
    let known = |what| record.property(what).unwrap_or("unknown");
    let run = |what| record.run.iter().find(|(name, _)| name == what).map_or("unknown", |(_, value)| value);
    let mut text = format!(
        "## Measured on {} (PSID {}, firmware {})\n\nMark: [B], measured on a board by `cargo xtask \
         validate` ({}, commit {}).\n\n",
        known("type"),
        known("PSID"),
        known("firmware"),
        run("date"),
        run("commit"),
    );
    text.push_str("| Case | Question | This device | Assumption | As assumed |\n|---|---|---|---|---|\n");
    for answer in record.answers() {
        let holds = match answer.holds {
            Some(true) => "yes",
            Some(false) => "**no**",
            None => "compare",
        };
        let cell = |text: &str| text.replace('|', "\\|");
        let _ = writeln!(
            text,
            "| `{}` | {} | {} | {} | {holds} |",
            answer.case,
            cell(&answer.question),
            cell(&answer.found),
            cell(&answer.assumed),
        );
    }
    let failed: Vec<_> = record.cases.iter().filter(|case| case.is_bad()).collect();
    if !failed.is_empty() {
        text.push_str("\nRules that this device does not keep:\n\n");
    }
    for case in failed {
        let numbers: Vec<_> = case.requirements.iter().map(|row| row.number.as_str()).collect();
        let _ = writeln!(text, "- `{}` ({}): {}", case.name, numbers.join(", "), case.reason);
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::super::record::tests::record;
    use super::{compare, facts};

    #[test]
    fn differences_are_told() {
        let first = record("hardware");
        let mut second = first.clone();
        second.device[3].1 = "32.9.9".into();
        second.cases[1].verdict = "passed".into();
        second.cases[1].reason.clear();
        second.own[0].nanoseconds *= 2.0;
        let text = compare(&first, &second);
        for part in [
            "device: 1 differ\n  firmware\n    A: 32.1.2\n    B: 32.9.9\n",
            "machine: equal\n",
            "verdicts: 1 differ\n  r030_",
            "  io_list4 1: 15.2 30.4 2.00\n",
            "  mkey 4096: 812345.0 812345.0 1.00\n",
        ] {
            assert!(text.contains(part), "{part}:\n{text}");
        }
        assert!(compare(&first, &first).contains("verdicts: equal\n"));
    }

    #[test]
    fn facts_come_from_hardware_only() {
        let text = facts(&record("hardware")).unwrap();
        assert!(text.contains("(PSID MT_1, firmware 32.1.2)"), "{text}");
        assert!(text.contains("| a right that is denied | 0x13 | 0x12 | **no** |"), "{text}");
        assert!(text.contains("- `r030_what_a_queue_pair_denies_no_key_gives` ("), "{text}");
        let refused = facts(&record("a software device of mlx5-mkey, no hardware")).unwrap_err();
        assert!(refused.contains("no fact follows"), "{refused}");
    }
}
