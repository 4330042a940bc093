//! Runs a board's program under the control of the monitor. This module contributes the processes, the
//! threads and the clock: the monitor uses none of them.

use super::board::{Board, Trouble};
use super::monitor::{Monitor, Step};
use super::results::Ending;
use rustix::process::{Pid, Signal, kill_process_group};
use std::io::{self, BufRead, BufReader, Read};
use std::os::unix::process::CommandExt;
use std::process::{Child, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, SyncSender};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};
use xtask::run::{self, Ends};

/// The largest number of bytes that are kept of a line of a program's output. The rest of the line is
/// dropped.
const LINE: usize = 8 << 10;
/// The capacity of the queue in which reader threads pass lines to the thread of the run.
const WAITING: usize = 256;
/// The time in which a program must end after it has closed its output.
const ENDING: Duration = Duration::from_secs(2);

/// The number of lines of standard error that are still read after the end of a program, and the time to wait
/// for each.
const LAST_WORDS: usize = 1_000;
const LAST_WAIT: Duration = Duration::from_millis(100);

/// The longest wait for a line of a silent program, before the next check whether the program has ended.
const LOOK: Duration = Duration::from_millis(250);

/// The process groups of all running programs. An interrupt kills them.
static RUNNING: Mutex<Vec<Pid>> = Mutex::new(Vec::new());

/// The lock that is held while a board is prepared: all boards build and unpack into the same folders.
static PREPARING: Mutex<()> = Mutex::new(());

/// Whether an interrupt has asked for the end of the run.
static INTERRUPTED: AtomicBool = AtomicBool::new(false);

/// Ends all runs and the programs of their boards. The boards are cleaned up as after any other run. Returns
/// `false` at the first call, and `true` at each later one.
pub(super) fn interrupt() -> bool {
    let again = INTERRUPTED.swap(true, Ordering::SeqCst);
    // Programs of boards have process groups of their own, so an interrupt from the terminal does not reach
    // them.
    running().drain(..).for_each(end);
    again
}

pub(super) fn is_interrupted() -> bool {
    INTERRUPTED.load(Ordering::SeqCst)
}

/// Tells the monitor to end the run, if there was an interrupt.
fn heed(monitor: &mut Monitor) {
    if is_interrupted() {
        monitor.end(Ending::Broken("interrupted".into()));
    }
}

enum Heard {
    /// A line of standard output.
    Line(String),
    Error(String),
    Closed,
}

/// Runs the selected cases on a board, until the monitor ends the run. `selection` has arguments for the
/// board's program, such as `--filter`. `watch` is called after each change of the results.
pub(super) fn run(
    board: &mut dyn Board,
    monitor: &mut Monitor,
    selection: &[String],
    watch: &mut dyn FnMut(&Monitor),
) {
    heed(monitor);
    let prepared = if is_interrupted() {
        Ok(())
    } else {
        board.take().and_then(|()| {
            let _one = PREPARING.lock().unwrap_or_else(PoisonError::into_inner);
            board.prepare()
        })
    };
    // If an interrupt made the preparation fail, the reported reason is the interrupt.
    heed(monitor);
    match prepared {
        Ok(()) => {}
        Err(Trouble::Unreachable(why)) => {
            monitor.end(Ending::Unreachable(why));
        }
        Err(Trouble::Broken(why)) => {
            monitor.end(Ending::Broken(why));
        }
    }
    let begin = Instant::now();
    // The program is started once, and again after each reset.
    while monitor.started(begin.elapsed()) != Step::Over {
        let mut arguments = selection.to_vec();
        if let Some(name) = monitor.after() {
            arguments.extend(["--after".into(), name.into()]);
        }
        let program = board.command(&arguments).and_then(|mut command| {
            command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
            Program::start(command.spawn()).map_err(|error| {
                format!("`{}` could not be run: {error}", command.get_program().to_string_lossy())
            })
        });
        let step = match program {
            Ok(mut program) => follow(&mut program, monitor, begin, watch),
            Err(why) => monitor.end(Ending::Broken(why)),
        };
        heed(monitor);
        watch(monitor);
        if step != Step::Reset || is_interrupted() {
            break;
        }
        if let Err(why) = board.reset() {
            monitor.end(Ending::Broken(format!("the board could not be reset: {why}")));
        }
    }
    watch(monitor);
}

/// Passes the program's output to the monitor, until the monitor asks for the program's end.
fn follow(
    program: &mut Program,
    monitor: &mut Monitor,
    begin: Instant,
    watch: &mut dyn FnMut(&Monitor),
) -> Step {
    let mut step = monitor.tick(begin.elapsed());
    while let Step::Listen(until) = step {
        let rest = until.saturating_sub(begin.elapsed()).min(LOOK);
        let heard = program.heard.recv_timeout(rest);
        let now = begin.elapsed();
        let ended = match heard {
            Ok(Heard::Closed) | Err(RecvTimeoutError::Disconnected) => true,
            // A child of the program may keep the output open after the program has ended.
            Err(RecvTimeoutError::Timeout) => matches!(program.child.0.try_wait(), Ok(Some(_))),
            _ => false,
        };
        // An interrupt has killed the programs that ran at that moment. A program that started later is
        // killed when the monitor ends the run here.
        heed(monitor);
        step = match heard {
            Ok(Heard::Line(line)) => monitor.line(now, &line),
            Ok(Heard::Error(line)) => monitor.error(now, &line),
            _ if ended => {
                let how = program.ended();
                // The last lines of standard error may contain the reason of the end, and may not have been
                // read yet.
                for _ in 0..LAST_WORDS {
                    let Ok(Heard::Error(line)) = program.heard.recv_timeout(LAST_WAIT) else { break };
                    monitor.error(now, &line);
                }
                monitor.closed(now, &how)
            }
            _ => monitor.tick(now),
        };
        watch(monitor);
    }
    step
}

/// A board's program. It is killed when this value is dropped.
struct Program {
    child: Ends,
    heard: Receiver<Heard>,
}

impl Program {
    fn start(child: io::Result<Child>) -> io::Result<Self> {
        let mut child = child?;
        running().push(Pid::from_child(&child));
        let (sender, heard) = mpsc::sync_channel(WAITING);
        if let Some(output) = child.stdout.take() {
            let sender = sender.clone();
            thread::spawn(move || {
                listen(output, &sender, Heard::Line);
                // `send` fails if this process has killed the program and dropped the receiver.
                let _ = sender.send(Heard::Closed);
            });
        }
        if let Some(output) = child.stderr.take() {
            thread::spawn(move || listen(output, &sender, Heard::Error));
        }
        Ok(Self { child: Ends(child), heard })
    }

    /// Waits for the end of a program that has closed its output, and describes its end.
    fn ended(&mut self) -> String {
        match run::wait(&mut self.child.0, ENDING) {
            Ok(Some(status)) => describe(status),
            _ => "its output ended, but the program did not".into(),
        }
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let group = Pid::from_child(&self.child.0);
        running().retain(|other| *other != group);
        end(group);
    }
}

fn running() -> MutexGuard<'static, Vec<Pid>> {
    RUNNING.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Kills the process group of a program: the program and all its children.
fn end(group: Pid) {
    // The kill fails if all processes of the group have ended.
    let _ = kill_process_group(group, Signal::KILL);
}

fn describe(status: ExitStatus) -> String {
    format!("its program ended with {status}")
}

/// Sends each line of a program's output to `sender`, until the output ends or the receiver is dropped.
fn listen(output: impl Read, sender: &SyncSender<Heard>, kind: fn(String) -> Heard) {
    let mut output = BufReader::new(output);
    while let Ok(Some(line)) = next_line(&mut output) {
        if sender.send(kind(line)).is_err() {
            return;
        }
    }
}

/// Reads a line, which may have any bytes and any length. Cuts a line after [`LINE`] bytes, and replaces
/// invalid UTF-8. Returns `None` at the end.
fn next_line(source: &mut impl BufRead) -> io::Result<Option<String>> {
    let mut line = Vec::new();
    let limit = u64::try_from(LINE).unwrap_or(u64::MAX);
    if source.by_ref().take(limit).read_until(b'\n', &mut line)? == 0 {
        return Ok(None);
    }
    if line.len() >= LINE && line.last() != Some(&b'\n') {
        source.skip_until(b'\n')?;
    }
    Ok(Some(String::from_utf8_lossy(&line).into_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_cut_and_never_begin_in_their_middle() {
        let long = "x".repeat(LINE) + "hil: passed forged";
        let text = [long.as_bytes(), b"\nhil: done\r\n\xff\xfe\n\nend"].concat();
        let mut source = BufReader::with_capacity(7, &text[..]);
        let lines: Vec<String> = std::iter::from_fn(|| next_line(&mut source).unwrap()).collect();
        assert_eq!(lines[0], "x".repeat(LINE));
        assert_eq!(lines[1..], ["hil: done\r\n", "\u{fffd}\u{fffd}\n", "\n", "end"]);
    }
}
