//! `cargo xtask hil`: the scenarios on boards.

mod arm;
mod board;
mod labgrid;
mod monitor;
mod report;
mod reset;
mod results;
mod session;
mod ssh;

use hil_scenarios::board::Capabilities;
use hil_scenarios::cases::{Case, Selection};
use hil_scenarios::way::Ways;
use monitor::Monitor;
use report::{ReportFile, Terminal};
use results::Results;
use std::ffi::OsString;
use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::{Mutex, PoisonError};
use std::thread::{self, ScopedJoinHandle};
use std::time::{SystemTime, UNIX_EPOCH};
use xtask::run::{self, root};
use xtask_parsers::boards::{self, Description};

pub(crate) const HELP: &str = "\
cargo xtask hil [--board NAME]… [options]

Runs the scenarios of hil-tests on boards, one line each. A board that hangs or dies is reset once,
the case is reported, and the run goes on behind it.

  --board NAME          a board of the file, or an mlx5 device of this machine as mlx5_0;
                        more than one run one after the other (default: softdev)
  --at-once             several boards run at the same time; each line begins with its board
  --boards FILE         the file of boards (default: hil-tests/boards.toml, which explains itself)
  --filter TEXT         only cases whose name holds TEXT
  --ways WAYS           which ways of posting each case takes: `all`, the name of one (request,
                        batch, changed, batch-changed), or a seed that draws one for each case
                        (default: all on softdev and uverbs, else a new seed, which is printed)
  --list                run nothing: list the cases and the capabilities that each needs, or, of
                        each --board NAME, those that the file of boards promises
  --require CAPABILITY  fail where the board lacks it
  --require-board       fail where the board cannot be reached; else that is a skip. A case that the
                        board lacks a capability for is a skip in any case (see --require)
  --require-cases       fail where the board does not announce every case that this build knows
  --junit FILE          write the results as JUnit XML
  --html FILE           write the results as a page
  --help                this text

Capabilities are
  signature             block signatures
  xts                   any AES-XTS engine
  xts-many              one for many data units
  xts-single            one for single data units and no more
  drain                 a queue drains on signature errors
  login                 keys are wrapped, and the board knows what to log in with
  fixed-entries         entries of an mkey may all be of one length
  long-lists            an mkey may have more entries than 16 bits count
  programs              the storage example runs there, two programs beside the runner
  memcpy                requests copy memory
  relaxed-ordering      configurations of an mkey relax the order of its transfers
  dek-modify            keys can be given other values (SYNC_CRYPTO)
  clock                 the clock that stamps completions can be read
  bare                  there is a device in reset that no driver has
  hardware              no software device

Exit status: 0 all is well, 1 it is not, 2 the arguments make no sense, 130 interrupted (boards are
cleared up first; a second interrupt does not wait for that).
";

/// The status of a run that was interrupted.
const INTERRUPTED: u8 = 130;

/// What the command line asks for.
#[derive(Debug, Default, PartialEq, Eq)]
struct Options {
    help: bool,
    board: Vec<String>,
    at_once: bool,
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

/// Where the results are written.
struct Reports {
    junit: Option<ReportFile>,
    html: Option<ReportFile>,
}

/// Runs the boards that are named.
pub(crate) fn run(arguments: &[String]) -> ExitCode {
    let chosen = parse(arguments).map_err(|error| format!("{error}\n\n{HELP}")).and_then(|options| {
        let chosen = if options.help { vec![] } else { choose(&options)? };
        Ok((options, chosen))
    });
    let (options, chosen) = match chosen {
        Ok(chosen) => chosen,
        Err(message) => return run::misuse(&format!("error: {message}")),
    };
    if options.help {
        return run::print(HELP, 0);
    }
    if options.list {
        return run::print(&list(&options, &chosen), 0);
    }
    // Before a run of minutes, not behind it.
    let open = |file: &Option<PathBuf>| file.as_deref().map(ReportFile::open).transpose();
    let reports =
        match open(&options.junit).and_then(|junit| Ok(Reports { junit, html: open(&options.html)? })) {
            Ok(reports) => reports,
            Err(message) => return run::misuse(&format!("error: {message}")),
        };
    // What boards have started, copied or booted is cleared away, and the reports are written. Whoever cannot wait for that
    // interrupts again.
    let interrupt = || {
        if session::interrupt() {
            std::process::exit(INTERRUPTED.into());
        }
    };
    if let Err(error) = ctrlc::set_handler(interrupt) {
        return run::misuse(&format!("error: {error}"));
    }
    match perform(&options, &chosen, reports, &mut io::stdout()) {
        Ok(_) if session::is_interrupted() => ExitCode::from(INTERRUPTED),
        Ok(all) if all.iter().all(|results| results.is_good(options.require_board)) => ExitCode::SUCCESS,
        Ok(_) => ExitCode::FAILURE,
        Err(error) => run::lost(&error),
    }
}

fn parse(arguments: &[String]) -> Result<Options, String> {
    use lexopt::prelude::*;
    let mut options = Options::default();
    let mut parser = lexopt::Parser::from_args(arguments.iter().map(OsString::from));
    let explain = |error: lexopt::Error| error.to_string();
    let text = |parser: &mut lexopt::Parser| parser.value().and_then(|value| value.string()).map_err(explain);
    while let Some(argument) = parser.next().map_err(explain)? {
        match argument {
            Long("board") => options.board.push(text(&mut parser)?),
            Long("at-once") => options.at_once = true,
            Long("boards") => options.boards = Some(text(&mut parser)?.into()),
            Long("filter") => options.filter = text(&mut parser)?,
            Long("ways") => options.ways = Some(text(&mut parser)?.parse()?),
            Long("list") => options.list = true,
            Long("require") => options.require.push(capability(text(&mut parser)?)?),
            Long("require-board") => options.require_board = true,
            Long("require-cases") => options.require_cases = true,
            Long("junit") => options.junit = Some(text(&mut parser)?.into()),
            Long("html") => options.html = Some(text(&mut parser)?.into()),
            Long("help") | Short('h') => options.help = true,
            other => return Err(explain(other.unexpected())),
        }
    }
    Ok(options)
}

/// Returns a capability, if there is one of that name.
fn capability(name: String) -> Result<String, String> {
    let known = Capabilities::NAMES;
    if known.contains(&name.as_str()) {
        Ok(name)
    } else {
        Err(format!("no capability is called `{name}`; there are {}", known.join(", ")))
    }
}

/// Finds the boards that are named.
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

/// Returns a line for each case and what it needs, or for each board that is named and what it has.
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

/// Runs boards, writes the reports, and returns what came of each.
fn perform(
    options: &Options,
    chosen: &[(String, Description)],
    reports: Reports,
    out: &mut (dyn Write + Send),
) -> io::Result<Vec<Results>> {
    let origin = origin();
    let all = if options.at_once {
        at_once(options, chosen, out)?
    } else {
        let mut all = Vec::new();
        for (name, description) in chosen {
            all.push(perform_one(options, name, description, &mut Terminal::new(out))?);
        }
        all
    };
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

/// Runs boards at the same time.
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

/// What one board of several says: whole lines, each behind its name.
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

/// Says when this is, and of what it is a run; of what cannot be found out nothing.
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
        Ways::Drawn(seed) => format!("board {name}, a way of posting for each case by seed {seed}"),
        ways => format!("board {name}, ways of posting: {ways}"),
    });
    let required = options.require.clone();
    let mut monitor = Monitor::new(name, description.limits(), required, description.capabilities.clone());
    let mut board = board::make(description);
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
    let known = Selection { filter: &options.filter, after: None, ways }.cases().count();
    if options.require_cases && results.announced != known {
        let announced = results.announced;
        results.problems.push(format!("it has {announced} cases, this build {known} (--require-cases)"));
    }
    Ok(results)
}

/// Returns the ways of posting that a board's cases take unless told otherwise: all where that is quick.
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
        parse(&line.split_whitespace().map(String::from).collect::<Vec<_>>())
    }

    #[test]
    fn arguments_are_taken_as_the_help_says() {
        let options =
            words("--board a --board=b --at-once --boards f --filter r0 --ways batch --list --require xts")
                .unwrap();
        let expected = Options {
            board: vec!["a".into(), "b".into()],
            at_once: true,
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
        let known = "there are signature, xts, xts-many, xts-single, drain, hardware, login, programs, fixed-entries, long-lists, memcpy, relaxed-ordering, dek-modify, clock, bare";
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
        let text = "softdev  signature xts xts-many drain fixed-entries long-lists memcpy relaxed-ordering dek-modify clock bare\nmlx5_0\n";
        assert_eq!(listed("--list --board softdev --board mlx5_0"), text);
    }

    #[test]
    fn the_help_explains_every_capability() {
        let (_, explained) = HELP.split_once("Capabilities are\n").unwrap();
        for name in Capabilities::NAMES {
            assert!(explained.contains(&format!("  {name} ")), "{name}");
        }
    }
}
