//! A board that is another machine, reached with the system's `ssh`. Files are copied through the standard
//! input of a command, which works with every server.

use super::board::{Board, Trouble};
use super::{built, reset};
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};
use xtask::qemu_user::STAND_IN;
use xtask::run::{self, At, Ends};
use xtask_parsers::boards::{Reset, Ssh};

/// The folder for programs and temporary files, in the home of the SSH user on the board. It is removed at
/// the end.
const FOLDER: &str = ".mlx5-mkey-hil";
/// The value for `device` if a board has no mlx5 device: the software device, behind the board's own libmlx5
/// and the stand-in for the kernel, a preloaded library.
pub(super) const UVERBS: &str = "uverbs";
/// The exit status of `ssh` for its own failures.
const NO_CONNECTION: i32 = 255;
/// The time limit of a short command, and of a copy.
const TIMEOUT: Duration = Duration::from_secs(120);
/// The pause between attempts to reach a machine that boots. The same pause follows a reset, because the
/// machine may still answer before it goes down.
const PAUSE: Duration = Duration::from_secs(5);

pub(super) struct Remote {
    ssh: Ssh,
    reset: Reset,
    /// Name and path of each further file that is copied to the folder of the program `hil`.
    beside: Vec<(&'static str, PathBuf)>,
    /// Whether `beside` has the programs of the storage example.
    storage: bool,
    /// Whether a file was written on the machine. If so, the files have to be removed at the end.
    touched: bool,
}

impl Remote {
    pub(super) fn new(ssh: Ssh, reset: Reset) -> Self {
        Self { ssh, reset, beside: Vec::new(), storage: false, touched: false }
    }

    fn script(&self, script: &str) -> Command {
        let mut command = Command::new("ssh");
        // Options for ssh: ask no questions, refuse unknown hosts, print no banner, allocate no terminal, and
        // end when the connection is dead.
        command.args(["-T", "-o", "BatchMode=yes", "-o", "StrictHostKeyChecking=yes"]);
        command.args(["-o", "LogLevel=ERROR", "-o", "ClearAllForwardings=yes", "-o", "ConnectTimeout=10"]);
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

    /// Copies the program `hil` and the files of `beside`.
    fn copy(&mut self) -> Result<(), Trouble> {
        let program = built::program(&self.ssh.program)?;
        let make =
            format!("mkdir -p {FOLDER} && chmod 700 {FOLDER} && cd {FOLDER} && {{ {STOP}; rm -f hil; }}");
        self.touched = true;
        self.copy_one(&make, "hil", &program)?;
        self.beside.iter().try_for_each(|(name, file)| {
            // The old file is removed, not overwritten: a program of an earlier run may have loaded it.
            self.copy_one(&format!("cd {FOLDER} && rm -f {name}"), name, file)
        })
    }

    /// Copies the local file `from` to the machine, as `name` in the folder that the shell commands `go`
    /// change to. This name must be valid in a shell script without quotes.
    fn copy_one(&self, go: &str, name: &str, from: &Path) -> Result<(), Trouble> {
        let file = File::open(from).at(from)?;
        let mut command = self.script(&format!("{go} && cat > {name} && chmod 700 {name}"));
        command.stdin(file);
        finish(command)
    }
}

/// A script that kills the programs of an earlier run. It kills only programs whose file is in the current
/// folder.
const STOP: &str = "for p in /proc/[0-9]*; do case \"$(readlink \"$p/exe\" 2>/dev/null)\" in \
                    \"$(pwd -P)/\"*) kill -9 \"${p#/proc/}\";; esac; done";

impl Board for Remote {
    fn prepare(&mut self) -> Result<(), Trouble> {
        if self.ssh.address.is_empty() || self.ssh.address.starts_with('-') {
            return Err(Trouble::Broken(format!("`{}` is no address", self.ssh.address)));
        }
        let storage = built::storage(&self.ssh.program)?;
        self.storage = !storage.is_empty();
        self.beside.extend(storage);
        if self.ssh.device == UVERBS
            && let Some(file) = built::stand_in(&self.ssh.program)?
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
        let words: Vec<String> = words.iter().map(|word| run::quote(word)).collect();
        Ok(self.script(&format!("cd {FOLDER} && {{ {STOP}; exec {}; }}", words.join(" "))))
    }

    fn reset(&mut self) -> Result<(), String> {
        reset::perform(&self.reset)?;
        let end = Instant::now() + reset::boot_time(&self.reset);
        if self.reset != Reset::Process {
            sleep(PAUSE);
        }
        // A reset loses files that are in the machine's memory, so all files are copied again.
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
            // If the machine is gone, its files cannot be removed.
            let _ = finish(self.script(&format!("cd {FOLDER} && {{ {STOP}; cd .. && rm -rf {FOLDER}; }}")));
        }
    }
}

/// Runs a short command. The last line of its standard error is the reason of a failure.
fn finish(mut command: Command) -> Result<(), Trouble> {
    let explain = |error: std::io::Error| format!("ssh: {error}");
    let mut child = Ends(command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().map_err(explain)?);
    let Some(status) = run::wait(&mut child.0, TIMEOUT).map_err(explain)? else {
        return Err(Trouble::Broken("the board does not answer over ssh".into()));
    };
    if status.success() {
        return Ok(());
    }
    let reason = format!("ssh: {}", last_words(&mut child.0).unwrap_or_else(|| status.to_string()));
    Err(if status.code() == Some(NO_CONNECTION) {
        Trouble::Unreachable(reason)
    } else {
        Trouble::Broken(reason)
    })
}

/// Returns the last line of a process's standard error, if there is one.
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
        // A shell prints the words after `exec`, one on each line. This shows that each argument is quoted as
        // one word.
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
