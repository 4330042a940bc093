//! Runs each step as a process. Two steps run at the same time if they build in different folders (lanes).

use super::report::{self, Report, Took};
use super::steps::{Lane, Step};
use crate::outcome::Outcome;
use std::collections::VecDeque;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::PathBuf;
use std::process::{ExitStatus, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};
use xtask::host;
use xtask::run::{self, Ends};

/// The option with which a child process runs one step.
pub(super) const STEP: &str = "--step";
/// The exit status of a skipped step. The last line of its output is the reason.
pub(super) const SKIPPED: u8 = 77;

/// The pause between two checks whether a step has ended.
const LOOK: Duration = Duration::from_millis(20);

/// The steps that are not started yet, and the folder for the logs of all steps.
pub(super) struct Schedule {
    /// Whether this process has just built the programs that serve tasks. Otherwise each step has cargo build
    /// them.
    are_built: bool,
    waiting: VecDeque<&'static Step>,
    folder: PathBuf,
}

struct Running {
    step: &'static Step,
    /// After an error, no step stays behind.
    child: Ends,
    log: PathBuf,
    start: Instant,
}

impl Schedule {
    /// Creates a schedule of these steps, and the folder for their logs.
    pub(super) fn new(steps: Vec<&'static Step>, are_built: bool) -> io::Result<Self> {
        let folder = run::root().join("target/test");
        fs::create_dir_all(&folder)?;
        Ok(Self { are_built, waiting: steps.into(), folder })
    }

    /// Runs all steps. Writes a line when a step begins, and a line when the step ends.
    pub(super) fn run(mut self, out: &mut dyn Write) -> io::Result<Vec<Report>> {
        let mut running: Vec<Running> = Vec::new();
        let mut reports = Vec::new();
        loop {
            for lane in [Lane::Main, Lane::Side] {
                if running.iter().all(|other| other.step.lane != lane)
                    && let Some(step) = self.next(lane)
                {
                    report::begins(step, self.last(step), out)?;
                    running.push(self.start(step)?);
                }
            }
            if running.is_empty() {
                return Ok(reports);
            }
            for at in (0..running.len()).rev() {
                if let Some((status, cpu)) = running.get_mut(at).map(Running::ended).transpose()?.flatten() {
                    let report = running.swap_remove(at).report(status, cpu)?;
                    report::line(&report, out)?;
                    if report.outcome == Outcome::Passed {
                        self.keep(&report)?;
                    }
                    reports.push(report);
                }
            }
            sleep(LOOK);
        }
    }

    fn next(&mut self, lane: Lane) -> Option<&'static Step> {
        let at = self.waiting.iter().position(|step| step.lane == lane)?;
        self.waiting.remove(at)
    }

    /// Returns the duration, in seconds, of a step's last run that passed.
    fn last(&self, step: &Step) -> Option<u64> {
        fs::read_to_string(self.folder.join(step.name).with_extension("seconds")).ok()?.trim().parse().ok()
    }

    /// Writes the duration of a step that has passed to a file, for the next run.
    fn keep(&self, report: &Report) -> io::Result<()> {
        let file = self.folder.join(report.name).with_extension("seconds");
        fs::write(file, format!("{}\n", report.took.time.as_secs()))
    }

    fn start(&self, step: &'static Step) -> io::Result<Running> {
        let log = self.folder.join(step.name).with_extension("log");
        let file = File::create(&log)?;
        let itself = run::itself().map_err(io::Error::other)?;
        let mut command = run::program(&itself.to_string_lossy(), &["test", STEP, step.name]);
        command.stdin(Stdio::null()).stderr(file.try_clone()?).stdout(file).env_remove(host::BUILT);
        if self.are_built {
            command.env(host::BUILT, "1");
        }
        Ok(Running { step, child: Ends(command.spawn()?), log, start: Instant::now() })
    }
}

impl Running {
    /// Returns the exit status of a step that has ended, and the CPU time of the step with all its child
    /// processes. Returns `None` while the step runs.
    fn ended(&mut self) -> io::Result<Option<(ExitStatus, Duration)>> {
        let before = children_cpu();
        // This thread waits for no other child between the two readings, hence the difference is the CPU time
        // of the step.
        let status = self.child.0.try_wait()?;
        Ok(status.map(|status| (status, children_cpu().saturating_sub(before))))
    }

    fn report(self, status: ExitStatus, cpu: Duration) -> io::Result<Report> {
        let log = String::from_utf8_lossy(&fs::read(&self.log)?).into_owned();
        let last = || log.lines().rfind(|line| !line.trim().is_empty()).unwrap_or("no output").to_owned();
        let outcome = match status.code() {
            Some(0) => Outcome::Passed,
            Some(code) if code == i32::from(SKIPPED) => Outcome::Skipped(last()),
            Some(_) => Outcome::Failed(last()),
            None => Outcome::Failed(format!("{status}: {}", last())),
        };
        let took = Took { time: self.start.elapsed(), cpu };
        Ok(Report { name: self.step.name, took, outcome, log })
    }
}

/// Calls `act`. Returns its result, and the time of the call with all its child processes.
pub(super) fn timed<T>(act: impl FnOnce() -> T) -> (T, Took) {
    let (before, start) = (children_cpu(), Instant::now());
    let came = act();
    (came, Took { time: start.elapsed(), cpu: children_cpu().saturating_sub(before) })
}

/// Returns the CPU time of all ended child processes and their children, or zero if the system does not
/// report it.
fn children_cpu() -> Duration {
    let stat = fs::read_to_string("/proc/self/stat").unwrap_or_default();
    // The second field is the name of the program in parentheses, and may contain blanks. User and system
    // time of children are fields 16 and 17 of the line, which are fields 14 and 15 after the name.
    let fields = stat.rsplit(')').next().unwrap_or_default().split_ascii_whitespace();
    let ticks: u64 = fields.skip(13).take(2).filter_map(|field| field.parse::<u64>().ok()).sum();
    // Linux reports CPU time in hundredths of a second.
    Duration::from_millis(ticks * 10)
}

#[cfg(test)]
mod tests {
    use super::super::steps::STEPS;
    use super::*;
    use std::process::Command;

    #[test]
    fn the_time_of_a_step_is_kept_for_the_next_run() {
        let folder = tempfile::tempdir().unwrap();
        let [step, ..] = STEPS else { panic!("no step") };
        let folder = folder.path().to_path_buf();
        let schedule = Schedule { are_built: false, waiting: VecDeque::new(), folder };
        assert_eq!(schedule.last(step), None);
        let took = Took { time: Duration::from_millis(61_900), cpu: Duration::ZERO };
        let report = Report { name: step.name, took, outcome: Outcome::Passed, log: String::new() };
        schedule.keep(&report).unwrap();
        assert_eq!(schedule.last(step), Some(61));
    }

    #[test]
    fn the_time_of_a_child_is_found() {
        let before = children_cpu();
        let script = "i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done";
        assert!(Command::new("sh").args(["-c", script]).status().unwrap().success());
        assert!(children_cpu() > before);
    }
}
