//! Counts, as they are measured and as `hil-tests/benches` records them.

use std::fmt::Write as _;
use std::fs;
use std::path::PathBuf;
use xtask::run::{self, At};

/// The sides that are counted, in the order of [`Row::counts`]: the library; libmlx5 with its defaults;
/// libmlx5 for one thread and without BlueFlame; a bare copy of the same bytes; and the shortest code written
/// by hand.
pub(super) const SIDES: [&str; 5] = ["ours", "libmlx5", "libmlx5_stripped", "copy", "floor"];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Profile {
    /// Cargo's default profile for releases.
    Release,
    /// Fat LTO and one codegen unit: [profile.bench].
    Lto,
}

impl Profile {
    pub(super) const ALL: [Self; 2] = [Self::Release, Self::Lto];

    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Release => "release",
            Self::Lto => "lto",
        }
    }

    pub(super) const fn cargo(self) -> &'static str {
        match self {
            Self::Release => "release",
            Self::Lto => "bench",
        }
    }

    fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|profile| profile.name() == name)
    }
}

/// The factor by which a count may exceed the recorded one.
const TOLERANCE: f64 = 1.02;

#[derive(Clone, Debug, PartialEq)]
pub(super) struct Row {
    pub(super) arch: String,
    pub(super) profile: Profile,
    pub(super) work: String,
    /// The requests for each doorbell, or completions for each poll.
    pub(super) batch: u32,
    /// The instructions for each request, in the order of [`SIDES`]. `None` if the side does not perform the
    /// work.
    pub(super) counts: [Option<f64>; SIDES.len()],
    /// The times of the library and of the stripped libmlx5, if they were measured. `times.rs` writes and
    /// reads the recorded times.
    pub(super) time: Option<Time>,
}

/// The time of a request. The library and the stripped libmlx5 are measured in one process, in rounds. In
/// each round, first the library does several runs, then libmlx5.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Time {
    /// Nanoseconds of the library in its fastest run.
    pub(super) ours: f64,
    /// Nanoseconds of the stripped libmlx5 in its fastest run.
    pub(super) libmlx5: f64,
    /// The time of libmlx5 divided by that of the library, in the fastest run of each.
    pub(super) best: f64,
    /// The median, over all rounds, of the time of libmlx5 divided by that of the library.
    pub(super) median: f64,
}

impl Row {
    pub(super) fn count(&self, side: &str) -> Option<f64> {
        *self.counts.get(SIDES.iter().position(|name| *name == side)?)?
    }

    pub(super) fn ours(&self) -> Option<f64> {
        self.count("ours")
    }

    fn name(&self) -> String {
        format!("{} in batches of {} on {}, {}", self.work, self.batch, self.arch, self.profile.name())
    }

    /// Returns whether the row is the one of this work.
    pub(super) fn is(&self, arch: &str, profile: Profile, work: &str, batch: u32) -> bool {
        (self.arch.as_str(), self.profile, self.work.as_str(), self.batch) == (arch, profile, work, batch)
    }

    fn is_like(&self, other: &Self) -> bool {
        self.is(&other.arch, other.profile, &other.work, other.batch)
    }

    /// Takes missing counts of libmlx5 from the row of the same work: libmlx5 is counted separately.
    pub(super) fn take_libmlx5(&mut self, from: &[Self]) {
        let Some(same) = from.iter().find(|same| same.is_work_of(self)) else { return };
        let sides = SIDES.iter().zip(self.counts.iter_mut().zip(same.counts));
        for (_, (count, other)) in sides.filter(|(side, _)| side.starts_with("libmlx5")) {
            *count = count.or(other);
        }
    }

    fn is_work_of(&self, other: &Self) -> bool {
        (&self.work, self.batch) == (&other.work, other.batch)
    }
}

/// Makes rows from lines with counts. Each side has two lines, the second with more requests. The difference
/// of the two lines is the cost of these additional requests.
pub(super) fn rows(arch: &str, profile: Profile, totals: &[(&str, u64)]) -> Result<Vec<Row>, String> {
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
            return Err(format!("`{line}` and `{other}` are no pair"));
        };
        let side = SIDES.iter().position(|name| *name == side).ok_or(format!("unknown side `{side}`"))?;
        let count = long.saturating_sub(*short) as f64 / f64::from(requests);
        if rows.last().is_none_or(|row| row.work != work || row.batch != batch) {
            let (arch, work) = (arch.into(), work.into());
            rows.push(Row { arch, profile, work, batch, counts: [None; SIDES.len()], time: None });
        }
        if let Some(place) = rows.last_mut().and_then(|row| row.counts.get_mut(side)) {
            // The file of recorded counts has one decimal digit.
            *place = Some((count * 10.0).round() / 10.0);
        }
    }
    Ok(rows)
}

/// Returns the number of instructions, in a dump of callgrind, that the code of a library itself executed.
pub(super) fn counted_in(dump: &str, library: &str) -> u64 {
    let (mut inside, mut in_callee, mut sum) = (false, false, 0);
    for line in dump.lines() {
        if let Some(object) = line.strip_prefix("ob=") {
            inside = object.ends_with(library);
        } else if line.starts_with("calls=") {
            // The next line is the cost of the called function, not of the library.
            in_callee = true;
        } else if line.starts_with(|first: char| first.is_ascii_digit() || "+-*".contains(first)) {
            let count = line.split(' ').nth(1).and_then(|count| count.parse::<u64>().ok()).unwrap_or(0);
            sum += if inside && !in_callee { count } else { 0 };
            in_callee = false;
        }
    }
    sum
}

/// The counts, and for each architecture the version of the compiler.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Counts {
    pub(super) compilers: Vec<(String, String)>,
    pub(super) rows: Vec<Row>,
}

impl Counts {
    pub(super) fn compiler(&self, arch: &str) -> Option<&str> {
        self.compilers.iter().find(|(name, _)| name == arch).map(|(_, compiler)| compiler.as_str())
    }
}

const HEAD: &str = "arch,profile,work,batch,ours,libmlx5,libmlx5_stripped,copy,floor";

fn file() -> PathBuf {
    run::root().join("hil-tests/benches/counts.csv")
}

pub(super) fn version(rustc: &str) -> Result<String, String> {
    run::answer(run::program(rustc, &["--version"]))
}

pub(super) fn read() -> Result<Counts, String> {
    let file = file();
    let text = fs::read_to_string(&file).at(&file)?;
    parse(&text)
        .ok_or(format!("{} has another format than `cargo xtask bench --record` writes", file.display()))
}

pub(super) fn write(counts: &Counts) -> Result<String, String> {
    fs::write(file(), print(counts)).at(file())?;
    Ok(format!("{} counts recorded\n", counts.rows.len()))
}

fn print(counts: &Counts) -> String {
    let mut text = String::new();
    for (arch, compiler) in &counts.compilers {
        // Writing to a string cannot fail, neither here nor below.
        let _ = writeln!(text, "# {arch}: {compiler}");
    }
    text.push_str(HEAD);
    text.push('\n');
    for Row { arch, profile, work, batch, counts, .. } in &counts.rows {
        let counts = counts.map(|count| count.map_or(String::new(), |count| format!("{count:.1}")));
        let _ = writeln!(text, "{arch},{},{work},{batch},{}", profile.name(), counts.join(","));
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
        let [arch, profile, work, batch, ref counts @ ..] = words[..] else {
            return None;
        };
        let count = |word: &&str| match *word {
            "" => Some(None),
            word => word.parse().ok().map(Some),
        };
        Some(Row {
            arch: arch.into(),
            profile: Profile::named(profile)?,
            work: work.into(),
            batch: batch.parse().ok()?,
            counts: counts.iter().map(count).collect::<Option<Vec<_>>>()?.try_into().ok()?,
            time: None,
        })
    };
    Some(Counts { compilers, rows: lines.map(row).collect::<Option<_>>()? })
}

/// Returns the differences from recorded counts: counts of the library that have grown, rows that are new,
/// rows that are missing.
pub(super) fn compare(recorded: &[Row], rows: &[Row]) -> Vec<String> {
    let mut faults = Vec::new();
    for row in rows {
        let name = row.name();
        let before = recorded.iter().find(|before| before.is_like(row)).map(Row::ours);
        match (before, row.ours()) {
            (None, _) => faults.push(format!("{name}: not recorded")),
            (Some(Some(before)), Some(now)) if now > before * TOLERANCE => {
                faults.push(format!("{name}: {now:.1} instructions, {before:.1} recorded"));
            }
            (Some(before), now) if before.is_some() != now.is_some() => {
                faults.push(format!("{name}: counted in one of record and run only"));
            }
            _ => {}
        }
    }
    let measured = |arch: &str| rows.iter().any(|row| row.arch == arch);
    for before in recorded.iter().filter(|before| measured(&before.arch)) {
        if !rows.iter().any(|row| row.is_like(before)) {
            faults.push(format!("{}: recorded, but not counted", before.name()));
        }
    }
    faults
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(work: &str, ours: f64) -> Row {
        let counts = [Some(ours), None, None, Some(41.0), None];
        let profile = Profile::Release;
        Row { arch: "x86_64".into(), profile, work: work.into(), batch: 1, counts, time: None }
    }

    #[test]
    fn what_is_recorded_is_read_again() {
        let compilers = vec![("x86_64".into(), "rustc 1".into())];
        let recorded = Counts { compilers, rows: vec![row("list1", 50.5), row("completion1", 9.0)] };
        assert_eq!(parse(&print(&recorded)), Some(recorded));
        for text in [
            "",
            "# x86_64: rustc 1\n",
            "# x86_64: rustc 1\narch,profile,work,batch,ours,libmlx5,libmlx5_stripped,copy,floor\n\
             x86_64,release,list1,1,2,3\n",
        ] {
            assert_eq!(parse(text), None, "{text}");
        }
    }

    #[test]
    fn doubles_are_subtracted() {
        let lines = [
            ("list1 1 ours 8", 1000),
            ("list1 1 ours 16", 1400),
            ("list1 1 copy 8", 10),
            ("list1 1 copy 16", 338),
        ];
        assert_eq!(rows("x86_64", Profile::Release, &lines), Ok(vec![row("list1", 50.0)]));
        assert!(rows("x86_64", Profile::Release, &lines[1..]).is_err());
        assert!(rows("x86_64", Profile::Release, &lines[..3]).is_err());
    }

    #[test]
    fn the_rows_of_a_library_are_told_from_what_it_calls() {
        let dump = "events: Ir\nob=/lib/libc.so\nfn=f\n0 1\n+3 2\nob=/lib/device.so\nfn=g\n7 10\n\
                    cob=/lib/libc.so\ncfn=f\ncalls=1 0 \n8 100\n* 20\nob=/lib/libc.so\nfn=h\n0 1000\n\
                    totals: 1133\n";
        assert_eq!(counted_in(dump, "device.so"), 30);
        assert_eq!(counted_in(dump, "libc.so"), 1003);
        assert_eq!(counted_in(dump, "other.so"), 0);
    }

    #[test]
    fn libmlx5_is_taken_from_where_it_was_counted() {
        let counted = [None, Some(524.0), Some(427.0), Some(9.0), Some(9.0)];
        let others = [Row { counts: counted, ..row("list1", 1.0) }];
        let mut rows = [row("list1", 50.0), row("list4", 60.0)];
        rows.iter_mut().for_each(|row| row.take_libmlx5(&others));
        assert_eq!(rows[0].counts, [Some(50.0), Some(524.0), Some(427.0), Some(41.0), None]);
        assert_eq!(rows[1], row("list4", 60.0));
        rows[0].counts[2] = Some(1.0);
        rows[0].take_libmlx5(&others);
        assert_eq!(rows[0].count("libmlx5_stripped"), Some(1.0));
    }

    #[test]
    fn growth_and_missing_rows_are_told() {
        let recorded = [row("list1", 100.0), row("list4", 100.0)];
        assert_eq!(compare(&recorded, &[row("list1", 102.0), row("list4", 50.0)]), [""; 0]);
        assert_eq!(compare(&recorded, &[row("list1", 102.1), row("list4", 50.0)]).len(), 1);
        assert_eq!(compare(&recorded, &[row("list1", 100.0)]).len(), 1);
        assert_eq!(compare(&recorded[..1], &[row("list1", 100.0), row("list4", 100.0)]).len(), 1);
        let lto = Row { profile: Profile::Lto, ..row("list1", 100.0) };
        assert_eq!(compare(&recorded[..1], &[lto]).len(), 2);
        let uncounted = Row { counts: [None; SIDES.len()], ..row("list1", 1.0) };
        assert_eq!(compare(&recorded[..1], &[uncounted]).len(), 1);
    }
}
