//! Times of the library and of the stripped libmlx5, which run alternately in one process, and the record of
//! these times in `hil-tests/benches`.
//!
//! No test compares a time with the record: times depend on the machine and on its load, both of which the
//! record names.

use super::record::{Profile, Row, Time};
use std::fmt::Write as _;
use std::fs;
use std::path::PathBuf;
use xtask::run::{self, At};

/// The time of one work. `batch` is the number of requests for each doorbell.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Timed {
    pub(super) work: String,
    pub(super) batch: u32,
    pub(super) time: Time,
}

/// Measured times, and the conditions of the measurement.
#[derive(Debug, PartialEq)]
pub(super) struct Times {
    pub(super) conditions: Conditions,
    pub(super) rows: Vec<Timed>,
}

/// The machine and the time of a measurement.
#[derive(Debug, PartialEq)]
pub(super) struct Conditions {
    pub(super) machine: String,
    pub(super) date: String,
    /// The load of the machine over 1, 5 and 15 minutes, as the measurement ended.
    pub(super) load: String,
}

impl Conditions {
    pub(super) fn now() -> Self {
        let cpus = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let name = cpus.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": "));
        let number = cpus.lines().filter(|line| line.starts_with("processor")).count();
        let machine = format!("{number} cores of {}", name.map_or("an unknown CPU", |(_, name)| name));
        let load = fs::read_to_string("/proc/loadavg").unwrap_or_default();
        Self {
            machine,
            date: run::answer(run::program("date", &["-u", "+%F"])).unwrap_or_default(),
            load: load.split(' ').take(3).collect::<Vec<_>>().join(" "),
        }
    }
}

pub(super) fn printed(text: &str) -> Vec<Timed> {
    text.lines().filter_map(|line| timed(line, ' ')).collect()
}

pub(super) fn put_to(rows: &mut [Row], arch: &str, profile: Profile, times: &[Timed]) {
    for Timed { work, batch, time } in times {
        if let Some(row) = rows.iter_mut().find(|row| row.is(arch, profile, work, *batch)) {
            row.time = Some(*time);
        }
    }
}

/// Parses a line of the benchmark program's output (separated by spaces), or of the recorded times (by
/// commas).
fn timed(line: &str, separator: char) -> Option<Timed> {
    let words: Vec<&str> = line.split(separator).collect();
    let [work, batch, ours, libmlx5, best, median] = words[..] else { return None };
    let [ours, libmlx5, best, median] = [ours, libmlx5, best, median].map(str::parse);
    let time = Time { ours: ours.ok()?, libmlx5: libmlx5.ok()?, best: best.ok()?, median: median.ok()? };
    Some(Timed { work: work.into(), batch: batch.parse().ok()?, time })
}

const HEAD: &str = "work,batch,ours_ns,libmlx5_stripped_ns,ratio_of_best,median_of_ratios";

fn file() -> PathBuf {
    run::root().join("hil-tests/benches/times.csv")
}

/// Writes times that were measured just now to `hil-tests/benches/times.csv`.
pub(super) fn write(rows: Vec<Timed>) -> Result<String, String> {
    let times = Times { conditions: Conditions::now(), rows };
    fs::write(file(), print(&times)).at(file())?;
    Ok(format!("{} times recorded\n", times.rows.len()))
}

pub(super) fn read() -> Result<Times, String> {
    let file = file();
    let text = fs::read_to_string(&file).at(&file)?;
    parse(&text).ok_or(format!("{} is not as `cargo xtask bench --record-times` writes it", file.display()))
}

fn print(Times { conditions: Conditions { machine, date, load }, rows }: &Times) -> String {
    let mut text = format!("# machine: {machine}\n# date: {date}\n# load: {load}\n{HEAD}\n");
    for Timed { work, batch, time: Time { ours, libmlx5, best, median } } in rows {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{work},{batch},{ours:.1},{libmlx5:.1},{best:.2},{median:.2}");
    }
    text
}

fn parse(text: &str) -> Option<Times> {
    let mut lines = text.lines();
    let [machine, date, load] = ["machine", "date", "load"].map(|name| {
        Some(lines.next()?.strip_prefix("# ")?.strip_prefix(name)?.strip_prefix(": ")?.to_owned())
    });
    let conditions = Conditions { machine: machine?, date: date?, load: load? };
    if lines.next()? != HEAD {
        return None;
    }
    Some(Times { conditions, rows: lines.map(|line| timed(line, ',')).collect::<Option<_>>()? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn recorded_times_are_read_again() {
        let conditions = Conditions {
            machine: "2 cores of a CPU".into(),
            date: "2026-11-26".into(),
            load: "0 1 2".into(),
        };
        let time = Time { ours: 35.1, libmlx5: 105.3, best: 3.0, median: 2.9 };
        let times = Times { conditions, rows: vec![Timed { work: "io_list4".into(), batch: 1, time }] };
        assert_eq!(parse(&print(&times)), Some(times));
        assert_eq!(parse("# machine: a\n# date: b\n# load: c\n"), None);
    }

    #[test]
    fn a_time_stands_in_the_row_of_its_work() {
        let row = |work: &str| Row {
            arch: "x86_64".into(),
            profile: Profile::Release,
            work: work.into(),
            batch: 16,
            counts: [None; 5],
            time: None,
        };
        let mut rows = [row("list1"), row("rdma_write")];
        let times = printed("rdma_write 16 8.0 20.0 2.50 2.40\n");
        put_to(&mut rows, "x86_64", Profile::Release, &times);
        assert_eq!(rows[0].time, None);
        assert_eq!(rows[1].time.map(|time| time.best), Some(2.5));
    }
}
