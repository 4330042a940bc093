//! Counts as they are measured, and as they are kept in `hil-tests/benches`.

use std::fmt::Write as _;
use std::fs;
use std::path::PathBuf;
use xtask::run;

/// Who is counted, in the order of [`Row::counts`].
pub(super) const SIDES: [&str; 3] = ["ours", "libmlx5", "floor"];

/// How much more than recorded is too much.
const TOLERANCE: f64 = 1.02;

/// Instructions for a request of one work.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Row {
    pub(super) arch: String,
    pub(super) work: String,
    /// Requests for each doorbell, completions for each poll.
    pub(super) batch: u32,
    /// Of each side, where it does the work.
    pub(super) counts: [Option<f64>; 3],
}

impl Row {
    pub(super) fn count(&self, side: usize) -> Option<f64> {
        *self.counts.get(side)?
    }

    pub(super) fn ours(&self) -> Option<f64> {
        self.count(0)
    }

    /// How many times more instructions libmlx5 executes.
    pub(super) fn fewer(&self) -> Option<f64> {
        Some(self.count(1)? / self.ours()?)
    }

    /// How many times more instructions the library executes than a bare copy.
    pub(super) fn of_floor(&self) -> Option<f64> {
        Some(self.ours()? / self.count(2)?)
    }
}

/// Makes rows of what was counted: for each side two lines, the second with more requests.
pub(super) fn rows(arch: &str, totals: &[(&str, u64)]) -> Result<Vec<Row>, String> {
    let mut rows: Vec<Row> = Vec::new();
    for pair in totals.chunks(2) {
        let [(line, short), (other, long)] = pair else { return Err("a count without the other".into()) };
        let words: Vec<&str> = line.split(' ').collect();
        let [work, batch, side, requests] = words[..] else { return Err(format!("no count: {line}")) };
        let more = other.strip_prefix(&format!("{work} {batch} {side} ")).unwrap_or_default();
        let (Ok(batch), Ok(fewer)) = (batch.parse(), requests.parse::<u32>()) else {
            return Err(format!("no count: {line}"));
        };
        let Some(requests) = more.parse().ok().filter(|more| *more > fewer).map(|more: u32| more - fewer)
        else {
            return Err(format!("{line}, but then {other}"));
        };
        let side = SIDES.iter().position(|name| *name == side).ok_or(format!("who is {side}?"))?;
        let count = long.saturating_sub(*short) as f64 / f64::from(requests);
        if rows.last().is_none_or(|row| row.work != work || row.batch != batch) {
            let (arch, work) = (arch.into(), work.into());
            rows.push(Row { arch, work, batch, counts: [None; 3] });
        }
        if let Some(place) = rows.last_mut().and_then(|row| row.counts.get_mut(side)) {
            // As many digits as are kept.
            *place = Some((count * 10.0).round() / 10.0);
        }
    }
    Ok(rows)
}

/// Counts, and by which compiler what was counted had been built, for each architecture.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Counts {
    pub(super) compilers: Vec<(String, String)>,
    pub(super) rows: Vec<Row>,
}

impl Counts {
    /// Returns the compiler for an architecture.
    pub(super) fn compiler(&self, arch: &str) -> Option<&str> {
        self.compilers.iter().find(|(name, _)| name == arch).map(|(_, compiler)| compiler.as_str())
    }
}

const HEAD: &str = "arch,work,batch,ours,libmlx5,floor";

fn file() -> PathBuf {
    run::root().join("hil-tests/benches/counts.csv")
}

/// Returns the version of a compiler.
pub(super) fn version(rustc: &str) -> Result<String, String> {
    run::answer(run::program(rustc, &["--version"]))
}

/// Reads what was kept.
pub(super) fn read() -> Result<Counts, String> {
    let file = file();
    let text = fs::read_to_string(&file).map_err(|error| format!("{}: {error}", file.display()))?;
    parse(&text).ok_or(format!("{} is not as `cargo xtask bench --record` writes it", file.display()))
}

/// Keeps these counts.
pub(super) fn write(counts: &Counts) -> Result<String, String> {
    fs::write(file(), print(counts)).map_err(|error| format!("{}: {error}", file().display()))?;
    Ok(format!("{} counts recorded\n", counts.rows.len()))
}

fn print(counts: &Counts) -> String {
    let mut text = String::new();
    for (arch, compiler) in &counts.compilers {
        // Writing to a string cannot fail, as below.
        let _ = writeln!(text, "# {arch}: {compiler}");
    }
    text.push_str(HEAD);
    text.push('\n');
    for Row { arch, work, batch, counts } in &counts.rows {
        let counts = counts.map(|count| count.map_or(String::new(), |count| format!("{count:.1}")));
        let _ = writeln!(text, "{arch},{work},{batch},{}", counts.join(","));
    }
    text
}

fn parse(text: &str) -> Option<Counts> {
    let mut lines = text.lines();
    let mut compilers = Vec::new();
    loop {
        let line = lines.next()?;
        if line == HEAD {
            break;
        }
        let (arch, compiler) = line.strip_prefix("# ")?.split_once(": ")?;
        compilers.push((arch.to_owned(), compiler.to_owned()));
    }
    let row = |line: &str| {
        let words: Vec<&str> = line.split(',').collect();
        let [arch, work, batch, ours, libmlx5, floor] = words[..] else { return None };
        let count = |word: &str| match word {
            "" => Some(None),
            word => word.parse().ok().map(Some),
        };
        Some(Row {
            arch: arch.into(),
            work: work.into(),
            batch: batch.parse().ok()?,
            counts: [count(ours)?, count(libmlx5)?, count(floor)?],
        })
    };
    Some(Counts { compilers, rows: lines.map(row).collect::<Option<_>>()? })
}

/// Returns what is not as it was recorded: counts of the library that have grown, rows that are new or gone.
pub(super) fn compare(recorded: &[Row], rows: &[Row]) -> Vec<String> {
    let same =
        |one: &Row, other: &Row| (&one.arch, &one.work, one.batch) == (&other.arch, &other.work, other.batch);
    let mut faults = Vec::new();
    for row in rows {
        let name = format!("{} in batches of {} on {}", row.work, row.batch, row.arch);
        let before = recorded.iter().find(|before| same(before, row)).map(Row::ours);
        match (before, row.ours()) {
            (None, _) => faults.push(format!("{name}: not recorded")),
            (Some(Some(before)), Some(now)) if now > before * TOLERANCE => {
                faults.push(format!("{name}: {now:.1} instructions, {before:.1} recorded"));
            }
            (Some(before), now) if before.is_some() != now.is_some() => {
                faults.push(format!("{name}: counted then or now, not both"));
            }
            _ => {}
        }
    }
    let measured = |arch: &str| rows.iter().any(|row| row.arch == arch);
    for before in recorded.iter().filter(|before| measured(&before.arch)) {
        if !rows.iter().any(|row| same(row, before)) {
            faults.push(format!("{} in batches of {}: recorded, and gone", before.work, before.batch));
        }
    }
    faults
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(work: &str, ours: f64) -> Row {
        Row { arch: "x86_64".into(), work: work.into(), batch: 1, counts: [Some(ours), None, Some(41.0)] }
    }

    #[test]
    fn what_is_recorded_is_read_again() {
        let compilers = vec![("x86_64".into(), "rustc 1".into())];
        let recorded = Counts { compilers, rows: vec![row("sge1", 50.5), row("poll1", 9.0)] };
        assert_eq!(parse(&print(&recorded)), Some(recorded));
        for text in [
            "",
            "# x86_64: rustc 1\n",
            "# x86_64: rustc 1\narch,work,batch,ours,libmlx5,floor\nx86_64,sge1,1,2,3\n",
        ] {
            assert_eq!(parse(text), None, "{text}");
        }
    }

    #[test]
    fn doubles_are_subtracted() {
        let lines = [
            ("sge1 1 ours 8", 1000),
            ("sge1 1 ours 16", 1400),
            ("sge1 1 floor 8", 10),
            ("sge1 1 floor 16", 338),
        ];
        assert_eq!(rows("x86_64", &lines), Ok(vec![row("sge1", 50.0)]));
        assert!(rows("x86_64", &lines[1..]).is_err());
        assert!(rows("x86_64", &lines[..3]).is_err());
    }

    #[test]
    fn growth_and_missing_rows_are_told() {
        let recorded = [row("sge1", 100.0), row("sge4", 100.0)];
        assert_eq!(compare(&recorded, &[row("sge1", 102.0), row("sge4", 50.0)]), [""; 0]);
        assert_eq!(compare(&recorded, &[row("sge1", 102.1), row("sge4", 50.0)]).len(), 1);
        assert_eq!(compare(&recorded, &[row("sge1", 100.0)]).len(), 1);
        assert_eq!(compare(&recorded[..1], &[row("sge1", 100.0), row("sge4", 100.0)]).len(), 1);
        let uncounted = Row { counts: [None; 3], ..row("sge1", 1.0) };
        assert_eq!(compare(&recorded[..1], &[uncounted]).len(), 1);
    }
}
