//! Runs the scenarios on a device: `hil [--device NAME] [--filter TEXT] [--after CASE] [--ways WAYS] [--programs FOLDER]`, and tells
//! what comes of them as `hil_tests::protocol` has it. NAME is `softdev`, `softdev-wrapped` (it takes wrapped keys), `uverbs`, or that of an mlx5
//! device; WAYS which ways of posting each case takes: `all`, the name of one, or a seed that
//! draws one for each; FOLDER where the programs of the storage example are. See `cargo xtask hil`.

use hil_tests::board::{Board, DevxBoard, SoftBoard};
use hil_tests::cases::{self, Selection};
use hil_tests::protocol::Event;
use hil_tests::qp_pair::Verdict;
use hil_tests::way::Ways;
use mlx5_softdev::{CryptoMode, DeviceProfile};
use std::error::Error;
use std::io::{self, Write};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

fn main() -> ExitCode {
    let (mut device, mut filter, mut after) = (String::from("softdev"), String::new(), None);
    let mut ways = Ok(Ways::default());
    let mut programs = None;
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        match (argument.as_str(), arguments.next()) {
            ("--device", Some(value)) => device = value,
            ("--filter", Some(value)) => filter = value,
            ("--after", Some(value)) => after = Some(value),
            ("--ways", Some(value)) => ways = value.parse(),
            ("--programs", Some(value)) => programs = Some(PathBuf::from(value)),
            _ => {
                eprintln!(
                    "usage: hil [--device softdev|softdev-wrapped|uverbs|NAME] [--filter TEXT] [--after CASE] \
                     [--ways all|WAY|SEED] [--programs FOLDER]"
                );
                return ExitCode::from(2);
            }
        }
    }
    let ways: Ways = match ways {
        Ok(ways) => ways,
        Err(error) => {
            eprintln!("error: {error}");
            return ExitCode::from(2);
        }
    };
    // Cases in which this program hangs, to test whoever runs it.
    let hangs = std::env::var("HIL_HANG").unwrap_or_default();
    let selection = Selection { filter: &filter, after: after.as_deref(), ways };
    let result = cases::run_guarded(
        selection,
        || open(&device, programs.as_deref()),
        guard,
        |event| {
            // Whoever listens is to know at once: the next thing may be that this process is killed.
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
    );
    match result {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::from(2)
        }
    }
}

/// Makes a failure of a panic, lest the board count as lost: a board panics where the device refuses what every scenario needs.
fn guard(case: &mut dyn FnMut() -> Verdict) -> Verdict {
    catch_unwind(AssertUnwindSafe(case)).unwrap_or_else(|panic| {
        let text =
            panic.downcast_ref::<String>().map(String::as_str).or(panic.downcast_ref::<&str>().copied());
        Err(format!("panicked: {}", text.unwrap_or("without words")))
    })
}

fn open(name: &str, programs: Option<&Path>) -> Result<Box<dyn Board>, Box<dyn Error>> {
    Ok(match name {
        "softdev" => Box::new(SoftBoard::new(DeviceProfile::default())),
        "softdev-wrapped" => {
            let crypto = CryptoMode::Wrapped;
            Box::new(SoftBoard::new(DeviceProfile { crypto, ..DeviceProfile::default() }))
        }
        "uverbs" => Box::new(DevxBoard::open("uverbs", None, programs)?),
        device => Box::new(DevxBoard::open("device", Some(device), programs)?),
    })
}
