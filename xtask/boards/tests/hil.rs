//! Tests of `cargo xtask hil` with shell scripts as boards. The scripts print the events of the protocol, and
//! then hang, die, flood the output, or print garbage.

#![allow(missing_docs, clippy::unwrap_used, clippy::panic)]

use rustix::process::{Pid, Signal, kill_process};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::thread;
use std::time::Duration;
use tempfile::TempDir;

/// The beginning of each script: functions that print events.
const WORDS: &str = "#!/bin/sh
say() { printf 'hil: %s\\n' \"$@\"; }
pass() { say \"start $1\" \"passed $1\"; }
";

/// A folder with the description of one board. The board's program is a script, and each reset appends a line
/// to the file `resets`.
struct Rig {
    folder: TempDir,
    boards: String,
}

impl Rig {
    fn new(script: &str) -> Self {
        Self::with_limits(script, "case = 2")
    }

    fn with_limits(script: &str, seconds: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let place = folder.path().display().to_string();
        let boards = format!(
            "[board.fake]
             reach = {{ kind = 'command', command = ['{place}/board'] }}
             reset = {{ kind = 'command', boot-seconds = 0,
                        command = ['sh', '-c', 'echo reset >> {place}/resets'] }}
             seconds = {{ {seconds} }}"
        );
        let rig = Self { folder, boards };
        rig.script("board", script);
        rig
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn script(&self, name: &str, script: &str) {
        let file = self.path(name);
        fs::write(&file, format!("{WORDS}cd '{}'\n{script}\n", self.folder.path().display())).unwrap();
        fs::set_permissions(file, fs::Permissions::from_mode(0o755)).unwrap();
    }

    fn command(&self, arguments: &[&str]) -> Command {
        fs::write(self.path("boards.toml"), &self.boards).unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_xtask-boards"));
        command.args(["hil", "--board", "fake", "--boards"]).arg(self.path("boards.toml")).args(arguments);
        command
    }

    fn run(&self, arguments: &[&str]) -> Ran {
        Ran::new(self.command(arguments).output().unwrap())
    }

    fn resets(&self) -> usize {
        fs::read_to_string(self.path("resets")).unwrap_or_default().lines().count()
    }
}

struct Ran {
    status: Option<i32>,
    out: String,
    err: String,
}

impl Ran {
    fn new(output: Output) -> Self {
        Self {
            status: output.status.code(),
            out: String::from_utf8(output.stdout).unwrap(),
            err: String::from_utf8(output.stderr).unwrap(),
        }
    }

    #[track_caller]
    fn shows(&self, status: i32, lines: &[&str]) {
        let Self { out, err, .. } = self;
        assert_eq!(self.status, Some(status), "{out}\n{err}");
        for line in lines {
            assert!(out.lines().any(|shown| shown == *line), "`{line}` is missing in\n{out}\n{err}");
        }
    }
}

/// A process of `cargo xtask hil` that runs beside the test. Dropping this value kills the process, so a
/// failed test does not wait for it.
struct Runner(Option<Child>);

impl Runner {
    fn start(mut command: Command) -> Self {
        Self(Some(command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()))
    }

    fn child(&mut self) -> &mut Child {
        self.0.as_mut().unwrap()
    }

    /// Waits until the board has written its process number, and returns the number.
    fn board(&mut self, rig: &Rig) -> String {
        loop {
            if let Ok(pid) = fs::read_to_string(rig.path("pid")) {
                return pid;
            }
            assert!(self.child().try_wait().unwrap().is_none(), "it ended by itself");
            thread::sleep(Duration::from_millis(5));
        }
    }

    fn interrupt(&mut self, signal: Signal) {
        kill(&self.child().id().to_string(), signal);
    }

    fn finish(mut self) -> Ran {
        Ran::new(self.0.take().unwrap().wait_with_output().unwrap())
    }
}

impl Drop for Runner {
    fn drop(&mut self) {
        if let Some(mut runner) = self.0.take() {
            // On SIGTERM, the runner cleans up the board.
            let _ = kill_process(Pid::from_child(&runner), Signal::TERM);
            thread::sleep(Duration::from_secs(2));
            let _ = runner.kill();
            let _ = runner.wait();
        }
    }
}

fn kill(pid: &str, signal: Signal) {
    kill_process(Pid::from_raw(pid.trim().parse().unwrap()).unwrap(), signal).unwrap();
}

/// Returns a script with three cases. The shell command `does` runs in the second case, but only before a
/// reset.
fn second_case(does: &str) -> String {
    format!(
        "case \"$*\" in
           *'--after b'*) say 'cases 1'; pass c; say done;;
           *) say 'cases 3'; pass a; say 'start b'; {does};;
         esac"
    )
}

#[test]
fn a_board_without_trouble() {
    let rig =
        Rig::new("say 'capability xts' 'cases 2'; pass a; say 'skipped b: lacks c' done; exec sleep 1000");
    let ran = rig.run(&["--require", "xts"]);
    let summary = "board fake: 2 of 2 cases: 1 passed, 0 failed, 1 skipped";
    ran.shows(0, &["passed   a", "SKIPPED  b: lacks c", summary, "  SKIPPED    1: lacks c"]);
    assert_eq!((ran.err.as_str(), rig.resets()), ("", 0));
    rig.run(&["--require", "drain"]).shows(1, &["  FAILED: the board lacks drain (--require drain)"]);
}

#[test]
fn filters_and_ways_are_passed_on() {
    let rig = Rig::new("echo \"$*\" > arguments; say 'cases 1'; pass a; say done");
    let ran = rig.run(&["--filter", "x y", "--ways", "batch"]);
    ran.shows(0, &["board fake, posting methods: batch", "passed   a"]);
    assert_eq!(fs::read_to_string(rig.path("arguments")).unwrap(), "--ways batch --filter x y\n");
    // By default, a seed selects the posting methods. The seed is printed, and can be given with `--ways`.
    let ran = rig.run(&[]);
    let (_, seed) = ran.out.lines().next().and_then(|line| line.split_once(" by seed ")).unwrap();
    assert_eq!(fs::read_to_string(rig.path("arguments")).unwrap(), format!("--ways {seed}\n"));
}

#[test]
fn a_board_that_hangs_is_reset_and_the_run_goes_on() {
    let rig = Rig::new(&second_case("echo half way; exec sleep 1000"));
    let (xml, page) = (rig.path("r.xml"), rig.path("r.html"));
    let ran = rig.run(&["--junit", xml.to_str().unwrap(), "--html", page.to_str().unwrap()]);
    ran.shows(
        1,
        &[
            "passed   a",
            "HUNG     b: no event for 2 s",
            "         | half way",
            "reset    the board hung: no event for 2 s, in b",
            "passed   c",
            "board fake: 3 of 3 cases: 2 passed, 0 failed, 0 skipped, 1 hung, 1 reset",
        ],
    );
    assert_eq!(rig.resets(), 1);
    assert!(fs::read_to_string(xml).unwrap().contains("type=\"hung\""));
    let page = fs::read_to_string(page).unwrap();
    let origin = format!(" UTC, mlx5-mkey {}", env!("CARGO_PKG_VERSION"));
    let device = format!("<p>Device: that of `{}`</p>", rig.path("board").display());
    for text in ["<td>HUNG</td><td>b</td>", &origin, &device] {
        assert!(page.contains(text), "`{text}` is missing in {page}");
    }
}

#[test]
fn a_board_whose_process_is_killed_is_reset_and_the_run_goes_on() {
    // The board hangs in a case, and the time limits are too long to notice the hang. Only the signal of this
    // test ends the program.
    let rig = Rig::with_limits(&second_case("echo $$ > new; mv new pid; exec sleep 1000"), "case = 600");
    let mut runner = Runner::start(rig.command(&[]));
    kill(&runner.board(&rig), Signal::KILL);
    let ran = runner.finish();
    let how = "its program ended with signal: 9 (SIGKILL)";
    let (died, reset) = (format!("DIED     b: {how}"), format!("reset    the board died: {how}, in b"));
    let summary = "board fake: 3 of 3 cases: 2 passed, 0 failed, 0 skipped, 1 died, 1 reset";
    ran.shows(1, &["passed   a", &died, &reset, "passed   c", summary]);
    assert_eq!(rig.resets(), 1);
}

/// Returns whether a process runs: it exists, and is neither a zombie nor dead.
fn runs(pid: &str) -> bool {
    let status = fs::read_to_string(format!("/proc/{}/status", pid.trim())).unwrap_or_default();
    status.lines().any(|line| line.starts_with("State:") && !line.contains('Z') && !line.contains('X'))
}

#[test]
fn what_a_board_has_started_ends_with_it() {
    for (end, limit, word) in [("wait", 2, "HUNG     b:"), ("kill -9 $$", 600, "DIED     b:")] {
        let script = second_case(&format!("sleep 1000 & echo $! > pid; {end}"));
        let rig = Rig::with_limits(&script, &format!("case = {limit}"));
        let ran = rig.run(&[]);
        ran.shows(1, &["passed   c"]);
        assert!(ran.out.contains(word), "{}", ran.out);
        assert!(!runs(&fs::read_to_string(rig.path("pid")).unwrap()), "{end}");
    }
}

#[test]
fn an_interrupted_runner_leaves_nothing_running() {
    let rig =
        Rig::with_limits("echo $$ > new; mv new pid; say 'cases 1' 'start a'; exec sleep 1000", "case = 600");
    let report = rig.path("report.xml");
    let arguments = ["--junit", report.to_str().unwrap()];
    let mut runner = Runner::start(rig.command(&arguments));
    let board = runner.board(&rig);
    assert!(runs(&board));
    runner.interrupt(Signal::INT);
    let ran = runner.finish();
    // After an interrupt there is no reset, but the reports are written.
    ran.shows(130, &["  FAILED: interrupted"]);
    assert_eq!(rig.resets(), 0);
    assert!(fs::read_to_string(report).unwrap().contains("interrupted"));
    assert!(!runs(&board));
}

#[test]
fn a_panic_is_told_with_its_last_words() {
    let rig = Rig::new(&second_case("echo 'panicked: over there' >&2; exit 101"));
    let died = "DIED     b: its program ended with exit status: 101";
    rig.run(&[]).shows(1, &[died, "         | panicked: over there", "passed   c"]);
}

#[test]
fn a_board_that_closes_its_output_is_reset() {
    let rig = Rig::with_limits(&second_case("exec >&-; exec sleep 1000"), "case = 600");
    rig.run(&[]).shows(1, &["DIED     b: its output ended, but the program did not", "passed   c"]);
    assert_eq!(rig.resets(), 1);
}

#[test]
fn a_flood_is_a_hang() {
    for flood in ["exec yes", "exec cat /dev/zero", "yes >&2", "exec yes 'hil: cases x'"] {
        let rig = Rig::new(&second_case(flood));
        rig.run(&[]).shows(1, &["HUNG     b: no event for 2 s", "passed   c"]);
    }
}

/// The program of a board knows neither the name of the board nor the file that describes it, so the runner
/// adds both to the command that repeats a case.
#[test]
fn a_failed_case_is_repeated_on_the_same_board() {
    let rig = Rig::new(
        "say 'cases 1' 'start a'; echo again: cargo xtask hil --board softdev --filter a --ways batch
         say 'failed a: it is odd' done",
    );
    let file = rig.path("boards.toml").display().to_string();
    let again = format!("cargo xtask hil --board fake --boards {file} --filter a --ways batch");
    let ran = rig.run(&[]);
    let shown = ran.out.lines().find_map(|line| line.split_once("again: "));
    assert_eq!((shown.map(|(_, command)| command), ran.status), (Some(&*again), Some(1)), "{}", ran.out);
}

#[test]
fn rubbish_is_log() {
    let rig = Rig::new(
        "printf '\\377\\000\\033[2J hil: done\\nhil: \\nhil: start\\n'; say 'cases 1'; pass a; say done",
    );
    rig.run(&[]).shows(0, &["passed   a"]);
    let rig = Rig::new("head -c 100000 /dev/urandom; exit 3");
    rig.run(&[]).shows(1, &["board fake: 0 of 0 cases: 0 passed, 0 failed, 0 skipped, 1 reset"]);
    assert_eq!(rig.resets(), 1);
}

#[test]
fn without_a_device_the_run_is_skipped_unless_one_is_required() {
    let rig = Rig::new("say 'no device: none here'; exit 2");
    rig.run(&[]).shows(0, &["board fake: SKIPPED: none here"]);
    rig.run(&["--require-board"]).shows(1, &["  FAILED: no board: none here (--require-board)"]);
    assert_eq!(rig.resets(), 0);
}

#[test]
fn a_reset_that_fails_ends_the_run() {
    let mut rig = Rig::new(&second_case("exit 1"));
    rig.boards = rig.boards.replace("echo reset", "exit 5");
    let summary = "board fake: 2 of 3 cases: 1 passed, 0 failed, 0 skipped, 1 died, 1 reset, 1 not run";
    rig.run(&[]).shows(1, &[summary]);
}

#[test]
fn a_program_that_is_not_there_is_a_failure() {
    let rig = Rig::new("");
    fs::remove_file(rig.path("board")).unwrap();
    rig.run(&[]).shows(1, &[]);
}

#[test]
fn arguments_that_make_no_sense() {
    let mut rig = Rig::new("");
    for arguments in [&["--board", "other"][..], &["--loud"], &["--filter"], &["rest"], &["--require", "xst"]]
    {
        assert_eq!(rig.run(arguments).status, Some(2), "{arguments:?}");
    }
    rig.boards = "[board".into();
    assert_eq!(rig.run(&[]).status, Some(2));
}

/// Returns a board over ssh. A script replaces `ssh`.
fn over_ssh(script: &str, ssh: &str) -> Rig {
    let mut rig = Rig::new(script);
    let place = rig.folder.path().display().to_string();
    fs::create_dir(rig.path("home")).unwrap();
    fs::create_dir(rig.path("bin")).unwrap();
    rig.script("bin/ssh", ssh);
    rig.boards = format!(
        "[board.fake]
         reach = {{ kind = 'ssh', address = 'me@there', device = 'mlx5_9',
                    program = {{ file = '{place}/board' }} }}
         seconds = {{ case = 2 }}"
    );
    rig
}

/// The replacement of `ssh`: runs the given script in the folder `home`, which takes the place of the other
/// machine's home.
const THERE: &str = "for script; do :; done; cd home; exec sh -c \"$script\"";

impl Rig {
    fn run_over_ssh(&self) -> Ran {
        let path = format!("{}:{}", self.path("bin").display(), std::env::var("PATH").unwrap());
        Ran::new(self.command(&[]).env("PATH", path).output().unwrap())
    }
}

#[test]
fn reports_that_cannot_be_written_are_refused_before_anything_runs() {
    let rig = Rig::new("touch ran; say 'cases 1'; pass a; say done");
    let (good, bad) = (rig.path("good"), rig.path("no/folder"));
    let (good, bad) = (good.to_str().unwrap(), bad.to_str().unwrap());
    fs::write(good, "of the last run").unwrap();
    for arguments in [["--junit", good, "--html", bad], ["--html", good, "--junit", bad]] {
        let ran = rig.run(&arguments);
        assert_eq!(ran.status, Some(2), "{}", ran.err);
        assert!(ran.err.starts_with(&format!("error: {bad}: ")), "{}", ran.err);
        assert_eq!((rig.path("ran").exists(), ran.out.as_str()), (false, ""));
        assert_eq!(fs::read_to_string(good).unwrap(), "of the last run");
    }
    fs::write(good, "x".repeat(100_000)).unwrap();
    rig.run(&["--junit", good]).shows(0, &["passed   a"]);
    let report = fs::read_to_string(good).unwrap();
    assert!(report.starts_with("<?xml") && !report.contains('x'.to_string().repeat(9).as_str()), "{report}");
    // Standard output cannot be truncated, but a report can be written there.
    let ran = rig.run(&["--html", "/dev/stdout"]);
    assert!(ran.status == Some(0) && ran.out.ends_with("</html>\n"), "{}", ran.out);
}

#[test]
fn a_board_over_ssh() {
    let rig = over_ssh(&second_case("ls -A home > seen; echo \"$*\" >> seen; exit 1"), THERE);
    let died = "DIED     b: its program ended with exit status: 1";
    rig.run_over_ssh().shows(1, &["passed   a", died, "passed   c"]);
    let seen = fs::read_to_string(rig.path("seen")).unwrap();
    assert!(seen.starts_with(".mlx5-mkey-hil\n--device mlx5_9 --ways "), "{seen}");
    // The run has removed its files from the board.
    assert_eq!(fs::read_dir(rig.path("home")).unwrap().count(), 0);
}

#[test]
fn an_interrupted_runner_clears_the_board_up() {
    let rig = over_ssh("echo $$ > new; mv new pid; say 'cases 1' 'start a'; exec sleep 1000", THERE);
    let path = format!("{}:{}", rig.path("bin").display(), std::env::var("PATH").unwrap());
    let mut command = rig.command(&[]);
    command.env("PATH", path);
    let mut runner = Runner::start(command);
    let board = runner.board(&rig);
    assert_eq!(fs::read_dir(rig.path("home")).unwrap().count(), 1);
    runner.interrupt(Signal::TERM);
    runner.finish().shows(130, &["  FAILED: interrupted"]);
    assert!(!runs(&board));
    assert_eq!(fs::read_dir(rig.path("home")).unwrap().count(), 0);
}

#[test]
fn a_board_over_ssh_that_is_not_there() {
    let rig = over_ssh("", "echo 'no route to host' >&2; exit 255");
    rig.run_over_ssh().shows(0, &["board fake: SKIPPED: ssh: no route to host"]);
    let rig = over_ssh("", "echo 'disk full' >&2; exit 1");
    rig.run_over_ssh().shows(1, &["  FAILED: ssh: disk full"]);
}
