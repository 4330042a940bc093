//! `cargo xtask demo`: the man pages' examples, their table and a file, on the software device.

mod render;

use crate::run::root;
use hil_tests::demo::{self, examples, faults, file, rows};
use render::{Painter, Summary};
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

const HELP: &str = "\
cargo xtask demo [--file PATH] [--fault NAME | --fault list]

  --file PATH    the file that is sent and received (default: LICENSE-APACHE of this repository)
  --fault NAME   breaks the software device; the demo must then fail. `list` lists the names
";

/// The file that is there in every clone.
const DEFAULT_FILE: &str = "LICENSE-APACHE";

/// Width of the output in characters.
const WIDTH: usize = 100;

/// What the user asked for.
enum Request {
    Run { file: PathBuf, fault: Option<&'static faults::Fault> },
    ListFaults,
    Help,
}

/// Runs the demo.
pub(crate) fn run(arguments: &[String]) -> ExitCode {
    match serve(arguments) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::from(2)
        }
    }
}

fn serve(arguments: &[String]) -> Result<bool, String> {
    let painter = Painter::for_stdout();
    let mut out = BufWriter::new(io::stdout().lock());
    let done = match parse(arguments)? {
        Request::Help => out.write_all(HELP.as_bytes()).map(|()| true),
        Request::ListFaults => {
            faults::ALL.iter().try_for_each(|fault| writeln!(out, "{}", fault.name())).map(|()| true)
        }
        Request::Run { file, fault } => {
            let source = open(&file)?;
            perform(&mut out, painter, source, &file, fault)
        }
    };
    match done.and_then(|good| out.flush().map(|()| good)) {
        // Whoever listened has heard enough.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(true),
        done => done.map_err(|error| error.to_string()),
    }
}

fn parse(arguments: &[String]) -> Result<Request, String> {
    use lexopt::prelude::*;
    let mut parser = lexopt::Parser::from_args(arguments.iter().map(OsString::from));
    let (mut file, mut fault) = (None, None);
    let explain = |error: lexopt::Error| format!("{error}\n\n{HELP}");
    while let Some(argument) = parser.next().map_err(explain)? {
        match argument {
            Long("file") => file = Some(PathBuf::from(parser.value().map_err(explain)?)),
            Long("fault") => {
                let name = parser.value().and_then(ValueExt::string).map_err(explain)?;
                if name == "list" {
                    return Ok(Request::ListFaults);
                }
                let found = faults::find(&name);
                fault = Some(found.ok_or_else(|| format!("no fault `{name}`; `--fault list` lists them"))?);
            }
            Long("help") | Short('h') => return Ok(Request::Help),
            other => return Err(explain(other.unexpected())),
        }
    }
    Ok(Request::Run { file: file.unwrap_or_else(|| root().join(DEFAULT_FILE)), fault })
}

fn open(path: &Path) -> Result<File, String> {
    let fail = |error: io::Error| format!("cannot read {}: {error}", path.display());
    let file = File::open(path).map_err(fail)?;
    if file.metadata().map_err(fail)?.is_dir() {
        return Err(format!("cannot read {}: it is a directory", path.display()));
    }
    Ok(file)
}

/// Runs all three parts, each on a device of its own, and prints them one by one. Returns whether all was correct.
fn perform(
    out: &mut impl Write,
    painter: Painter,
    source: impl io::Read,
    path: &Path,
    fault: Option<&faults::Fault>,
) -> io::Result<bool> {
    let board = || demo::soft_board(fault.map(faults::Fault::alone).unwrap_or_default());
    let mut summary = Summary::default();
    render::title(out, painter, fault)?;

    let mut device = board();
    render::examples_head(out, painter)?;
    for example in examples::EXAMPLES {
        let seen = (example.run)(&mut device);
        render::example(out, painter, example, &seen)?;
        summary.add_example(example, &seen);
    }
    out.flush()?;

    let mut device = board();
    render::rows_head(out, painter)?;
    for row in rows::ROWS {
        let outcome = row.run(&mut device);
        render::row(out, painter, &outcome)?;
        summary.add_row(&outcome);
    }
    out.flush()?;

    let report = file::run(&mut board(), source)?;
    let name = path.file_name().unwrap_or(path.as_os_str()).to_string_lossy();
    render::file(out, painter, &name, &report)?;
    summary.add_file(&report);
    render::summary(out, painter, &summary)?;
    Ok(summary.wrong.is_empty())
}
