//! `cargo xtask validate`: runs scenarios and measurements on a device of this machine, and packs a report.

mod archive;
mod compare;
mod machine;
mod page;
mod record;

use super::board::{Board, Trouble};
use super::monitor::Monitor;
use super::report::Terminal;
use super::session;
use hil_scenarios::protocol::Event;
use hil_scenarios::way::Ways;
use machine::{Check, Machine, Weight};
use record::{FORMAT, Record};
use std::io;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::time::Duration;
use std::{env, fs};
use xtask::run::{self, At, answer, check};
use xtask::{emulate, host};
use xtask_parsers::limits::Limits;

pub(crate) const HELP: &str = "\
cargo xtask validate [DEVICE | --stand-in] [options]
cargo xtask validate --compare A B
cargo xtask validate --facts A

Runs all scenarios, all measurements of open questions and the benchmarks on an mlx5 device of this
machine (default: the first one), and writes one archive: a page (report.html) and the same as data
(report.json). First it checks what the run needs, and prints the command that changes what is
missing. It changes nothing itself. `cargo xtask dist --validate` packs it with all its programs,
for a machine without cargo: ./validate [DEVICE] there has the same options.

  --stand-in       run on the software device behind the stand-in for the kernel
  --filter TEXT    run only cases whose name contains TEXT, and no benchmark
  --ways WAYS      the posting methods of each case: `all` (default), one of request, batch,
                   changed, batch-changed, or a seed that selects one for each case
  --out FILE       the archive (default: mlx5-validate-DEVICE-DATE.tar.gz in this folder)
  --programs DIR   the folder of the programs, instead of building them
  --compare A B    print the differences of two archives: devices, verdicts, answers, times
  --facts A        print the answers of an archive as a proposal for hil-tests/DEVICE.md; only an
                   archive of hardware has facts
  --help           print this text

Exit status: 0 all cases passed, 1 a case failed or the run was impossible, 2 invalid arguments.
";

/// The programs of a validation: for the scenarios, and for the benchmarks. They have these names in the
/// archive in which users get this tool, and in the folder of `--programs`.
const PROGRAMS: [&str; 2] = ["hil", "bench"];

/// The environment variable with the command that a user called, such as `./validate mlx5_0`. The report
/// shows it in the command that runs a case again.
const AGAIN: &str = "MLX5_VALIDATE_COMMAND";

/// The file beside the programs that names the commit from which they were built.
const COMMIT: &str = "commit";

/// A filter that selects no case: names contain no blank.
const NO_CASE: &str = " ";

const LIMITS: Limits = Limits {
    start: Duration::from_secs(60),
    case: Duration::from_secs(180),
    total: Duration::from_secs(4 * 60 * 60),
};

#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Options {
    device: Option<String>,
    stand_in: bool,
    filter: String,
    ways: Option<Ways>,
    out: Option<PathBuf>,
    programs: Option<PathBuf>,
    compare: Option<[PathBuf; 2]>,
    facts: Option<PathBuf>,
}

pub(crate) fn run(arguments: &[String]) -> ExitCode {
    let (device, rest) = match arguments.split_first() {
        Some((device, rest)) if !device.starts_with('-') => (Some(device.clone()), rest),
        _ => (None, arguments),
    };
    run::with_options(
        rest,
        HELP,
        |words| parse(words, device),
        |options| match perform(&options) {
            Ok((text, status)) => run::print(&text, status),
            Err(message) => run::failed(&message),
        },
    )
}

fn parse(words: &mut run::Options, device: Option<String>) -> Result<Options, String> {
    let mut options = Options { device, ..Options::default() };
    while let Some(option) = words.word()? {
        match option.as_str() {
            "--stand-in" => options.stand_in = true,
            "--filter" => options.filter = words.value()?,
            "--ways" => options.ways = Some(words.value()?),
            "--out" => options.out = Some(words.value()?),
            "--programs" => options.programs = Some(words.value()?),
            "--compare" => options.compare = Some([words.value()?, words.value()?]),
            "--facts" => options.facts = Some(words.value()?),
            other => return Err(run::unknown(other)),
        }
    }
    if options.stand_in && options.device.is_some() {
        return Err("the stand-in has one device: --stand-in takes no DEVICE".into());
    }
    Ok(options)
}

/// Performs the task. Returns the text to print at the end, and the exit status.
fn perform(options: &Options) -> Result<(String, u8), String> {
    if let Some([first, second]) = &options.compare {
        return Ok((compare::compare(&archive::read(first)?, &archive::read(second)?), 0));
    }
    if let Some(file) = &options.facts {
        return Ok((compare::facts(&archive::read(file)?)?, 0));
    }
    let programs = options.programs.clone().map_or_else(build, Ok)?;
    if options.stand_in {
        return behind_the_stand_in(options, &programs);
    }
    validate(options, &programs)
}

/// Builds the programs, and returns a folder with links to them.
fn build() -> Result<PathBuf, String> {
    check(run::cargo(&["build", "--release", "--quiet", "--package", "mlx5-bench"]))?;
    let storage = host::storage()?;
    let mut programs: Vec<(&str, PathBuf)> =
        vec![(PROGRAMS[0], host::executes("hil")?), (PROGRAMS[1], run::built("release", "bench")?)];
    programs.extend(host::STORAGE.map(|name| (name, storage.join(name))));
    let folder = run::root().join("target/validate/programs");
    run::empty(&folder)?;
    for (name, path) in programs {
        symlink(path, folder.join(name)).at(&folder)?;
    }
    Ok(folder)
}

/// Runs this program again with the stand-in for the kernel, a preloaded library that contains the software
/// device. Returns the second program's exit status, and no text.
fn behind_the_stand_in(options: &Options, programs: &Path) -> Result<(String, u8), String> {
    let mut words = vec!["--".to_owned(), run::itself()?.display().to_string(), "validate".into()];
    let pairs = [
        ("--programs", Some(programs.display().to_string())),
        ("--filter", Some(options.filter.clone()).filter(|filter| !filter.is_empty())),
        ("--ways", options.ways.map(|ways| ways.to_string())),
        ("--out", options.out.as_ref().map(|out| out.display().to_string())),
    ];
    for (option, value) in pairs {
        words.extend(value.into_iter().flat_map(|value| [option.to_owned(), value]));
    }
    let mut command = emulate::with_library(&emulate::library()?, &words);
    command.env(AGAIN, "cargo xtask validate --stand-in");
    let status = command.status().map_err(|error| format!("the launcher of the stand-in: {error}"))?;
    Ok((String::new(), status.code().and_then(|code| u8::try_from(code).ok()).unwrap_or(1)))
}

/// The device under validation, as a board for the runner of `cargo xtask hil`. `words` is the command of the
/// program `hil`.
struct Here {
    words: Vec<String>,
}

impl Board for Here {
    fn prepare(&mut self) -> Result<(), Trouble> {
        Ok(())
    }

    fn command(&mut self, arguments: &[String]) -> Result<Command, String> {
        let (program, words) = self.words.split_first().ok_or("no program")?;
        let mut command = Command::new(program);
        command.args(words).args(arguments);
        Ok(command)
    }

    fn reset(&mut self) -> Result<(), String> {
        // The runner has ended the program, and starts it again after this call. A validation resets nothing
        // on the user's machine.
        Ok(())
    }
}

fn validate(options: &Options, programs: &Path) -> Result<(String, u8), String> {
    let machine = Machine { root: Path::new("/") };
    let device = options.device.clone().or_else(|| machine.first_device());
    let device = device.unwrap_or_else(|| "mlx5_0".into());
    let ways = options.ways.unwrap_or(Ways::All);
    let mut checks = machine.checks(&device);
    let stopped = |checks: &[Check]| checks.iter().any(|check| check.weight == Weight::Missing);
    let words = |name: &str| programs.join(name).display().to_string();
    let hil = [words(PROGRAMS[0]), "--device".into(), device.clone(), "--measure".into()];
    if !stopped(&checks) {
        checks.push(opened(&machine, &device, &hil));
    }
    for check in &checks {
        say(check);
    }
    if stopped(&checks) {
        return Err(format!("{device} cannot be validated yet. Nothing was run, and nothing was changed"));
    }
    let date = tool("date", &["-u", "+%F %H:%M UTC"]).unwrap_or_default();
    let mut record = Record {
        format: FORMAT,
        machine: machine.about(),
        run: about_run(programs, &date, options, ways),
        checks,
        ..Record::default()
    };
    let programs_option = ["--programs".to_owned(), programs.display().to_string()];
    let mut here = Here { words: [&hil[..], &programs_option].concat() };
    let mut monitor = Monitor::new(&device, LIMITS, vec![], vec![]);
    monitor.set_command(again(&device));
    let mut selection = vec!["--ways".to_owned(), ways.to_string()];
    if !options.filter.is_empty() {
        selection.extend(["--filter".into(), options.filter.clone()]);
    }
    let mut out = io::stdout();
    let mut terminal = Terminal::new(&mut out);
    session::run(&mut here, &mut monitor, &selection, &mut |monitor| terminal.watch(monitor));
    terminal.finish().map_err(|error| error.to_string())?;
    record.take(monitor.results());
    if options.filter.is_empty() {
        measure(&mut record, &words(PROGRAMS[1]), &device);
    }
    let stamp: String = date.chars().filter(char::is_ascii_digit).collect();
    let file = options.out.clone().unwrap_or_else(|| format!("mlx5-validate-{device}-{stamp}.tar.gz").into());
    archive::write(&record, &file)?;
    let bad = record.cases.iter().filter(|case| case.is_bad()).count();
    let nature = record.property("nature").unwrap_or("unknown");
    let text = format!(
        "{device} ({nature}): {} of {} cases passed, {bad} failed, {} skipped\n{}",
        record.count("passed"),
        record.announced,
        record.count("SKIPPED"),
        record.faults.iter().map(|fault| format!("FAILED: {fault}\n")).collect::<String>()
    );
    let last = format!("{text}The report, to read (report.html in it) and to send: {}\n", file.display());
    Ok((last, u8::from(!record.is_good())))
}

fn again(device: &str) -> String {
    env::var(AGAIN).unwrap_or_else(|_| format!("cargo xtask validate {device}"))
}

/// Runs a program in the working folder of this process, and returns its output. `run::program` would change
/// to the repository's root, which may not exist on this machine.
fn tool(name: &str, arguments: &[&str]) -> Result<String, String> {
    let mut command = Command::new(name);
    command.args(arguments).stderr(Stdio::null());
    answer(command)
}

fn about_run(programs: &Path, date: &str, options: &Options, ways: Ways) -> Vec<machine::Property> {
    let commit = fs::read_to_string(programs.join(COMMIT)).ok();
    let commit = commit.or_else(|| tool("git", &["describe", "--always", "--dirty"]).ok());
    let posting = match ways {
        Ways::Drawn(seed) => format!("one for each case, by seed {seed}"),
        ways => format!("{ways} (no seed takes part)"),
    };
    [
        ("date", date.to_owned()),
        ("version", format!("mlx5-mkey {}", env!("CARGO_PKG_VERSION"))),
        ("commit", commit.map_or_else(|| "unknown".into(), |commit| commit.trim().into())),
        ("posting methods", posting),
        ("filter", if options.filter.is_empty() { "all cases".into() } else { options.filter.clone() }),
    ]
    .map(|(what, value)| (what.to_owned(), value))
    .into()
}

/// Lets the program `hil` open the device without running a case, and checks how the device describes its
/// encryption.
fn opened(machine: &Machine<'_>, device: &str, hil: &[String]) -> Check {
    let what = "the library opens the device";
    let missing = |words: String| Check { what: what.into(), weight: Weight::Missing, words };
    let Some((program, words)) = hil.split_first() else { return missing("no program".into()) };
    let output = match Command::new(program).args(words).args(["--filter", NO_CASE]).output() {
        Ok(output) => output,
        Err(error) => return missing(format!("{program}: {error}")),
    };
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    for line in text.lines() {
        match Event::parse(line) {
            Some(Event::NoDevice(reason)) => return missing(reason.into()),
            Some(Event::About { what: "AES-XTS and keys", value }) => return machine.crypto(device, value),
            _ => {}
        }
    }
    let errors = String::from_utf8_lossy(&output.stderr);
    missing(format!("the program ended early ({}): {}", output.status, errors.trim()))
}

fn say(check: &Check) {
    let word = match check.weight {
        Weight::Good => "good",
        Weight::Hint => "to do",
        Weight::Missing => "MISSING",
    };
    println!("{word:<8} {}: {}", check.what, check.words);
}

/// Runs the benchmarks. A benchmark that fails becomes a remark in the record, not a fault: no measured
/// number decides whether a device works correctly.
fn measure(record: &mut Record, bench: &str, device: &str) {
    println!("measuring requests on this core, and I/Os over the loopback of {device}");
    let mut run = |arguments: &[&str], take: fn(&mut Record, &str)| {
        let output = Command::new(bench).args(arguments).stdin(Stdio::null()).output();
        let output = match output {
            Ok(output) => output,
            Err(error) => return record.remarks.push(format!("{bench}: {error}")),
        };
        for line in String::from_utf8_lossy(&output.stdout).lines() {
            take(record, line);
        }
        let errors = String::from_utf8_lossy(&output.stderr);
        record.remarks.extend(errors.lines().map(str::to_owned));
        if !output.status.success() {
            record.remarks.push(format!("bench {}: {}", arguments.join(" "), output.status));
        }
    };
    run(&["own"], Record::take_own);
    run(&["loopback", device], Record::take_loopback);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Result<Options, String> {
        parse(&mut run::Options::new(line.split_whitespace()), Some("mlx5_1".into()))
    }

    #[test]
    fn arguments_are_taken_as_the_help_says() {
        let options = words("--filter r0 --ways 7 --out f --programs p").unwrap();
        let expected = Options {
            device: Some("mlx5_1".into()),
            filter: "r0".into(),
            ways: Some(Ways::Drawn(7)),
            out: Some("f".into()),
            programs: Some("p".into()),
            ..Options::default()
        };
        assert_eq!(options, expected);
        assert_eq!(words("--compare a b").unwrap().compare, Some(["a".into(), "b".into()]));
        assert_eq!(words("--facts a").unwrap().facts, Some("a".into()));
        for line in ["--compare a", "--ways bath", "--loud", "--facts"] {
            assert!(words(line).is_err(), "{line}");
        }
    }
}
