//! A board that a labgrid coordinator lends. The board is a place with given tags, which is reserved and held
//! during the run. The place's NetworkService is the SSH address, and its power switch resets the board.
//! `hold.py` talks to the coordinator, with labgrid's own package.

use super::board::{Board, Trouble};
use super::session;
use super::ssh::Remote;
use crate::labgrid;
use serde::Deserialize;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Duration;
use xtask::run;
use xtask_parsers::boards::{Place, Reset, Ssh};

/// The time limit of `hold.py` for giving a place back to the coordinator.
const RELEASE: Duration = Duration::from_secs(30);

/// An answer of `hold.py`.
#[derive(Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "kebab-case")]
enum Answer {
    /// All places are in use, so the run has to wait.
    Waiting,
    /// The place is reserved for this run.
    Held { place: String, address: String, port: u16 },
    /// The power of the place was switched off and on.
    Done,
    /// No place can be reserved: none has the wanted tags, none became free in time, or the coordinator does
    /// not answer.
    Unreachable(String),
    /// The place cannot be used for another reason.
    Broken(String),
}

pub(super) struct Lab {
    place: Place,
    reset: Reset,
    // The order of fields matters: `remote` removes its files before the place is given back.
    remote: Option<Remote>,
    held: Option<Held>,
}

impl Lab {
    pub(super) fn new(place: Place, reset: Reset) -> Self {
        Self { place, reset, remote: None, held: None }
    }
}

impl Board for Lab {
    fn take(&mut self) -> Result<(), Trouble> {
        let Place { coordinator, tags, wait_seconds, .. } = &self.place;
        let mut python = labgrid::python()?;
        python.args(["-c", include_str!("hold.py"), coordinator, &wait_seconds.to_string()]);
        python.args(tags.iter().map(|(tag, value)| format!("{tag}={value}")));
        let held = self.held.insert(Held::start(python)?);
        let (address, port) = loop {
            match held.answer()? {
                Answer::Waiting if session::is_interrupted() => return Err("interrupted".to_owned().into()),
                Answer::Waiting => {}
                Answer::Held { place, address, port } => {
                    held.place = place;
                    break (address, port);
                }
                Answer::Unreachable(why) => return Err(Trouble::Unreachable(why)),
                other => return Err(other.trouble().into()),
            }
        };
        let Place { key, known_hosts, device, program, environment, .. } = self.place.clone();
        let ssh = Ssh { address, port: Some(port), key, known_hosts, device, program, environment };
        self.remote = Some(Remote::new(ssh, self.reset.clone()));
        Ok(())
    }

    fn place(&self) -> Option<&str> {
        self.held.as_ref().map(|held| held.place.as_str()).filter(|place| !place.is_empty())
    }

    fn prepare(&mut self) -> Result<(), Trouble> {
        self.remote.as_mut().ok_or("the place was not taken".to_owned())?.prepare()
    }

    fn command(&mut self, arguments: &[String]) -> Result<Command, String> {
        self.remote.as_mut().ok_or("the place was not taken")?.command(arguments)
    }

    fn reset(&mut self) -> Result<(), String> {
        let (Some(remote), Some(held)) = (&mut self.remote, &mut self.held) else {
            return Err("the place was not taken".into());
        };
        if matches!(self.reset, Reset::Power { .. }) {
            held.power_cycle()?;
        }
        remote.reset()
    }
}

impl Answer {
    /// Returns the error message for an unexpected answer.
    fn trouble(self) -> String {
        match self {
            Self::Unreachable(why) | Self::Broken(why) => why,
            other => format!("`{other:?}` from hold.py"),
        }
    }
}

/// A place that is reserved for this run. The place goes back to the coordinator when this value is dropped,
/// or when this process is killed.
struct Held {
    place: String,
    child: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
}

impl Held {
    fn start(mut python: Command) -> Result<Self, String> {
        // `hold.py` has a process group of its own: an interrupt from the terminal would end it, and give the
        // place back before the board is cleaned up.
        python.process_group(0).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = python.spawn().map_err(|error| format!("python3 could not be run: {error}"))?;
        let input = child.stdin.take();
        let output = child.stdout.take().ok_or("python3 has no output")?;
        Ok(Self { place: String::new(), child, input, output: BufReader::new(output) })
    }

    fn answer(&mut self) -> Result<Answer, String> {
        let mut line = String::new();
        match self.output.read_line(&mut line) {
            Ok(0) => Err("hold.py has ended".into()),
            Ok(_) => serde_json::from_str(&line).map_err(|error| format!("hold.py: {error}")),
            Err(error) => Err(format!("hold.py: {error}")),
        }
    }

    fn power_cycle(&mut self) -> Result<(), String> {
        let input = self.input.as_mut().ok_or("the place was given back")?;
        input.write_all(b"cycle\n").map_err(|error| format!("hold.py: {error}"))?;
        match self.answer()? {
            Answer::Done => Ok(()),
            other => Err(format!("power of place {}: {}", self.place, other.trouble())),
        }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.input = None;
        let ended = run::wait(&mut self.child, RELEASE);
        // The kill fails if the process has ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
        let rest =
            std::iter::from_fn(|| self.answer().ok()).find(|answer| matches!(answer, Answer::Broken(_)));
        let reason = match (ended, rest) {
            (Ok(Some(_)), None) => return,
            (Ok(Some(_)), Some(answer)) => answer.trouble(),
            _ => format!("not within {} s", RELEASE.as_secs()),
        };
        if !self.place.is_empty() {
            eprintln!("place {} was not given back: {reason}", self.place);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns a place that is held by a shell script instead of `hold.py`.
    fn held(script: &str) -> Held {
        let mut shell = Command::new("sh");
        shell.args(["-c", script]);
        Held::start(shell).unwrap()
    }

    #[test]
    fn answers_are_read_as_they_are_written() {
        let mut place = held(
            r#"echo '{"held": {"place": "one", "address": "me@there", "port": 22}}'; read line
               [ "$line" = cycle ] && echo '"done"'; read line; echo '{"broken": "no power"}'"#,
        );
        let expected = Answer::Held { place: "one".into(), address: "me@there".into(), port: 22 };
        assert_eq!(place.answer(), Ok(expected));
        assert_eq!(place.power_cycle(), Ok(()));
        place.place = "one".into();
        assert_eq!(place.power_cycle(), Err("power of place one: no power".into()));
        assert_eq!(place.answer(), Err("hold.py has ended".into()));
        assert_eq!(held(r#"echo '"waiting"'"#).answer(), Ok(Answer::Waiting));
        assert!(held("echo rubbish").answer().is_err());
    }
}
