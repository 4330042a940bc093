//! Runs the scenarios on a device: `hil [--device NAME] [--filter TEXT] [--after CASE] [--ways WAYS]
//! [--programs FOLDER] [--measure]`. The output follows `hil_tests::protocol`.
//!
//! NAME is `softdev` (a software device in this process), `softdev-wrapped` (the same with wrapped keys),
//! `uverbs` (the stand-in for the kernel), or the name of an mlx5 device. WAYS selects the posting methods of
//! each case: `all`, a single one, or a random seed that draws one for each case. FOLDER contains the
//! programs of the storage example. With `--measure`, measurements also run on a device that is no hardware.
//! See `cargo xtask hil` and `cargo xtask validate`.

use hil_tests::board::{Board, DevxBoard, SoftBoard, break_stand_in};
use hil_tests::cases::{self, Selection};
use hil_tests::protocol::Event;
use hil_tests::qp_pair::Verdict;
use hil_tests::way::Ways;
use mlx5_softdev::{CryptoMode, DeviceProfile, Faults};
use std::error::Error;
use std::io::{self, Write};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

fn main() -> ExitCode {
    match run() {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::from(2)
        }
    }
}

fn run() -> Result<bool, Box<dyn Error>> {
    let (mut device, mut filter, mut after) = (String::from("softdev"), String::new(), None);
    let (mut ways, mut programs, mut measure) = (Ways::default(), None, false);
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        if argument == "--measure" {
            measure = true;
            continue;
        }
        match (argument.as_str(), arguments.next()) {
            ("--device", Some(value)) => device = value,
            ("--filter", Some(value)) => filter = value,
            ("--after", Some(value)) => after = Some(value),
            ("--ways", Some(value)) => ways = value.parse()?,
            ("--programs", Some(value)) => programs = Some(PathBuf::from(value)),
            _ => {
                return Err("usage: hil [--device softdev|softdev-wrapped|uverbs|NAME] [--filter TEXT] \
                            [--after CASE] [--ways all|WAY|SEED] [--programs FOLDER] [--measure]"
                    .into());
            }
        }
    }
    // `HIL_HANG` names the cases in which this program hangs. Tests set the variable to check that `cargo
    // xtask hil` resets a board that hangs.
    let hangs = std::env::var("HIL_HANG").unwrap_or_default();
    let selection = Selection { board: &device, filter: &filter, after: after.as_deref(), ways, measure };
    cases::run_guarded(
        selection,
        || open(&device, programs.as_deref()),
        guard,
        |event| {
            // Each event is flushed at once, because this process may be killed next.
            let mut out = io::stdout();
            if writeln!(out, "{event}").and_then(|()| out.flush()).is_err() {
                std::process::exit(2);
            }
            if matches!(event, Event::Start(name) if hangs.split(',').any(|case| case == name)) {
                loop {
                    std::thread::park();
                }
            }
        },
    )
}

/// Reports a panic in a case as a failure of this case, so that the next case still runs. Boards panic if the
/// device refuses an operation that every scenario needs.
fn guard(case: &mut dyn FnMut() -> Verdict) -> Verdict {
    catch_unwind(AssertUnwindSafe(case)).unwrap_or_else(|panic| {
        let text =
            panic.downcast_ref::<String>().map(String::as_str).or(panic.downcast_ref::<&str>().copied());
        Err(format!("panicked: {}", text.unwrap_or("without words")))
    })
}

/// Returns the fault that the environment variable `HIL_BREAK` names. The software device then has this
/// fault, to test the report of a failed case.
fn fault() -> Result<Option<String>, Box<dyn Error>> {
    match std::env::var("HIL_BREAK") {
        Ok(name) if Faults::named(&name).is_none() => Err(format!("HIL_BREAK: no fault `{name}`").into()),
        Ok(name) => Ok(Some(name)),
        Err(_) => Ok(None),
    }
}

fn open(name: &str, programs: Option<&Path>) -> Result<Box<dyn Board>, Box<dyn Error>> {
    let fault = fault()?;
    let soft = |profile| -> Box<dyn Board> {
        let faults = fault.as_deref().and_then(Faults::named).unwrap_or_default();
        Box::new(SoftBoard::new(profile).with_faults(faults))
    };
    Ok(match name {
        "softdev" => soft(DeviceProfile::default()),
        "softdev-wrapped" => soft(DeviceProfile { crypto: CryptoMode::Wrapped, ..DeviceProfile::default() }),
        device => {
            let board = DevxBoard::open((device != "uverbs").then_some(device), programs)?;
            if let Some(fault) = &fault {
                break_stand_in(fault)?;
            }
            Box::new(board)
        }
    })
}
