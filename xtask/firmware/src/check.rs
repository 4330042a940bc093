//! Checks of the bare-metal image beyond its scenarios: the image must report each fault that it provokes,
//! and end with the expected status.

use super::image::{build, emulate, machine};
use std::io::Write;
use std::path::Path;
use std::process::Command;
use xtask::build::BOARD_IMAGE;
use xtask::toolchain::Board;

/// Runs that must end with a fault: arguments for the image, the expected exit status, and a text that the
/// log must contain.
const WRONG: &[(&[&str], u8, &str)] = &[
    (&["--provoke", "data-abort"], 102, "error: data abort: "),
    (&["--provoke", "write-to-code"], 102, "error: data abort: "),
    (&["--provoke", "stack-overflow"], 102, "error: stack overflow: "),
    (&["--provoke", "panic"], 101, "error: panicked at "),
    // The panic interrupts the writing of a log line, which is then the last line of the log.
    (&["--provoke", "panic-while-logging"], 103, "rings at "),
    (&["--provoke", "nothing"], 2, "error: the command line has an unknown option: `nothing`"),
];

/// The arguments of runs without a fault: they select one scenario.
const RIGHT: &[&str] = &["--filter", "r049_interleaved_example"];

/// Runs the images of both boards (BlueField-2 and BlueField-3), and checks how each run ends.
///
/// # Errors
/// A description of the first unexpected result, or of a failure of QEMU.
pub(super) fn check(out: &mut dyn Write) -> Result<(), String> {
    let mut runs = 0;
    for board in Board::ALL {
        let image = build(board)?;
        let mut expect = |change: &[&str], image: &Path, words: &[&str], status: u8, logged: &[&str]| {
            let words: Vec<String> = words.iter().copied().map(String::from).collect();
            let mut machine = machine(board, image, &words);
            machine.args(change);
            runs += 1;
            run(machine, image, status, logged)
                .map_err(|error| format!("{}, {words:?}: {error}", board.name()))
        };
        for (words, status, logged) in WRONG {
            expect(&[], &image, words, *status, &[logged])?;
        }
        let on = "translation and caches are on";
        let passed = "hil: passed r049_interleaved_example\nhil: done\n";
        // A board's own firmware may start the image at the exception level EL2 instead of EL1. With this
        // option, QEMU does so too, and the image must switch to EL1.
        let (level, uncached) = (["-machine", "virtualization=on"], "memory attributes Some(0x44)");
        expect(&level, &image, RIGHT, 0, &["at EL1", on, uncached, passed])?;
        // The image for the board is linked for other addresses than the image for QEMU, and needs more
        // memory.
        let (memory, cached) = (["-m", "2G"], "memory attributes Some(0xff)");
        expect(&memory, &image.with_file_name(BOARD_IMAGE), RIGHT, 0, &["at EL1", on, cached, passed])?;
    }
    writeln!(out, "{runs} runs of bare-metal images, with and without faults, ended as expected")
        .map_err(|error| error.to_string())
}

/// Runs an image, and checks that it ends with this exit status and that its log contains these texts.
fn run(machine: Command, image: &Path, status: u8, logged: &[&str]) -> Result<(), String> {
    let mut log = Vec::new();
    let found = emulate(machine, image, &mut log)?;
    let log = String::from_utf8_lossy(&log);
    if found != status {
        return Err(format!("exit status {found}, expected {status}:\n{log}"));
    }
    match logged.iter().find(|text| !log.contains(**text)) {
        None => Ok(()),
        Some(text) => Err(format!("no `{text}` in the log:\n{log}")),
    }
}
