//! A board that is another machine, reached by the system's `ssh`. Files are copied through its standard input, which any
//! server can do.

use super::board::{self, Board, Trouble};
use super::reset;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};
use xtask::qemu_user::STAND_IN;
use xtask::run;
use xtask_parsers::boards::{Reset, Ssh};

/// Where the programs and their temporary files lie, in the user's home; it is removed in the end.
const FOLDER: &str = ".mlx5-mkey-hil";
/// The device of a machine that has none: the software device behind its libmlx5.
pub(super) const UVERBS: &str = "uverbs";
/// `ssh` ends so when it is ssh that failed.
const NO_CONNECTION: i32 = 255;
/// How long a short command over there, or copying the program, may take.
const TIMEOUT: Duration = Duration::from_secs(120);
/// Between attempts to reach a machine that boots; one that has just been reset is not to be caught before it goes down.
const PAUSE: Duration = Duration::from_secs(5);

/// A machine over ssh.
pub(super) struct Remote {
    ssh: Ssh,
    reset: Reset,
    /// Files that lie beside the program, by name.
    beside: Vec<(&'static str, PathBuf)>,
    /// The programs of the storage example are among them.
    storage: bool,
    /// Something was written there.
    touched: bool,
}

impl Remote {
    pub(super) fn new(ssh: Ssh, reset: Reset) -> Self {
        Self { ssh, reset, beside: Vec::new(), storage: false, touched: false }
    }

    /// Returns a command that runs a script of the shell over there.
    fn script(&self, script: &str) -> Command {
        let mut command = Command::new("ssh");
        // No questions, no unknown machine, no talk of its own, no terminal, and an end when the line is dead.
        command.args([
            "-T",
            "-o",
            "BatchMode=yes",
            "-o",
            "StrictHostKeyChecking=yes",
            "-o",
            "LogLevel=ERROR",
        ]);
        command.args(["-o", "ClearAllForwardings=yes", "-o", "ConnectTimeout=10"]);
        command.args(["-o", "ServerAliveInterval=5", "-o", "ServerAliveCountMax=3"]);
        if let Some(port) = self.ssh.port {
            command.args(["-p", &port.to_string()]);
        }
        if let Some(key) = &self.ssh.key {
            command.args(["-o", "IdentitiesOnly=yes", "-i"]).arg(key);
        }
        if let Some(file) = &self.ssh.known_hosts {
            command.args(["-o", "GlobalKnownHostsFile=/dev/null", "-o"]);
            command.arg(format!("UserKnownHostsFile=\"{}\"", file.display()));
        }
        command.args(["--", &self.ssh.address, script]).stdin(Stdio::null());
        command
    }

    /// Copies the program, and what lies beside it.
    fn copy(&mut self) -> Result<(), Trouble> {
        let program = board::program(&self.ssh.program)?;
        let make =
            format!("mkdir -p {FOLDER} && chmod 700 {FOLDER} && cd {FOLDER} && {{ {STOP}; rm -f hil; }}");
        self.touched = true;
        self.copy_one(&make, "hil", &program)?;
        self.beside.iter().try_for_each(|(name, file)| {
            // What an earlier run has loaded is not to change under its feet.
            self.copy_one(&format!("cd {FOLDER} && rm -f {name}"), name, file)
        })
    }

    /// Copies a file to where a script has gone, under a name that needs no quotes.
    fn copy_one(&self, go: &str, name: &str, from: &Path) -> Result<(), Trouble> {
        let file = File::open(from).map_err(|error| format!("{}: {error}", from.display()))?;
        let mut command = self.script(&format!("{go} && cat > {name} && chmod 700 {name}"));
        command.stdin(file);
        finish(command)
    }
}

/// Ends what an earlier run has left running, in the folder of the program. Only programs that lie there are ever met by this.
const STOP: &str = "for p in /proc/[0-9]*; do case \"$(readlink \"$p/exe\" 2>/dev/null)\" in \
                    \"$(pwd -P)/\"*) kill -9 \"${p#/proc/}\";; esac; done";

impl Board for Remote {
    fn prepare(&mut self) -> Result<(), Trouble> {
        if self.ssh.address.is_empty() || self.ssh.address.starts_with('-') {
            return Err(Trouble::Broken(format!("`{}` is no address", self.ssh.address)));
        }
        let storage = board::storage(&self.ssh.program)?;
        self.storage = !storage.is_empty();
        self.beside.extend(storage);
        if self.ssh.device == UVERBS
            && let Some(file) = board::stand_in(&self.ssh.program)?
        {
            self.beside.push((STAND_IN, file));
            self.ssh.environment.insert("LD_PRELOAD".into(), format!("./{STAND_IN}"));
        }
        self.copy()
    }

    fn command(&mut self, arguments: &[String]) -> Result<Command, String> {
        let mut words = vec!["env".to_owned()];
        words.extend(self.ssh.environment.iter().map(|(name, value)| format!("{name}={value}")));
        if self.storage {
            words.push("TMPDIR=.".into());
        }
        words.extend(["./hil".into(), "--device".into(), self.ssh.device.clone()]);
        if self.storage {
            words.extend(["--programs".into(), ".".into()]);
        }
        words.extend(arguments.iter().cloned());
        let words: Vec<String> = words.iter().map(|word| quote(word)).collect();
        Ok(self.script(&format!("cd {FOLDER} && {{ {STOP}; exec {}; }}", words.join(" "))))
    }

    fn reset(&mut self) -> Result<(), String> {
        reset::perform(&self.reset)?;
        let end = Instant::now() + reset::boot_time(&self.reset);
        if self.reset != Reset::Process {
            sleep(PAUSE);
        }
        // What was copied may have gone with the memory it was in.
        loop {
            match self.copy() {
                Ok(()) => return Ok(()),
                Err(Trouble::Unreachable(_)) if Instant::now() < end => sleep(PAUSE),
                Err(Trouble::Unreachable(why) | Trouble::Broken(why)) => return Err(why),
            }
        }
    }
}

impl Drop for Remote {
    fn drop(&mut self) {
        if self.touched {
            // Where the machine is gone nothing can be cleared away.
            let _ = finish(self.script(&format!("cd {FOLDER} && {{ {STOP}; cd .. && rm -rf {FOLDER}; }}")));
        }
    }
}

/// Writes a word so that the shell reads it as it is.
fn quote(word: &str) -> String {
    format!("'{}'", word.replace('\'', r"'\''"))
}

/// Runs a short command; what it says on standard error is the reason if it fails.
fn finish(mut command: Command) -> Result<(), Trouble> {
    let explain = |error: std::io::Error| format!("ssh: {error}");
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().map_err(explain)?;
    let Some(status) = run::wait(&mut child, TIMEOUT).map_err(explain)? else {
        // It has ended or it is ended now; either way it is waited for.
        let _ = child.kill();
        let _ = child.wait();
        return Err(Trouble::Broken("the board does not answer over ssh".into()));
    };
    if status.success() {
        return Ok(());
    }
    let what = format!("ssh: {}", last_words(&mut child).unwrap_or_else(|| status.to_string()));
    Err(if status.code() == Some(NO_CONNECTION) { Trouble::Unreachable(what) } else { Trouble::Broken(what) })
}

/// Returns what a process has said last on standard error, if it said anything.
fn last_words(child: &mut Child) -> Option<String> {
    let mut bytes = Vec::new();
    child.stderr.take()?.take(64 << 10).read_to_end(&mut bytes).ok()?;
    let text = String::from_utf8_lossy(&bytes);
    text.lines().map(str::trim).rfind(|line| !line.is_empty()).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;
    use xtask_parsers::boards::Program;

    fn remote() -> Remote {
        let ssh = Ssh {
            address: "root@board".into(),
            port: Some(2222),
            key: Some("/keys/one".into()),
            known_hosts: Some("/keys/hosts".into()),
            device: "mlx5_0".into(),
            program: Program::File("/dev/null".into()),
            environment: [("NAME".into(), "it's $HOME".into())].into(),
        };
        Remote::new(ssh, Reset::Process)
    }

    #[test]
    fn ssh_asks_nothing_and_trusts_nobody() {
        let command = remote().script("true");
        let words: Vec<_> = command.get_args().map(|word| word.to_string_lossy()).collect();
        let line = words.join(" ");
        for part in [
            "-o BatchMode=yes",
            "-o StrictHostKeyChecking=yes",
            "-o UserKnownHostsFile=\"/keys/hosts\"",
            "-o IdentitiesOnly=yes -i /keys/one",
            "-p 2222",
            "-- root@board true",
        ] {
            assert!(line.contains(part), "{line}");
        }
    }

    #[test]
    fn words_arrive_as_they_are() {
        let arguments = ["--filter".into(), "a b'c;$(reboot)\"".into()];
        let command = remote().command(&arguments).unwrap();
        let script = command.get_args().last().unwrap().to_str().unwrap().to_owned();
        // A shell reads the words behind `exec` back, one on each line.
        let (_, words) = script.rsplit_once("exec ").unwrap();
        let words = words.trim_end_matches("; }");
        let output = Command::new("sh").args(["-c", &format!("printf '%s\\n' {words}")]).output().unwrap();
        let expected = "env\nNAME=it's $HOME\n./hil\n--device\nmlx5_0\n--filter\na b'c;$(reboot)\"\n";
        assert_eq!(String::from_utf8_lossy(&output.stdout), expected);
    }

    #[test]
    fn an_address_is_no_option() {
        let mut remote = remote();
        remote.ssh.address = "-oProxyCommand=reboot".into();
        assert!(matches!(remote.prepare(), Err(Trouble::Broken(_))));
        assert!(!remote.touched);
    }

    #[test]
    fn a_failed_connection_is_told_from_a_failed_command() {
        let run = |script: &str| {
            let mut command = Command::new("sh");
            command.args(["-c", script]);
            finish(command)
        };
        assert_eq!(run("exit 0"), Ok(()));
        let gone = Trouble::Unreachable("ssh: no route".into());
        assert_eq!(run("echo first >&2; echo no route >&2; exit 255"), Err(gone));
        assert_eq!(run("echo full >&2; exit 1"), Err(Trouble::Broken("ssh: full".into())));
        assert_eq!(run("exit 1"), Err(Trouble::Broken("ssh: exit status: 1".into())));
    }
}
