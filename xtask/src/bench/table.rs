//! Counts as a table for people, as JSON for programs, and as tables of two READMEs.

use super::record::{Profile, Row, SIDES, Time};
use super::times::{Conditions, Timed, Times};
use std::fmt::Write as _;
use std::fs;
use xtask::run;

/// Returns the table of all counts. Its last columns are the library's time, and the time of the stripped
/// libmlx5 divided by it: from the fastest run of each, and as the median of all rounds.
pub(super) fn text(rows: &[Row]) -> String {
    let mut text = String::from(
        "instructions for a request                        batch      ours   libmlx5  stripped      copy     \
         floor     ns  best median\n",
    );
    for row in rows {
        let [ours, libmlx5, stripped, copy, floor] = row.counts.map(|count| number(count, 1));
        let name = format!("{} ({}, {})", row.work, row.arch, row.profile.name());
        // Writing to a string cannot fail, neither here nor below.
        let _ = writeln!(
            text,
            "{name:48} {:6} {ours:>9} {libmlx5:>9} {stripped:>9} {copy:>9} {floor:>9} {:>6} {:>5} {:>6}",
            row.batch,
            number(row.time.map(|time| time.ours), 1),
            number(row.time.map(|time| time.best), 2),
            number(row.time.map(|time| time.median), 2),
        );
    }
    text
}

/// Returns a number with `digits` decimal digits, or a dash.
fn number(value: Option<f64>, digits: usize) -> String {
    value.map_or_else(|| "–".into(), |value| format!("{value:.digits$}"))
}

pub(super) fn json(rows: &[Row], conditions: &Conditions) -> String {
    let value = |value: Option<f64>| value.map_or("null".into(), |value| format!("{value:.1}"));
    let row = |row: &Row| {
        let Row { arch, profile, work, batch, counts, time } = row;
        let profile = profile.name();
        let counts: String = SIDES
            .iter()
            .zip(counts)
            .map(|(side, count)| format!(", \"{side}\": {}", value(*count)))
            .collect();
        let time = time.map_or("null".into(), |Time { ours, libmlx5, best, median }| {
            format!(
                "{{\"ours\": {ours:.1}, \"libmlx5_stripped\": {libmlx5:.1}, \"best\": {best:.2}, \
                 \"median\": {median:.2}}}"
            )
        });
        format!(
            "{{\"work\": \"{work}\", \"batch\": {batch}, \"arch\": \"{arch}\", \
             \"profile\": \"{profile}\"{counts}, \"time\": {time}}}"
        )
    };
    let rows: Vec<String> = rows.iter().map(row).collect();
    let Conditions { machine, date, load } = conditions;
    let machine = machine.replace(['"', '\\'], " ");
    format!(
        "{{\"machine\": \"{machine}\", \"date\": \"{date}\", \"load\": \"{load}\", \"rows\": [\n{}\n]}}\n",
        rows.join(",\n")
    )
}

const BEGIN: &str = "<!-- counts: written by `cargo xtask bench --readme` -->\n";
const END: &str = "<!-- end of counts -->";

/// The architecture whose rows have all sides: libmlx5 is counted on no other architecture.
const FIRST: &str = "x86_64";
const BOARDS: [&str; 2] = ["aarch64-cortex-a72", "aarch64-cortex-a78"];

/// The rows of the README's table: name of the work, requests for each doorbell, and the text in the README.
/// The first row is the request of a storage service.
const LINES: [(&str, u32, &str); 7] = [
    ("io_list4_dyn", 1, "whole I/O, list of 4, number of entries known at run time"),
    ("io_list4_devx", 1, "whole I/O through `devx`, list of 4, number known to the compiler"),
    ("io_list4", 1, "whole I/O, list of 4, number known to the compiler"),
    ("io_t10dif_xts4", 1, "the same with T10-DIF and AES-XTS"),
    ("rdma_write", 1, "RDMA WRITE"),
    ("rdma_write", 16, "RDMA WRITE, 16 for one doorbell"),
    ("completion1", 1, "completion"),
];

/// Returns the count of a side as tables show it, without decimal digits. `like` is the work's name and its
/// requests for each doorbell.
fn shown(rows: &[Row], arch: &str, profile: Profile, like: (&str, u32), side: &str) -> String {
    let row = rows.iter().find(|row| row.is(arch, profile, like.0, like.1));
    number(row.and_then(|row| row.count(side)), 0)
}

/// Returns a table row: the library's counts in both profiles, and libmlx5's counts, by default and stripped.
fn line(rows: &[Row], name: &str, like: (&str, u32)) -> String {
    let of = |profile, side| shown(rows, FIRST, profile, like, side);
    let ours = Profile::ALL.map(|profile| of(profile, "ours"));
    let libmlx5 = ["libmlx5", "libmlx5_stripped"].map(|side| of(Profile::Release, side));
    format!("| {name} | {} | {} |", ours.join(" | "), libmlx5.join(" | "))
}

/// Returns the nanoseconds of the library, and the time of the stripped libmlx5 divided by them, from the
/// fastest run of each.
fn shown_time(times: &[Timed], like: (&str, u32)) -> String {
    let timed = times.iter().find(|timed| (timed.work.as_str(), timed.batch) == like);
    let time = timed.map(|timed| timed.time);
    format!("{} | {}", number(time.map(|time| time.ours), 0), number(time.map(|time| time.best), 2))
}

/// Returns the table of the repository's README.
fn service_lines(rows: &[Row], times: &Times) -> String {
    let mut text = String::from(
        "| one request on x86-64 | release | fat LTO | libmlx5 | stripped | ns | ns of stripped / ns |\n\
         |---|--:|--:|--:|--:|--:|--:|\n",
    );
    for (work, batch, name) in LINES {
        let like = (work, batch);
        let time = shown_time(&times.rows, like);
        let _ = writeln!(text, "{} {time} |", line(rows, name, like));
    }
    text
}

/// Returns the tables of the benchmarks' README: with one doorbell (or poll) for each request, and with one
/// for 16 requests.
fn all_lines(rows: &[Row], times: &Times) -> String {
    let mut text = String::new();
    for (batch, title) in [(1, "one at a time"), (16, "16 at a time")] {
        let _ = write!(
            text,
            "| {title} | release | fat LTO | libmlx5 | stripped | copy | floor | A72 | A72 copy | A78 | \
             A78 copy | ns | ratio |\n\
             |---|{}\n",
            "--:|".repeat(12)
        );
        let is_shown =
            |row: &&Row| row.arch == FIRST && row.profile == Profile::Release && row.batch == batch;
        for Row { work, .. } in rows.iter().filter(is_shown) {
            let like = (work.as_str(), batch);
            let least = ["copy", "floor"].map(|side| shown(rows, FIRST, Profile::Release, like, side));
            let boards = BOARDS.map(|arch| {
                ["ours", "copy"].map(|side| shown(rows, arch, Profile::Release, like, side)).join(" | ")
            });
            let name = format!("`{work}`");
            let _ = writeln!(
                text,
                "{} {} | {} | {} |",
                line(rows, &name, like),
                least.join(" | "),
                boards.join(" | "),
                shown_time(&times.rows, like)
            );
        }
        text.push('\n');
    }
    let Conditions { machine, date, load } = &times.conditions;
    let _ = writeln!(text, "Times: {machine}, {date}, load {load}.");
    text
}

/// A file with a table, and the function that makes this table.
type Readme = (&'static str, fn(&[Row], &Times) -> String);
const READMES: [Readme; 2] = [("README.md", service_lines), ("hil-tests/benches/README.md", all_lines)];

/// Returns the text of a file unchanged, and the text with the new table between its two marks.
fn with_table((file, table): Readme, rows: &[Row], times: &Times) -> Result<(String, String), String> {
    let text = fs::read_to_string(run::root().join(file)).map_err(|error| format!("{file}: {error}"))?;
    let marked = text.split_once(BEGIN).and_then(|(before, rest)| Some((before, rest.split_once(END)?.1)));
    let (before, after) = marked.ok_or_else(|| format!("{file} has no marks for the counts"))?;
    let wanted = format!("{before}{BEGIN}{}{END}{after}", table(rows, times));
    Ok((text, wanted))
}

pub(super) fn write_readme(rows: &[Row], times: &Times) -> Result<String, String> {
    for readme in READMES {
        let (file, (_, wanted)) = (readme.0, with_table(readme, rows, times)?);
        fs::write(run::root().join(file), wanted).map_err(|error| format!("{file}: {error}"))?;
    }
    Ok("README.md and hil-tests/benches/README.md show the recorded counts\n".into())
}

#[cfg(test)]
mod tests {
    use super::super::{record, times};
    use super::*;

    #[test]
    fn the_readmes_show_the_recorded_counts() -> Result<(), String> {
        let (recorded, times) = (record::read()?, times::read()?);
        for readme in READMES {
            let (text, wanted) = with_table(readme, &recorded.rows, &times)?;
            assert!(text == wanted, "{}: cargo xtask bench --readme", readme.0);
        }
        Ok(())
    }

    #[test]
    fn a_program_can_read_it() {
        let row = Row {
            arch: "x86_64".into(),
            profile: Profile::Lto,
            work: "completion1".into(),
            batch: 1,
            counts: [Some(30.0), Some(206.5), Some(196.5), None, Some(48.0)],
            time: Some(Time { ours: 10.0, libmlx5: 32.5, best: 3.25, median: 3.0 }),
        };
        let conditions =
            Conditions { machine: "a \"CPU\"".into(), date: "2026-11-25".into(), load: "1 2 3".into() };
        let expected = "{\"machine\": \"a  CPU \", \"date\": \"2026-11-25\", \"load\": \"1 2 3\", \
                        \"rows\": [\n{\"work\": \"completion1\", \"batch\": 1, \"arch\": \"x86_64\", \
                        \"profile\": \"lto\", \"ours\": 30.0, \"libmlx5\": 206.5, \
                        \"libmlx5_stripped\": 196.5, \"copy\": null, \"floor\": 48.0, \
                        \"time\": {\"ours\": 10.0, \"libmlx5_stripped\": 32.5, \"best\": 3.25, \
                        \"median\": 3.00}}\n]}\n";
        assert_eq!(json(&[row], &conditions), expected);
    }
}
