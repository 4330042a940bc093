//! Runs steps as processes, at most one of each lane at a time.

use super::report::{Ended, Report, Took};
use super::steps::{Lane, Step};
use super::{SKIPPED, STEP, report};
use std::collections::VecDeque;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::PathBuf;
use std::process::{Child, ExitStatus, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};
use xtask::{host, run};

/// How often it is looked whether a step has ended.
const LOOK: Duration = Duration::from_millis(20);

/// What steps have to do for the programs that serve tasks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Programs {
    /// Nothing: they have just been built.
    Built,
    /// Have them built.
    AskCargo,
}

/// Steps that wait, and where their output goes.
pub(super) struct Schedule {
    programs: Programs,
    waiting: VecDeque<&'static Step>,
    folder: PathBuf,
}

/// A step that runs.
struct Running {
    step: &'static Step,
    child: Child,
    log: PathBuf,
    start: Instant,
}

impl Schedule {
    /// Makes the folder for what steps print.
    ///
    /// # Errors
    /// It cannot be made.
    pub(super) fn new(steps: Vec<&'static Step>, programs: Programs) -> io::Result<Self> {
        let folder = run::root().join("target/test");
        fs::create_dir_all(&folder)?;
        Ok(Self { programs, waiting: steps.into(), folder })
    }

    /// Runs all steps, and writes a line for each as it ends.
    ///
    /// # Errors
    /// A step cannot be started, or nothing can be written.
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
                    if report.outcome == Ended::Passed {
                        self.keep(&report)?;
                    }
                    reports.push(report);
                }
            }
            sleep(LOOK);
        }
    }

    /// Takes the next step of a lane.
    fn next(&mut self, lane: Lane) -> Option<&'static Step> {
        let at = self.waiting.iter().position(|step| step.lane == lane)?;
        self.waiting.remove(at)
    }

    /// Returns how many seconds a step took when it passed last.
    fn last(&self, step: &Step) -> Option<u64> {
        fs::read_to_string(self.folder.join(step.name).with_extension("seconds")).ok()?.trim().parse().ok()
    }

    /// Keeps how long a step took that has passed.
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
        if self.programs == Programs::Built {
            command.env(host::BUILT, "1");
        }
        Ok(Running { step, child: command.spawn()?, log, start: Instant::now() })
    }
}

impl Running {
    /// Returns how the step ended, if it has, and the time of processors that it took with all that it had started.
    fn ended(&mut self) -> io::Result<Option<(ExitStatus, Duration)>> {
        let before = children_cpu();
        // No other child is waited for in between.
        let status = self.child.try_wait()?;
        Ok(status.map(|status| (status, children_cpu().saturating_sub(before))))
    }

    fn report(self, status: ExitStatus, cpu: Duration) -> io::Result<Report> {
        let log = String::from_utf8_lossy(&fs::read(&self.log)?).into_owned();
        let last =
            || log.lines().rfind(|line| !line.trim().is_empty()).unwrap_or("it said nothing").to_owned();
        let outcome = match status.code() {
            Some(0) => Ended::Passed,
            Some(code) if code == i32::from(SKIPPED) => Ended::Skipped(last()),
            Some(_) => Ended::Failed(last()),
            None => Ended::Failed(format!("{status}: {}", last())),
        };
        let took = Took { time: self.start.elapsed(), cpu };
        Ok(Report { name: self.step.name, took, outcome, log })
    }
}

/// What was started ends with this process, also where that ends early.
impl Drop for Running {
    fn drop(&mut self) {
        // Fails where it has ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Does something, and returns what it took with all that it started.
pub(super) fn timed<T>(act: impl FnOnce() -> T) -> (T, Took) {
    let (before, start) = (children_cpu(), Instant::now());
    let came = act();
    (came, Took { time: start.elapsed(), cpu: children_cpu().saturating_sub(before) })
}

/// The time of processors that ended children of this process took, with theirs; zero where the system does not tell.
fn children_cpu() -> Duration {
    let stat = fs::read_to_string("/proc/self/stat").unwrap_or_default();
    // The name in brackets may hold anything; behind it, user and system time of children are the 14th and 15th field.
    let fields = stat.rsplit(')').next().unwrap_or_default().split_ascii_whitespace();
    let ticks: u64 = fields.skip(13).take(2).filter_map(|field| field.parse::<u64>().ok()).sum();
    // Linux counts in hundredths towards programs, whatever it does inside.
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
        let schedule = Schedule {
            programs: Programs::AskCargo,
            waiting: VecDeque::new(),
            folder: folder.path().to_path_buf(),
        };
        assert_eq!(schedule.last(step), None);
        let took = Took { time: Duration::from_millis(61_900), cpu: Duration::ZERO };
        let report = Report { name: step.name, took, outcome: Ended::Passed, log: String::new() };
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
