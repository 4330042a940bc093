//! Runs the scenarios on a board: `hil --board softdev|uverbs|DEVICE [--filter TEXT]`. See `cargo xtask hil`.

use hil_tests::board::{Board, DevxBoard, SoftBoard};
use hil_tests::scenarios;
use mlx5_softdev::Personality;
use std::process::ExitCode;

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1);
    let (mut board, mut filter) = (String::from("softdev"), String::new());
    while let Some(argument) = arguments.next() {
        match (argument.as_str(), arguments.next()) {
            ("--board", Some(value)) => board = value,
            ("--filter", Some(value)) => filter = value,
            _ => {
                eprintln!("usage: hil [--board softdev|uverbs|DEVICE] [--filter TEXT]");
                return ExitCode::from(2);
            }
        }
    }
    match run(&board, &filter) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::from(2)
        }
    }
}

/// Runs all scenarios whose name holds `filter`, each on the board made anew; returns whether none failed.
fn run(name: &str, filter: &str) -> Result<bool, Box<dyn std::error::Error>> {
    let (mut passed, mut failed, mut skipped) = (0, 0, 0);
    for scenario in scenarios::all().filter(|scenario| scenario.name.contains(filter)) {
        let mut board = open(name)?;
        match scenario.needs.missing(&board.capabilities()) {
            Some(what) => {
                println!("SKIPPED {}: the board lacks {what}", scenario.name);
                skipped += 1;
            }
            None => match (scenario.run)(&mut *board) {
                Ok(()) => {
                    println!("passed  {}", scenario.name);
                    passed += 1;
                }
                Err(what) => {
                    println!("FAILED  {}: {what}", scenario.name);
                    failed += 1;
                }
            },
        }
    }
    println!("board {name}: {passed} passed, {failed} failed, {skipped} skipped");
    Ok(failed == 0 && passed > 0)
}

fn open(name: &str) -> Result<Box<dyn Board>, Box<dyn std::error::Error>> {
    Ok(match name {
        "softdev" => Box::new(SoftBoard::new(Personality::default())),
        "uverbs" => Box::new(DevxBoard::open("uverbs", None)?),
        device => Box::new(DevxBoard::open("device", Some(device))?),
    })
}
