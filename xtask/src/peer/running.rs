//! Running programs of other projects: each has a time limit, and none outlives this process.

use std::fmt;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};
use std::time::{Duration, Instant};
use xtask::run::{self, At, Ends};

/// The number of lines that are shown of a failed program's output.
const LAST_WORDS: usize = 12;

/// The state of a listening socket, in the kernel's table.
const LISTEN: &str = "0A";

/// The pause between two checks whether a program listens.
const LOOK: Duration = Duration::from_millis(20);

/// A running program.
pub(super) struct Running {
    child: Ends,
    /// The files for standard output and standard error. In a common file, the errors would precede the
    /// output: a program without a terminal writes its output only when it ends.
    logs: [PathBuf; 2],
}

/// Exit status and output of a program that has ended. The output is standard output, then standard error.
pub(super) struct End {
    pub(super) status: ExitStatus,
    pub(super) output: String,
}

impl Running {
    /// Starts a program that writes to files. A full pipe would block the program.
    pub(super) fn start(mut command: Command, log: &Path) -> Result<Self, String> {
        let logs = [log.to_path_buf(), log.with_extension("errors")];
        let create = |log: &PathBuf| File::create(log).at(log);
        let [log, errors] = logs.each_ref().map(create);
        command.stdout(log?).stderr(errors?);
        let name = command.get_program().to_string_lossy().into_owned();
        let child = Ends(command.spawn().map_err(|error| format!("{name}: {error}"))?);
        Ok(Self { child, logs })
    }

    fn wait(&mut self, limit: Duration) -> Result<Option<ExitStatus>, String> {
        run::wait(&mut self.child.0, limit).map_err(|error| error.to_string())
    }

    /// Waits until a socket listens at a port. This function reads the kernel's table of sockets, because the
    /// programs print nothing when they listen. A test connection is impossible: the programs accept only one
    /// connection.
    ///
    /// # Errors
    /// The program has ended early, or the time is over. The error is a sentence.
    pub(super) fn wait_for_port(&mut self, port: u16, limit: Duration) -> Result<(), String> {
        let start = Instant::now();
        while start.elapsed() < limit {
            // Without IPv6, the kernel has no table of IPv6 sockets.
            let tables =
                ["/proc/net/tcp", "/proc/net/tcp6"].map(|file| fs::read_to_string(file).unwrap_or_default());
            if tables.iter().any(|table| is_listening(table, port)) {
                return Ok(());
            }
            if self.wait(LOOK)?.is_some() {
                return Err(format!("ended before it listened: {}", self.finish(limit)?));
            }
        }
        Err(format!("did not listen at port {port} within {} s", limit.as_secs()))
    }

    /// Waits for a moment, and checks that the program still runs.
    ///
    /// # Errors
    /// The program has ended. The error is a sentence.
    pub(super) fn is_running(&mut self, moment: Duration) -> Result<(), String> {
        match self.wait(moment)? {
            None => Ok(()),
            Some(_) => Err(format!("ended early: {}", self.finish(moment)?)),
        }
    }

    /// Waits for the end of the program, and kills it when its time is over.
    ///
    /// # Errors
    /// The program took too long, or cannot be waited for. The error is a sentence.
    pub(super) fn finish(&mut self, limit: Duration) -> Result<End, String> {
        let ended = self.wait(limit)?;
        let status = match ended {
            Some(status) => status,
            None => {
                // The kill fails if the program has ended meanwhile.
                let _ = self.child.0.kill();
                self.child.0.wait().map_err(|error| error.to_string())?
            }
        };
        let mut output = Vec::new();
        for log in &self.logs {
            output.extend(fs::read(log).at(log)?);
        }
        let end = End { status, output: String::from_utf8_lossy(&output).into_owned() };
        if ended.is_some() { Ok(end) } else { Err(format!("took longer than {} s: {end}", limit.as_secs())) }
    }
}

/// Returns whether a socket listens at a port, from a table of the kernel: number, local address, remote
/// address and state, in hexadecimal.
fn is_listening(table: &str, port: u16) -> bool {
    let own = format!(":{port:04X}");
    table.lines().any(|line| {
        let mut words = line.split_ascii_whitespace().skip(1);
        words.next().is_some_and(|address| address.ends_with(&own)) && words.nth(1) == Some(LISTEN)
    })
}

/// The last words of programs that end with an error by a race of their own, after they have done their work.
const RACES: [&str; 2] = [
    // A thread of `rping` asks for another event after the main thread has closed the channel. Debian's
    // rdma-core 44 has the race; later versions wait for the thread before they close the channel.
    "rdma_get_cm_event: Bad file descriptor",
    // The peer of `fi_pingpong -e rdm` ends before this side has read its last completion. libfabric 1.17
    // then destroys the queue pair, which removes its completions, and reports the send as flushed
    // (`vrb_ep_close`, `vrb_flush_sq`).
    "cq_readerr: Work Request Flushed Error",
];

impl End {
    /// Checks that the program has printed all of these texts, and then has succeeded. The end by one of
    /// [`RACES`] counts as success if there is such a text. `side` names the program in errors.
    pub(super) fn proven(&self, side: &str, proofs: &[&str]) -> Result<(), String> {
        let has_raced = || RACES.iter().any(|race| self.output.trim_end().ends_with(race));
        match proofs.iter().find(|proof| !self.output.contains(**proof)) {
            None if self.status.success() || (!proofs.is_empty() && has_raced()) => Ok(()),
            None => Err(format!("the {side}: {self}")),
            Some(proof) => Err(format!("the {side} did not print `{}`: {self}", proof.trim())),
        }
    }
}

/// Writes the exit status and the last lines of the output.
impl fmt::Display for End {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let lines: Vec<&str> = self.output.lines().filter(|line| !line.trim().is_empty()).collect();
        let from = lines.len().saturating_sub(LAST_WORDS);
        write!(f, "{}\n{}", self.status, lines.get(from..).unwrap_or_default().join("\n"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::process::ExitStatusExt;

    fn start(script: &str, folder: &tempfile::TempDir) -> Running {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        Running::start(command, &folder.path().join("log")).unwrap()
    }

    #[test]
    fn more_than_a_pipe_holds_is_kept() {
        let folder = tempfile::tempdir().unwrap();
        let end = start("seq 100000; echo end >&2; exit 3", &folder).finish(Duration::from_secs(60)).unwrap();
        assert_eq!(end.status.code(), Some(3));
        assert!(end.output.starts_with("1\n2\n") && end.output.ends_with("\n100000\nend\n"));
        assert!(end.to_string().ends_with("\n99999\n100000\nend"));
    }

    #[test]
    fn an_error_is_among_the_last_words_whenever_it_was_said() {
        let folder = tempfile::tempdir().unwrap();
        let end = start("echo why >&2; seq 100; exit 1", &folder).finish(Duration::from_secs(60)).unwrap();
        assert!(end.to_string().ends_with("\n100\nwhy"));
    }

    #[test]
    fn a_program_does_not_outlive_its_time_nor_us() {
        let folder = tempfile::tempdir().unwrap();
        let mut running = start("echo here; exec sleep 600", &folder);
        assert!(running.finish(Duration::from_millis(1)).is_err());
        let running = start("exec sleep 600", &folder);
        let process = format!("/proc/{}", running.child.0.id());
        assert!(Path::new(&process).exists());
        drop(running);
        assert!(!Path::new(&process).exists());
    }

    #[test]
    fn only_who_listens_at_the_port_is_found() {
        let table = "  sl  local_address rem_address   st tx_queue rx_queue\n   \
                     0: 0100007F:1F90 00000000:0000 0A 00000000:00000000\n   \
                     1: 0100007F:4E20 0100007F:1F91 01 00000000:00000000\n";
        let found: Vec<u16> =
            [8080, 20000, 8081, 0].into_iter().filter(|port| is_listening(table, *port)).collect();
        assert_eq!(found, [8080]);
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        assert!(is_listening(&fs::read_to_string("/proc/net/tcp").unwrap(), port));
    }

    #[test]
    fn a_server_that_ends_is_not_waited_for() {
        let folder = tempfile::tempdir().unwrap();
        // No socket listens at port 0.
        let why = start("echo no device; exit 1", &folder).wait_for_port(0, Duration::from_secs(60));
        assert!(why.unwrap_err().ends_with("exit status: 1\nno device"));
    }

    #[test]
    fn a_race_counts_as_success_only_behind_a_proof() {
        let passes = |code: i32, output: String, proofs: &[&str]| {
            End { status: ExitStatus::from_raw(code << 8), output }.proven("client", proofs).is_ok()
        };
        let done = "ping data: rdma-ping-9: JKL\n";
        for race in RACES {
            assert!(passes(255, format!("{done}{race}\n"), &["rdma-ping-9: "]));
            assert!(!passes(255, format!("{race}\n"), &["rdma-ping-9: "]));
            assert!(!passes(255, format!("{done}{race}\n"), &[]));
            assert!(!passes(255, format!("{race}\n{done}"), &["rdma-ping-9: "]));
        }
        assert!(passes(0, done.into(), &["rdma-ping-9: "]) && passes(0, done.into(), &[]));
        assert!(!passes(255, done.into(), &["rdma-ping-9: "]));
    }
}
