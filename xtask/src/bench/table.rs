//! Counts as a table for people, as JSON for programs, and as the table of the README.

use super::record::Row;
use std::fmt::Write as _;
use std::fs;
use xtask::run;

/// The table with everything, and in its last column how much longer libmlx5 takes.
pub(super) fn text(rows: &[Row], times: &[(String, u32, f64)]) -> String {
    let mut text = String::from(
        "instructions for a request                batch      ours   libmlx5 /ours     floor  ours/   time: libmlx5/ours\n",
    );
    for row in rows {
        let time = times.iter().find(|(work, batch, _)| (work, *batch) == (&row.work, row.batch));
        let [ours, libmlx5, floor] = row.counts.map(|count| number(count, 1));
        let (fewer, of_floor) = (number(row.fewer(), 2), number(row.of_floor(), 2));
        let name = format!("{} ({})", row.work, row.arch);
        // Writing to a string cannot fail, as below.
        let _ = writeln!(
            text,
            "{name:40} {:6} {ours:>9} {libmlx5:>9} {fewer:>5} {floor:>9} {of_floor:>6} {:>8}",
            row.batch,
            number(time.map(|(_, _, ratio)| *ratio), 1),
        );
    }
    text
}

/// A number with so many digits behind the point, or a dash.
fn number(value: Option<f64>, digits: usize) -> String {
    value.map_or_else(|| "–".into(), |value| format!("{value:.digits$}"))
}

/// One object for programs.
pub(super) fn json(rows: &[Row]) -> String {
    let rows: Vec<String> = rows
        .iter()
        .map(|Row { arch, work, batch, counts }| {
            let [ours, libmlx5, floor] =
                counts.map(|count| count.map_or_else(|| "null".into(), |count| format!("{count:.1}")));
            format!(
                "{{\"work\": \"{work}\", \"batch\": {batch}, \"arch\": \"{arch}\", \"ours\": {ours}, \"libmlx5\": {libmlx5}, \"floor\": {floor}}}"
            )
        })
        .collect();
    format!("{{\"rows\": [\n{}\n]}}\n", rows.join(",\n"))
}

const BEGIN: &str = "<!-- counts: written by `cargo xtask bench --readme` -->\n";
const END: &str = "<!-- end of counts -->";

/// The architecture that is shown in full: the only one with libmlx5.
const FIRST: &str = "x86_64";

/// What the README shows, and what it calls it.
const NAMES: &[(&str, &str)] = &[
    ("sge1", "list of 1"),
    ("sge4", "list of 4"),
    ("sge16", "list of 16"),
    ("slice4", "list of 4, as a slice"),
    ("interleaved3", "interleaved, 3 entries"),
    ("sge4_crypto", "list of 4, AES-XTS"),
    ("sge1_t10dif", "list of 1, T10-DIF on the wire"),
    ("sge1_crc32c", "list of 1, CRC32C on the wire"),
    ("sge4_t10dif_crypto", "list of 4, T10-DIF on the wire, AES-XTS"),
    ("rdma_write", "RDMA WRITE, 1 entry"),
    ("poll", "completion"),
    ("receive", "receive, 1 entry"),
    ("reconfigure_addresses", "new addresses for a list of 4"),
    ("reconfigure_tweak", "new tweak"),
    ("reconfigure_ref_tag", "new reference tag"),
    ("template_sge1", "template: list of 1"),
    ("template_sge4_crypto", "template: list of 4, AES-XTS"),
    ("template_sge1_t10dif", "template: list of 1, T10-DIF on the wire"),
    ("template_sge4_t10dif_crypto", "template: list of 4, T10-DIF on the wire, AES-XTS"),
    ("template_address", "template: list of 1, new address"),
    ("template_tweak", "template: list of 4, AES-XTS, new tweak"),
    ("template_ref_tag", "template: list of 1, T10-DIF on the wire, new reference tag"),
];

/// The tables of the README: on x86-64 with a doorbell (or a poll) for each request and with one for 16, and then all other
/// architectures side by side.
fn markdown(rows: &[Row]) -> String {
    let mut text = String::from(
        "| instructions for a request | ours | libmlx5 | | bare copy | | 16 at once: ours | libmlx5 | | bare copy | |\n\
         |---|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|\n",
    );
    let find = |arch: &str, work: &str, batch: u32| {
        // Polling has its batch in its name.
        let work = if work == "poll" { format!("poll{batch}") } else { work.to_owned() };
        rows.iter().find(|row| row.arch == arch && row.work == work && row.batch == batch)
    };
    let count = |row: Option<&Row>, side: usize| number(row.and_then(|row| row.count(side)), 0);
    let times = |ratio: Option<f64>| ratio.map_or_else(String::new, |ratio| format!("{ratio:.1}×"));
    for (work, name) in NAMES {
        let _ = write!(text, "| {name} |");
        for row in [1, 16].map(|batch| find(FIRST, work, batch)) {
            let (ours, libmlx5, floor) = (count(row, 0), count(row, 1), count(row, 2));
            let (fewer, of_floor) = (times(row.and_then(Row::fewer)), times(row.and_then(Row::of_floor)));
            let _ = write!(text, " {ours} | {libmlx5} | {fewer} | {floor} | {of_floor} |");
        }
        text.push('\n');
    }
    let mut others: Vec<&str> =
        rows.iter().map(|row| row.arch.as_str()).filter(|arch| *arch != FIRST).collect();
    others.dedup();
    if others.is_empty() {
        return text;
    }
    let heads: String = others.iter().map(|arch| format!(" {arch}: ours | bare copy | |")).collect();
    let _ = writeln!(
        text,
        "\n| instructions for a request |{heads}\n|---|{}",
        "--:|--:|--:|".repeat(others.len())
    );
    for (work, name) in NAMES {
        let _ = write!(text, "| {name} |");
        for row in others.iter().map(|arch| find(arch, work, 1)) {
            let _ = write!(
                text,
                " {} | {} | {} |",
                count(row, 0),
                count(row, 2),
                times(row.and_then(Row::of_floor))
            );
        }
        text.push('\n');
    }
    text
}

/// Returns a README with this table between its marks.
fn with_table(readme: &str, rows: &[Row]) -> Option<String> {
    let (before, rest) = readme.split_once(BEGIN)?;
    let (_, after) = rest.split_once(END)?;
    Some(format!("{before}{BEGIN}{}{END}{after}", markdown(rows)))
}

/// Writes the table of the README.
pub(super) fn write_readme(rows: &[Row]) -> Result<String, String> {
    let file = run::root().join("README.md");
    let readme = fs::read_to_string(&file).map_err(|error| format!("README.md: {error}"))?;
    let text = with_table(&readme, rows).ok_or("README.md has no marks for the counts")?;
    fs::write(&file, text).map_err(|error| format!("README.md: {error}"))?;
    Ok("README.md shows what was recorded\n".into())
}

#[cfg(test)]
mod tests {
    use super::super::record;
    use super::*;

    #[test]
    fn the_readme_shows_the_recorded_counts() -> Result<(), String> {
        let readme = fs::read_to_string(run::root().join("README.md")).map_err(|error| error.to_string())?;
        let wanted = with_table(&readme, &record::read()?.rows);
        assert!(wanted.as_ref() == Some(&readme), "cargo xtask bench --readme");
        Ok(())
    }

    #[test]
    fn a_program_can_read_it() {
        let row = Row {
            arch: "x86_64".into(),
            work: "poll1".into(),
            batch: 1,
            counts: [Some(30.0), Some(196.5), None],
        };
        let expected = "{\"rows\": [\n{\"work\": \"poll1\", \"batch\": 1, \"arch\": \"x86_64\", \"ours\": 30.0, \
                        \"libmlx5\": 196.5, \"floor\": null}\n]}\n";
        assert_eq!(json(&[row]), expected);
    }
}
