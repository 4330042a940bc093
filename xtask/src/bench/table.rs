//! Counts as a table for people, as JSON for programs, and as tables of two READMEs.

use super::record::{Profile, Row, SIDES};
use std::fmt::Write as _;
use std::fs;
use xtask::run;

/// Returns a table of all rows. Its last column is the time of the stripped libmlx5 divided by the library's.
pub(super) fn text(rows: &[Row]) -> String {
    let mut text = String::from(
        "instructions for a request                        batch      ours   libmlx5  stripped      copy     \
         floor  time\n",
    );
    for row in rows {
        let [ours, libmlx5, stripped, copy, floor] = row.counts.map(|count| number(count, 1));
        let name = format!("{} ({}, {})", row.work, row.arch, row.profile.name());
        // Writing to a string cannot fail, as below.
        let _ = writeln!(
            text,
            "{name:48} {:6} {ours:>9} {libmlx5:>9} {stripped:>9} {copy:>9} {floor:>9} {:>5}",
            row.batch,
            number(row.time, 1),
        );
    }
    text
}

/// Returns a number with `digits` decimal digits, or a dash.
fn number(value: Option<f64>, digits: usize) -> String {
    value.map_or_else(|| "–".into(), |value| format!("{value:.digits$}"))
}

/// Machine and date of a measurement.
pub(super) struct Conditions {
    pub(super) machine: String,
    pub(super) date: String,
}

/// Returns a JSON object.
pub(super) fn json(rows: &[Row], conditions: &Conditions) -> String {
    let value = |value: Option<f64>, digits: usize| match value {
        Some(value) => format!("{value:.digits$}"),
        None => "null".into(),
    };
    let row = |row: &Row| {
        let Row { arch, profile, work, batch, counts, time } = row;
        let profile = profile.name();
        let counts: String = SIDES
            .iter()
            .zip(counts)
            .map(|(side, count)| format!(", \"{side}\": {}", value(*count, 1)))
            .collect();
        format!(
            "{{\"work\": \"{work}\", \"batch\": {batch}, \"arch\": \"{arch}\", \
             \"profile\": \"{profile}\"{counts}, \"time\": {}}}",
            value(*time, 2),
        )
    };
    let rows: Vec<String> = rows.iter().map(row).collect();
    let Conditions { machine, date } = conditions;
    let machine = machine.replace(['"', '\\'], " ");
    format!("{{\"machine\": \"{machine}\", \"date\": \"{date}\", \"rows\": [\n{}\n]}}\n", rows.join(",\n"))
}

const BEGIN: &str = "<!-- counts: written by `cargo xtask bench --readme` -->\n";
const END: &str = "<!-- end of counts -->";

/// The architecture whose row is shown in full: the only one with libmlx5.
const FIRST: &str = "x86_64";
const BOARDS: [&str; 2] = ["aarch64-cortex-a72", "aarch64-cortex-a78"];

/// The rows of the README: work, and its description.
const LINES: [(&str, &str); 5] = [
    ("io_list4", "whole I/O, 4 entries"),
    ("io_xts4", "whole I/O, 4 entries, AES-XTS"),
    ("io_t10dif_xts4", "whole I/O, 4 entries, T10-DIF, AES-XTS"),
    ("rdma_write", "RDMA WRITE"),
    ("completion1", "completion"),
];

/// Returns the count of a side as tables show it.
fn shown(rows: &[Row], arch: &str, profile: Profile, like: (&str, u32), side: &str) -> String {
    let row = rows.iter().find(|row| {
        (row.arch.as_str(), row.profile, row.work.as_str(), row.batch) == (arch, profile, like.0, like.1)
    });
    number(row.and_then(|row| row.count(side)), 0)
}

/// Returns a table row: the library's counts in both profiles, and those of libmlx5, by default and stripped.
fn line(rows: &[Row], name: &str, like: (&str, u32)) -> String {
    let of = |profile, side| shown(rows, FIRST, profile, like, side);
    let ours = Profile::ALL.map(|profile| of(profile, "ours"));
    let libmlx5 = ["libmlx5", "libmlx5_stripped"].map(|side| of(Profile::Release, side));
    format!("| {name} | {} | {} |", ours.join(" | "), libmlx5.join(" | "))
}

/// Returns the table of the README.
fn five_lines(rows: &[Row]) -> String {
    let mut text = String::from(
        "| instructions on x86-64 | release | fat LTO | libmlx5 | libmlx5, stripped |\n\
         |---|--:|--:|--:|--:|\n",
    );
    for (work, name) in LINES {
        let _ = writeln!(text, "{}", line(rows, name, (work, 1)));
    }
    text
}

/// Returns the tables of the benchmarks' README: with a doorbell (or a poll) for each request, and for 16
/// requests.
fn all_lines(rows: &[Row]) -> String {
    let mut text = String::new();
    for (batch, title) in [(1, "one at a time"), (16, "16 at a time")] {
        let _ = write!(
            text,
            "| {title} | release | fat LTO | libmlx5 | stripped | copy | floor | A72 | A72 copy | A78 | \
             A78 copy |\n\
             |---|{}\n",
            "--:|".repeat(10)
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
                "{} {} | {} |",
                line(rows, &name, like),
                least.join(" | "),
                boards.join(" | ")
            );
        }
        text.push('\n');
    }
    text.truncate(text.trim_end().len());
    text.push('\n');
    text
}

/// The files with tables, and the functions that make the tables.
type Readme = (&'static str, fn(&[Row]) -> String);
const READMES: [Readme; 2] = [("README.md", five_lines), ("hil-tests/benches/README.md", all_lines)];

/// Returns the text of a file, and the text with the table between its marks replaced.
fn with_table((file, table): Readme, rows: &[Row]) -> Result<(String, String), String> {
    let text = fs::read_to_string(run::root().join(file)).map_err(|error| format!("{file}: {error}"))?;
    let marked = text.split_once(BEGIN).and_then(|(before, rest)| Some((before, rest.split_once(END)?.1)));
    let (before, after) = marked.ok_or_else(|| format!("{file} has no marks for the counts"))?;
    let wanted = format!("{before}{BEGIN}{}{END}{after}", table(rows));
    Ok((text, wanted))
}

/// Writes the tables into both files.
pub(super) fn write_readme(rows: &[Row]) -> Result<String, String> {
    for readme in READMES {
        let (file, (_, wanted)) = (readme.0, with_table(readme, rows)?);
        fs::write(run::root().join(file), wanted).map_err(|error| format!("{file}: {error}"))?;
    }
    Ok("README.md and hil-tests/benches/README.md show the recorded counts\n".into())
}

#[cfg(test)]
mod tests {
    use super::super::record;
    use super::*;

    #[test]
    fn the_readmes_show_the_recorded_counts() -> Result<(), String> {
        let recorded = record::read()?;
        for readme in READMES {
            let (text, wanted) = with_table(readme, &recorded.rows)?;
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
            time: Some(3.25),
        };
        let conditions = Conditions { machine: "a \"CPU\"".into(), date: "2026-11-25".into() };
        let expected = "{\"machine\": \"a  CPU \", \"date\": \"2026-11-25\", \"rows\": [\n\
                        {\"work\": \"completion1\", \"batch\": 1, \"arch\": \"x86_64\", \
                        \"profile\": \"lto\", \"ours\": 30.0, \"libmlx5\": 206.5, \
                        \"libmlx5_stripped\": 196.5, \"copy\": null, \"floor\": 48.0, \"time\": 3.25}\n]}\n";
        assert_eq!(json(&[row], &conditions), expected);
    }
}
