//! `cargo xtask hil`: runs the scenarios on boards.

mod board;
mod built;
mod compare;
mod labgrid;
mod local;
mod monitor;
mod report;
mod reset;
mod results;
mod session;
mod skips;
mod ssh;
pub(crate) mod validate;
mod vdpu;

use board::Board;
use hil_scenarios::board::Capabilities;
use hil_scenarios::cases::{Case, Selection};
use hil_scenarios::way::Ways;
use labgrid::Lab;
use local::Local;
use monitor::Monitor;
use report::{ReportFile, Terminal};
use results::Results;
use ssh::Remote;
use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::{Mutex, PoisonError};
use std::thread::{self, ScopedJoinHandle};
use std::time::{SystemTime, UNIX_EPOCH};
use vdpu::Vdpu;
use xtask::run::{self, root};
use xtask_parsers::boards::{self, Description, Reach};

pub(crate) const HELP: &str = "\
cargo xtask hil [--board NAME]… [options]

Runs the scenarios of hil-tests on boards, and prints a line for each case. If a board hangs or
dies, the case is reported, the board is reset once, and the run goes on after the case.

  --board NAME          a board of the file, or an mlx5 device of this machine, such as mlx5_0.
                        Several boards run one after the other (default: softdev)
  --at-once             run several boards at the same time; each line begins with its board
  --boards FILE         the file of boards (default: hil-tests/boards.toml, which explains itself)
  --filter TEXT         run only cases whose name contains TEXT
  --ways WAYS           the posting methods of each case: `all`, the name of one (request, batch,
                        changed, batch-changed), or a seed that selects one for each case (default:
                        all on softdev and uverbs, else a new seed, which is printed)
  --list                run nothing: list the cases with the capabilities that each needs, or the
                        boards that --board names with the capabilities that the file promises
  --require CAPABILITY  fail if the board lacks the capability
  --require-board       fail if the board cannot be reached (default: skip it). Without a needed
                        capability, a case is still skipped (see --require)
  --alike               fail if a case ends differently on two of the boards, unless the file of
                        boards gives a reason
  --require-cases       fail if the board does not announce every case of this build
  --junit FILE          write the results as JUnit XML
  --html FILE           write the results as an HTML page
  --help                print this text

Capabilities:
  signature             block signatures
  xts                   an AES-XTS engine
  xts-many              an AES-XTS engine for many data units
  xts-single            an AES-XTS engine for a single data unit only
  drain                 a queue drains on signature errors
  login                 keys are wrapped, and the board has credentials for a login
  fixed-entries         the entries of an mkey may all have one length (KSM)
  long-lists            an mkey may have more than 65,535 entries
  programs              the storage example runs there: two programs beside the runner
  memcpy                requests that copy memory
  masked-atomics        atomics under masks
  relaxed-ordering      mkey configurations with relaxed ordering of transfers
  dek-modify            DEKs can be modified (SYNC_CRYPTO)
  clock                 the clock of completion timestamps can be read
  bare                  a device in reset, without a driver
  hardware              a real device, not the software device

Exit status: 0 success, 1 failure, 2 invalid arguments, 130 interrupted (boards are cleaned up
first; a second interrupt ends the run at once).
";

const INTERRUPTED: u8 = 130;

#[derive(Debug, Default, PartialEq, Eq)]
struct Options {
    board: Vec<String>,
    at_once: bool,
    alike: bool,
    boards: Option<PathBuf>,
    filter: String,
    ways: Option<Ways>,
    list: bool,
    require: Vec<String>,
    require_board: bool,
    require_cases: bool,
    junit: Option<PathBuf>,
    html: Option<PathBuf>,
}

/// The open files for the reports, for each format that an option names.
struct Reports {
    junit: Option<ReportFile>,
    html: Option<ReportFile>,
}

pub(crate) fn run(arguments: &[String]) -> ExitCode {
    let parse = |words: &mut run::Options| {
        let options = parse(words)?;
        let chosen = choose(&options)?;
        Ok((options, chosen))
    };
    run::with_options(arguments, HELP, parse, |(options, chosen)| {
        if options.list { run::print(&list(&options, &chosen), 0) } else { run_all(&options, &chosen) }
    })
}

fn run_all(options: &Options, chosen: &[(String, Description)]) -> ExitCode {
    // The files of the reports are opened first, so that a wrong path is reported before a long run.
    let open = |file: &Option<PathBuf>| file.as_deref().map(ReportFile::open).transpose();
    let reports =
        match open(&options.junit).and_then(|junit| Ok(Reports { junit, html: open(&options.html)? })) {
            Ok(reports) => reports,
            Err(message) => return run::misuse(&format!("error: {message}")),
        };
    // After the first interrupt, boards are cleaned up and reports are written. A second interrupt ends this
    // process at once.
    let interrupt = || {
        if session::interrupt() {
            std::process::exit(INTERRUPTED.into());
        }
    };
    if let Err(error) = ctrlc::set_handler(interrupt) {
        return run::misuse(&format!("error: {error}"));
    }
    match perform(options, chosen, reports, &mut io::stdout()) {
        Ok(_) if session::is_interrupted() => ExitCode::from(INTERRUPTED),
        Ok(all) if all.iter().all(|results| results.is_good(options.require_board)) => ExitCode::SUCCESS,
        Ok(_) => ExitCode::FAILURE,
        Err(error) => run::lost(&error),
    }
}

fn parse(words: &mut run::Options) -> Result<Options, String> {
    let mut options = Options::default();
    while let Some(option) = words.word()? {
        match option.as_str() {
            "--board" => options.board.push(words.value()?),
            "--at-once" => options.at_once = true,
            "--alike" => options.alike = true,
            "--boards" => options.boards = Some(words.value()?),
            "--filter" => options.filter = words.value()?,
            "--ways" => options.ways = Some(words.value()?),
            "--list" => options.list = true,
            "--require" => options.require.push(capability(words.value()?)?),
            "--require-board" => options.require_board = true,
            "--require-cases" => options.require_cases = true,
            "--junit" => options.junit = Some(words.value()?),
            "--html" => options.html = Some(words.value()?),
            other => return Err(run::unknown(other)),
        }
    }
    Ok(options)
}

/// Returns the name of a capability unchanged, or an error if no capability has this name.
fn capability(name: String) -> Result<String, String> {
    let known = Capabilities::NAMES;
    if known.contains(&name.as_str()) {
        Ok(name)
    } else {
        Err(format!("unknown capability `{name}`; known are {}", known.join(", ")))
    }
}

fn choose(options: &Options) -> Result<Vec<(String, Description)>, String> {
    let file = options.boards.clone().unwrap_or_else(|| root().join("hil-tests/boards.toml"));
    let boards = boards::read(&file)?;
    let mut chosen: Vec<(String, Description)> = Vec::new();
    let default = ["softdev".to_owned()];
    let names = if options.board.is_empty() { &default[..] } else { &options.board };
    for name in names {
        let found = boards.find(name)?;
        let new = |(name, _): &(String, _)| chosen.iter().all(|(known, _)| known != name);
        let new: Vec<_> = found.into_iter().filter(new).collect();
        chosen.extend(new);
    }
    Ok(chosen)
}

/// Returns a line for each case with the capabilities that the case needs. If the options name boards,
/// returns instead a line for each board with the capabilities that its description promises.
fn list(options: &Options, chosen: &[(String, Description)]) -> String {
    let rows: Vec<(&str, String)> = if options.board.is_empty() {
        let selection = Selection { filter: &options.filter, ..Selection::default() };
        let needs = |case: Case| case.needs().names().collect::<Vec<_>>().join(" ");
        selection.cases().map(|case| (case.name(), needs(case))).collect()
    } else {
        chosen.iter().map(|(name, description)| (name.as_str(), description.capabilities.join(" "))).collect()
    };
    let width = rows.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
    let line = |(name, capabilities)| format!("{}\n", format!("{name:width$}  {capabilities}").trim_end());
    rows.into_iter().map(line).collect()
}

/// Runs the scenarios on boards, writes the reports, and returns the results of each board.
fn perform(
    options: &Options,
    chosen: &[(String, Description)],
    reports: Reports,
    out: &mut (dyn Write + Send),
) -> io::Result<Vec<Results>> {
    let origin = origin();
    let mut all = if options.at_once {
        at_once(options, chosen, out)?
    } else {
        let mut all = Vec::new();
        for (name, description) in chosen {
            all.push(perform_one(options, name, description, &mut Terminal::new(out))?);
        }
        all
    };
    if options.alike {
        compare::compare(&mut all, &chosen.iter().map(|(_, board)| &board.differs).collect::<Vec<_>>());
    }
    for results in &all {
        out.write_all(report::summary(results, options.require_board).as_bytes())?;
    }
    out.flush()?;
    if let Some(file) = reports.junit {
        file.write(&report::junit(&all, options.require_board).map_err(io::Error::other)?)?;
    }
    if let Some(file) = reports.html {
        file.write(&report::html(&all, options.require_board, &origin))?;
    }
    Ok(all)
}

fn at_once(
    options: &Options,
    chosen: &[(String, Description)],
    out: &mut (dyn Write + Send),
) -> io::Result<Vec<Results>> {
    let out = Mutex::new(out);
    thread::scope(|scope| {
        let start = |(name, description): &'_ (String, Description)| {
            let mut lines = Lines { out: &out, name: name.clone(), line: Vec::new() };
            let (name, description) = (name.clone(), description.clone());
            scope.spawn(move || perform_one(options, &name, &description, &mut Terminal::plain(&mut lines)))
        };
        let boards: Vec<_> = chosen.iter().map(start).collect();
        let join = |board: ScopedJoinHandle<'_, _>| {
            board.join().unwrap_or_else(|_| Err(io::Error::other("the run of a board panicked")))
        };
        boards.into_iter().map(join).collect()
    })
}

/// The output of one of several boards that run at the same time: whole lines, each after the board's name.
struct Lines<'a, 'b> {
    out: &'a Mutex<&'b mut (dyn Write + Send)>,
    name: String,
    line: Vec<u8>,
}

impl Write for Lines<'_, '_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut out = self.out.lock().unwrap_or_else(PoisonError::into_inner);
        for part in bytes.split_inclusive(|byte| *byte == b'\n') {
            self.line.extend_from_slice(part);
            if part.ends_with(b"\n") {
                write!(out, "{}: ", self.name)?;
                out.write_all(&std::mem::take(&mut self.line))?;
            }
        }
        out.flush()?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Returns date, version and commit of the run, without the parts that are unknown.
fn origin() -> String {
    let answer = |name, arguments: &[&str]| run::answer(run::program(name, arguments)).ok();
    let date = answer("date", &["-u", "+%F %H:%M UTC"]);
    let version = Some(format!("mlx5-mkey {}", env!("CARGO_PKG_VERSION")));
    let commit = answer("git", &["describe", "--always", "--dirty"]).map(|commit| format!("commit {commit}"));
    [date, version, commit].into_iter().flatten().collect::<Vec<_>>().join(", ")
}

fn perform_one(
    options: &Options,
    name: &str,
    description: &Description,
    terminal: &mut Terminal<'_>,
) -> io::Result<Results> {
    let ways = options.ways.unwrap_or_else(|| usual_ways(name));
    terminal.say(&match ways {
        Ways::Drawn(seed) => format!("board {name}, a posting method for each case by seed {seed}"),
        ways => format!("board {name}, posting methods: {ways}"),
    });
    let required = options.require.clone();
    let mut monitor = Monitor::new(name, description.limits(), required, description.capabilities.clone());
    if let Some(file) = &options.boards {
        monitor.set_boards(file);
    }
    let mut board = make(description);
    let mut selection = vec!["--ways".to_owned(), ways.to_string()];
    if !options.filter.is_empty() {
        selection.extend(["--filter".into(), options.filter.clone()]);
    }
    session::run(&mut *board, &mut monitor, &selection, &mut |monitor| terminal.watch(monitor));
    terminal.finish()?;
    let device = match board.place() {
        Some(place) => format!("{}: {place}", description.reach.device()),
        None => description.reach.device(),
    };
    let mut results = Results { device, ..monitor.results().clone() };
    let known = Selection { filter: &options.filter, ways, ..Selection::default() }.cases().count();
    if let Some(expected) = &description.skipped {
        results.problems.extend(skips::compare(&results, expected));
    }
    if options.require_cases && results.announced != known {
        let announced = results.announced;
        results
            .problems
            .push(format!("the board has {announced} cases, this build {known} (--require-cases)"));
    }
    Ok(results)
}

fn make(description: &Description) -> Box<dyn Board> {
    let reset = description.reset.clone();
    match description.reach.clone() {
        Reach::Vdpu { function, crypto, environment } => Box::new(Vdpu::new(function, crypto, environment)),
        Reach::Ssh(ssh) => Box::new(Remote::new(ssh, reset)),
        Reach::Labgrid(place) => Box::new(Lab::new(place, reset)),
        reach => Box::new(Local::new(reach, reset)),
    }
}

/// Returns the default posting methods of a board: all if the board is fast, else a random one for each case.
fn usual_ways(board: &str) -> Ways {
    match board {
        "softdev" | "uverbs" => Ways::All,
        _ => {
            let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
            Ways::Drawn(now.subsec_nanos().into())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hil_scenarios::way::Way;

    fn words(line: &str) -> Result<Options, String> {
        parse(&mut run::Options::new(line.split_whitespace()))
    }

    #[test]
    fn arguments_are_taken_as_the_help_says() {
        let options = words(
            "--board a --board=b --at-once --alike --boards f --filter r0 --ways batch --list --require xts",
        )
        .unwrap();
        let expected = Options {
            board: vec!["a".into(), "b".into()],
            at_once: true,
            alike: true,
            boards: Some("f".into()),
            filter: "r0".into(),
            ways: Some(Ways::Only(Way::Batch)),
            list: true,
            require: vec!["xts".into()],
            ..Options::default()
        };
        assert_eq!(options, expected);
        assert_eq!(words(""), Ok(Options::default()));
        for line in ["--list=cases", "--boards", "cases", "--ways bath", "--require xst"] {
            assert!(words(line).is_err(), "{line}");
        }
        for name in Capabilities::NAMES {
            assert!(words(&format!("--require {name}")).is_ok(), "{name}");
        }
        let known = "known are signature, xts, xts-many, xts-single, drain, hardware, login, programs, \
                     fixed-entries, long-lists, memcpy, masked-atomics, relaxed-ordering, dek-modify, \
                     clock, bare";
        assert!(words("--require xst").unwrap_err().contains(known));
    }

    #[test]
    fn every_way_of_posting_is_taken_on_two_boards_and_one_elsewhere() {
        for board in ["softdev", "uverbs", "uverbs-wrapped", "qemu-firmware-bluefield2", "qemu-user", "vdpu"]
        {
            let all = usual_ways(board) == Ways::All;
            assert_eq!(all, ["softdev", "uverbs"].contains(&board), "{board}");
            assert!(all || matches!(usual_ways(board), Ways::Drawn(_)), "{board}");
        }
    }

    fn listed(line: &str) -> String {
        let options = words(line).unwrap();
        list(&options, &choose(&options).unwrap())
    }

    #[test]
    fn cases_are_listed_with_what_they_need() {
        assert_eq!(listed("--list --filter r028_"), "r028_write_replaces_read\n");
        assert_eq!(listed("--list --filter m28_"), "m28_keys_outlive_a_revoked_login  xts login\n");
        assert_eq!(listed("--list --filter r171_rows"), "r171_rows_on_a_single_unit  xts-single signature\n");
        assert_eq!(listed("--list").lines().count(), Selection::default().cases().count());
    }

    #[test]
    fn boards_are_listed_with_what_they_have() {
        let text = "softdev  signature xts xts-many drain fixed-entries long-lists memcpy \
                    masked-atomics relaxed-ordering dek-modify clock bare\nmlx5_0\n";
        assert_eq!(listed("--list --board softdev --board mlx5_0"), text);
    }

    #[test]
    fn the_help_explains_every_capability() {
        let (_, explained) = HELP.split_once("Capabilities:\n").unwrap();
        for name in Capabilities::NAMES {
            assert!(explained.contains(&format!("  {name} ")), "{name}");
        }
    }
}
